//! The tester's ports for the benchmark procedures. Trials run on the tester's CPU while the calling thread listens for
//! signals.

use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, RingSizes, SocketConfig, XskContext};
use live::os::{self, InterfaceFacts, Scheduling, Signals};
use live::pool::{Pool, PoolConfig, slot_for};
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::flows::{Family, Flows};
use tester::frame::{Encapsulation, LOCAL_EXPERIMENTAL, Layout};
use tester::host::Reading;
use tester::procedure::{LATE, Measurer, Observed, Offer, Phase, Setup};
use tester::schedule::Schedule;
use tester::search::Climb;
use tester::sizes::Sizes;
use tester::trial::{Lane, Port, Trial, TrialConfig, run_lanes};
use units::{BitRate, Instant, Monotonic, Nanos, PacketRate};

use super::room;
use crate::args::procedure::Ports as Typed;
use crate::commands::group::Group;
use crate::commands::ports;
use crate::{Failure, terminal};

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus bench";
/// Number of bytes of an untagged frame that are not payload: header and check sequence (IEEE 802.3, clause 3).
const BESIDE: u32 = 14 + 4;
/// Frames in a pool beyond those that the rings hold.
const SPARE: u32 = 2048;
/// The tester skips a frame that it would send more than this after its scheduled time. A device that forwards the
/// burst of overdue frames after a shorter stall has passed a harder test; if it does not, the trial was disturbed.
const LATEST: Nanos = Nanos::from_millis(20);
/// Highest rate to try if the rate of the line is unknown, and the user names none.
const FASTEST_PPS: u64 = 5_000_000;
/// Maximum duration of one trial that measures how fast the tester can send.
const CEILING_SPAN: Nanos = Nanos::from_millis(200);
/// Destination MAC address if the tester has one port and the user names no address: that of dut0 in `apus lab up
/// pair`.
const LAB_DUT: [u8; 6] = [0x02, 0x61, 0x70, 0x75, 0x00, 0x01];
/// Time between two checks for a signal, and for the end of a trial.
const LISTEN: Duration = Duration::from_millis(20);

struct Opened {
    // Declared before the pool, so that it is dropped first: it holds frames of the pool.
    device: AfXdpDevice,
    pool: Pool,
    facts: InterfaceFacts,
}

/// Properties of the ports that the user stated.
#[derive(Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Highest rate at which to send. `None`: the line rate or, if that is unknown, `FASTEST_PPS`.
    pub max: Option<PacketRate>,
    /// Line rate. `None`: the speed that the driver reports.
    pub line: Option<BitRate>,
    /// Shell command that resets the device under test. `None` if there is none.
    pub reset_command: Option<&'a str>,
    /// Length of the longest trial, all of whose frames must fit into memory. Zero if the caller has checked this.
    pub longest: Nanos,
}

/// The open ports.
pub struct Rig<'a> {
    typed: &'a Typed,
    ports: Vec<Opened>,
    layouts: Vec<Layout>,
    line_bits_per_s: Option<u64>,
    wanted: Wanted<'a>,
    most_frames: u64,
    stream: u16,
    signals: Signals,
    stop: AtomicBool,
}

impl<'a> Rig<'a> {
    /// Opens the ports.
    ///
    /// `sizes` lists the frame sizes of all trials.
    pub fn open(typed: &'a Typed, sizes: &[Sizes], wanted: Wanted<'a>) -> anyhow::Result<Self> {
        // Before any thread is started, because threads inherit the signal mask.
        let signals = Signals::hold()?;
        for line in ports::take_back_left_behind(COMMAND)? {
            let _ = writeln!(terminal::err(), "{line}");
        }
        let mut opened = vec![open_port_in(typed.tx_netns.as_deref(), &typed.tx, typed, sizes)?];
        if let Some(rx) = &typed.rx {
            let netns = typed.rx_netns.as_deref().or(typed.tx_netns.as_deref());
            if *rx == typed.tx && (typed.rx_netns.is_none() || typed.rx_netns == typed.tx_netns) {
                let why = "the sending and the receiving port are the same";
                return Err(Failure::wrong(format!("--rx {rx}"), why, "omit --rx, or name another port").into());
            }
            opened.push(open_port_in(netns, rx, typed, sizes)?);
        }
        for port in &opened {
            fits(typed, sizes, port)?;
        }
        let layouts = layouts(typed, &opened);
        let reported = opened.iter().map(|port| port.facts.speed.map(|speed| speed.as_bps())).min().flatten();
        let line_bits_per_s = wanted.line.map(|line| line.as_bps()).or(reported);
        let most_frames = room::most_frames();
        let stop = AtomicBool::new(false);
        let rig =
            Self { typed, ports: opened, layouts, line_bits_per_s, wanted, most_frames, stream: 0, signals, stop };
        if let Some(limit) = rig.memory_limit(sizes) {
            let _ = writeln!(terminal::err(), "{limit}");
        }
        Ok(rig)
    }

