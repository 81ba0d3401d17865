//! A scenario: a TOML file that describes what to simulate, read strictly.
//!
//! ```toml
//! description = "One core, Poisson traffic, adaptive waiting"
//! machine = "xeon-gold-6338n"       # a name of `machines/`, or FILE.toml
//! nic = "x540"                      # the same; without it the machine's own
//! duration = "1s"
//! warm_up = "100ms"                 # counts for nothing
//! seed = 1
//!
//! [goal]
//! latency = "p99.9=50us"
//! loss = "0%"                       # without it loss counts as lateness alone
//! peak = "1Mpps"                    # packets come to a queue no faster; without it: as the line carries them
//!
//! [[traffic]]                       # as many as you like; the keys depend on the kind
//! kind = "poisson"                  # constant, poisson, on-off, slots, request, self-similar, replay
//! rate = "100kpps"                  # or "2.5Gbps" on the wire, or "99.8%" of the line rate
//! frame = 64                        # bytes with check sequence, or an IMIX genome "aaaaaaaddddg"
//!
//! [queues]
//! count = 1
//! rx_descriptors = 512
//! tx_descriptors = 512
//! flush = "0us"                     # how long received descriptors wait for a batch; else as the driver sets it
//!
//! [worker]
//! driver = "user"                   # user: a loop that polls; kernel: interrupts and NAPI
//! cores = 1
//! wait = "adaptive"                 # poll, interrupt, backoff, hybrid300, adaptive, metronome
//! limits_idle = true                # adaptive chooses how deep the core may idle
//!
//! [moderation]
//! policy = "static"                 # nic (as its driver sets it), off, static, dim, goal
//! delay = "8us"
//!
//! [frequency]
//! policy = "fixed"                  # fixed, two-level, l3fwd-power, goal, toggle, or a governor: performance, powersave,
//!                                   # ondemand, conservative, schedutil, nmap
//! at = "2.2GHz"
//!
//! [idle]
//! deepest = "C1"
//!
//! [scheduler]
//! class = "fifo"
//! ```
//! All keys and their defaults are in the files of this folder that read them: `machine.rs`, `traffic.rs`, `worker.rs`,
//! `moderation.rs`, `frequency.rs`.

mod frequency;
mod machine;
mod moderation;
mod traffic;
mod values;
mod worker;

pub use frequency::FrequencyPlan;
pub use machine::Host;
pub use moderation::ModerationPlan;
pub use traffic::Stream;
pub use values::{CycleCount, DimProfiles, Percent, Ratio};
pub use worker::{HEALTH_INTERVAL, KernelModel, MetronomeModel, Wait, Worker};

use policy::Goal;
use units::{Nanos, PacketRate};

use crate::strict::{self, Error, Override, Section};

/// The longest simulated time, including the warm-up: one day.
pub const LONGEST: Nanos = Nanos::from_secs(86_400);
/// The maximum number of queues, and therefore of cores: the number of queues of an XL710, the largest of the modelled
/// controllers (Intel 332464, 1.2).
pub const QUEUES: u64 = 1_536;
/// The default seed.
pub const SEED: u64 = 1;
/// The default warm-up: simulated time before the measured window.
pub const WARM_UP: Nanos = Nanos::from_millis(100);

/// Returns the contents of a file that the scenario names, or an error message if it cannot be read.
pub type Load<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name as the user gave it.
    pub name: String,
    /// The purpose of the scenario, in the author's words. `None` if not given.
    pub description: Option<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Simulated time before the measured window.
    pub warm_up: Nanos,
    /// Length of the measured window, above 0.
    pub duration: Nanos,
    /// The goal. `None` if the scenario states none.
    pub goal: Option<GoalPlan>,
    /// The machine with the scenario's settings.
    pub host: Host,
    /// The traffic that arrives.
    pub traffic: Vec<Stream>,
    /// Number of receive queues, and also of transmit queues. At least the number of cores, unless threads share
    /// queues.
    pub queues: u32,
    /// What the cores do.
    pub worker: Worker,
    /// How interrupts are moderated.
    pub moderation: ModerationPlan,
    /// How the cores' frequency is chosen.
    pub frequency: FrequencyPlan,
}

