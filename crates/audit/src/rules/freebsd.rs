//! Rules for FreeBSD hosts. They encode the results of the mailing list thread "ixl 40G bad performance".

use host::Facts;
use host::facts::{Fact, FreeBsd};
use units::Nanos;

use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[POWER, MODERATION, QUEUES];

const THREAD: &str = "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)";
const IXL: &str = "FreeBSD manual, ixl(4)";
const IFLIB: &str = "FreeBSD manual, iflib(4)";

/// Rules on frequency and idle states.
const POWER: &[Rule] = &[
    Rule {
        id: "fbsd.cx-lowest",
        cause: Cause::IdleStates,
        title: "No CPU goes below C1",
        applies: Applies::FREEBSD,
        judge: cx_lowest,
        why: "An interrupt that finds its CPU in a deeper idle state waits until the CPU has left it. \
              dev.cpu.0.cx_lowest changes only CPU 0; hw.acpi.cpu.cx_lowest is for all.",
        magnitude: Magnitude::late(
            Nanos::from_micros(133),
            "2 us from C1, 33 us from C3, 133 us from C6 on a Xeon E5 v3",
            "Interrupt-mode DPDK slides (2017), table of idle states",
        ),
        fix: Fix::both("sysctl hw.acpi.cpu.cx_lowest=C1", "rc.conf: performance_cx_lowest=\"C1\""),
        cost: "Idle CPUs draw more power, and others get less turbo.",
        references: &[THREAD, "FreeBSD manual, acpi(4)"],
    },
    Rule {
        id: "fbsd.powerd",
        cause: Cause::CoreFrequency,
        title: "powerd keeps the clock at its maximum",
        applies: Applies::FREEBSD,
        judge: powerd,
        why: "powerd lowers the clock when the load is low and raises it again in steps, so the first packets of a burst \
         are processed slowly.",
        magnitude: Magnitude::slower(
            "for the 250 ms of a polling interval, work takes longer, by up to the ratio of the frequencies",
            "FreeBSD manual, powerd(8), option -p",
        ),
        fix: Fix::both(
            "service powerd restart # after setting powerd_flags",
            "rc.conf: powerd_flags=\"-a max -b max -n max\"",
        ),
        cost: "The CPUs never slow down to save power.",
        references: &[THREAD, "FreeBSD manual, powerd(8)"],
    },
    Rule {
        id: "fbsd.epp",
        cause: Cause::CoreFrequency,
        title: "Hardware P-states prefer performance",
        applies: Applies::FREEBSD,
        judge: epp,
        why: "With hardware-controlled P-states, the processor chooses the clock by this preference: 0 is for \
         performance, 100 for saving energy.",
        magnitude: Magnitude::slower(
            "the higher the number, the later and the less the clock rises",
            "FreeBSD manual, hwpstate_intel(4), dev.hwpstate_intel.%d.epp",
        ),
        fix: Fix::both(
            "sysctl dev.hwpstate_intel.0.epp=0 # and for each other CPU",
            "sysctl.conf: dev.hwpstate_intel.0.epp=0",
        ),
        cost: "The host uses more power at partial load.",
        references: &["FreeBSD manual, hwpstate_intel(4)"],
    },
];

