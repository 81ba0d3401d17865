//! `apus power steer` in a guest: P-states that slow down the virtual CPU that forwards, a firmware limit that changes, and
//! a kill before each operation.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use host::knob::{Access, Act, CpuLatency, Domain, Gate, ResumeLatency};
use host::transaction::{Steered, Target};
use serde_json::Value as Json;
use steer::Actuator;
use steer::frequency::place::{Highest, Place, Shared, Way};
use units::{Hertz, Simulated};
use vmlab::harness::{Alone, ok};
use vmlab::{CSTATES, Guest, Nic, PSTATES, PstateWrite, Vm, Wire};

use crate::processor;

pub(crate) const ALONE: [Alone; 1] = [("power_steer::killed_before_each_operation", killed)];

/// For a machine that does nothing else, and a release build.
pub(crate) const FIGURES: [Alone; 1] =
    [("power_steer::a_goal_is_held_at_lower_frequencies_and_a_firmware_limit_is_obeyed", steered)];

/// What the test binary is told in the guest: the number of the operation before which it kills itself.
pub(crate) const KILL_BEFORE: &str = "APUS_TEST_KILL_BEFORE";

const CPUS: &str = "/sys/devices/system/cpu";
/// Much longer than a goal on hardware: in emulation, `apus power steer` needs up to 20 ms to see a load and to react.
const GOAL: &str = "p99=20ms";
const HIGHEST: u64 = 3_000_000_000;
const ATTEMPTS: usize = 3;

fn hertz(ghz: f64) -> Hertz {
    Hertz::new((ghz * 1e9).round() as u64)
}

fn vm() -> Vm {
    // CPU 1 does nothing but forward.
    let vm = ok(Vm::new()).cpus(2).pstates(&PSTATES).cstates(&CSTATES).firmware();
    vm.kernel_argument("isolcpus=domain,1 irqaffinity=0").program(env!("CARGO_BIN_EXE_apus"))
}

/// How frames arrive. 100 % is the rate that CPU 1 can forward at its highest frequency.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// This share of the rate, evenly spaced.
    Even(f64),
    /// 10, 30, 50, 20 and 40 %, 6 s each, evenly spaced.
    Steps,
    /// 30 %, as a Poisson process.
    Poisson,
    /// 50 % for 2 s, and nothing for 2 s.
    OnOff,
}

impl Load {
    fn share(self, seconds: f64) -> f64 {
        match self {
            Self::Even(share) => share,
            Self::Steps => [0.1, 0.3, 0.5, 0.2, 0.4][(seconds / 6.0) as usize % 5],
            Self::Poisson => 0.3,
            Self::OnOff if ((seconds / 2.0) as u64).is_multiple_of(2) => 0.5,
            Self::OnOff => 0.0,
        }
    }

    /// Sends until `end`, and returns the number of frames. Frames that are more than 5 ms overdue are not sent.
    fn send(self, wire: &Wire, capacity: f64, end: &AtomicBool) -> u64 {
        processor::ahead();
        let (begin, frame) = (Instant::now(), wire.silent_frame());
        let (mut due, mut sent, mut random) = (0.0, 0, 7);
        while !end.load(Ordering::Relaxed) {
            let now = begin.elapsed().as_secs_f64();
            if now < due {
                std::thread::sleep(Duration::from_secs_f64(due - now));
                continue;
            }
            due = due.max(now - 0.005);
            let rate = self.share(due) * capacity;
            if rate == 0.0 {
                due += 0.001;
                continue;
            }
            ok(wire.send(&frame));
            sent += 1;
            due += if matches!(self, Self::Poisson) { -uniform(&mut random).ln() / rate } else { 1.0 / rate };
        }
        sent
    }
}

/// A random number above 0 and at most 1, by splitmix64.
pub(crate) fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON
}

/// Runs `work` while frames are sent and received, and while CPU 1 has the speed that the guest requests. Returns also the
/// share of the frames that came back, and the requests for CPU 1.
fn under<T>(
    guest: &Guest,
    tid: u32,
    load: Load,
    capacity: f64,
    work: impl FnOnce() -> T,
) -> (T, f64, Vec<(Instant, PstateWrite)>) {
    let (end, wire) = (AtomicBool::new(false), guest.wire(0));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| load.send(wire, capacity, &end));
        let receiver = scope.spawn(|| {
            let mut received = 0_u64;
            while !end.load(Ordering::Relaxed) {
                received += u64::from(ok(wire.receive(Duration::from_millis(100))).is_some());
            }
            received
        });
        let (result, mut writes) = processor::while_obeying(guest, tid, || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            end.store(true, Ordering::Relaxed);
            result
        });
        let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
        writes.retain(|(_, write)| write.cpu == 1);
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, received as f64 / sent as f64, writes)
    })
}

