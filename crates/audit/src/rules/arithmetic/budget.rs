//! The rule that adds up the latency budget.

use host::Facts;
use host::facts::Link;

use super::rings::see_terms;
use super::terms::absence;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[Rule {
    id: "math.latency-budget",
    cause: Cause::Budget,
    title: "The worst case of the settings meets the goal",
    applies: Applies::LINUX,
    judge: budget,
    why: "A packet's delay is the sum of what it waits for: moderation of the device, deferred interrupts, the idle \
          state, the change of frequency, the interrupt's thread. Each setting can look small while their sum exceeds \
          the goal. Queueing, the work itself, transmission and the exit from a package's sleep come on top and are \
          not included. Neither are the 500 us for which a request for a higher frequency can wait (GPSS), because the \
          core works meanwhile, only slower.",
    magnitude: Magnitude::untimed(
        "on a host in interrupt mode, 105 us on average and 418 us at most; 14 us and 21 us after its settings were fixed",
        "Interrupt-mode DPDK slides (2017)",
    ),
    fix: Fix::look(
        "apus audit --fix found.toml; apus tune plan found.toml # shows the fixes of the other findings, which \
         shorten the terms",
    ),
    cost: "Less moderation causes more interrupts; shallower idle states use more power.",
    references: &["Interrupt-mode DPDK slides (2017)", "Intel P-state guide (637284-001US, 2021)"],
}];

/// Texts of the finding if no part of the delay takes any time: `POLLING` for a reader that polls, `WAITING` for one
/// that sleeps. The texts name the parts that were considered.
const POLLING: &str = "nothing that this rule adds up delays a thread that polls (a change of frequency; system management \
                       interrupts, where they were counted)";
const WAITING: &str = "nothing that this rule adds up delays a packet (moderation, deferral, idle state, change of frequency, \
                       interrupt thread; system management interrupts, where they were counted)";
/// Why the sum for a polling thread does not include idle states.
const IDLE: &str = "idle states, because a thread that polls without a pause enters none";

