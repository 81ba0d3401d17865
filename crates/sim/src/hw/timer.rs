//! A timer of the operating system, which fires later than requested.

use units::Nanos;

use super::spread::Spread;
use crate::At;
use crate::random::Random;

/// What makes timers late, apart from the exit from an idle state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerModel {
    /// Timer slack of the thread: the kernel may delay a timer by this much to handle it together with another
    /// interrupt (prctl(2), `PR_SET_TIMERSLACK`; 50 us by default, 0 for real-time threads).
    pub slack: Nanos,
    /// Time from the programmed expiry of the hardware timer until the thread is woken: the timer interrupt and its
    /// handler, without the exit from an idle state and without scheduling.
    pub lateness: Spread,
}

/// The state of one timer.
///
/// ```text
///   armed:  soft ───────── slack ─────────► hard ── lateness ──► the thread is woken
///             └ another interrupt in between: woken by that
/// ```
#[derive(Clone, Debug)]
pub struct Timer {
    model: TimerModel,
    armed: Option<Armed>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    soft: At,
    hard: At,
}

impl Timer {
    /// Makes a timer that is not armed.
    pub const fn new(model: TimerModel) -> Self {
        Self { model, armed: None }
    }

    /// Arms the timer for `deadline`.
    pub fn arm(&mut self, deadline: At) {
        self.armed = Some(Armed { soft: deadline, hard: deadline + self.model.slack });
    }

    /// Disarms the timer.
    pub const fn cancel(&mut self) {
        self.armed = None;
    }

    /// When the hardware timer fires. `None` if it is not armed.
    pub fn poll_at(&self) -> Option<At> {
        self.armed.map(|armed| armed.hard)
    }

    /// Fires the hardware timer if it is due. Returns the time from `now` until the thread is woken. `None` if it is
    /// not due.
    pub fn poll(&mut self, now: At, random: &mut Random) -> Option<Nanos> {
        self.armed.filter(|armed| armed.hard <= now)?;
        self.armed = None;
        Some(self.model.lateness.sample(random))
    }

    /// Notes that another interrupt ran on this core. It also handles the timer if the timer's slack has begun. Returns
    /// whether it handled the timer.
    pub fn interrupted(&mut self, now: At) -> bool {
        let done = self.armed.is_some_and(|armed| armed.soft <= now);
        if done {
            self.armed = None;
        }
        done
    }

    /// The parameters of the model.
    pub const fn model(&self) -> &TimerModel {
        &self.model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> At {
        At::from_nanos(n * 1_000)
    }

    #[test]
    fn a_timer_comes_at_the_end_of_its_slack_or_with_another_interrupt() {
        let model = TimerModel { slack: Nanos::from_micros(50), lateness: Spread::exactly(Nanos::from_micros(2)) };
        let mut random = Random::stream(0, 0);
        let mut timer = Timer::new(model);
        timer.arm(us(100));
        assert_eq!((timer.poll_at(), timer.poll(us(149), &mut random)), (Some(us(150)), None));
        assert_eq!(timer.poll(us(150), &mut random), Some(Nanos::from_micros(2)));
        timer.arm(us(300));
        assert!(!timer.interrupted(us(299)));
        assert!(timer.interrupted(us(300)));
        assert_eq!((timer.poll_at(), timer.interrupted(us(400))), (None, false));
        timer.arm(us(500));
        timer.cancel();
        assert_eq!(timer.poll(us(900), &mut random), None);
    }
}
