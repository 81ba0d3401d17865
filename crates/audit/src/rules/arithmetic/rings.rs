//! Rules that compare how long a ring takes to fill with how long its reader may be away.

use host::Facts;
use host::facts::{Link, Rings};
use units::{BitRate, Nanos};

use super::formulas::{SMALLEST, frame, interrupts_a_second, multiples, reclaim, ring_time, slots_for};
use super::terms::{Terms, absence};
use crate::{
    Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known, settled,
};

const THREAD: &str = "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)";
const ETHTOOL: &str = "ethtool(8), --coalesce, --set-ring";
const NAPI: &str = "Linux Documentation/networking/napi.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "math.rx-ring-time",
        cause: Cause::Rings,
        title: "The receive ring lasts longer than its reader can be away",
        applies: Applies::LINUX.with_nic(),
        judge: receive,
        why: "A ring of N slots overflows N x (bytes + 20) x 8 / rate after its reader stopped reading. The time until \
              it reads again is the sum of the device's moderation, the kernel's deferral, the exit from the idle \
              state, the frequency change and the scheduling of the interrupt thread. This sum must be shorter than \
              the ring lasts: for the largest frames in any case, and for the smallest if they come at line rate.",
        magnitude: Magnitude::untimed(
            "1024 slots last 307 us with 1500 bytes at 40 Gbit/s, and 17 us with 64; what comes later is lost",
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015); IEEE 802.3 for the \
                     bytes around a frame",
        ),
        fix: Fix::runtime("ethtool -G {nic} rx 4096").against(&[
            "a short ring keeps delay short: the FreeBSD thread advises 256 slots, the DPDK hns3 guide 1024 to 2048",
        ]),
        cost: "A longer ring uses more cache and, when it is full, delays packets longer.",
        references: &[THREAD, ETHTOOL, "Interrupt-mode DPDK slides (2017)"],
    },
    Rule {
        id: "math.tx-reclaim",
        cause: Cause::Rings,
        title: "Sent buffers are reclaimed within half the time that the transmit ring lasts",
        applies: Applies::LINUX.with_nic(),
        judge: transmit,
        why: "Slots of the transmit ring come back at its interrupt, which waits tx-usecs or tx-frames, whichever is \
              first. A ring that fills before that stops the sender: 4,000 interrupts a second are one every 250 us, \
              and 1024 slots of 1500 bytes last 300 us at 40 Gbit/s, which the freebsd-net thread cited below calls dangerously close.",
        magnitude: Magnitude::untimed("the sender stops for the rest of the interval", THREAD),
        fix: Fix::runtime("ethtool -C {nic} tx-usecs 50"),
        cost: "There are more transmit interrupts.",
        references: &[THREAD, ETHTOOL],
    },
    Rule {
        id: "math.itr-units",
        cause: Cause::Moderation,
        title: "The device can hold the moderation interval",
        applies: Applies::LINUX.with_nic().driven_by(&["i40e", "iavf", "ice"]),
        judge: units_of_moderation,
        why: "These controllers count moderation in units of 2 us. They cannot hold an odd number: ice rounds it down, \
              i40e and iavf down or up, depending on the version. So 1 us can mean no moderation at all, and a \
              measurement at 5 us was really one at 4 or 6.",
        magnitude: Magnitude::late(
            Nanos::from_micros(1),
            "1 us more or less than was set",
            "Linux drivers/net/ethernet/intel/ice/ice_ethtool.c (\"only supports even values\"), i40e/i40e_txrx.h (ITR_REG_ALIGN)",
        ),
        fix: Fix::for_good("choose even numbers of microseconds, or 0 (ethtool -C)"),
        cost: "None.",
        references: &["Intel Ethernet 700 Series Linux Performance Tuning Guide (334019)", ETHTOOL],
    },
    Rule {
        id: "math.deferral-ring",
        cause: Cause::Moderation,
        title: "Deferred interrupts return before the ring is full",
        applies: Applies::LINUX.with_nic(),
        judge: deferred,
        why: "With napi_defer_hard_irqs the kernel leaves the interrupt off and polls every gro_flush_timeout. For \
              that long nothing empties the ring, and a packet can wait that long.",
        magnitude: Magnitude::untimed(
            "up to gro_flush_timeout per packet; a ring of 512 slots is full after 34 us of the smallest frames at \
             10 Gbit/s",
            "Linux Documentation/networking/napi.rst, \"IRQ mitigation\"; IEEE 802.3 for the bytes around a \
                     frame",
        ),
        fix: Fix::runtime("echo 20000 > /sys/class/net/{nic}/gro_flush_timeout # nanoseconds"),
        cost: "There are more interrupts or polls.",
        references: &[NAPI],
    },
    Rule {
        id: "math.socket-buffer",
        cause: Cause::NetworkStack,
        title: "A socket's buffer lasts until its thread is awake",
        applies: Applies::LINUX.to(&[Workload::Interrupt]).with_nic(),
        judge: socket_buffer,
        why: "Datagrams that come while the thread still sleeps are kept in the socket's receive buffer, up to its \
              size. Each is charged with its own buffer and the kernel's record of it: 2304 bytes for a driver that \
              uses half pages. What does not fit is dropped and counted as RcvbufErrors. This concerns sockets that \
              did not request more with SO_RCVBUF.",
        magnitude: Magnitude::untimed(
            "212,992 bytes, the default, hold 92 datagrams: 6 us of the smallest frames at 10 Gbit/s",
            "Linux include/linux/skbuff.h, SKB_TRUESIZE; net/core/sock.c, sysctl_rmem_default",
        ),
        fix: Fix::runtime("sysctl -w net.core.rmem_default=4194304 net.core.rmem_max=4194304"),
        cost: "Longer buffers use more memory, and data waits longer in them.",
        references: &["socket(7), SO_RCVBUF", "Linux Documentation/admin-guide/sysctl/net.rst"],
    },
];

