//! Computes which threads and interrupts used a CPU, and for how long, from the events on that CPU. This module does no
//! I/O.

use std::collections::HashMap;
use std::sync::Arc;

use units::{Instant, Monotonic, Nanos};

use super::{Cause, Charge};

/// Lowest kernel priority of the normal class (include/linux/sched/prio.h, `MAX_RT_PRIO`).
const NORMAL_CLASS: i32 = 100;

/// An interrupt or softirq that a CPU executes instead of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The handler of a device interrupt.
    Interrupt {
        /// Interrupt number.
        irq: u32,
        /// Name of the interrupt. Empty in an event that reports the end of the handler.
        name: String,
    },
    /// An interrupt of the CPU itself, such as its timer.
    Vector(Arc<str>),
    /// A softirq.
    Softirq(u32),
}

impl Source {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Interrupt { irq: a, .. }, Self::Interrupt { irq: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

/// A thread, as sched_switch shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Name of the thread.
    pub name: String,
    /// Thread identifier in the initial PID namespace; 0 is the idle thread.
    pub pid: i32,
    /// Kernel priority; below 100 is real-time.
    pub prio: i32,
}

/// What happened on a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The CPU began to execute this interrupt or softirq.
    Enter(Source),
    /// The CPU finished this interrupt or softirq.
    Leave(Source),
    /// The CPU switched to another thread.
    Switch {
        /// The thread that ran before.
        from: Task,
        /// Whether `from` was still runnable, which means that it was preempted and did not block.
        from_runnable: bool,
        /// The thread that runs from then on.
        to: Task,
    },
    /// A handler of a non-maskable interrupt ended. The value is how long the handler ran.
    Nmi(Nanos),
}

/// An event on the CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When the event happened.
    pub at: Instant<Monotonic>,
    /// What happened.
    pub what: What,
}

/// What the CPU is doing, as far as the events show.
#[derive(Clone, Debug)]
enum Running {
    /// No switch has been seen yet.
    Unknown,
    /// The measuring thread runs.
    Own,
    Other(Task),
}

/// Computes what used the CPU from `from` to `to`. Returns the charges, the largest first, and whether a thread of a
/// lower scheduling class ran although the measuring thread was runnable. `own` is the name of the measuring thread.
///
/// `events` must be in order of time. Events before `from` show what the CPU was doing at `from`. `running` is true if
/// the measuring thread is known to have run at `from`, and not in an interrupt.
pub fn charge(
    own: &str,
    running: bool,
    (from, to): (Instant<Monotonic>, Instant<Monotonic>),
    events: &[Event],
) -> (Vec<Charge>, bool) {
    let mut books = Books { from, cursor: from, own, charges: HashMap::new() };
    let mut state = if running { Running::Own } else { Running::Unknown };
    let mut stack: Vec<Source> = Vec::new();
    let mut throttled = false;
    for event in events {
        if event.at >= to {
            break;
        }
        if running && event.at < from {
            continue;
        }
        let before = books.cursor;
        books.until(event.at, stack.last(), &state);
        match &event.what {
            What::Enter(source) => {
                stack.push(source.clone());
                books.began(event.at, stack.last(), &state);
            }
            // The start of this interrupt may be before the first event. Then its end is ignored.
            What::Leave(source) => {
                if let Some(at) = stack.iter().rposition(|entered| entered.is_same(source)) {
                    stack.truncate(at);
                }
            }
            What::Switch { from: last, from_runnable, to: next } => {
                let is_own = |task: &Task| task.name == own;
                let lower = last.prio < NORMAL_CLASS && next.prio >= NORMAL_CLASS;
                throttled |= event.at >= from && is_own(last) && *from_runnable && lower && next.pid != 0;
                state = if is_own(next) { Running::Own } else { Running::Other(next.clone()) };
                books.began(event.at, stack.last(), &state);
            }
            What::Nmi(lasted) => books.nmi(event.at, before, *lasted, stack.last(), &state),
        }
    }
    books.until(to, stack.last(), &state);
    (books.close(), throttled)
}

/// The time charged so far, by cause.
struct Books<'a> {
    from: Instant<Monotonic>,
    cursor: Instant<Monotonic>,
    own: &'a str,
    charges: HashMap<Cause, (u64, u64)>,
}

