//! What the cores do: the section `[worker]`.

use policy::wait::{Backoff, Mode};
use units::{Cycles, Named, Nanos};

use super::machine::Host;
use super::values::CycleCount;
use crate::machine::WorkModel;
use crate::strict::{Error, Section};

/// Estimated costs of the kernel's path; see [`Worker::Kernel`].
const KERNEL_POLL: Cycles = Cycles::new(2_000);
const KERNEL_FRAME: Cycles = Cycles::new(2_500);
const KERNEL_APPLICATION: Cycles = Cycles::new(9_000);

const METRONOME: &str = "metronome";
/// The maximum length of a sleep or a block. It equals `live::worker::HEALTH_INTERVAL`.
pub const HEALTH_INTERVAL: Nanos = Nanos::from_millis(100);

/// How a core waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// A wait policy decides. `adaptive` uses the goal and the ring size of the scenario.
    Mode(Mode),
    /// The core runs one of several threads that share a queue; see [`MetronomeModel`].
    Metronome(MetronomeModel),
}

impl Wait {
    /// The name in scenarios and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode.name(),
            Self::Metronome(_) => METRONOME,
        }
    }
}

impl Named for Wait {
    const PATH: &'static str = concat!(module_path!(), "::Wait");
    const NAMES: &'static [&'static str] = &with_one_more(Mode::NAMES, METRONOME);
    const MEANINGS: &'static [&'static str] = &with_one_more(Mode::MEANINGS, "Threads that share a queue.");

    fn name(&self) -> &'static str {
        Self::name(*self)
    }
}

const fn with_one_more(modes: &[&'static str], last: &'static str) -> [&'static str; Mode::NAMES.len() + 1] {
    let mut all = [last; Mode::NAMES.len() + 1];
    let mut place = 0;
    while place < modes.len() {
        all[place] = modes[place];
        place += 1;
    }
    all
}

/// Costs of the kernel's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelModel {
    /// Cost of polling a queue, without the cost of its frames: soft interrupt, NAPI, completion.
    pub poll: Cycles,
    /// Cost of a frame: driver and stack, up to the wire or the socket.
    pub frame: Cycles,
    /// Cost of a frame in the application: two system calls and the work between them. `None` if the kernel forwards
    /// frames itself.
    pub application: Option<Cycles>,
    /// Number of frames that a socket holds. Linux's default is 212,992 bytes (`net.core.rmem_default`), of which a
    /// small frame with its bookkeeping takes 768.
    pub socket: u32,
    /// Cost of programming another moderation profile.
    pub program: Cycles,
}

impl KernelModel {
    /// Number of frames that a socket of default size holds: 212,992 / 768.
    pub const SOCKET: u32 = 277;
    /// Estimated cost of programming another moderation profile.
    pub const PROGRAM: Cycles = Cycles::new(2_000);
}

/// Settings of Metronome, in which several threads share a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetronomeModel {
    /// V, the target of the mean vacation. A vacation is a time in which no thread serves the queue.
    pub vacation: Nanos,
    /// T_L: how long a thread sleeps after failing to get the lock.
    pub timeout: Nanos,
    /// Cost of trying the lock.
    pub lock: Cycles,
}

impl Default for MetronomeModel {
    /// V = 10 us. With this value and three threads, Metronome's authors lost no packets at 10 Gbit/s
    /// (`tests/l3fwd/README.md`). The cost of the lock is an estimate: a `lock cmpxchg` takes some 20 cycles (A. Fog,
    /// "Instruction tables", Skylake), and fetching the cache line from another core takes four times as long.
    fn default() -> Self {
        Self { vacation: Nanos::from_micros(10), timeout: Nanos::from_micros(500), lock: Cycles::new(100) }
    }
}

/// What the cores do. Queue n is served by core n modulo the number of cores. If threads share queues, core n serves
/// queue n modulo the number of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// A loop in user space.
    User {
        /// Number of simulated cores.
        cores: u32,
        /// Number of further cores that behave like the simulated ones. They only add to the package's power.
        alike: u32,
        /// How the cores wait.
        wait: Wait,
        /// Whether the policy may assume that an interrupt for a frame ends a block.
        interrupts: bool,
        /// Whether the policy knows this machine's wake-up costs from the start, as with `--platform`.
        knows: bool,
        /// Whether the policy chooses how deep the cores may idle (`pm_qos_resume_latency_us`).
        limits_idle: bool,
        /// Costs of the loop: from the scenario, or else from the machine.
        work: WorkModel,
        /// Whether the worker forwards the frames.
        forward: bool,
        /// Whether frames carry the time of their arrival.
        stamps: bool,
    },
    /// The kernel, with interrupts and NAPI. It passes frames on to the wire or to an application. The default costs
    /// are estimates for an x86 server: 2,000 cycles per poll, 2,500 per frame, 9,000 for an application's two system
    /// calls, 2,000 to program the NIC. Calibrate them for your own host.
    Kernel {
        /// Number of simulated cores.
        cores: u32,
        /// Number of further cores that behave like the simulated ones. They only add to the package's power.
        alike: u32,
        /// Costs of the kernel's path.
        model: KernelModel,
        /// Whether frames carry the time of their arrival.
        stamps: bool,
    },
}

impl Worker {
    /// Number of simulated cores.
    pub const fn cores(&self) -> u32 {
        match self {
            Self::User { cores, .. } | Self::Kernel { cores, .. } => *cores,
        }
    }

    /// Number of further cores that behave like the simulated ones.
    pub const fn alike(&self) -> u32 {
        match self {
            Self::User { alike, .. } | Self::Kernel { alike, .. } => *alike,
        }
    }
}

#[derive(Clone, Copy)]
enum Driver {
    User,
    Kernel,
}

