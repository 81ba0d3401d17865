//! The diagnosis as text and as a document.

use std::io::{self, Write};

use audit::diagnosis::{Case, Diagnosis, End, Ranked, THRESHOLD};
use tester::document::Name;
use tester::layout;
use units::Nanos;

use crate::documents::VERSION;
use crate::documents::diagnose as document;
use crate::documents::diagnose::{Document, SCHEMA, Tried, Verdict};

const WIDTH: usize = 100;
/// Number of suspects that the text lists; `--json` lists all.
const SUSPECTS: usize = 5;

/// Prints the causes that were found, then what else is worth checking.
///
/// `live` is true if the ends were watched now, so that `--try` is possible.
pub(super) fn text(
    out: &mut impl Write,
    case: &Case,
    found: &Diagnosis,
    verdict: Verdict,
    live: bool,
) -> io::Result<()> {
    for end in &case.ends {
        writeln!(out, "{}", watched(end))?;
    }
    writeln!(out)?;
    let all: Vec<&Ranked> = found.found().collect();
    match verdict {
        Verdict::CausesFound => writeln!(out, "{} found, the most likely first:", causes(all.len()))?,
        Verdict::NothingFound => writeln!(out, "no cause found: nothing that was observed explains the symptom")?,
        Verdict::NoLoadSeen => {
            writeln!(
                out,
                "no traffic observed: run the load while Apus watches, or give recordings that `apus snapshot --watch` made under load"
            )?;
        }
    }
    for (n, cause) in all.iter().enumerate() {
        let hit = &cause.hit;
        let place = hit.end.as_ref().map_or_else(|| "between the ends".to_owned(), |end| format!("at {end}"));
        writeln!(out)?;
        wrapped(
            out,
            &format!("{}. ", n + 1),
            &format!("{} ({}, {place}, {} %)", hit.headline, cause.id, hit.likelihood_percent),
        )?;
        for seen in &hit.evidence {
            wrapped(out, "   - ", &format!("{} [{}]", seen.text, seen.source))?;
        }
        wrapped(out, "   why: ", cause.why)?;
        wrapped(out, "   prove it: ", &hit.experiment.text)?;
        if live && hit.experiment.factor.is_some() {
            wrapped(
                out,
                "   or: ",
                "add --try COMMAND: Apus measures with and without the setting in alternating runs, and rolls it back",
            )?;
        }
    }
    let below: Vec<String> = found
        .causes
        .iter()
        .filter(|cause| cause.hit.likelihood_percent < THRESHOLD && cause.hit.likelihood_percent >= 10)
        .map(|cause| format!("{} ({} %): {}", cause.id, cause.hit.likelihood_percent, cause.hit.headline))
        .collect();
    section(out, "less likely:", &below)?;
    let suspects: Vec<String> = found
        .suspects
        .iter()
        .take(SUSPECTS)
        .map(|suspect| {
            let adds = suspect.adds.map_or(String::new(), |adds| format!(", up to {adds}"));
            format!("{} at {}: {}{adds}", suspect.rule, suspect.end, suspect.found)
        })
        .collect();
    section(
        out,
        "suspects: settings that can cause this, although no effect of them was observed (see `apus audit`):",
        &suspects,
    )?;
    section(out, "not observed:", &found.unknown)
}

fn causes(n: usize) -> String {
    if n == 1 { "1 cause".to_owned() } else { format!("{n} causes") }
}

fn watched(end: &End) -> String {
    let count =
        |packets: Option<f64>| packets.map_or("an unknown number of".to_owned(), |packets| format!("{packets:.0}"));
    match (end.interface.as_str(), end.length_s) {
        ("", _) => format!("{}: no interface carried packets", end.name),
        (interface, 0.0) => format!("{}: {interface}, with the settings and loads of the recording", end.name),
        (interface, seconds) => format!(
            "{}: {interface}, {} packets in and {} out in {seconds:.1} s; sockets with data: {}",
            end.name,
            count(end.rx_packets),
            count(end.tx_packets),
            end.sockets.len()
        ),
    }
}

fn section(out: &mut impl Write, title: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    lines.iter().try_for_each(|line| wrapped(out, "  - ", line))
}

fn wrapped(out: &mut impl Write, first: &str, text: &str) -> io::Result<()> {
    let rest = " ".repeat(first.len());
    layout::wrapped(first, &rest, text, WIDTH).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Builds the JSON document.
pub(super) fn document(case: &Case, found: &Diagnosis, verdict: Verdict, tried: Option<Tried>) -> Document {
    let symptom = &case.symptom;
    Document {
        apus: VERSION.to_owned(),
        schema: SCHEMA.to_owned(),
        symptom: document::Symptom {
            kind: Name::of(&symptom.kind),
            measured_bps: symptom.measured_bps,
            expected_bps: symptom.expected_bps,
            ping_ns: symptom.ping_ns,
            expected_ping_ns: symptom.expected_ping_ns,
            reference: Name::of(&symptom.reference),
        },
        ends: case.ends.iter().map(end).collect(),
        verdict,
        threshold_percent: THRESHOLD,
        causes: found.causes.iter().map(cause).collect(),
        suspects: found
            .suspects
            .iter()
            .map(|suspect| document::Suspect {
                end: suspect.end.clone(),
                rule: suspect.rule.to_owned(),
                found: suspect.found.clone(),
                adds_ns: suspect.adds.map(Nanos::as_nanos),
            })
            .collect(),
        unknown: found.unknown.clone(),
        tried,
    }
}

fn end(end: &End) -> document::End {
    let whole = |number: Option<f64>| number.map(|number| number as u64);
    document::End {
        name: end.name.clone(),
        interface: end.interface.clone(),
        watched_ns: (end.length_s * 1e9) as u64,
        rx_packets: whole(end.rx_packets),
        tx_packets: whole(end.tx_packets),
        rx_hold_ns: whole(end.rx_hold_us.map(|hold| hold * 1e3)),
        polls: whole(end.polls),
        drops: end.drops.iter().map(|drops| (drops.counter.clone(), drops.count)).collect(),
        // In a recording of FreeBSD, the queues have loads, not packets.
        queues: end
            .queues
            .iter()
            .filter(|_| end.length_s > 0.0)
            .map(|queue| (queue.queue.clone(), queue.amount as u64))
            .collect(),
        sockets: end.sockets.len() as u64,
    }
}

fn cause(cause: &Ranked) -> document::Cause {
    let hit = &cause.hit;
    document::Cause {
        id: cause.id.to_owned(),
        likelihood_percent: hit.likelihood_percent,
        found: hit.likelihood_percent >= THRESHOLD,
        end: hit.end.clone(),
        headline: hit.headline.clone(),
        why: cause.why.to_owned(),
        reference: cause.reference.to_owned(),
        evidence: hit
            .evidence
            .iter()
            .map(|seen| document::Seen { text: seen.text.clone(), source: seen.source.clone() })
            .collect(),
        experiment: document::Experiment { text: hit.experiment.text.clone(), factor: hit.experiment.factor.clone() },
    }
}