/// Memory in bytes that the kernel charges for a datagram if the driver receives into half pages: 2048 bytes of data,
/// and 256 for `struct sk_buff` (include/linux/skbuff.h).
const CHARGED: u64 = 2048 + 256;

/// Makes one judgement for each interface of the intent.
fn each_link(facts: &Facts, context: &Context, judge: impl Fn(&Link) -> Result<Judgement, Skip>) -> Judged {
    known(&facts.links)?;
    let links: Vec<&Link> = context.links(facts).collect();
    if links.is_empty() {
        return Err(Skip::unknown("none of the interfaces is among those that are known"));
    }
    Ok(links
        .into_iter()
        .map(|link| judge(link).unwrap_or_else(|skip| Judgement::skipped(Subject::Link(link.name.clone()), skip)))
        .collect())
}

/// Returns the ring sizes, the line rate, and the size of a full frame, all of one interface.
fn line(link: &Link) -> Result<(&Rings, BitRate, u64), Skip> {
    Ok((known(&link.rings)?, *known(&link.speed)?, frame(*known(&link.mtu)?)))
}

fn gigabits(rate: BitRate) -> String {
    match rate.as_bps() % 1_000_000_000 {
        0 => format!("{} Gbit/s", rate.as_bps() / 1_000_000_000),
        _ => format!("{} Mbit/s", rate.as_bps() / 1_000_000),
    }
}

fn receive(facts: &Facts, context: &Context) -> Judged {
    each_link(facts, context, |link| {
        let (rings, rate, largest) = line(link)?;
        let Some(slots) = rings.rx.filter(|slots| *slots > 0) else {
            return Err(Skip::not_applicable("the driver has no receive ring of a length"));
        };
        let (long, short) = (ring_time(slots.into(), largest, rate), ring_time(slots.into(), SMALLEST, rate));
        let away = absence(facts, context, Some(link));
        let sum = away.sum();
        let subject = Subject::Link(link.name.clone());
        let bounds = format!(
            "at {}, {slots} slots last {long} with frames of {largest} bytes and {short} with the smallest; the reader \
             can be away for {sum}",
            gigabits(rate)
        );
        let judgement = match (sum > long, sum > short) {
            (true, _) => {
                let enough = slots_for(sum, largest, rate);
                Judgement::fail_for(
                    subject,
                    format!("{bounds}: frames are lost at line rate; {enough} slots would last"),
                )
            }
            // If other terms are unknown, it proves nothing that the known ones fit.
            (false, _) if !away.open.is_empty() => return Err(Skip::unknown(away.open.join("; "))),
            (false, true) => {
                let enough = slots_for(sum, SMALLEST, rate);
                Judgement::warn_for(
                    subject,
                    format!("{bounds}: the smallest frames are lost at line rate; {enough} slots would last"),
                )
            }
            (false, false) => Judgement::pass_for(subject, bounds),
        };
        let judgement = judgement.takes(sum).see_as(format!("rx {slots}"), link.rings.source());
        Ok(see_terms(judgement.see_as(gigabits(rate), link.speed.source()), &away))
    })
}

