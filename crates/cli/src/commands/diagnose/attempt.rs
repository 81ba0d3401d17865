//! `--try`: turns a suspected cause into an experiment that changes one setting, measures, and rolls the setting back.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use audit::diagnosis::{Case, Diagnosis};
use live::os::Signals;
use rustix::process::{Pid, Signal, kill_process};
use tester::host::Reading;

use super::watch::Folder;
use crate::args::diagnose::Diagnose;
use crate::documents::diagnose::Tried;
use crate::{Failure, terminal};

/// Time between two checks for a signal.
const LISTEN: Duration = Duration::from_millis(50);

/// Runs `apus experiment` for the most likely cause that Apus can test by changing a setting. The experiment changes
/// the setting at the end of the connection that has the cause. As text, the experiment itself prints its result; with
/// --json, this function returns it. Also returns an error of the experiment: the diagnosis is still worth printing.
pub(super) fn run(
    typed: &Diagnose,
    case: &Case,
    found: &Diagnosis,
    command: &[String],
) -> anyhow::Result<(Tried, Option<Failure>)> {
    let tried = found.found().find_map(|cause| Some((cause, cause.hit.experiment.factor.as_ref()?)));
    let Some((cause, factor)) = tried else {
        let all: Vec<&str> = found.found().map(|cause| cause.id).collect();
        let why = match all.is_empty() {
            true => "no cause was found".to_owned(),
            false => format!(
                "no setting that Apus can change proves {}; follow the advice after \"prove it\"",
                all.join(", ")
            ),
        };
        writeln!(terminal::err(), "nothing to try: {why}")?;
        return Ok((Tried { cause: None, experiment: Reading::unknown(why) }, None));
    };
    let without = |why: String| Tried { cause: Some(cause.id.to_owned()), experiment: Reading::unknown(why) };
    // The namespace of the setting, and the start of the command line that leads from there back to the user's
    // namespace.
    let (place, back) = match case.ends.iter().position(|end| Some(&end.name) == cause.hit.end.as_ref()) {
        Some(0) => (typed.netns.as_deref(), Vec::new()),
        Some(_) if typed.peer_netns.is_some() => (typed.peer_netns.as_deref(), way_back(typed)),
        _ => {
            writeln!(
                terminal::err(),
                "the cause {} is at the other end; run `apus experiment` there with this plan, whose command then measures \
                 from there:\n{}",
                cause.id,
                plan(typed, cause.id, factor, command)
            )?;
            return Ok((without("the cause is at the other end, which is a recording".into()), None));
        }
    };
    let (_folder, path) = saved(&plan(typed, cause.id, factor, &[&back, command].concat()))?;
    let program = std::env::current_exe()?;
    let mut experiment = match place {
        Some(name) => {
            let mut experiment = Command::new("ip");
            experiment.args(["netns", "exec", name]).arg(program);
            experiment
        }
        None => Command::new(program),
    };
    experiment.arg("experiment").arg(&path);
    if typed.json {
        experiment.arg("--json").stdout(Stdio::piped());
    }
    writeln!(
        terminal::err(),
        "trying {}: measuring with and without one setting in alternating runs, for at most {}...",
        cause.id,
        typed.budget
    )?;
    let (code, text) = finish(&mut experiment)?;
    match code {
        Some(0 | 1) if typed.json => {
            let read = serde_json::from_str(&text).map_err(|error| format!("its JSON cannot be read: {error}"));
            Ok((Tried { cause: Some(cause.id.to_owned()), experiment: read.into() }, None))
        }
        Some(0 | 1) => Ok((without("the experiment printed its result as text".into()), None)),
        code => {
            let why =
                format!("`apus experiment` ended with {}", code.map_or("a signal".into(), |code| code.to_string()));
            let fix = "see its message above; --try needs root";
            Ok((without(why.clone()), Some(Failure::lacking(format!("cannot try {}", cause.id), why, fix))))
        }
    }
}

/// Writes the plan to a file that only this user can reach. The experiment runs the command in it, often as root.
fn saved(plan: &str) -> Result<(Folder, PathBuf), Failure> {
    let folder = Folder::new()?;
    let path = folder.0.join("plan.toml");
    terminal::file(&path, plan).map_err(|error| {
        Failure::lacking(format!("cannot write {}", path.display()), error, "set TMPDIR to a folder that you may write")
    })?;
    Ok((folder, path))
}