pub(super) fn read(root: &mut Section, host: &Host, queues: u32) -> Result<Worker, Error> {
    let Some(mut section) = root.section("worker")? else {
        return Err(root.wrong("there is no [worker]", "add [worker] with driver = \"user\" and wait = \"adaptive\""));
    };
    let driver = section.required_choice("driver", &[("user", Driver::User), ("kernel", Driver::Kernel)])?.value;
    // Cores that do not fit into one package are placed in further packages.
    let cores = section.count("cores", 1..=super::QUEUES)?;
    let more_than_queues = cores.clone().filter(|cores| cores.value > u64::from(queues));
    let cores = cores.map_or(1, |spot| spot.value as u32);
    let alike = section.count("alike", 0..=super::QUEUES)?.map_or(0, |spot| spot.value as u32);
    let stamps = section.flag("stamps")?.is_none_or(|spot| spot.value);
    let mut cycles = |key, usual| -> Result<Cycles, Error> {
        Ok(section.text::<CycleCount>(key)?.map_or(usual, |spot| spot.value.get()))
    };
    let worker = match driver {
        Driver::User => {
            let usual = host.processor.work;
            let work = WorkModel {
                poll: cycles("poll", usual.poll)?,
                burst: cycles("burst", usual.burst)?,
                frame: cycles("frame", usual.frame)?,
            };
            let forward = section.flag("forward")?.is_none_or(|spot| spot.value);
            let interrupts = section.flag("interrupts")?.is_none_or(|spot| spot.value);
            let knows = section.flag("knows")?;
            let limits_idle = section.flag("limits_idle")?;
            let wait = wait(&mut section)?;
            let reckons = matches!(wait, Wait::Mode(Mode::Adaptive(_)));
            if let Some(spot) = knows.as_ref().filter(|spot| spot.value && !reckons) {
                let what = format!("`worker.knows` with wait = \"{}\"", wait.name());
                return Err(spot.wrong(what, "only adaptive uses the cost of wake-ups: omit it"));
            }
            if let Some(spot) = limits_idle.as_ref().filter(|spot| spot.value && !reckons) {
                let what = format!("`worker.limits_idle` with wait = \"{}\"", wait.name());
                return Err(spot.wrong(what, "only adaptive limits idle states: omit it, or set idle.latency_limit"));
            }
            let [knows, limits_idle] = [knows, limits_idle].map(|flag| flag.is_some_and(|spot| spot.value));
            Worker::User { cores, alike, wait, interrupts, knows, limits_idle, work, forward, stamps }
        }
        Driver::Kernel => {
            let poll = cycles("poll", KERNEL_POLL)?;
            let frame = cycles("frame", KERNEL_FRAME)?;
            let program = cycles("program", KernelModel::PROGRAM)?;
            let work = cycles("application", KERNEL_APPLICATION)?;
            let forward = section.flag("forward")?.is_some_and(|spot| spot.value);
            let application = if forward { None } else { Some(work) };
            let socket = section.count("socket", 1..=1_000_000)?.map_or(KernelModel::SOCKET, |spot| spot.value as u32);
            Worker::Kernel { cores, alike, model: KernelModel { poll, frame, application, socket, program }, stamps }
        }
    };
    let shares = matches!(worker, Worker::User { wait: Wait::Metronome(_), .. });
    if let Some(spot) = more_than_queues.filter(|_| !shares) {
        let what = format!("{cores} cores for {queues} queue{}", if queues == 1 { "" } else { "s" });
        let fix = "give each core a queue (count in [queues]), or let threads share queues: wait = \"metronome\"";
        return Err(spot.wrong(what, fix));
    }
    if shares && cores < queues {
        let what = format!("{queues} queues for {cores} metronome thread{}", if cores == 1 { "" } else { "s" });
        return Err(section.wrong(what, "give each queue at least one thread: cores in [worker]"));
    }
    section.finish()?;
    Ok(worker)
}

fn wait(section: &mut Section) -> Result<Wait, Error> {
    let modes = Mode::ALL.map(|mode| (mode.name(), Some(mode)));
    Ok(match section.required_choice("wait", &[&modes[..], &[(METRONOME, None)]].concat())?.value {
        None => Wait::Metronome(metronome(section)?),
        Some(Mode::Backoff { max }) => {
            let most = section.text::<Nanos>("sleep_max")?;
            if let Some(most) = most.as_ref().filter(|most| most.value > Backoff::LONGEST_MAX) {
                let what = format!("`sleep_max = \"{}\"`", most.value);
                return Err(most.wrong(what, format!("expected at most {}", Backoff::LONGEST_MAX)));
            }
            Wait::Mode(Mode::Backoff { max: most.map_or(max, |spot| spot.value) })
        }
        Some(mode) => Wait::Mode(mode),
    })
}

/// Reads the settings of the threads: `vacation`, `timeout` and `lock`.
fn metronome(section: &mut Section) -> Result<MetronomeModel, Error> {
    let usual = MetronomeModel::default();
    let mut span = |key, usual: Nanos| match section.text::<Nanos>(key)? {
        Some(spot) if spot.value == Nanos::ZERO || spot.value > HEALTH_INTERVAL => {
            let what = format!("`worker.{key} = \"{}\"`", spot.value);
            Err(spot.wrong(what, format!("expected more than 0 and at most {HEALTH_INTERVAL}, such as {usual}")))
        }
        spot => Ok(spot.map_or(usual, |spot| spot.value)),
    };
    let vacation = span("vacation", usual.vacation)?;
    let timeout = span("timeout", usual.timeout)?;
    let lock = section.text::<CycleCount>("lock")?.map_or(usual.lock, |spot| spot.value.get());
    Ok(MetronomeModel { vacation, timeout, lock })
}
