//! A token bucket: limits the rate per second and the size of a burst.

use units::{Instant, Monotonic, Nanos};

/// Number of millionths in a token. Tokens are counted in millionths, so that rounding does not affect low rates.
const WHOLE: u64 = 1_000_000;

/// A token bucket that starts full.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: u64,
    most: u64,
    level: u64,
    at: Instant<Monotonic>,
}

impl Bucket {
    /// Creates a bucket that can hold the tokens of one second, but at least one token.
    pub fn new(per_second: u32, now: Instant<Monotonic>) -> Self {
        let per_second = u64::from(per_second.max(1)) * WHOLE;
        Self { per_second, most: per_second, level: per_second, at: now }
    }

    /// Number of whole tokens available now.
    pub fn left(&mut self, now: Instant<Monotonic>) -> u64 {
        let passed = now.since(self.at).unwrap_or(Nanos::ZERO).as_nanos();
        // After one second the bucket is full anyway.
        let passed = passed.min(1_000_000_000);
        let gained = u128::from(self.per_second) * u128::from(passed) / 1_000_000_000;
        if gained > 0 {
            self.level = self.most.min(self.level + gained as u64);
            self.at = now;
        }
        self.level / WHOLE
    }

    /// Takes one token. Returns false if there is none.
    pub fn take(&mut self, now: Instant<Monotonic>) -> bool {
        let is_there = self.left(now) > 0;
        if is_there {
            self.level -= WHOLE;
        }
        is_there
    }

    /// Takes `tokens` tokens, or all that are available if there are fewer.
    pub fn spend(&mut self, now: Instant<Monotonic>, tokens: u64) {
        let left = self.left(now);
        self.level -= tokens.min(left) * WHOLE;
    }

    /// When the bucket will hold `tokens` tokens. If it cannot hold that many, when it will be full.
    pub fn has_at(&self, tokens: u64) -> Instant<Monotonic> {
        let missing = (tokens * WHOLE).min(self.most).saturating_sub(self.level);
        self.at + Nanos::from_nanos((u128::from(missing) * 1_000_000_000).div_ceil(u128::from(self.per_second)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_no_more_than_its_tokens() {
        let at = |ms| Instant::ORIGIN + Nanos::from_millis(ms);
        for rate in [1, 3, 50, 1_000_000] {
            let mut bucket = Bucket::new(rate, at(0));
            let burst = (0..2 * u64::from(rate)).filter(|_| bucket.take(at(0))).count();
            assert_eq!(burst, rate as usize);
            let taken = (0..10_000).filter(|ms| bucket.take(at(*ms))).count();
            let most = (u64::from(rate) * 10).min(10_000) as usize;
            assert!((most - most / 100 - 1..=most).contains(&taken), "{rate}: {taken} in 10 s");
        }
    }

    #[test]
    fn it_says_when_it_has_more() {
        let now = Instant::ORIGIN + Nanos::from_secs(7);
        let mut bucket = Bucket::new(4, now);
        bucket.spend(now, 100);
        assert_eq!((bucket.left(now), bucket.has_at(1)), (0, now + Nanos::from_millis(250)));
        assert_eq!(bucket.has_at(100), now + Nanos::from_secs(1), "when it is full");
        let at = bucket.has_at(1);
        assert_eq!(bucket.left(at), 1);
        assert_eq!(bucket.left(Instant::ORIGIN), 1, "a clock that goes back adds nothing");
    }
}
