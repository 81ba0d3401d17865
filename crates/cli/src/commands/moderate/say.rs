//! What `apus moderate` prints at its end.

use std::io::Write as _;

use anyhow::Context as _;
use tester::document::Name;
use units::Nanos;

use crate::args::moderate::{Moderate, Policy};
use crate::documents::VERSION;
use crate::documents::moderate::{Document, Queue, SCHEMA, Verdict};
use crate::{Status, terminal};

/// Prints the result. The status is that of the goal, if one was steered for.
pub(super) fn result(
    typed: &Moderate,
    lasted: Nanos,
    queues: Vec<Queue>,
    restored: Option<bool>,
) -> anyhow::Result<Status> {
    let missed = queues.iter().any(|queue| queue.verdict == Name::of(&Verdict::Missed));
    let document = Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        policy: match typed.policy {
            Policy::Goal => "goal".to_owned(),
            Policy::NetDim => "net-dim".to_owned(),
            Policy::Static(profile) => format!("static:{}us", profile.usecs),
        },
        goal: typed.goal.to_string(),
        goal_latency_ns: typed.goal.latency.as_nanos(),
        dry_run: typed.dry_run,
        duration_ns: lasted.as_nanos(),
        queues,
        restored,
    };
    let mut out = terminal::out();
    match typed.json {
        true => terminal::print_json_to(&mut out, &document)?,
        false => table(&mut out, &document).context("cannot write the result")?,
    }
    out.flush().context("cannot write the result")?;
    if restored == Some(false) {
        return Ok(Status::Findings);
    }
    Ok(if missed && typed.policy == Policy::Goal { Status::Findings } else { Status::Good })
}

fn table(out: &mut impl std::io::Write, document: &Document) -> std::io::Result<()> {
    writeln!(out)?;
    writeln!(
        out,
        "{:<12} {:>5} {:>9} {:>10} {:>10} {:>15} {:>14}  {}",
        "INTERFACE", "QUEUE", "TIMER us", "PACKETS/s", "POLLS/s", "TO READ us", "AT MOST us", document.goal
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
            "{:<12} {:>5} {:>9} {:>10} {:>10} {:>15} {:>14}  {}",
            queue.interface,
            queue.queue,
            us(queue.timer_ns),
            per_second(queue.packets),
            per_second(queue.polls),
            read.map_or_else(|| "-".to_owned(), us),
            read.map_or_else(|| "-".to_owned(), |read| us(read + queue.arrival_to_reception_bound_ns)),
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