/// Adds the terms of a sum to the evidence, each with its source, and the facts on which the terms are based.
pub(super) fn see_terms(judgement: Judgement, terms: &Terms) -> Judgement {
    let known = terms.known.iter().map(|term| (format!("{}: {}", term.name, term.time), &term.source));
    let seen = terms.seen.iter().map(|(value, source)| (value.clone(), source));
    known.chain(seen).fold(judgement, |judgement, (value, source)| judgement.see_as(value, source))
}

fn transmit(facts: &Facts, context: &Context) -> Judged {
    each_link(facts, context, |link| {
        let (rings, rate, largest) = line(link)?;
        let coalesce = known(&link.coalesce)?;
        let Some(slots) = rings.tx.filter(|slots| *slots > 0) else {
            return Err(Skip::not_applicable("the driver has no transmit ring of a length"));
        };
        if coalesce.adaptive_tx == Some(true) {
            return Err(Skip::unknown("transmit moderation is adaptive, so its interval is not known"));
        }
        let Some(usecs) = coalesce.tx_usecs else {
            return Err(Skip::not_applicable("the driver has no transmit moderation"));
        };
        let ring = ring_time(slots.into(), largest, rate);
        let back = reclaim(usecs, coalesce.tx_frames.unwrap_or(0), largest, rate);
        let subject = Subject::Link(link.name.clone());
        let rate_of = interrupts_a_second(back).map_or("at once".into(), |n| format!("{n} times per second"));
        let found = format!(
            "sent buffers are reclaimed after {back} ({rate_of}), and {slots} slots of {largest} bytes last {ring} \
             at {}",
            gigabits(rate)
        );
        let judgement = match back {
            back if back > ring => Judgement::fail_for(subject, found).takes(back.saturating_sub(ring)),
            back if back > ring / 2 => Judgement::warn_for(subject, found),
            _ => Judgement::pass_for(subject, found),
        };
        let set = format!("tx-usecs {usecs}, tx-frames {}", coalesce.tx_frames.unwrap_or(0));
        Ok(judgement.see_as(format!("tx {slots}"), link.rings.source()).see_as(set, link.coalesce.source()))
    })
}

fn units_of_moderation(facts: &Facts, context: &Context) -> Judged {
    /// Microseconds per unit of the setting. The same for all drivers to which the rule applies.
    const UNIT: u32 = 2;
    each_link(facts, context, |link| {
        let coalesce = known(&link.coalesce)?;
        let set = [("rx-usecs", coalesce.rx_usecs), ("tx-usecs", coalesce.tx_usecs)];
        let set: Vec<(&str, u32)> = set.into_iter().filter_map(|(name, usecs)| Some((name, usecs?))).collect();
        if set.is_empty() {
            return Err(Skip::not_applicable("the driver has no moderation by time"));
        }
        let told = |(name, usecs): &(&str, u32)| match multiples(*usecs, UNIT) {
            (same, other) if same == other => {
                let rate = interrupts_a_second(Nanos::from_micros(same.into()));
                let rate = rate.map_or("no bound".to_owned(), |rate| format!("{rate} interrupts per second"));
                format!("{name} {usecs} us: {rate}")
            }
            (below, above) => format!("{name} {usecs} is {below} or {above} us"),
        };
        let text = set.iter().map(told).collect::<Vec<_>>().join("; ");
        let subject = Subject::Link(link.name.clone());
        let judgement = match set.iter().all(|(_, usecs)| usecs % UNIT == 0) {
            true => Judgement::pass_for(subject, text),
            false => Judgement::warn_for(subject, text),
        };
        let seen: Vec<String> = set.iter().map(|(name, usecs)| format!("{name} {usecs}")).collect();
        Ok(judgement.see_as(seen.join(", "), link.coalesce.source()))
    })
}

fn deferred(facts: &Facts, context: &Context) -> Judged {
    each_link(facts, context, |link| {
        let per_napi = link.napi.value().into_iter().flatten().map(|napi| napi.settings);
        let own = per_napi.filter(|it| it.defer_hard_irqs.unwrap_or(0) > 0).filter_map(|it| it.gro_flush_timeout_ns);
        let device = match settled(&link.defer_hard_irqs)?.copied().unwrap_or(0) {
            0 => None,
            _ => Some(*known(&link.gro_flush_timeout_ns)?),
        };
        let Some(longest) = own.chain(device).max() else {
            return Err(Skip::not_applicable("no interrupt is deferred"));
        };
        let timeout = Nanos::from_nanos(longest);
        let (rings, rate, largest) = line(link)?;
        let slots =
            *rings.rx.as_ref().ok_or_else(|| Skip::not_applicable("the driver has no receive ring of a length"))?;
        let (long, short) = (ring_time(slots.into(), largest, rate), ring_time(slots.into(), SMALLEST, rate));
        let subject = Subject::Link(link.name.clone());
        let found = format!(
            "interrupts stay off for up to {timeout}, and {slots} slots last {long} with frames of {largest} bytes \
             and {short} with the smallest"
        );
        let late = context.goal.is_some_and(|goal| timeout > goal.latency);
        let judgement = match (timeout > long || late, timeout > short) {
            (true, _) => Judgement::fail_for(subject, found).takes(timeout),
            (false, true) => Judgement::warn_for(subject, found).takes(timeout),
            (false, false) => Judgement::pass_for(subject, found),
        };
        Ok(judgement
            .see(&link.defer_hard_irqs)
            .see(&link.gro_flush_timeout_ns)
            .see_as(format!("rx {slots}"), link.rings.source()))
    })
}

