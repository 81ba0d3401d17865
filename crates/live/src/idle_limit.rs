//! The limit of the exit latency of the worker's CPU: no idle state that ends later is entered. The policy chooses it.
//!
//! ```text
//!   file: in force ──► policy.limit_idle ──► file
//! ```
//! The worker itself writes the file, so that the limit is in force before its next wait. The program opens it, and
//! restores it when the workers have ended. The file is `pm_qos_resume_latency_us` of the CPU (Linux,
//! Documentation/ABI/testing/sysfs-devices-power).
//!
//! **The limit of before** is never exceeded: it counts as no limit, and the policy does not know the deeper states.
//!
//! **If somebody else changes the file** or the kernel refuses a limit, the worker writes no further limit. The policy
//! still learns what is in force.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use policy::wait::IdleState;
use units::{Instant, Monotonic, Nanos};

use crate::Error;

/// Minimum time between two looks whether somebody else has changed the limit, besides those before each change. The
/// policy may choose more often.
pub const INTERVAL: Nanos = Nanos::from_millis(50);
/// The longest text of a limit: the kernel stores it in an s32 (Linux, drivers/base/power/sysfs.c).
const LONGEST: usize = 12;

/// The limit of one worker's CPU. All clones share it.
#[derive(Clone, Debug)]
pub struct IdleLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: File,
    states: Vec<IdleState>,
    /// The limit of before the run.
    original: Nanos,
    /// The limit that the worker wrote last, or the original one, in nanoseconds.
    last: AtomicU64,
    /// Number of limits that the worker wrote.
    changes: AtomicU64,
    ended: OnceLock<Ended>,
}

/// Why a worker writes no further limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The program stopped it ([`IdleLimit::stop`]).
    Stopped,
    /// Somebody else has set this limit. [`Nanos::MAX`] means none.
    Changed(Nanos),
    /// The file could not be written or read. Contains the number of the system's error, or 0 if it holds no limit.
    Failed(i32),
}

impl IdleLimit {
    /// Takes the CPU's file, open for reading and writing, and its idle states in cpuidle's order, without those that
    /// are disabled. Leaves out the states beyond the present limit. Changes nothing yet.
    pub fn new(file: File, states: &[IdleState]) -> Result<Self, Error> {
        let failed = |e| Error::system("read the CPU's limit of the exit latency (pm_qos_resume_latency_us)", e);
        let original = read(&file).map_err(failed)?;
        let states = states.iter().filter(|state| state.exit <= original).copied().collect();
        let (last, changes) = (AtomicU64::new(original.as_nanos()), AtomicU64::new(0));
        Ok(Self(Arc::new(Shared { file, states, original, last, changes, ended: OnceLock::new() })))
    }

    /// The idle states among which the policy chooses.
    pub fn states(&self) -> &[IdleState] {
        &self.0.states
    }

    /// The text that the worker wrote last, or the original one, without the end of the line.
    pub fn last(&self) -> String {
        let mut octets = [0; LONGEST];
        let length = text(Nanos::from_nanos(self.0.last.load(Relaxed)), &mut octets);
        String::from_utf8_lossy(&octets[..length]).trim_end().to_owned()
    }

    /// From now on, the worker writes no further limit. A write that has begun may still follow.
    pub fn stop(&self) {
        self.0.ended.get_or_init(|| Ended::Stopped);
    }

    /// Number of limits that the worker wrote.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Relaxed)
    }

    /// Why the worker writes no further limit. `None` if it still does.
    pub fn ended(&self) -> Option<Ended> {
        self.0.ended.get().copied()
    }
}

/// The worker's side of an [`IdleLimit`].
#[derive(Debug)]
pub(crate) struct Chooser {
    limit: IdleLimit,
    /// What the policy wanted last, and the limit that was set for it. They differ if the wanted limit exceeds the
    /// original one, or is no whole number of microseconds.
    wanted: Nanos,
    set: Nanos,
    /// The limit that was in the file when the worker last read or wrote it.
    found: Nanos,
    /// What the policy was told last, if it wants nothing else. Only used when the worker writes no further limit.
    known: Option<Nanos>,
    /// When the worker last looked at the file.
    looked: Option<Instant<Monotonic>>,
}

