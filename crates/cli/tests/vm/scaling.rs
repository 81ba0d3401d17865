//! rte_power's `scale` and libapus-dpdk in the same forwarder (`benches/dpdk_loop.c`), in a guest whose P-states slow down the
//! virtual CPU that forwards: how late frames are, what CPU time the forwarder takes, and which frequencies the processor
//! was asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vmlab::harness::{Alone, ok};
use vmlab::{Guest, PSTATES, PstateWrite, Wire};

use crate::{dpdk, power_steer, processor};

/// For a machine that does nothing else.
pub(crate) const FIGURES: [Alone; 1] = [("scaling::libapus_against_scale", against_scale)];

/// The emulated CPU is about as many times slower than a real one: gaps and goals are those of `benches/dpdk_loop.py` times
/// this, and so is the time between two judgements of the load (`crates/capi/dpdk/frequency.c`), [`JUDGED_EVERY_MS`].
const SLOWER: u32 = 50;
const JUDGED_EVERY_MS: u32 = 10;

/// Kinds of traffic, with their mean gaps on hardware.
const TRAFFIC: [(&str, Duration, Spacing); 4] = [
    ("poisson2k", Duration::from_micros(500), Spacing::Poisson),
    ("poisson20k", Duration::from_micros(50), Spacing::Poisson),
    ("poisson100k", Duration::from_micros(10), Spacing::Poisson),
    ("each350us", Duration::from_micros(350), Spacing::Even),
];

/// Goals at p99 on hardware, and the CPU time that libapus may take, as a share of that of `scale`.
const GOALS: [(Duration, f64); 2] = [(Duration::from_micros(60), 0.8), (Duration::from_micros(120), 0.6)];

/// Before it is measured, a forwarder may learn for this long; and it is measured for this long.
const LEARNS: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(8);
/// This machine's own host may take its CPUs away.
const ATTEMPTS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Spacing {
    Even,
    Poisson,
}

/// A forwarder, and how it is started.
struct Scheme {
    name: String,
    program: &'static str,
    environment: String,
}

impl Scheme {
    fn scale() -> Self {
        Self { name: "scale".into(), program: "dpdk-scale", environment: String::new() }
    }

    fn libapus(goal: Duration, follows: bool) -> Self {
        let frequency = if follows { "APUS_FREQUENCY=1" } else { "" };
        Self {
            name: format!("libapus {goal:?}{}", if follows { ", frequency" } else { "" }),
            program: "dpdk-apus",
            environment: format!("APUS_GOAL=p99={}us {frequency}", goal.as_micros()),
        }
    }
}

/// What a run showed.
struct Run {
    /// From each frame to its answer, sorted.
    times: Vec<Duration>,
    sent: usize,
    /// CPU time of the forwarder, as a share of the time.
    cpu: f64,
    /// Frequencies that the processor was asked for on CPU 1, in MHz.
    asked: Vec<u64>,
    /// Their mean, weighted by time, as a share of the highest.
    mean: f64,
}

impl Run {
    fn quantile(&self, of: f64) -> Duration {
        self.times.get((self.times.len() as f64 * of) as usize).copied().unwrap_or(Duration::MAX)
    }

    fn holds(&self, goal: Duration) -> bool {
        self.quantile(0.99) <= goal && self.times.len() == self.sent
    }
}

/// Builds the forwarder for both schemes, with libapus and libapus-dpdk in it. `None` if something is missing.
fn programs(folder: &Path) -> Option<[PathBuf; 2]> {
    let library = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("libcapi.a");
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output().ok()?;
    if !flags.status.success() || !library.is_file() {
        return None;
    }
    let flags = String::from_utf8(flags.stdout).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let capi = root.join("crates/capi");
    let ours = ["dpdk/apus_dpdk.c", "dpdk/lcore.c", "dpdk/frequency.c"].map(|file| capi.join(file));
    Some([("SCALE", "dpdk-scale"), ("APUS", "dpdk-apus")].map(|(scheme, name)| {
        let out = folder.join(name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-DALLOW_EXPERIMENTAL_API"]).arg(format!("-DSCHEME={scheme}")).arg("-o").arg(&out);
        cc.arg("-I").arg(capi.join("include")).arg("-I").arg(capi.join("dpdk")).arg(root.join("benches/dpdk_loop.c"));
        if scheme == "APUS" {
            cc.arg(format!("-DJUDGED_EVERY_MS={}", JUDGED_EVERY_MS * SLOWER)).args(&ours).arg(&library);
        }
        let built =
            cc.args(flags.split_whitespace()).args(["-lm", "-lpthread", "-ldl"]).output().expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        out
    }))
}

/// Sends frames until `end`, and notes when.
fn send(wire: &Wire, (gap, spacing): (Duration, Spacing), end: &AtomicBool, sent: &Mutex<Vec<Instant>>) {
    processor::ahead();
    let (mut frame, mut due, mut random) = (wire.silent_frame(), Instant::now(), 7);
    while !end.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < due {
            std::thread::sleep(due - now);
            continue;
        }
        let number = {
            let mut sent = sent.lock().unwrap();
            sent.push(now);
            sent.len() as u64 - 1
        };
        frame[14..22].copy_from_slice(&number.to_be_bytes());
        ok(wire.send(&frame));
        due = now.max(due)
            + match spacing {
                Spacing::Even => gap,
                Spacing::Poisson => gap.mul_f64(-power_steer::uniform(&mut random).ln()),
            };
    }
}

