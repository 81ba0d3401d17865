//! How the caller follows a probe, and ends it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use units::Nanos;

use crate::ring::Ring;

/// Samples on their way to a live display; a fast probe loses some here, and only here.
const FEED: usize = 1 << 14;

/// The caller's end of a running probe: the probe has a reference, the caller another.
#[derive(Debug)]
pub struct Control {
    stop: AtomicBool,
    feed: Ring<1>,
    news: Mutex<Option<String>>,
    /// End at the first sample above this, and explain it.
    pub fail_over: Option<Nanos>,
    /// Below which /proc, /sys and tracefs are: `/`.
    pub root: PathBuf,
}

impl Default for Control {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Control {
    /// For one run on this machine.
    pub fn new(fail_over: Option<Nanos>) -> Self {
        let root = Path::new("/").to_path_buf();
        Self { stop: AtomicBool::new(false), feed: Ring::new(FEED), news: Mutex::new(None), fail_over, root }
    }

    /// Asks the probe to end. What was measured until then is its result.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether someone asked for the end.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Shows a sample to whoever looks on. To be called by one thread of the probe at a time.
    #[inline]
    pub fn show(&self, sample: Nanos) {
        self.feed.push([sample.as_nanos()]);
    }
    /// Takes the samples that were shown since the last call. To be called by one thread.
    pub fn seen(&self, mut each: impl FnMut(Nanos)) {
        self.feed.drain(|[nanos]| each(Nanos::from_nanos(nanos)));
    }

    /// Says what is being measured now.
    pub fn say(&self, news: impl Into<String>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news.into());
    }
    /// What was said since the last call.
    pub fn news(&self) -> Option<String> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a sample ends the run.
    #[inline]
    pub fn is_over(&self, sample: Nanos) -> bool {
        self.fail_over.is_some_and(|threshold| sample > threshold)
    }
}
