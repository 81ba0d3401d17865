//! Who runs on the core: the packet thread alone, or the packet thread and a background task.

use units::{Cycles, Hertz, Nanos};

use super::spread::Spread;
use super::{ModelError, check};
use crate::At;
use crate::random::Random;

/// How long a kernel without PREEMPT_RT delays a woken thread: soft interrupts, sections with interrupts off. This is
/// an estimate from memory: on such kernels, cyclictest shows a few microseconds, and hundreds in the worst case.
pub const UNTUNED: Spread = Spread::up_to(Nanos::from_micros(5), Nanos::from_micros(300));

/// The scheduling class of the packet thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `SCHED_FIFO`: runs before every ordinary task, as soon as the kernel allows it.
    Fifo,
    /// `SCHED_OTHER`: waits for its turn.
    Fair,
}

/// A task of lower priority on the same core that is always ready to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundModel {
    /// How long the task can delay a FIFO thread by kernel sections that cannot be preempted. A few microseconds with
    /// PREEMPT_RT, milliseconds without.
    pub unpreemptible: Spread,
    /// How long the task can delay a thread of its own class: the rest of the task's time slice.
    pub turn: Spread,
    /// Additional cost of the packet thread's next work, because the task used the caches.
    pub refill: Cycles,
}

/// The real-time throttle: FIFO threads may use a core for `runtime` of each `period`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThrottleModel {
    /// `sched_rt_period_us`, 1 s by default.
    pub period: Nanos,
    /// `sched_rt_runtime_us`, 950 ms by default.
    pub runtime: Nanos,
}

/// How the packet thread shares its core with other tasks and the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerModel {
    /// The packet thread's class.
    pub class: Class,
    /// Cost of a context switch.
    pub switch: Cycles,
    /// How long the kernel delays a woken thread even on a dedicated core: [`UNTUNED`] without PREEMPT_RT.
    pub kernel: Spread,
    /// The other task on the core. `None` if the core is dedicated.
    pub background: Option<BackgroundModel>,
    /// The real-time throttle. `None` if `sched_rt_runtime_us` is -1, or if the class is not FIFO.
    pub throttle: Option<ThrottleModel>,
}

impl SchedulerModel {
    /// Returns an error if the throttle's runtime exceeds its period.
    pub fn validate(&self) -> Result<(), ModelError> {
        let sound = self.throttle.is_none_or(|t| t.runtime > Nanos::ZERO && t.runtime < t.period);
        check(sound, "scheduler", || {
            "the real-time runtime is not between 0 and its period: correct it or omit it".into()
        })
    }
}

/// The state of the packet thread on its core.
///
/// ```text
///   Running ── block ──► Blocked (background runs, or the core is idle) ── wake, delay ──► Running
///      └── throttled (FIFO, budget used up): not before the next period
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    model: SchedulerModel,
    running: bool,
    /// The throttle's current period, and the time used in it.
    period: (u64, Nanos),
    throttled: u64,
}

/// The costs of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// Time until the thread runs.
    pub delay: Nanos,
    /// Additional cost of the thread's first work.
    pub refill: Cycles,
}