impl Chooser {
    pub(crate) fn new(limit: IdleLimit) -> Self {
        let set = limit.0.original;
        Self { limit, wanted: Nanos::MAX, set, found: set, known: None, looked: None }
    }

    /// Whether there is nothing to do at this time, whatever the policy wants: the worker writes no further limit, and
    /// has just looked what is in force.
    #[inline]
    pub(crate) fn rests(&self, now: Instant<Monotonic>) -> bool {
        self.limit.0.ended.get().is_some() && !self.looks(now)
    }

    #[inline]
    fn looks(&self, now: Instant<Monotonic>) -> bool {
        self.looked.is_none_or(|looked| now.since(looked).is_some_and(|since| since >= INTERVAL))
    }

    /// Lets the policy choose the limit, and sets it. `choose` gets the limit in force. Allocates nothing.
    pub(crate) fn choose(&mut self, now: Instant<Monotonic>, choose: impl FnOnce(Nanos) -> Nanos) {
        if self.looks(now) {
            self.looked = Some(now);
            if self.look().is_none() {
                return;
            }
        }
        let shared = &*self.limit.0;
        let in_force = match self.found {
            found if found == self.set => self.wanted,
            found if found >= shared.original => Nanos::MAX,
            found => found,
        };
        let is_over = shared.ended.get().is_some();
        if is_over && self.known == Some(in_force) {
            return;
        }
        let wanted = choose(in_force);
        self.known = (wanted == in_force).then_some(in_force);
        if wanted == in_force || is_over {
            return;
        }
        let set = whole(wanted).min(shared.original);
        if set != self.set {
            // Somebody else's value is not overwritten. The policy learns of it at the next choice, which is not delayed.
            self.looked = None;
            if self.look() != Some(self.set) {
                return;
            }
            let shared = &*self.limit.0;
            // The program may have ended the choice meanwhile, to restore the file.
            if shared.ended.get().is_some() {
                return;
            }
            let mut octets = [0; LONGEST];
            let length = text(set, &mut octets);
            if let Err(error) = shared.file.write_all_at(&octets[..length], 0) {
                shared.ended.get_or_init(|| failed(&error));
                return;
            }
            shared.last.store(set.as_nanos(), Relaxed);
            shared.changes.fetch_add(1, Relaxed);
        }
        (self.wanted, self.set, self.found, self.looked) = (wanted, set, set, Some(now));
    }

    /// Reads the file. `None` if that fails.
    fn look(&mut self) -> Option<Nanos> {
        let shared = &*self.limit.0;
        match read(&shared.file) {
            Ok(found) => {
                self.found = found;
                if found != self.set {
                    shared.ended.get_or_init(|| Ended::Changed(found));
                }
                Some(found)
            }
            Err(error) => {
                shared.ended.get_or_init(|| failed(&error));
                None
            }
        }
    }
}

fn failed(error: &io::Error) -> Ended {
    Ended::Failed(error.raw_os_error().unwrap_or(0))
}

/// The limit in whole microseconds, rounded up so that it allows what `limit` allows. [`Nanos::MAX`] if the file cannot
/// hold so many.
fn whole(limit: Nanos) -> Nanos {
    let micros = limit.as_nanos().div_ceil(1_000);
    i32::try_from(micros).map_or(Nanos::MAX, |_| Nanos::from_micros(micros))
}