/// Runs `apus power steer` for `seconds`, and returns its document.
fn steer(guest: &Guest, options: &str, seconds: u64) -> Json {
    let command = format!("apus power steer --instance lab --goal {GOAL} {options} --duration {seconds}s --json");
    let output = ok(guest.output(&command));
    assert!(output.status <= 1, "{command}: {output:?}");
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(document["restored"], true, "{document:#}");
    document
}

fn number(of: &Json) -> f64 {
    of.as_f64().unwrap_or_else(|| panic!("{of} is no number"))
}

/// The mean of the requested frequencies over `seconds`, weighted by time, as a share of the highest.
pub(crate) fn mean(from: Instant, seconds: f64, writes: &[(Instant, PstateWrite)]) -> f64 {
    let (mut at, mut frequency, mut sum) = (0.0, HIGHEST, 0.0);
    for (when, write) in writes {
        let when = when.duration_since(from).as_secs_f64().min(seconds);
        sum += frequency as f64 * (when - at);
        (at, frequency) = (when, write.frequency.as_hertz());
    }
    (sum + frequency as f64 * (seconds - at)) / seconds / HIGHEST as f64
}

fn steered() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("needs root (SCHED_FIFO)");
    }
    if cfg!(debug_assertions) {
        return testkit::skip(
            "needs a release build: without optimization, apus reacts too slowly in an emulated guest",
        );
    }
    let guest = ok(vm().nic(Nic::Virtio).boot());
    let tid = processor::thread_of_cpu_1(&guest);
    ok(guest.run(&format!(
        "for p in {CPUS}/cpufreq/policy*; do echo performance >$p/scaling_governor; done; ip link set eth0 up; ulimit -l unlimited
         (apus run macswap eth0 --mode poll --cpu 1 --name lab --filter ethertype=0x88b5 >/tmp/run 2>&1) >/dev/null 2>&1 &"
    )));
    if let Err(error) = guest.wait_until("apus top --json 2>/dev/null | grep -q '\"lab\"'", 100) {
        panic!("{error}\n{}", ok(guest.run("cat /tmp/run")));
    }
    // The rate that CPU 1 can forward, from its busyness at 40 % of the last estimate. A frame takes less time at a higher
    // rate, so the first estimate is not exact.
    let mut capacity = 4_000.0;
    for _ in 0..3 {
        let fixed = "--policy fixed:3GHz";
        let (document, ..) = under(&guest, tid, Load::Even(0.4), capacity, || steer(&guest, fixed, 4));
        let cpu = &document["cpus"][0];
        let rate = number(&cpu["packets"]) * 1e9 / number(&document["duration_ns"]);
        capacity = rate / number(&cpu["busy_ratio"]);
    }
    println!("CPU 1 can forward {capacity:.0} frames a second at 3 GHz");
    for load in [Load::Steps, Load::Poisson, Load::OnOff] {
        // This machine's own host may take its CPUs away for longer than the goal.
        let held = (0..ATTEMPTS).any(|_| changing(&guest, tid, load, capacity));
        assert!(held, "{load:?}: the goal was missed in {ATTEMPTS} attempts");
    }
    firmware(&guest, tid, capacity);
}