/// Rules on interrupt moderation and transmission.
const MODERATION: &[Rule] = &[
    Rule {
        id: "fbsd.rx-itr",
        cause: Cause::Moderation,
        title: "Receive interrupts may come at 20,000 per second or more",
        applies: Applies::FREEBSD,
        judge: rx_itr,
        why: "The controller delays an interrupt until this interval is over. hw.ixl.rx_itr is in units of 2 us: the \
         default of 62 is 124 us, or 8,000 interrupts per second.",
        magnitude: Magnitude::late(
            Nanos::from_micros(124),
            "a flood ping takes 116 us on an XL710 at 8,000 interrupts a second, and 17 us on a 10G card in the same machines",
            THREAD,
        ),
        fix: Fix::boot("loader.conf: hw.ixl.rx_itr=\"10\" # 20 us, 50,000 a second"),
        cost: "There are more interrupts, which take more CPU time at high rates.",
        references: &[THREAD, IXL],
    },
    Rule {
        id: "fbsd.tx-reclaim",
        cause: Cause::Rings,
        title: "Sent buffers are reclaimed well before the ring is full",
        applies: Applies::FREEBSD,
        judge: tx_reclaim,
        why: "Sent buffers are reclaimed at the transmit interrupt. A ring that fills before it comes stops the \
              sender: 4,000 interrupts a second are one every 250 us, and 1024 slots of 1500 bytes last 300 us at 40 \
              Gbit/s, which the freebsd-net thread cited below calls dangerously close.",
        magnitude: Magnitude::late(Nanos::from_micros(244), "the sender stops for the rest of the interval", THREAD),
        fix: Fix::boot("loader.conf: hw.ixl.tx_itr=\"10\" # 20 us: well within half of 256 slots, 39 us at 40 Gbit/s"),
        cost: "There are more transmit interrupts.",
        references: &[THREAD, IXL],
    },
    Rule {
        id: "fbsd.tx-latency",
        cause: Cause::Moderation,
        title: "Frames are passed to the controller at once",
        applies: Applies::FREEBSD,
        judge: tx_latency,
        why: "iflib collects frames before it notifies the controller. With net.iflib.min_tx_latency it notifies the \
         controller for each frame.",
        magnitude: Magnitude::untimed(
            "a frame waits for the next ones of its batch",
            "FreeBSD manual, iflib(4), net.iflib.min_tx_latency",
        ),
        fix: Fix::both("sysctl net.iflib.min_tx_latency=1", "sysctl.conf: net.iflib.min_tx_latency=1"),
        cost: "Each frame needs a write to the device, which lowers the throughput of small frames.",
        references: &[IFLIB],
    },
    Rule {
        id: "fbsd.flow-control",
        cause: Cause::Pause,
        title: "Pause frames are off",
        applies: Applies::FREEBSD,
        judge: flow_control,
        why: "A receiver that cannot keep up stops the sender with pause frames, and with it all other traffic on the \
         link.",
        magnitude: Magnitude::late(
            Nanos::from_micros(840),
            "up to 65,535 times 512 bit times per pause frame: 840 us at 40 Gbit/s",
            "IEEE 802.3, Annex 31B",
        ),
        fix: Fix::both("sysctl dev.ixl.0.fc=0", "sysctl.conf: dev.ixl.0.fc=0"),
        cost: "Frames are lost instead when a ring overflows.",
        references: &[IXL],
    },
    Rule {
        id: "fbsd.intr-storm",
        cause: Cause::Queues,
        title: "Interrupt storm detection is off where interrupts are many",
        applies: Applies::FREEBSD,
        judge: intr_storm,
        why: "If one source raises more than hw.intr_storm_threshold interrupts in a row, the kernel considers it \
              broken and throttles it.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "a throttled source is served once per clock tick: 1 ms at 1000 Hz",
            "FreeBSD manual, ixl(4), section on interrupt storms; FreeBSD sys/kern/kern_intr.c",
        ),
        fix: Fix::both("sysctl hw.intr_storm_threshold=0", "sysctl.conf: hw.intr_storm_threshold=0"),
        cost: "A device that really is broken occupies a CPU.",
        references: &[IXL],
    },
    Rule {
        id: "fbsd.head-writeback",
        cause: Cause::Rings,
        title: "Head write-back of the transmit ring is on or off after a comparison",
        applies: Applies::FREEBSD,
        judge: head_writeback,
        why: "With head write-back the controller writes one number instead of each descriptor when frames are sent. \
         This saves PCIe writes, but the driver can learn later which frames were sent.",
        magnitude: Magnitude::untimed(
            "not published; measure both",
            "FreeBSD manual, ixl(4), hw.ixl.enable_head_writeback",
        ),
        fix: Fix::boot("loader.conf: hw.ixl.enable_head_writeback=\"0\" # compare with 1")
            .against(&["fbsd.tx-latency"]),
        cost: "Without head write-back, more writes go over PCIe.",
        references: &[IXL],
    },
];

