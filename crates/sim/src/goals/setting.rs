//! A setting: a machine, its traffic, a load and an idle limit. All goals of a setting share the rivals' runs, so they
//! are simulated together.
//!
//! Apus is run once per goal and seed. Rivals know no goal, so they are run once per seed. After its first seed, a
//! rival is dropped if it is ruled out for every goal of the setting ([`matters`]), so that other seeds would change no
//! verdict. A dropped rival stays in the result with one seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::Goal;
use units::{Microwatts, Nanos, PacketRate};

use super::traffic::{Arriving, Pattern};
use super::{Case, Held, Measured, Speed, Tried, Way};
use crate::hw::ModelError;
use crate::scenario::Scenario;
use crate::traffic::Kind;
use crate::{strict, world};

/// A rival that is expected to draw more than this multiple of the power of Apus over all seeds cannot beat Apus.
const DEARER: f64 = 1.1;

/// Files by name: machines, traffic and records.
pub type Files = BTreeMap<String, Arc<[u8]>>;
/// Computes the minimum mean power of runs with the given seeds that meet a scenario's goal together. `None` if it
/// cannot be computed. See [`super::Setting::judge`].
pub type Bound = fn(&Scenario, &[u64]) -> Option<Microwatts>;

/// The properties that all goals of a setting share.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// Machine from which the processor's model is taken: a built-in machine's name, or the name of a file.
    pub machine: String,
    /// Machine from which the network controller's model is taken: a built-in machine's name, or the name of a file.
    pub nic: String,
    /// Arrival pattern of the packets.
    pub pattern: Pattern,
    /// The load in ppm of [`super::full_rate`]. `None` if the traffic has its own rate.
    pub load_ppm: Option<u32>,
    /// The load in packets per second, as defined in [`super::traffic`]. `None` if the traffic has its own rate.
    pub rate_pps: Option<u64>,
    /// The deepest idle state allowed.
    pub deepest: String,
    /// Simulated time before the measurement begins.
    pub warm_up: Nanos,
    /// The measured time.
    pub duration: Nanos,
    /// The traffic in the form of a scenario.
    pub(super) arriving: Arriving,
    /// The goals, each with the peak rate that Apus is told.
    pub goals: Vec<(Goal, Option<PacketRate>)>,
    /// The rivals of Apus.
    pub rivals: Vec<Way>,
    /// The first seed and the number of seeds.
    pub seeds: (u64, u64),
    /// Whether Apus chooses how long the NIC delays interrupts. If not, it has no interrupt moderation.
    pub holds_off: bool,
    /// Whether Apus chooses how deep the core may idle.
    pub limits_idle: bool,
    /// Whether the first second of Apus is also simulated separately.
    pub first_second: bool,
}

