//! Lines that are printed while a control loop runs.
//!
//! A reader can stop reading without closing the pipe (`| less`, a stopped terminal). A write then blocks, and with it
//! everything that the writing thread does. So such lines are written by a thread of their own: a loop only puts them
//! into a queue, and if the queue is full, leaves them out and says later how many.
//!
//! ```text
//!   loop ── print ──► queue of 1,024 lines ──► thread ──► standard output or standard error
//!               └── full: counted, and said as soon as there is room
//! ```

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines that wait. A reader that reads at all is never that far behind.
const LINES: usize = 1_024;

static OUT: OnceLock<Aside> = OnceLock::new();
static ERR: OnceLock<Aside> = OnceLock::new();

/// Prints a line on standard output without waiting for its reader.
pub(crate) fn print(line: String) {
    OUT.get_or_init(|| Aside::new(LINES, |text| drop(writeln!(super::out(), "{text}")))).print(line);
}

/// Prints a line on standard error without waiting for its reader.
pub(crate) fn eprint(line: String) {
    ERR.get_or_init(|| Aside::new(LINES, |text| drop(writeln!(super::err(), "{text}")))).print(line);
}

/// Waits until all lines are written, but at most until `end`; `None` waits as long as their readers need.
pub(crate) fn drain(end: Option<Instant>) {
    [&ERR, &OUT].into_iter().filter_map(OnceLock::get).for_each(|aside| aside.drain(end));
}

/// A queue of lines, and the thread that writes them. The thread ends with the process.
struct Aside(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// Notified whenever the queue changes.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    most: usize,
    /// Whether the thread is writing a line, which is no longer in the queue.
    is_writing: bool,
    /// Number of lines left out since the last line that was queued.
    left_out: u64,
}

impl Aside {
    /// Starts a thread that calls `write` with each line. A failed output does not end a control loop, so
    /// `write` ignores it.
    fn new(most: usize, write: impl FnMut(&str) + Send + 'static) -> Self {
        let queue = Queue { most, ..Queue::default() };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        let of_thread = shared.clone();
        std::thread::spawn(move || of_thread.write_all(write));
        Self(shared)
    }

    fn print(&self, line: String) {
        self.0.lock().push(line);
        self.0.changed.notify_all();
    }

    fn drain(&self, end: Option<Instant>) {
        let mut queue = self.0.lock();
        while !queue.is_drained() {
            // The lines that were left out come last.
            if queue.lines.is_empty() {
                queue.push_notice();
                self.0.changed.notify_all();
            }
            queue = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(left) => self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut write: impl FnMut(&str)) {
        let mut queue = self.lock();
        loop {
            match queue.lines.pop_front() {
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(line) => {
                    queue.is_writing = true;
                    drop(queue);
                    write(&line);
                    queue = self.lock();
                    queue.is_writing = false;
                    self.changed.notify_all();
                }
            }
        }
    }
}

impl Queue {
    fn push(&mut self, line: String) {
        // With the notice, there are two lines.
        if self.lines.len() + usize::from(self.left_out > 0) >= self.most {
            self.left_out += 1;
            return;
        }
        self.push_notice();
        self.lines.push_back(line);
    }

    /// Says how many lines were left out, if any were.
    fn push_notice(&mut self) {
        let lines = match std::mem::take(&mut self.left_out) {
            0 => return,
            1 => "1 line was".to_owned(),
            n => format!("{n} lines were"),
        };
        self.lines.push_back(format!("{lines} left out here, because the output was not read fast enough"));
    }

    fn is_drained(&self) -> bool {
        self.lines.is_empty() && !self.is_writing && self.left_out == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_reader_that_stops_holds_nobody_up_and_learns_what_it_missed() {
        let (go, gate) = channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let lines = written.clone();
        let aside = Aside::new(4, move |line| {
            // Blocks like a full pipe, until the reader goes on.
            let _ = gate.recv();
            lines.lock().unwrap().push(line.to_owned());
        });
        (0..100).for_each(|n| aside.print(n.to_string()));
        drop(go);
        aside.drain(None);
        let first = written.lock().unwrap().clone();
        let (notice, shown) = first.split_last().unwrap();
        // One line may be in the writer's hands besides the four in the queue.
        assert!((4..=5).contains(&shown.len()), "{first:?}");
        let left_out = 100 - shown.len();
        assert!(notice.starts_with(&format!("{left_out} lines were left out")), "{first:?}");
        assert_eq!(*shown, (0..shown.len()).map(|n| n.to_string()).collect::<Vec<_>>(), "the first ones, in order");
        aside.print("later".into());
        aside.drain(None);
        assert_eq!(written.lock().unwrap().last().unwrap(), "later");
    }
}
