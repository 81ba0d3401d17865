//! One run of an experiment: starts a command, and reads a number from its output.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use live::os::Signals;
use serde_json::Value;
use tester::document::Work;
use tester::result::MOST_EXCLUDED;
use units::Quantile;

use crate::commands::group::Group;

/// Time between two checks for a signal during a run.
const WATCH: Duration = Duration::from_millis(20);
/// Time between two checks whether the output of an ended command is complete.
const STEP: Duration = Duration::from_millis(1);

/// The command that measures.
pub enum Measure {
    /// `apus bench` with these arguments.
    Bench(Vec<String>),
    /// A user's own command, whose last line of output is a number.
    Command(Vec<String>),
}

/// The number by which settings are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Name with its unit, for tables and plots.
    pub name: String,
    /// Whether a lower number is better.
    pub less_is_better: bool,
    source: Source,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// A quantile of the latencies outside gaps.
    Latency(String),
    /// A number in the result of `apus bench`, by its JSON path.
    Place(&'static [&'static str]),
    /// NET_RX softirqs per second, on all CPUs.
    Softirqs,
    /// The number on the last line of a command's output.
    LastLine,
}

impl Metric {
    /// Parses the name of a metric of `apus bench`.
    pub fn of_bench(name: &str) -> Result<Self, String> {
        let quantiles = ["p50", "p90", "p99", "p99.9", "p99.99"];
        let (unit, less_is_better, source) = match name {
            "received" => ("_pps", false, Source::Place(&["received_pps", "value"])),
            "tested_cpu" => ("_percent", true, Source::Place(&["tested_cpu", "value", "share_of_one_cpu_percent"])),
            "tested_wakeups" => ("_per_s", true, Source::Place(&["tested_cpu", "value", "wakeups_per_s"])),
            "net_rx_softirqs" => ("_per_s", true, Source::Softirqs),
            _ => match name.strip_prefix("latency_").filter(|quantile| quantiles.contains(quantile)) {
                Some(quantile) => ("_ns", true, Source::Latency(quantile.to_owned())),
                None => {
                    return Err(format!(
                        "{name:?}: expected latency_p50, latency_p90, latency_p99, latency_p99.9, latency_p99.99, received, \
                         tested_cpu, tested_wakeups or net_rx_softirqs"
                    ));
                }
            },
        };
        Ok(Self { name: format!("{name}{unit}"), less_is_better, source })
    }

    /// The metric that the user's own command prints.
    pub fn own(name: &str, unit: &str, less_is_better: bool) -> Self {
        let name = if unit.is_empty() { name.to_owned() } else { format!("{name}_{unit}") };
        Self { name, less_is_better, source: Source::LastLine }
    }
}

/// What one run measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Value of the metric.
    pub value: f64,
    /// Number of frames that came back. `None` if the command is not `apus bench`.
    pub frames: Option<u64>,
    /// CPU time of the tested program, or why it is unknown.
    pub work: Result<Work, String>,
}

/// Why a run has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The command failed, took too long, or did not report the metric.
    Failed(String),
    /// A signal asked Apus to stop.
    Interrupted,
}

