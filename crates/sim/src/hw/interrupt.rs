//! Interrupt moderation, from a received frame to the interrupt, and delivery, from the interrupt to the waiting code.

use units::{Cycles, Hertz, Nanos};

use super::spread::Spread;
use super::{ModelError, check};
use crate::At;
use crate::random::Random;

/// When the delay of a moderated interrupt begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayFrom {
    /// The delay begins with the first frame that waits; later frames do not restart it (DIM calls this EQE mode).
    FirstFrame,
    /// Every frame restarts the delay (DIM calls this CQE mode). Under load, the frame count ends the wait.
    LastFrame,
}

/// Interrupt moderation of one queue, in the terms of `ethtool -C` and of Intel's controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModerationModel {
    /// `rx-usecs`: how long the interrupt is delayed. 0 turns the delay off.
    pub delay: Nanos,
    /// Whether the delay begins with the first or with the latest waiting frame.
    pub from: DelayFrom,
    /// `rx-frames`: this many waiting frames end the delay early. 0 turns the count off.
    pub frames: u32,
    /// Interrupt throttling (ITR, EITR): the minimum time between two interrupts. 0 turns it off.
    pub interval: Nanos,
}

impl ModerationModel {
    /// No moderation: every frame raises an interrupt at once.
    pub const OFF: Self = Self { delay: Nanos::ZERO, from: DelayFrom::FirstFrame, frames: 1, interval: Nanos::ZERO };

    /// Intel's throttling alone: an interrupt comes at once unless the previous one was less than `interval` ago (82599
    /// data sheet 331520, 7.3.2; XL710 data sheet 332464, 7.5.4).
    pub const fn throttled(interval: Nanos) -> Self {
        Self { interval, ..Self::OFF }
    }

    /// `rx-usecs` and `rx-frames` as most other controllers interpret them.
    pub const fn delayed(delay: Nanos, frames: u32) -> Self {
        Self { delay, from: DelayFrom::FirstFrame, frames, interval: Nanos::ZERO }
    }
}

/// The interrupt of one queue.
///
/// ```text
///   frame ──► due = now if the delay is 0 or the count is reached, else now + delay
///              └──► not before the last interrupt + interval; not while masked
/// ```
#[derive(Clone, Debug)]
pub struct Moderation {
    model: ModerationModel,
    pending: u32,
    /// When the delay or the count allows the interrupt. `None` if no frame waits.
    due: Option<At>,
    last: Option<At>,
    masked: bool,
    fired: u64,
}

impl Moderation {
    /// Makes an interrupt that is not masked and has no frame waiting.
    pub const fn new(model: ModerationModel) -> Self {
        Self { model, pending: 0, due: None, last: None, masked: false, fired: 0 }
    }

    /// Notes that a frame became visible at `now`.
    pub fn frame(&mut self, now: At) {
        self.pending += 1;
        let ModerationModel { delay, from, frames, .. } = self.model;
        let counted = frames > 0 && self.pending >= frames;
        let due = if counted || delay == Nanos::ZERO {
            // An interrupt that is already due stays due.
            self.due.map_or(now, |due| due.min(now))
        } else {
            match (self.due, from) {
                (Some(due), DelayFrom::FirstFrame) => due,
                (Some(due), DelayFrom::LastFrame) if due <= now => due,
                _ => now + delay,
            }
        };
        self.due = Some(due);
    }

    /// When the interrupt will fire. `None` if no frame waits or the interrupt is masked.
    pub fn poll_at(&self) -> Option<At> {
        if self.masked {
            return None;
        }
        let due = self.due?;
        Some(self.last.map_or(due, |last| due.max(last + self.model.interval)))
    }

    /// Fires the interrupt if it is due. Returns the number of frames that it announces, or `None` if it is not due.
    pub fn fire(&mut self, now: At) -> Option<u32> {
        if self.poll_at()? > now {
            return None;
        }
        self.last = Some(now);
        self.due = None;
        self.fired += 1;
        Some(std::mem::take(&mut self.pending))
    }

    /// Masks the interrupt, as the driver does when a poll begins.
    pub const fn mask(&mut self) {
        self.masked = true;
    }

    /// Unmasks the interrupt. Frames that arrived while it was masked fire it, unless [`Moderation::taken`] was called.
    pub const fn unmask(&mut self) {
        self.masked = false;
    }

    /// Notes that the software took the waiting frames without an interrupt.
    pub const fn taken(&mut self) {
        self.pending = 0;
        self.due = None;
    }

