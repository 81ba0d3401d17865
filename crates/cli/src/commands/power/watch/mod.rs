//! `apus power watch`: shows power, frequencies and idle states. [`table`] prints them, [`metrics`] serves them to
//! Prometheus.

mod metrics;
mod table;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use host::facts::Root;
use host::meter::cores::{Asked, Cores, Counts};
use host::meter::{Account, Meters};
use live::os::Signals;
use tester::document::Energy;
use tester::host::Reading;
use units::Nanos;

use crate::args::power::watch::Watch as Typed;
use crate::commands::energy::{each, measured, own_work};
use crate::documents::VERSION;
use crate::documents::power::{Asked as AskedDocument, Core, WATCH, Watch};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Time between two searches for processes that limit idle states. A search walks through all processes.
const ASK_AGAIN: Nanos = Nanos::from_secs(10);

/// Runs `apus power watch`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let root = Root::open(&typed.root).map_err(|error| {
        Failure::wrong("cannot read the host", error, "give --root a folder that contains proc or sys")
    })?;
    if let Some(address) = typed.listen {
        return metrics::serve(root, typed.interrupt_isolated, address);
    }
    // Before any thread is started, because threads inherit the signal mask.
    let signals = Signals::hold()?;
    let mut sampler = Sampler::open(root, typed.interrupt_isolated);
    let end = match (typed.duration, typed.json) {
        (Some(duration), _) => Some(duration),
        (None, true) => Some(typed.interval),
        (None, false) => None,
    };
    let first = sampler.sample();
    let (mut last, mut lines) = (first.clone(), 0);
    let mut due = Nanos::ZERO;
    loop {
        // After a stop of the whole machine, missed intervals are skipped.
        due = (due + typed.interval).max(sampler.now());
        due = end.map_or(due, |end| due.min(end));
        let stopped = wait(&signals, &mut sampler, due);
        let now = sampler.sample();
        if !typed.json {
            show(&sampler.document(&last, &now), &mut lines)?;
        }
        last = now;
        if stopped || end == Some(due) {
            break;
        }
    }
    if typed.json {
        print_json(&sampler.document(&first, &last))?;
    }
    Ok(Status::Good)
}

/// Waits until `due`. In the meantime, reads the meters as often as necessary. Returns whether a signal arrived.
fn wait(signals: &Signals, sampler: &mut Sampler, due: Nanos) -> bool {
    loop {
        let left = due.saturating_sub(sampler.now());
        if left == Nanos::ZERO {
            return false;
        }
        let within = sampler.meters.poll_within().map_or(left, |within| within.min(left));
        if signals.wait(Duration::from_nanos(within.as_nanos())).is_some() {
            return true;
        }
        if within < left {
            sampler.poll();
        }
    }
}

/// Prints a table. On a terminal, the table replaces the previous one; elsewhere it is appended.
fn show(document: &Watch, lines: &mut usize) -> anyhow::Result<()> {
    let text = table::render(document);
    let mut out = terminal::out();
    if terminal::out_is_terminal() {
        out.erase_lines(*lines)?;
    }
    // A line that is longer than the terminal's width takes several rows.
    let columns = ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns)).max(1);
    *lines = text.lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the table")
}

/// The meters, the cores, and the clock for their readings.
pub(super) struct Sampler {
    root: Root,
    pub meters: Meters,
    pub cores: Cores,
    asked: Asked,
    asked_at: Nanos,
    began: Instant,
}

/// One reading of all meters and cores.
#[derive(Clone)]
pub(super) struct Sample {
    at: Nanos,
    account: Account,
    counts: Counts,
    own_cpu: Result<u64, String>,
}

impl Sampler {
    pub fn open(root: Root, interrupt_isolated: bool) -> Self {
        let meters = Meters::find(&root);
        let cores = Cores::open(&root, interrupt_isolated);
        let asked = Asked::read(&root);
        Self { root, meters, cores, asked, asked_at: Nanos::ZERO, began: Instant::now() }
    }

    fn now(&self) -> Nanos {
        Nanos::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn poll(&mut self) {
        let now = self.now();
        self.meters.reopen(&self.root);
        self.meters.poll(now);
    }

    pub fn sample(&mut self) -> Sample {
        let at = self.now();
        if at.saturating_sub(self.asked_at) >= ASK_AGAIN {
            (self.asked, self.asked_at) = (Asked::read(&self.root), at);
        }
        self.meters.reopen(&self.root);
        self.meters.poll(at);
        let counts = self.cores.read(at);
        Sample { at, account: self.meters.account(), counts, own_cpu: own_work().map(|work| work.cpu_ns) }
    }

    /// What happened between two samples.
    fn document(&self, earlier: &Sample, later: &Sample) -> Watch {
        let account = earlier.account.between(&later.account);
        let span = later.at.saturating_sub(earlier.at).as_nanos();
        let own = earlier.own_cpu.clone().and_then(|before| Ok((before, later.own_cpu.clone()?)));
        let share = |(before, after): (u64, u64)| 100.0 * after.saturating_sub(before) as f64 / span.max(1) as f64;
        Watch {
            apus: VERSION.to_owned(),
            schema: WATCH.to_owned(),
            interval_ns: span,
            energy: Energy {
                measured: measured(&self.meters, &account, None).into(),
                meters: each(&self.meters, &account),
                cpu_ns: Reading::unknown("no program is tested"),
                ..Energy::default()
            },
            lacks: self.meters.lacks().iter().map(ToString::to_string).collect(),
            cores: self.cores.between(&earlier.counts, &later.counts).iter().map(Core::from).collect(),
            asked: AskedDocument::from(&self.asked),
            own_cpu_percent: own.map(share).into(),
        }
    }
}
