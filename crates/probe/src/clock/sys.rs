//! The processor's time-stamp counter.
#![allow(unsafe_code)]

/// The time stamp counter, read after all earlier instructions; `None` on an architecture without one.
#[inline]
pub(super) fn tsc() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: both instructions are part of every x86-64 processor, and the kernel lets user space read the counter
        // unless PR_SET_TSC forbade it (then the read ends the process, as documented). LFENCE keeps the read from
        // being moved ahead (Intel SDM volume 2, RDTSC).
        Some(unsafe {
            _mm_lfence();
            _rdtsc()
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
