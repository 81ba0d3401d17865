//! Measures the delivery of a frame to user space: the time from the call that sends the frame to its arrival, and from
//! there to the thread that picks it up.
//!
//! ```text
//!   near end (sends, spins)                    far end (its wait is measured)
//!    send ──────────────────────► XDP ─ interrupt, wake-up ─► pick-up
//!                 send to XDP            XDP to pick-up          │ turnaround
//!    pick-up ◄─── XDP ◄───────────────────────────────────────── send
//!       back: XDP to pick-up      back: send to XDP
//! ```
//! The frame carries its time stamps, all of `CLOCK_MONOTONIC`, so the parts of each frame's path add up to its round
//! trip. The frames travel over a veth pair in a lab that the probe creates, or through a port whose frames come back
//! by themselves (a loopback plug, a reflector). With a port, only the first two parts of the path exist.
//!
//! On veth the receiver's NAPI runs on the sender's CPU. So the *right* CPU for the receiver is the sender's CPU,
//! because then no interrupt to another CPU is needed. Every other CPU is a *wrong* one.

mod end;
mod frame;
mod legs;
mod sys;
mod udp;
mod xsk;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use live::cpu::{Cpu as _, LinuxCpu};
use tester::histogram::HIGHEST_NS;
use tester::host::Reading;
use tester::lab::{self, Guard, Lab};
use units::{Instant, Monotonic, Nanos};

use crate::cause::{Causes, Watcher};
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::interrupt::InterruptDetail;
use crate::mark::{Mark, MarkKind};
use crate::measured::{Counter, Exceeded, Measured, Name, Overhead, suspicion};
use crate::observe::{Observation, reading_the_clock, settings};
use crate::place::Place;
use crate::{Control, Error, Probe};

pub use crate::detail::interrupt::Wait;
use end::{Back, End};
use legs::Legs;
use udp::UdpEnd;
use xsk::XskEnd;

/// Shortest interval allowed between two frames: about the travel time of one frame.
pub const SHORTEST_INTERVAL: Nanos = Nanos::from_micros(1);
/// Number of warm-up frames, which are not counted.
const WARM_UP: u32 = 32;
/// Time after which a frame counts as lost.
const LOST_AFTER: Nanos = Nanos::from_millis(100);
/// Longest wait before an end of the path checks whether the run is over.
const LOOK: Nanos = Nanos::from_millis(20);
/// Maximum time to open an end of the path. It covers attaching XDP, and binding after an earlier socket was closed.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// Addresses of the two ends in the lab.
const NEAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 5077);
const FAR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 5077);

impl Wait {
    fn never_sleeps(self) -> bool {
        matches!(self, Self::Spin | Self::Busy)
    }
}

/// Where the frames travel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bed {
    /// Over a veth pair, created for the run.
    Lab,
    /// Through a network interface whose frames come back by themselves: a loopback plug or a reflector.
    Port {
        /// Name of the interface.
        interface: String,
        /// Receive queue on which the frames come back.
        queue: u32,
        /// Network namespace of the interface, as `ip netns list` shows it; `None` means the namespace of this process.
        namespace: Option<String>,
        /// Destination MAC address of the frames.
        destination: [u8; 6],
    },
}

/// The probe `interrupt` and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interrupt {
    /// Where the frames travel.
    pub bed: Bed,
    /// How the receiving thread waits for a frame.
    pub wait: Wait,
    /// CPU of the receiving thread.
    pub cpu: usize,
    /// CPU of the sending thread. With [`Bed::Port`] it is unused: one thread on `cpu` sends and receives.
    pub sender: usize,
    /// SCHED_FIFO priority of the measuring threads, 1 to 99. `None` measures in the normal class (SCHED_OTHER).
    pub priority: Option<u8>,
    /// Time from one frame to the next.
    pub interval: Nanos,
    /// Duration of the measurement.
    pub duration: Nanos,
    /// Load on the host during the measurement, such as `none` or `cpu`: a label that is copied to [`Conditions`].
    pub load: String,
}

