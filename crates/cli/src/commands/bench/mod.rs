//! `apus bench`: [`bed`] opens the port and watches the device under test, [`mod@say`] prints the results; [`procedure`]
//! runs RFC 2544 and MLRsearch on the ports of [`rig`].

mod bed;
pub mod procedure;
mod rig;
mod say;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use tester::clock::MonotonicClock;
use tester::cpu::CpuUse;
use tester::document::{EnergyMeter as _, Work};
use tester::gaps::Recovery;
use tester::host::HostState;
use tester::result::{Document, FloodResult, LatencyResult, LoadResult, Measured};
use tester::schedule::Schedule;
use tester::search::{BinarySearch, Search as _, SearchConfig, Verdict};
use tester::trial::{self, FloodConfig, TrialConfig};
use units::{Nanos, PacketRate};

use crate::args::bench::{Bed as BedArgs, Bench as Typed, Latency, Load};
use crate::terminal::print_json;
use crate::terminal::{self, Clean};
use crate::{Failure, Status};
use bed::Bed;

/// Runs `apus bench`.
pub fn run(typed: Typed) -> anyhow::Result<Status> {
    match typed {
        Typed::Latency(typed) => latency(&typed),
        Typed::Load(typed) if typed.flood => flood(&typed),
        Typed::Load(typed) => load(&typed),
        Typed::Rfc2544(typed) => procedure::rfc2544(&typed),
        Typed::Mlr(typed) => procedure::mlr(&typed),
        Typed::Soak(typed) => procedure::soak(&typed),
        Typed::Compare(typed) => procedure::compare(&typed),
    }
}

fn latency(typed: &Latency) -> anyhow::Result<Status> {
    let mut outputs = Outputs::create(&typed.bed, typed.histogram.as_deref())?;
    let mut bed = Bed::open(&typed.bed, matches!(typed.schedule, Schedule::Pcap(_)))?;
    let mut status = Status::Good;
    for number in 0..typed.repeat {
        let mut config = TrialConfig::new(bed.layout, typed.schedule.clone());
        (config.duration, config.warm_up) = (typed.duration, typed.bed.warm_up);
        config.seed = typed.seed.wrapping_add(number.into());
        config.stream = number as u16 + 1;
        let (result, clean) = measure(&mut bed, &typed.bed, &config)?;
        let result = match typed.goal {
            Some(goal) => result.judged(goal.quantile, goal.latency, &clean),
            None => result,
        };
        if typed.goal.is_some() && result.goal.as_ref().and_then(|goal| goal.held.value) != Some(true) {
            status = Status::Findings;
        }
        // No frame came back, so there is no result.
        if result.all.count == 0 && !result.interrupted {
            status = Status::Findings;
        }
        let document = Document::new(host(), Measured::Latency(Box::new(result)));
        outputs.keep(&document)?;
        outputs.buckets(&document)?;
        say(&typed.bed, &document)?;
        if bed.stopped() {
            break;
        }
    }
    Ok(status)
}

/// Runs one trial. Returns its result, and the latency histogram without the packets that a gap of the device under
/// test delayed.
fn measure(
    bed: &mut Bed,
    typed: &BedArgs,
    config: &TrialConfig,
) -> anyhow::Result<(LatencyResult, tester::histogram::Histogram)> {
    bed.meter.start();
    let (trial, seen) =
        bed.watch(typed, |device, pool, stop| trial::run(config, device, 0, pool, &MonotonicClock, stop))?;
    let energy = bed.meter.stop(Some(trial.counts.received), work(&seen.cpu));
    let recovery = Recovery::default();
    let gaps = seen.gaps.as_deref().map_err(Clone::clone);
    let clean = trial.split(gaps.clone().unwrap_or_default(), recovery).clean;
    Ok((LatencyResult::new(config, &trial, gaps, recovery, seen.cpu).with_energy(energy), clean))
}

fn search_config(typed: &Load) -> SearchConfig {
    let (min, max) = (typed.min_rate.as_pps(), typed.max_rate.as_pps());
    let preset = if typed.rfc2544 { SearchConfig::rfc2544(min, max) } else { SearchConfig::short(min, max) };
    SearchConfig {
        width_ppm: typed.width.unwrap_or(preset.width_ppm),
        loss_tolerance_ppm: typed.loss,
        confirm_trial: typed.duration.unwrap_or(preset.confirm_trial),
        ..preset
    }
}

