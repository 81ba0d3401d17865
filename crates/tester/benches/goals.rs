//! Does `adaptive` keep its goals, and what does it save? As root:
//!
//! ```text
//! cargo bench -p tester --bench goals [-- --rounds 7] [--seconds 3] [--only periodic|poisson|idle]
//! cargo bench -p tester --bench goals -- --modes adaptive:p99=250us,backoff:200us [--load poisson:20kpps]
//! ```
//! The second form only compares, and has no bounds.
//!
//! All modes run interleaved, in an order that turns by one each round; the run is the sample, and
//! what is compared are medians over runs. Bounds hold for the samples outside the gaps in which the
//! host had taken a spinning loop's CPU; their share is printed and bounded. CPU time is that of the
//! worker's thread over the trial. Exit status 1 if a bound is missed.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use policy::wait::{Mode, WaitKind};
use tester::bed::{Bed, BedConfig, Measurement};
use tester::schedule::Schedule;
use tester::statistics::median;
use units::{Nanos, Quantile};

type Failure = Box<dyn std::error::Error>;

/// Traffic that the instance sees before it is measured.
const LEARNING: Nanos = Nanos::from_millis(500);
/// The share of the samples that may be left out.
const MOST_EXCLUDED: f64 = 0.10;

struct Options {
    rounds: usize,
    seconds: u64,
    only: Option<String>,
    /// The modes to compare, and the load to compare them at.
    modes: Vec<Mode>,
    load: String,
}

/// The runs of one mode.
struct Series {
    mode: Mode,
    label: String,
    runs: Vec<Run>,
}

