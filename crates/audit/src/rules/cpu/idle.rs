//! Rules on idle states: which are enabled, which are used, and which limits apply.

use host::Facts;
use host::facts::{Cpu, CpuSet, IdleState, ResumeLatency};
use units::Nanos;

use crate::rules::common::{PER_CPU, by_cpu};
use crate::{Applies, Cause, Context, Effect, Fix, Judged, Judgement, Magnitude, Rule, Skip, known, spaced};

const SLIDES: &str = "Interrupt-mode DPDK slides (2017), table of C-states and latency";
/// Describes how long a wake-up takes. The host reports the actual numbers.
const EXIT: &str = "the exit latency that the host reports for its deepest state; the servers on which apus was tested \
    report 1 to 2 us for the shallowest state and 33 to 800 us for the deepest";
const EXIT_SOURCE: &str = "cpuidle/state*/latency of the host; Linux Documentation/admin-guide/pm/cpuidle.rst";
const CPUIDLE: &str = "Linux Documentation/admin-guide/pm/cpuidle.rst";

/// The cost of limiting idle states.
const IDLE: &str = "The application's CPUs use more power when idle, which leaves less turbo for the other CPUs.";

/// The cost of limiting the idle states of these CPUs. The text differs if it is not known which CPUs the application
/// uses.
fn cost(context: &Context, cpus: &CpuSet) -> String {
    match context.isolated.value.is_empty() {
        true => format!(
            "All {} CPUs stay in shallow states: the host saves hardly any power when idle, and busy cores get less turbo. \
             --isolated limits the change to the application's CPUs.",
            cpus.len()
        ),
        false => IDLE.to_owned(),
    }
}

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "idle.states",
        cause: Cause::IdleStates,
        title: "The exit latency of every idle state of application CPUs is within the budget",
        applies: Applies::LINUX,
        judge: states,
        why: "A CPU that sleeps when a packet comes must first wake up. How long that takes is the exit latency of its \
              idle state; in deep states the caches also lose their contents.",
        magnitude: Magnitude::untimed(EXIT, EXIT_SOURCE),
        fix: Fix::runtime(PER_CPU).against(&["DPDK guide, power library: C3 and C6 are needed for saving power"]),
        cost: IDLE,
        references: &[
            SLIDES,
            CPUIDLE,
            "Linux drivers/idle/intel_idle.c",
            "DPDK guide, older editions, Getting Started for Linux, How to get best performance with NICs on Intel platforms",
        ],
    },
    Rule {
        id: "idle.usage-delta",
        cause: Cause::IdleStates,
        title: "Deep idle states were not entered during the measurement",
        applies: Applies::LINUX,
        judge: usage,
        why: "Settings show what may happen; counters show what did happen. If a limit is not in force, the counters \
              show entries into states that it forbids.",
        magnitude: Magnitude::untimed("per entry, the exit latency that the host reports for that state", EXIT_SOURCE),
        fix: Fix::runtime(PER_CPU),
        cost: IDLE,
        references: &[CPUIDLE],
    },
    Rule {
        id: "idle.driver-governor",
        cause: Cause::IdleStates,
        title: "The driver of idle states knows the hardware",
        applies: Applies::LINUX.on_hardware(),
        judge: driver,
        why: "intel_idle knows each part's states and their latencies; acpi_idle trusts the firmware's table, which \
              often lacks states or holds wrong latencies. The driver decides which parameter has an effect.",
        magnitude: Magnitude::untimed(
            "depends on how wrong the firmware's table is",
            "Linux Documentation/admin-guide/pm/intel_idle.rst; no figure can be given",
        ),
        fix: Fix::boot(
            "remove intel_idle.max_cstate\nboot a kernel whose intel_idle knows this processor, with the idle states enabled in the firmware",
        ),
        cost: "The CPUs get deeper idle states: limit these per CPU (idle.states).",
        references: &[CPUIDLE, "Linux Documentation/admin-guide/pm/intel_idle.rst"],
    },
    Rule {
        id: "idle.pmqos-global",
        cause: Cause::IdleStates,
        title: "The process that holds a limit on wake-up times is running",
        applies: Applies::LINUX.on_hardware(),
        judge: global,
        why: "A process that keeps /dev/cpu_dma_latency open limits the idle states of all CPUs. The limit ends with the \
         process.",
        magnitude: Magnitude::untimed(EXIT, EXIT_SOURCE),
        fix: Fix::runtime(PER_CPU),
        cost: IDLE,
        references: &["Linux Documentation/power/pm_qos_interface.rst", "tuned profile latency-performance"],
    },
    Rule {
        id: "idle.pmqos-percpu",
        cause: Cause::IdleStates,
        title: "Application CPUs have their own limit on wake-up times",
        applies: Applies::LINUX.on_hardware().isolated(),
        judge: per_cpu,
        why: "pm_qos_resume_latency_us limits the idle states of one CPU and lets the others sleep. The value 0 means no \
         limit, not zero latency; n/a means that the CPU may only poll.",
        magnitude: Magnitude::untimed(EXIT, EXIT_SOURCE),
        fix: Fix::runtime(PER_CPU),
        cost: IDLE,
        references: &["Linux Documentation/ABI/testing/sysfs-devices-power", CPUIDLE],
    },
];