/// Rules on queues, rings, offloads and load.
const QUEUES: &[Rule] = &[
    Rule {
        id: "fbsd.queues",
        cause: Cause::Queues,
        title: "A port has 4 to 8 queues",
        applies: Applies::FREEBSD,
        judge: queues,
        why: "One queue per CPU spreads flows over both sockets and wakes many CPUs for a little work each.",
        magnitude: Magnitude::untimed(
            "a cache line from the other socket costs about 100 ns, each woken CPU its idle exit",
            THREAD,
        ),
        fix: Fix::boot("loader.conf: dev.ixl.0.iflib.override_nrxqs=\"4\", dev.ixl.0.iflib.override_ntxqs=\"4\""),
        cost: "Fewer CPUs share the load of many flows.",
        references: &[THREAD, IFLIB],
    },
    Rule {
        id: "fbsd.ring-time",
        cause: Cause::Rings,
        title: "A full receive ring is drained in time",
        applies: Applies::FREEBSD,
        judge: ring_time,
        why: "A frame behind a full ring waits until all before it are gone: slots times 1538 bytes on the wire, over \
              the rate. 1024 slots at 40 Gbit/s are 315 us.",
        magnitude: Magnitude::late(
            Nanos::from_micros(315),
            "about 300 us with 1024 slots at 40 Gbit/s, a quarter of that with 256",
            THREAD,
        ),
        fix: Fix::boot("loader.conf: dev.ixl.0.iflib.override_nrxds=\"256\", dev.ixl.0.iflib.override_ntxds=\"256\""),
        cost: "A shorter ring overflows after a shorter absence of the reader.",
        references: &[THREAD, IFLIB],
    },
    Rule {
        id: "fbsd.offloads",
        cause: Cause::Offloads,
        title: "Offloads were tested one at a time, starting with all off",
        applies: Applies::FREEBSD,
        judge: offloads,
        why: "Segmentation and receive offloads collect frames. Some drivers had bugs in them that cost more than the \
         offloads saved. So the freebsd-net thread cited below advises to turn all off on both sides, measure, and turn them on one at a \
         time.",
        magnitude: Magnitude::untimed("depends on driver and traffic; measure", THREAD),
        fix: Fix::both(
            "ifconfig ixl0 -tso4 -tso6 -lro -rxcsum -txcsum # on both sides; then switch them on one at a time",
            "rc.conf: ifconfig_ixl0=\"... -tso4 -tso6 -lro\"",
        )
        .against(&["bulk throughput wants TSO and LRO on"]),
        cost: "Bulk transfers take more CPU time per frame.",
        references: &[THREAD],
    },
    Rule {
        id: "fbsd.irq-load",
        cause: Cause::Queues,
        title: "No interrupt thread takes more than half a CPU",
        applies: Applies::FREEBSD,
        judge: irq_load,
        why: "Packets wait in a queue whose interrupt thread uses nearly a whole CPU. In the mailing-list thread, one \
         queue of the 40G port used 51 % for 3.4 Gbit/s, while the 10G port needed 8 % for 9.4 Gbit/s.",
        magnitude: Magnitude::untimed(
            "waiting grows with 1 / (1 - load): twice the work's time at 50 %",
            "M/M/1 queue; the loads are from the thread",
        ),
        fix: Fix::both(
            "cpuset -l 2 -x 293 # moves the queue's interrupt to a CPU near the card",
            "spread the flows: use RSS and more queues",
        ),
        cost: "Other work on those CPUs gets less time.",
        references: &[THREAD],
    },
    Rule {
        id: "fbsd.irq-cpuset",
        cause: Cause::Queues,
        title: "Each queue's interrupt has a CPU of its own",
        applies: Applies::FREEBSD,
        judge: irq_cpuset,
        why: "If a queue's interrupt thread may run anywhere, the scheduler moves it away from its caches and onto CPUs \
         that others need. Two such threads on one CPU wait for each other.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a cold cache after each move: a few microseconds",
            "FreeBSD manual, cpuset(1), names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::both(
            "cpuset -l 2 -x 293 # do this for each queue's interrupt, with CPUs near the card",
            "run the same at the end of the boot (rc.local), or set dev.ixl.0.iflib.core_offset",
        ),
        cost: "The scheduler no longer balances the load.",
        references: &[THREAD, "FreeBSD manual, cpuset(1)", IFLIB],
    },
    Rule {
        id: "fbsd.stale-tunables",
        cause: Cause::Obsolete,
        title: "No tunable is set that the driver no longer knows",
        applies: Applies::FREEBSD,
        judge: stale_tunables,
        why: "Drivers moved to iflib in FreeBSD 12, and their own tunables for queues and rings were removed. The loader does \
              not complain about names that no driver reads: the setting looks active, but is not.",
        magnitude: Magnitude::late(
            Nanos::from_micros(124),
            "the default is in force instead: 62 x 2 us of moderation, one queue per CPU, 1024 slots",
            IFLIB,
        ),
        fix: Fix::boot("loader.conf: replace each tunable as named here"),
        cost: "None.",
        references: &[IXL, IFLIB],
    },
];

/// Microseconds per unit of `hw.ixl.rx_itr` and `tx_itr` (ixl(4)).
pub(crate) const ITR_UNIT_US: u64 = 2;
/// The longest moderation interval that the thread recommends. It allows 20,000 interrupts per second.
const LONGEST_ITR: Nanos = Nanos::from_micros(50);
/// Maximum number of queues that the thread recommends.
const MOST_QUEUES: usize = 8;
/// Octets that a frame with a payload of 1500 octets occupies on the wire, including header, check sequence, preamble
/// and gap (IEEE 802.3).
const WIRE_OCTETS: u64 = 1538;
/// Default number of slots of ixl's rings (ixl(4), hw.ixl.ring_size).
const DEFAULT_SLOTS: u64 = 1024;
/// Maximum number of CPUs whose energy-performance preference is looked up.
const MOST_CPUS: u32 = 1024;
/// Maximum number of units of a driver that are looked up.
const MOST_UNITS: u32 = 64;
/// Settings of ixl, ix, igb and em that FreeBSD 12 removed with the change to iflib, each with its replacement.
const GONE_IN_12: [(&str, &str); 15] = [
    ("hw.ixl.max_queues", "dev.ixl.0.iflib.override_nrxqs and override_ntxqs"),
    ("hw.ixl.ringsz", "dev.ixl.0.iflib.override_nrxds and override_ntxds"),
    ("hw.ixl.ring_size", "dev.ixl.0.iflib.override_nrxds and override_ntxds"),
    ("hw.ixl.dynamic_rx_itr", "dynamic moderation is gone; set hw.ixl.rx_itr"),
    ("hw.ixl.dynamic_tx_itr", "dynamic moderation is gone; set hw.ixl.tx_itr"),
    ("hw.ix.num_queues", "dev.ix.0.iflib.override_nrxqs and override_ntxqs"),
    ("hw.ix.rxd", "dev.ix.0.iflib.override_nrxds"),
    ("hw.ix.txd", "dev.ix.0.iflib.override_ntxds"),
    ("hw.igb.num_queues", "dev.igb.0.iflib.override_nrxqs and override_ntxqs"),
    ("hw.igb.rxd", "dev.igb.0.iflib.override_nrxds"),
    ("hw.igb.txd", "dev.igb.0.iflib.override_ntxds"),
    ("hw.em.num_queues", "dev.em.0.iflib.override_nrxqs and override_ntxqs"),
    ("hw.em.rxd", "dev.em.0.iflib.override_nrxds"),
    ("hw.em.txd", "dev.em.0.iflib.override_ntxds"),
    ("hw.em.enable_msix", "dev.em.0.iflib.disable_msix"),
];

