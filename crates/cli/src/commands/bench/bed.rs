//! Opens the tester's port, and watches the device under test during a trial.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::transaction::Deferred;
use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, RingSizes, SocketConfig, XskContext};
use live::os::{self, Scheduling, Signals};
use live::pool::{Pool, PoolConfig, slot_for};
use live::telemetry::{self, Reader};
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::cpu::{self, CpuSample, CpuUse, Threads};
use tester::frame::{Encapsulation, LOCAL_EXPERIMENTAL, Layout};
use tester::gaps::Gap;
use units::{Instant, Monotonic};

use crate::args::bench::Bed as Typed;
use crate::commands::energy::Wattmeter;
use crate::commands::ports;
use crate::{Failure, terminal};

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus bench";

/// Length of the Ethernet header in bytes (IEEE 802.3, clause 3).
const ETHERNET_HEADER: u32 = 14;
const CHECK_SEQUENCE: u32 = 4;
/// Time between two reads of the gaps of the device under test, short enough that no gap is overwritten before it is
/// read. A gap is a time in which something else ran on the core of a worker.
const FETCH: Duration = Duration::from_millis(100);

/// Everything that a trial needs besides its plan.
pub struct Bed {
    /// The interrupt deferral, rolled back when dropped. It is dropped before the device, because the NAPI instance of
    /// a veth ends with its XDP program.
    _deferred: Option<Deferred>,
    pub device: AfXdpDevice,
    pub pool: Pool,
    pub layout: Layout,
    pub tested: Tested,
    /// Measures the energy of each trial.
    pub meter: Wattmeter,
    pub signals: Signals,
    /// Set to stop the running trial.
    pub stop: AtomicBool,
}