/// The limit on the exit latency of a CPU's idle states: the CPU's own limit or that of the host, whichever is lower.
/// `None` if there is no limit. Disabled states are not considered.
fn limit(facts: &Facts, cpu: &Cpu) -> Option<Nanos> {
    let own = match cpu.resume_latency.get() {
        Some(ResumeLatency::Zero) => Some(Nanos::ZERO),
        Some(ResumeLatency::AtMost(limit)) => Some(limit),
        Some(ResumeLatency::NoLimit) | None => None,
    };
    let host = facts.idle.dma_latency.get();
    match (own, host) {
        (Some(own), Some(host)) => Some(own.min(host)),
        (own, host) => own.or(host),
    }
}

/// The enabled state with the longest exit latency that the limits allow. `None` if there is none.
pub(crate) fn deepest<'a>(facts: &Facts, cpu: &'a Cpu) -> Result<Option<&'a IdleState>, Skip> {
    let limit = limit(facts, cpu);
    let mut deepest: Option<(&IdleState, Nanos)> = None;
    for state in known(&cpu.idle_states)? {
        let exit = *known(&state.exit_latency)?;
        let allowed = state.disabled.get() != Some(true) && limit.is_none_or(|limit| exit <= limit);
        if allowed && deepest.is_none_or(|(_, other)| exit > other) {
            deepest = Some((state, exit));
        }
    }
    Ok(deepest.map(|(state, _)| state))
}

/// The name of a state, for messages.
pub(crate) fn name(state: &IdleState) -> String {
    state.name.value().cloned().unwrap_or_else(|| format!("state{}", state.index))
}

fn states(facts: &Facts, context: &Context) -> Judged {
    let polls = facts.cmdline.value().is_some_and(|line| line.has_value("idle", "poll"));
    let (budget, critical) = (context.budget(), context.critical(facts));
    by_cpu(facts, &critical, |cpu| {
        if polls {
            return Ok(Judgement::pass("idle=poll: these CPUs never sleep").see_as("idle=poll", facts.cmdline.source()));
        }
        let Some(state) = deepest(facts, cpu)? else {
            return Ok(Judgement::pass("no idle state is allowed").see_as("none", cpu.idle_states.source()));
        };
        let exit = *known(&state.exit_latency)?;
        let text = format!(
            "the deepest state allowed is {}, which takes {} to wake up from; {}",
            name(state),
            spaced(exit),
            bound(context)
        );
        let judgement = match exit <= budget {
            true => Judgement::pass(text),
            // DPDK's guide recommends disabling deep states for an application that polls, although its CPUs enter them
            // only if it pauses.
            false if context.only_polls() => Judgement::warn(format!("{text}{NOT_ENTERED}")),
            // Ten times the budget of an intent is clearly too much. Without an intent, deep states may be wanted.
            false if context.has_intent() && exit.as_nanos() / 10 >= budget.as_nanos() => {
                Judgement::fail(text).takes(exit)
            }
            false => Judgement::warn(text).takes(exit),
        };
        let judgement = judgement.costs(cost(context, &critical)).see_as(all_states(cpu), cpu.idle_states.source());
        Ok(judgement
            .see(&state.exit_latency)
            .see_whether(&state.disabled, "disabled", "enabled")
            .see(&facts.idle.dma_latency))
    })
}