/// Runs the experiment, and passes on to it each signal that asks Apus to stop: the experiment then rolls its setting
/// back. Returns its exit status and its output, if that is piped.
fn finish(experiment: &mut Command) -> anyhow::Result<(Option<i32>, String)> {
    let signals = Signals::hold()?;
    let mut child = Signals::spawn(experiment)?;
    let output = child.stdout.take();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut text = String::new();
            output.map_or(Ok(0), |mut output| output.read_to_string(&mut text)).map(|_| text)
        });
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if signals.wait(LISTEN).is_some() {
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            }
        };
        let text = read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((status.code(), text))
    })
}

/// Command-line prefix that runs a command in the user's network namespace, from the namespace of the other end.
fn way_back(typed: &Diagnose) -> Vec<String> {
    match &typed.netns {
        Some(name) => ["ip", "netns", "exec", name].map(str::to_owned).to_vec(),
        // Enters the mount namespace too, because `ip netns exec` mounts the other end's /sys.
        None => ["nsenter", "--target", &std::process::id().to_string(), "--net", "--mount", "--wd"]
            .map(str::to_owned)
            .to_vec(),
    }
}

fn plan(typed: &Diagnose, id: &str, factor: &str, command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| toml::Value::String(word.clone()).to_string()).collect();
    format!(
        "name = \"diagnose: {id}\"\nmetric = \"measured\"\nbudget = {}\n[measure]\ncommand = [{}]\nless_is_better = {}\n[[factor]]\n{factor}\n",
        toml::Value::String(typed.budget.to_string()),
        words.join(", "),
        !typed.more_is_better,
    )
}

#[cfg(test)]
mod tests {
    use audit::diagnosis::{Drops, End, Socket, diagnose};
    use clap::Parser as _;
    use host::facts::CpuSet;

    use super::*;
    use crate::commands::experiment::plan::Plan;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        diagnose: Diagnose,
    }

    fn end() -> End {
        let socket =
            Socket { transport: "tcp".into(), rtt_us: Some(1_000.0), sent_bps: Some(1e9), ..Socket::default() };
        let (packets, sockets) = (Some(4_000.0), vec![socket]);
        End {
            interface: "eth0.7".into(),
            length_s: 1.0,
            rx_packets: packets,
            tx_packets: packets,
            sockets,
            ..End::default()
        }
    }

    #[test]
    fn each_factor_is_understood_by_the_experiment() {
        let ends = [
            ("rx-moderation", "rx-usecs", End { rx_hold_us: Some(900.0), rx_hold_by: "ethtool -c".into(), ..end() }),
            ("rx-moderation", "gro-flush-timeout", End { rx_hold_us: Some(900.0), rx_hold_by: "/sys".into(), ..end() }),
            ("rps", "rps_cpus", End { rps_packets: Some(4_000.0), rps_cpus: CpuSet::from([1]), ..end() }),
            ("ring", "rings", {
                let drops = vec![Drops { counter: "rx_missed_errors".into(), count: 400, sending: false }];
                End { drops, rx_slots: Some(64), rx_slots_max: Some(4096), ..end() }
            }),
            ("offloads", "features", {
                let offloads_off = vec!["tx-tcp-segmentation".into()];
                End { offloads_off, tx_bytes: Some(6e6), busy: [(0, 1.0)].into(), ..end() }
            }),
            ("tx-moderation", "tx-usecs", {
                End { tx_hold_us: Some(250.0), tx_slots: Some(1024), speed_bps: Some(40e9), ..end() }
            }),
        ];
        let words = ["diagnose", "--netns", "a", "--try", "ping", "-c", "3", "a b"];
        let typed = Line::try_parse_from(words).unwrap().diagnose;
        for (id, word, end) in ends {
            let found = diagnose(&Case { ends: vec![end], ..Case::default() });
            let cause = found.found().find(|cause| cause.id == id).unwrap_or_else(|| panic!("{id}: {found:#?}"));
            let factor = cause.hit.experiment.factor.as_ref().unwrap_or_else(|| panic!("{id} has no factor"));
            assert!(factor.contains(word), "{factor}");
            let words = [way_back(&typed), typed.attempt.clone().unwrap()].concat();
            let text = plan(&typed, id, factor, &words);
            // The plan once had a name in /tmp that another user could have given to a link or to a file of his own.
            let (folder, path) = saved(&text).unwrap();
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&folder.0).unwrap());
            assert!(path.parent() == Some(&folder.0) && mode & 0o777 == 0o700, "{mode:o}");
            assert!(saved(&text).is_err(), "a folder that exists could belong to another user");
            let read = Plan::load(&path).unwrap_or_else(|e| panic!("{e}\n{text}"));
            drop(folder);
            assert!(!path.exists());
            assert_eq!((read.factors.len(), read.settings.budget), (1, units::Nanos::from_secs(120)), "{text}");
        }
    }
}
