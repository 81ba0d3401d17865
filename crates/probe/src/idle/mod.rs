//! Measures how long it takes to leave an idle state.
//!
//! ```text
//!   allow one state alone (or limit the exit latency) ─► measure ─► restore the settings
//!                                                          │
//!        timer:   due ──────────► first clock reading of the thread
//!        cpu:     the other CPU's stamp ─ eventfd ─► the same
//!        frame:   the XDP stamp ─► the same (the probe `interrupt`)
//! ```
//! **Two kinds of wake-up** are measured: by a timer, and by another CPU (directly or with a frame). Some processors
//! know when a timer expires, and leave a deep state *before* that time (pre-wake: on Ivy Town, waking takes 17.6 us
//! instead of 73.8 us, as the tool wult found). Packets do not benefit from this, so the figure for a timer is never
//! given alone.
//!
//! **In a guest** there is usually no cpuidle, or only the driver haltpoll. The CPU then halts, and the host decides
//! what happens: it may poll for a while before it gives the CPU to others (kernel documentation,
//! virt/kvm/halt-polling). So in a guest the idle time is varied: a step in the cost shows how long the host polls.
//!
//! Settings are changed through the host's journal, and rolled back when the measurement ends, whether it succeeds or
//! not.

mod summary;
mod wake;

use std::collections::BTreeMap;
use std::path::Path;

use host::knob::{Access, CpuLatency, IdleState, ResumeLatency, State, states};
use host::transaction::{Held, Plan};
use live::cpu::{Cpu as _, LinuxCpu};
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use units::Nanos;

use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::idle::HaltPolling;
use crate::interrupt::{Interrupt, Wait};
use crate::mark::{Mark, MarkKind};
use crate::measured::{Counter, Measured, Name, Term, suspicion};
use crate::observe::{Observation, first_line, reading_the_clock, restored, settings};
use crate::record::Recorder;
use crate::{Control, Error, Probe};

pub use crate::detail::idle::{How, Source};

/// Idle times that reveal how long the host of a guest polls before it halts a CPU: from below the usual limit (200 us,
/// arch/x86/kvm KVM_HALT_POLL_NS_DEFAULT) to far above it.
const LADDER: [Nanos; 5] = [
    Nanos::from_micros(50),
    Nanos::from_micros(100),
    Nanos::from_micros(350),
    Nanos::from_millis(1),
    Nanos::from_millis(10),
];
/// Shortest idle time for states with a short target residency.
const SHORTEST: Nanos = Nanos::from_micros(200);

/// The probe `idle` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idle {
    /// CPU that sleeps and is measured.
    pub cpu: usize,
    /// CPU that wakes the sleeping one. With `None`, only timers can end the sleep.
    pub peer: Option<usize>,
    /// How to enter each idle state.
    pub how: How,
    /// What wakes the sleeping CPU; each source is measured separately.
    pub sources: Vec<Source>,
    /// Idle times to measure. If empty: twice the target residency of each state, at least 200 us. In a guest without
    /// idle states, or with the driver haltpoll: five times from 50 us to 10 ms.
    pub sleeps: Vec<Nanos>,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Duration of the measurement of each combination of state, idle time and source.
    pub duration: Nanos,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

impl Idle {
    /// Creates a probe for `cpu`, woken by a timer and by `peer` (if given). All idle states but the measured one are
    /// disabled. Each combination is measured for one second.
    pub fn new(cpu: usize, peer: Option<usize>) -> Self {
        let sources = if peer.is_some() { vec![Source::Timer, Source::Cpu] } else { vec![Source::Timer] };
        Self {
            cpu,
            peer,
            how: How::Alone,
            sources,
            sleeps: Vec::new(),
            priority: None,
            duration: Nanos::from_secs(1),
            load: "none".into(),
        }
    }

    fn cpus(&self) -> Vec<usize> {
        [Some(self.cpu), self.peer].into_iter().flatten().collect()
    }

    fn check(&self) -> Result<(), Error> {
        if self.peer == Some(self.cpu) {
            let why = "it sleeps, so another CPU must wake it";
            return Err(Error::invalid(format!("CPU {} as its own waker", self.cpu), why));
        }
        if self.peer.is_none() && self.sources.iter().any(|source| *source != Source::Timer) {
            return Err(Error::lacking(
                "wake one CPU from another",
                "this process may use one CPU only",
                "allow it a second CPU, or use --source timer",
            ));
        }
        if self.sources.is_empty() {
            return Err(Error::invalid("no source of wake-ups", "give timer, cpu or frame"));
        }
        Ok(())
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let list = |all: Vec<String>| all.join(",");
        let mut settings = settings(
            self.priority,
            [
                ("cpu", self.cpu.to_string()),
                ("how", self.how.to_string()),
                ("source", list(self.sources.iter().map(Source::to_string).collect())),
                ("duration", self.duration.to_string()),
            ],
        );
        settings.extend(self.peer.map(|peer| ("peer".to_owned(), peer.to_string())));
        if !self.sleeps.is_empty() {
            settings.insert("sleep".to_owned(), list(self.sleeps.iter().map(Nanos::to_string).collect()));
        }
        settings
    }
}