/// Sentence that is added to findings about deep states if the application polls.
const NOT_ENTERED: &str = ". This matters only if the polling thread pauses or sleeps: while it polls, its CPU enters \
    no idle state";

/// Describes the limit with which wake-up times are compared.
fn bound(context: &Context) -> String {
    match context.goal {
        Some(goal) => format!("the goal is {}", spaced(goal.latency)),
        None => format!("without a latency goal (--goal), apus accepts wake-ups of up to {}", spaced(context.budget())),
    }
}

/// The effect of a wake-up that takes `exit`. If the application's thread polls, no packet waits for a wake-up.
fn wait(context: &Context, exit: Nanos) -> Effect {
    if context.only_polls() { Effect::Unsized } else { Effect::Late(exit) }
}

/// The state with the longest exit latency that any of these CPUs may enter, and this latency. `None` if no CPU may
/// enter a state.
fn longest<'a>(facts: &'a Facts, cpus: &CpuSet) -> Result<Option<(&'a IdleState, Nanos)>, Skip> {
    let mut longest: Option<(&IdleState, Nanos)> = None;
    for cpu in cpus.iter().filter_map(|id| facts.cpus.cpu(id)) {
        let Some(state) = deepest(facts, cpu)? else { continue };
        let exit = *known(&state.exit_latency)?;
        if longest.as_ref().is_none_or(|(_, other)| exit > *other) {
            longest = Some((state, exit));
        }
    }
    Ok(longest)
}

/// Lists the states of a CPU, each with its exit latency: `POLL 0ns, C1 1us, C6 170us (disabled)`.
fn all_states(cpu: &Cpu) -> String {
    let one = |state: &IdleState| {
        let off = if state.disabled.get() == Some(true) { " (disabled)" } else { "" };
        format!("{} {}{off}", name(state), state.exit_latency)
    };
    cpu.idle_states.value().into_iter().flatten().map(one).collect::<Vec<_>>().join(", ")
}

fn usage(facts: &Facts, context: &Context) -> Judged {
    let critical = context.critical(facts);
    // Without idle states, none can be entered, however often the host was observed.
    if let Some(cpu) = critical.iter().find_map(|id| facts.cpus.cpu(id)) {
        known(&cpu.idle_states)?;
    }
    let interval = known(&facts.interval)?;
    if interval.change.idle.is_empty() {
        return Err(Skip::unknown("/sys/devices/system/cpu/cpu*/cpuidle/state*/usage: not read twice"));
    }
    let budget = context.budget();
    by_cpu(facts, &critical, |cpu| {
        let mut worst: Option<(&IdleState, Nanos, u64)> = None;
        for state in known(&cpu.idle_states)? {
            let exit = *known(&state.exit_latency)?;
            let entered = interval.change.idle.get(&(cpu.id, state.index)).map_or(0, |counts| counts.usage);
            if exit > budget && entered > 0 && worst.is_none_or(|(_, other, _)| exit > other) {
                worst = Some((state, exit, entered));
            }
        }
        let length = interval.length;
        Ok(match worst {
            Some((state, exit, entered)) => {
                let text = format!("{} was entered; waking up from it takes {}", name(state), spaced(exit));
                Judgement::warn(text)
                    .takes(exit)
                    .costs(cost(context, &critical))
                    .see_as(format!("{entered} times during {length}"), cpu.idle_states.source())
            }
            None => Judgement::pass(format!(
                "no idle state with an exit latency above {} was entered during {}",
                spaced(budget),
                spaced(length)
            ))
            .see_as("0 entries", cpu.idle_states.source()),
        })
    })
}

fn driver(facts: &Facts, _: &Context) -> Judged {
    let driver = &facts.idle.driver;
    let intel = facts.cpus.vendor.get() == Some(host::facts::Vendor::Intel);
    let judgement = match known(driver)?.as_str() {
        "acpi_idle" if intel => Judgement::warn("the driver is acpi_idle: states and latencies come from the firmware"),
        "acpi_idle" if facts.cpus.vendor.get() == Some(host::facts::Vendor::Amd) => {
            Judgement::pass("the driver is acpi_idle, as usual on AMD: states and latencies come from the firmware")
        }
        "none" => Judgement::pass("there is no idle-state driver: idle CPUs halt or poll"),
        driver => Judgement::pass(format!("the driver is {driver}")),
    };
    judgement.see(driver).see(&facts.idle.governor).alone()
}

