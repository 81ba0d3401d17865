//! The steps of every probe before and after its measurement: it locks the memory, moves observing threads off the
//! measured CPUs, and watches the clocks and the hypervisor.

use std::collections::BTreeMap;
use std::path::PathBuf;

use host::knob::Setting as _;
use host::transaction::RolledBack;
use live::cpu::{Cpu as _, LinuxCpu};
use tester::host::Reading;
use units::Nanos;

use crate::clockcheck::Readings;
use crate::conditions::{Conditions, steal_ms};
use crate::mark::{Mark, MarkKind};
use crate::measured::Overhead;
use crate::place::Elsewhere;
use crate::record::Recorder;
use crate::{Control, Error, place};

/// Observes the host from before a run until after it.
#[derive(Debug)]
pub(crate) struct Observation {
    root: PathBuf,
    cpus: Vec<usize>,
    clocks: Readings,
    steal_ms: Result<u64, String>,
    pub memory_locked: Reading<bool>,
    marks: Vec<Mark>,
    _elsewhere: Elsewhere,
}

/// What was observed during a run.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Why no quantile can be trusted; `None` if the quantiles can be trusted.
    pub refused: Option<String>,
    /// What to consider when reading the numbers.
    pub marks: Vec<Mark>,
}

impl Seen {
    /// Adds a reason why no quantile can be trusted.
    pub(crate) fn refuse(&mut self, why: String) {
        self.refused = Some(joined(self.refused.take(), why));
    }
}

/// Adds `why` to the reasons for which quantiles are refused.
pub(crate) fn joined(refused: Option<String>, why: String) -> String {
    match refused {
        Some(already) if already.contains(&why) => already,
        Some(already) => format!("{already}; {why}"),
        None => why,
    }
}

impl Observation {
    /// Begins the observation: checks `cpus`, locks the memory, and moves the calling thread off `cpus` until the end.
    pub fn begin(control: &Control, cpus: &[usize]) -> Result<Self, Error> {
        place::check(cpus)?;
        let mut marks = Vec::new();
        let elsewhere = Elsewhere::than(cpus)?;
        if !elsewhere.is_elsewhere() {
            marks.push(Mark::new(
                MarkKind::Note,
                "every CPU of this process is measured, so the observing thread shares one of them",
            ));
        }
        let memory_locked = match live::os::lock_memory() {
            Ok(()) => Reading::known(true),
            Err(error) => {
                marks.push(Mark::new(
                    MarkKind::NotAvailable,
                    format!("page faults may be part of the samples: {}", first_line(&error)),
                ));
                Reading::known(false)
            }
        };
        let root = control.root.clone();
        Ok(Self {
            clocks: Readings::take(&root),
            steal_ms: steal_ms(&root, cpus),
            cpus: cpus.to_vec(),
            root,
            memory_locked,
            marks,
            _elsewhere: elsewhere,
        })
    }

    /// Ends the observation, and adds the conditions that are known only at the end.
    pub fn end(self, conditions: &mut Conditions) -> Seen {
        let events = self.clocks.until(&Readings::take(&self.root));
        conditions.steal_ms = match (self.steal_ms, steal_ms(&self.root, &self.cpus)) {
            (Ok(before), Ok(after)) => Reading::known(after.saturating_sub(before)),
            (Err(why), _) | (_, Err(why)) => Reading::unknown(why),
        };
        let mut marks = self.marks;
        marks.extend(conditions.marks());
        marks.extend(events.iter().map(|event| Mark::new(MarkKind::ClockStep, event.clone())));
        let refused = (!events.is_empty()).then(|| format!("the clocks cannot be trusted: {}", events.join("; ")));
        Seen { refused, marks }
    }
}

/// Checks that a probe's settings have their old values again. `what` names them, to follow "cannot restore".
pub(crate) fn restored(
    what: &str,
    released: Result<Option<RolledBack>, host::transaction::Error>,
) -> Result<(), Error> {
    let why = match released {
        Ok(back) if back.as_ref().is_none_or(|back| back.closed) => return Ok(()),
        Ok(back) => {
            let left = back.iter().flat_map(|back| &back.entries).filter(|(_, outcome)| !outcome.is_settled());
            let texts: Vec<String> =
                left.map(|(entry, outcome)| format!("{}: {outcome}", entry.intent.setting.label())).collect();
            texts.join("; ")
        }
        Err(error) => error.to_string(),
    };
    Err(Error::NotRestored { what: what.into(), why })
}

/// The first line of an error message.
pub(crate) fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
/// The cost of one reading of the clock, which is part of every sample. `what` describes the purpose of the reading.
pub(crate) fn reading_the_clock(what: &str) -> Overhead {
    const N: u64 = 2_000;
    let mut cost = Recorder::new();
    for _ in 0..N {
        let before = LinuxCpu.now();
        cost.record(LinuxCpu.now().since(before).unwrap_or(Nanos::ZERO));
    }
    let median_ns = cost.median().unwrap_or(Nanos::ZERO).as_nanos();
    Overhead { what: what.to_owned(), median_ns, in_samples: true, n: N }
}

/// The settings of a probe as they can be typed on the command line, with the priority if there is one.
pub(crate) fn settings<const N: usize>(priority: Option<u8>, of: [(&str, String); N]) -> BTreeMap<String, String> {
    let priority = priority.map(|priority| ("priority", priority.to_string()));
    of.into_iter().chain(priority).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A list of CPUs as it is typed on the command line, such as `1,3`.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}
