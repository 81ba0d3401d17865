//! Measures the cost of waits, as CPU time of the thread, for a sample of the waits.
//!
//! ```text
//!   Meter::begin ──► sleep or block ──► the clock ──► Meter::end ──► Ended::spent
//! ```
//! The kernel counts a thread's CPU time from the context switch to the thread until the switch away from it. So the
//! measured time includes going to sleep, and the second half of the wake-up. The first half (interrupt entry, timer,
//! wake-up call, exit from the idle state) runs before the switch, and is not measured: no clock that is cheap enough
//! to read for each wait counts it (docs/waiting.md lists what was tried). A pause keeps the core, so its cost is its
//! length and needs no measurement.

use policy::wait::WaitKind;
use units::Nanos;

use crate::cpu::Cpu;

/// The first waits of each kind, up to this number, are all measured, so that the first decisions have a basis.
const FIRST: u64 = 64;
/// After the first `FIRST` waits of a kind, one wait in `ONE_IN` is measured, because reading a thread's CPU time needs
/// a system call (vdso(7) lists the clocks that need none). The call takes 0.7 us on a 2-vCPU VM, where a wait costs at
/// least 5 us.
const ONE_IN: u64 = 16;
/// Number of pairs of readings from which the cost of a reading is determined. The cost is the smallest difference
/// within a pair.
const TRIALS: usize = 16;

/// Decides which waits to measure, and measures them.
#[derive(Clone, Debug)]
pub struct Meter {
    /// Number of waits so far, by kind.
    waits: [u64; WaitKind::ALL.len()],
    /// CPU time of the measurement itself, which is subtracted.
    own: Nanos,
}

impl Meter {
    /// Creates a meter. First measures the cost of a reading on `cpu`.
    pub fn new(cpu: &impl Cpu) -> Self {
        let nothing = || {
            let before = cpu.thread_time()?;
            cpu.thread_time()?.checked_sub(before)
        };
        let own = (0..TRIALS).filter_map(|_| nothing()).min().unwrap_or(Nanos::ZERO);
        Self { waits: [0; WaitKind::ALL.len()], own }
    }

    /// Must be called before a wait. Returns the thread's CPU time, or `None` if this wait is not measured.
    #[inline]
    pub fn begin(&mut self, kind: WaitKind, cpu: &impl Cpu) -> Option<Nanos> {
        let number = self.waits[kind as usize];
        self.waits[kind as usize] = number + 1;
        if number < FIRST || number.is_multiple_of(ONE_IN) { cpu.thread_time() } else { None }
    }

    /// Must be called after the wait, with the result of `begin`. Returns the CPU time of the wait, without the cost of
    /// the measurement; `None` if the wait was not measured.
    #[inline]
    pub fn end(&self, before: Option<Nanos>, cpu: &impl Cpu) -> Option<Nanos> {
        let before = before?;
        let spent = cpu.thread_time()?.checked_sub(before)?;
        Some(spent.saturating_sub(self.own))
    }
}
