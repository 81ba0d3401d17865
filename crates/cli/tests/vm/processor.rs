//! The threads that emulate a guest's CPUs, and a processor that slows CPU 1 down to the frequency that the guest requests.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vmlab::harness::ok;
use vmlab::{Guest, PstateWrite};

/// Time between two checks for new requests.
const LOOK: Duration = Duration::from_millis(2);

/// Time on a CPU so far of each thread of the guest's process, in clock ticks: fields 14 and 15 of its stat
/// (proc_pid_stat(5)).
fn busy(guest: &Guest) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", guest.pid())).unwrap();
    tasks
        .filter_map(|task| {
            let task = task.ok()?;
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, ticks))
        })
        .collect()
}

/// The thread that emulates CPU 1: the one that works while CPU 1 does.
pub(crate) fn thread_of_cpu_1(guest: &Guest) -> u32 {
    let before = busy(guest);
    ok(guest.run("taskset 2 sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'"));
    let after = busy(guest);
    let worked = |(tid, ticks): &(u32, u64)| {
        ticks - before.iter().find(|(other, _)| other == tid).map_or(0, |(_, ticks)| *ticks)
    };
    after.iter().max_by_key(|of| worked(of)).unwrap().0
}

/// The host's CPU on which the guest's CPU 1 runs while it is slowed down, and the one for all other threads.
const HOST_CPU: &str = "1";
const OTHER_HOST_CPU: &str = "0";
/// In each period, a thread of higher priority keeps CPU 1 from running for a share of the time. A bandwidth limit of the
/// scheduler would stop CPU 1 for 12 ms at once, because without high-resolution ticks only the tick enforces it.
const PERIOD: Duration = Duration::from_millis(1);
/// The share of the time for which CPU 1 runs at 3 GHz. Below 1, the rate that loads CPU 1 is one that the rest of the
/// emulation can handle.
const SPEED: f64 = 0.4;

fn sh(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {output:?}");
}

/// Gives this thread a real-time priority, on a CPU of the host.
fn real_time(priority: u8, cpu: &str) {
    let this = rustix::thread::gettid().as_raw_nonzero().to_string();
    sh("taskset", &["-p", "-c", cpu, &this]);
    sh("chrt", &["-f", "-p", &priority.to_string(), &this]);
}

/// Gives this thread a real-time priority, beside the slowed CPU 1.
pub(crate) fn ahead() {
    real_time(40, OTHER_HOST_CPU);
}

/// Leaves to the other threads of [`HOST_CPU`] the share of time that stands for `mhz`, until `mhz` is 0.
fn slow_down(mhz: &AtomicU64) {
    real_time(50, HOST_CPU);
    let mut period = Instant::now();
    loop {
        period = (period + PERIOD).max(Instant::now());
        let share = match mhz.load(Ordering::Relaxed) {
            0 => return,
            mhz => SPEED * mhz as f64 / 3_000.0,
        };
        std::thread::sleep((period - PERIOD.mul_f64(1.0 - share)).saturating_duration_since(Instant::now()));
        while share < 1.0 && Instant::now() < period {
            std::hint::spin_loop();
        }
    }
}

/// Slows down thread `tid`, which emulates CPU 1, to the frequency that the guest requests while `during` runs, beginning
/// with 3 GHz. Returns the requests for all CPUs, and when each was seen.
pub(crate) fn while_obeying<T>(
    guest: &Guest,
    tid: u32,
    during: impl FnOnce() -> T,
) -> (T, Vec<(Instant, PstateWrite)>) {
    let (end, mhz) = (AtomicBool::new(false), AtomicU64::new(3_000));
    for (thread, _) in busy(guest) {
        let cpu = if thread == tid { HOST_CPU } else { OTHER_HOST_CPU };
        sh("taskset", &["-p", "-c", cpu, &thread.to_string()]);
    }
    sh("renice", &["-n", "-20", "-p", &tid.to_string()]);
    std::thread::scope(|scope| {
        scope.spawn(|| slow_down(&mhz));
        let processor = scope.spawn(|| {
            let mut seen = Vec::new();
            loop {
                let last_look = end.load(Ordering::Relaxed);
                let new = ok(guest.pstate_writes());
                if let Some(last) = new.iter().rfind(|write| write.cpu == 1) {
                    mhz.store(last.frequency.as_hertz() / 1_000_000, Ordering::Relaxed);
                }
                seen.extend(new.into_iter().map(|write| (Instant::now(), write)));
                if last_look {
                    return seen;
                }
                std::thread::sleep(LOOK);
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        end.store(true, Ordering::Relaxed);
        let seen = processor.join();
        mhz.store(0, Ordering::Relaxed);
        let seen = seen.unwrap();
        (result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), seen)
    })
}
