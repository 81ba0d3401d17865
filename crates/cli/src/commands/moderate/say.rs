//! What `apus moderate` prints at its end.

use std::io::Write as _;

use anyhow::Context as _;
use tester::document::Name;

use crate::args::moderate::{Moderate, Policy};
use crate::documents::moderate::{Document, Queue, Verdict};
use crate::{Status, terminal};

/// Prints the result. The status is that of the goals of the queues that are steered for one.
pub(super) fn result(typed: &Moderate, document: &Document) -> anyhow::Result<Status> {
    let goal = Policy::Goal.to_string();
    let missed = |queue: &Queue| queue.policy == goal && queue.verdict == Name::of(&Verdict::Missed);
    let mut out = terminal::out();
    match typed.json {
        true => terminal::print_json_to(&mut out, document)?,
        false => table(&mut out, document).context("cannot write the result")?,
    }
    out.flush().context("cannot write the result")?;
    let is_bad = document.restored == Some(false) || document.queues.iter().any(missed);
    Ok(if is_bad { Status::Findings } else { Status::Good })
}

fn table(out: &mut impl std::io::Write, document: &Document) -> std::io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "{:<12} {:>5} {:>9} {:>10} {:>10} {:>15} {:>14}  GOAL",
        "INTERFACE", "QUEUE", "TIMER us", "PACKETS/s", "POLLS/s", "TO READ us", "AT MOST us"
    )?;
    for queue in &document.queues {
        let per_second = |count: Option<u64>| match (count, queue.span_ns) {
            (Some(count), Some(span)) => format!("{:.0}", count as f64 * 1e9 / span.max(1) as f64),
            _ => "-".to_owned(),
        };
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        let read = queue.reception_to_read_ns;
        writeln!(
            out,
            "{:<12} {:>5} {:>9} {:>10} {:>10} {:>15} {:>14}  {} {}",
            queue.interface,
            queue.queue,
            us(queue.timer_ns),
            per_second(queue.packets),
            per_second(queue.polls),
            read.map_or_else(|| "-".to_owned(), us),
            read.map_or_else(|| "-".to_owned(), |read| us(read + queue.arrival_to_reception_bound_ns)),
            queue.goal,
            queue.verdict.as_str(),
        )?;
    }
    writeln!(out)?;
    writeln!(out, "TIMER: how long packets may gather before the kernel looks at them, the bound of their reception.")?;
    writeln!(out, "TO READ: from reception to the application's read, measured, at the goal's quantile.")?;
    writeln!(out, "AT MOST: both together. All three are of the last full second.")?;
    match document.restored {
        None => writeln!(out, "Nothing was changed (--dry-run).")?,
        Some(true) => writeln!(out, "The original settings are restored.")?,
        Some(false) => writeln!(out, "The original settings are not all restored.")?,
    }
    Ok(())
}
