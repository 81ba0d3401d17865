//! What waits cost: the thread's CPU time over a sample of them.
//!
//! ```text
//!   Meter::begin ──► sleep or block ──► the clock ──► Meter::end ──► Ended::spent
//! ```
//! The kernel charges the thread from the moment at which it switches to it until it switches away: going to sleep, and
//! the second half of waking up. The first half (the interrupt's entry, the timer, the wake-up itself, leaving the idle
//! state) runs before that switch, and no clock that is worth a reading per wait counts it; docs/waiting.md says what
//! was tried. A pause keeps the core: it costs its length, and needs no reading.

use policy::wait::WaitKind;
use units::Nanos;

use crate::cpu::Cpu;

/// Waits of each kind that are all measured, so that the first decisions rest on something.
const FIRST: u64 = 64;
/// Of the waits after these, one in so many is measured. Reading a thread's CPU time is a system call (vdso(7) lists the
/// clocks that need none): 0.7 us on a 2-vCPU VM, where a wait costs at least 5 us.
const ONE_IN: u64 = 16;
/// The cost of a reading is the least difference of so many pairs of readings.
const TRIALS: usize = 16;

/// Decides which waits are measured, and measures them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// Waits so far, by kind.
    waits: [u64; WaitKind::ALL.len()],
    /// What a measurement of nothing shows.
    own: Nanos,
}

impl Meter {
    /// For the waits of `cpu`.
    pub fn new(cpu: &impl Cpu) -> Self {
        let nothing = || {
            let before = cpu.thread_time()?;
            cpu.thread_time()?.checked_sub(before)
        };
        let own = (0..TRIALS).filter_map(|_| nothing()).min().unwrap_or(Nanos::ZERO);
        Self { waits: [0; WaitKind::ALL.len()], own }
    }

    /// The thread's CPU time before a wait; `None` if this wait is not measured.
    #[inline]
    pub fn begin(&mut self, kind: WaitKind, cpu: &impl Cpu) -> Option<Nanos> {
        let number = self.waits[kind as usize];
        self.waits[kind as usize] = number + 1;
        if number < FIRST || number.is_multiple_of(ONE_IN) { cpu.thread_time() } else { None }
    }

    /// The thread's CPU time over the wait that began at `before`, less what measuring takes.
    #[inline]
    pub fn end(&self, before: Option<Nanos>, cpu: &impl Cpu) -> Option<Nanos> {
        let before = before?;
        let spent = cpu.thread_time()?.checked_sub(before)?;
        Some(spent.saturating_sub(self.own))
    }
}
