//! Measures what a frequency change costs: the time from the request to its effect, and how long the core stops.
//!
//! ```text
//!   measured CPU:   unit unit unit unit unit ▌stall▐ unit    unit    unit      each timed, none in between
//!   another CPU:         request ─────────────► (effect)           next request
//! ```
//! The probe repeats a known piece of work, and from time to time requests another frequency. A change shows in the
//! duration of the work items. The results are the time from request to effect, the stall, and the longest item of each
//! batch (figures 4 and 5 of Intel's P-state guide 637284-001US show these).
//!
//! Requests go through the crate `host`: the old setting is first written to the journal, and restored at the end.

pub mod analysis;
mod request;
mod work;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use host::knob::Access;
use host::transaction::{Moved, Steered};
use live::cpu::{Cpu as _, LinuxCpu};
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use units::{Hertz, Instant, Monotonic, Nanos};

use crate::clock;
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::frequency::{FrequencyChange, FrequencyDetail};
use crate::mark::{Mark, MarkKind};
use crate::measured::{Counter, Measured, Name, Term};
use crate::observe::{Observation, Seen, reading_the_clock, restored, settings};
use crate::place::Place;
use crate::record::Recorder;
use crate::{Control, Error, Probe};

use analysis::{Request, Transition, Unit, batches, between, median, transition};
pub use request::Via;
use request::{Way, performance_counters};
use work::Work;

/// Shortest time allowed between two requests. The slowest change takes half a millisecond, and most of the period
/// should be after the change.
pub const SHORTEST_PERIOD: Nanos = Nanos::from_millis(4);
/// Maximum number of batches kept for a figure.
const DRAWN: usize = 4_000;
/// Maximum number of work items; each needs 16 bytes of memory.
const MOST_UNITS: usize = 40_000_000;
/// Least assumed ratio of the highest to the lowest frequency, because the CPU may not follow the requests: 4 GHz
/// to 800 MHz.
const LEAST_RANGE: u64 = 5;

/// The probe `frequency` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frequency {
    /// CPU whose frequency is changed. It also runs the work items, whose times show the frequency.
    pub cpu: usize,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Interface through which frequencies are requested.
    pub via: Via,
    /// Frequencies to request in turn; empty means the lowest and the highest of the hardware.
    pub levels: Vec<Hertz>,
    /// Duration of a work item at the CPU's frequency when the run starts.
    pub work: Nanos,
    /// Time from one request to the next.
    pub period: Nanos,
    /// Number of requests.
    pub changes: u32,
    /// Number of work items per plotted point; the point shows the slowest of them.
    pub batch: usize,
    /// Name of the load that runs on the host during the measurement, such as `none` or `cpu`. It is only copied to
    /// [`Conditions`].
    pub load: String,
}

impl Frequency {
    /// Creates a probe for `cpu` with 40 requests, 50 ms apart, and work items of 10 us.
    pub fn new(cpu: usize) -> Self {
        Self {
            cpu,
            priority: None,
            via: Via::Auto,
            levels: Vec::new(),
            work: Nanos::from_micros(10),
            period: Nanos::from_millis(50),
            changes: 40,
            batch: 100,
            load: "none".into(),
        }
    }

    /// Total duration of the measurement, computed from the number of requests and their period.
    pub fn duration(&self) -> Nanos {
        self.period * (u64::from(self.changes) + 1)
    }

    /// Number of work items for which there is room, if these frequencies are requested in turn.
    fn room(&self, levels: &[Hertz]) -> Result<usize, Error> {
        let hertz = || levels.iter().map(|level| level.as_hertz().max(1));
        // At a higher frequency, an item is shorter. A quarter is added for turbo and for the inexact first item.
        let range = hertz().max().unwrap_or(1).div_ceil(hertz().min().unwrap_or(1)).max(LEAST_RANGE);
        let units = self.duration().as_nanos() / self.work.as_nanos().max(1);
        let room = usize::try_from(units.saturating_mul(range).saturating_mul(5) / 4).unwrap_or(usize::MAX);
        if self.changes == 0 || room > MOST_UNITS {
            let why = format!(
                "expected at least one, and at most as many as make {MOST_UNITS} work items: --changes, --period and --work decide how many"
            );
            return Err(Error::invalid(format!("{} changes", self.changes), why));
        }
        Ok(room)
    }

