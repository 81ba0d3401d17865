//! `apus diagnose`: watches one or both ends of a connection, and ranks the likely causes of the symptom.

mod attempt;
mod say;
mod watch;

use std::path::Path;

use audit::diagnosis::{Case, Diagnosis, End, Symptom, diagnose, end_of, suspects};
use audit::{Goal, Intent};
use host::facts::{Facts, Reading};

use super::audit::facts_of;
use crate::args::diagnose::Diagnose;
use crate::documents::diagnose::Verdict;
use crate::{Failure, Status, terminal};

/// Packets per second, in and out, from which on they count as a load.
const LOAD_PPS: f64 = 1.0;

/// Runs `apus diagnose`.
pub fn run(typed: &Diagnose) -> anyhow::Result<Status> {
    check(typed)?;
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
            let fail = if typed.from.is_some() { Failure::wrong } else { Failure::lacking };
            let why = format!("{name} has the interfaces {}", names.join(", "));
            return Err(fail(format!("cannot examine interface {nic}"), why, "choose one of these").into());
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
    if !typed.json {
        say::text(&mut terminal::out(), &case, &found, verdict, typed.from.is_none())?;
    }
    let tried = typed.attempt.as_ref().map(|command| attempt::run(typed, &case, &found, command)).transpose()?;
    let (tried, failed) = tried.map_or((None, None), |(tried, failed)| (Some(tried), failed));
    if typed.json {
        terminal::print_json(&say::document(&case, &found, verdict, tried))?;
    }
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    Ok(match verdict {
        Verdict::NothingFound => Status::Good,
        Verdict::CausesFound => Status::Findings,
        Verdict::NoLoadSeen => Status::Lacking,
    })
}

/// Refuses options that would be ignored, and ends that are the same.
fn check(typed: &Diagnose) -> Result<(), Failure> {
    if let (Some(nic), None, None) = (&typed.peer_nic, &typed.peer, &typed.peer_netns) {
        let fix = "add --peer-netns NAME or --peer FILE, or omit --peer-nic";
        return Err(Failure::wrong(format!("--peer-nic {nic}"), "no other end is observed", fix));
    }
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    if let (Some(from), Some(peer)) = (&typed.from, &typed.peer)
        && same(from, peer)
    {
        let (what, fix) = (format!("--peer {}", peer.display()), "give the recording of the other end, or omit --peer");
        return Err(Failure::wrong(what, "both ends have the same recording", fix));
    }
    if let (Some(netns), Some(peer)) = (&typed.netns, &typed.peer_netns)
        && netns == peer
    {
        let fix = "name the namespace of the other end, or omit --peer-netns";
        return Err(Failure::wrong(format!("--peer-netns {peer}"), "both ends are in the same namespace", fix));
    }
    Ok(())
}

/// The verdict. Without traffic, finding no cause proves nothing.
fn verdict(case: &Case, found: &Diagnosis) -> Verdict {
    // A few packets of address resolution are no load; a ping every second is one.
    let seen = |end: &End| {
        let packets = end.rx_packets.unwrap_or(0.0) + end.tx_packets.unwrap_or(0.0);
        packets > 0.0 && (packets >= LOAD_PPS * end.length_s || !end.sockets.is_empty())
    };
    let load = case.ends.iter().any(seen);
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