fn bsd(facts: &Facts) -> Result<&FreeBsd, Skip> {
    known(&facts.freebsd)
}

/// Parses a setting as a number. The error is [`Skip::Unknown`] if it is not a number.
pub(crate) fn number(fact: &Fact<&str>) -> Result<u64, Skip> {
    let text = known(fact)?;
    text.trim().parse().map_err(|_| Skip::unknown(format!("{} is {text:?}, not a number", fact.source())))
}

/// The value of a setting that is in effect. If it is not known, the value that the loader will set.
pub(crate) fn set<'a>(host: &'a FreeBsd, name: &str) -> Fact<&'a str> {
    let running = host.sysctl(name);
    if running.is_known() { running } else { host.tunable(name).or_else(|| running) }
}

fn cx_lowest(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    let all = host.sysctl("hw.acpi.cpu.cx_lowest");
    let first = host.sysctl("dev.cpu.0.cx_lowest");
    let deepest = known(&all)?.trim();
    if matches!(deepest, "C0" | "C1") {
        return Judgement::pass(format!("no CPU goes below {deepest}")).see(&all).alone();
    }
    let only_first = first.value().is_some_and(|value| value.trim() == "C1");
    let found = if only_first {
        format!("only CPU 0 is held at C1, all others go down to {deepest}")
    } else {
        format!("CPUs go down to {deepest}")
    };
    Judgement::fail(found).see(&all).see(&first).alone()
}

fn powerd(facts: &Facts, _: &Context) -> Judged {
    let rc = known(&bsd(facts)?.rc)?;
    let flags = rc.get("powerd_flags").map(String::as_str).unwrap_or_default();
    let on = rc.get("powerd_enable").is_some_and(|value| value.eq_ignore_ascii_case("yes"));
    let highest = ["-a max", "-n max"].iter().all(|flag| flags.contains(flag));
    match (on, highest) {
        (false, _) => Judgement::pass("powerd does not run, so it does not lower the clock"),
        (true, true) => Judgement::pass("powerd keeps the clock at its maximum"),
        (true, false) => Judgement::fail("powerd lowers the clock when the load is low"),
    }
    .see_as(format!("powerd_enable={on}, powerd_flags={flags:?}"), "/etc/rc.conf")
    .alone()
}

fn epp(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    // The CPU with the lowest preference for performance decides.
    let mut worst = host.sysctl("dev.hwpstate_intel.0.epp");
    let mut most = number(&worst)?;
    for unit in 1..MOST_CPUS {
        let fact = host.sysctl(&format!("dev.hwpstate_intel.{unit}.epp"));
        if !fact.is_known() {
            break;
        }
        let preference = number(&fact)?;
        if preference > most {
            (worst, most) = (fact, preference);
        }
    }
    let fact = worst;
    match most {
        0 => Judgement::pass("the processor prefers performance"),
        n => Judgement::warn(format!(
            "the energy preference of the processor is {n} (0 is performance, 100 is saving energy)"
        )),
    }
    .see(&fact)
    .alone()
}

fn rx_itr(facts: &Facts, _: &Context) -> Judged {
    let fact = set(bsd(facts)?, "hw.ixl.rx_itr");
    let interval = Nanos::from_micros(number(&fact)?.saturating_mul(ITR_UNIT_US));
    let rate = 1_000_000_000_u64.checked_div(interval.as_nanos());
    let found = match rate {
        Some(rate) => format!("at most one interrupt every {interval}, {rate} per second"),
        None => "no moderation".into(),
    };
    match interval <= LONGEST_ITR {
        true => Judgement::pass(found),
        false => Judgement::fail(found).takes(interval),
    }
    .see(&fact)
    .alone()
}