fn socket_buffer(facts: &Facts, context: &Context) -> Judged {
    let buffer = facts.sysctl_number("net.core.rmem_default");
    let octets = u64::try_from(*known(&buffer)?).unwrap_or(0);
    let datagrams = octets / CHARGED;
    let wake = absence(facts, context, None);
    each_link(facts, context, |link| {
        let rate = *known(&link.speed)?;
        let lasts = ring_time(datagrams, SMALLEST, rate);
        let sum = wake.sum();
        let subject = Subject::Link(link.name.clone());
        let found = format!(
            "{octets} bytes hold {datagrams} datagrams: {lasts} of the smallest frames at {}, but a wake-up takes \
             {sum} ({})",
            gigabits(rate),
            wake.text()
        );
        let judgement = match sum > lasts {
            true => Judgement::warn_for(subject, found),
            false if !wake.open.is_empty() => return Err(Skip::unknown(wake.open.join("; "))),
            false => Judgement::pass_for(subject, found),
        };
        Ok(see_terms(judgement.see(&buffer).see_as(gigabits(rate), link.speed.source()), &wake))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{Coalescing, Facts, Generation, IdleState};

    use super::*;
    use crate::testing::{Case, Host, host};

    /// Interface eth0 at 40 Gbit/s, whose driver is i40e, with 1024 slots; CPUs that stop for nothing.
    pub(crate) fn nic() -> Host {
        host().nic("eth0").workload(Workload::Interrupt).file("/sys/class/net/eth0/mtu", "1500\n").edit(|facts| {
            facts.cpus.generation = Fact::known(Generation::IceLake, "/proc/cpuinfo");
            facts.kernel.realtime = Fact::known(false, "/sys/kernel/realtime");
            exit(facts, 2);
            link(facts, |link| {
                link.driver = Fact::known("i40e".into(), "ethtool -i eth0");
                link.speed = Fact::known(BitRate::new(40_000_000_000), "/sys/class/net/eth0/speed");
                link.rings =
                    Fact::known(Rings { rx: Some(1024), tx: Some(1024), ..Rings::default() }, "ethtool -g eth0");
                link.defer_hard_irqs = Fact::known(0, "/sys/class/net/eth0/napi_defer_hard_irqs");
                link.gro_flush_timeout_ns = Fact::known(0, "/sys/class/net/eth0/gro_flush_timeout");
            });
            moderated(facts, 0, 0);
        })
    }

    pub(crate) fn link(facts: &mut Facts, edit: impl Fn(&mut Link)) {
        if let Fact::Known { value, .. } = &mut facts.links {
            value.iter_mut().for_each(edit);
        }
    }

    /// Moderation of reception and transmission, in microseconds.
    pub(crate) fn moderated(facts: &mut Facts, rx: u32, tx: u32) {
        let coalesce = Coalescing { rx_usecs: Some(rx), tx_usecs: Some(tx), ..Coalescing::default() };
        link(facts, |link| link.coalesce = Fact::known(coalesce, "ethtool -c eth0"));
    }

    /// The deepest idle state of all CPUs takes so many microseconds to leave.
    pub(crate) fn exit(facts: &mut Facts, us: u64) {
        let place = "/sys/devices/system/cpu/cpu0/cpuidle";
        for cpu in &mut facts.cpus.list {
            let state = IdleState {
                name: Fact::known("C6".into(), place),
                exit_latency: Fact::known(Nanos::from_micros(us), place),
                disabled: Fact::known(false, place),
                ..IdleState::default()
            };
            cpu.idle_states = Fact::known(vec![state], place);
        }
    }

    fn slots(facts: &mut Facts, slots: u32) {
        let rings = Rings { rx: Some(slots), tx: Some(slots), ..Rings::default() };
        link(facts, |link| link.rings = Fact::known(rings, "ethtool -g eth0"));
    }

    fn held(facts: &mut Facts, ns: u64) {
        link(facts, |link| {
            link.defer_hard_irqs = Fact::known(2, "/sys/class/net/eth0/napi_defer_hard_irqs");
            link.gro_flush_timeout_ns = Fact::known(ns, "/sys/class/net/eth0/gro_flush_timeout");
        });
    }

    fn buffer(octets: &str) -> Host {
        nic().file("/proc/sys/net/core/rmem_default", octets)
    }

    fn bare() -> Host {
        host().nic("eth0").workload(Workload::Interrupt).file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn i40e() -> Host {
        bare().edit(|facts| link(facts, |link| link.driver = Fact::known("i40e".into(), "ethtool -i eth0")))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("math.rx-ring-time", nic),
        // 50 us of moderation: more than 17 us of the smallest frames, less than 315 us of the largest.
        Case::warn("math.rx-ring-time", || nic().edit(|f| moderated(f, 50, 0))),
        Case::fail("math.rx-ring-time", || nic().edit(|f| moderated(f, 50, 0)).edit(|f| slots(f, 128))),
        Case::fail("math.rx-ring-time", || nic().edit(|f| exit(f, 170)).edit(|f| moderated(f, 150, 0))),
        // What is known exceeds the bound already.
        Case::fail("math.rx-ring-time", || {
            nic().edit(|f| exit(f, 400)).edit(|f| f.cpus.generation = Fact::not_recorded("/proc/cpuinfo"))
        }),
        Case::unknown("math.rx-ring-time", || nic().edit(|f| f.cpus.generation = Fact::not_recorded("/proc/cpuinfo"))),
        Case::unknown("math.rx-ring-time", bare),
        Case::pass("math.tx-reclaim", || nic().edit(|f| moderated(f, 0, 50))),
        Case::warn("math.tx-reclaim", || nic().edit(|f| moderated(f, 0, 250))),
        Case::fail("math.tx-reclaim", || nic().edit(|f| moderated(f, 0, 400))),
        Case::unknown("math.tx-reclaim", bare),
        Case::pass("math.itr-units", || nic().edit(|f| moderated(f, 50, 50))),
        Case::warn("math.itr-units", || nic().edit(|f| moderated(f, 5, 50))),
        Case::unknown("math.itr-units", i40e),
        Case::pass("math.deferral-ring", || nic().edit(|f| held(f, 10_000))),
        Case::warn("math.deferral-ring", || nic().edit(|f| held(f, 100_000))),
        Case::fail("math.deferral-ring", || nic().edit(|f| held(f, 400_000))),
        Case::not_applicable("math.deferral-ring", nic),
        Case::unknown("math.deferral-ring", bare),
        Case::pass("math.socket-buffer", || buffer("4194304\n")),
        Case::warn("math.socket-buffer", || buffer("212992\n").edit(|f| exit(f, 133))),
        Case::unknown("math.socket-buffer", bare),
    ];

    #[test]
    fn the_sum_is_told_with_its_terms_and_the_slots_that_would_last() {
        let host = nic().edit(|f| exit(f, 133)).edit(|f| moderated(f, 250, 0));
        let judgement = host.judge("math.rx-ring-time").remove(0);
        assert_eq!(judgement.effect, Some(crate::Effect::Late(Nanos::from_micros(383))));
        // 383 us at 40 Gbit/s: 1246 frames of 1538 octets on the wire.
        assert!(judgement.found.ends_with("1246 slots would last"), "{}", judgement.found);
        let seen: Vec<&str> = judgement.evidence.iter().map(|evidence| evidence.value.as_str()).collect();
        assert_eq!(seen, ["rx 1024", "40 Gbit/s", "moderation: 250us", "idle state C6: 133us"]);
    }

    #[test]
    fn a_reader_that_polls_is_not_away() {
        let host = nic().edit(|f| exit(f, 900)).without_uses().workload(Workload::Poll);
        assert_eq!(host.judge("math.rx-ring-time")[0].verdict, crate::Verdict::Pass);
    }

    #[test]
    fn a_mode_is_no_time() {
        let host = nic().edit(|f| moderated(f, 1, 0)).edit(|facts| {
            link(facts, |link| link.driver = Fact::known("ixgbe".into(), "ethtool -i eth0"));
        });
        let judgement = host.judge("math.rx-ring-time").remove(0);
        assert!(judgement.verdict.reason().is_some_and(|why| why.contains("a mode of this driver")), "{judgement:?}");
    }
}