/// Steers under `load`, after a run at the highest frequency. Returns whether both held the goal. The mean frequency is at
/// least 35 % lower in any case.
fn changing(guest: &Guest, tid: u32, load: Load, capacity: f64) -> bool {
    let (highest, ..) = under(guest, tid, load, capacity, || steer(guest, "--policy fixed:3GHz", 12));
    let ((document, began, lasted), returned, writes) = under(guest, tid, load, capacity, || {
        let began = Instant::now();
        (steer(guest, "", 30), began, began.elapsed())
    });
    let (fast, cpu, domain) = (&highest["cpus"][0], &document["cpus"][0], &document["domains"][0]);
    let seconds = lasted.as_secs_f64();
    let (outside, inside) = (mean(began, seconds, &writes), number(&cpu["mean_frequency_hz"]) / HIGHEST as f64);
    println!(
        "{load:?}: busy {} at 3 GHz; mean {outside:.3} of 3 GHz seen from outside, {inside:.3} inside; {} of {} late ({} of {} at \
         3 GHz); {} changes a second; {:.1} % came back",
        fast["busy_ratio"],
        cpu["late"],
        cpu["judged"],
        fast["late"],
        fast["judged"],
        domain["changes_per_second"],
        returned * 100.0
    );
    let asked: Vec<u64> = writes.iter().map(|(_, write)| write.frequency.as_hertz() / 1_000_000).collect();
    println!("{asked:?}");
    assert!((0.1..=0.55).contains(&number(&fast["busy_ratio"])), "not the intended load: {fast:#}");
    assert!(outside <= 0.65 && inside <= 0.65, "{load:?}: {outside} {inside}");
    assert!((outside - inside).abs() < 0.05, "{load:?}: {outside} {inside}");
    // Each change arrives, and so does the last one, to the highest frequency, when the governor `performance` is restored.
    let restores = usize::from(cpu["frequency_hz"] != HIGHEST);
    assert_eq!((asked.len(), asked.last()), (domain["changes"].as_u64().unwrap() as usize + restores, Some(&3_000)));
    assert!(returned > 0.99, "{returned}");
    [fast, cpu].iter().all(|cpu| cpu["verdict"] == "held")
}

/// The firmware's limit is lowered while the command steers, and raised again: both are said, and no request exceeds the
/// limit.
fn firmware(guest: &Guest, tid: u32, capacity: f64) {
    let (said, _, writes) = under(guest, tid, Load::Even(0.5), capacity, || {
        ok(guest.run(&format!(
            "rm -f /tmp/status; (apus power steer --instance lab --goal {GOAL} >/tmp/said 2>&1 & echo $! >/tmp/pid; wait $!; echo $? >/tmp/status) >/dev/null 2>&1 &"
        )));
        let wait_for = |words: &str| {
            if let Err(error) = guest.wait_until(&format!("grep -q '{words}' /tmp/said"), 200) {
                panic!("{error}\n{}", ok(guest.run("cat /tmp/said")));
            }
            Instant::now()
        };
        wait_for("load has fallen");
        ok(guest.set_firmware_limit(1, hertz(1.2)));
        let limited = wait_for("the firmware limits the frequency to 1.2GHz");
        std::thread::sleep(Duration::from_secs(3));
        let until = Instant::now();
        ok(guest.set_firmware_limit(1, hertz(3.0)));
        wait_for("the firmware now allows up to 3GHz");
        std::thread::sleep(Duration::from_secs(5));
        ok(guest.run("kill -TERM $(cat /tmp/pid)"));
        ok(guest.wait_until("[ -s /tmp/status ]", 300));
        (ok(guest.run("cat /tmp/said")), limited, until)
    });
    let (said, limited, until) = said;
    println!("{said}");
    assert!(said.contains("The original settings are restored."), "{said}");
    let above = |from: Instant, to: Option<Instant>| {
        let within = writes.iter().filter(|(at, _)| *at > from && to.is_none_or(|to| *at < to));
        within.filter(|(_, write)| write.frequency > hertz(1.2)).count()
    };
    assert_eq!(above(limited, Some(until)), 0, "{writes:?}");
    assert!(above(until, None) > 0, "frequencies above the old limit are used again: {writes:?}");
    // Each request that it printed arrived, in this order. The kernel itself lowers the frequency to a new limit, and raises
    // it again to the last request.
    let told = said.lines().filter_map(|line| line.split_once("CPU 1: ")?.1.split_once(" (")?.0.parse::<Hertz>().ok());
    let mut told: Vec<Hertz> = told.skip(1).collect();
    let mut arrived: Vec<Hertz> = writes.iter().map(|(_, write)| write.frequency).collect();
    told.push(hertz(3.0));
    told.dedup();
    arrived.dedup();
    let mut rest = arrived.iter();
    assert!(told.iter().all(|frequency| rest.any(|other| other == frequency)), "{told:?} {arrived:?}");
    assert!(arrived.len() <= told.len() + 2, "{told:?} {arrived:?}");
}

/// Kills the process before its N-th operation.
struct KillAt(AtomicU32);

