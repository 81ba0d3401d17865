//! `apus power steer` in a guest, killed before each operation that changes something.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::knob::{Access, Act, CpuLatency, Domain, Gate, ResumeLatency};
use host::transaction::{Steered, Target};
use steer::Actuator;
use steer::frequency::place::{Highest, Place, Shared, Way};
use units::{Hertz, Simulated};
use vmlab::harness::{Alone, ok};
use vmlab::{CSTATES, PSTATES, Vm};

pub(crate) const ALONE: [Alone; 1] = [("power_steer::killed_before_each_operation", killed)];

/// What the test binary is told in the guest: the number of the operation before which it kills itself.
pub(crate) const KILL_BEFORE: &str = "APUS_TEST_KILL_BEFORE";

const CPUS: &str = "/sys/devices/system/cpu";

fn hertz(ghz: f64) -> Hertz {
    Hertz::new((ghz * 1e9).round() as u64)
}

fn vm() -> Vm {
    ok(Vm::new()).cpus(2).pstates(&PSTATES).cstates(&CSTATES).firmware().program(env!("CARGO_BIN_EXE_apus"))
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
    let place = |cpu, way| Place::new(Domain::read(&access, cpu).unwrap(), way).unwrap();
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
