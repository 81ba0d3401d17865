//! The result that `apus moderate` prints when it ends.

use std::io::Write as _;

use anyhow::Context as _;
use tester::document::Name;
use units::Nanos;

use super::session::Ended;
use crate::documents::VERSION;
use crate::documents::moderate::{Document, NotControlled, Queue, SCHEMA, Verdict};
use crate::{Status, terminal};

/// The document of a session.
pub(super) fn document(
    dry_run: bool,
    lasted: Nanos,
    queues: Vec<Queue>,
    not_controlled: Vec<NotControlled>,
    missed_before: bool,
    restored: Option<bool>,
) -> Document {
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        dry_run,
        duration_ns: lasted.as_nanos(),
        queues,
        not_controlled,
        missed_before,
        restored,
    }
}

/// Whether a queue that is controlled for its goal has missed it.
pub(super) fn has_missed(queue: &Queue) -> bool {
    let missed = [Verdict::Missed, Verdict::WouldMiss].map(|verdict| Name::of(&verdict)).contains(&queue.verdict);
    missed && queue.policy == "goal"
}

/// Prints the result. The exit status says whether the queues controlled by the policy `goal` met their goals.
pub(super) fn result(as_json: bool, ended: Ended) -> anyhow::Result<Status> {
    let Ended { dry_run, lasted, queues, not_controlled, missed_before, refused, restored } = ended;
    let document = document(dry_run, lasted, queues, not_controlled, missed_before, restored);
    let mut out = terminal::out();
    match as_json {
        true => terminal::print_json_to(&mut out, &document)?,
        false => table(&mut out, &document).context("cannot write the result")?,
    }
    out.flush().context("cannot write the result")?;
    let lost = |queue: &Queue| queue.lost.is_some();
    let failed = refused
        || document.missed_before
        || document.restored == Some(false)
        || !document.not_controlled.is_empty()
        || document.queues.iter().any(|queue| has_missed(queue) || lost(queue));
    Ok(if failed { Status::Findings } else { Status::Good })
}

fn table(out: &mut impl std::io::Write, document: &Document) -> std::io::Result<()> {
    let unknown = || "-".to_owned();
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    writeln!(out)?;
    writeln!(
        out,
        "{:<12} {:>5} {:<13} {:>9} {:>10} {:>10} {:>10} {:>10} {:>8}  VERDICT",
        "INTERFACE", "QUEUE", "GOAL", "TIMER us", "PACKETS/s", "POLLS/s", "TO READ us", "AT MOST us", "LATE %"
    )?;
    for queue in &document.queues {
        let per_second = |count: Option<u64>| match (count, queue.span_ns) {
            (Some(count), Some(span)) => format!("{:.0}", count as f64 * 1e9 / span.max(1) as f64),
            _ => unknown(),
        };
        let read = queue.reception_to_read_ns;
        let most = read.zip(queue.arrival_to_reception_bound_ns).map(|(read, bound)| read.saturating_add(bound));
        let late = match queue.judged {
            0 => unknown(),
            judged => format!("{:.2}", 100.0 * queue.late / judged as f64),
        };
        writeln!(
            out,
            "{:<12} {:>5} {:<13} {:>9} {:>10} {:>10} {:>10} {:>10} {late:>8}  {}",
            queue.interface,
            queue.queue,
            queue.goal,
            us(queue.timer_ns),
            per_second(queue.packets),
            per_second(queue.polls),
            read.map_or_else(unknown, us),
            most.map_or_else(unknown, us),
            queue.verdict.as_str(),
        )?;
    }
    writeln!(out)?;
    for queue in &document.queues {
        let of = |text: &str| format!("{} queue {}: {}", queue.interface, queue.queue, terminal::line(text));
        for text in [&queue.lost, &queue.trouble].into_iter().flatten().take(1) {
            writeln!(out, "{}", of(text))?;
        }
        if let (Some(why), None) = (&queue.why_unmeasured, &queue.lost) {
            writeln!(out, "{}", of(&format!("unmeasured: {why}")))?;
        }
    }
    for one in &document.not_controlled {
        writeln!(out, "{}: not controlled: {}", terminal::line(&one.interface), terminal::line(&one.why))?;
    }
    if document.missed_before {
        writeln!(out, "A goal was missed before its queues were started again or got another goal.")?;
    }
    writeln!(out, "TIMER: how long the interrupt may be delayed after a packet arrives.")?;
    writeln!(
        out,
        "TO READ: measured time from reception by the kernel to the application's read, at the goal's quantile."
    )?;
    writeln!(
        out,
        "AT MOST: TO READ plus the longest possible time before reception. These columns show the last full second."
    )?;
    writeln!(
        out,
        "LATE: share of packets since the queue was started that may have been later than the goal; VERDICT is based on it."
    )?;
    writeln!(out, "If a CPU receives more than 5,000 packets a second, TO READ and LATE are those of a sample.")?;
    match document.restored {
        None if document.dry_run => writeln!(out, "Nothing was changed (--dry-run).")?,
        None => writeln!(out, "No setting was left to restore.")?,
        Some(true) => writeln!(out, "The original settings are restored.")?,
        Some(false) => writeln!(out, "Not all original settings are restored; look at apus tune status.")?,
    }
    Ok(())
}