/// A setting of the first unit of a driver that has the setting, such as `dev.ixl.1.iflib.override_nrxds`. `None` if no
/// unit has it.
fn of_a_unit<'a>(host: &'a FreeBsd, driver: &str, name: &str) -> Option<Fact<&'a str>> {
    (0..MOST_UNITS).map(|unit| set(host, &format!("dev.{driver}.{unit}.{name}"))).find(Fact::is_known)
}

/// Number of slots of the rings in one direction, and the source of this number.
pub(crate) fn slots(host: &FreeBsd, direction: &str) -> Result<(u64, String), Skip> {
    known(&host.loader)?;
    let of_unit = of_a_unit(host, "ixl", &format!("iflib.override_n{direction}ds"));
    let of_driver = ["hw.ixl.ringsz", "hw.ixl.ring_size"].into_iter().map(|name| set(host, name));
    if let Some(fact) = of_unit.into_iter().chain(of_driver).find(Fact::is_known) {
        let slots = number(&fact)?;
        return Ok((if slots == 0 { DEFAULT_SLOTS } else { slots }, fact.source().to_string()));
    }
    Ok((DEFAULT_SLOTS, "ixl(4), default".into()))
}

/// Rate in Gbit/s of the fastest link that is up, according to its media type, such as `40Gbase-CR4`.
fn gigabits(host: &FreeBsd) -> Result<u64, Skip> {
    let speeds = known(&host.interfaces)?.iter().filter_map(gigabits_of);
    speeds.max().ok_or_else(|| Skip::unknown("no interface says its speed"))
}

