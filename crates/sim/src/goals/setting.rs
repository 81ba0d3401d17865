//! A setting: a machine, its traffic, a load, an idle limit. All of its goals share their rivals, so they are simulated
//! together.
//!
//! Ours is run for each goal, with all seeds. Rivals know no goal: they are run once a seed, whatever the number of goals.
//! A rival whose first seed rules it out for every goal of the setting is not run with the others: it was late more than
//! [`HOPELESS`] times as often as allowed, or ours held the goal with that seed while the rival drew more than [`DEARER`]
//! times our power. Neither changes a verdict; the rival stays in the result with the one seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::Goal;
use units::{Microwatts, Nanos, PacketRate};

use super::traffic::{Arriving, Pattern};
use super::{Case, Held, Measured, Tried, Way};
use crate::hw::ModelError;
use crate::scenario::Scenario;
use crate::{strict, world};

/// A rival that was late this much more often than allowed will not hold the goal with other seeds.
const HOPELESS: f64 = 5.0;
/// A rival that drew this much more power will not draw less with other seeds.
const DEARER: f64 = 1.1;

/// Files by name: machines, traffic, records.
pub type Files = BTreeMap<String, Arc<[u8]>>;
/// Finds the least power with which a scenario's goal can be kept, with this seed. See [`super::Setting::judge`].
pub type Bound = fn(&Scenario, u64) -> Option<Microwatts>;

/// What all goals of a setting have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// The processor: a machine's name, or a file.
    pub machine: String,
    /// The controller, the same.
    pub nic: String,
    /// Arrival pattern of the packets.
    pub pattern: Pattern,
    /// In parts per million of [`super::full_rate`]; `None` if the traffic has a rate of its own.
    pub load_ppm: Option<u32>,
    /// Packets a second, as [`super::traffic`] has it; `None` the same.
    pub rate_pps: Option<u64>,
    /// The deepest idle state allowed.
    pub deepest: String,
    /// The time that counts for nothing.
    pub warm_up: Nanos,
    /// The time that counts.
    pub duration: Nanos,
    /// The traffic as a scenario has it.
    pub(super) arriving: Arriving,
    /// The goals, each with the peak that ours is told.
    pub goals: Vec<(Goal, Option<PacketRate>)>,
    /// Who is compared with ours.
    pub rivals: Vec<Way>,
    /// The first seed, and how many.
    pub seeds: (u64, u64),
    /// Whether the first second is simulated by itself, too.
    pub first_second: bool,
}

/// Why a setting could not be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// Its scenario is none.
    #[error("{0}")]
    Scenario(strict::Error),
    /// No world could be so.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Setting {
    /// A name: machine, traffic, load, idle limit.
    pub fn name(&self) -> String {
        let load = self.load_percent().map_or_else(String::new, |load| format!(" {load} %"));
        format!("{} {}{load} {}", self.machine, self.pattern, self.deepest)
    }

    /// The load in percent.
    pub fn load_percent(&self) -> Option<f64> {
        Some(f64::from(self.load_ppm?) / 1e4)
    }

    /// The scenario of a way, as `apus sim run` takes it.
    pub fn scenario(&self, way: Way, goal: Option<(Goal, Option<PacketRate>)>) -> String {
        self.text(way, goal, self.warm_up, self.duration)
    }

    fn text(&self, way: Way, goal: Option<(Goal, Option<PacketRate>)>, warm_up: Nanos, duration: Nanos) -> String {
        let Self { machine, nic, deepest, seeds: (seed, _), .. } = self;
        format!(
            "machine = \"{machine}\"\nnic = \"{nic}\"\nseed = {seed}\nwarm_up = \"{warm_up}\"\nduration = \
             \"{duration}\"\n\n{}\n[queues]\nrx_descriptors = 4096\ntx_descriptors = 4096\nflush = \"0us\"\n\n[moderation]\npolicy = \
             \"off\"\n\n[idle]\ndeepest = \"{deepest}\"\n\n{}",
            self.arriving.tables,
            way.sections(goal)
        )
    }

    /// All scenarios as files for `apus sim run`, by name, with the record that they replay if the judge made it.
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

    /// Simulates all ways and collects the results by goal. `bound` computes the least possible power.
    pub fn judge(self: &Arc<Self>, files: &Files, bound: Option<Bound>) -> Result<Vec<Case>, RunError> {
        let goals: Vec<Goal> = self.goals.iter().map(|(goal, _)| *goal).collect();
        let mut ours = Vec::with_capacity(goals.len());
        for goal in &self.goals {
            let scenario = self.read(files, &self.scenario(Way::OURS, Some(*goal)))?;
            let tried = self.tried(Way::OURS, &scenario, &[goal.0])?;
            let bounds = bound.map(|bound| self.all_seeds().map(|seed| bound(&scenario, seed)).collect());
            ours.push((tried, bounds.and_then(|bounds: Vec<_>| mean(&bounds))));
        }
        let mut others = Vec::with_capacity(self.rivals.len());
        for way in &self.rivals {
            let scenario = self.read(files, &self.scenario(*way, None))?;
            let first = Measured::of(&world::run(&scenario, Some(self.seeds.0))?, &goals);
            let matters = goals.iter().zip(&ours).any(|(goal, (ours, _))| matters(*goal, ours, &first));
            let mut runs = vec![first];
            for seed in self.all_seeds().skip(1).filter(|_| matters) {
                runs.push(Measured::of(&world::run(&scenario, Some(seed))?, &goals));
            }
            others.push(Tried { way: *way, runs });
        }
        let others = Arc::new(others);
        let cases = self.goals.iter().zip(ours).map(|((goal, peak), (ours, bound))| {
            let first_second = self.first_second.then(|| self.first(files, *goal, *peak)).transpose()?;
            let (setting, others) = (Arc::clone(self), Arc::clone(&others));
            Ok(Case { setting, goal: *goal, peak: *peak, others, ours, first_second, bound })
        });
        cases.collect()
    }

    fn all_seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, seeds) = self.seeds;
        (0..seeds).map(move |n| first.wrapping_add(n))
    }

    /// The first second of ours: the same as the beginning of the run that counts, from the same seed.
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

/// Whether a rival that gave `first` with the first seed could matter to `goal`.
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