/// Receives answers until `end`, and notes their numbers and when they came.
fn receive(wire: &Wire, end: &AtomicBool) -> Vec<(usize, Instant)> {
    processor::ahead();
    let mut came = Vec::new();
    while !end.load(Ordering::Relaxed) {
        if let Some(frame) = ok(wire.receive(Duration::from_millis(100)))
            && let Some(number) = frame.get(14..22)
        {
            came.push((u64::from_be_bytes(number.try_into().unwrap()) as usize, Instant::now()));
        }
    }
    came
}

struct Lab<'a> {
    guest: &'a Guest,
    tid: u32,
    pci: String,
    loading: String,
}

impl Lab<'_> {
    /// CPU time of the forwarder so far.
    fn spent(&self, program: &str) -> Duration {
        let said = ok(self.guest.run(&format!("cat /proc/$(pidof {program})/task/*/schedstat")));
        said.lines().map(|line| Duration::from_nanos(line.split(' ').next().unwrap().parse().unwrap())).sum()
    }

    fn run(&self, scheme: &Scheme, traffic: (Duration, Spacing)) -> Run {
        let Self { guest, tid, pci, loading } = self;
        let Scheme { program, environment, .. } = scheme;
        // The forwarder leaves the governor as rte_power set it.
        ok(guest
            .run("for p in /sys/devices/system/cpu/cpufreq/policy*; do echo performance >$p/scaling_governor; done"));
        ok(guest.pstate_writes());
        ok(guest.run(&format!(
            "rm -f /tmp/status /tmp/said; (env {environment} {program} -l 1 --in-memory -m 96 --no-telemetry \
             --log-level=*:warning --vfio-intr=msi -a {pci} {loading} >/tmp/said 2>&1; echo $? >/tmp/status) >/dev/null 2>&1 &"
        )));
        if let Err(error) = guest.wait_until("grep -q forwarding /tmp/said", 300) {
            panic!("{error}\n{}", ok(guest.run("cat /tmp/said")));
        }
        let wire = guest.wire(0);
        let (end, sent) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let ((measured, came), writes) = processor::while_obeying(guest, *tid, || {
            std::thread::scope(|scope| {
                scope.spawn(|| send(wire, traffic, &end, &sent));
                let receiver = scope.spawn(|| receive(wire, &end));
                let measured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    std::thread::sleep(LEARNS);
                    let (from, then) = (Instant::now(), self.spent(program));
                    std::thread::sleep(MEASURED);
                    let (until, now) = (Instant::now(), self.spent(program));
                    // The last answers.
                    std::thread::sleep(Duration::from_millis(300));
                    (from, until, now - then)
                }));
                end.store(true, Ordering::Relaxed);
                (measured, receiver.join().unwrap())
            })
        });
        let measured = measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ok(guest.run(&format!("kill -TERM $(pidof {program})")));
        ok(guest.wait_until("[ -s /tmp/status ]", 600));
        assert_eq!(ok(guest.run("cat /tmp/status")), "0", "{}", ok(guest.run("cat /tmp/said")));
        let (from, until, cpu) = measured;
        Run::of(&sent.into_inner().unwrap(), &came, (from, until), cpu, writes)
    }
}

