//! The parts of a packet's delay that a host's settings show.

use host::Facts;
use host::facts::{Cpu, Fact, Link, Why};
use units::Nanos;

use crate::rules::common::megahertz;
use crate::rules::cores;
use crate::rules::cpu::{frequency, idle};
use crate::{Context, Skip, known};

/// The longest interval of adaptive moderation: Linux lib/dim/net_dim.c, `NET_DIM_RX_EQE_PROFILES` (1, 8, 64, 128, 256
/// us).
const LONGEST_DIM: Nanos = Nanos::from_micros(256);
/// Time from the interrupt until the waiting thread runs. This is an estimate; `apus probe` measures it.
const WAKE: Nanos = Nanos::from_micros(5);
/// The shortest time that a system management interrupt takes. This is an estimate based on "tens of us to ms". Linux
/// Documentation/core-api/real-time/hardware.rst names the mechanism.
const SMI: Nanos = Nanos::from_micros(50);

/// One part of a packet's delay: its name, its longest duration, and the source of that number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Term {
    /// Human-readable name of the part, such as `idle state C6`.
    pub name: String,
    /// Longest duration of the part.
    pub time: Nanos,
    /// The file or command from which the duration was taken.
    pub source: String,
}

/// The known parts of a packet's delay, and why other parts are unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Terms {
    /// The known parts, the longest first. Parts that take no time are left out.
    pub known: Vec<Term>,
    /// For each unknown part, the reason why it is unknown.
    pub open: Vec<String>,
    /// Evidence of whether the frequency may change, and of the processor's generation: pairs of a value and its
    /// source.
    pub seen: Vec<(String, String)>,
}

impl Terms {
    /// The sum of the known parts. It is a lower bound if other parts are unknown.
    pub(super) fn sum(&self) -> Nanos {
        self.known.iter().fold(Nanos::ZERO, |sum, term| sum + term.time)
    }

    /// Formats the known parts: `idle state C6 133us + moderation 50us`.
    pub(super) fn text(&self) -> String {
        let parts: Vec<String> = self.known.iter().map(|term| format!("{} {}", term.name, term.time)).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(" + ") }
    }

    fn add(&mut self, term: Result<Option<Term>, Skip>) {
        match term {
            Ok(Some(term)) if term.time > Nanos::ZERO => self.known.push(term),
            // A mechanism that the host does not have adds no time.
            Ok(_) | Err(Skip::NotApplicable(_)) => {}
            Err(Skip::Unknown { reason, .. }) => self.open.push(reason.into()),
        }
        self.known.sort_by_key(|term| std::cmp::Reverse(term.time));
    }

    /// Adds the time for which a frequency change stops a core, and the facts on which this time is based.
    fn add_stop(&mut self, facts: &Facts, context: &Context) {
        let stop = frequency_stop(facts, context);
        if !matches!(stop, Ok(None)) {
            let cpu = cores(facts, &context.critical(facts)).iter().filter_map(|id| facts.cpus.cpu(id)).find(varies);
            for fact in cpu.iter().flat_map(|cpu| [&cpu.frequency.scaling_min, &cpu.frequency.scaling_max]) {
                self.seen.extend(fact.get().map(|bound| (megahertz(bound), fact.source().to_string())));
            }
            let generation = &facts.cpus.generation;
            self.seen.extend(generation.get().map(|name| (format!("{name:?}"), generation.source().to_string())));
        }
        self.add(stop);
    }
}

/// The parts of the longest time for which the reader of an interface's rings may be away. Packets stay in a ring until
/// the interrupt has arrived, the CPU has woken up, the frequency is reached, and the thread runs. If the reader polls,
/// only stops of its core count. Without an interface, returns the parts of the longest wake-up.
pub(super) fn absence(facts: &Facts, context: &Context, link: Option<&Link>) -> Terms {
    let mut terms = Terms::default();
    if !context.only_polls() {
        link.into_iter().for_each(|link| {
            terms.add(moderation(link));
            terms.add(deferral(link));
        });
        terms.add(idle_exit(facts, context));
        link.into_iter().for_each(|link| terms.add(thread(facts, link)));
    }
    terms.add_stop(facts, context);
    terms.add(smi(facts));
    terms
}

/// How long the device delays an interrupt; 0 if it does not.
pub(super) fn moderation(link: &Link) -> Result<Option<Term>, Skip> {
    let coalesce = known(&link.coalesce)?;
    let source = link.coalesce.source().to_string();
    if coalesce.adaptive_rx == Some(true) {
        // A driver with its own table reports its upper limit in rx-usecs-high; the others use that of the kernel's
        // library.
        let high = coalesce.rx_usecs_high.filter(|usecs| *usecs > 0);
        let time = high.map_or(LONGEST_DIM, |usecs| Nanos::from_micros(usecs.into()));
        return Ok(Some(Term { name: "adaptive moderation, up to".into(), time, source }));
    }
    match coalesce.rx_usecs {
        Some(usecs) if usecs == 1 || usecs == 3 => match link.driver.value().map(String::as_str) {
            // drivers/net/ethernet/intel/{ixgbe,ixgbevf,igb}: 1 means dynamic moderation, 3 an old mode; neither is a
            // time.
            Some("ixgbe" | "ixgbevf" | "igb" | "igbvf") => {
                Err(Skip::unknown(format!("{source}: rx-usecs {usecs} names a mode of this driver, not a time")))
            }
            Some(_) => Ok(Some(Term { name: "moderation".into(), time: Nanos::from_micros(usecs.into()), source })),
            None => Err(Skip::of(&link.driver)),
        },
        usecs => {
            Ok(Some(Term { name: "moderation".into(), time: Nanos::from_micros(usecs.unwrap_or(0).into()), source }))
        }
    }
}

