//! Keeps the calling thread off the CPUs that are isolated for applications.

use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};

use crate::facts::CpuSet;

/// Keeps the calling thread on the housekeeping CPUs until the value is dropped.
#[derive(Debug)]
pub struct Housekeeping {
    before: Option<Mask>,
    /// Why the thread could not be moved. `None` if it was moved, or if no CPU is isolated.
    pub note: Option<String>,
}

impl Housekeeping {
    /// Moves the calling thread off the isolated CPUs, if there are any and if it may run on other CPUs.
    pub fn enter(isolated: &CpuSet) -> Self {
        if isolated.is_empty() {
            return Self { before: None, note: None };
        }
        let stays = |reason: String| Self { before: None, note: Some(format!("read from where it was: {reason}")) };
        let before = match sched_getaffinity(None) {
            Ok(mask) => mask,
            Err(error) => return stays(error.to_string()),
        };
        let mut mask = Mask::new();
        let allowed = (0..Mask::MAX_CPU).filter(|cpu| before.is_set(*cpu));
        for cpu in allowed.filter(|cpu| !isolated.contains(*cpu as u32)) {
            mask.set(cpu);
        }
        if mask.count() == 0 {
            return stays("this process may run on isolated CPUs only; start it with taskset on the others".into());
        }
        match sched_setaffinity(None, &mask) {
            Ok(()) => Self { before: Some(before), note: None },
            Err(error) => stays(error.to_string()),
        }
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // This fails if the CPUs went offline in the meantime. Then the thread stays where it is.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Vec<usize> {
        let mask = sched_getaffinity(None).unwrap();
        (0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect()
    }

    #[test]
    fn the_thread_leaves_isolated_cpus_and_comes_back() {
        let before = here();
        let [first, .., last] = before.as_slice() else {
            testkit::skip("this test needs two CPUs");
            return;
        };
        {
            let inside = Housekeeping::enter(&CpuSet::from([*last as u32]));
            assert_eq!(inside.note, None);
            assert!(here().contains(first) && !here().contains(last));
        }
        assert_eq!(here(), before);
        let all: CpuSet = before.iter().map(|cpu| *cpu as u32).collect();
        assert!(Housekeeping::enter(&all).note.is_some());
        assert_eq!(here(), before);
    }
}