/// Measures once. Returns the metric, and the frame count and CPU time by which the energy of the run is divided. Ends
/// the command and its children if a signal arrives, or if it still runs after `limit`.
pub fn run(measure: &Measure, metric: &Metric, signals: &Signals, limit: Duration) -> Result<Measured, Missing> {
    let mut command = match measure {
        Measure::Bench(words) => {
            let program = std::env::current_exe().map_err(|e| Missing::Failed(e.to_string()))?;
            let mut command = Command::new(program);
            command.arg("bench").args(words).arg("--json");
            command
        }
        Measure::Command(words) => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (start, before) = (Instant::now(), softirqs());
    let started = Group::start(&mut command);
    let (mut child, group) =
        started.map_err(|e| Missing::Failed(format!("cannot start {}: {e}", command.get_program().display())))?;
    let (stdout, stderr) = (Said::by(child.stdout.take()), Said::by(child.stderr.take()));
    let (over, given_up) = (AtomicBool::new(false), AtomicBool::new(false));
    let (status, span, after, cut) = std::thread::scope(|scope| {
        let watchdog = scope.spawn(|| {
            let cut = watch(group, &over, signals, start + limit);
            given_up.store(true, Ordering::Relaxed);
            cut
        });
        let status = child.wait();
        // A process that has left the group may keep the pipes open for ever.
        while !(given_up.load(Ordering::Relaxed) || stdout.is_complete() && stderr.is_complete()) {
            std::thread::sleep(STEP);
        }
        let (span, after) = (start.elapsed(), softirqs());
        over.store(true, Ordering::Relaxed);
        (status, span, after, watchdog.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    match cut {
        None => {}
        Some(Cut::Interrupted) => return Err(Missing::Interrupted),
        Some(Cut::Late) => {
            let left = units::Nanos::from_millis(limit.as_millis() as u64);
            return Err(Missing::Failed(format!("it was ended: it still ran after {left}, the rest of the budget")));
        }
    }
    let status = status.map_err(|e| Missing::Failed(e.to_string()))?;
    let output = Output { status, stdout: stdout.so_far(), stderr: stderr.so_far() };
    read(measure, metric, &output, span, before.zip(after)).map_err(Missing::Failed)
}

/// What a command writes to a pipe, read by a thread that nobody waits for.
struct Said {
    text: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Said {
    fn by(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let to = text.clone();
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut part = [0; 4096];
            loop {
                match pipe.read(&mut part) {
                    Ok(0) => return,
                    Ok(len) => to.lock().unwrap_or_else(PoisonError::into_inner).extend(&part[..len]),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Self { text, reader }
    }

    /// Whether all writers have closed the pipe.
    fn is_complete(&self) -> bool {
        self.reader.is_finished()
    }

    fn so_far(&self) -> Vec<u8> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a run was cut short.
enum Cut {
    Interrupted,
    Late,
}

/// Ends the command if a signal arrives before it is over, or if it is not over at `deadline`.
fn watch(group: Group, over: &AtomicBool, signals: &Signals, deadline: Instant) -> Option<Cut> {
    let is_over = || over.load(Ordering::Relaxed);
    loop {
        let signalled = signals.wait(WATCH).is_some();
        let cut = match () {
            () if signalled => Cut::Interrupted,
            () if is_over() => return None,
            () if Instant::now() >= deadline => Cut::Late,
            () => continue,
        };
        if !is_over() {
            group.end(is_over);
        }
        return Some(cut);
    }
}

/// Reads the result of a run: its output, its length, and the count of softirqs before and after it.
fn read(
    measure: &Measure,
    metric: &Metric,
    output: &Output,
    span: Duration,
    softirqs: Option<(u64, u64)>,
) -> Result<Measured, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Option<Value> = match measure {
        Measure::Bench(_) => serde_json::from_str(&text).ok(),
        Measure::Command(_) => None,
    };
    let result = document.as_ref().and_then(|document| document["result"].as_object()?.values().next());
    // `apus bench` also ends with status 1 if a goal was missed or no frame came back. Repeating such runs would leave
    // out the worst values.
    let complete = |result: &Value| result["interrupted"] != true && result["end"] != "interrupted";
    let measured = output.status.code() == Some(1) && result.is_some_and(complete);
    if !output.status.success() && !measured {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, said.trim().replace('\n', "; ")));
    }
    let value = match &metric.source {
        Source::LastLine => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
            last.parse::<f64>().map_err(|_| format!("its last line is {last:?}, not a number"))
        }
        Source::Softirqs => {
            let risen = softirqs.and_then(|(before, after)| after.checked_sub(before));
            let risen = risen.ok_or("/proc/softirqs does not show NET_RX")?;
            Ok(risen as f64 / span.as_secs_f64())
        }
        source => of_document(&text, source),
    }?;
    let (frames, work) = result.map_or((None, Err("the command is not apus bench".to_owned())), work);
    Ok(Measured { value, frames, work })
}

/// The frames that came back, and the CPU time of the tested program, from the result of `apus bench`.
fn work(result: &Value) -> (Option<u64>, Result<Work, String>) {
    let frames =
        [&result["frames"]["received"], &result["received"], &result["latency"]["value"]["frames"]["received"]];
    let used = &result["tested_cpu"]["value"];
    let interval_ns = used["interval_ns"].as_u64();
    let work = used["cpu_ns"].as_u64().map(|cpu_ns| {
        let rate = used["wakeups_per_s"].as_f64().zip(interval_ns);
        Work { cpu_ns, wakeups: rate.map(|(rate, ns)| (rate * ns as f64 / 1e9).round() as u64) }
    });
    let why = "apus bench does not report the CPU time of the tested program: add --instance, --pid or --tid";
    (frames.into_iter().find_map(Value::as_u64), work.ok_or_else(|| why.to_owned()))
}

/// Extracts the metric from the JSON document of `apus bench`.
fn of_document(text: &str, source: &Source) -> Result<f64, String> {
    let document: Value =
        serde_json::from_str(text).map_err(|e| format!("the output of apus bench is not JSON: {e}"))?;
    let results = document["result"].as_object().and_then(|results| results.values().next());
    let result = results.ok_or("the JSON of apus bench has no result")?;
    match source {
        Source::Latency(quantile) => {
            let all = result["clean"]["quantiles"]
                .as_array()
                .ok_or("apus bench measures latency only as `apus bench latency`")?;
            stands_for_all(result, quantile)?;
            let found = all.iter().find(|one| one["quantile"] == quantile.as_str());
            let found = found.ok_or_else(|| format!("apus bench does not report {quantile}"))?;
            found["latency_ns"].as_f64().ok_or_else(|| {
                let why = found["refused_because"].as_str().unwrap_or("no reason given");
                let frames = &result["frames"];
                format!(
                    "{why}; frames sent: {}, received: {}, lost: {}",
                    frames["sent"], frames["received"], frames["lost"]
                )
            })
        }
        Source::Place(path) => {
            let number = path.iter().fold(result, |value, key| &value[key]);
            let why = || match &result[path[0]]["unknown_because"] {
                Value::String(why) => why.clone(),
                _ => "add --instance, --pid or --tid".to_owned(),
            };
            number.as_f64().ok_or_else(|| format!("apus bench does not report {}: {}", path[0], why()))
        }
        Source::Softirqs | Source::LastLine => Err("the JSON has no such number".into()),
    }
}

/// Fails if the latencies outside gaps do not show the quantile of all frames, by the limits of `apus bench latency
/// --goal`: a lost frame counts as later than all others, and most frames must have met no gap. Otherwise a setting that
/// loses the late frames would seem to help.
fn stands_for_all(result: &Value, quantile: &str) -> Result<(), String> {
    let exclusion = &result["exclusion"];
    let count = |name: &str| exclusion[name].as_u64().ok_or_else(|| format!("apus bench does not report {name}"));
    let (lost, intended) = (count("lost_outside_gaps")?, count("intended")?);
    let above_ppm = quantile.parse::<Quantile>().map_err(|e| e.to_string())?.above_ppm();
    if u128::from(lost) * 1_000_000 > u128::from(intended) * u128::from(above_ppm) {
        return Err(format!(
            "{lost} of {intended} frames were lost outside gaps, so {quantile} is a lost frame: lower the rate"
        ));
    }
    match exclusion["share_excluded"]["value"].as_f64() {
        Some(share) if share > MOST_EXCLUDED => Err(format!(
            "{:.1} % of the frames were under way during a gap: give the tester an isolated CPU (--cpu, --fifo)",
            share * 100.0
        )),
        _ => Ok(()),
    }
}

/// NET_RX softirqs of all CPUs since boot (proc(5), /proc/softirqs).
fn softirqs() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/softirqs").ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("NET_RX:"))?;
    line.split_whitespace().map(|count| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(script: &str) -> Result<Measured, String> {
        within(script, Duration::from_secs(60)).map_err(|missing| match missing {
            Missing::Failed(why) => why,
            Missing::Interrupted => panic!("no signal was sent"),
        })
    }

    fn within(script: &str, limit: Duration) -> Result<Measured, Missing> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let signals = Signals::hold().unwrap();
        run(&Measure::Command(words), &Metric::own("time", "us", true), &signals, limit)
    }

    /// A command that hangs once kept the experiment running for ever, whatever its budget.
    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let start = Instant::now();
        let missing = within("sleep 100 & sleep 100; wait; echo 1", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(&missing, Missing::Failed(why) if why.contains("still ran after 300ms")), "{missing:?}");
        assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    }

    /// Such a process is not ended, but nobody waits for it either.
    #[test]
    fn a_process_outside_the_group_that_keeps_the_pipes_open_does_not_exceed_the_budget() {
        let start = Instant::now();
        let missing = within("setsid sleep 20 & echo 1", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(&missing, Missing::Failed(why) if why.contains("still ran after 300ms")), "{missing:?}");
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    }

    #[test]
    fn the_last_line_is_the_number() {
        assert_eq!(own("echo hello; echo 12.5").map(|run| run.value), Ok(12.5));
        assert!(own("echo x").unwrap_err().contains("not a number"));
        assert!(own("echo no >&2; exit 3").unwrap_err().contains("no"));
    }

    #[test]
    fn documents_of_bench_are_read() {
        let text = document(0, 0.05, false);
        let read = |name: &str| of_document(&text, &Metric::of_bench(name).unwrap().source);
        assert_eq!((read("latency_p50"), read("received")), (Ok(900.0), Ok(5.5)));
        let refused = read("latency_p99").unwrap_err();
        assert_eq!(refused, "9 samples; p99 needs 368; frames sent: 571, received: 9, lost: 562");
        assert!(read("tested_cpu").unwrap_err().contains("--instance"));
    }

    fn document(lost: u64, excluded: f64, interrupted: bool) -> String {
        format!(
            r#"{{"result":{{"latency":{{"received_pps":{{"value":5.5}},"tested_cpu":{{"value":null}},
            "exclusion":{{"intended":571,"lost_outside_gaps":{lost},"share_excluded":{{"value":{excluded}}}}},
            "interrupted":{interrupted},"frames":{{"sent":571,"received":9,"lost":562}},"clean":{{"quantiles":[
            {{"quantile":"p50","latency_ns":900}},{{"quantile":"p99.9","latency_ns":5000}},
            {{"quantile":"p99","latency_ns":null,"refused_because":"9 samples; p99 needs 368"}}]}}}}}}}}"#
        )
    }

    /// Only the frames that came back were judged: a setting that lost the late frames seemed to help.
    #[test]
    fn latencies_that_do_not_stand_for_all_frames_are_no_result() {
        let read = |lost, excluded, name: &str| {
            of_document(&document(lost, excluded, false), &Metric::of_bench(name).unwrap().source)
        };
        assert_eq!(read(285, 0.1, "latency_p50"), Ok(900.0));
        assert!(read(286, 0.1, "latency_p50").unwrap_err().contains("286 of 571 frames were lost"));
        assert!(read(1, 0.0, "latency_p99.9").unwrap_err().contains("p99.9 is a lost frame"));
        assert!(read(0, 0.11, "latency_p50").unwrap_err().contains("11.0 % of the frames"));
        assert_eq!(read(286, 0.11, "received"), Ok(5.5), "a rate does not depend on it");
    }

    /// Runs that missed the goal of the plan's `--goal` were repeated until one met it.
    #[test]
    fn a_run_that_missed_its_goal_is_a_result() {
        let ended = |measure: &Measure, status: i32, stdout: String| {
            use std::os::unix::process::ExitStatusExt as _;
            let status = std::process::ExitStatus::from_raw(status << 8);
            let output = Output { status, stdout: stdout.into_bytes(), stderr: b"said".to_vec() };
            let metric = Metric::of_bench("latency_p50").unwrap();
            read(measure, &metric, &output, Duration::from_secs(1), None).map(|run| run.value)
        };
        let bench = Measure::Bench(Vec::new());
        assert_eq!(ended(&bench, 1, document(0, 0.0, false)), Ok(900.0));
        for (status, text) in [(1, document(0, 0.0, true)), (1, String::new()), (3, document(0, 0.0, false))] {
            assert!(ended(&bench, status, text).unwrap_err().contains("said"), "{status}");
        }
        assert!(ended(&Measure::Command(Vec::new()), 1, document(0, 0.0, false)).is_err());
    }
}