struct Run {
    p50_us: f64,
    p99_us: f64,
    all_p99_us: f64,
    cpu_percent: f64,
    excluded: f64,
    lost: u64,
    waits: u64,
    /// Decisions a second, by reason.
    reasons: Vec<(&'static str, f64)>,
}

impl Run {
    fn of(m: &Measurement) -> Result<Self, Failure> {
        let seconds = m.trial.planned.as_nanos() as f64 / 1e9;
        let us = |t: Option<Nanos>| t.map(|t| t.as_nanos() as f64 / 1e3).ok_or("too few samples for a quantile");
        Ok(Self {
            p50_us: us(m.clean(Quantile::P50))?,
            p99_us: us(m.clean(Quantile::P99))?,
            all_p99_us: us(m.all(Quantile::P99))?,
            cpu_percent: 100.0 * m.cpu_share().ok_or("the CPU time is not known")?,
            excluded: m.split.share_excluded().unwrap_or(0.0),
            lost: m.split.lost_outside_gaps,
            reasons: m.counts.decisions().map(|(name, n)| (name, n as f64 / seconds)).collect(),
            waits: [WaitKind::Sleep, WaitKind::Block].into_iter().map(|kind| m.counts.wait(kind).count).sum(),
        })
    }
}

impl Series {
    fn new(mode: Mode) -> Self {
        Self { mode, label: mode.to_string(), runs: Vec::new() }
    }
    fn median(&self, value: impl Fn(&Run) -> f64) -> f64 {
        median(&self.runs.iter().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }
    fn p50(&self) -> f64 {
        self.median(|r| r.p50_us)
    }
    fn p99(&self) -> f64 {
        self.median(|r| r.p99_us)
    }
    fn cpu(&self) -> f64 {
        self.median(|r| r.cpu_percent)
    }
    fn excluded(&self) -> f64 {
        self.median(|r| r.excluded)
    }
    fn lost(&self) -> u64 {
        self.runs.iter().map(|r| r.lost).sum()
    }
}

/// The bounds and whether they hold.
#[derive(Default)]
struct Verdicts {
    missed: usize,
}

impl Verdicts {
    fn check(&mut self, holds: bool, text: String) {
        println!("  {} {text}", if holds { "holds " } else { "MISSED" });
        self.missed += usize::from(!holds);
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(verdicts) if verdicts.missed == 0 => ExitCode::SUCCESS,
        Ok(verdicts) => {
            println!("{} bound(s) missed", verdicts.missed);
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn run() -> Result<Verdicts, Failure> {
    let options = options()?;
    let wanted = |part: &str| options.only.as_deref().is_none_or(|only| only == part);
    let bed = Bed::up(BedConfig::new("goals")?)?;
    let mut verdicts = Verdicts::default();
    if !options.modes.is_empty() {
        interleaved(&bed, options.modes.clone(), &options.load, &options)?;
        bed.down()?;
        return Ok(verdicts);
    }
    if wanted("periodic") {
        periodic(&bed, &options, &mut verdicts)?;
    }
    if wanted("poisson") {
        poisson(&bed, &options, &mut verdicts)?;
    }
    if wanted("idle") {
        idle(&bed, &options, &mut verdicts)?;
    }
    bed.down()?;
    Ok(verdicts)
}

fn options() -> Result<Options, Failure> {
    let mut options =
        Options { rounds: 7, seconds: 3, only: None, modes: Vec::new(), load: "poisson:20kpps".to_owned() };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--rounds" => options.rounds = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--modes" => {
                let mode = |text: &str| text.parse().map_err(|why| format!("{text}: {why}"));
                options.modes = value.split(',').map(mode).collect::<Result<_, _>>()?;
            }
            "--load" => options.load = value,
            "--only" if ["periodic", "poisson", "idle"].contains(&value.as_str()) => options.only = Some(value),
            _ => {
                return Err(format!(
                    "{word} {value}: expected --rounds N, --seconds N, --only periodic|poisson|idle, \
                         --modes MODE,..., --load LOAD"
                )
                .into());
            }
        }
    }
    Ok(options)
}

fn adaptive(goal: &str) -> Result<Mode, Failure> {
    Ok(Mode::holding(goal.parse()?))
}

/// Measures all modes under one load, interleaved.
fn interleaved(bed: &Bed, modes: Vec<Mode>, load: &str, options: &Options) -> Result<Vec<Series>, Failure> {
    let schedule: Schedule = load.parse()?;
    let stop = AtomicBool::new(false);
    let mut series: Vec<Series> = modes.into_iter().map(Series::new).collect();
    for round in 0..options.rounds {
        for place in 0..series.len() {
            let at = (round + place) % series.len();
            let seed = 1 + round as u64;
            let measured = bed.with(series[at].mode, |session| {
                session.learn(&schedule, LEARNING, &stop)?;
                session.measure(&schedule, seed, Nanos::from_secs(options.seconds), &stop)
            })?;
            series[at].runs.push(Run::of(&measured)?);
        }
    }
    println!("\n{load}, {} rounds of {} s, medians over runs", options.rounds, options.seconds);
    println!(
        "  {:<24} {:>8} {:>8} {:>12} {:>7} {:>9} {:>9} {:>5}",
        "mode", "p50 us", "p99 us", "all p99 us", "CPU %", "waits/s", "left out", "lost"
    );
    for s in &series {
        println!(
            "  {:<24} {:>8.1} {:>8.1} {:>12.1} {:>7.1} {:>9.0} {:>8.1}% {:>5}",
            s.label,
            s.p50(),
            s.p99(),
            s.median(|r| r.all_p99_us),
            s.cpu(),
            s.median(|r| r.waits as f64) / options.seconds as f64,
            100.0 * s.excluded(),
            s.lost()
        );
        let Mode::Adaptive(_) = s.mode else { continue };
        let why =
            s.runs.iter().flat_map(|run| &run.reasons).fold(Vec::<(&str, f64)>::new(), |mut sums, (name, rate)| {
                match sums.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += rate,
                    None => sums.push((name, *rate)),
                }
                sums
            });
        let shown = why.iter().filter(|(_, sum)| *sum >= 1.0);
        let texts: Vec<_> = shown.map(|(name, sum)| format!("{name} {:.0}", sum / s.runs.len() as f64)).collect();
        println!("      decisions a second: {}", texts.join(", "));
    }
    Ok(series)
}

fn common(series: &[Series], verdicts: &mut Verdicts) {
    let lost: u64 = series.iter().map(Series::lost).sum();
    verdicts.check(lost == 0, format!("no loss outside the gaps in any run: {lost} lost"));
    let most = series.iter().map(Series::excluded).fold(0.0, f64::max);
    let share = format!("at most {:.0} % of the samples left out: {:.1} %", 100.0 * MOST_EXCLUDED, 100.0 * most);
    verdicts.check(most < MOST_EXCLUDED, share);
}

/// One packet each 350 us.
fn periodic(bed: &Bed, options: &Options, verdicts: &mut Verdicts) -> Result<(), Failure> {
    let modes = vec![Mode::Poll, Mode::Interrupt, adaptive("p99=40us")?];
    let series = interleaved(bed, modes, "constant:350us", options)?;
    let [poll, interrupt, ours] = &series[..] else { return Err("three series".into()) };
    let (median, cpu) = (ours.p50() / poll.p50(), 100.0 * ours.cpu() / poll.cpu());
    verdicts.check(median <= 1.3, format!("adaptive's median at most 1.3 times poll's: {median:.2}"));
    verdicts.check(ours.p99() <= 40.0, format!("adaptive's p99 within 40 us: {:.1} us", ours.p99()));
    verdicts.check(cpu <= 25.0, format!("adaptive's CPU time at most 25 % of poll's: {cpu:.1} %"));
    let cpu = 100.0 * interrupt.cpu() / poll.cpu();
    verdicts.check(cpu <= 12.0, format!("interrupt's CPU time at most 12 % of poll's: {cpu:.1} %"));
    common(&series, verdicts);
    Ok(())
}

/// Poisson traffic, four goals, and the curve of the timed sleep to compare with.
fn poisson(bed: &Bed, options: &Options, verdicts: &mut Verdicts) -> Result<(), Failure> {
    const GOALS: [u64; 4] = [30, 60, 120, 250];
    const SLEEPS: [u64; 14] = [1, 2, 4, 8, 15, 25, 40, 60, 80, 100, 130, 160, 200, 240];
    let mut modes = vec![Mode::Poll, Mode::Interrupt];
    for goal in GOALS {
        modes.push(adaptive(&format!("p99={goal}us"))?);
    }
    modes.extend(SLEEPS.map(|us| Mode::Backoff { max: Nanos::from_micros(us) }));
    let series = interleaved(bed, modes, "poisson:20kpps", options)?;
    let (ours, rivals) = series[2..].split_at(GOALS.len());
    // Poll is the curve's end: a sleep of nothing.
    let mut curve: Vec<(f64, f64)> = rivals.iter().chain(&series[..1]).map(|s| (s.p99(), s.cpu())).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut before = f64::INFINITY;
    for (goal, s) in GOALS.iter().zip(ours) {
        verdicts.check(s.p99() <= *goal as f64, format!("p99 within {goal} us: {:.1} us", s.p99()));
        verdicts.check(s.cpu() < before, format!("CPU time falls with the goal: {:.1} % of a core", s.cpu()));
        before = s.cpu();
        let rival = on_curve(&curve, s.p99());
        let text =
            format!("less CPU than backoff at a p99 of {:.1} us: {:.1} % against {rival:.1} %", s.p99(), s.cpu());
        verdicts.check(s.cpu() < rival, text);
    }
    common(&series, verdicts);
    Ok(())
}

/// The least CPU time with which the curve reaches `p99`: between two measured points, as on the line
/// between them; a point that another beats in both is no part of the curve.
fn on_curve(sorted: &[(f64, f64)], p99: f64) -> f64 {
    let mut frontier: Vec<(f64, f64)> = Vec::new();
    for &(x, cpu) in sorted {
        if frontier.last().is_none_or(|&(_, best)| cpu < best) {
            frontier.push((x, cpu));
        }
    }
    let after = frontier.partition_point(|&(x, _)| x <= p99);
    match (after.checked_sub(1).map(|i| frontier[i]), frontier.get(after)) {
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (p99 - x0) / (x1 - x0),
        (Some((_, y0)), None) => y0,
        (None, _) => 100.0,
    }
}

/// Hardly any traffic: with none at all a trial would be over at once.
fn idle(bed: &Bed, options: &Options, verdicts: &mut Verdicts) -> Result<(), Failure> {
    let schedule: Schedule = "constant:500ms".parse()?;
    let stop = AtomicBool::new(false);
    let mut shares = Vec::new();
    for _ in 0..options.rounds {
        let measured = bed.with(adaptive("p99=40us")?, |session| {
            session.measure(&schedule, 1, Nanos::from_secs(options.seconds), &stop)
        })?;
        shares.push(100.0 * measured.cpu_share().ok_or("the CPU time is not known")?);
    }
    let share = median(&shares).unwrap_or(f64::NAN);
    println!("\ntwo packets a second, {} rounds of {} s", options.rounds, options.seconds);
    verdicts.check(share < 1.0, format!("an idle adaptive worker uses under 1 % of a core: {share:.3} %"));
    Ok(())
}
