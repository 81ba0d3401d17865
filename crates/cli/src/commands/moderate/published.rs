//! The state that running instances of `apus moderate` publish.

use std::path::Path;

use super::super::published::{self, Running, State};
use crate::args::moderate::ROOT;
use crate::documents::moderate::Document;
use crate::documents::moderation::{Instance, Queue};
use crate::documents::top::Leftover;

impl State for Document {
    const FOLDER: &'static str = ROOT;
    const SHOWN_BY: &'static str = "apus moderate status, apus top and apus metrics";
}

/// Reads the queues of all running instances, sorted by PID. Also returns the files that belong to no running instance.
pub(in crate::commands) fn all(folder: &Path) -> Result<(Vec<Instance>, Vec<Leftover>), live::Error> {
    let (running, leftovers) = published::all(folder)?;
    Ok((running.into_iter().map(instance).collect(), leftovers))
}

fn instance(running: Running<Document>) -> Instance {
    let document = running.document;
    Instance {
        pid: running.pid,
        network_namespace: running.network_namespace,
        dry_run: document.dry_run,
        steering_ns: document.duration_ns,
        silent_ns: running.silent_ns,
        queues: document.queues.iter().map(Queue::of).collect(),
        not_controlled: document.not_controlled,
    }
}

#[cfg(test)]
pub(in crate::commands) use tests::queue;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::VERSION;
    use crate::documents::moderate::{self, SCHEMA, Verdict};

    /// A queue with 90,000 packets per second, a timer of 80 us, and 12.3 us from reception to read.
    pub(in crate::commands) fn queue(interface: &str, queue: u32) -> moderate::Queue {
        moderate::Queue {
            interface: interface.into(),
            queue,
            napi: Some(8_193 + queue),
            policy: "goal".into(),
            goal: "p99=100us".into(),
            goal_latency_ns: 100_000,
            timer_ns: 80_000,
            reason: "the goal allows a longer time".into(),
            changes: 7,
            trouble: None,
            lost: None,
            span_ns: Some(2_000_000_000),
            packets: Some(180_000),
            polls: Some(22_000),
            full_polls: Some(0),
            arrival_to_reception_bound_ns: Some(80_000),
            reception_to_read_ns: Some(12_300),
            measured: Some(179_000),
            judged: 1_000_000,
            late: 2_500.0,
            verdict: Verdict::Held.into(),
            why_unmeasured: None,
        }
    }

    #[test]
    fn the_figures_of_a_second_become_rates() {
        let document = Document {
            apus: VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            dry_run: false,
            duration_ns: 60_000_000_000,
            queues: vec![queue("eth0", 3)],
            not_controlled: Vec::new(),
            missed_before: false,
            restored: None,
        };
        let instance = instance(Running { pid: 42, network_namespace: Some(1), silent_ns: 5, document });
        assert_eq!((instance.pid, instance.network_namespace, instance.silent_ns), (42, Some(1), 5));
        let queue = &instance.queues[0];
        assert_eq!((queue.packets_pps, queue.polls_per_second), (Some(90e3), Some(11e3)));
        assert_eq!((queue.changes, queue.at_most_ns), (7, Some(92_300)));
    }
}