impl Scheduler {
    /// Starts with the thread running.
    pub fn new(model: SchedulerModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { model, running: true, period: (0, Nanos::ZERO), throttled: 0 })
    }

    /// Lets the thread give up the core. Returns whether the core then goes idle.
    pub const fn block(&mut self) -> bool {
        self.running = false;
        self.model.background.is_none()
    }

    /// Lets the thread continue although it had given up the core, because no other task took it.
    pub const fn goes_on(&mut self) {
        self.running = true;
    }

    /// Wakes the thread on a core that is awake and runs at `frequency`. Costs nothing if the thread is already
    /// running.
    pub fn wake(&mut self, now: At, frequency: Hertz, random: &mut Random) -> Dispatch {
        if self.running {
            return Dispatch { delay: Nanos::ZERO, refill: Cycles::new(0) };
        }
        self.running = true;
        let (held, refill) = match (self.model.background, self.model.class) {
            (None, _) => (Nanos::ZERO, Cycles::new(0)),
            (Some(other), Class::Fifo) => (other.unpreemptible.sample(random), other.refill),
            (Some(other), Class::Fair) => (other.turn.sample(random), other.refill),
        };
        let held = held + self.model.kernel.sample(random);
        let allowed = self.allowed_from(now).since(now).unwrap_or(Nanos::ZERO);
        Dispatch { delay: held.max(allowed) + self.model.switch / frequency, refill }
    }

    /// Notes that the thread ran for `span`, up to `now`. Returns when it may run again: `now`, or the start of the
    /// throttle's next period.
    pub fn ran(&mut self, now: At, span: Nanos) -> At {
        let Some(throttle) = self.model.throttle else { return now };
        let index = now.as_nanos() / throttle.period.as_nanos();
        let begun = index * throttle.period.as_nanos();
        if self.period.0 != index {
            self.period = (index, Nanos::ZERO);
        }
        // The part of `span` before the current period belongs to the previous period.
        let within = span.min(Nanos::from_nanos(now.as_nanos() - begun));
        self.period.1 += within;
        let allowed = self.allowed_from(now);
        self.throttled += u64::from(allowed > now);
        allowed
    }

    /// Number of times the throttle stopped the thread.
    pub const fn throttled(&self) -> u64 {
        self.throttled
    }
    /// The parameters of the model.
    pub const fn model(&self) -> &SchedulerModel {
        &self.model
    }

    fn allowed_from(&self, now: At) -> At {
        let Some(throttle) = self.model.throttle else { return now };
        let index = now.as_nanos() / throttle.period.as_nanos();
        if self.period.0 == index && self.period.1 >= throttle.runtime {
            return At::from_nanos((index + 1) * throttle.period.as_nanos());
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOCK: Hertz = Hertz::new(2_000_000_000);
    const SHARED: SchedulerModel = SchedulerModel {
        class: Class::Fifo,
        switch: Cycles::new(3_000),
        kernel: Spread::exactly(Nanos::ZERO),
        background: Some(BackgroundModel {
            unpreemptible: Spread::exactly(Nanos::from_micros(4)),
            turn: Spread::exactly(Nanos::from_millis(3)),
            refill: Cycles::new(10_000),
        }),
        throttle: None,
    };

    #[test]
    fn fifo_goes_first_and_fair_waits_for_its_turn() {
        let mut random = Random::stream(0, 0);
        let mut delay = |model| {
            let mut scheduler = Scheduler::new(model).unwrap();
            let idle = scheduler.block();
            (idle, scheduler.wake(At::ORIGIN, CLOCK, &mut random).delay)
        };
        assert_eq!(delay(SHARED), (false, Nanos::from_nanos(5_500)));
        assert_eq!(delay(SchedulerModel { class: Class::Fair, ..SHARED }), (false, Nanos::from_nanos(3_001_500)));
        let alone = SchedulerModel { background: None, ..SHARED };
        assert_eq!(delay(alone), (true, Nanos::from_nanos(1_500)));
        // The kernel's own delay also applies to a thread that is alone on its core.
        let kernel = Spread::exactly(Nanos::from_micros(7));
        assert_eq!(delay(SchedulerModel { kernel, ..alone }), (true, Nanos::from_nanos(8_500)));
    }

    #[test]
    fn a_thread_that_runs_needs_no_waking() {
        let mut scheduler = Scheduler::new(SHARED).unwrap();
        assert_eq!(scheduler.wake(At::ORIGIN, CLOCK, &mut Random::stream(0, 0)).delay, Nanos::ZERO);
    }

    #[test]
    fn the_throttle_stops_a_loop_that_polls() {
        let throttle = ThrottleModel { period: Nanos::from_secs(1), runtime: Nanos::from_millis(950) };
        let model = SchedulerModel { background: None, throttle: Some(throttle), ..SHARED };
        let mut scheduler = Scheduler::new(model).unwrap();
        let ms = |n: u64| At::from_nanos(n * 1_000_000);
        assert_eq!(scheduler.ran(ms(949), Nanos::from_millis(949)), ms(949));
        assert_eq!(scheduler.ran(ms(950), Nanos::from_millis(1)), ms(1_000));
        scheduler.block();
        let woken = scheduler.wake(ms(960), CLOCK, &mut Random::stream(0, 0));
        assert_eq!(woken.delay, Nanos::from_nanos(40_001_500));
        assert_eq!(scheduler.ran(ms(1_001), Nanos::from_millis(1)), ms(1_001));
        assert_eq!(scheduler.throttled(), 1);
        let all =
            SchedulerModel { throttle: Some(ThrottleModel { runtime: Nanos::from_secs(1), ..throttle }), ..model };
        assert!(Scheduler::new(all).is_err());
    }

    proptest! {
        /// In each period the thread runs for at most the throttle's runtime plus one span.
        #[test]
        fn the_budget_is_kept(spans in prop::collection::vec((1u64..400, 0u64..400), 1..200)) {
            let throttle = ThrottleModel { period: Nanos::from_millis(1), runtime: Nanos::from_micros(700) };
            let model = SchedulerModel { background: None, throttle: Some(throttle), ..SHARED };
            let mut scheduler = Scheduler::new(model).unwrap();
            let mut now = At::ORIGIN;
            let mut used = std::collections::BTreeMap::<u64, u64>::new();
            for (span, idle) in spans {
                let end = now + Nanos::from_micros(span);
                let begun = end.as_nanos() % 1_000_000 / 1_000;
                *used.entry(end.as_nanos() / 1_000_000).or_default() += span.min(begun);
                now = scheduler.ran(end, Nanos::from_micros(span)) + Nanos::from_micros(idle);
                prop_assert!(now >= end);
            }
            prop_assert!(used.values().all(|us| *us < 700 + 400), "{used:?}");
        }
    }
}