    /// Highest rate for which the tester has memory.
    fn fits(&self) -> u64 {
        room::highest_pps(self.most_frames, self.wanted.longest, self.layouts.len())
    }

    /// If memory limits the rate with frames of these sizes, and neither the user nor the line does: says so.
    fn memory_limit(&self, sizes: &[Sizes]) -> Option<String> {
        let fits = self.fits();
        sizes.iter().any(|sizes| fits < self.wished_pps(sizes)).then(|| {
            format!(
                "the available memory limits the rate to {}: the longest trial takes {}, and each of its frames 12 bytes",
                PacketRate::new(fits),
                self.wanted.longest
            )
        })
    }

    /// Fails if the tester has no memory for trials at the lowest rate of the search.
    pub fn check_least(&self, least: PacketRate) -> Result<(), Failure> {
        match least.as_pps() > self.fits() {
            false => Ok(()),
            true => Err(Failure::wrong(
                format!("--min-rate {least}"),
                room::too_many(least, self.wanted.longest, self.fits()),
                "choose a lower rate, or shorter trials",
            )),
        }
    }

    /// Describes what is connected and what is sent.
    pub fn setup(&self) -> Setup {
        let typed = self.typed;
        let traffic = match self.layouts[0].encapsulation {
            Encapsulation::Flows(flows) => {
                let vlan = flows.vlan.map_or(String::new(), |vlan| format!(", VLAN {vlan}"));
                format!("UDP over {}{vlan}, seed {}", flows.family, flows.seed)
            }
            _ => "EtherType 0x88b5, without IP".to_owned(),
        };
        Setup {
            device: typed.device.clone(),
            tx_port: typed.tx.clone(),
            rx_port: typed.rx.clone().unwrap_or_else(|| typed.tx.clone()),
            bidirectional: typed.bidirectional,
            flows: typed.flows,
            traffic,
            line_bits_per_s: Reading::or_unknown(self.line_bits_per_s, "the driver reports no speed (--line)"),
            latency_is: "from the intended send time until the tester receives the frame, by software clocks".into(),
        }
    }

    /// Speed of the slower link in bit/s. `None` if unknown.
    pub fn line_bits_per_s(&self) -> Option<u64> {
        self.line_bits_per_s
    }

    /// Highest rate to try with frames of these sizes. The tester may be slower.
    pub fn highest_pps(&self, sizes: &Sizes) -> u64 {
        self.wished_pps(sizes).clamp(1, self.fits().max(1))
    }

    fn wished_pps(&self, sizes: &Sizes) -> u64 {
        wished_pps(self.line_bits_per_s, self.wanted.max, sizes)
    }

    /// Deviations from RFC 2544 that follow from the ports, the frames and the tester's memory.
    pub fn deviations(&self, sizes: &[Sizes]) -> Vec<String> {
        let mut found = vec![
            "latency is measured by the tester's software clock, and includes the tester's pacing error (RFC 2544, 26.2; RFC 1242, 3.8)"
                .to_owned(),
        ];
        if !self.typed.bidirectional {
            found.push("one direction instead of both (RFC 2544, 14)".into());
        }
        if self.typed.ip.is_none() {
            found.push("frames without IP instead of UDP (RFC 2544, C.2); see --ip".into());
        } else if self.typed.flows < 256 {
            found.push(format!("{} flows instead of 256 destination networks (RFC 2544, 12)", self.typed.flows));
        }
        found.extend(self.memory_limit(sizes));
        found
    }

    fn config(&self, layout: Layout, sizes: &Sizes, phases: &[Phase], residue: Nanos) -> TrialConfig {
        let schedule = match phases {
            [one] => Schedule::ConstantRate(PacketRate::new(one.rate_pps)),
            many => Schedule::Phases(many.iter().map(|p| (PacketRate::new(p.rate_pps), p.duration)).collect()),
        };
        let duration = phases.iter().fold(Nanos::ZERO, |sum, phase| sum + phase.duration);
        TrialConfig {
            sizes: Some(sizes.clone()),
            warm_up: Nanos::ZERO,
            duration,
            drain: residue.max(Nanos::from_millis(5)),
            max_lateness: LATEST,
            max_frames: self.most_frames / self.layouts.len() as u64,
            ..TrialConfig::new(Layout { size: sizes.longest(), ..layout }, schedule)
        }
    }