/// The limit in the file.
fn read(file: &File) -> io::Result<Nanos> {
    let mut octets = [0; 2 * LONGEST];
    let length = file.read_at(&mut octets, 0)?;
    limit(&octets[..length]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The limit that a text of the file stands for: `0` is none, and `n/a` is a latency of zero.
fn limit(text: &[u8]) -> Option<Nanos> {
    let line = text.split(|octet| *octet == b'\n').next()?;
    match line {
        b"0" => Some(Nanos::MAX),
        b"n/a" => Some(Nanos::ZERO),
        _ => std::str::from_utf8(line).ok()?.parse::<i32>().ok().filter(|n| *n > 0).map(|n| {
            let micros = u64::from(n.unsigned_abs());
            Nanos::from_micros(micros)
        }),
    }
}

/// Writes the text of a limit in whole microseconds, and returns its length.
fn text(limit: Nanos, octets: &mut [u8; LONGEST]) -> usize {
    use io::Write as _;
    let mut rest = &mut octets[..];
    // The longest text fits.
    let _ = match limit {
        Nanos::MAX => rest.write_all(b"0\n"),
        Nanos::ZERO => rest.write_all(b"n/a\n"),
        limit => writeln!(rest, "{}", limit.as_micros_floor()),
    };
    LONGEST - rest.len()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    use super::*;

    const US: Nanos = Nanos::from_micros(1);

    /// Lets the policy choose when the worker looks at the file again.
    fn choose(chooser: &mut Chooser, choose: impl FnOnce(Nanos) -> Nanos) {
        let now = chooser.looked.map_or(Instant::ORIGIN, |looked| looked + INTERVAL);
        assert!(!chooser.rests(now));
        chooser.choose(now, choose);
    }

    /// A folder that has a CPU's file.
    struct Cpu(PathBuf);

    impl Cpu {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("apus-idle-{name}-{}", std::process::id()));
            fs::write(&path, text).unwrap();
            Self(path)
        }

        fn limit(&self) -> Result<IdleLimit, Error> {
            let file = OpenOptions::new().read(true).write(true).open(&self.0).unwrap();
            let state = |exit: u64| IdleState { exit: US * exit, residency: US * 3 * exit };
            IdleLimit::new(file, &[0, 2, 20, 90].map(state))
        }

        /// The first line of the file. Unlike a file of the kernel, it may have the rest of a longer text after that.
        fn line(&self) -> String {
            fs::read_to_string(&self.0).unwrap().lines().next().unwrap().to_owned()
        }
    }

    impl Drop for Cpu {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn the_zero_is_inverted_and_latencies_are_rounded_up() {
        let text = |limit: Nanos| {
            let mut octets = [0; LONGEST];
            let length = text(whole(limit), &mut octets);
            String::from_utf8(octets[..length].to_vec()).unwrap()
        };
        let longest = US * u64::from(i32::MAX.unsigned_abs());
        for (limit, expected) in [
            (Nanos::MAX, "0\n"),
            (longest + US, "0\n"),
            (longest, "2147483647\n"),
            (US * 20, "20\n"),
            (Nanos::from_nanos(1_001), "2\n"),
            (Nanos::from_nanos(1), "1\n"),
            (Nanos::ZERO, "n/a\n"),
        ] {
            assert_eq!(text(limit), expected, "{limit}");
            assert_eq!(super::limit(expected.as_bytes()), Some(whole(limit)));
        }
        for bad in ["", "x", "-5\n", "1.5\n", "4294967295\n"] {
            assert_eq!(super::limit(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_limit_is_set_and_is_then_in_force() {
        let cpu = Cpu::new("set", "0\n");
        let limit = cpu.limit().unwrap();
        assert_eq!((limit.states().len(), limit.last().as_str()), (4, "0"));
        let mut chooser = Chooser::new(limit.clone());
        choose(&mut chooser, |in_force| {
            assert_eq!(in_force, Nanos::MAX);
            US * 20
        });
        assert_eq!((cpu.line().as_str(), limit.changes()), ("20", 1));
        // A limit between two microseconds is the policy's own.
        choose(&mut chooser, |in_force| {
            assert_eq!(in_force, US * 20);
            Nanos::from_nanos(1_500)
        });
        assert_eq!(cpu.line(), "2");
        choose(&mut chooser, |in_force| {
            assert_eq!(in_force, Nanos::from_nanos(1_500));
            in_force
        });
        assert_eq!((limit.changes(), limit.last().as_str()), (2, "2"));
        choose(&mut chooser, |_| Nanos::MAX);
        assert_eq!((cpu.line().as_str(), limit.changes(), limit.ended()), ("0", 3, None));
    }

    #[test]
    fn no_more_is_allowed_than_before() {
        let cpu = Cpu::new("least", "50\n");
        let limit = cpu.limit().unwrap();
        let exits: Vec<Nanos> = limit.states().iter().map(|state| state.exit).collect();
        assert_eq!(exits, [Nanos::ZERO, US * 2, US * 20]);
        let mut chooser = Chooser::new(limit.clone());
        for (wanted, line) in [(US * 90, "50"), (US * 2, "2"), (US * 90, "50"), (US * 20, "20"), (Nanos::MAX, "50")] {
            choose(&mut chooser, |_| wanted);
            assert_eq!(cpu.line(), line);
            choose(&mut chooser, |in_force| {
                assert_eq!(in_force, wanted);
                in_force
            });
        }
        assert_eq!((limit.changes(), limit.ended()), (4, None));
    }

    #[test]
    fn the_file_is_read_before_each_change_and_else_seldom() {
        let cpu = Cpu::new("seldom", "0\n");
        let limit = cpu.limit().unwrap();
        let mut chooser = Chooser::new(limit.clone());
        let at = |ms: u64| Instant::ORIGIN + Nanos::from_millis(ms);
        chooser.choose(at(0), |_| US * 20);
        fs::write(&cpu.0, "7\n").unwrap();
        chooser.choose(at(49), |in_force| {
            assert_eq!(in_force, US * 20);
            in_force
        });
        assert_eq!((limit.ended(), chooser.rests(at(49))), (None, false));
        chooser.choose(at(49), |_| US * 2);
        assert_eq!((limit.ended(), cpu.line().as_str()), (Some(Ended::Changed(US * 7)), "7"));
        assert_eq!((limit.changes(), limit.last().as_str()), (1, "20"));
        chooser.choose(at(50), |in_force| {
            assert_eq!(in_force, US * 7);
            in_force
        });
        assert!(chooser.rests(at(99)) && !chooser.rests(at(100)));
    }

    #[test]
    fn what_somebody_else_sets_stays_and_the_policy_is_told_once() {
        let cpu = Cpu::new("theirs", "0\n");
        let limit = cpu.limit().unwrap();
        let mut chooser = Chooser::new(limit.clone());
        choose(&mut chooser, |_| US * 90);
        fs::write(&cpu.0, "7\n").unwrap();
        let mut told = Vec::new();
        // The policy's first answer is another limit.
        for answer in [Some(US * 2), None, Some(US * 2)] {
            choose(&mut chooser, |in_force| {
                told.push(in_force);
                answer.unwrap_or(in_force)
            });
        }
        assert_eq!(told, [US * 7; 2]);
        assert_eq!((cpu.line().as_str(), limit.ended()), ("7", Some(Ended::Changed(US * 7))));
        assert_eq!((limit.changes(), limit.last().as_str()), (1, "90"));
        fs::write(&cpu.0, "0\n").unwrap();
        choose(&mut chooser, |in_force| {
            told.push(in_force);
            in_force
        });
        assert_eq!(told[2..], [Nanos::MAX]);
        assert_eq!(limit.ended(), Some(Ended::Changed(US * 7)), "the first change ended it");
    }

    #[test]
    fn a_refused_limit_ends_the_choice() {
        let cpu = Cpu::new("refused", "0\n");
        let file = OpenOptions::new().read(true).open(&cpu.0).unwrap();
        let limit = IdleLimit::new(file, &[]).unwrap();
        let mut chooser = Chooser::new(limit.clone());
        choose(&mut chooser, |_| US * 20);
        assert_eq!(limit.ended(), Some(Ended::Failed(9)), "EBADF");
        assert_eq!((limit.changes(), limit.last().as_str()), (0, "0"));
        let mut told = Vec::new();
        for _ in 0..3 {
            choose(&mut chooser, |in_force| {
                told.push(in_force);
                in_force
            });
        }
        assert_eq!(told, [Nanos::MAX], "that is still in force");
        let cpu = Cpu::new("damaged", "what\n");
        assert!(cpu.limit().is_err());
    }
}
