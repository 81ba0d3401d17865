//! `apus bench`: [`bed`] opens the port and watches the device under test, [`mod@say`] prints the results; [`procedure`]
//! runs RFC 2544 and MLRsearch on the ports of [`rig`].

mod bed;
pub mod procedure;
mod rig;
mod room;
mod say;

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
use crate::commands::output::Output;
use crate::terminal::{self, print_json};
use crate::{Failure, Status};
use bed::Bed;

/// Highest rate that `bench load` tries unless the user names one.
const FASTEST: PacketRate = PacketRate::new(2_000_000);

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
    let mut outputs = Outputs::open(&typed.bed, typed.histogram.as_deref())?;
    let mut bed = Bed::open(&typed.bed, matches!(typed.schedule, Schedule::Pcap(_)))?;
    let most_frames = room::most_frames();
    let mut status = Status::Good;
    for number in 0..typed.repeat {
        let mut config = TrialConfig::new(bed.layout, typed.schedule.clone());
        (config.duration, config.warm_up) = (typed.duration, typed.bed.warm_up(&typed.schedule));
        config.seed = typed.seed.wrapping_add(number.into());
        (config.stream, config.max_frames) = (number as u16 + 1, most_frames);
        let (result, clean) = measure(&mut bed, &typed.bed, &config)?;
        let result = match typed.goal {
            Some(goal) => result.judged(goal.quantile, goal.latency, &clean),
            None => result,
        };
        if typed.goal.is_some() && result.goal.as_ref().and_then(|goal| goal.held.value) != Some(true) {
            status = Status::Findings;
        }
        // Without a frame that came back, there is no result; after an interruption, only a part of it.
        if result.all.count == 0 || result.interrupted {
            status = Status::Findings;
        }
        let document = Document::new(host(), Measured::Latency(Box::new(result)));
        outputs.keep(&typed.bed, &document)?;
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

/// The search that the user asked for, with at most `most_frames` in each trial.
fn search_config(typed: &Load, most_frames: u64) -> Result<SearchConfig, Failure> {
    let min = typed.min_rate.as_pps();
    let preset = if typed.rfc2544 { SearchConfig::rfc2544 } else { SearchConfig::short };
    let preset = preset(min, FASTEST.as_pps());
    let config = SearchConfig {
        width_ppm: typed.width.unwrap_or(preset.width_ppm),
        loss_tolerance_ppm: typed.loss,
        confirm_trial: typed.duration.unwrap_or(preset.confirm_trial),
        ..preset
    };
    let warm_up = typed.bed.warm_up(&Schedule::ConstantRate(typed.min_rate));
    let longest = warm_up + config.trial.max(config.confirm_trial);
    let fits = room::highest_pps(most_frames, longest, 1);
    let max = typed.max_rate.unwrap_or_else(|| FASTEST.min(PacketRate::new(fits)));
    if max.as_pps() > fits {
        let fix = match config.confirm_trial > config.trial {
            true => "lower --max-rate, or shorten --duration; apus bench soak sends for as long as you like",
            false => "lower --max-rate",
        };
        return Err(Failure::wrong(format!("--max-rate {max}"), room::too_many(max, longest, fits), fix));
    }
    if min >= max.as_pps() {
        let why = format!("it must be below the highest rate to try, {max}");
        return Err(Failure::wrong(
            format!("--min-rate {}", typed.min_rate),
            why,
            "lower --min-rate, raise --max-rate, or shorten --duration",
        ));
    }
    Ok(SearchConfig { max_pps: max.as_pps(), ..config })
}

fn load(typed: &Load) -> anyhow::Result<Status> {
    let most_frames = room::most_frames();
    let search_config = search_config(typed, most_frames)?;
    let mut search = BinarySearch::new(search_config)?;
    let mut outputs = Outputs::open(&typed.bed, None)?;
    let mut bed = Bed::open(&typed.bed, false)?;
    let progress = terminal::err_is_terminal() && !typed.bed.json;
    let layout = bed.layout;
    let trial = |load_pps: u64, duration: Nanos, stream: usize| {
        let mut config = TrialConfig::new(layout, Schedule::ConstantRate(PacketRate::new(load_pps)));
        (config.duration, config.warm_up) = (duration, typed.bed.warm_up(&config.schedule));
        (config.stream, config.max_frames) = (stream as u16, most_frames);
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
    let complete = search.bounds().0.is_some() && !bed.stopped();
    let document = Document::new(host(), Measured::Load(Box::new(LoadResult::new(&search_config, &search, latency))));
    outputs.keep(&typed.bed, &document)?;
    Ok(if complete { Status::Good } else { Status::Findings })
}

fn flood(typed: &Load) -> anyhow::Result<Status> {
    let mut outputs = Outputs::open(&typed.bed, None)?;
    let mut bed = Bed::open(&typed.bed, false)?;
    let duration = typed.duration.unwrap_or(Nanos::from_secs(1));
    let warm_up = typed.bed.warm_up(&Schedule::ConstantRate(FASTEST));
    let config = FloodConfig::new(bed.layout, warm_up, duration);
    bed.meter.start();
    let (flood, seen) =
        bed.watch(&typed.bed, |device, pool, stop| trial::flood(&config, device, 0, pool, &MonotonicClock, stop))?;
    let energy = bed.meter.stop(None, work(&seen.cpu));
    let result = FloodResult::new(&config, &flood, seen.cpu).with_energy(energy);
    let document = Document::new(host(), Measured::Flood(Box::new(result)));
    outputs.keep(&typed.bed, &document)?;
    Ok(if flood.received > 0 && !flood.interrupted { Status::Good } else { Status::Findings })
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
    json: Option<Output>,
    csv: Option<Output>,
}

impl Outputs {
    fn open(typed: &BedArgs, csv: Option<&Path>) -> Result<Self, Failure> {
        let outputs = Self { json: Output::open_named(typed.output.as_deref())?, csv: Output::open_named(csv)? };
        if let (Some(json), Some(csv)) = (&outputs.json, &outputs.csv) {
            json.differs_from(csv)?;
        }
        Ok(outputs)
    }

    /// Prints a result and writes it to the output files. With --repeat, appends it to the earlier results. Prints it
    /// even if a file cannot be written. If nothing was measured before an interruption, the files keep their contents.
    fn keep(&mut self, typed: &BedArgs, document: &Document) -> anyhow::Result<()> {
        let measured = match &document.result {
            Measured::Latency(result) => result.frames.sent > 0,
            Measured::Load(result) => !result.trials.is_empty(),
            Measured::Flood(result) => result.sent > 0,
        };
        if !measured {
            return say(typed, document);
        }
        let json = self.json.as_mut().map_or(Ok(()), |output| output.write_json(document));
        let csv = match (&mut self.csv, &document.result) {
            (Some(output), Measured::Latency(result)) => output.write(&buckets(result)),
            _ => Ok(()),
        };
        say(typed, document)?;
        json.and(csv)
    }
}

/// The buckets of both histograms as CSV.
fn buckets(result: &LatencyResult) -> String {
    let mut text = String::from("latency_ns,samples,samples_outside_gaps\n");
    let mut clean = result.clean.histogram.counts.iter().peekable();
    for (value, count) in &result.all.histogram.counts {
        let outside = clean.next_if(|(at, _)| at == value).map_or(0, |(_, count)| *count);
        text.push_str(&format!("{value},{count},{outside}\n"));
    }
    text
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
            search_config(&Line::try_parse_from(words).unwrap().load, u64::MAX).unwrap().width_ppm
        };
        assert_eq!(width(&[]), 50_000);
        assert_eq!(width(&["--rfc2544"]), 5_000);
        assert_eq!(width(&["--rfc2544", "--width", "5%"]), 50_000);
        assert_eq!(width(&["--width", "100ppm"]), 100);
    }

    /// The defaults of --rfc2544 once failed: 120 million frames in 60 s, and at most 20 million allowed.
    #[test]
    fn trials_fit_into_memory() {
        let config = |words: &[&str]| {
            let words = ["load", "--port", "memory:64", "--warm-up", "0s"].iter().chain(words);
            search_config(&Line::try_parse_from(words).unwrap().load, 100_000_000)
        };
        let max = |words: &[&str]| config(words).unwrap().max_pps;
        assert_eq!((max(&[]), max(&["--rfc2544"])), (2_000_000, 1_666_666));
        assert_eq!((max(&["--max-rate", "50Mpps"]), max(&["--duration", "1000s"])), (50_000_000, 100_000));
        for (words, said) in [
            (&["--rfc2544", "--max-rate", "2Mpps"] as &[&str], "at most 1.66Mpps fits"),
            (&["--duration", "1000000s"], "it must be below the highest rate to try, 100pps"),
            (&["--min-rate", "3Mpps"], "2.00Mpps"),
            (&["--min-rate", "3kpps", "--max-rate", "3kpps"], "3.00kpps"),
        ] {
            let error = config(words).unwrap_err();
            assert!(error.status == Status::Wrong && error.to_string().contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn options_that_would_be_ignored_are_refused() {
        for words in [
            &["--flood", "--min-rate", "1kpps"] as &[&str],
            &["--flood", "--loss", "1%"],
            &["--flood", "--width", "1%"],
        ] {
            let words = ["load", "--port", "memory:64"].iter().chain(words);
            assert!(Line::try_parse_from(words.clone()).is_err(), "{:?}", words.collect::<Vec<_>>());
        }
    }
}