/// Rate of an interface in Gbit/s, according to its media type. `None` if the media type does not show a rate.
pub(crate) fn gigabits_of(interface: &host::facts::BsdInterface) -> Option<u64> {
    let media = interface.media.as_deref()?.to_ascii_lowercase();
    if !media.contains("gbase") {
        return None;
    }
    media.split("gbase").next()?.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The time in which frames of 1500 octets fill a ring of `slots` slots.
fn lasts(slots: u64, gigabits: u64) -> Nanos {
    Nanos::from_nanos(slots.saturating_mul(WIRE_OCTETS * 8) / gigabits.max(1))
}

fn tx_reclaim(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    let fact = set(host, "hw.ixl.tx_itr");
    let interval = Nanos::from_micros(number(&fact)?.saturating_mul(ITR_UNIT_US));
    let ((slots, source), rate) = (slots(host, "tx")?, gigabits(host)?);
    let ring = lasts(slots, rate);
    let found = format!("sent buffers are reclaimed every {interval}, and {slots} slots last {ring} at {rate} Gbit/s");
    match interval <= ring / 2 {
        true => Judgement::pass(found),
        false => Judgement::fail(found).takes(interval),
    }
    .see(&fact)
    .see_as(format!("{slots} slots"), source)
    .alone()
}

fn tx_latency(facts: &Facts, _: &Context) -> Judged {
    let fact = bsd(facts)?.sysctl("net.iflib.min_tx_latency");
    match number(&fact)? {
        0 => Judgement::warn("frames to be sent are collected first"),
        _ => Judgement::pass("each frame is passed to the controller at once"),
    }
    .see(&fact)
    .alone()
}

fn flow_control(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    let names: Vec<String> = known(&host.sysctls)?
        .keys()
        .filter(|name| name.strip_prefix("dev.").and_then(|rest| rest.strip_suffix(".fc")).is_some_and(is_unit))
        .cloned()
        .collect();
    if names.is_empty() {
        return Err(Skip::not_applicable("no driver has the setting dev.DRIVER.N.fc"));
    }
    names
        .into_iter()
        .map(|name| {
            let fact = host.sysctl(&name);
            let unit = name.trim_start_matches("dev.").trim_end_matches(".fc").replace('.', "");
            Ok(match number(&fact)? {
                0 => Judgement::pass_for(Subject::Named(unit), "pause frames are off"),
                n => Judgement::warn_for(Subject::Named(unit), format!("pause frames are on (mode {n} of 3)"))
                    .now(format!("sysctl {name}=0"))
                    .for_good(format!("sysctl.conf: {name}=0")),
            }
            .see(&fact))
        })
        .collect()
}

/// Whether the text is a driver and a unit, such as `ixl.0`.
fn is_unit(text: &str) -> bool {
    text.split_once('.').is_some_and(|(driver, unit)| !driver.is_empty() && unit.parse::<u32>().is_ok())
}

fn intr_storm(facts: &Facts, _: &Context) -> Judged {
    let fact = bsd(facts)?.sysctl("hw.intr_storm_threshold");
    match number(&fact)? {
        0 => Judgement::pass("storm detection is off"),
        n => Judgement::warn(format!("a source is throttled above {n} interrupts per second")),
    }
    .see(&fact)
    .alone()
}

fn head_writeback(facts: &Facts, _: &Context) -> Judged {
    let fact = set(bsd(facts)?, "hw.ixl.enable_head_writeback");
    match number(&fact)? {
        0 => Judgement::pass("each sent descriptor is written back"),
        _ => Judgement::disagree("head write-back is on: fewer PCIe writes, later completions"),
    }
    .see(&fact)
    .alone()
}

fn queues(facts: &Facts, _: &Context) -> Judged {
    let mut ports = std::collections::BTreeMap::<&str, usize>::new();
    let interrupts = &bsd(facts)?.interrupts;
    for interrupt in known(interrupts)? {
        // `irq293: ixl1:q2`, and with iflib `irq293: ixl1:rxq2`.
        let Some((_, port)) = interrupt.name.split_once(": ") else { continue };
        if let Some((port, queue)) = port.split_once(':')
            && (queue.starts_with('q') || queue.starts_with("rxq"))
        {
            *ports.entry(port).or_default() += 1;
        }
    }
    if ports.is_empty() {
        return Err(Skip::unknown("no interrupt is named after a queue"));
    }
    Ok(ports
        .into_iter()
        .map(|(port, queues)| {
            let found = format!("{port} has {queues} queues");
            let subject = Subject::Named(port.into());
            let judgement = match queues <= MOST_QUEUES {
                true => Judgement::pass_for(subject, found),
                false => Judgement::warn_for(subject, found),
            };
            judgement.see_as(format!("{queues} queue interrupts"), interrupts.source())
        })
        .collect())
}

fn ring_time(facts: &Facts, context: &Context) -> Judged {
    let host = bsd(facts)?;
    let ((slots, source), rate) = (slots(host, "rx")?, gigabits(host)?);
    let ring = lasts(slots, rate);
    // Without a goal: according to the thread, 300 us are too much, and 256 slots (79 us) are recommended.
    let most = context.goal.as_ref().map_or(Nanos::from_micros(100), |goal| goal.latency);
    let found = format!("a full ring of {slots} slots takes {ring} to drain at {rate} Gbit/s, and {most} is allowed");
    match ring <= most {
        true => Judgement::pass(found),
        false => Judgement::warn(found).takes(ring),
    }
    .see_as(format!("{slots} slots"), source)
    .alone()
}

fn offloads(facts: &Facts, _: &Context) -> Judged {
    const GATHER: [&str; 3] = ["TSO4", "TSO6", "LRO"];
    let interfaces = &bsd(facts)?.interfaces;
    let judgements: Vec<Judgement> = known(interfaces)?
        .iter()
        .filter(|interface| !interface.name.starts_with("lo"))
        .map(|interface| {
            let on: Vec<&str> =
                GATHER.into_iter().filter(|name| interface.options.iter().any(|option| option == name)).collect();
            let subject = Subject::Named(interface.name.clone());
            let judgement = match on.is_empty() {
                true => Judgement::pass_for(subject, "the card neither merges nor splits frames"),
                false => Judgement::disagree_for(
                    subject,
                    format!("{} is on: it helps bulk transfers, but may add latency", on.join(", ")),
                ),
            };
            judgement.see_as(interface.options.join(","), interfaces.source())
        })
        .collect();
    if judgements.is_empty() { Err(Skip::not_applicable("no interface but loopback")) } else { Ok(judgements) }
}

fn irq_load(facts: &Facts, _: &Context) -> Judged {
    let threads = &bsd(facts)?.threads;
    let interrupts = known(threads)?.iter().filter(|thread| thread.name.starts_with("intr{"));
    let Some(busiest) = interrupts.max_by_key(|thread| thread.cpu_permyriad) else {
        return Err(Skip::unknown("the list of threads contains no interrupt thread"));
    };
    let percent = f64::from(busiest.cpu_permyriad) / 100.0;
    let subject = Subject::Named(busiest.name.clone());
    match busiest.cpu_permyriad <= 5_000 {
        true => Judgement::pass_for(subject, format!("the busiest interrupt thread takes {percent} % of a CPU")),
        false => Judgement::fail_for(subject, format!("an interrupt thread takes {percent} % of a CPU")),
    }
    .see_as(format!("{percent} %"), threads.source())
    .alone()
}

/// Parses the name of a queue's interrupt, such as `irq293: ixl1:q2` or `irq264: ix0:rxq1`.
fn queue_interrupt(name: &str) -> Option<(u32, &str)> {
    let (irq, rest) = name.strip_prefix("irq")?.split_once(':')?;
    let queue = rest.trim().split_once(':').filter(|(_, queue)| queue.contains('q'));
    queue.and_then(|_| Some((irq.trim().parse().ok()?, rest.trim())))
}

fn irq_cpuset(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    let queues: Vec<(u32, &str)> =
        known(&host.interrupts)?.iter().filter_map(|interrupt| queue_interrupt(&interrupt.name)).collect();
    let placed: Vec<_> =
        queues.iter().filter_map(|(irq, name)| Some((*name, host.irq_cpus.get(irq)?.value()?))).collect();
    if queues.is_empty() {
        return Err(Skip::not_applicable("vmstat -i names no queue"));
    }
    if placed.is_empty() {
        return Err(Skip::unknown("cpuset -g -x: the CPUs of the queues' interrupts are not known"));
    }
    let loose: Vec<&str> = placed.iter().filter(|(_, cpus)| cpus.len() > 1).map(|(name, _)| *name).collect();
    let mut used = std::collections::BTreeSet::new();
    let shared: Vec<&str> = placed
        .iter()
        .filter(|(_, cpus)| cpus.len() == 1 && !used.insert(cpus.to_string()))
        .map(|(name, _)| *name)
        .collect();
    let list = |names: &[&str]| names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    match (loose.is_empty(), shared.is_empty()) {
        (true, true) => Judgement::pass(format!("{} queues have a CPU each", placed.len()))
            .see_as(format!("{} interrupts", placed.len()), "cpuset -g -x"),
        (false, _) => {
            Judgement::warn(format!("{} of {} queues' interrupts may run on several CPUs", loose.len(), placed.len()))
                .see_as(list(&loose), "cpuset -g -x")
        }
        (true, false) => Judgement::warn(format!("{} queues share a CPU with another one", shared.len()))
            .see_as(list(&shared), "cpuset -g -x"),
    }
    .alone()
}

fn stale_tunables(facts: &Facts, _: &Context) -> Judged {
    let host = bsd(facts)?;
    let loader = known(&host.loader)?;
    let major: u32 = known(&host.release)?
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .ok_or_else(|| Skip::unknown(format!("the release {} has no number", host.release)))?;
    let stale: Vec<_> = GONE_IN_12.iter().filter(|(name, _)| major >= 12 && loader.contains_key(*name)).collect();
    if stale.is_empty() {
        return Judgement::pass("every known loader tunable that is set has an effect").see(&host.release).alone();
    }
    let names: Vec<&str> = stale.iter().map(|(name, _)| *name).collect();
    let found = format!("FreeBSD {major} no longer reads {}", names.join(", "));
    let judgement = Judgement::fail(found).see(&host.release).see_as(names.join(", "), host.loader.source());
    stale.iter().fold(judgement, |judgement, (name, instead)| judgement.for_good(format!("{name}: {instead}"))).alone()
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::POWER, tests::MODERATION, tests::QUEUES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, freebsd};

    fn sysctls(text: &str) -> Host {
        bare().command("sysctl -a", text)
    }

    fn bare() -> Host {
        freebsd().command("uname -s", "FreeBSD\n").command("uname -r", "11.0-CURRENT\n")
    }

    fn with(file: &str, text: &str) -> Host {
        bare().file(file, text)
    }

    /// Two queues, whose interrupts may run on these CPUs.
    fn placed(first: &str, second: &str) -> Host {
        bare()
            .command("vmstat -i", "interrupt total rate\nirq291: ixl1:q0   5   1\nirq292: ixl1:q1   5   1\n")
            .command("cpuset -g -x", &format!("irq 291 mask: {first}\nirq 292 mask: {second}\n"))
    }

    /// The host of the thread, as its text describes it.
    fn thread() -> Host {
        sysctls("hw.acpi.cpu.cx_lowest: C3\ndev.cpu.0.cx_lowest: C1\nhw.ixl.rx_itr: 62\nhw.ixl.tx_itr: 122\n")
            .file("/boot/loader.conf", "")
            .command("ifconfig -a", "ixl1: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> metric 0 mtu 1500\n\toptions=407bb<RXCSUM,TXCSUM,TSO4,TSO6,LRO>\n\tmedia: Ethernet autoselect (40Gbase-CR4 <full-duplex>)\n")
    }

    pub(super) const POWER: &[Case] = &[
        Case::pass("fbsd.cx-lowest", || sysctls("hw.acpi.cpu.cx_lowest: C1\n")),
        Case::fail("fbsd.cx-lowest", thread),
        Case::unknown("fbsd.cx-lowest", bare),
        Case::pass("fbsd.powerd", || {
            with("/etc/rc.conf", "powerd_enable=\"YES\"\npowerd_flags=\"-a max -b max -n max\"\n")
        }),
        Case::fail("fbsd.powerd", || with("/etc/rc.conf", "powerd_enable=\"YES\"\n")),
        Case::unknown("fbsd.powerd", bare),
        Case::pass("fbsd.epp", || sysctls("dev.hwpstate_intel.0.epp: 0\n")),
        Case::warn("fbsd.epp", || sysctls("dev.hwpstate_intel.0.epp: 50\n")),
        Case::warn("fbsd.epp", || sysctls("dev.hwpstate_intel.0.epp: 0\ndev.hwpstate_intel.1.epp: 80\n")),
        Case::unknown("fbsd.epp", bare),
    ];

    pub(super) const MODERATION: &[Case] = &[
        Case::pass("fbsd.rx-itr", || sysctls("hw.ixl.rx_itr: 10\n")),
        Case::fail("fbsd.rx-itr", thread),
        Case::unknown("fbsd.rx-itr", bare),
        Case::pass("fbsd.tx-reclaim", || thread().command("sysctl -a", "hw.ixl.tx_itr: 20\n")),
        Case::fail("fbsd.tx-reclaim", thread),
        Case::unknown("fbsd.tx-reclaim", bare),
        Case::pass("fbsd.tx-latency", || sysctls("net.iflib.min_tx_latency: 1\n")),
        Case::warn("fbsd.tx-latency", || sysctls("net.iflib.min_tx_latency: 0\n")),
        Case::unknown("fbsd.tx-latency", bare),
        Case::pass("fbsd.flow-control", || sysctls("dev.ixl.0.fc: 0\n")),
        Case::warn("fbsd.flow-control", || sysctls("dev.ixl.0.fc: 3\n")),
        Case::warn("fbsd.flow-control", || sysctls("dev.ixl.0.fc: 0\ndev.ixl.1.fc: 3\n")),
        Case::not_applicable("fbsd.flow-control", || sysctls("hw.ncpu: 4\n")),
        Case::unknown("fbsd.flow-control", bare),
        Case::pass("fbsd.intr-storm", || sysctls("hw.intr_storm_threshold: 0\n")),
        Case::warn("fbsd.intr-storm", || sysctls("hw.intr_storm_threshold: 1000\n")),
        Case::unknown("fbsd.intr-storm", bare),
        Case::pass("fbsd.head-writeback", || sysctls("hw.ixl.enable_head_writeback: 0\n")),
        Case::disagree("fbsd.head-writeback", || sysctls("hw.ixl.enable_head_writeback: 1\n")),
        Case::unknown("fbsd.head-writeback", bare),
    ];

    fn interrupts(queues: u32) -> Host {
        let lines: String = (0..queues).map(|q| format!("irq{}: ixl1:q{q}   4000   10\n", 291 + q)).collect();
        bare().command("vmstat -i", &format!("interrupt total rate\n{lines}Total 1 1\n"))
    }

    fn threads(percent: &str) -> Host {
        bare().command(
            "top -bSH",
            &format!("  PID USERNAME PRI NICE   SIZE    RES STATE   C   TIME    WCPU COMMAND\n   11 root     -92    -     0K  1152K CPU2    2   0:19  {percent}% intr{{irq293: ixl1:q2}}\n"),
        )
    }

    pub(super) const QUEUES: &[Case] = &[
        Case::pass("fbsd.queues", || interrupts(4)),
        Case::warn("fbsd.queues", || interrupts(32)),
        Case::unknown("fbsd.queues", bare),
        Case::pass("fbsd.ring-time", || thread().file("/boot/loader.conf", "hw.ixl.ringsz=\"256\"\n")),
        Case::pass("fbsd.ring-time", || thread().file("/boot/loader.conf", "dev.ixl.1.iflib.override_nrxds=\"256\"\n")),
        Case::warn("fbsd.ring-time", thread),
        Case::unknown("fbsd.ring-time", bare),
        Case::pass("fbsd.offloads", || {
            bare()
                .command("ifconfig -a", "ixl0: flags=8843<UP,RUNNING> metric 0 mtu 1500\n\toptions=3<RXCSUM,TXCSUM>\n")
        }),
        Case::disagree("fbsd.offloads", thread),
        Case::unknown("fbsd.offloads", bare),
        Case::pass("fbsd.irq-load", || threads("7.67")),
        Case::fail("fbsd.irq-load", || threads("50.98")),
        Case::unknown("fbsd.irq-load", bare),
        Case::pass("fbsd.irq-cpuset", || placed("2", "3")),
        Case::warn("fbsd.irq-cpuset", || placed("0, 1, 2, 3", "3")),
        Case::warn("fbsd.irq-cpuset", || placed("3", "3")),
        Case::unknown("fbsd.irq-cpuset", bare),
        Case::pass("fbsd.stale-tunables", || with("/boot/loader.conf", "hw.ixl.max_queues=\"4\"\n")),
        Case::fail("fbsd.stale-tunables", || {
            with("/boot/loader.conf", "hw.ixl.max_queues=\"4\"\n").command("uname -r", "14.1-RELEASE\n")
        }),
        Case::unknown("fbsd.stale-tunables", bare),
    ];

    #[test]
    fn the_arithmetic_is_the_threads() {
        let found = |id| thread().judge(id).remove(0).found;
        assert!(found("fbsd.ring-time").contains("1024 slots takes 314.982us"), "{}", found("fbsd.ring-time"));
        assert!(
            found("fbsd.tx-reclaim").starts_with("sent buffers are reclaimed every 244us"),
            "{}",
            found("fbsd.tx-reclaim")
        );
        assert!(found("fbsd.cx-lowest").contains("only CPU 0 is held at C1"));
    }
}