/// Why a setting could not be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The setting's scenario is invalid.
    #[error("{0}")]
    Scenario(strict::Error),
    /// The setting describes an impossible world.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Setting {
    /// The setting's name: machine, traffic, load and idle limit.
    pub fn name(&self) -> String {
        format!("{} {}", self.machine, self.place())
    }

    /// Traffic, load and idle limit.
    fn place(&self) -> String {
        let load = self.load_percent().map_or_else(String::new, |load| format!(" {load} %"));
        format!("{}{load} {}", self.pattern, self.deepest)
    }

    /// The load in percent. `None` if the traffic has its own rate.
    pub fn load_percent(&self) -> Option<f64> {
        Some(f64::from(self.load_ppm?) / 1e4)
    }

    /// The scenario of Apus or a rival, in the form that `apus sim run` accepts.
    pub fn scenario(&self, way: Way, goal: Option<(Goal, Option<PacketRate>)>) -> String {
        self.text(way, goal, self.warm_up, self.duration)
    }

    fn text(&self, way: Way, goal: Option<(Goal, Option<PacketRate>)>, warm_up: Nanos, duration: Nanos) -> String {
        let Self { machine, nic, deepest, seeds: (seed, _), .. } = self;
        format!(
            "machine = \"{machine}\"\nnic = \"{nic}\"\nseed = {seed}\nwarm_up = \"{warm_up}\"\nduration = \
             \"{duration}\"\n\n{}\n[queues]\nrx_descriptors = 4096\ntx_descriptors = 4096\nflush = \"0us\"\n\n[idle]\ndeepest = \
             \"{deepest}\"\n\n{}",
            self.arriving.tables,
            way.sections(goal, self.holds_off, self.limits_idle)
        )
    }

    /// All scenarios as files for `apus sim run`: pairs of a file name and its content. If the scenarios replay a
    /// generated record, it is included.
    pub fn scenarios(&self) -> Vec<(String, String)> {
        let Self { machine, nic, duration, .. } = self;
        let name = |way: &str| {
            format!("{machine}+{nic} {} {duration} {way}.toml", self.place()).replace(" %", "").replace(' ', "-")
        };
        let ours = self.goals.iter().map(|(goal, peak)| {
            let told = match peak {
                None => " untold".to_owned(),
                told if *told == self.arriving.peak => String::new(),
                Some(peak) => format!(" peak {}pps", peak.as_pps()),
            };
            (name(&format!("adaptive {goal}{told}")), self.scenario(Way::OURS, Some((*goal, *peak))))
        });
        let rivals = self.rivals.iter().map(|way| (name(&way.to_string()), self.scenario(*way, None)));
        let record = self.arriving.record.iter().map(|(name, text)| (name.clone(), text.to_string()));
        rivals.chain(ours).chain(record).collect()
    }

    /// Simulates Apus and all rivals, and collects the results by goal. `bound` computes the minimum possible power.
    pub fn judge(self: &Arc<Self>, files: &Files, bound: Option<Bound>) -> Result<Vec<Case>, RunError> {
        let goals: Vec<Goal> = self.goals.iter().map(|(goal, _)| *goal).collect();
        let mut ours = Vec::with_capacity(goals.len());
        for goal in &self.goals {
            let scenario = self.read(files, &self.scenario(Way::OURS, Some(*goal)))?;
            let tried = self.tried(Way::OURS, &scenario, &[goal.0])?;
            let bound = bound.and_then(|bound| bound(&scenario, &self.all_seeds().collect::<Vec<_>>()));
            let ring = world::loss_bound(&scenario).longest_absence();
            ours.push((tried, bound, ring));
        }
        let mut others = Vec::with_capacity(self.rivals.len());
        for way in &self.rivals {
            let scenario = self.read(files, &self.scenario(*way, None))?;
            let first = Measured::of(&world::run(&scenario, Some(self.seeds.0))?, &goals);
            // Traffic that waits for answers offers each mode another number of packets.
            let closed = scenario.traffic.iter().any(|stream| matches!(stream.traffic.kind, Kind::Request(_)));
            let matters = goals.iter().zip(&ours).any(|(goal, (ours, ..))| matters(*goal, ours, *way, &first, closed));
            let mut runs = vec![first];
            for seed in self.all_seeds().skip(1).filter(|_| matters) {
                runs.push(Measured::of(&world::run(&scenario, Some(seed))?, &goals));
            }
            others.push(Tried { way: *way, runs });
        }
        let others = Arc::new(others);
        let cases = self.goals.iter().zip(ours).map(|((goal, peak), (ours, bound, ring))| {
            let first_second = self.first_second.then(|| self.first(files, *goal, *peak)).transpose()?;
            let (setting, others) = (Arc::clone(self), Arc::clone(&others));
            Ok(Case { setting, goal: *goal, peak: *peak, others, ours, first_second, bound, ring })
        });
        cases.collect()
    }

    fn all_seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, seeds) = self.seeds;
        (0..seeds).map(move |n| first.wrapping_add(n))
    }

    /// Simulates the first second of Apus, without a warm-up. With the same seed, the main run begins with this second.
    fn first(&self, files: &Files, goal: Goal, peak: Option<PacketRate>) -> Result<Tried, RunError> {
        let text = self.text(Way::OURS, Some((goal, peak)), Nanos::ZERO, Nanos::from_secs(1));
        self.tried(Way::OURS, &self.read(files, &text)?, &[goal])
    }

    fn tried(&self, way: Way, scenario: &Scenario, goals: &[Goal]) -> Result<Tried, RunError> {
        let one = |seed| Ok(Measured::of(&world::run(scenario, Some(seed))?, goals));
        Ok(Tried { way, runs: self.all_seeds().map(one).collect::<Result<_, RunError>>()? })
    }

    fn read(&self, files: &Files, text: &str) -> Result<Scenario, RunError> {
        let mut load = |name: &str| match (&self.arriving.record, files.get(name)) {
            (Some((made, text)), _) if made == name => Ok(text.as_bytes().to_vec()),
            (_, Some(octets)) => Ok(octets.to_vec()),
            (_, None) => Err("the file was not given".to_owned()),
        };
        Scenario::parse(&self.name(), text, &[], &mut load).map_err(RunError::Scenario)
    }
}

/// Whether the rival `way` can still matter to `goal` after its run with the first seed, whose result is `first`. It
/// cannot in two cases:
/// - It lost a packet, or the late packets of this run are already more than the goal allows of all packets that arrive
///   with all seeds. Unless the traffic is `closed`, these are the packets that Apus received.
/// - Apus met the goal, and the rival draws more than [`DEARER`] times the power of Apus, both with the first seed and
///   over all seeds. The power at a fixed frequency grows with the number of packets, but not faster than in proportion.
///   So with a seed that has half the packets of the first, it is assumed to be at least half of that in the first run.
///   `l3fwd-power` may run at another frequency with each seed, so one run says nothing about its power in the others.
pub(super) fn matters(goal: Goal, ours: &Tried, way: Way, first: &Measured, closed: bool) -> bool {
    let offered: u64 = ours.runs.iter().map(|run| run.offered).sum();
    let allowed = u128::from(offered) * u128::from(goal.quantile.above_ppm());
    let misses = first.lost > 0 || !closed && u128::from(first.late(goal.latency)) * 1_000_000 > allowed;
    let ours_holds = matches!(ours.held(goal), Held::Yes | Held::WithinInterval);
    let packets = |run: &Measured| run.offered as f64 / first.offered.max(1) as f64;
    let share = ours.runs.iter().map(|run| packets(run).min(1.0)).sum::<f64>() / ours.runs.len() as f64;
    let power = first.power.as_microwatts() as f64;
    let dearer = power > ours.power(1) * DEARER && power * share > ours.power(ours.runs.len()) * DEARER;
    let dearer = dearer && way.speed != Speed::L3fwdPower;
    !(misses || ours_holds && dearer)
}