/// Results of the threads.
struct Ran {
    legs: Legs,
    sent: u64,
    /// Number of warm-up frames sent before those that count.
    warm_up: u64,
    lost: u64,
    missed: u64,
    over: Option<(Instant<Monotonic>, Nanos)>,
    began: Instant<Monotonic>,
}

impl Probe for Interrupt {
    fn counter(&self) -> Counter {
        let stamp = self.stamped_by();
        Counter {
            counts: format!(
                "from the clock reading before the call that sends to the stamp of {stamp} on arrival, and from there \
                 to the first clock reading of the thread that has the frame; CLOCK_MONOTONIC, software stamps"
            ),
            resolution_ns: 1,
            highest_ns: HIGHEST_NS,
            blind_spots: vec![
                "the next frame is sent only after the last one came back or was given up; frames due in the meantime count as skipped and have no sample"
                    .into(),
                "veth has no hardware, so the delays of a NIC (moderation, DMA, interrupt delivery) are not included".into(),
            ],
        }
    }

    fn run(&self, control: &Control) -> Result<Measured, Error> {
        self.check()?;
        let observation = Observation::begin(control, &self.cpus())?;
        let overhead = vec![reading_the_clock("reading the clock; each part ends with one reading")];
        let causes = if control.fail_over.is_some() { Causes::Auto } else { Causes::None };
        let mut watcher = Watcher::start(&control.root, self.cpu, FAR_NAME, causes);
        let lab = self.bed_up()?;
        let over = AtomicBool::new(false);
        let (conditions, polls, ran) = std::thread::scope(|scope| {
            let (namespace, locked) = (lab.as_ref().map(|guard| guard.namespace("dut")), &observation.memory_locked);
            let (opened, far_mac) = mpsc::channel();
            let shared = Shared { control, over: &over, memory_locked: locked };
            let far = lab.as_ref().map(|_| {
                let body = move || self.far(shared, namespace.as_deref().unwrap_or_default(), &opened);
                scope.spawn(move || shared.ending(body))
            });
            let near_namespace = lab.as_ref().map(|guard| guard.namespace("tx"));
            let near = scope.spawn(move || shared.ending(|| self.near(shared, near_namespace.as_deref(), &far_mac)));
            while !near.is_finished() || far.as_ref().is_some_and(|far| !far.is_finished()) {
                watcher.poll();
                std::thread::sleep(Duration::from_millis(5));
            }
            let near = near.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let far = far.map(|far| far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            // Reports the far end's error first: the near end's error would only be that the far end is missing.
            match (far.transpose()?, near?) {
                (Some((conditions, polls)), (ran, ..)) => Ok::<_, Error>((conditions, polls, ran)),
                (None, (ran, conditions, polls)) => Ok((conditions, polls, ran)),
            }
        })?;
        drop(lab);
        let duration = LinuxCpu.now().since(ran.began).unwrap_or(Nanos::ZERO);
        self.measured(control, observation, (conditions, polls, ran, duration), overhead, &mut watcher)
    }
}

/// What both threads share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    control: &'a Control,
    over: &'a AtomicBool,
    memory_locked: &'a Reading<bool>,
}

impl Shared<'_> {
    /// Runs one thread's part, and signals the end of the run when it returns.
    fn ending<T>(self, part: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let result = part();
        self.over.store(true, Ordering::Relaxed);
        result
    }
    fn is_over(self) -> bool {
        self.over.load(Ordering::Relaxed) || self.control.stopped()
    }
}

/// Name of the receiving thread, which identifies it in the scheduler's events.
const FAR_NAME: &str = "apus-irq-far";