impl Books<'_> {
    /// Charges the time up to `at` to the interrupt or thread that uses the CPU.
    fn until(&mut self, at: Instant<Monotonic>, top: Option<&Source>, state: &Running) {
        let span = at.since(self.cursor).unwrap_or(Nanos::ZERO);
        if at > self.cursor {
            self.cursor = at;
        }
        if span > Nanos::ZERO {
            let cause = self.cause(top, state);
            // A cause that already used the CPU at the start counts once.
            let entry = self.charges.entry(cause).or_insert((0, 1));
            entry.0 += span.as_nanos();
        }
    }

    /// Counts one more time that a cause began to use the CPU.
    fn began(&mut self, at: Instant<Monotonic>, top: Option<&Source>, state: &Running) {
        let cause = self.cause(top, state);
        if at >= self.from && cause != Cause::Unaccounted {
            self.charges.entry(cause).or_insert((0, 0)).1 += 1;
        }
    }

    /// Charges the run time of an NMI handler that ended at `at`, but at most the time since `before`. Subtracts it
    /// from the cause that was charged meanwhile.
    fn nmi(
        &mut self,
        at: Instant<Monotonic>,
        before: Instant<Monotonic>,
        lasted: Nanos,
        top: Option<&Source>,
        state: &Running,
    ) {
        let took = lasted.min(at.since(before).unwrap_or(Nanos::ZERO)).as_nanos();
        if at < self.from || took == 0 {
            return;
        }
        let cause = self.cause(top, state);
        if let Some((ns, _)) = self.charges.get_mut(&cause) {
            *ns = ns.saturating_sub(took);
        }
        let entry = self.charges.entry(Cause::Nmi).or_insert((0, 0));
        *entry = (entry.0 + took, entry.1 + 1);
    }

    fn cause(&self, top: Option<&Source>, state: &Running) -> Cause {
        match (top, state) {
            (Some(Source::Interrupt { irq, name }), _) => Cause::Interrupt { irq: *irq, name: name.clone() },
            (Some(Source::Vector(name)), _) => Cause::Vector { name: name.to_string() },
            (Some(Source::Softirq(vec)), _) => Cause::Softirq { name: softirq_name(*vec) },
            (None, Running::Other(task)) if task.pid == 0 => Cause::Idle,
            (None, Running::Other(task)) if task.name != self.own => {
                Cause::Thread { name: task.name.clone(), pid: Some(task.pid) }
            }
            (None, _) => Cause::Unaccounted,
        }
    }

    fn close(self) -> Vec<Charge> {
        let charges = self.charges.into_iter().filter(|(_, (ns, _))| *ns > 0);
        let mut charges: Vec<Charge> =
            charges.map(|(cause, (ns, times))| Charge { cause, ns, times: times.max(1) }).collect();
        charges.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.cause.cmp(&b.cause)));
        charges
    }
}