    fn check(&self) -> Result<(), Error> {
        if self.period < SHORTEST_PERIOD {
            let why = format!("expected at least {SHORTEST_PERIOD}, because an effect may take half a millisecond");
            return Err(Error::invalid(format!("one request every {}", self.period), why));
        }
        if self.work < Nanos::from_micros(1) || self.work * 50 > self.period {
            let why = "expected at least 1us, and at least 50 work items between two requests";
            return Err(Error::invalid(format!("work items of {}", self.work), why));
        }
        self.room(&self.levels)?;
        if self.batch == 0 {
            return Err(Error::invalid("batches of 0 work items", "expected at least one"));
        }
        if self.levels.len() == 1 {
            return Err(Error::invalid("one frequency", "a change needs two"));
        }
        Ok(())
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let levels: Vec<String> =
            self.levels.iter().map(|level| format!("{}MHz", level.as_hertz() / 1_000_000)).collect();
        let mut settings = settings(
            self.priority,
            [
                ("cpu", self.cpu.to_string()),
                ("via", self.via.to_string()),
                ("work", self.work.to_string()),
                ("period", self.period.to_string()),
                ("changes", self.changes.to_string()),
            ],
        );
        if !levels.is_empty() {
            settings.insert("levels".to_owned(), levels.join(","));
        }
        settings
    }
}

/// The frequency requests of a run.
#[derive(Default)]
struct Asks {
    made: Vec<Asked>,
    /// Why there are fewer than [`Frequency::changes`]; `None` if all were made, or if the user interrupted the run.
    ended: Option<String>,
}

/// A frequency request that was made.
struct Asked {
    request: Request,
    level: Hertz,
    effective: Reading<u64>,
}

impl Probe for Frequency {
    fn counter(&self) -> Counter {
        Counter {
            counts: format!(
                "the duration of a chain of dependent multiplications (a work item), {} at the start, each timed from the end of the one before; effect: from the clock reading before the request to the start of the first item at the new speed; stall: how far the longest item around the request exceeds the medians at both speeds; CLOCK_MONOTONIC",
                self.work
            ),
            resolution_ns: self.work.as_nanos(),
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "the time of an effect is known to within one work item".into(),
                "interrupts and a hypervisor also lengthen work items: compare the stalls with the longest items of quiet batches"
                    .into(),
                "a request has no visible effect if another CPU of the same clock domain overrides it".into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        self.check()?;
        let observation = Observation::begin(control, &[self.cpu])?;
        let access = Access::below(&control.root).map_err(request::of_host)?;
        let number = u32::try_from(self.cpu).map_err(|_| Error::invalid("the CPU", "its number is too large"))?;
        let way = Way::find(&access, number, self.via)?;
        let levels = self.levels(&way, &access, number)?;
        let room = self.room(&levels)?;
        let mut held = way.hold(&access, levels[0])?;
        let stop = AtomicBool::new(false);
        let worked = std::thread::scope(|scope| {
            let (stop, locked) = (&stop, &observation.memory_locked);
            let (ready, works) = mpsc::channel();
            let worker = scope.spawn(move || -> Result<(Vec<Unit>, Conditions), Error> {
                let slack = Nanos::from_nanos(1);
                Place { cpu: self.cpu, priority: self.priority, slack }.take("apus-frequency")?;
                let conditions = Conditions::of_this_thread(&control.root, &[self.cpu], locked, &self.load);
                let work = Work::taking(self.work);
                // If the receiver is gone, the measurement is over.
                let _ = ready.send(());
                Ok((work.repeat(room, stop), conditions))
            });
            // If the worker could not begin, joining it gives the reason.
            let begins = works.recv().is_ok();
            let began = LinuxCpu.now();
            let asked = if begins { self.ask(control, &access, &way, &mut held, &levels) } else { Ok(Asks::default()) };
            stop.store(true, Ordering::Relaxed);
            let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (units, conditions) = worked?;
            Ok::<_, Error>((began, units, conditions, asked?))
        });
        restored(&format!("the frequency setting of CPU {}", self.cpu), held.release())?;
        let (began, units, mut conditions, asked) = worked?;
        let mut seen = observation.end(&mut conditions);
        seen.marks.extend(asked.ended.map(|text| Mark::new(MarkKind::NotAvailable, text)));
        let is_full = units.len() == room;
        Ok(self.measured(control, conditions, seen, (&way, &levels), (began, &units, is_full, &asked.made)))
    }
}

impl Frequency {
    fn levels(&self, way: &Way, access: &Access, cpu: u32) -> Result<Vec<Hertz>, Error> {
        if !self.levels.is_empty() {
            return Ok(self.levels.clone());
        }
        let why = match way.extremes(access, cpu)? {
            Some([min, max]) if min < max => return Ok(vec![min, max]),
            Some([min, _]) => format!("the host reports only one frequency, {} MHz", min.as_hertz() / 1_000_000),
            None => "the host does not report its lowest and highest frequency".into(),
        };
        let what = format!("choose the frequencies to change between on CPU {cpu}");
        Err(Error::lacking(what, why, "give two frequencies with --levels"))
    }

