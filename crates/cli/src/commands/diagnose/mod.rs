//! `apus diagnose`: watches one or both ends of a connection, and ranks the likely causes of the symptom.

mod attempt;
mod say;
mod watch;

use std::path::Path;

use audit::diagnosis::{Case, Diagnosis, Symptom, diagnose, end_of, suspects};
use audit::{Goal, Intent};
use host::facts::{Facts, Reading};

use super::audit::facts_of;
use crate::args::diagnose::Diagnose;
use crate::documents::diagnose::Verdict;
use crate::{Failure, Status, terminal};

/// Runs `apus diagnose`.
pub fn run(typed: &Diagnose) -> anyhow::Result<Status> {
    let ends = match &typed.from {
        Some(from) => {
            let mut ends = vec![(named(from), recorded(from)?)];
            if let Some(peer) = &typed.peer {
                ends.push((named(peer), recorded(peer)?));
            }
            ends
        }
        None => watch::ends(typed)?,
    };
    let nics = [typed.nic.as_deref(), typed.peer_nic.as_deref()];
    for ((name, facts), nic) in ends.iter().zip(nics) {
        if let (Some(nic), Some(links)) = (nic, facts.links.value())
            && !links.iter().any(|link| link.name == nic)
        {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(Failure::wrong(
                format!("cannot examine interface {nic}"),
                format!("{name} has the interfaces {}", names.join(", ")),
                "choose one of these",
            )
            .into());
        }
    }
    let symptom = Symptom {
        kind: typed.symptom,
        measured_bps: typed.measured.map(units::BitRate::as_bps),
        expected_bps: typed.expected.map(units::BitRate::as_bps),
        ping_ns: typed.ping.map(units::Nanos::as_nanos),
        expected_ping_ns: typed.expected_ping.map(units::Nanos::as_nanos),
        reference: typed.reference,
    };
    let case =
        Case { symptom, ends: ends.iter().zip(nics).map(|((name, facts), nic)| end_of(name, facts, nic)).collect() };
    let mut found = diagnose(&case);
    let goal = typed.goal.map(|goal| Goal { quantile: goal.quantile, latency: goal.latency });
    for (name, facts) in &ends {
        let report = audit::audit(facts, &Intent { goal, ..Intent::default() });
        found.suspects.extend(suspects(name, &report));
    }
    let verdict = verdict(&case, &found);
    match typed.json {
        true => terminal::print_json(&say::document(&case, &found, verdict))?,
        false => say::text(&mut terminal::out(), &case, &found, verdict, typed.from.is_none())?,
    }
    if let Some(command) = &typed.attempt {
        attempt::run(typed, &case, &found, command)?;
    }
    Ok(match verdict {
        Verdict::NothingFound => Status::Good,
        Verdict::CausesFound => Status::Findings,
        Verdict::NoLoadSeen => Status::Lacking,
    })
}

/// The verdict. Without traffic, finding no cause proves nothing.
fn verdict(case: &Case, found: &Diagnosis) -> Verdict {
    let seen = |packets: Option<f64>| packets.is_some_and(|packets| packets > 0.0);
    let load = case.ends.iter().any(|end| seen(end.rx_packets) || seen(end.tx_packets));
    match (found.found().next(), load) {
        (Some(_), _) => Verdict::CausesFound,
        (None, true) => Verdict::NothingFound,
        (None, false) => Verdict::NoLoadSeen,
    }
}

fn named(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn recorded(path: &Path) -> Result<Facts, Failure> {
    facts_of(Some(path), Reading::default())
}
