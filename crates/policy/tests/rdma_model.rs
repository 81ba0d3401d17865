//! The RDMA variant against a second, plain reading of its specification: unbounded integers and explicit
//! reductions in place of wrapping types, one function in place of several.

use policy::moderation::dim::RdmaDim;
use proptest::prelude::*;
use units::{Instant, Simulated};

/// `(value mod 2^bits)`, as a counter of that width keeps it.
fn narrow(value: i128, bits: u32) -> i128 {
    value.rem_euclid(1 << bits)
}

/// The same, as a signed number of that width reads it.
fn signed(value: i128, bits: u32) -> i128 {
    let value = narrow(value, bits);
    if value >= 1 << (bits - 1) { value - (1 << bits) } else { value }
}

#[derive(Clone, Copy, Default)]
struct Point {
    time: i128,
    events: i128,
    completions: i128,
}

struct Model {
    state: u8,
    going_left: bool,
    index: i128,
    right: i128,
    left: i128,
    start: Point,
    measuring: Point,
    /// Completions a millisecond, and completions an event in percent.
    previous: (i128, i128),
}

impl Model {
    fn new() -> Self {
        let (start, measuring) = Default::default();
        Self { state: 0, going_left: false, index: 0, right: 0, left: 0, start, measuring, previous: (0, 0) }
    }

    fn turn(&mut self) {
        self.going_left = !self.going_left;
        if self.going_left {
            self.left = 0;
        } else {
            self.right = 0;
        }
    }

    /// A percentage of change above ten, in unsigned 64 bits.
    fn significant(value: i128, reference: i128) -> bool {
        let difference = narrow(signed(signed(value - reference, 32).abs(), 32), 64);
        reference != 0 && narrow(100 * difference, 64) / narrow(reference, 64) > 10
    }

    fn call(&mut self, time: i64, completions: u64, restart: i64) {
        self.measuring.time = i128::from(time);
        self.measuring.events = narrow(self.measuring.events + 1, 16);
        self.measuring.completions = narrow(self.measuring.completions + i128::from(completions), 32);
        if self.state == 2 {
            return;
        }
        if self.state == 1 {
            // An int difference kept in 32 unsigned bits.
            if narrow(self.measuring.events - self.start.events, 32) < 64 {
                return;
            }
            // Truncated toward zero, then to 32 unsigned bits.
            let us = narrow(signed(self.measuring.time - self.start.time, 64) / 1_000, 32);
            if us == 0 {
                return;
            }
            let completed = narrow(self.measuring.completions - self.start.completions, 32);
            let per_ms = |n: i128| signed((n * 1_000 + us - 1) / us, 32);
            let (cpms, epms) = (per_ms(completed), per_ms(64));
            let ratio = if epms == 0 { 0 } else { signed(narrow(signed(cpms * 100, 32), 64) / epms, 32) };
            let before = self.index;
            let (old_cpms, old_ratio) = self.previous;
            // More, fewer, or the same.
            let verdict = if old_cpms == 0 {
                0
            } else if Self::significant(cpms, old_cpms) {
                (cpms - old_cpms).signum()
            } else if Self::significant(ratio, old_ratio) {
                (ratio - old_ratio).signum()
            } else {
                0
            };
            if verdict == 0 {
                if ratio <= 50 * self.index {
                    self.index = 0;
                }
            } else {
                if verdict < 0 {
                    self.turn();
                }
                match self.going_left {
                    true if self.index == 0 => self.turn(),
                    false if self.index == 8 => self.turn(),
                    true => (self.index, self.left) = (self.index - 1, narrow(self.left + 1, 8)),
                    false => (self.index, self.right) = (self.index + 1, narrow(self.right + 1, 8)),
                }
            }
            self.previous = (cpms, ratio);
            if self.index != before {
                self.state = 2;
                return;
            }
        }
        self.state = 1;
        self.start = Point { time: i128::from(restart), ..self.measuring };
    }
}

/// Spans and completions of many sizes: the same over many calls, so that rates compare, and odd ones between.
fn calls() -> impl Strategy<Value = Vec<(u64, u64, u64, bool)>> {
    let span = prop_oneof![
        8 => 500u64..20_000,
        2 => Just(0u64),
        1 => 0u64..10_000_000_000,
        1 => 4_294_967_000_000u64..4_295_968_000_000,
    ];
    let completions = prop_oneof![8 => 0u64..64, 2 => Just(1u64), 1 => 0u64..1 << 34];
    let phase = (span, completions, 0u64..2_000, 1usize..400, prop::bool::weighted(0.8));
    prop::collection::vec(phase, 1..40).prop_map(|phases| {
        let repeat = |(span, completions, restart, calls, done)| vec![(span, completions, restart, done); calls];
        phases.into_iter().flat_map(repeat).collect()
    })
}

fn compare(start: u64, calls: &[(u64, u64, u64, bool)]) {
    let (mut dim, mut model, mut time) = (RdmaDim::<Simulated>::new(), Model::new(), start);
    for (number, &(span, completions, restart, done)) in calls.iter().enumerate() {
        time = time.wrapping_add(span);
        let later = time.wrapping_add(restart);
        if done && model.state == 2 {
            dim.finish_applying();
            model.state = 0;
        }
        dim.step(Instant::from_nanos(time), completions, Instant::from_nanos(later));
        model.call(time as i64, completions, later as i64);
        let seen = dim.snapshot();
        let seen = [
            seen.state as i128,
            seen.tune_state as i128,
            seen.profile_ix.into(),
            seen.steps_right.into(),
            seen.steps_left.into(),
        ];
        let tune_state = if model.going_left { 3 } else { 2 };
        assert_eq!(seen, [model.state.into(), tune_state, model.index, model.right, model.left], "call {number}");
        assert_eq!(dim.snapshot().tired, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn equals_its_specification(start: u64, calls in calls()) {
        compare(start, &calls);
    }
}

#[test]
fn equals_its_specification_over_the_wrap_around_of_every_counter() {
    // 200,000 calls: the event counter wraps three times; 30,000 completions each: the completions too. The
    // rates change every 1,000 calls, and the clock wraps as well.
    let calls: Vec<_> =
        (0..200_000u64).map(|n| (1_000 + n / 1_000 % 7 * 300, 30_000 + n / 1_000 % 5 * 9_000, n % 3, true)).collect();
    compare(u64::MAX - 100_000_000, &calls);
}