impl Run {
    /// Evaluates the frames that were sent within a span of time.
    fn of(
        sent: &[Instant],
        came: &[(usize, Instant)],
        (from, until): (Instant, Instant),
        cpu: Duration,
        mut writes: Vec<(Instant, PstateWrite)>,
    ) -> Self {
        let within = |at: &Instant| (from..until).contains(at);
        let mut times: Vec<Duration> = came
            .iter()
            .filter_map(|&(number, at)| sent.get(number).filter(|at| within(at)).map(|sent| at - *sent))
            .collect();
        times.sort();
        writes.retain(|(_, write)| write.cpu == 1);
        let seconds = (until - from).as_secs_f64();
        let before = writes.iter().rfind(|(at, _)| *at < from).map(|(_, write)| (from, *write));
        let during: Vec<_> = before.into_iter().chain(writes.iter().copied().filter(|(at, _)| within(at))).collect();
        Self {
            times,
            sent: sent.iter().filter(|at| within(at)).count(),
            cpu: cpu.as_secs_f64() / seconds,
            asked: writes.iter().map(|(_, write)| write.frequency.as_hertz() / 1_000_000).collect(),
            mean: power_steer::mean(from, seconds, &during),
        }
    }
}

fn against_scale() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("needs root (SCHED_FIFO)");
    }
    let folder = std::env::temp_dir().join(format!("apus-test-scaling-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (Some(drivers), Some(programs)) = (dpdk::drivers(), programs(&folder)) else {
        return testkit::skip("VM lab: no libdpdk, no DPDK driver net_e1000, or no libcapi.a; cargo build -p capi");
    };
    let vm = programs.iter().fold(dpdk::machine(&drivers).pstates(&PSTATES), |vm, program| vm.program(program));
    let guest = ok(vm.kernel_argument("isolcpus=domain,1 irqaffinity=0").boot());
    let lab = Lab {
        guest: &guest,
        tid: processor::thread_of_cpu_1(&guest),
        pci: dpdk::pci(&guest),
        loading: dpdk::loading(&drivers),
    };
    dpdk::bind(&guest, &lab.pci, "vfio-pci");
    println!(
        "{:<12} {:<26} {:>9} {:>9} {:>6} {:>6} {:>9} {:>8} {:>9}",
        "traffic", "scheme", "p50", "p99", "sent", "lost", "CPU %", "of scale", "frequency"
    );
    let mut missed = Vec::new();
    for (traffic, gap, spacing) in TRAFFIC {
        for attempt in 1..=ATTEMPTS {
            let lost = compare(&lab, traffic, (gap * SLOWER, spacing));
            if lost.is_empty() {
                break;
            }
            if attempt == ATTEMPTS {
                missed.extend(lost);
            }
        }
    }
    drop(guest);
    let _ = fs::remove_dir_all(&folder);
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Runs all schemes under one kind of traffic, one right after the other. Returns what libapus failed to show.
fn compare(lab: &Lab<'_>, traffic: &str, arrivals: (Duration, Spacing)) -> Vec<String> {
    let mut missed = Vec::new();
    let row = |scheme: &Scheme, run: &Run, scale: f64| {
        println!(
            "{traffic:<12} {:<26} {:>6.2} ms {:>6.2} ms {:>6} {:>6} {:>9.1} {:>8.2} {:>9.2}",
            scheme.name,
            run.quantile(0.5).as_secs_f64() * 1e3,
            run.quantile(0.99).as_secs_f64() * 1e3,
            run.sent,
            run.sent.saturating_sub(run.times.len()),
            100.0 * run.cpu,
            run.cpu / scale,
            run.mean
        );
    };
    let peer = Scheme::scale();
    let scale = lab.run(&peer, arrivals);
    row(&peer, &scale, scale.cpu);
    assert!(scale.asked.contains(&800) && scale.asked.contains(&3_000), "{:?}", scale.asked);
    for (goal, share) in GOALS.map(|(goal, share)| (goal * SLOWER, share)) {
        let scheme = Scheme::libapus(goal, false);
        let run = lab.run(&scheme, arrivals);
        row(&scheme, &run, scale.cpu);
        if !run.holds(goal) || scale.holds(goal) && run.cpu > share * scale.cpu {
            missed.push(format!(
                "{traffic}, {}: {:?} at p99, {:.3} of a CPU",
                scheme.name,
                run.quantile(0.99),
                run.cpu
            ));
        }
        assert_eq!(run.asked.iter().find(|mhz| **mhz < 3_000), None, "{}: {:?}", scheme.name, run.asked);
    }
    // Only that its requests arrive: a change of the frequency takes too long here to judge what it saves.
    let scheme = Scheme::libapus(GOALS[1].0 * SLOWER, true);
    let run = lab.run(&scheme, arrivals);
    row(&scheme, &run, scale.cpu);
    assert!(run.asked.iter().any(|mhz| *mhz < 3_000), "{}: {:?}", scheme.name, run.asked);
    missed
}
