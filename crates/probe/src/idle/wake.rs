//! Sleeps until a timer or another CPU ends the sleep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use live::cpu::{Cpu as _, LinuxCpu};
use tester::Random;
use tester::host::Reading;
use units::{Instant, Monotonic, Nanos};

use super::Idle;
use crate::conditions::Conditions;
use crate::place::Place;
use crate::record::Recorder;
use crate::switch::Via;
use crate::switch::way::Way;
use crate::{Control, Error};

/// Variation of the idle times in percent. A constant idle time could be in phase with the kernel's tick, and meet it
/// always or never.
const VARIES_PERCENT: u64 = 20;
/// Number of first wake-ups that are not counted.
const WARM_UP: u64 = 3;

/// The idle times of a case: random around `sleep`, with the same sequence for all sources.
struct Sleeps {
    sleep: Nanos,
    random: Random,
}

impl Sleeps {
    fn new(sleep: Nanos) -> Self {
        Self { sleep, random: Random::new(1) }
    }
    fn next(&mut self) -> Nanos {
        let range = self.sleep.scale(VARIES_PERCENT, 100).as_nanos();
        self.sleep.saturating_sub(Nanos::from_nanos(range / 2)) + Nanos::from_nanos(self.random.up_to(range))
    }
}

fn place(idle: &Idle, cpu: usize) -> Place {
    Place { cpu, priority: idle.priority, slack: Nanos::from_nanos(1) }
}

/// The samples of a case, and the conditions of the sleeping thread.
pub(super) type Slept = (Recorder, Conditions);

fn conditions(idle: &Idle, control: &Control, locked: &Reading<bool>) -> Conditions {
    Conditions::of_this_thread(&control.root, &idle.cpus(), locked, &idle.load)
}

/// Measures the lateness of timers on `idle.cpu`, which sleeps until each timer expires.
pub(super) fn by_timer(idle: &Idle, sleep: Nanos, control: &Control, locked: &Reading<bool>) -> Result<Slept, Error> {
    std::thread::scope(|scope| {
        let body = || -> Result<Slept, Error> {
            place(idle, idle.cpu).take("apus-idle")?;
            let conditions = conditions(idle, control, locked);
            let (mut cpu, mut sleeps, mut samples) = (LinuxCpu, Sleeps::new(sleep), Recorder::new());
            let until = cpu.now() + idle.duration;
            for n in 0.. {
                let due = cpu.now() + sleeps.next();
                if due > until || control.stopped() {
                    break;
                }
                cpu.sleep_until(due);
                // A sleep that a signal ended early does not count.
                if let Some(late) = cpu.now().since(due).filter(|_| n >= WARM_UP) {
                    samples.record(late);
                    control.show(late);
                }
            }
            Ok((samples, conditions))
        };
        scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Clock reading just before the first waking call that the sleeper has not served yet, in nanoseconds; 0 if there is
/// none.
#[derive(Debug, Default)]
struct Stamp(AtomicU64);

impl Stamp {
    /// Records that a waking call follows at `now`. If the sleeper has not served an earlier call yet, the time of that
    /// call is kept, because the sleeper has been late since then.
    fn wakes(&self, now: Instant<Monotonic>) {
        // A time that is already stored is not replaced.
        let _ = self.0.compare_exchange(0, now.as_nanos(), Ordering::AcqRel, Ordering::Relaxed);
    }
    /// Records that the sleeper runs at `now`. Returns how late it is, or `None` if there was no waking call to serve.
    fn woke(&self, now: Instant<Monotonic>) -> Option<Nanos> {
        let from = self.0.swap(0, Ordering::AcqRel);
        now.since(Instant::from_nanos(from)).filter(|_| from != 0)
    }
}

/// Measures the time from the clock reading before the waking call on `peer` to the first clock reading on `idle.cpu`.
pub(super) fn by_cpu(
    idle: &Idle,
    peer: usize,
    sleep: Nanos,
    control: &Control,
    locked: &Reading<bool>,
) -> Result<Slept, Error> {
    let (way, stamp, end) = (Way::new(Via::Eventfd)?, Stamp::default(), AtomicBool::new(false));
    let (way, stamp, end) = (&way, &stamp, &end);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(move || -> Result<Slept, Error> {
            let placed = place(idle, idle.cpu).take("apus-idle");
            if placed.is_err() {
                end.store(true, Ordering::SeqCst);
            }
            placed?;
            let conditions = conditions(idle, control, locked);
            let mut samples = Recorder::new();
            for n in 0.. {
                way.wait()?;
                let now = LinuxCpu.now();
                if end.load(Ordering::SeqCst) {
                    break;
                }
                if let Some(late) = stamp.woke(now).filter(|_| n >= WARM_UP) {
                    samples.record(late);
                    control.show(late);
                }
            }
            Ok((samples, conditions))
        });
        let waker = scope.spawn(move || -> Result<(), Error> {
            let placed = place(idle, peer).take("apus-waker");
            let mut cpu = LinuxCpu;
            let (mut sleeps, until) = (Sleeps::new(sleep), cpu.now() + idle.duration);
            while placed.is_ok() && !end.load(Ordering::SeqCst) && !control.stopped() {
                let due = cpu.now() + sleeps.next();
                if due > until {
                    break;
                }
                cpu.sleep_until(due);
                stamp.wakes(cpu.now());
                way.wake()?;
            }
            end.store(true, Ordering::SeqCst);
            way.wake()?;
            placed
        });
        let waker = waker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let slept = sleeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        waker.map(|()| slept)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::allowed;

    #[test]
    fn sleeps_vary_around_what_was_asked_for() {
        let mut sleeps = Sleeps::new(Nanos::from_micros(100));
        let all: Vec<u64> = (0..1000).map(|_| sleeps.next().as_nanos()).collect();
        assert!(all.iter().all(|ns| (90_000..=110_000).contains(ns)));
        assert!(all.iter().max() > Some(&108_000) && all.iter().min() < Some(&92_000));
    }

    #[test]
    fn a_stalled_sleeper_is_late_since_the_first_call() {
        let (stamp, at) = (Stamp::default(), |us: u64| Instant::from_nanos(us * 1_000));
        stamp.wakes(at(100));
        assert_eq!((stamp.woke(at(105)), stamp.woke(at(106))), (Some(Nanos::from_micros(5)), None));
        for us in [1_000, 1_500, 2_000] {
            stamp.wakes(at(us));
        }
        assert_eq!(stamp.woke(at(2_010)), Some(Nanos::from_micros(1_010)));
    }

    #[test]
    fn both_sources_wake() {
        let cpus = allowed().unwrap();
        let (cpu, peer) = (*cpus.last().unwrap(), cpus[0]);
        let idle = Idle { duration: Nanos::from_millis(400), ..Idle::new(cpu, Some(peer)) };
        let control = Control::new(None);
        let sleep = Nanos::from_micros(500);
        let locked = Reading::known(false);
        assert!(by_timer(&idle, sleep, &control, &locked).unwrap().0.len() > 20);
        assert!(by_cpu(&idle, peer, sleep, &control, &locked).unwrap().0.len() > 20);
        control.stop();
        assert!(by_cpu(&idle, peer, sleep, &control, &locked).unwrap().0.len() <= 1);
    }
}