    /// Runs a trial on the tester's CPU while this thread listens for signals. Resets the device under test at
    /// `reset_at`.
    fn run(&mut self, configs: Vec<TrialConfig>, reset_at: Option<Nanos>) -> Result<Ran, tester::Error> {
        let one_port = self.ports.len() == 1;
        let mut lanes = Vec::new();
        for (number, mut config) in configs.into_iter().enumerate() {
            self.stream = self.stream.wrapping_add(1);
            config.stream = self.stream;
            let (tx, rx) = if one_port { (0, 0) } else { (number, 1 - number) };
            lanes.push(Lane { config, tx, rx });
        }
        let Self { typed, ports, stop, signals, wanted, layouts, .. } = self;
        let answers = matches!(layouts[0].encapsulation, Encapsulation::Flows(_));
        let queue = 0; // each device has one queue open
        let began = std::time::Instant::now();
        let mut reset_due = reset_at.map(|at| began + Duration::from_nanos(at.as_nanos()));
        std::thread::scope(|scope| {
            let stop = &*stop;
            let lanes = &lanes;
            let place = Scheduling { cpu: typed.cpu, fifo: typed.fifo };
            let thread = scope.spawn(move || {
                os::place_this_thread(place)?;
                let mut open: Vec<Port<'_>> = ports
                    .iter_mut()
                    .map(|port| Port {
                        device: &mut port.device,
                        queue,
                        pool: &mut port.pool,
                        mac: answers.then_some(port.facts.mac),
                    })
                    .collect();
                run_lanes(lanes, &mut open, &MonotonicClock, stop)
            });
            let (mut reset, mut reset_at) = (None, None);
            while !thread.is_finished() {
                if signals.wait(LISTEN).is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
                if reset_due.is_some_and(|due| std::time::Instant::now() >= due) {
                    (reset_due, reset_at) = (None, Some(MonotonicClock.now()));
                    reset = wanted.reset_command.map(Reset::start);
                }
            }
            let trials = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Even if the trial failed, for example because the reset removed a port, the command must not stay behind.
            let reset_note = match reset.map(|reset| reset.and_then(Reset::finish)).transpose() {
                Ok(note) => note.flatten(),
                Err(source) => {
                    let what = "run the --reset-command with sh".into();
                    return Err(live::Error::System { what, source }.into());
                }
            };
            Ok(Ran { trials: trials?, reset_at, reset_note })
        })
    }
}