impl Interrupt {
    /// Creates a probe for a veth pair, with the receiver on `cpu` and the sender on `sender`: normal scheduling class,
    /// one frame every 350 us (as in the interrupt-mode DPDK slides, 2017), for one second.
    pub fn new(wait: Wait, cpu: usize, sender: usize) -> Self {
        Self {
            bed: Bed::Lab,
            wait,
            cpu,
            sender,
            priority: None,
            interval: Nanos::from_micros(350),
            duration: Nanos::from_secs(1),
            load: "none".into(),
        }
    }

    /// Runs only the far end, for another tester at the near end. It sends back each frame that arrives on the
    /// interface `dut0` in the network namespace `namespace`, until `control` stops it. When it is ready, it sends its
    /// MAC address to `opened`, or `None` if it uses a UDP socket, which needs no MAC address.
    pub fn reflect(
        &self,
        control: &Control,
        namespace: &str,
        opened: &mpsc::Sender<Option<[u8; 6]>>,
    ) -> Result<(), Error> {
        self.check()?;
        let memory_locked = Reading::unknown("handled by another thread");
        let shared = Shared { control, over: &AtomicBool::new(false), memory_locked: &memory_locked };
        self.far(shared, namespace, opened).map(drop)
    }

    fn check(&self) -> Result<(), Error> {
        if self.bed == Bed::Lab && self.wait.never_sleeps() && self.cpu == self.sender {
            return Err(Error::invalid(
                format!("a receiver that waits by {} on the CPU of the sender, {}", self.wait, self.cpu),
                "it would keep the sender from running; give them different CPUs",
            ));
        }
        if self.interval < SHORTEST_INTERVAL {
            let why = format!("expected at least {SHORTEST_INTERVAL}");
            return Err(Error::invalid(format!("an interval of {}", self.interval), why));
        }
        if self.wait == Wait::Suspend && self.bed != Bed::Lab {
            return Err(Error::lacking(
                "suspend interrupts on a port",
                "an AF_XDP socket in copy mode does not know its NAPI instance, and a UDP socket has no address on the port",
                "omit --port to measure it in the lab, or use --wait block or busy on the port",
            ));
        }
        Ok(())
    }

    fn cpus(&self) -> Vec<usize> {
        match self.bed {
            Bed::Lab if self.cpu != self.sender => vec![self.cpu, self.sender],
            _ => vec![self.cpu],
        }
    }

    fn over_udp(&self) -> bool {
        self.bed == Bed::Lab && matches!(self.wait, Wait::Busy | Wait::Suspend)
    }

