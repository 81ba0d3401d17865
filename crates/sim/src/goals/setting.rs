//! A setting: a machine, its traffic, a load and an idle limit. All goals of a setting share the rivals' runs, so they
//! are simulated together.
//!
//! Apus is run once per goal and seed. Rivals know no goal, so they are run once per seed. After its first seed, a
//! rival is dropped if it is ruled out for every goal of the setting: its share of late packets was more than
//! [`HOPELESS`] times the allowed share, or Apus met the goal and the rival drew more than [`DEARER`] times the power
//! of Apus. This changes no verdict. A dropped rival stays in the result with one seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::Goal;
use units::{Microwatts, Nanos, PacketRate};

use super::traffic::{Arriving, Pattern};
use super::{Case, Held, Measured, Tried, Way};
use crate::hw::ModelError;
use crate::scenario::Scenario;
use crate::{strict, world};

/// A rival whose share of late packets exceeds this multiple of the allowed share cannot meet the goal with other seeds
/// either.
const HOPELESS: f64 = 5.0;
/// A rival that draws more than this multiple of the power of Apus cannot beat Apus with other seeds either.
const DEARER: f64 = 1.1;

/// Files by name: machines, traffic and records.
pub type Files = BTreeMap<String, Arc<[u8]>>;
/// Computes the minimum power that meets a scenario's goal with the given seed. `None` if it cannot be computed. See
/// [`super::Setting::judge`].
pub type Bound = fn(&Scenario, u64) -> Option<Microwatts>;

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
        let load = self.load_percent().map_or_else(String::new, |load| format!(" {load} %"));
        format!("{} {}{load} {}", self.machine, self.pattern, self.deepest)
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
             \"{duration}\"\n\n{}\n[queues]\nrx_descriptors = 4096\ntx_descriptors = 4096\nflush = \"0us\"\n\n[idle]\ndeepest = \"{deepest}\"\n\n{}",
            self.arriving.tables,
            way.sections(goal)
        )
    }

    /// All scenarios as files for `apus sim run`: pairs of a file name and its content. If the scenarios replay a
    /// generated record, it is included.
    pub fn scenarios(&self) -> Vec<(String, String)> {
        let name =
            |way: &str| format!("{} {} {way}.toml", self.name(), self.duration).replace(" %", "").replace(' ', "-");
        let ours = self.goals.iter().map(|(goal, peak)| {
            let told = if peak.is_some() { "" } else { " untold" };
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
            let bounds = bound.map(|bound| self.all_seeds().map(|seed| bound(&scenario, seed)).collect());
            let ring = world::loss_bound(&scenario).longest_absence();
            ours.push((tried, bounds.and_then(|bounds: Vec<_>| mean(&bounds)), ring));
        }
        let mut others = Vec::with_capacity(self.rivals.len());
        for way in &self.rivals {
            let scenario = self.read(files, &self.scenario(*way, None))?;
            let first = Measured::of(&world::run(&scenario, Some(self.seeds.0))?, &goals);
            let matters = goals.iter().zip(&ours).any(|(goal, (ours, ..))| matters(*goal, ours, &first));
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

/// Whether a rival can still matter to `goal` after its run with the first seed, whose result is `first`.
fn matters(goal: Goal, ours: &Tried, first: &Measured) -> bool {
    let allowed = f64::from(goal.quantile.above_ppm()) / 1e6;
    let dearer = first.power.as_microwatts() as f64 > ours.power(1) * DEARER;
    let ours_holds = matches!(ours.held(goal), Held::Yes | Held::WithinInterval);
    first.late_share(goal.latency) <= allowed * HOPELESS && !(ours_holds && dearer)
}

fn mean(bounds: &[Option<Microwatts>]) -> Option<Microwatts> {
    let sum = bounds.iter().map(|bound| bound.map(Microwatts::as_microwatts)).sum::<Option<u64>>()?;
    sum.checked_div(bounds.len() as u64).map(Microwatts::new)
}