impl Bed {
    /// Opens the port and moves the thread to its CPU. If `all` is true, the port takes every frame away from the
    /// kernel, because a capture may contain frames of any kind.
    pub fn open(typed: &Typed, all: bool) -> anyhow::Result<Self> {
        // Before any thread is started, because threads inherit the signal mask.
        let signals = Signals::hold()?;
        let tested = Tested::find(typed)?;
        let meter = Wattmeter::open(&typed.modelled)?;
        if let Some(netns) = &typed.netns {
            tester::lab::enter(netns)?;
        }
        let encapsulation = match typed.udp {
            Some(udp) => udp.into(),
            None => Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL },
        };
        let usual = match encapsulation {
            Encapsulation::Ethernet { ethertype } if !all => Filter::EtherTypes(vec![ethertype]),
            _ => Filter::All,
        };
        for line in ports::take_back_left_behind(COMMAND)? {
            let _ = writeln!(terminal::err(), "{line}");
        }
        let interface = Interface::attach(&InterfaceConfig {
            name: typed.port.clone(),
            queues: vec![typed.queue],
            mode: typed.xdp,
            filter: typed.filter.clone().unwrap_or(usual),
            promiscuous: false,
            all_multicast: false,
        })?;
        let facts = os::interface_facts(&typed.port)?;
        // The frames of a capture have different sizes.
        if !all {
            fits(typed, facts.mtu)?;
        }
        let ring = typed.ring;
        let sockets = SocketConfig {
            rings: RingSizes { fill: ring, rx: ring, tx: ring, completion: ring },
            lasting: None,
            zero_copy: typed.zero_copy,
            ..SocketConfig::default()
        };
        let frames = sockets.slots_per_queue() + 1024;
        let frame_size = slot_for(typed.frame.octets());
        let mut pool = Pool::new(PoolConfig { frames, frame_size, huge_pages: false })?;
        let mut context = XskContext::new(&pool);
        let device = AfXdpDevice::open(&interface, &[typed.queue], &sockets, &mut context, &mut pool)?;
        let layout = Layout { destination: typed.mac, source: facts.mac, encapsulation, size: typed.frame };
        let defer = |wanted| ports::defer(&typed.port, &[typed.queue], wanted, COMMAND);
        let deferred = typed.defer.map(defer).transpose()?;
        Ok(Self { _deferred: deferred, device, pool, layout, tested, meter, signals, stop: AtomicBool::new(false) })
    }

    /// Moves the thread to the CPU and priority given on the command line. Threads started later inherit both.
    pub fn take_place(typed: &Typed) -> Result<(), live::Error> {
        os::place_this_thread(Scheduling { cpu: typed.cpu, fifo: typed.fifo })
    }

    /// Runs `trial` on a separate thread, on the tester's CPU, while this thread listens for signals and reads the gaps
    /// of the device under test. Returns the result of the trial, and what was observed of the device under test.
    pub fn watch<T: Send>(
        &mut self,
        typed: &Typed,
        trial: impl FnOnce(&mut AfXdpDevice, &mut Pool, &AtomicBool) -> Result<T, tester::Error> + Send,
    ) -> anyhow::Result<(T, Seen)> {
        let Self { device, pool, tested, signals, stop, .. } = self;
        let began = MonotonicClock.now();
        let before = tested.cpu(began);
        let mut gaps = tested.gaps_from(began);
        let result = std::thread::scope(|scope| {
            let stop = &*stop;
            let thread = scope.spawn(move || {
                Self::take_place(typed)?;
                trial(device, pool, stop)
            });
            while !thread.is_finished() {
                if signals.wait(FETCH).is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
                gaps.fetch(tested);
            }
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let ended = MonotonicClock.now();
        let after = tested.cpu(ended);
        gaps.fetch(tested);
        let used = match (before, after) {
            (Ok(before), Ok(after)) => {
                cpu::difference(&before, &after).ok_or_else(|| "the clock ran backwards".to_owned())
            }
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        Ok((result, Seen { gaps: gaps.result(), cpu: used }))
    }

    /// Whether the user asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Fails if the frames exceed the MTU: the driver or the kernel would drop them all.
fn fits(typed: &Typed, mtu: u32) -> Result<(), Failure> {
    let longest = mtu + ETHERNET_HEADER + CHECK_SEQUENCE;
    if typed.frame.octets() <= longest {
        return Ok(());
    }
    let why = format!("the MTU of {} is {mtu}, so frames have at most {longest} bytes", typed.port);
    let fix = format!("use a smaller --frame, or raise the MTU at both ends: ip link set dev {} mtu N", typed.port);
    Err(Failure::wrong(format!("--frame {}", typed.frame.octets()), why, fix))
}

/// What was observed of the device under test during a trial, or why nothing was observed.
pub struct Seen {
    pub gaps: Result<Vec<Gap>, String>,
    pub cpu: Result<CpuUse, String>,
}

/// The device under test, as seen from this host.
pub enum Tested {
    /// The device is not on this host, or was not named on the command line.
    Unnamed,
    /// A process or a thread on this host.
    Process { pid: u32, threads: Threads },
    /// An instance of Apus on this host.
    Instance { pid: u32, threads: Threads, readers: Vec<Reader> },
}

impl Tested {
    fn find(typed: &Typed) -> anyhow::Result<Self> {
        if let Some(name) = &typed.instance {
            return Self::instance(name, &typed.telemetry, typed.pid);
        }
        let found = match (typed.pid, typed.tid) {
            (Some(pid), _) => Self::Process { pid, threads: Threads::All },
            // /proc/TID exists for every thread, although no listing shows it (proc(5)).
            (None, Some(tid)) => Self::Process { pid: tid, threads: Threads::These(vec![tid]) },
            (None, None) => Self::Unnamed,
        };
        if let Err(why) = found.cpu(Instant::ORIGIN)
            && !matches!(found, Self::Unnamed)
        {
            let fix = "name something that runs: --pid PID, --tid TID or --instance NAME";
            return Err(Failure::lacking("cannot read the tested device's CPU time", why, fix).into());
        }
        Ok(found)
    }

    fn instance(name: &str, root: &Path, whole: Option<u32>) -> anyhow::Result<Self> {
        let (all, _) = telemetry::instances(root)?;
        let readers: Vec<Reader> =
            all.into_iter().filter(|reader| reader.snapshot().identity.instance == name).collect();
        let Some(first) = readers.first() else {
            let why = format!("the telemetry in {} has no running instance called {name}", root.display());
            let fix = "apus top --once lists the running instances; see --telemetry and apus run --name";
            return Err(Failure::lacking("cannot find the tested instance", why, fix).into());
        };
        let pid = first.process().pid;
        let threads = match whole {
            None => Threads::These(readers.iter().map(|reader| reader.snapshot().tid).collect()),
            Some(whole) if whole == pid => Threads::All,
            Some(other) => {
                let why = format!("instance {name} is process {pid}, not {other}");
                return Err(Failure::lacking("cannot read the CPU time of the whole process", why, "omit --pid").into());
            }
        };
        Ok(Self::Instance { pid, threads, readers })
    }

    fn cpu(&self, at: Instant<Monotonic>) -> Result<CpuSample, String> {
        match self {
            Self::Unnamed => Err("the device under test was not given (--instance, --pid or --tid)".into()),
            Self::Process { pid, threads } | Self::Instance { pid, threads, .. } => {
                cpu::sample(Path::new("/"), *pid, threads, at).map_err(|e| e.to_string())
            }
        }
    }

    fn gaps_from(&self, began: Instant<Monotonic>) -> GapLog {
        GapLog { since: began, gaps: Vec::new(), overrun: false, known: matches!(self, Self::Instance { .. }) }
    }
}

/// The gaps of the device under test, read piece by piece. A gap is a time in which something else ran on the core of a
/// worker.
struct GapLog {
    since: Instant<Monotonic>,
    gaps: Vec<Gap>,
    overrun: bool,
    known: bool,
}

impl GapLog {
    fn fetch(&mut self, tested: &Tested) {
        let Tested::Instance { readers, .. } = tested else { return };
        let now = MonotonicClock.now();
        for reader in readers {
            let found = reader.gaps_between(self.since, now);
            self.overrun |= found.overrun;
            // A gap that spans two fetches is reported in two parts. They are joined later.
            self.gaps.extend(found.spans.into_iter().map(|(start, end)| Gap { start, end }));
        }
        self.since = now;
    }

    fn result(mut self) -> Result<Vec<Gap>, String> {
        if !self.known {
            return Err("no Apus instance was given with --instance".into());
        }
        if self.overrun {
            return Err("the instance was stopped more often than its telemetry can hold".into());
        }
        self.gaps.sort_by_key(|gap| (gap.start, gap.end));
        self.gaps.dedup();
        Ok(self.gaps)
    }
}