    /// Changes the settings from `now` on. The due time of waiting frames stays, unless the new settings give an
    /// earlier one.
    pub fn set(&mut self, now: At, model: ModerationModel) {
        self.model = model;
        if let Some(due) = self.due {
            let counted = model.frames > 0 && self.pending >= model.frames;
            let soonest = if counted { now } else { now + model.delay };
            self.due = Some(due.min(soonest));
        }
    }

    /// The current settings.
    pub const fn model(&self) -> &ModerationModel {
        &self.model
    }
    /// Whether the interrupt is masked.
    pub const fn is_masked(&self) -> bool {
        self.masked
    }
    /// Number of interrupts so far.
    pub const fn fired(&self) -> u64 {
        self.fired
    }
}

/// In which context the kernel handles the NIC's interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// The handler does the work in interrupt context.
    Direct,
    /// The handler wakes a kernel thread that does the work (`PREEMPT_RT`, `threadirqs`).
    Threaded,
}

/// The CPU on which the interrupt arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// The interrupt arrives on the CPU whose thread waits for it.
    Right,
    /// The interrupt arrives on another CPU, which then sends an inter-processor interrupt (IPI).
    Wrong,
}

/// Costs of delivering an interrupt. Software costs are in cycles, because a slower core takes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveryModel {
    /// Time of the message from the controller to the core's local interrupt controller.
    pub message: Spread,
    /// Cost from the interrupt to the first line of its handler: vector, entry, `irq_enter`.
    pub entry: Cycles,
    /// Cost of the interrupt handler itself.
    pub handler: Cycles,
    /// Additional cost of a threaded handler, for waking the thread and switching to it.
    pub thread: Cycles,
    /// Additional time if the interrupt arrives on the wrong CPU, for sending an IPI to the right CPU and taking it
    /// there.
    pub ipi: Spread,
    /// Cost of leaving the interrupt, waking the thread that waits in a system call, and returning from that call. The
    /// context switch to the thread is not included: it is a cost of the scheduler.
    pub resume: Cycles,
}

/// The parts of one interrupt's delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Time until the interrupt's message reaches the core, which may still be idle.
    pub message: Nanos,
    /// Time for entry, handler and the handler's thread, if it has one.
    pub handling: Nanos,
    /// Time for an IPI to the right CPU. Zero if the interrupt arrives there.
    pub ipi: Nanos,
    /// Time from the end of the handler until the waiting thread runs, without the context switch.
    pub resume: Nanos,
}

impl Delivery {
    /// The sum of all parts.
    pub fn total(&self) -> Nanos {
        self.message + self.handling + self.ipi + self.resume
    }
}

impl DeliveryModel {
    /// Draws the times of one delivery to a core that runs at `frequency`.
    pub fn deliver(&self, frequency: Hertz, handling: Handling, affinity: Affinity, random: &mut Random) -> Delivery {
        let thread = match handling {
            Handling::Direct => Nanos::ZERO,
            Handling::Threaded => self.thread / frequency,
        };
        let ipi = match affinity {
            Affinity::Right => Nanos::ZERO,
            Affinity::Wrong => self.ipi.sample(random),
        };
        Delivery {
            message: self.message.sample(random),
            handling: self.entry / frequency + self.handler / frequency + thread,
            ipi,
            resume: self.resume / frequency,
        }
    }
}