/// How long the kernel keeps the interrupt disabled after an empty poll (Documentation/networking/napi.rst, "IRQ
/// mitigation"). `None` if it does not.
fn deferral(link: &Link) -> Result<Option<Term>, Skip> {
    let defer = link.defer_hard_irqs.settled().ok_or_else(|| Skip::of(&link.defer_hard_irqs))?;
    if defer.copied().unwrap_or(0) == 0 {
        return Ok(None);
    }
    let timeout = *known(&link.gro_flush_timeout_ns)?;
    let source = link.gro_flush_timeout_ns.source().to_string();
    Ok(Some(Term { name: "deferred interrupts".into(), time: Nanos::from_nanos(timeout), source }))
}

/// The longest exit latency among the idle states that critical CPUs may enter. `None` if they enter none.
fn idle_exit(facts: &Facts, context: &Context) -> Result<Option<Term>, Skip> {
    if facts.cmdline.value().is_some_and(|line| line.has_value("idle", "poll")) {
        return Ok(None);
    }
    let cpus = context.critical(facts);
    if cpus.is_empty() {
        return Err(Skip::of(&facts.cpus.online));
    }
    let mut longest: Option<Term> = None;
    for cpu in cpus.iter().filter_map(|id| facts.cpus.cpu(id)) {
        // A guest usually has no idle states, and those of its hypervisor cannot be seen.
        let Some(state) = (match idle::deepest(facts, cpu) {
            Err(Skip::NotApplicable(_)) => continue,
            other => other?,
        }) else {
            continue;
        };
        let time = *known(&state.exit_latency)?;
        if longest.as_ref().is_none_or(|term| term.time < time) {
            let source = state.exit_latency.source().to_string();
            longest = Some(Term { name: format!("idle state {}", idle::name(state)), time, source });
        }
    }
    Ok(longest)
}

/// Whether the frequency of a CPU may change.
fn varies(cpu: &&Cpu) -> bool {
    let range = &cpu.frequency;
    range.scaling_min.get().zip(range.scaling_max.get()).is_some_and(|(min, max)| min < max)
}

/// How long a frequency change stops a core. `None` if the processor does not stop for a change, or if the frequency is
/// fixed.
fn frequency_stop(facts: &Facts, context: &Context) -> Result<Option<Term>, Skip> {
    let generation = match &facts.cpus.generation {
        // A processor model that Apus does not know.
        Fact::Missing { why: Why::Unsupported(_), .. } => None,
        fact => Some(*known(fact)?),
    };
    let stops = generation.and_then(frequency::stops);
    if stops == Some(false) {
        return Ok(None);
    }
    let mut varies = false;
    let cpus = cores(facts, &context.critical(facts));
    for cpu in cpus.iter().filter_map(|id| facts.cpus.cpu(id)) {
        let range = &cpu.frequency;
        varies |= known(&range.scaling_min)? < known(&range.scaling_max)?;
    }
    match (varies, stops) {
        (false, _) => Ok(None),
        (true, None) => {
            let part = generation.map_or("this processor".to_owned(), |generation| format!("{generation:?}"));
            Err(Skip::unknown(format!(
                "stall of the core at a change of frequency, because {}",
                frequency::not_named(&part)
            )))
        }
        (true, _) => Ok(Some(Term {
            name: "change of frequency".into(),
            time: frequency::STOP,
            source: "Intel P-state guide (637284-001US, 2021)".into(),
        })),
    }
}

/// The time until the thread that handles an interrupt is scheduled. Such a thread exists on a real-time kernel and
/// with threaded NAPI. `None` if there is no such thread.
fn thread(facts: &Facts, link: &Link) -> Result<Option<Term>, Skip> {
    let threaded = link.threaded.get() == Some(true);
    let term =
        || Term { name: "interrupt thread".into(), time: WAKE, source: "an estimate: apus probe measures it".into() };
    match threaded {
        true => Ok(Some(term())),
        false => Ok(known(&facts.kernel.realtime)?.then(term)),
    }
}

/// The minimum time that a system management interrupt takes. `None` if none was counted.
fn smi(facts: &Facts) -> Result<Option<Term>, Skip> {
    // A counter that was not read is not an unknown part; the rule smi.count reports it.
    let Some(counts) = facts.interval.value().and_then(|interval| interval.change.smis.value()) else {
        return Ok(None);
    };
    Ok(counts.values().any(|count| *count > 0).then(|| Term {
        name: "system management interrupt, at least".into(),
        time: SMI,
        source: facts.counters.smis.source().to_string(),
    }))
}
