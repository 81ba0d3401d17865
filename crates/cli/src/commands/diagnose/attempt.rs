//! `--try`: turns a cause into an experiment that changes one setting, measures, and rolls it back.

use std::io::Write as _;
use std::process::Command;

use audit::diagnosis::{Case, Diagnosis};

use crate::args::diagnose::Diagnose;
use crate::{Failure, terminal};

/// Runs `apus experiment` with the most likely cause that a setting can prove, at the end where the cause is.
pub(super) fn run(typed: &Diagnose, case: &Case, found: &Diagnosis, command: &[String]) -> anyhow::Result<()> {
    let tried = found.found().find_map(|cause| Some((cause, cause.hit.experiment.factor.as_ref()?)));
    let Some((cause, factor)) = tried else {
        let all: Vec<&str> = found.found().map(|cause| cause.id).collect();
        let mut err = terminal::err();
        writeln!(
            err,
            "nothing to try: no setting that Apus can change proves {}; follow the advice after \"prove it\"",
            list(&all)
        )?;
        return Ok(());
    };
    let plan = plan(typed, cause.id, factor, command);
    let path = std::env::temp_dir().join(format!("apus-diagnose-{}.toml", std::process::id()));
    terminal::file(&path, &plan).map_err(|error| {
        Failure::lacking(format!("cannot write {}", path.display()), error, "set TMPDIR to a folder that you may write")
    })?;
    let place = match case.ends.iter().position(|end| Some(&end.name) == cause.hit.end.as_ref()) {
        Some(0) => typed.netns.as_deref(),
        Some(_) if typed.peer_netns.is_some() => typed.peer_netns.as_deref(),
        _ => {
            writeln!(
                terminal::err(),
                "the cause {} is at the other end; run `apus experiment` there with this plan:\n{plan}",
                cause.id
            )?;
            let _ = std::fs::remove_file(&path);
            return Ok(());
        }
    };
    let program = std::env::current_exe()?;
    let mut experiment = match place {
        Some(name) => {
            let mut experiment = Command::new("ip");
            experiment.args(["netns", "exec", name]).arg(program);
            experiment
        }
        None => Command::new(program),
    };
    if typed.json {
        // Standard output has one document already.
        experiment.stdout(std::process::Stdio::null());
    }
    writeln!(
        terminal::err(),
        "trying {}: measuring with and without one setting in alternating runs, for at most {}...",
        cause.id,
        typed.budget
    )?;
    let status = live::os::Signals::spawn(experiment.arg("experiment").arg(&path)).and_then(|mut child| child.wait());
    let _ = std::fs::remove_file(&path);
    match status?.code() {
        Some(0 | 1) => Ok(()),
        code => Err(Failure::lacking(
            format!("cannot try {}", cause.id),
            format!("`apus experiment` ended with {}", code.map_or("a signal".into(), |code| code.to_string())),
            "see its message above; --try needs root",
        )
        .into()),
    }
}

fn plan(typed: &Diagnose, id: &str, factor: &str, command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| toml::Value::String(word.clone()).to_string()).collect();
    format!(
        "name = \"diagnose: {id}\"\nmetric = \"measured\"\nbudget = {}\n[measure]\ncommand = [{}]\nless_is_better = {}\n[[factor]]\n{factor}\n",
        toml::Value::String(typed.budget.clone()),
        words.join(", "),
        !typed.more_is_better,
    )
}

fn list(ids: &[&str]) -> String {
    if ids.is_empty() { "anything".to_owned() } else { ids.join(", ") }
}
