//! Lets the caller of a probe observe its progress and stop it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use units::Nanos;

use crate::ring::Ring;

/// Number of samples buffered for a live display. If the probe is too fast, the display misses some samples, but the
/// result does not.
const FEED: usize = 1 << 14;

/// Controls a running probe. The caller and the probe each hold a reference.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    feed: Ring<1>,
    news: Mutex<Option<String>>,
    /// Threshold. The first sample above it ends the run and is explained in the result. `None` means no threshold.
    pub fail_over: Option<Nanos>,
    /// Directory that contains /proc, /sys and tracefs; `/` on a live host.
    pub root: PathBuf,
}

impl Default for Control {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Control {
    /// Creates the control for one run on this host. If `fail_over` is given, the run ends at the first sample above
    /// it.
    pub fn new(fail_over: Option<Nanos>) -> Self {
        let root = Path::new("/").to_path_buf();
        Self { stop: AtomicBool::new(false), feed: Ring::new(FEED), news: Mutex::new(None), fail_over, root }
    }

    /// Asks the probe to end. Its result then contains the samples up to that moment.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the probe was asked to end.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Passes a sample to the observer for live display. Only one thread of the probe may call this at a time.
    #[inline]
    pub fn show(&self, sample: Nanos) {
        self.feed.push([sample.as_nanos()]);
    }
    /// Calls `each` with every sample that the probe has passed to [`show`](Self::show) since the last call. Only one
    /// thread may call this.
    pub fn seen(&self, mut each: impl FnMut(Nanos)) {
        self.feed.drain(|[nanos]| each(Nanos::from_nanos(nanos)));
    }

    /// Announces in words what the probe measures now, for a progress display. Replaces an earlier message that was not
    /// yet read.
    pub fn say(&self, news: impl Into<String>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news.into());
    }
    /// Takes the latest message that the probe announced with [`say`](Self::say). `None` if there was no new one since
    /// the last call.
    pub fn news(&self) -> Option<String> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether `sample` is above the threshold, so that the run must end. Always false without a threshold.
    #[inline]
    pub fn is_over(&self, sample: Nanos) -> bool {
        self.fail_over.is_some_and(|threshold| sample > threshold)
    }
}
