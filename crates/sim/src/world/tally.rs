//! Counts frames from their arrival to their departure or loss.

use policy::Goal;
use units::Nanos;

use crate::At;
use crate::outcome::{Drop, Recorder, Term};

/// How much each term contributes to one packet's delay, in nanoseconds.
pub type Shares = [u64; Term::COUNT];

/// The counts of one queue.
#[derive(Clone, Copy, Default, Debug)]
pub struct QueueTally {
    pub offered: u64,
    pub departed: u64,
    pub dropped: [u64; Drop::COUNT],
    pub in_flight: u64,
}

/// The counts of all queues. Only frames that arrive within the window are counted.
#[derive(Debug)]
pub struct Tally {
    pub window: (At, At),
    pub queues: Vec<QueueTally>,
    pub octets: u64,
    pub latency: Recorder,
    pub terms: [Recorder; Term::COUNT],
    goal: Option<Goal>,
    /// Number of frames that left later than the goal allows.
    pub late: u64,
    /// How long the frames in flight had been in the system at the end of the window.
    pub waiting: Recorder,
    /// Number of frames in flight that had been in the system for longer than the goal allows.
    pub overdue: u64,
    /// Number of frames whose terms sum to more than their delay. Must stay 0.
    pub unsound: u64,
}

impl Tally {
    pub fn new(window: (At, At), queues: usize, goal: Option<Goal>) -> Self {
        Self {
            window,
            queues: vec![QueueTally::default(); queues],
            octets: 0,
            latency: Recorder::new(),
            terms: std::array::from_fn(|_| Recorder::coarse()),
            goal,
            late: 0,
            waiting: Recorder::new(),
            overdue: 0,
            unsound: 0,
        }
    }

    #[inline]
    fn counts(&self, arrival: At) -> bool {
        arrival >= self.window.0 && arrival < self.window.1
    }

    /// Whether `now` lies in the measured window, so that an event at this time counts.
    #[inline]
    pub fn within(&self, now: At) -> bool {
        self.counts(now)
    }

    /// Counts a frame that came off the wire.
    #[inline]
    pub fn offered(&mut self, queue: usize, arrival: At) {
        self.queues[queue].offered += u64::from(self.counts(arrival));
    }

    /// Counts a lost frame.
    pub fn dropped(&mut self, queue: usize, arrival: At, why: Drop) {
        self.queues[queue].dropped[why as usize] += u64::from(self.counts(arrival));
    }

    /// Counts a frame that was still in the system at the end of the simulation.
    pub fn in_flight(&mut self, queue: usize, arrival: At) {
        if !self.counts(arrival) {
            return;
        }
        self.queues[queue].in_flight += 1;
        let waited = self.window.1.since(arrival).unwrap_or(Nanos::ZERO);
        self.waiting.record(waited);
        self.overdue += u64::from(self.goal.is_some_and(|goal| waited > goal.latency));
    }

    /// Counts a frame whose last bit left at `departure`. `shares` contains every term of its delay except
    /// [`Term::Queueing`], which is the remainder.
    #[inline]
    pub fn departed(&mut self, queue: usize, octets: u32, arrival: At, departure: At, mut shares: Shares) {
        if !self.counts(arrival) {
            return;
        }
        if departure >= self.window.1 {
            self.in_flight(queue, arrival);
            return;
        }
        self.queues[queue].departed += 1;
        self.octets += u64::from(octets);
        let delay = departure.since(arrival).unwrap_or(Nanos::ZERO);
        let known: u64 = shares.iter().sum();
        match delay.as_nanos().checked_sub(known) {
            Some(rest) => shares[Term::Queueing as usize] += rest,
            None => self.unsound += 1,
        }
        self.latency.record(delay);
        for (recorder, share) in self.terms.iter_mut().zip(shares) {
            recorder.record(Nanos::from_nanos(share));
        }
        self.late += u64::from(self.goal.is_some_and(|goal| delay > goal.latency));
    }
}
