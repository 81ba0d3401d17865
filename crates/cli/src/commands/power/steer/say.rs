//! The result that `apus power steer` prints when it ends.

use std::io::Write as _;

use anyhow::Context as _;
use tester::document::Name;
use tester::layout::aligned;
use units::{Hertz, Nanos};

use crate::documents::power_steer::{Document, Via};
use crate::{Status, terminal};

/// Prints the result. The exit status says whether the goals were met.
pub(super) fn result(as_json: bool, document: &Document) -> anyhow::Result<Status> {
    let mut out = terminal::out();
    match as_json {
        true => terminal::print_json_to(&mut out, document)?,
        false => out.write_all(table(document).as_bytes()).context("cannot write the result")?,
    }
    out.flush().context("cannot write the result")?;
    Ok(if document.has_findings() || document.restored == Some(false) { Status::Findings } else { Status::Good })
}

fn table(document: &Document) -> String {
    let unknown = || "-".to_owned();
    let mut rows =
        vec![["CPU", "WATCHED", "MEAN FREQUENCY", "BUSY %", "PACKETS", "LATE %", "GOAL"].map(str::to_owned).to_vec()];
    for cpu in &document.cpus {
        let late = cpu.late.zip(cpu.judged).filter(|(_, judged)| *judged > 0);
        rows.push(vec![
            cpu.cpu.to_string(),
            cpu.watches.as_deref().map_or_else(unknown, terminal::line),
            cpu.mean_frequency_hz.map_or_else(unknown, |hz| Hertz::new(hz / 1_000_000 * 1_000_000).to_string()),
            cpu.busy_ratio.map_or_else(unknown, |ratio| format!("{:.1}", 100.0 * ratio)),
            cpu.packets.map_or_else(unknown, |n| n.to_string()),
            late.map_or_else(unknown, |(late, judged)| format!("{:.3}", 100.0 * late as f64 / judged as f64)),
            cpu.verdict.as_str().to_owned(),
        ]);
    }
    let mut text = String::from("\n");
    text += &(aligned(&rows, |column| column == 1 || column == 6).join("\n") + "\n\n");
    for cpu in &document.cpus {
        if let Some(why) = cpu.lost.as_ref().or(cpu.trouble.as_ref()) {
            text += &format!("CPU {}: {}\n", cpu.cpu, terminal::line(why));
        }
        if let Some(why) = &cpu.idle_trouble {
            text += &format!("CPU {}: its idle states were not limited to the end: {}\n", cpu.cpu, terminal::line(why));
        }
    }
    for domain in &document.domains {
        text += &format!(
            "CPUs {}: set through {}; {} changes, {:.2} per second; each stalls the core for {}, {:.4} % of the time in all (predicted).\n",
            domain.cpus,
            domain.via.as_str(),
            domain.changes,
            domain.changes_per_second,
            Nanos::from_nanos(document.stall_ns),
            100.0 * domain.stall_ratio
        );
    }
    for shared in &document.shared {
        let ratio = 100.0 * shared.lowered_ratio;
        text += &format!("{}: lowered for {ratio:.1} % of the time; {} changes.\n", shared.setting, shared.changes);
        if let Some(why) = &shared.trouble {
            text += &format!("{}: {}\n", shared.setting, terminal::line(why));
        }
    }
    let is_host = document.domains.iter().any(|domain| domain.via == Name::of(&Via::Host));
    text += match document.restored {
        Some(true) if is_host => "The requests to the host are withdrawn.\n",
        Some(false) if is_host => {
            "Not all requests to the host are withdrawn: they stay in force until the host notices that the channel is closed.\n"
        }
        None if document.dry_run => "Nothing was changed (--dry-run).\n",
        None => "No setting was left to restore.\n",
        Some(true) => "The original settings are restored.\n",
        Some(false) => "Not all original settings are restored; look at apus tune status.\n",
    };
    text
}