fn global(facts: &Facts, context: &Context) -> Judged {
    let limit = &facts.idle.dma_latency;
    let (value, budget) = (*known(limit)?, context.budget());
    let critical = context.critical(facts);
    let limited = |id: u32| {
        matches!(
            facts.cpus.cpu(id).and_then(|cpu| cpu.resume_latency.get()),
            Some(ResumeLatency::Zero | ResumeLatency::AtMost(_))
        )
    };
    let judgement = if value <= budget {
        Judgement::pass(format!("all CPUs must wake up within {}", spaced(value)))
    } else if !critical.is_empty() && critical.iter().all(limited) {
        Judgement::pass("there is no limit for all CPUs, but each application CPU has its own")
    } else {
        match longest(facts, &critical) {
            Ok(None) | Err(Skip::NotApplicable(_)) => {
                Judgement::pass("there is no limit, and no idle state that needs one")
            }
            Ok(Some((state, exit))) if exit <= budget => Judgement::pass(format!(
                "there is no limit{}: the deepest state, {}, takes {} to wake up from; {}",
                if exit <= budget / 2 { ", and none is needed" } else { "" },
                name(state),
                spaced(exit),
                bound(context)
            ))
            .see(&state.exit_latency),
            Ok(Some((state, exit))) => Judgement::warn(format!(
                "no limit on wake-up times applies to all CPUs: the deepest state, {}, takes {} to wake up from; {}",
                name(state),
                spaced(exit),
                bound(context)
            ))
            .with_effect(wait(context, exit))
            .see(&state.exit_latency),
            Err(Skip::Unknown { .. }) => {
                Judgement::warn(format!("no limit on wake-up times applies to all CPUs; {}", bound(context)))
            }
        }
    };
    let judgement = judgement.costs(cost(context, &critical)).see(limit);
    match facts.idle.dma_latency_holders.value() {
        Some(holders) => {
            judgement.see_as(format!("held by {}", holders.join(", ")), facts.idle.dma_latency_holders.source())
        }
        None => judgement,
    }
    .alone()
}

fn per_cpu(facts: &Facts, context: &Context) -> Judged {
    let budget = context.budget();
    by_cpu(facts, &context.isolated.value, |cpu| {
        let fact = &cpu.resume_latency;
        let (judgement, text) = match *known(fact)? {
            ResumeLatency::Zero => (Judgement::pass("idle CPUs may only poll"), "n/a".to_owned()),
            ResumeLatency::AtMost(limit) if limit <= budget => {
                (Judgement::pass(format!("the per-CPU limit on wake-up times is {}", spaced(limit))), limit.to_string())
            }
            ResumeLatency::AtMost(limit) => (
                Judgement::warn(format!("the per-CPU limit on wake-up times is {}; {}", spaced(limit), bound(context)))
                    .takes(limit),
                limit.to_string(),
            ),
            ResumeLatency::NoLimit if facts.idle.dma_latency.is(|limit| *limit <= budget) == Some(true) => (
                Judgement::pass("no per-CPU limit on wake-up times is set, but the host has one"),
                "0, which means no limit".to_owned(),
            ),
            ResumeLatency::NoLimit => (unlimited(facts, context, cpu), "0, which means no limit".to_owned()),
        };
        Ok(judgement.see_as(text, fact.source()))
    })
}

