//! The search for the longest burst without loss (RFC 2544, 26.4, updated by RFC 9004, 5.3).

use crate::Error;

/// A binary search over the number of frames in a burst. It does not choose a rate: bursts are sent at the maximum
/// rate.
///
/// ```text
///  longest ── passes ──► done: at least `longest`
///     └── fails ──► bisect 0..longest ──► one frame between the bounds ──► done
/// ```
#[derive(Clone, Debug)]
pub struct BurstSearch {
    passed: u64,
    failed: Option<u64>,
    longest: u64,
    width: u64,
}

/// The bounds that a [`BurstSearch`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BurstBounds {
    /// Number of frames in the longest burst that passed; 0 if none did.
    pub passed: u64,
    /// Number of frames in the shortest burst that lost frames. `None` if even the longest burst to try passed; then
    /// `passed` is only a lower bound.
    pub failed: Option<u64>,
}

impl BurstSearch {
    /// Searches bursts of up to `longest` frames. Ends when the bounds are `width` frames apart (at least 1).
    pub fn new(longest: u64, width: u64) -> Result<Self, Error> {
        if longest == 0 || width == 0 {
            return Err(Error::invalid(
                format!("a search of bursts of up to {longest} frames, to within {width}"),
                "expected at least 1 frame each",
            ));
        }
        Ok(Self { passed: 0, failed: None, longest, width })
    }

    /// Number of frames in the next burst; `None` when the search has ended.
    pub fn next_frames(&self) -> Option<u64> {
        match self.failed {
            None if self.passed >= self.longest => None,
            None => Some(self.longest),
            Some(failed) if failed - self.passed <= self.width => None,
            Some(failed) => Some(self.passed + (failed - self.passed) / 2),
        }
    }

    /// Records whether a burst of `frames` frames lost any of them.
    pub fn record(&mut self, frames: u64, lost: bool) {
        if lost {
            self.failed = Some(self.failed.map_or(frames, |known| known.min(frames)));
        } else if self.failed.is_none_or(|failed| frames < failed) {
            self.passed = self.passed.max(frames);
        }
    }

    /// The bounds so far.
    pub fn bounds(&self) -> BurstBounds {
        BurstBounds { passed: self.passed, failed: self.failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(longest: u64, width: u64, holds: u64) -> BurstBounds {
        let mut search = BurstSearch::new(longest, width).unwrap();
        while let Some(frames) = search.next_frames() {
            search.record(frames, frames > holds);
        }
        search.bounds()
    }

    #[test]
    fn finds_the_last_burst_that_passes() {
        for holds in [0, 1, 499, 500, 998] {
            assert_eq!(search(999, 1, holds), BurstBounds { passed: holds, failed: Some(holds + 1) });
        }
        assert_eq!(search(999, 1, 5000), BurstBounds { passed: 999, failed: None });
        let wide = search(100_000, 50, 12_345);
        assert!(wide.passed <= 12_345 && wide.passed + 50 >= wide.failed.unwrap(), "{wide:?}");
        assert!(BurstSearch::new(0, 1).is_err() && BurstSearch::new(1, 0).is_err());
    }
}
