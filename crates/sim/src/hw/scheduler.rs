//! Who has the core: a thread of its own, or one that shares it with a background task.

use units::{Cycles, Hertz, Nanos};

use super::spread::Spread;
use super::{ModelError, check};
use crate::At;
use crate::random::Random;

/// How long a kernel without PREEMPT_RT holds a woken thread up: soft interrupts, sections with interrupts off. An
/// estimate: cyclictest on such kernels sees some microseconds, and hundreds at worst; recalled.
pub const UNTUNED: Spread = Spread::up_to(Nanos::from_micros(5), Nanos::from_micros(300));

/// The scheduling class of the packet thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `SCHED_FIFO`: goes before every ordinary task, as soon as the kernel lets it.
    Fifo,
    /// `SCHED_OTHER`: waits for its turn.
    Fair,
}

/// A task of lower priority on the same core, always ready to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundModel {
    /// How long it may still hold the core against a FIFO thread: sections of the kernel that cannot be
    /// preempted. A few microseconds with PREEMPT_RT, milliseconds without.
    pub unpreemptible: Spread,
    /// How long it may still hold the core against an equal: the rest of its slice.
    pub turn: Spread,
    /// What the packet thread's next work costs more: the caches that it used.
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

/// How a core is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerModel {
    /// The packet thread's class.
    pub class: Class,
    /// A context switch.
    pub switch: Cycles,
    /// How long the kernel itself holds a woken thread up, even on a core of its own: [`UNTUNED`] without PREEMPT_RT.
    pub kernel: Spread,
    /// Who else is there; `None`: the core is dedicated.
    pub background: Option<BackgroundModel>,
    /// `None`: `sched_rt_runtime_us` is -1, or the class is not FIFO.
    pub throttle: Option<ThrottleModel>,
}

impl SchedulerModel {
    /// Refuses a throttle that gives more than all.
    pub fn validate(&self) -> Result<(), ModelError> {
        let sound = self.throttle.is_none_or(|t| t.runtime > Nanos::ZERO && t.runtime < t.period);
        check(sound, "scheduler", || {
            "the real-time runtime is not between 0 and its period: correct it or omit it".into()
        })
    }
}

/// The packet thread's place on its core.
///
/// ```text
///   Running ── block ──► Blocked (background runs, or the core is idle) ── wake, delay ──► Running
///      └── throttled (FIFO, budget used up): not before the next period
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    model: SchedulerModel,
    running: bool,
    /// The throttle's period that is counted, and what was used of it.
    period: (u64, Nanos),
    throttled: u64,
}

/// What a wake-up cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// Until the thread runs.
    pub delay: Nanos,
    /// What its first work costs more.
    pub refill: Cycles,
}

impl Scheduler {
    /// The thread runs.
    pub fn new(model: SchedulerModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { model, running: true, period: (0, Nanos::ZERO), throttled: 0 })
    }

    /// The thread gives up the core; whether the core then goes idle.
    pub const fn block(&mut self) -> bool {
        self.running = false;
        self.model.background.is_none()
    }

    /// The thread goes on although it had given up the core: nobody else took it.
    pub const fn goes_on(&mut self) {
        self.running = true;
    }

    /// The thread is ready, on a core that is awake and runs at `frequency`. Nothing to do if it runs.
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

    /// The thread ran for `span`, up to `now`. Says from when on it may run: `now`, or the throttle's
    /// next period.
    pub fn ran(&mut self, now: At, span: Nanos) -> At {
        let Some(throttle) = self.model.throttle else { return now };
        let index = now.as_nanos() / throttle.period.as_nanos();
        let begun = index * throttle.period.as_nanos();
        if self.period.0 != index {
            self.period = (index, Nanos::ZERO);
        }
        // What of the span lies before the period belongs to the one before.
        let within = span.min(Nanos::from_nanos(now.as_nanos() - begun));
        self.period.1 += within;
        let allowed = self.allowed_from(now);
        self.throttled += u64::from(allowed > now);
        allowed
    }

    /// Whether the thread has the core.
    pub const fn is_running(&self) -> bool {
        self.running
    }
    /// Times that the throttle stopped it.
    pub const fn throttled(&self) -> u64 {
        self.throttled
    }
    /// The parameters.
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
        // The kernel's own delay meets a thread that is alone, too.
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
        /// In no period does the thread run for more than its runtime and one span.
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