fn load(typed: &Load) -> anyhow::Result<Status> {
    let search_config = search_config(typed);
    let mut search = BinarySearch::new(search_config)?;
    let mut outputs = Outputs::create(&typed.bed, None)?;
    let mut bed = Bed::open(&typed.bed, false)?;
    let progress = terminal::err_is_terminal() && !typed.bed.json;
    let layout = bed.layout;
    let trial = |load_pps: u64, duration: Nanos, stream: usize| {
        let mut config = TrialConfig::new(layout, Schedule::ConstantRate(PacketRate::new(load_pps)));
        (config.duration, config.warm_up) = (duration, typed.bed.warm_up);
        config.stream = stream as u16;
        config
    };
    while let Some(step) = search.next_step() {
        let config = trial(step.load_pps, step.duration, search.trials().len() + 1);
        let (done, _) =
            bed.watch(&typed.bed, |device, pool, stop| trial::run(&config, device, 0, pool, &MonotonicClock, stop))?;
        if bed.stopped() {
            break;
        }
        let verdict = search.record(step, done.outcome());
        if progress {
            let word = match verdict {
                Verdict::Pass => "passed",
                Verdict::Loss => "lost frames",
                Verdict::TesterLimited => "the tester could not send this fast",
            };
            // A failure to print the progress is ignored.
            let _ = writeln!(terminal::err(), "{}: {word}", PacketRate::new(step.load_pps));
        }
    }
    let latency = match search.bounds().0 {
        None => Err("no rate passed".to_owned()),
        Some(_) if bed.stopped() => Err("the search was interrupted".to_owned()),
        Some(pps) => {
            let config = trial(pps, search_config.confirm_trial, search.trials().len() + 1);
            Ok(measure(&mut bed, &typed.bed, &config)?.0)
        }
    };
    let found_any = search.bounds().0.is_some();
    let document = Document::new(host(), Measured::Load(Box::new(LoadResult::new(&search_config, &search, latency))));
    outputs.keep(&document)?;
    say(&typed.bed, &document)?;
    Ok(if found_any { Status::Good } else { Status::Findings })
}

fn flood(typed: &Load) -> anyhow::Result<Status> {
    let mut outputs = Outputs::create(&typed.bed, None)?;
    let mut bed = Bed::open(&typed.bed, false)?;
    let duration = typed.duration.unwrap_or(Nanos::from_secs(1));
    let config = FloodConfig::new(bed.layout, typed.bed.warm_up, duration);
    bed.meter.start();
    let (flood, seen) =
        bed.watch(&typed.bed, |device, pool, stop| trial::flood(&config, device, 0, pool, &MonotonicClock, stop))?;
    let energy = bed.meter.stop(None, work(&seen.cpu));
    let result = FloodResult::new(&config, &flood, seen.cpu).with_energy(energy);
    let document = Document::new(host(), Measured::Flood(Box::new(result)));
    outputs.keep(&document)?;
    say(&typed.bed, &document)?;
    Ok(if flood.received > 0 { Status::Good } else { Status::Findings })
}

/// CPU time of the device under test, or why it is unknown.
fn work(used: &Result<CpuUse, String>) -> Result<Work, String> {
    used.as_ref().map(Into::into).map_err(Clone::clone)
}

fn host() -> HostState {
    let pid = std::process::id();
    HostState::read(Path::new("/"), pid, pid)
}

fn say(typed: &BedArgs, document: &Document) -> anyhow::Result<()> {
    if typed.json {
        return print_json(document);
    }
    say::table(&document.result, &mut terminal::out()).context("cannot write the table")
}

/// The output files, opened before anything is measured.
struct Outputs {
    json: Option<File>,
    csv: Option<File>,
}

impl Outputs {
    fn create(typed: &BedArgs, csv: Option<&Path>) -> anyhow::Result<Self> {
        let create = |path: Option<&Path>| -> Result<Option<File>, Failure> {
            let make = |path: &Path| {
                fs::File::create(path).map_err(|e| {
                    let fix = "choose a file in a folder that you can write to";
                    Failure::lacking(format!("cannot write {}", path.display()), e, fix)
                })
            };
            path.map(make).transpose()
        };
        Ok(Self { json: create(typed.output.as_deref())?, csv: create(csv)? })
    }

    /// Writes the result to its file. With `--repeat`, appends it to the earlier results.
    fn keep(&mut self, document: &Document) -> anyhow::Result<()> {
        if let Some(file) = &mut self.json {
            serde_json::to_writer(Clean::new(&*file, false), document)?;
            writeln!(file).context("cannot write the result")?;
        }
        Ok(())
    }

    /// Writes the buckets of both histograms as CSV.
    fn buckets(&mut self, document: &Document) -> anyhow::Result<()> {
        let (Some(file), Measured::Latency(result)) = (&mut self.csv, &document.result) else { return Ok(()) };
        let mut text = String::from("latency_ns,samples,samples_outside_gaps\n");
        let mut clean = result.clean.histogram.counts.iter().peekable();
        for (value, count) in &result.all.histogram.counts {
            let outside = clean.next_if(|(at, _)| at == value).map_or(0, |(_, count)| *count);
            text.push_str(&format!("{value},{count},{outside}\n"));
        }
        file.write_all(text.as_bytes()).context("cannot write the histogram")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }

    /// A width of 5 %, the default of the short search, was once taken for a width that was not given.
    #[test]
    fn a_width_that_was_given_holds_with_rfc_2544_too() {
        let width = |words: &[&str]| {
            let words = ["load", "--port", "memory:64"].iter().chain(words);
            search_config(&Line::try_parse_from(words).unwrap().load).width_ppm
        };
        assert_eq!(width(&[]), 50_000);
        assert_eq!(width(&["--rfc2544"]), 5_000);
        assert_eq!(width(&["--rfc2544", "--width", "5%"]), 50_000);
        assert_eq!(width(&["--width", "100ppm"]), 100);
    }
}