impl Measurer for Rig<'_> {
    fn trial(&mut self, offer: &Offer) -> Result<Observed, tester::Error> {
        let configs = self.layouts.iter();
        let configs = configs.map(|layout| self.config(*layout, &offer.sizes, &offer.phases, offer.residue)).collect();
        let reset_at = offer.reset.then(|| offer.span() / 4);
        let ran = self.run(configs, reset_at)?;
        Ok(Observed { reset_note: ran.reset_note, ..Observed::of(&ran.trials, offer, ran.reset_at) })
    }

    fn ceiling(&mut self, sizes: &Sizes, span: Nanos) -> Result<u64, tester::Error> {
        let duration = span.min(CEILING_SPAN);
        let mut climb = Climb::new(self.highest_pps(sizes));
        while let Some(rate_pps) = climb.next_rate()
            && !self.stopped()
        {
            let phases = [Phase { rate_pps, duration }];
            let config = |layout: &Layout| {
                let config = self.config(*layout, sizes, &phases, Nanos::ZERO);
                TrialConfig { max_lateness: LATE, ..config }
            };
            let configs: Vec<TrialConfig> = self.layouts.iter().map(config).collect();
            let trials = self.run(configs, None)?.trials;
            let sent = trials.iter().filter_map(Trial::offered_pps).fold(f64::INFINITY, f64::min);
            climb.record(if sent.is_finite() { sent } else { 0.0 });
        }
        Ok(climb.found())
    }

    fn wait(&mut self, span: Nanos) {
        let until = std::time::Instant::now() + Duration::from_nanos(span.as_nanos());
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            if self.signals.wait(left.min(LISTEN)).is_some() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A finished trial.
struct Ran {
    /// The result of each direction.
    trials: Vec<Trial>,
    /// When the reset command was started.
    reset_at: Option<Instant<Monotonic>>,
    /// What went wrong with the reset command.
    reset_note: Option<String>,
}

/// The running reset command.
struct Reset(Child, Group);

impl Reset {
    fn start(command: &str) -> io::Result<Self> {
        let (child, group) = Group::start(Command::new("sh").args(["-c", command]).stdin(Stdio::null()))?;
        Ok(Self(child, group))
    }

    /// Ends the command if it still runs. Returns what went wrong with it. A status other than 0 does not prove that
    /// the device was not reset: `ssh` returns 255 when the device that it resets closes the connection.
    fn finish(mut self) -> io::Result<Option<String>> {
        if let Some(status) = self.0.try_wait()? {
            let failed = !status.success();
            return Ok(
                failed.then(|| format!("the --reset-command ended with {status}: check that it resets the device"))
            );
        }
        self.1.end(|| self.0.try_wait().is_ok_and(|status| status.is_some()));
        self.0.wait()?;
        Ok(Some("the --reset-command still ran at the end of the trial, and was ended".into()))
    }
}

/// Highest rate that the user and the line allow.
fn wished_pps(line_bits_per_s: Option<u64>, max: Option<PacketRate>, sizes: &Sizes) -> u64 {
    let line = line_bits_per_s.map(|speed| sizes.line_rate_pps(speed) as u64);
    line.into_iter().chain(max.map(|max| max.as_pps())).min().unwrap_or(FASTEST_PPS)
}

/// Opens a port in its network namespace, if it has one. This thread stays where it is: the reset command starts here.
fn open_port_in(netns: Option<&str>, name: &str, typed: &Typed, sizes: &[Sizes]) -> anyhow::Result<Opened> {
    match netns {
        Some(netns) => tester::lab::in_namespace(netns, || open_port(name, typed, sizes))?,
        None => open_port(name, typed, sizes),
    }
}

fn open_port(name: &str, typed: &Typed, sizes: &[Sizes]) -> anyhow::Result<Opened> {
    let filter = if typed.ip.is_some() { Filter::All } else { Filter::EtherTypes(vec![LOCAL_EXPERIMENTAL]) };
    let interface = Interface::attach(&InterfaceConfig {
        name: name.to_owned(),
        queues: vec![typed.queue],
        mode: typed.xdp,
        filter,
        promiscuous: false,
        // A neighbor solicitation is sent to the multicast group of its address. The kernel has joined only its own groups.
        all_multicast: typed.ip == Some(Family::V6),
    })?;
    if typed.ip.is_some() {
        has_one_queue(name, interface.available_queues())?;
    }
    let facts = os::interface_facts(name)?;
    let ring = typed.ring;
    let sockets = SocketConfig {
        rings: RingSizes { fill: ring, rx: ring, tx: ring, completion: ring },
        lasting: None,
        zero_copy: typed.zero_copy,
        ..SocketConfig::default()
    };
    let frames = sockets.slots_per_queue() + SPARE;
    let longest = sizes.iter().map(Sizes::longest).max().map_or(64, |size| size.octets());
    let mut pool = Pool::new(PoolConfig { frames, frame_size: slot_for(longest), huge_pages: false })?;
    let mut context = XskContext::new(&pool);
    let device = AfXdpDevice::open(&interface, &[typed.queue], &sockets, &mut context, &mut pool)?;
    Ok(Opened { device, pool, facts })
}

/// Fails if the NIC distributes the flows among several queues: the tester receives from one of them, and would count
/// the frames of the others as lost by the device.
fn has_one_queue(name: &str, active: Option<u32>) -> Result<(), Failure> {
    let Some(active) = active.filter(|active| *active > 1) else { return Ok(()) };
    let why = format!("{name} distributes flows among {active} receive queues, and the tester receives from one");
    Err(Failure::lacking("cannot measure with --ip", why, format!("run: ethtool -L {name} combined 1")))
}

/// Fails if the frames exceed the MTU: the driver or the kernel would drop them all.
fn fits(typed: &Typed, sizes: &[Sizes], port: &Opened) -> Result<(), Failure> {
    use live::device::Device as _;
    let longest = port.facts.mtu + BESIDE + if typed.vlan.is_some() { 4 } else { 0 };
    let Some(sizes) = sizes.iter().find(|sizes| sizes.longest().octets() > longest) else { return Ok(()) };
    let name = port.device.name();
    let why = format!("the MTU of {name} is {}, so frames have at most {longest} bytes", port.facts.mtu);
    let fix = format!("omit this size, or raise the MTU at both ends: ip link set dev {name} mtu N");
    Err(Failure::wrong(format!("--frame {sizes}"), why, fix))
}

/// The headers of the frames from the sending port or, in `reverse`, from the receiving port.
pub fn encapsulation(typed: &Typed, reverse: bool) -> Encapsulation {
    match typed.ip {
        Some(family) => {
            Encapsulation::Flows(Flows { family, vlan: typed.vlan, count: typed.flows, seed: typed.seed, reverse })
        }
        None => Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL },
    }
}