    fn stamped_by(&self) -> &'static str {
        if self.over_udp() { "the stack" } else { "XDP" }
    }

    fn variant(&self) -> String {
        match &self.bed {
            Bed::Lab if self.cpu == self.sender => format!("{}, right CPU", self.wait),
            Bed::Lab => format!("{}, wrong CPU", self.wait),
            Bed::Port { interface, .. } => format!("{}, {interface}", self.wait),
        }
    }

    /// Creates the lab, if one is needed.
    fn bed_up(&self) -> Result<Option<Guard>, Error> {
        if self.bed != Bed::Lab {
            return Ok(None);
        }
        let lab = Lab::pair(&format!("probe{}", std::process::id()));
        let lab = if self.over_udp() {
            lab.address("tx", "tx0", *NEAR.ip(), 24).address("dut", "dut0", *FAR.ip(), 24)
        } else {
            lab
        };
        Ok(Some(lab.up()?))
    }

    /// The thread of the far end: reports its address when it is ready, and then sends back each frame that arrives.
    fn far(
        &self,
        shared: Shared<'_>,
        namespace: &str,
        opened: &mpsc::Sender<Option<[u8; 6]>>,
    ) -> Result<(Conditions, Option<bool>), Error> {
        lab::enter(namespace)?;
        let mut end = if self.over_udp() {
            End::Udp(UdpEnd::open("dut0", FAR, NEAR, self.wait)?)
        } else {
            End::Xsk(Box::new(XskEnd::open("dut0", 0, self.wait)?), [0; 6])
        };
        Place { cpu: self.cpu, priority: self.priority, slack: Nanos::from_nanos(1) }.take(FAR_NAME)?;
        let conditions = self.conditions(shared);
        // If the receiver is gone, the measurement is over.
        let _ = opened.send(end.mac());
        while !shared.is_over() {
            end.serve(LinuxCpu.now() + LOOK)?;
        }
        Ok((conditions, end.polls_driver()))
    }

    /// The thread of the near end: sends, waits for the answer, and keeps the samples.
    fn near(
        &self,
        shared: Shared<'_>,
        namespace: Option<&str>,
        far_mac: &mpsc::Receiver<Option<[u8; 6]>>,
    ) -> Result<(Ran, Conditions, Option<bool>), Error> {
        let mut end = match &self.bed {
            Bed::Lab => {
                let Ok(mac) = far_mac.recv_timeout(OPEN_WITHIN) else {
                    return Err(Error::lacking("open the far end", "it did not open", "see its own error"));
                };
                namespace.map_or(Ok(()), lab::enter)?;
                // A receiver on this CPU could not run while this thread busy-loops.
                let wait = if self.cpu == self.sender { Wait::Block } else { Wait::Spin };
                match mac {
                    Some(mac) => End::Xsk(Box::new(XskEnd::open("tx0", 0, wait)?), mac),
                    None => End::Udp(UdpEnd::open("tx0", NEAR, FAR, wait)?),
                }
            }
            Bed::Port { interface, queue, namespace, destination } => {
                namespace.as_deref().map_or(Ok(()), lab::enter)?;
                End::Xsk(Box::new(XskEnd::open(interface, *queue, self.wait)?), *destination)
            }
        };
        let (cpu, name) = if self.bed == Bed::Lab { (self.sender, "apus-irq-near") } else { (self.cpu, FAR_NAME) };
        // Uses a lower priority than a receiver on the same CPU, so that the receiver runs as soon as it is woken.
        let lower = u8::from(self.bed == Bed::Lab && self.cpu == self.sender);
        let priority = self.priority.map(|priority| priority.saturating_sub(lower).max(1));
        Place { cpu, priority, slack: Nanos::from_nanos(1) }.take(name)?;
        let conditions = self.conditions(shared);
        let spins = self.bed == Bed::Lab && self.cpu != self.sender || self.wait == Wait::Spin;
        let ran = self.exchange(shared, &mut end, spins)?;
        Ok((ran, conditions, end.polls_driver()))
    }

    fn conditions(&self, shared: Shared<'_>) -> Conditions {
        Conditions::of_this_thread(&shared.control.root, &self.cpus(), shared.memory_locked, &self.load)
    }

    fn exchange(&self, shared: Shared<'_>, end: &mut End, spins: bool) -> Result<Ran, Error> {
        let mut cpu = LinuxCpu;
        let began = cpu.now();
        let mut ran = Ran { legs: Legs::default(), sent: 0, warm_up: 0, lost: 0, missed: 0, over: None, began };
        let mut due = began;
        for sequence in 0u32.. {
            let now = cpu.now();
            due = due + self.interval;
            while due < now {
                due = due + self.interval;
                ran.missed += u64::from(sequence > WARM_UP);
            }
            if shared.is_over() || due > began + self.duration {
                break;
            }
            if spins {
                cpu.pause_until(due);
            } else {
                cpu.sleep_until(due);
            }
            let counts = sequence >= WARM_UP;
            ran.sent += u64::from(counts);
            ran.warm_up += u64::from(!counts);
            let back = if end.send(sequence) { end.back(sequence, LinuxCpu.now() + LOST_AFTER)? } else { None };
            let Some(Back { stamps, arrived, picked }) = back else {
                ran.lost += u64::from(counts);
                continue;
            };
            if !counts || ran.legs.back(&stamps, arrived, picked).is_none() {
                continue;
            }
            // The measured wake-up is at the far end, or here if there is no far end.
            let (from, to) =
                if stamps.far_picked != 0 { (stamps.far_arrived, stamps.far_picked) } else { (arrived, picked) };
            let from = Instant::from_nanos(from);
            let late = Instant::from_nanos(to).since(from).unwrap_or(Nanos::ZERO);
            shared.control.show(late);
            if shared.control.is_over(late) {
                ran.over = Some((from, late));
                break;
            }
        }
        Ok(ran)
    }

    fn measured(
        &self,
        control: &Control,
        observation: Observation,
        (mut conditions, polls, ran, duration): (Conditions, Option<bool>, Ran, Nanos),
        overhead: Vec<Overhead>,
        watcher: &mut Watcher,
    ) -> Result<Measured, Error> {
        let seen = observation.end(&mut conditions);
        let mut marks = seen.marks;
        let stamp = self.stamped_by();
        let terms = ran.legs.terms(stamp, seen.refused.as_deref());
        marks.extend(terms.iter().filter_map(|term| suspicion(&term.name, &term.raw)));
        let asked = matches!(self.wait, Wait::Busy | Wait::Suspend);
        let polls_driver = match polls {
            _ if !asked => Reading::unknown("not requested"),
            Some(effect) => Reading::known(effect),
            None => Reading::unknown("too few frames arrived to judge"),
        };
        if asked && polls != Some(true) {
            let text = format!(
                "{}: the socket does not know its NAPI instance, so polling it does not run the driver; the figures show deferral without busy polling",
                self.variant()
            );
            marks.push(Mark::new(MarkKind::NotAvailable, text));
        }
        if ran.legs.len() == 0 {
            let (sent, warm_up) = (ran.sent, ran.warm_up);
            let text = format!("{}: none of {sent} frames came back after a warm-up of {warm_up}", self.variant());
            marks.push(Mark::new(MarkKind::Suspect, text));
        }
        if let Some(why) = watcher.not_traced() {
            marks.push(Mark::new(MarkKind::NotAvailable, format!("no tracepoints: {why}")));
        }
        let exceeded = ran.over.map(|(from, late)| {
            watcher.collect();
            Exceeded {
                threshold_ns: control.fail_over.unwrap_or(Nanos::ZERO).as_nanos(),
                sample_ns: late.as_nanos(),
                at_ns: from.since(ran.began).unwrap_or(Nanos::ZERO).as_nanos(),
                explained: watcher.explain((from, from + late), false, Nanos::ZERO).to_string(),
            }
        });
        Ok(Measured {
            probe: Name::Interrupt,
            variant: self.variant(),
            settings: self.settings(),
            counter: self.counter(),
            overhead,
            conditions,
            duration_ns: Some(duration.as_nanos()),
            interrupted: control.stopped(),
            terms,
            detail: Detail::Interrupt(InterruptDetail {
                bed: match &self.bed {
                    Bed::Lab => "lab".into(),
                    Bed::Port { interface, queue, .. } => format!("{interface}:{queue}"),
                },
                wait: self.wait.into(),
                stamped_by: stamp.trim_start_matches("the ").into(),
                sender_cpu: if self.bed == Bed::Lab { self.sender } else { self.cpu },
                receiver_cpu: self.cpu,
                sent: ran.sent,
                received: ran.legs.len(),
                lost: ran.lost,
                missed: ran.missed,
                unusable: ran.legs.unusable,
                sum_of_medians_ns: ran.legs.sum_of_medians().map(Nanos::as_nanos),
                polls_driver,
            }),
            exceeded,
            marks,
        })
    }

    fn settings(&self) -> BTreeMap<String, String> {
        settings(
            self.priority,
            [
                ("wait", self.wait.to_string()),
                ("cpu", self.cpu.to_string()),
                ("sender", self.sender.to_string()),
                ("interval", self.interval.to_string()),
                ("duration", self.duration.to_string()),
            ],
        )
    }
}