fn budget(facts: &Facts, context: &Context) -> Judged {
    let Some(goal) = context.goal else {
        return Err(Skip::not_applicable("no goal was given: --goal p99.9=50us"));
    };
    let one = |subject: Subject, link: Option<&Link>| {
        let terms = absence(facts, context, link);
        let sum = terms.sum();
        let mut open = terms.open.clone();
        let is_half = sum > goal.latency / 2;
        if link.is_none() && !context.only_polls() {
            open.push("the interrupt moderation of the NIC, because no interface is known".to_owned());
        }
        let what = match terms.known.as_slice() {
            [] if context.only_polls() => POLLING.to_owned(),
            [] => WAITING.to_owned(),
            [one] => format!("{} takes up to {}", one.name, one.time),
            _ => format!("the worst cases add up to {sum}: {}", terms.text()),
        };
        // If a guest halts, its polling thread alone does not show all delays.
        let idle = (context.only_polls() && !terms.known.is_empty()).then(|| IDLE.to_owned());
        let left_out: Vec<String> = open.iter().cloned().chain(idle).collect();
        let more = if left_out.is_empty() { String::new() } else { format!(" (not counted: {})", left_out.join("; ")) };
        let found = format!("{what}{more}; the goal is {}", goal.latency);
        let judgement = match sum > goal.latency {
            true => Judgement::fail_for(subject, found).takes(sum),
            // Unknown parts can only increase the sum.
            false if !open.is_empty() && !is_half => {
                // If nothing is known, no sum can be given.
                let reason = match terms.known.as_slice() {
                    [] => open.join("; "),
                    _ => format!("{what}, and more may come: {}", open.join("; ")),
                };
                return Judgement::skipped(subject, Skip::unknown(reason));
            }
            // The rest of the goal is left for queueing, work and transmission.
            false if is_half => {
                Judgement::warn_for(subject, format!("{found}; this leaves less than half of the goal for processing"))
                    .takes(sum)
            }
            false => Judgement::pass_for(subject, found),
        };
        see_terms(judgement.see_as(goal.latency.to_string(), format!("goal {}", goal.quantile)), &terms)
    };
    let links: Vec<&Link> = context.links(facts).collect();
    if links.is_empty() {
        known(&facts.cpus.online)?;
        return Ok(vec![one(Subject::Host, None)]);
    }
    Ok(links.into_iter().map(|link| one(Subject::Link(link.name.clone()), Some(link))).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::Generation;
    use units::Nanos;

    use super::super::rings::tests::{exit, moderated, nic};
    use crate::testing::{Case, Host, host};
    use crate::{Verdict, Workload};

    fn goal(host: Host) -> Host {
        host.goal(Nanos::from_micros(50))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("math.latency-budget", || goal(nic())),
        Case::warn("math.latency-budget", || goal(nic().edit(|f| moderated(f, 30, 0)))),
        Case::fail("math.latency-budget", || goal(nic().edit(|f| moderated(f, 30, 0)).edit(|f| exit(f, 33)))),
        Case::unknown("math.latency-budget", || goal(host().nic("eth0"))),
        Case::not_applicable("math.latency-budget", nic),
    ];

    #[test]
    fn the_longest_term_is_named_first() {
        let judgement =
            goal(nic().edit(|f| moderated(f, 30, 0)).edit(|f| exit(f, 33))).judge("math.latency-budget").remove(0);
        assert_eq!(
            judgement.found,
            "the worst cases add up to 63us: idle state C6 33us + moderation 30us; the goal is 50us"
        );
        assert_eq!(judgement.effect, Some(crate::Effect::Late(Nanos::from_micros(63))));
    }

    /// emr0, adl0: of one known part no sum is made, and it is a lower bound.
    #[test]
    fn one_part_is_no_sum_and_what_is_not_counted_is_said() {
        let judgement = goal(host()).edit(|f| exit(f, 290)).judge("math.latency-budget").remove(0);
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert!(judgement.found.starts_with("idle state C6 takes up to 290us (not counted: "), "{}", judgement.found);
        assert!(
            judgement.found.contains("interrupt moderation") && !judgement.found.contains('='),
            "{}",
            judgement.found
        );
        let shallow = goal(host()).edit(|f| exit(f, 2)).judge("math.latency-budget").remove(0);
        assert!(shallow.verdict.reason().is_some_and(|why| why.contains("interrupt moderation")), "{shallow:?}");
    }

    /// A thread that polls wakes up from nothing, with an interface and without (live: DPDK hosts with C6 of 133 us).
    #[test]
    fn a_polling_application_waits_for_no_wake_up() {
        let sleepy = |host: Host| {
            let host = goal(host).edit(|f| exit(f, 133));
            host.edit(|f| f.cpus.generation = Fact::known(Generation::IceLake, "/proc/cpuinfo"))
        };
        assert_eq!(sleepy(host()).judge("math.latency-budget")[0].verdict, Verdict::Fail);
        for poll in [host().workload(Workload::Poll), nic().without_uses().workload(Workload::Poll)] {
            let judgement = sleepy(poll).judge("math.latency-budget").remove(0);
            assert_eq!((&judgement.verdict, judgement.effect), (&Verdict::Pass, None), "{judgement:?}");
            assert!(judgement.found.starts_with("nothing that this rule adds up delays a thread that polls"));
        }
        // One that also waits for interrupts does.
        let both = host().workload(Workload::Poll).workload(Workload::Interrupt);
        assert_eq!(sleepy(both).judge("math.latency-budget")[0].verdict, Verdict::Fail);
    }

    /// clx2s0: a core that stops for a change of its frequency stops a thread that polls too.
    #[test]
    fn a_change_of_frequency_stops_a_polling_thread() {
        let of = |generation: fn(&mut host::Facts), max: &'static str| {
            let policy = "/sys/devices/system/cpu/cpufreq/policy2";
            let host = host().isolated("2").workload(Workload::Poll).file(&format!("{policy}/related_cpus"), "2");
            let host = host.file(&format!("{policy}/scaling_min_freq"), "1000000");
            let host = host.file(&format!("{policy}/scaling_max_freq"), max).goal(Nanos::from_micros(20));
            host.edit(generation)
        };
        let cascade_lake =
            |f: &mut host::Facts| f.cpus.generation = Fact::known(Generation::CascadeLake, "/proc/cpuinfo");
        let skylake = |f: &mut host::Facts| f.cpus.generation = Fact::known(Generation::Skylake, "/proc/cpuinfo");
        let poll = |max: &'static str| of(cascade_lake, max);
        let varies = poll("3000000").judge("math.latency-budget").remove(0);
        assert_eq!(
            (&varies.verdict, varies.effect),
            (&Verdict::Warn, Some(crate::Effect::Late(Nanos::from_micros(12))))
        );
        assert!(varies.found.starts_with("change of frequency takes up to 12us"), "{}", varies.found);
        assert_eq!(poll("1000000").judge("math.latency-budget")[0].verdict, Verdict::Pass);
        // skld0: the guide does not name Skylake, and so it is open, and no part of the sum.
        let open = of(skylake, "3000000").judge("math.latency-budget").remove(0);
        assert_eq!(open.effect, None);
        let reason = open.verdict.reason();
        assert_eq!(
            reason,
            Some(
                "stall of the core at a change of frequency, because the Intel P-state guide is about the 2nd and 3rd generation of Xeon Scalable (Cascade Lake, Ice Lake), not Skylake"
            )
        );
        // The bounds and the generation are what it rests on.
        let seen: Vec<&str> = varies.evidence.iter().map(|seen| seen.value.as_str()).collect();
        assert!(seen.contains(&"1000 MHz") && seen.contains(&"3000 MHz") && seen.contains(&"CascadeLake"), "{seen:?}");
        assert!(varies.found.contains("(not counted: idle states, because a thread that polls"), "{}", varies.found);
    }

    /// rome0 with a goal of 400 us, of which C2 takes 400: whatever else comes, less than half is left.
    #[test]
    fn what_is_known_can_be_too_much_already() {
        let of = |exit_us: u64| {
            let host = goal(host()).edit(match exit_us {
                50 => |f| exit(f, 50),
                26 => |f| exit(f, 26),
                _ => |f| exit(f, 25),
            });
            host.judge("math.latency-budget").remove(0)
        };
        for most in [50, 26] {
            let judgement = of(most);
            assert_eq!(judgement.verdict, Verdict::Warn, "{judgement:?}");
            assert_eq!(judgement.effect, Some(crate::Effect::Late(Nanos::from_micros(most))));
            let found = &judgement.found;
            assert!(
                found.contains("(not counted: ")
                    && found.ends_with("; this leaves less than half of the goal for processing"),
                "{found}"
            );
        }
        assert!(of(25).verdict.reason().is_some(), "{:?}", of(25));
    }
}
