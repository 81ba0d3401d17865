use std::sync::{Mutex, MutexGuard, PoisonError};

use probe::place;

/// These tests need both CPUs of a small machine: one of them at a time, as long as this is held.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU to measure on, and another one; `None`, and a line that says why, where there is no other or
/// no privilege.
pub fn two_cpus() -> Option<(usize, usize)> {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root (CAP_SYS_NICE, CAP_PERFMON)");
        return None;
    }
    match place::allowed().unwrap()[..] {
        [first, .., last] => Some((last, first)),
        _ => {
            testkit::skip("needs two CPUs");
            None
        }
    }
}

/// Does something at the end of its block, also in a panic: a scope would else wait for ever for a thread that nobody stops.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        self.0();
    }
}