/// Rounds an interval down to a throttling register's granularity, as the hardware does.
pub fn quantized(interval: Nanos, granularity: Nanos) -> Result<Nanos, ModelError> {
    check(granularity > Nanos::ZERO, "interrupt throttling", || "the granularity is 0: give one such as 2us".into())?;
    Ok(granularity * (interval.as_nanos() / granularity.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(n: u64) -> At {
        At::from_nanos(n * 1_000)
    }

    #[test]
    fn throttling_delays_the_second_not_the_first() {
        let mut queue = Moderation::new(ModerationModel::throttled(Nanos::from_micros(500)));
        queue.frame(us(100));
        assert_eq!(queue.poll_at(), Some(us(100)));
        assert_eq!(queue.fire(us(100)), Some(1));
        queue.frame(us(450));
        assert_eq!(queue.poll_at(), Some(us(600)));
        assert_eq!(queue.fire(us(599)), None);
        assert_eq!(queue.fire(us(600)), Some(1));
        queue.frame(us(2_000));
        assert_eq!(queue.poll_at(), Some(us(2_000)));
    }

    #[test]
    fn the_delay_ends_early_by_the_count() {
        let mut queue = Moderation::new(ModerationModel::delayed(Nanos::from_micros(64), 3));
        queue.frame(us(0));
        queue.frame(us(5));
        assert_eq!(queue.poll_at(), Some(us(64)));
        queue.frame(us(9));
        assert_eq!(queue.fire(us(9)), Some(3));
        assert_eq!(queue.poll_at(), None);
    }

    #[test]
    fn a_delay_from_the_last_frame_is_prolonged() {
        let model =
            ModerationModel { from: DelayFrom::LastFrame, ..ModerationModel::delayed(Nanos::from_micros(8), 64) };
        let mut queue = Moderation::new(model);
        for t in [0, 5, 10] {
            queue.frame(us(t));
        }
        assert_eq!(queue.poll_at(), Some(us(18)));
    }

    #[test]
    fn masked_frames_fire_when_unmasked_unless_they_were_taken() {
        let mut queue = Moderation::new(ModerationModel::OFF);
        queue.mask();
        queue.frame(us(1));
        assert_eq!((queue.poll_at(), queue.fire(us(2))), (None, None));
        queue.unmask();
        assert_eq!(queue.fire(us(2)), Some(1));
        queue.mask();
        queue.frame(us(3));
        queue.taken();
        queue.unmask();
        assert_eq!(queue.poll_at(), None);
        assert_eq!(queue.fired(), 1);
    }

    #[test]
    fn settings_change_at_once() {
        let mut queue = Moderation::new(ModerationModel::delayed(Nanos::from_micros(256), 0));
        queue.frame(us(0));
        queue.set(us(10), ModerationModel::delayed(Nanos::from_micros(8), 0));
        assert_eq!(queue.poll_at(), Some(us(18)));
    }

    #[test]
    fn the_way_to_the_wrong_cpu_is_longer_and_a_thread_longer_still() {
        let nanos = |n| Spread::exactly(Nanos::from_nanos(n));
        let model = DeliveryModel {
            message: nanos(300),
            entry: Cycles::new(1_000),
            handler: Cycles::new(1_000),
            thread: Cycles::new(4_000),
            ipi: nanos(900),
            resume: Cycles::new(3_000),
        };
        let mut random = Random::stream(0, 0);
        let clock = Hertz::new(2_000_000_000);
        let mut total = |handling, affinity| model.deliver(clock, handling, affinity, &mut random).total();
        assert_eq!(total(Handling::Direct, Affinity::Right), Nanos::from_nanos(300 + 2_500));
        assert_eq!(total(Handling::Direct, Affinity::Wrong), Nanos::from_nanos(300 + 900 + 2_500));
        assert_eq!(total(Handling::Threaded, Affinity::Wrong), Nanos::from_nanos(300 + 900 + 4_500));
    }

    #[test]
    fn registers_round_down() {
        let two = Nanos::from_micros(2);
        assert_eq!(quantized(Nanos::from_nanos(5_500), two), Ok(Nanos::from_micros(4)));
        assert!(quantized(two, Nanos::ZERO).is_err());
    }

    proptest! {
        /// No frame waits longer than the sum of delay and interval, and interrupts are at least an interval apart.
        #[test]
        fn frames_wait_no_longer_than_promised(
            delay in 0u64..300, frames in 0u32..80, interval in 0u64..600, last_frame: bool,
            gaps in prop::collection::vec(0u64..400, 1..100),
        ) {
            let from = if last_frame { DelayFrom::LastFrame } else { DelayFrom::FirstFrame };
            // If every frame restarts the delay, only the count bounds the wait. So keep the count small and above 0.
            let frames = if last_frame { 1 + frames % 8 } else { frames };
            let model = ModerationModel {
                delay: Nanos::from_micros(delay), from, frames, interval: Nanos::from_micros(interval),
            };
            let mut queue = Moderation::new(model);
            let (mut now, mut oldest, mut last, mut stood_for, mut sent) = (0, None, None::<u64>, 0u64, 0u64);
            for gap in gaps {
                let next = now + gap;
                while let Some(at) = queue.poll_at().filter(|at| *at <= us(next)) {
                    let at_us = at.as_nanos() / 1_000;
                    stood_for += u64::from(queue.fire(at).unwrap());
                    prop_assert!(last.is_none_or(|last| at_us >= last + interval));
                    let waited = at_us - oldest.take().unwrap();
                    let longest = if last_frame { delay * u64::from(frames) } else { delay };
                    prop_assert!(waited <= longest + interval, "{waited}");
                    last = Some(at_us);
                }
                now = next;
                queue.frame(us(now));
                sent += 1;
                oldest.get_or_insert(now);
            }
            if let Some(at) = queue.poll_at() {
                stood_for += u64::from(queue.fire(at).unwrap());
            }
            prop_assert_eq!(stood_for, sent);
        }
    }
}
