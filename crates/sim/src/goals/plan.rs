//! The grid: machines, traffic, loads, idle limits, goals and rivals.

use policy::Goal;
use policy::wait::Mode;
use units::{Hertz, Nanos, PacketRate, Quantile};

use super::Way;
use super::setting::{Files, Setting};
use super::traffic::Pattern;
use crate::hw::pstate::PStateModel;
use crate::machine::{Machine, MachineError, Processor};
use crate::random::Random;

/// The machines of the built-in grids: pairs of a processor and a network controller of the same age.
pub const MACHINES: [(&str, &str); 4] = [
    ("xeon-e5-2699v3", "x540"),
    ("xeon-platinum-8260l", "xl710"),
    ("xeon-platinum-8360y", "xl710"),
    ("xeon-gold-6338n", "82599"),
];
/// Number of late packets that a goal should allow over all seeds. Runs are long enough for this, so the share of late
/// packets is known to about 20 %.
const ALLOWED_LATE: u64 = 20;
/// Simulated time before the measurement. On each machine of the built-in grids, `l3fwd-power` has come down to the
/// lowest frequency by then.
const WARM_UP: Nanos = Nanos::from_secs(2);
/// `l3fwd-power` goes down by one step in 100 ms ([`L3fwdPower`](policy::frequency::L3fwdPower)), or at most 10 ms
/// later if it blocks at that time ([`Hybrid300`](policy::wait::Hybrid300)).
const STEP_DOWN: Nanos = Nanos::from_millis(110);
/// Simulated time for traffic from a file, whose rate is not known beforehand.
const FROM_A_FILE: Nanos = Nanos::from_secs(2);

/// A rival, and the number of packets per second that it can forward.
type Rival = (Way, u64);

units::named! {
    /// A named grid.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Grid {
        /// Two machines, four kinds of traffic at three loads, three goals, five seeds. Takes a few minutes.
        Quick = "quick",
        /// Four machines, Poisson traffic at four loads, three goals, one seed.
        Classic = "classic",
        /// Four machines, seven kinds of traffic at seven loads, deepest idle state C1 (at all loads) or C6 (up to 10 %
        /// load), fifteen goals, five seeds; each case with and without telling `adaptive` the peak rate of the
        /// traffic. Takes days, so use --sample.
        Full = "full",
    }
}

/// Which peak rate Apus is told (`goal.peak`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peak {
    /// The traffic's own peak ([`super::traffic`]). Not available for traffic from a file.
    Told,
    /// Apus is told no peak rate and assumes the line rate.
    Untold,
    /// Apus is told this rate.
    Is(PacketRate),
}

/// A limit on idle states, and the highest load at which it is tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idle {
    /// The deepest idle state allowed. Machines without this state are left out.
    pub deepest: String,
    /// The highest load at which the limit is tried, in ppm of [`full_rate`].
    pub up_to_ppm: u32,
}

/// A comparison to run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Pairs of a processor and a network controller, given by the name of a built-in machine or of a file.
    pub machines: Vec<(String, String)>,
    /// Arrival patterns of the packets.
    pub traffic: Vec<Pattern>,
    /// Loads, in ppm of [`full_rate`].
    pub loads_ppm: Vec<u32>,
    /// Idle limits.
    pub idle: Vec<Idle>,
    /// Latency goals.
    pub goals: Vec<Goal>,
    /// The peak rates that Apus is told, each in separate cases.
    pub peaks: Vec<Peak>,
    /// The rivals.
    pub rivals: Vec<Way>,
    /// Each rival at the base frequency is also run at this many fixed frequencies below it.
    pub frequencies: u32,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds, 1 to [`super::MOST_SEEDS`].
    pub seeds: u64,
    /// Simulated time before the measurement begins.
    pub warm_up: Nanos,
    /// Minimum and maximum measured time of a run. Between these limits, the time is chosen so that a goal allows 20
    /// late packets over all seeds (20,000 packets for p99.9).
    pub duration: (Nanos, Nanos),
    /// Whether Apus chooses how long the NIC delays interrupts. If not, it has no interrupt moderation.
    pub holds_off: bool,
    /// Whether Apus chooses how deep the core may idle. If not, it idles as deep as it may with every rival.
    pub limits_idle: bool,
    /// Whether the first second of Apus is also evaluated separately.
    pub first_second: bool,
    /// Number of cases to draw at random, and the seed for that. `None` runs all cases.
    pub sample: Option<(usize, u64)>,
    /// The files that machines and traffic name.
    pub files: Files,
}