/// The latency goal of a scenario, its loss limit and its peak rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalPlan {
    /// The maximum latency, and the quantile of packets that must not exceed it. A lost packet counts as late.
    pub latency: Goal,
    /// The share of packets that may be lost, in ppm. `None` means no separate limit: a lost packet only counts as
    /// late.
    pub loss_ppm: Option<u32>,
    /// The maximum packet rate per queue that the policies are told. With `None` they assume the shortest frames at
    /// line rate.
    pub peak: Option<PacketRate>,
}

impl Scenario {
    /// Number of processor packages needed for the simulated cores and those that behave like them.
    pub fn packages(&self) -> u64 {
        let busy = u64::from(self.worker.cores()) + u64::from(self.worker.alike());
        busy.div_ceil(u64::from(self.host.processor.power.cores.max(1))).max(1)
    }

    /// Reads a scenario from TOML. Error messages call it `name`; `overrides` replace single values; `load` reads the
    /// files that the scenario names.
    pub fn parse(name: &str, text: &str, overrides: &[Override], load: Load<'_>) -> Result<Self, Error> {
        let mut root = strict::parse(name, text, overrides)?;
        let description = root.word("description")?.map(|spot| spot.value);
        let seed = root.count("seed", 0..=i64::MAX as u64)?.map_or(SEED, |spot| spot.value);
        let warm_up = root.text::<Nanos>("warm_up")?.map_or(WARM_UP, |spot| spot.value);
        let duration = root.required::<Nanos>("duration", "1s")?;
        if duration.value == Nanos::ZERO || duration.value + warm_up > LONGEST {
            let what = format!("`duration = \"{}\"` with a warm-up of {warm_up}", duration.value);
            return Err(duration.wrong(what, format!("expected more than 0 and together at most {LONGEST}")));
        }
        let goal = root.section("goal")?.map(goal).transpose()?;
        let mut host = machine::read(&mut root, load)?;
        let nic = &host.nic;
        let alone = nic.link.latency * 2 + nic.receive + nic.transmit;
        if duration.value <= alone {
            let what = format!("`duration = \"{}\"`: no packet can arrive and leave within it", duration.value);
            let fix = format!("expected more than {alone}, the time of a single packet in the {}", host.nic_name);
            return Err(duration.wrong(what, format!("{fix}; 1s is usual")));
        }
        let queues = queues(&mut root, &mut host)?;
        let worker = worker::read(&mut root, &host, queues)?;
        let moderation = moderation::moderation(&mut root, &mut host, &worker, goal)?;
        let frequency = frequency::frequency(&mut root, &mut host, &worker, goal)?;
        let traffic = traffic::read(&mut root, &host.nic, queues, load)?;
        root.finish()?;
        let duration = duration.value;
        let name = name.to_owned();
        Ok(Self {
            name,
            description,
            seed,
            warm_up,
            duration,
            goal,
            host,
            traffic,
            queues,
            worker,
            moderation,
            frequency,
        })
    }
}

fn goal(mut section: Section) -> Result<GoalPlan, Error> {
    let latency = section.required::<Goal>("latency", "p99.9=50us")?.value;
    let loss_ppm = section.text::<Percent>("loss")?.map(|spot| spot.value.ppm());
    let peak = section.text::<PacketRate>("peak")?;
    if let Some(peak) = peak.as_ref().filter(|peak| peak.value.as_pps() == 0) {
        return Err(peak.wrong("`peak` is 0", "expected the highest rate at which packets may arrive, such as 1Mpps"));
    }
    section.finish()?;
    Ok(GoalPlan { latency, loss_ppm, peak: peak.map(|spot| spot.value) })
}

/// Reads `[queues]`: the number of queues, the sizes of the rings, and how long descriptors wait for a batch.
fn queues(root: &mut Section, host: &mut Host) -> Result<u32, Error> {
    let Some(mut section) = root.section("queues")? else { return Ok(1) };
    let count = section.count("count", 1..=QUEUES)?.map_or(1, |spot| spot.value as u32);
    // A ring holds at most 2^16 descriptors in any driver.
    for (key, ring) in
        [("rx_descriptors", &mut host.nic.rx_descriptors), ("tx_descriptors", &mut host.nic.tx_descriptors)]
    {
        if let Some(descriptors) = section.count(key, 1..=65_536)? {
            *ring = descriptors.value as u32;
        }
    }
    if let Some(flush) = section.text::<Nanos>("flush")? {
        host.nic.write_back.flush = flush.value;
    }
    section.finish()?;
    Ok(count)
}

#[cfg(test)]
mod tests;
