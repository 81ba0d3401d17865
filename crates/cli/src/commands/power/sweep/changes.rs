//! Changes the frequency limits of one cpufreq policy again and again, and restores them at the end through the
//! journal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use host::knob::{Access, Limits};
use host::transaction::{Moved, Steered, Target};
use live::os::{Scheduling, place_this_thread};
use units::{Hertz, Nanos};

use super::COMMAND;
use crate::Failure;
use crate::documents::VERSION;

/// SCHED_FIFO priority of the thread that changes the frequency. It is above that of the tester and of the forwarder,
/// which never sleep.
const PRIORITY: u8 = 60;

/// Number of frequency changes: requested, carried out as requested, and carried out otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub asked: u64,
    pub as_asked: u64,
    pub otherwise: u64,
}

/// Sets both limits of a policy to the same frequency. The core then has this frequency, whichever driver and governor
/// it uses.
pub struct Changer {
    steered: Steered,
    original: host::knob::Value,
    levels: Vec<Hertz>,
    next: usize,
    /// CPU of the thread that changes the frequency. It is never the forwarder's CPU.
    cpu: usize,
}

impl Changer {
    /// Records the original limits of cpufreq policy number `policy` in the journal. `levels` are the frequencies to
    /// set, and `cpu` is where the thread that changes the frequency will run.
    pub fn new(access: &Access, policy: u32, levels: &[Hertz], cpu: usize) -> anyhow::Result<Self> {
        let targets = [Target::from(Limits::new(policy))];
        let steered = Steered::new(access, "power sweep", &targets, COMMAND, VERSION)?;
        let original = steered.original(0).cloned();
        let original = original.ok_or_else(|| {
            let why = "the kernel does not report them";
            Failure::lacking(format!("cannot read the frequency limits of policy {policy}"), why, "try again as root")
        })?;
        Ok(Self { steered, original, levels: levels.to_vec(), next: 0, cpu })
    }

    pub fn levels(&self) -> &[Hertz] {
        &self.levels
    }

    /// Sets a frequency. Returns whether the machine then reports this frequency.
    pub fn set(&mut self, level: Hertz) -> bool {
        matches!(self.steered.steer(0, &Limits::value(level, level)), Ok(Moved::AsWanted { .. }))
    }

    /// Changes the frequency every `period` while `work` runs, and restores the original limits afterwards.
    pub fn during<T>(&mut self, period: Nanos, work: impl FnOnce() -> T) -> (T, Tally) {
        let ended = AtomicBool::new(false);
        let (done, tally) = std::thread::scope(|scope| {
            let (placed, is_placed) = mpsc::channel();
            let (changer, ended) = (&mut *self, &ended);
            let changing = scope.spawn(move || changer.change_until(ended, period, &placed));
            // The thread inherits the CPU and the priority of this thread, whose loop never yields. Without this wait,
            // the thread would never run to raise its own priority.
            let _ = is_placed.recv();
            let done = work();
            ended.store(true, Ordering::Relaxed);
            changing.thread().unpark();
            (done, changing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        // Restores the original limits, because the last steady block must run with the same limits as the first one.
        let original = self.original.clone();
        let _ = self.steered.steer(0, &original);
        (done, tally)
    }

    fn change_until(&mut self, ended: &AtomicBool, period: Nanos, placed: &Sender<()>) -> Tally {
        // Without the privilege, the frequency changes only when the loops leave time for it. The tally shows how many
        // changes were made.
        let _ = place_this_thread(Scheduling { cpu: Some(self.cpu), fifo: Some(PRIORITY) });
        let _ = placed.send(());
        let period = Duration::from_nanos(period.as_nanos());
        let mut due = Instant::now() + period;
        let mut tally = Tally::default();
        while !ended.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < due {
                std::thread::park_timeout(due - now);
                continue;
            }
            // A late change does not shorten the time until the next one.
            due = now + period;
            let level = self.levels[self.next % self.levels.len()];
            self.next += 1;
            tally.asked += 1;
            match self.set(level) {
                true => tally.as_asked += 1,
                false => tally.otherwise += 1,
            }
        }
        tally
    }

    /// Restores the original limits.
    pub fn release(self) -> anyhow::Result<()> {
        match self.steered.release()? {
            Some(back) if !back.closed => Err(Failure::lacking(
                "cannot restore the frequency limits",
                "something else has changed them meanwhile, or the kernel refused the old values",
                format!("look at apus tune status, then run apus tune rollback {}", back.id),
            )
            .into()),
            _ => Ok(()),
        }
    }
}