    /// Makes one request per period, until something else changes the setting.
    fn ask(
        &self,
        control: &Control,
        access: &Access,
        way: &Way,
        held: &mut Steered,
        levels: &[Hertz],
    ) -> Result<Asks, Error> {
        let mut cpu = LinuxCpu;
        let mut asked = Asks { made: Vec::with_capacity(self.changes as usize), ended: None };
        let mut at = cpu.now();
        for change in 0..self.changes as usize {
            at = at + self.period;
            cpu.sleep_until(at);
            if control.stopped() {
                break;
            }
            let level = levels[(change + 1) % levels.len()];
            let begun = held.begin(0, &way.value(level)?).map_err(request::of_host)?;
            // The time of the write alone, without the journal's.
            let before = cpu.now();
            let written = begun.as_ref().map_or(Ok(()), |moving| moving.write(access));
            let request = Request { at: before, done: cpu.now() };
            control.show(request.done.since(before).unwrap_or(Nanos::ZERO));
            // Reads the counters long after the effect, because reading them interrupts the measured CPU.
            let counters = |share: u64| {
                LinuxCpu.sleep_until(at + self.period.scale(share, 100));
                performance_counters(&control.root, self.cpu)
            };
            let effective = effective(counters(60), counters(85));
            let moved = match begun {
                Ok(moving) => held.end(moving, written).map_err(request::of_host)?,
                Err(moved) => moved,
            };
            if !moved.is_held() {
                let what = match moved {
                    Moved::LetGo { now } => format!("something else set the frequency to {now}"),
                    _ => "the frequency setting disappeared".into(),
                };
                asked.ended = Some(format!("{what} after {change} of {} requests, so no more were made", self.changes));
                break;
            }
            asked.made.push(Asked { request, level, effective });
        }
        cpu.sleep_until(at + self.period);
        Ok(asked)
    }