/// Names of softirqs in /proc/softirqs and in the tracepoints (include/linux/interrupt.h, kernel/softirq.c).
fn softirq_name(vec: u32) -> String {
    const NAMES: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    NAMES.get(vec as usize).map_or_else(|| format!("number {vec}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(micros: u64) -> Instant<Monotonic> {
        Instant::from_nanos(1_000_000_000 + micros * 1_000)
    }
    fn event(micros: u64, what: What) -> Event {
        Event { at: at(micros), what }
    }
    fn vector(name: &str) -> Source {
        Source::Vector(name.into())
    }
    fn task(name: &str, pid: i32, prio: i32) -> Task {
        Task { name: name.into(), pid, prio }
    }
    fn switch(micros: u64, from: Task, to: Task) -> Event {
        event(micros, What::Switch { from, from_runnable: true, to })
    }
    fn own() -> Task {
        task("spin", 10, 4)
    }
    fn summary(charges: &[Charge]) -> Vec<(String, u64, u64)> {
        charges.iter().map(|of| (of.cause.to_string(), of.ns / 1_000, of.times)).collect()
    }

    #[test]
    fn nested_interrupts_are_charged_net() {
        let events = [
            event(10, What::Enter(vector("local_timer"))),
            event(14, What::Leave(vector("local_timer"))),
            event(15, What::Enter(Source::Softirq(3))),
            event(20, What::Enter(Source::Interrupt { irq: 41, name: "virtio3-rx".into() })),
            event(23, What::Leave(Source::Interrupt { irq: 41, name: String::new() })),
            event(30, What::Leave(Source::Softirq(3))),
        ];
        let (charges, throttled) = charge("spin", true, (at(8), at(31)), &events);
        let expected = [
            ("softirq NET_RX".to_owned(), 12, 1),
            ("interrupt local_timer of the CPU".to_owned(), 4, 1),
            ("nothing that the kernel reports: hypervisor, firmware or hardware".to_owned(), 4, 1),
            ("interrupt 41 (virtio3-rx)".to_owned(), 3, 1),
        ];
        assert_eq!(summary(&charges), expected);
        assert!(!throttled);
    }

    #[test]
    fn a_thread_that_steals_is_named_and_a_lower_one_means_throttling() {
        let thief = task("thief", 20, 1);
        let events = [switch(10, own(), thief.clone()), switch(2_010, thief, own())];
        let (charges, throttled) = charge("spin", true, (at(9), at(2_011)), &events);
        assert_eq!(
            (charges[0].cause.clone(), charges[0].ns),
            (Cause::Thread { name: "thief".into(), pid: Some(20) }, 2_000_000)
        );
        assert!(!throttled);
        let low = task("cc1", 21, 120);
        let events = [switch(10, own(), low.clone()), switch(50_010, low, own())];
        assert!(charge("spin", true, (at(9), at(50_011)), &events).1);
    }

    #[test]
    fn before_a_late_timer_the_cpu_was_idle() {
        let idle = || task("swapper/1", 0, 120);
        let events = [
            switch(0, own(), idle()),
            event(1_030, What::Enter(vector("local_timer"))),
            event(1_036, What::Leave(vector("local_timer"))),
            switch(1_040, idle(), own()),
        ];
        // The thread is due at 1000 and runs at 1042.
        let (charges, _) = charge("spin", false, (at(1_000), at(1_042)), &events);
        let expected = [
            ("idle: waking the CPU".to_owned(), 34, 1),
            ("interrupt local_timer of the CPU".to_owned(), 6, 1),
            ("nothing that the kernel reports: hypervisor, firmware or hardware".to_owned(), 2, 1),
        ];
        assert_eq!(summary(&charges), expected);
    }

    #[test]
    fn an_nmi_takes_its_time_from_what_it_interrupted() {
        let events = [event(20, What::Nmi(Nanos::from_micros(5)))];
        let (charges, _) = charge("spin", true, (at(10), at(30)), &events);
        assert_eq!(charges.iter().map(|of| of.ns).sum::<u64>(), 20_000);
        assert!(charges.contains(&Charge { cause: Cause::Nmi, ns: 5_000, times: 1 }));
    }

    #[test]
    fn without_events_nothing_accounts_for_it() {
        let (charges, _) = charge("spin", true, (at(0), at(5)), &[]);
        assert_eq!(charges, [Charge { cause: Cause::Unaccounted, ns: 5_000, times: 1 }]);
        assert!(charge("spin", true, (at(5), at(5)), &[]).0.is_empty());
    }

    fn any_what() -> impl Strategy<Value = What> {
        let source = prop_oneof![
            (0u32..12).prop_map(Source::Softirq),
            "[ab]".prop_map(|name| Source::Vector(name.into())),
            (0u32..2).prop_map(|irq| Source::Interrupt { irq, name: "x".into() }),
        ];
        let tasks =
            prop_oneof![Just(own()), Just(task("a", 1, 120)), Just(task("b", 2, 50)), Just(task("idle", 0, 120))];
        prop_oneof![
            source.clone().prop_map(What::Enter),
            source.prop_map(What::Leave),
            (tasks.clone(), any::<bool>(), tasks).prop_map(|(from, from_runnable, to)| What::Switch {
                from,
                from_runnable,
                to
            }),
            (0u64..5_000).prop_map(|ns| What::Nmi(Nanos::from_nanos(ns))),
        ]
    }

    proptest! {
        #[test]
        fn every_nanosecond_is_charged_once(
            mut events in proptest::collection::vec((0u64..100, any_what()), 0..40),
            from in 0u64..100, length in 0u64..50, running: bool,
        ) {
            events.sort_by_key(|(at, _)| *at);
            let events: Vec<Event> = events.into_iter().map(|(at, what)| event(at, what)).collect();
            let (charges, _) = charge("spin", running, (at(from), at(from + length)), &events);
            prop_assert_eq!(charges.iter().map(|of| of.ns).sum::<u64>(), length * 1_000);
            prop_assert!(charges.is_sorted_by(|a, b| a.ns >= b.ns));
        }
    }
}