/// Why a plan cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// A machine is not available.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The file of this name is not valid UTF-8.
    #[error("{0} is not valid UTF-8")]
    NoText(String),
    /// A machine cannot run at the frequency of a rival.
    #[error("the rival {rival}: {machine} runs at {possible}")]
    Frequency {
        /// The rival with its frequency, such as `poll@1GHz`.
        rival: String,
        /// The machine's name.
        machine: String,
        /// The machine's frequencies.
        possible: String,
    },
    /// The plan has no settings.
    #[error("the grid is empty: no machine has any of these idle states, or traffic from files has no peak to be told")]
    Empty,
}

const fn micros(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

fn goals(quantiles: &[Quantile], bounds_us: &[u64]) -> Vec<Goal> {
    let of = |quantile: Quantile| bounds_us.iter().map(move |us| Goal { quantile, latency: micros(*us) });
    quantiles.iter().flat_map(|quantile| of(*quantile)).collect()
}

fn idle(deepest: &str, up_to_percent: u32) -> Idle {
    Idle { deepest: deepest.to_owned(), up_to_ppm: up_to_percent * 10_000 }
}

fn rivals(backoffs_us: &[u64]) -> Vec<Way> {
    let backoffs = backoffs_us.iter().map(|us| Way::at_base(Mode::Backoff { max: micros(*us) }));
    let polls = [Way::at_base(Mode::Poll), Way::L3FWD_POWER];
    polls.into_iter().chain(backoffs).chain([Way::at_base(Mode::Interrupt)]).collect()
}

impl Grid {
    /// The plan of this grid.
    pub fn plan(self) -> Plan {
        let machines = MACHINES.map(|(machine, nic)| (machine.to_owned(), nic.to_owned())).to_vec();
        let classic = Plan {
            machines,
            traffic: vec![Pattern::Poisson],
            loads_ppm: vec![10_000, 100_000, 500_000, 900_000],
            idle: vec![idle("C1", 100)],
            goals: goals(&[Quantile::P99_9], &[20, 50, 100]),
            peaks: vec![Peak::Told],
            rivals: rivals(&[20, 50, 100]),
            frequencies: 0,
            seed: 1,
            seeds: 1,
            warm_up: WARM_UP,
            duration: (Nanos::from_secs(1), Nanos::from_secs(1)),
            holds_off: false,
            limits_idle: true,
            first_second: false,
            sample: None,
            files: Files::new(),
        };
        match self {
            Self::Classic => classic,
            Self::Quick => Plan {
                // One machine stalls briefly at a frequency change, the other for long.
                machines: MACHINES
                    .iter()
                    .filter(|(name, _)| name.ends_with("6338n") || name.ends_with("8260l"))
                    .map(|(machine, nic)| ((*machine).to_owned(), (*nic).to_owned()))
                    .collect(),
                traffic: vec![Pattern::Poisson, Pattern::OnOff, Pattern::SelfSimilar, Pattern::Slots],
                loads_ppm: vec![1_000, 10_000, 100_000],
                goals: goals(&[Quantile::P99_9], &[20, 50, 250]),
                frequencies: 1,
                seeds: 5,
                duration: (Nanos::from_millis(500), Nanos::from_secs(1)),
                first_second: true,
                ..classic
            },
            // Deeper states need gaps of hundreds of microseconds between packets: above 10 % load there are none.
            Self::Full => Plan {
                traffic: Pattern::ALL.to_vec(),
                loads_ppm: vec![100, 1_000, 10_000, 100_000, 500_000, 900_000, 950_000],
                idle: vec![idle("C1", 100), idle("C6", 10)],
                goals: goals(&[Quantile::P99, Quantile::P99_9, Quantile::P99_99], &[15, 20, 50, 100, 250]),
                peaks: vec![Peak::Told, Peak::Untold],
                rivals: rivals(&[10, 20, 50, 100, 250]),
                frequencies: 3,
                seeds: 5,
                duration: (Nanos::from_millis(500), Nanos::from_secs(10)),
                first_second: true,
                ..classic
            },
        }
    }
}

/// A machine by its name, or from a file if the name ends in `.toml`.
fn machine(name: &str, files: &Files) -> Result<Machine, PlanError> {
    match files.get(name) {
        Some(octets) => {
            let text = std::str::from_utf8(octets).map_err(|_| PlanError::NoText(name.to_owned()))?;
            Ok(Machine::from_toml(text, name)?)
        }
        None => Ok(Machine::named(name)?),
    }
}

/// Packets per second that one core of a machine forwards at its base frequency, in full bursts; at most the line rate.
pub fn full_rate(name: &str, nic: &str, files: &Files) -> Result<u64, PlanError> {
    let (name, nic) = (machine(name, files)?, machine(nic, files)?);
    let processor = name.processor()?;
    let line = nic.nic()?.link.rate.frames_of(crate::traffic::SHORTEST_FRAME.into()).as_pps();
    Ok(bears(processor, processor.base).min(line))
}

/// Packets per second that a core forwards at a given frequency, in full bursts.
fn bears(processor: &Processor, at: Hertz) -> u64 {
    const BURST: u64 = crate::world::BURST as u64;
    let cycles = BURST * processor.work.frame.count() + processor.work.burst.count();
    at.as_hertz() * BURST / cycles.max(1)
}

impl Plan {
    /// The time that `l3fwd-power` needs on the slowest of the machines to come down from the base frequency, with
    /// which it begins, to the lowest one. 0 if it is no rival.
    pub fn settling(&self) -> Result<Nanos, PlanError> {
        let mut longest = Nanos::ZERO;
        for (name, _) in self.machines.iter().filter(|_| self.rivals.contains(&Way::L3FWD_POWER)) {
            let machine = machine(name, &self.files)?;
            let processor = machine.processor()?;
            let PStateModel { lowest, step, .. } = processor.pstates;
            let range = processor.pstates.granted(processor.base).as_hertz().saturating_sub(lowest.as_hertz());
            longest = longest.max(STEP_DOWN * range.div_ceil(step.as_hertz().max(1)));
        }
        Ok(longest)
    }

    /// All settings with their goals, in the order of the grid. If [`Self::sample`] is set, only the cases drawn at
    /// random.
    pub fn settings(&self) -> Result<Vec<Setting>, PlanError> {
        let mut settings: Vec<Setting> = Vec::new();
        for (machine, nic) in &self.machines {
            let full = full_rate(machine, nic, &self.files)?;
            let (states, rivals) = self.of_machine(machine)?;
            for pattern in &self.traffic {
                let own = matches!(pattern, Pattern::File(_));
                let loads: Vec<Option<u32>> =
                    if own { vec![None] } else { self.loads_ppm.iter().map(|l| Some(*l)).collect() };
                for load_ppm in loads {
                    let rate_pps = load_ppm.map(|load| full * u64::from(load) / 1_000_000);
                    let arriving = pattern.at(rate_pps.unwrap_or(0), full, &self.files);
                    // `step` is nearly idle for half of the time.
                    let mean_pps = rate_pps.map_or(0, |rate| if *pattern == Pattern::Step { rate / 2 } else { rate });
                    let bears = |(_, bears): &&Rival| *bears >= mean_pps;
                    let rivals: Vec<Way> = rivals.iter().filter(bears).map(|(way, _)| *way).collect();
                    let idle = self.idle.iter().filter(|idle| load_ppm.is_none_or(|load| load <= idle.up_to_ppm));
                    for idle in idle.filter(|idle| states.contains(&idle.deepest)) {
                        for (goal, peak) in self.asked(arriving.peak, own) {
                            let duration = self.duration(rate_pps, goal.quantile);
                            let begun = settings.iter_mut().rev().take_while(|s| {
                                (&s.machine, &s.nic, &s.pattern, s.load_ppm, &s.deepest)
                                    == (machine, nic, pattern, load_ppm, &idle.deepest)
                            });
                            if let Some(same) = begun.into_iter().find(|setting| setting.duration == duration) {
                                same.goals.push((goal, peak));
                                continue;
                            }
                            settings.push(Setting {
                                machine: machine.clone(),
                                nic: nic.clone(),
                                pattern: pattern.clone(),
                                load_ppm,
                                rate_pps,
                                deepest: idle.deepest.clone(),
                                warm_up: self.warm_up,
                                duration,
                                arriving: arriving.clone(),
                                goals: vec![(goal, peak)],
                                rivals: rivals.clone(),
                                seeds: (self.seed, self.seeds),
                                holds_off: self.holds_off,
                                limits_idle: self.limits_idle,
                                first_second: self.first_second,
                            });
                        }
                    }
                }
            }
        }
        if let Some((cases, seed)) = self.sample {
            draw(&mut settings, cases, seed);
        }
        if settings.is_empty() { Err(PlanError::Empty) } else { Ok(settings) }
    }

    /// The names of a machine's idle states, and the rivals with the packets per second that each can forward. A rival
    /// that cannot forward the traffic loses packets, so it misses every goal.
    fn of_machine(&self, name: &str) -> Result<(Vec<String>, Vec<Rival>), PlanError> {
        let machine = machine(name, &self.files)?;
        let processor = machine.processor()?;
        let states = processor.cstates.states.iter().map(|state| state.name.clone()).collect();
        let (lowest, base) = (processor.pstates.lowest.as_hertz(), processor.base.as_hertz());
        for rival in &self.rivals {
            let PStateModel { lowest, highest, step, .. } = processor.pstates;
            if let super::Speed::At(frequency) = rival.speed
                && processor.pstates.granted(frequency) != frequency
            {
                let [lowest, highest, step] = [lowest, highest, step].map(|at| at.as_hertz() / 1_000_000);
                let possible = format!("{lowest} MHz to {highest} MHz, in steps of {step} MHz");
                return Err(PlanError::Frequency { rival: rival.to_string(), machine: name.to_owned(), possible });
            }
        }
        let steps = u64::from(self.frequencies);
        let below = (0..steps).map(|n| Hertz::new(lowest + base.saturating_sub(lowest) * n / steps));
        let frequencies: Vec<Hertz> = below.map(|frequency| processor.pstates.granted(frequency)).collect();
        let fixed = self.rivals.iter().filter(|way| way.speed == super::Speed::Base);
        let tuned = fixed.flat_map(|way| frequencies.iter().map(|at| Way { speed: super::Speed::At(*at), ..*way }));
        let all = self.rivals.iter().copied().chain(tuned);
        let bears = |way: Way| match way.speed {
            super::Speed::At(frequency) => bears(processor, frequency),
            _ => u64::MAX,
        };
        Ok((states, all.map(|way| (way, bears(way))).collect()))
    }

    /// Every goal combined with every peak that Apus is told. `known` is the traffic's own peak.
    fn asked(&self, known: Option<PacketRate>, own: bool) -> Vec<(Goal, Option<PacketRate>)> {
        let peaks = self.peaks.iter().filter(|peak| !own || **peak != Peak::Told);
        let told = peaks.map(|peak| match peak {
            Peak::Told => known,
            Peak::Untold => None,
            Peak::Is(peak) => Some(*peak),
        });
        told.flat_map(|peak| self.goals.iter().map(move |goal| (*goal, peak))).collect()
    }

    fn duration(&self, rate_pps: Option<u64>, quantile: Quantile) -> Nanos {
        let (least, most) = self.duration;
        let Some(rate) = rate_pps else { return FROM_A_FILE.clamp(least, most) };
        let packets = ALLOWED_LATE * 1_000_000 / u64::from(quantile.above_ppm()) / self.seeds.max(1);
        PacketRate::new(rate).time_for(packets).clamp(least, most)
    }
}

/// Draws `cases` cases at random and removes all others.
fn draw(settings: &mut Vec<Setting>, cases: usize, seed: u64) {
    let mut left = settings.iter().map(|setting| setting.goals.len()).sum::<usize>();
    let mut wanted = cases.min(left);
    let mut random = Random::stream(seed, 0);
    // Knuth, "The Art of Computer Programming", vol. 2, 3.4.2, algorithm S.
    for setting in settings.iter_mut() {
        setting.goals.retain(|_| {
            let kept = (random.below(left as u64) as usize) < wanted;
            left -= 1;
            wanted -= usize::from(kept);
            kept
        });
    }
    settings.retain(|setting| !setting.goals.is_empty());
}