    fn measured(
        &self,
        control: &Control,
        conditions: Conditions,
        seen: Seen,
        (way, levels): (&Way, &[Hertz]),
        (began, units, is_full, asked): (Instant<Monotonic>, &[Unit], bool, &[Asked]),
    ) -> Measured {
        let end = units.last().map_or(began, |unit| unit.start + unit.took);
        let from_start = |at: Instant<Monotonic>| at.since(began).unwrap_or(Nanos::ZERO).as_nanos();
        let (mut effects, mut stalls, mut quiet) = (Recorder::new(), Recorder::new(), Recorder::new());
        let (mut changes, mut without_effect) = (Vec::new(), 0);
        for (n, of) in asked.iter().enumerate() {
            let previous = if n == 0 { began } else { asked[n - 1].request.at };
            let next = asked.get(n + 1).map_or(end, |next| next.request.at);
            let Some(found) = transition(units, previous, of.request, next) else { continue };
            let Transition { before, after, effect, stall } = found;
            effect.into_iter().for_each(|effect| effects.record(effect));
            without_effect += u64::from(effect.is_none());
            stalls.record(stall);
            changes.push(FrequencyChange {
                at_ns: from_start(of.request.at),
                to_hz: of.level.as_hertz(),
                call_ns: of.request.done.since(of.request.at).unwrap_or(Nanos::ZERO).as_nanos(),
                unit_before_ns: before.as_nanos(),
                unit_after_ns: after.as_nanos(),
                effect_ns: effect.map(Nanos::as_nanos),
                stall_ns: stall.as_nanos(),
                effective_hz: of.effective.clone(),
            });
            // The variation without a change, for comparison with stalls: the longest item of batches that are far from
            // any request.
            let settled = between(units, of.request.at + self.period / 2, next);
            let usual = median(settled).unwrap_or(Nanos::ZERO);
            batches(settled, self.batch).iter().for_each(|row| quiet.record(row.took.saturating_sub(usual)));
        }
        let mut marks = seen.marks;
        if changes.len() < asked.len() {
            let why = match is_full {
                true => format!(
                    "the buffer of {} work items was full {} after the start; choose fewer --changes or longer --work",
                    units.len(),
                    Nanos::from_nanos(from_start(end))
                ),
                false => "almost no work ran before or after them, because other threads had the CPU".into(),
            };
            let text = format!("{} of {} requests cannot be judged: {why}", asked.len() - changes.len(), asked.len());
            marks.push(Mark::new(MarkKind::NotAvailable, text));
        }
        if without_effect > 0 {
            let text = format!(
                "{without_effect} of {} requests had no visible effect on the work: the host, the hypervisor or the firmware did not follow them",
                changes.len()
            );
            marks.push(Mark::new(MarkKind::NotAvailable, text));
        }
        let refused = seen.refused.as_deref();
        let terms =
            [("request to effect", &effects), ("stall at a change", &stalls), ("longest of a quiet batch", &quiet)];
        let terms = terms.map(|(name, of)| Term::new(name, of.series(refused), None, None));
        Measured {
            probe: Name::Frequency,
            variant: way.name().into(),
            settings: self.settings(),
            counter: self.counter(),
            overhead: vec![reading_the_clock("reading the clock after each unit of work")],
            conditions,
            duration_ns: Some(from_start(end)),
            interrupted: control.stopped(),
            terms: terms.into(),
            detail: Detail::Frequency(FrequencyDetail {
                via: way.name().into(),
                levels_hz: levels.iter().map(|level| level.as_hertz()).collect(),
                units: units.len() as u64,
                batch_units: self.batch as u64,
                changes,
                without_effect,
                batches_ns: drawn(units, self.batch, began),
            }),
            exceeded: None,
            marks,
        }
    }
}

/// The batches for the figure, at most [`DRAWN`]. If there are more, neighboring batches are merged, and the longer
/// duration is kept.
fn drawn(units: &[Unit], batch: usize, began: Instant<Monotonic>) -> Vec<(u64, u64)> {
    let size = batch.max(units.len().div_ceil(DRAWN));
    let point = |row: &Unit| (row.start.since(began).unwrap_or(Nanos::ZERO).as_nanos(), row.took.as_nanos());
    batches(units, size).iter().map(point).collect()
}

/// Effective frequency: the frequency of the time stamp counter, times APERF / MPERF (Intel SDM volume 3, "Hardware
/// Feedback").
fn effective(a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> Reading<u64> {
    let (Some((aperf_a, mperf_a)), Some((aperf_b, mperf_b))) = (a, b) else {
        return Reading::unknown(
            "APERF and MPERF are not readable (this needs root and the module msr; guests usually have neither register)",
        );
    };
    let Some(hz) = clock::tsc_hz() else {
        return Reading::unknown("there is no time stamp counter to scale them by");
    };
    match (aperf_b.checked_sub(aperf_a), mperf_b.checked_sub(mperf_a)) {
        (Some(done), Some(could @ 1..)) => {
            Reading::known((u128::from(hz) * u128::from(done) / u128::from(could)) as u64)
        }
        _ => Reading::unknown("MPERF did not move"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::knob::Limits;

    #[test]
    fn there_is_room_for_the_range_of_the_frequencies() {
        let frequency = Frequency::new(0);
        let room = |mhz: &[u64]| {
            let levels: Vec<Hertz> = mhz.iter().map(|mhz| Hertz::new(mhz * 1_000_000)).collect();
            frequency.room(&levels).unwrap() as u64
        };
        // A work item takes 10 us at the lowest frequency, and less at the highest.
        let items = frequency.duration().as_nanos() / 10_000;
        assert!(room(&[400, 5_700]) >= items * 57 / 4, "{} for {items}", room(&[400, 5_700]));
        assert_eq!(room(&[2_000, 3_000]), room(&[]));
        let endless = Frequency { changes: u32::MAX, ..frequency.clone() };
        assert!(matches!(endless.room(&[]), Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_full_buffer_is_named_as_such() {
        let (frequency, at) = (Frequency::new(0), |ns: u64| Instant::from_nanos(ns));
        let units: Vec<Unit> = (0..10).map(|n| Unit { start: at(n * 1_000), took: Nanos::from_micros(1) }).collect();
        let request = Request { at: at(50_000), done: at(51_000) };
        let asked = [Asked { request, level: Hertz::new(800_000_000), effective: Reading::unknown("a test") }];
        let text = |is_full| {
            let (conditions, seen) =
                (Conditions::unknown(vec![0], "a test"), Seen { refused: None, marks: Vec::new() });
            let way = Way::Limits(Limits::new(0));
            let ran = (at(0), &units[..], is_full, &asked[..]);
            let measured = frequency.measured(&Control::new(None), conditions, seen, (&way, &[]), ran);
            measured.marks[0].text.clone()
        };
        assert!(text(true).contains("the buffer of 10 work items was full 10us after the start"), "{}", text(true));
        assert!(text(false).contains("other threads had the CPU"), "{}", text(false));
    }
}