impl Gate for KillAt {
    fn before(&self, _: &Act) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// In the guest: steers CPU 0 by its limits and CPU 1 by its speed and idle latency, as `apus power steer` does, and dies
/// before operation `step`. Comes to its end if there are fewer.
pub(crate) fn killed_before(step: &OsStr) -> ExitCode {
    let left = AtomicU32::new(step.to_str().unwrap().parse().unwrap());
    let access = Access::live().unwrap().with_gate(Arc::new(KillAt(left)));
    let place = |cpu, way| Place::new(Domain::read(&access, cpu).unwrap(), way, &access).unwrap();
    let places = [place(0, Way::Limits), place(1, Way::Setspeed)];
    let settings = places.iter().map(|place| Target::from(place.settings()[0].clone()));
    let settings: Vec<Target> = settings.chain([CpuLatency::new(1).into()]).collect();
    let mut steered = Steered::new(&access, "power steer", &settings, "a test", "0").unwrap();
    let latency = ResumeLatency::AtMost(units::Nanos::from_micros(50));
    assert!(steered.steer(2, &latency.value()).unwrap().is_good());
    let shared: Shared = Arc::new(std::sync::Mutex::new(steered));
    let mut hands: Vec<_> = places
        .into_iter()
        .enumerate()
        .flat_map(|(number, place)| Highest::of(place, &access, Some((shared.clone(), number)), 1))
        .collect();
    for ghz in [1.8, 0.8, 2.6] {
        for hand in &mut hands {
            let acted = Actuator::<Simulated>::set(hand, units::Instant::ORIGIN, &hertz(ghz));
            assert!(matches!(acted, steer::Acted::InForce), "{acted:?}");
        }
    }
    drop(hands);
    let steered = Arc::into_inner(shared).unwrap().into_inner().unwrap();
    assert!(steered.release().unwrap().unwrap().closed);
    ExitCode::SUCCESS
}

fn killed() {
    let this = std::env::current_exe().unwrap();
    let guest = ok(vm().program(&this).boot());
    let name = this.file_name().unwrap().to_str().unwrap().to_owned();
    let output = ok(guest.output_within(
        &format!(
            "cd {CPUS}
             echo performance >cpufreq/policy0/scaling_governor; echo powersave >cpufreq/policy1/scaling_governor
             echo 1200000 >cpufreq/policy0/scaling_min_freq; echo 2600000 >cpufreq/policy1/scaling_max_freq
             echo 400 >cpu1/power/pm_qos_resume_latency_us
             state() {{ grep -H '' cpufreq/policy?/scaling_[gms][oapie][vnxt]* cpu?/power/pm_qos_resume_latency_us; }}
             before=$(state); step=1; changed=0
             while [ $step -lt 1000 ]; do
                 {KILL_BEFORE}=$step {name} >/tmp/child 2>&1; status=$?
                 if [ $status = 0 ]; then
                     [ \"$(state)\" = \"$before\" ] || {{ echo released; state; exit 1; }}
                     echo $step $changed; exit 0
                 fi
                 [ $status = 137 ] || {{ cat /tmp/child; exit $status; }}
                 [ \"$(state)\" = \"$before\" ] || changed=$((changed+1))
                 apus tune rollback >/tmp/rollback 2>&1
                 [ \"$(state)\" = \"$before\" ] || {{ echo killed before $step; state; cat /tmp/rollback; exit 1; }}
                 step=$((step+1))
             done
             exit 2"
        ),
        Duration::from_secs(900),
    ));
    assert_eq!(output.status, 0, "{output:?}");
    let (steps, changed) = output.stdout.trim().split_once(' ').unwrap();
    println!("{steps} operations, {changed} of the kills left something changed");
    assert!(steps.parse::<u32>().unwrap() > 40 && changed.parse::<u32>().unwrap() > 20, "{output:?}");
    // The next command that steers restores what a killed one left, before it begins.
    ok(guest
        .run(&format!("{KILL_BEFORE}={} {name}; apus power steer --cpus 1 --policy fixed:1.2GHz --duration 1s", 40)));
    let state = ok(guest.run(&format!("cd {CPUS}/cpufreq; cat policy?/scaling_governor policy?/scaling_m??_freq")));
    assert_eq!(state, "performance\npowersave\n3000000\n1200000\n2600000\n800000");
}