/// Judges a CPU that has no exit-latency limit of its own, by the exit latency of its deepest state.
fn unlimited(facts: &Facts, context: &Context, cpu: &Cpu) -> Judgement {
    let polls = facts.cmdline.value().is_some_and(|line| line.has_value("idle", "poll"));
    if polls {
        return Judgement::pass(
            "no per-CPU limit on wake-up times is set, and none is needed: idle=poll never lets a CPU sleep",
        );
    }
    match longest(facts, &CpuSet::from([cpu.id])) {
        Ok(None) | Err(Skip::NotApplicable(_)) => {
            Judgement::pass("no per-CPU limit on wake-up times is set, and no idle state needs one")
        }
        Ok(Some((state, exit))) if exit <= context.budget() => Judgement::pass(format!(
            "no per-CPU limit on wake-up times is set{}: the deepest state, {}, takes {} to wake up from; {}",
            if exit <= context.budget() / 2 { ", and none is needed" } else { "" },
            name(state),
            spaced(exit),
            bound(context)
        ))
        .see(&state.exit_latency),
        Ok(Some((state, exit))) => Judgement::warn(format!(
            "no per-CPU limit on wake-up times is set: the deepest state, {}, takes {} to wake up from; {}{}",
            name(state),
            spaced(exit),
            bound(context),
            if context.only_polls() { NOT_ENTERED } else { "" }
        ))
        .with_effect(wait(context, exit))
        .see(&state.exit_latency),
        Err(Skip::Unknown { .. }) => Judgement::warn(
            "no per-CPU limit on wake-up times is set; the exit latencies of the idle states are not recorded",
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{Case, Host, host};

    /// A host as delivered: nothing is isolated, and nobody said what it is for.
    fn delivered() -> Host {
        with_usage(host(), "0", "", "5")
    }

    const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

    /// Two states: C1 with 2 us, C6 with 133 us, the second switched off or not.
    fn with_states(disabled: &str) -> Host {
        with_usage(host().isolated("2-7"), disabled, "", "5")
    }

    fn with_usage(host: Host, disabled: &str, place: &str, usage: &str) -> Host {
        (0..8).fold(host, |host, n| {
            let state = |k: u32| format!("{place}/sys/devices/system/cpu/cpu{n}/cpuidle/state{k}");
            let host = host.file(&format!("{}/name", state(0)), "C1").file(&format!("{}/latency", state(0)), "2");
            let host = host.file(&format!("{}/disable", state(0)), "0").file(&format!("{}/usage", state(0)), "9");
            let host = host.file(&format!("{}/name", state(1)), "C6").file(&format!("{}/latency", state(1)), "133");
            host.file(&format!("{}/disable", state(1)), disabled).file(&format!("{}/usage", state(1)), usage)
        })
    }

    fn twice(usage: &str) -> Host {
        with_usage(with_states("0"), "0", "/again", usage)
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "103.00 1")
    }

    fn own(text: &str) -> Host {
        (0..8).fold(host().isolated("2-7"), |host, n| {
            host.file(&format!("/sys/devices/system/cpu/cpu{n}/power/pm_qos_resume_latency_us"), text)
        })
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("idle.states", || with_states("1")),
        Case::pass("idle.states", || with_states("0").file("/commands/cpu_dma_latency", "5")),
        Case::pass("idle.states", || with_states("0").cmdline("idle=poll")),
        Case::warn("idle.states", || with_states("0").goal(Nanos::from_micros(50))),
        Case::fail("idle.states", || with_states("0")),
        Case::warn("idle.states", delivered),
        Case::fail("idle.states", || delivered().goal(Nanos::from_micros(10))),
        Case::unknown("idle.states", host),
        Case::not_applicable("idle.states", || host().complete()),
        Case::pass("idle.usage-delta", || twice("5")),
        Case::warn("idle.usage-delta", || twice("9")),
        Case::unknown("idle.usage-delta", || with_states("0")),
        Case::not_applicable("idle.usage-delta", || host().complete()),
        Case::pass("idle.driver-governor", || host().file(DRIVER, "intel_idle\n")),
        Case::warn("idle.driver-governor", || host().file(DRIVER, "acpi_idle\n")),
        Case::unknown("idle.driver-governor", host),
        Case::pass("idle.pmqos-global", || host().file("/commands/cpu_dma_latency", "2\n")),
        Case::warn("idle.pmqos-global", || host().file("/commands/cpu_dma_latency", "2000000000\n")),
        Case::unknown("idle.pmqos-global", host),
        Case::pass("idle.pmqos-percpu", || own("n/a\n")),
        Case::pass("idle.pmqos-percpu", || own("2\n")),
        Case::warn("idle.pmqos-percpu", || own("0\n")),
        Case::pass("idle.pmqos-percpu", || own("0\n").cmdline("idle=poll")),
        Case::pass("idle.pmqos-percpu", || with_usage(own("0\n"), "1", "", "5")),
        Case::pass("idle.pmqos-global", || {
            with_usage(host(), "1", "", "5").file("/commands/cpu_dma_latency", "2000000000\n")
        }),
        Case::unknown("idle.pmqos-percpu", || host().isolated("2-7")),
    ];

    /// The same as math.latency-budget: a thread that polls waits for no wake-up.
    #[test]
    fn a_deep_state_makes_no_packet_of_a_polling_thread_late() {
        let poll = |host: Host| host.workload(crate::Workload::Poll);
        let judgement = poll(with_states("0")).judge("idle.states").remove(0);
        assert_eq!((judgement.verdict, judgement.effect), (crate::Verdict::Warn, None));
        let own = poll(with_usage(own("0\n"), "0", "", "5")).judge("idle.pmqos-percpu").remove(0);
        assert_eq!(own.effect, Some(Effect::Unsized), "{own:?}");
        assert!(own.found.ends_with("while it polls, its CPU enters no idle state"), "{}", own.found);
    }

    /// rome0, emr0: of a goal of 400 us C2 takes 400, C6 290. No need is denied where more than half is gone.
    #[test]
    fn no_limit_is_called_needless_where_a_state_takes_most_of_the_goal() {
        let found = |goal, id: &str| {
            let host = with_usage(own("0\n"), "0", "", "5").file("/commands/cpu_dma_latency", "2000000000\n");
            let judgement = host.goal(Nanos::from_micros(goal)).judge(id).remove(0);
            assert_eq!(judgement.verdict, crate::Verdict::Pass);
            judgement.found
        };
        assert_eq!(
            found(133, "idle.pmqos-percpu"),
            "no per-CPU limit on wake-up times is set: the deepest state, C6, takes 133 us to wake up from; the goal is 133 us"
        );
        assert!(
            found(266, "idle.pmqos-percpu")
                .starts_with("no per-CPU limit on wake-up times is set, and none is needed: ")
        );
        assert!(found(133, "idle.pmqos-global").starts_with("there is no limit: "));
        assert!(found(266, "idle.pmqos-global").starts_with("there is no limit, and none is needed: "));
    }

    #[test]
    fn a_limit_for_all_cpus_says_how_many_they_are() {
        let cost = |host: Host| host.judge("idle.states").remove(0).cost.unwrap();
        assert!(cost(delivered()).starts_with("All 8 CPUs "));
        assert_eq!(cost(with_states("0")), IDLE);
    }

    #[test]
    fn what_a_state_takes_is_its_own_latency() {
        let judgements = with_states("0").judge("idle.states");
        assert_eq!(judgements.len(), 1);
        assert_eq!(judgements[0].effect, Some(crate::Effect::Late(Nanos::from_micros(133))));
    }

    /// The figure is the host's own, and none where the host states none (live: C6 with 100 us).
    #[test]
    fn a_missing_limit_takes_what_the_host_says() {
        let live = (0..8).fold(own("0\n"), |host, n| {
            let place = format!("/sys/devices/system/cpu/cpu{n}/cpuidle/state0");
            host.file(&format!("{place}/name"), "C6")
                .file(&format!("{place}/latency"), "100")
                .file(&format!("{place}/disable"), "0")
        });
        let judgement = live.judge("idle.pmqos-percpu").remove(0);
        assert_eq!(judgement.effect, Some(crate::Effect::Late(Nanos::from_micros(100))));
        assert!(judgement.found.contains("the deepest state, C6, takes 100 us"), "{}", judgement.found);
        let latency = "/sys/devices/system/cpu/cpu2/cpuidle/state0/latency";
        assert!(judgement.evidence.iter().any(|seen| seen.source == latency), "{:?}", judgement.evidence);
        let global = live.file("/commands/cpu_dma_latency", "2000000000\n").judge("idle.pmqos-global").remove(0);
        assert_eq!(global.effect, Some(crate::Effect::Late(Nanos::from_micros(100))));
        let unstated = own("0\n").judge("idle.pmqos-percpu").remove(0);
        let rule = crate::rules::find("idle.pmqos-percpu").unwrap();
        assert_eq!((unstated.effect, rule.magnitude.effect), (None, crate::Effect::Unsized));
    }
}