/// The frames of each direction.
fn layouts(typed: &Typed, ports: &[Opened]) -> Vec<Layout> {
    let encapsulation = |reverse| encapsulation(typed, reverse);
    let size = tester::frame::FrameSize::SMALLEST;
    let forth = Layout {
        destination: typed.mac.unwrap_or_else(|| ports.get(1).map_or(LAB_DUT, |rx| rx.facts.mac)),
        source: ports[0].facts.mac,
        encapsulation: encapsulation(false),
        size,
    };
    let mut layouts = vec![forth];
    if let (true, Some(rx)) = (typed.bidirectional, ports.get(1)) {
        layouts.push(Layout {
            destination: typed.back_mac.unwrap_or(ports[0].facts.mac),
            source: rx.facts.mac,
            encapsulation: encapsulation(true),
            size,
        });
    }
    layouts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset(command: &str, after: Duration) -> Option<String> {
        let reset = Reset::start(command).unwrap();
        std::thread::sleep(after);
        reset.finish().unwrap()
    }

    /// The search once stopped at 5 Mpps in silence, whatever the line and the user said.
    #[test]
    fn the_highest_rate_is_that_of_the_line_and_of_the_user() {
        let sizes = Sizes::one(tester::frame::FrameSize::SMALLEST);
        let of = |line: Option<u64>, max: Option<u64>| wished_pps(line, max.map(PacketRate::new), &sizes);
        assert_eq!(of(Some(10_000_000_000), None), 14_880_952);
        assert_eq!(of(Some(10_000_000_000), Some(20_000_000)), 14_880_952);
        assert_eq!([of(None, Some(20_000_000)), of(Some(10_000_000_000), Some(9_000_000))], [20_000_000, 9_000_000]);
        assert_eq!(of(None, None), FASTEST_PPS);
    }

    #[test]
    fn a_nic_that_distributes_the_flows_is_refused() {
        assert!(has_one_queue("eth0", Some(1)).is_ok() && has_one_queue("eth0", None).is_ok());
        let error = has_one_queue("eth0", Some(8)).unwrap_err();
        assert!(error.status == crate::Status::Lacking && error.to_string().contains("ethtool -L eth0 combined 1"));
    }

    /// The reset command once ran in the namespace of the port that was opened last, where it could not reach the device.
    #[test]
    fn this_thread_stays_in_its_namespace() {
        if !rustix::process::geteuid().is_root() {
            testkit::skip("making network namespaces needs root");
            return;
        }
        let lab = tester::lab::Lab::wire(&format!("stay{}", std::process::id())).up().unwrap();
        let typed = <Line as clap::Parser>::try_parse_from(["ports", "--tx", "left0"]).unwrap().ports;
        let home = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let before = home();
        let sizes = [Sizes::one(tester::frame::FrameSize::SMALLEST)];
        let opened = open_port_in(Some(&lab.namespace("left")), "left0", &typed, &sizes).unwrap();
        assert_eq!(home(), before);
        drop(opened);
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        ports: Typed,
    }

    /// The status was not read, and a command that took longer than the trial stayed behind.
    #[test]
    fn what_becomes_of_the_reset_command_is_told() {
        let soon = Duration::from_millis(300);
        assert_eq!(reset("true", soon), None);
        assert!(reset("exit 3", soon).unwrap().contains("exit status: 3"));
        let file = std::env::temp_dir().join(format!("apus-reset-{}", std::process::id()));
        let command = format!("sleep 100 & echo $! > {}; wait", file.display());
        assert!(reset(&command, soon).unwrap().contains("still ran"));
        let pid = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "the child of the command is left: {state}");
    }
}