/// One combination of idle state, idle time and source of the wake-up.
struct Case<'a> {
    state: Option<&'a State>,
    sleep: Nanos,
    source: Source,
}

impl Case<'_> {
    fn state_name(&self) -> String {
        self.state.map_or_else(|| "halt".to_owned(), name)
    }
    fn term(&self) -> String {
        format!("{} after {}, woken by {}", self.state_name(), self.sleep, self.source)
    }
}

fn name(state: &State) -> String {
    state.name.clone().unwrap_or_else(|| format!("state {}", state.number))
}

impl Probe for Idle {
    fn counter(&self) -> Counter {
        Counter {
            counts:
                "to the first clock reading of the woken thread, from (timer) the requested time, (cpu) the clock reading of the waking CPU before its call, or (frame) the XDP time stamp; CLOCK_MONOTONIC"
                    .into(),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "a state is requested, but the hardware may enter a shallower or deeper one (C1E, package states); requests are counted by the kernel"
                    .into(),
                "every figure includes interrupt delivery, wake-up and context switch, about as much as the shallowest state shows"
                    .into(),
                "caches that a deep state flushes slow down the code that runs later; that is not included".into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        self.check()?;
        let observation = Observation::begin(control, &self.cpus())?;
        let access = Access::below(&control.root).map_err(of_host)?;
        let number = u32::try_from(self.cpu).map_err(|_| Error::invalid("the CPU", "its number is too large"))?;
        let states = states(&access, number).map_err(of_host)?;
        let here = Conditions::of_this_thread(&control.root, &self.cpus(), &observation.memory_locked, &self.load);
        if states.is_empty() && here.virtualised.value != Some(true) {
            return Err(no_states(&control.root, self.cpu));
        }
        let began = LinuxCpu.now();
        let mut work = Work {
            idle: self,
            control,
            access: &access,
            memory_locked: &observation.memory_locked,
            conditions: None,
            cases: Vec::new(),
            marks: Vec::new(),
        };
        if states.is_empty() {
            work.all(None)?;
        } else {
            for state in &states {
                work.state(number, state, &states)?;
            }
        }
        let duration = LinuxCpu.now().since(began).unwrap_or(Nanos::ZERO);
        let Work { conditions, cases, marks: found, .. } = work;
        let mut conditions = conditions.unwrap_or_else(|| here.of_another_thread("no case was measured"));
        let seen = observation.end(&mut conditions);
        let mut marks = seen.marks;
        marks.extend(found);
        if states.is_empty() {
            let text = "no idle states: the CPU of a guest halts, and its host decides what that means; steps along the idle times come from the halt polling of the host";
            marks.push(Mark::new(MarkKind::Note, text));
        }
        let mut terms = Vec::new();
        for case in &cases {
            let term = Term::new(case.name.clone(), case.samples.series(seen.refused.as_deref()), None, None);
            marks.extend(suspicion(&term.name, &term.raw));
            terms.push(term);
        }
        let detail = summary::detail(self.how, &states, cases, HaltPolling::read(&control.root));
        Ok(Measured {
            probe: Name::Idle,
            variant: if states.is_empty() { "halt".into() } else { self.how.to_string() },
            settings: self.settings(),
            counter: self.counter(),
            overhead: vec![reading_the_clock("reading the clock after waking")],
            conditions,
            duration_ns: Some(duration.as_nanos()),
            interrupted: control.stopped(),
            terms,
            detail: Detail::Idle(detail),
            exceeded: None,
            marks,
        })
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
struct Done {
    name: String,
    state: Option<u32>,
    sleep: Nanos,
    source: Source,
    samples: Recorder,
    /// Number of times that the state was requested during the measurement.
    entered: Reading<u64>,
}

/// A run in progress.
struct Work<'a> {
    idle: &'a Idle,
    control: &'a Control,
    access: &'a Access,
    memory_locked: &'a Reading<bool>,
    /// The conditions of the first case; `None` until one was measured.
    conditions: Option<Conditions>,
    cases: Vec<Done>,
    marks: Vec<Mark>,
}

impl Work<'_> {
    /// Measures one state with each source and idle time, and rolls its settings back.
    fn state(&mut self, cpu: u32, state: &State, all: &[State]) -> Result<(), Error> {
        if self.control.stopped() {
            return Ok(());
        }
        let plan = match (self.idle.how, state.latency) {
            (How::Alone, _) => all.iter().fold(Plan::new("probe idle"), |plan, other| {
                let disabled = IdleState::disabled(other.number != state.number);
                plan.with(IdleState::new(cpu, other.number), disabled)
            }),
            (How::PmQos, Some(latency)) => {
                let limit = if latency == Nanos::ZERO { ResumeLatency::Zero } else { ResumeLatency::AtMost(latency) };
                Plan::new("probe idle").with(CpuLatency::new(cpu), limit.value())
            }
            (How::PmQos, None) => {
                let text = format!("{}: the driver reports no exit latency to limit it by", name(state));
                self.marks.push(Mark::new(MarkKind::NotAvailable, text));
                return Ok(());
            }
        };
        let held = Held::new(self.access, &plan, "apus probe idle", env!("CARGO_PKG_VERSION"));
        let held = held.map_err(|e| {
            Error::lacking(format!("enter {} on CPU {cpu}", name(state)), e, "look at apus tune status")
        })?;
        let measured = self.all(Some(state));
        restored(&format!("the idle states of CPU {cpu}"), held.release())?;
        measured
    }

    fn all(&mut self, state: Option<&State>) -> Result<(), Error> {
        for sleep in self.sleeps(state)? {
            for source in &self.idle.sources {
                if !self.control.stopped() {
                    self.case(&Case { state, sleep, source: *source })?;
                }
            }
        }
        Ok(())
    }

    fn sleeps(&self, state: Option<&State>) -> Result<Vec<Nanos>, Error> {
        if !self.idle.sleeps.is_empty() {
            return Ok(self.idle.sleeps.clone());
        }
        // In a guest that halts, the host's behaviour depends on the idle time, not on the guest's states.
        let halts = HaltPolling::read(&self.control.root).value.is_some();
        let Some(state) = state.filter(|_| !halts) else { return Ok(LADDER.to_vec()) };
        let path = format!("/sys/devices/system/cpu/cpu{}/cpuidle/state{}/residency", self.idle.cpu, state.number);
        let residency = self.access.number(&path).map_err(of_host)?.map(Nanos::from_micros);
        Ok(vec![(residency.unwrap_or(Nanos::ZERO) * 2).max(SHORTEST)])
    }

    fn case(&mut self, case: &Case<'_>) -> Result<(), Error> {
        self.control.say(case.term());
        let idle = self.idle;
        let usage = |access: &Access| {
            let number = case.state?.number;
            let cpu = u32::try_from(idle.cpu).ok()?;
            states(access, cpu).ok()?.into_iter().find(|state| state.number == number)?.usage
        };
        let before = usage(self.access);
        let (samples, conditions) = match (case.source, idle.peer) {
            (Source::Timer, _) => wake::by_timer(idle, case.sleep, self.control, self.memory_locked)?,
            (Source::Cpu, Some(peer)) => wake::by_cpu(idle, peer, case.sleep, self.control, self.memory_locked)?,
            (Source::Frame, Some(peer)) => match self.by_frame(peer, case.sleep) {
                Ok(slept) => slept,
                Err(error) if error.lacks() => {
                    let text = format!("{}: {}", case.term(), first_line(&error));
                    self.marks.push(Mark::new(MarkKind::NotAvailable, text));
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
            (Source::Cpu | Source::Frame, None) => return Ok(()), // `check` rejects this
        };
        self.conditions.get_or_insert(conditions);
        let entered = before.zip(usage(self.access)).map(|(before, after)| after.saturating_sub(before));
        if let Some(entered) = entered
            && entered * 2 < samples.len()
        {
            let text = format!(
                "{}: the kernel requested the state only {entered} times in {} sleeps, so the figures hardly describe it",
                case.term(),
                samples.len()
            );
            self.marks.push(Mark::new(MarkKind::Suspect, text));
        }
        let why = if case.state.is_some() { "the driver does not count" } else { "there are no idle states" };
        self.cases.push(Done {
            name: case.term(),
            state: case.state.map(|state| state.number),
            sleep: case.sleep,
            source: case.source,
            samples,
            entered: Reading::or_unknown(entered, why),
        });
        Ok(())
    }

    /// Measures wake-ups by frames, one every `sleep`, with the probe `interrupt`.
    fn by_frame(&self, peer: usize, sleep: Nanos) -> Result<wake::Slept, Error> {
        let interrupt = Interrupt {
            priority: self.idle.priority,
            interval: sleep,
            duration: self.idle.duration,
            load: self.idle.load.clone(),
            ..Interrupt::new(Wait::Block, self.idle.cpu, peer)
        };
        let measured = interrupt.run(self.control)?;
        let term = measured.terms.iter().find(|term| term.name == "XDP to pick-up");
        let samples = term.map_or(Ok(Recorder::new()), |term| Recorder::try_from(&term.raw))?;
        Ok((samples, measured.conditions))
    }
}

/// The error for a CPU without idle states.
fn no_states(root: &Path, cpu: usize) -> Error {
    let driver = std::fs::read_to_string(root.join("sys/devices/system/cpu/cpuidle/current_driver"));
    let driver =
        driver.map_or_else(|_| "there is no cpuidle".into(), |name| format!("the cpuidle driver is {}", name.trim()));
    Error::lacking(
        format!("measure the idle states of CPU {cpu}"),
        format!(
            "{driver}, and {} has no state",
            root.join(format!("sys/devices/system/cpu/cpu{cpu}/cpuidle")).display()
        ),
        "boot a kernel with CONFIG_CPU_IDLE, without idle=poll and intel_idle.max_cstate=0; a host without idle states has no exit latency",
    )
}

fn of_host(error: host::knob::Error) -> Error {
    if error.lacks() {
        Error::lacking("read the idle states", error, "check the path; it may need root")
    } else {
        Error::invalid("the idle states", error.to_string())
    }
}
