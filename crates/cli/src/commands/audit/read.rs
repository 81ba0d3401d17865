//! Reads the host that the audit judges, and what the host is used for.

use std::path::Path;

use audit::{Context, Goal, Intent};
use host::facts::{CpuSet, Facts, Housekeeping, Kind, Reading, Root};

use crate::Failure;
use crate::args::audit::Host;

/// Reads this host, or the recording given with `--from`.
pub(crate) fn read(typed: &Host) -> Result<Facts, Failure> {
    let reading =
        Reading { msrs: typed.msr, interval: typed.interval, isolated: typed.isolated.clone().unwrap_or_default() };
    facts_of(typed.from.as_deref(), reading)
}

/// Reads a folder or an archive; `None` reads this host.
pub(crate) fn facts_of(from: Option<&Path>, reading: Reading) -> Result<Facts, Failure> {
    root_of(from).map(|root| Facts::read_with(&root, reading))
}

/// Opens a folder or an archive; `None` is this host.
pub(crate) fn root_of(from: Option<&Path>) -> Result<Root, Failure> {
    let Some(path) = from else { return Ok(Root::live()) };
    Root::open(path).map_err(|error| {
        Failure::wrong(
            format!("cannot read {}", path.display()),
            error,
            "give a snapshot (apus snapshot), a sosreport, a must-gather's sysinfo.tgz, or a folder with proc and sys",
        )
    })
}

/// Keeps the calling thread off the isolated CPUs of this host and off the CPUs in `named`, until the result is
/// dropped: judging and printing are housekeeping work. `None` if `facts` come from a recording.
pub(crate) fn stay_away(facts: &Facts, named: Option<&CpuSet>) -> Option<Housekeeping> {
    let isolated = Context::of(facts, &Intent::default()).isolated.value;
    let isolated = named.map_or(isolated.clone(), |named| isolated.union(named));
    // If the kernel refuses the move, reading the host has already added a note.
    (facts.origin.kind == Kind::Live).then(|| Housekeeping::enter(&isolated))
}

/// Combines the intended use that the user typed with what is inferred. Fails if it names CPUs or interfaces that the
/// host does not have.
pub(crate) fn intent_of(typed: &Host, facts: &Facts) -> Result<Intent, Failure> {
    has(facts, typed.isolated.as_ref(), &typed.nic)?;
    Ok(Intent {
        isolated: typed.isolated.clone(),
        nics: (!typed.nic.is_empty()).then(|| typed.nic.clone()),
        workloads: (!typed.workload.is_empty()).then(|| typed.workload.clone()),
        goal: typed.goal.map(|goal| Goal { quantile: goal.quantile, latency: goal.latency }),
    })
}

/// Fails if the host lacks one of the CPUs or interfaces, or if all of its CPUs would be isolated.
pub(super) fn has(facts: &Facts, isolated: Option<&CpuSet>, nics: &[String]) -> Result<(), Failure> {
    // Messages must not say "the host this host".
    let host = match facts.origin.kind {
        Kind::Live => "this host".to_owned(),
        _ => format!("the host {}", facts.origin.name),
    };
    if let Some(isolated) = isolated {
        let all = facts.cpus.present.value().cloned().unwrap_or_else(|| facts.cpus.all());
        if !all.is_empty() && !isolated.is_subset(&all) {
            return Err(Failure::wrong(
                format!("cannot judge CPUs {isolated} as isolated"),
                format!("{host} has CPUs {all}, but not {}", isolated.difference(&all)),
                "choose from these CPUs",
            ));
        }
        if !all.is_empty() && all.is_subset(isolated) {
            return Err(Failure::wrong(
                format!("cannot judge CPUs {isolated} as isolated"),
                format!("{host} has no other CPUs, and at least one must remain for housekeeping"),
                "leave at least one CPU out",
            ));
        }
    }
    if let Some(links) = facts.links.value() {
        let known = |name: &String| links.iter().any(|link| link.name == *name);
        if let Some(name) = nics.iter().find(|name| !known(name) && !links.is_empty()) {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(Failure::wrong(
                format!("cannot judge interface {name}"),
                format!("{host} has the interfaces {}", names.join(", ")),
                "choose one of these",
            ));
        }
    }
    Ok(())
}
