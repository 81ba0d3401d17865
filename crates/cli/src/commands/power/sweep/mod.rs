//! `apus power sweep`: forwards frames while the frequency of the forwarder's core changes, while it does not change,
//! and then at each frequency. The report plots one dot per second, like figures 6 and 7 of Intel's P-state guide
//! (637284-001US), and shows the power at each frequency, like section 4.3 of the guide.
//!
//! ```text
//!   steady │ changing │ changing │ steady │ level 1 │ level 2 │ …      each part is one trial of the lab's forwarder
//! ```
//! The series without changes is split around the series with changes, so that a slow drift of the machine affects
//! both.

mod changes;
mod report;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use host::knob::{Access, Limits, policies, policy_cpus};
use live::mode::Mode;
use tester::bed::{Bed, BedConfig, Measurement, Session};
use tester::document::EnergyMeter as _;
use tester::host::Reading;
use units::{Hertz, Nanos};

use self::changes::{Changer, Tally};
use crate::args::power::sweep::Sweep as Typed;
use crate::commands::demo::watch_signals;
use crate::commands::energy::Wattmeter;
use crate::commands::output::Output;
use crate::documents::VERSION;
use crate::documents::sweep::{Block, Level, SWEEP, Second, Sweep};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus power sweep";

/// Runs `apus power sweep`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    check(typed)?;
    let output = Output::open_named(typed.output.as_deref())?;
    let config = BedConfig::new(typed.name.clone())?;
    let cpu = config.tested.cpu.unwrap_or(0) as u32;
    let access = Access::below(&typed.root)?;
    // A third CPU, or the tester's CPU: the tester notices that its loop was interrupted, and leaves out the affected
    // frames.
    let tester = config.tester.cpu.unwrap_or(0);
    let others = probe::place::allowed()?.into_iter().find(|other| *other != tester && *other != cpu as usize);
    let (policy, levels) = levels(&access, cpu, &typed.levels)?;
    // Before any thread is started, because threads inherit the signal mask.
    let signals = live::os::Signals::hold()?;
    let mut meter = Wattmeter::open(&typed.modelled)?;
    let stop = Arc::new(AtomicBool::new(false));
    let bed = Bed::up(config)?;
    watch_signals(signals, Arc::clone(&stop))?;
    let mut changer = Changer::new(&access, policy, &levels, others.unwrap_or(tester))?;
    let measured = bed.with(Mode::Poll, |session| measure(session, typed, &mut changer, &mut meter, &stop));
    let restored = changer.release();
    let ended = measured.and_then(|measured| bed.down().map(|()| measured));
    let (host, blocks, at_levels) = ended?;
    let document = Sweep {
        apus: VERSION.to_owned(),
        schema: SWEEP.to_owned(),
        host: Reading::known(host),
        cpu,
        policy,
        root: typed.root.display().to_string(),
        levels_hz: levels.iter().map(|level| level.as_hertz()).collect(),
        period_ns: typed.period.as_nanos(),
        schedule: typed.schedule.to_string(),
        changing_longest_ns: longest(&blocks, true),
        steady_longest_ns: longest(&blocks, false),
        notes: notes(&access, &blocks, &restored),
        restored: restored.is_ok(),
        interrupted: stop.load(Ordering::Relaxed),
        blocks,
        levels: at_levels,
    };
    let kept = match output {
        Some(mut output) => output.write(&tester::report::render(&report::report(&document)?)),
        None => Ok(()),
    };
    if typed.json {
        print_json(&document)?;
    } else {
        let mut out = terminal::out();
        out.write_all(report::table(&document).as_bytes())
            .and_then(|()| out.flush())
            .context("cannot write the table")?;
    }
    restored?;
    kept?;
    Ok(if document.interrupted { Status::Findings } else { Status::Good })
}

/// Refuses levels and times with which nothing would change.
fn check(typed: &Typed) -> Result<(), Failure> {
    let levels = &typed.levels;
    if levels.len() == 1 {
        let (why, fix) = ("a change needs two frequencies", "give --level at least twice, or not at all");
        return Err(Failure::wrong(format!("--level {}", levels[0]), why, fix));
    }
    if let Some((_, twice)) = levels.iter().enumerate().find(|(n, level)| levels[..*n].contains(level)) {
        return Err(Failure::wrong(format!("--level {twice}"), "this frequency is given twice", "give each once"));
    }
    if typed.period > typed.duration / 2 {
        let why = format!("nothing would change: each of the two parts with changes takes {}", typed.duration / 2);
        return Err(Failure::wrong(
            format!("--period {}", typed.period),
            why,
            "shorten --period, or lengthen --duration",
        ));
    }
    Ok(())
}

/// The cpufreq policy of the CPU and the frequencies to set. Fails if the host lacks them.
fn levels(access: &Access, cpu: u32, asked: &[Hertz]) -> anyhow::Result<(u32, Vec<Hertz>)> {
    let mut policy = None;
    for number in policies(access)? {
        if policy_cpus(access, number)?.contains(cpu) {
            policy = Some(number);
        }
    }
    let lacking = |why: String| {
        let fix = "use a physical machine with a cpufreq driver; apus sim figures s0.6 shows modelled results";
        Failure::lacking(format!("cannot change the frequency of CPU {cpu}"), why, fix)
    };
    let Some(policy) = policy else {
        let place = access.show("/sys/devices/system/cpu/cpufreq");
        return Err(lacking(format!("{place} has no policy for it: no cpufreq driver controls this CPU")).into());
    };
    let Some((low, high)) = Limits::new(policy).hardware(access)? else {
        return Err(lacking(format!("policy {policy} does not report its lowest and highest frequency")).into());
    };
    let (low, high) = (Hertz::new(low * 1_000), Hertz::new(high * 1_000));
    for level in asked {
        if !(low..=high).contains(level) {
            let ghz = |hertz: Hertz| format!("{:.3} GHz", hertz.as_hertz() as f64 / 1e9);
            let why = format!("the hardware of CPU {cpu} supports {} to {}", ghz(low), ghz(high));
            return Err(Failure::wrong(format!("cannot set {}", ghz(*level)), why, "give another --level").into());
        }
    }
    let levels = if asked.is_empty() { vec![low, high] } else { asked.to_vec() };
    if low == high || levels.len() < 2 {
        return Err(lacking("there is only one frequency to set".to_owned()).into());
    }
    Ok((policy, levels))
}

type Measured = (tester::host::HostState, Vec<Block>, Vec<Level>);

/// Measures the four blocks with and without frequency changes, then each frequency.
fn measure(
    session: &mut Session,
    typed: &Typed,
    changer: &mut Changer,
    meter: &mut Wattmeter,
    stop: &AtomicBool,
) -> Result<Measured, tester::Error> {
    let half = typed.duration / 2;
    session.learn(&typed.schedule, Nanos::from_secs(1).min(half), stop)?;
    let mut blocks: Vec<Block> = Vec::new();
    for (seed, changing) in [false, true, true, false].into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut trial = |meter: &mut Wattmeter| -> Result<_, tester::Error> {
            meter.start();
            let measurement = session.measure(&typed.schedule, seed as u64 + 1, half, stop)?;
            let energy = measurement.energy(meter);
            Ok((measurement, energy))
        };
        let (run, tally) = match changing {
            true => changer.during(typed.period, || trial(meter)),
            false => (trial(meter), Tally::default()),
        };
        let (measurement, energy) = run?;
        let same = blocks.iter().filter(|block| block.changing == changing);
        let first = same.flat_map(|block| block.seconds.last()).map(|last| last.second + 1).max().unwrap_or(0);
        let seconds = measurement.seconds().iter().map(|second| Second::of(second, first)).collect();
        let Tally { asked, as_asked, otherwise } = tally;
        blocks.push(Block { changing, seconds, asked, as_asked, otherwise, energy });
    }
    let mut levels = Vec::new();
    for level in changer.levels().to_vec() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let as_asked = changer.set(level);
        meter.start();
        let measurement = session.measure(&typed.schedule, 1, typed.at_each, stop)?;
        let energy = measurement.energy(meter);
        levels.push(self::level(level, as_asked, &measurement, energy));
    }
    Ok((session.host(), blocks, levels))
}

fn level(level: Hertz, as_asked: bool, measurement: &Measurement, energy: tester::document::Energy) -> Level {
    let cpu = measurement.cpu_share().map(|share| share * 100.0);
    let longest = measurement.seconds().iter().filter_map(|second| second.longest_clean).max();
    let service = measurement.counts.service.mean().map(Nanos::as_nanos);
    Level {
        frequency_hz: level.as_hertz(),
        as_asked,
        cpu_percent: Reading::or_unknown(cpu, "the kernel does not report the worker's CPU time"),
        service_time_ns: Reading::or_unknown(service, "no frame was forwarded"),
        longest_clean_ns: Reading::or_unknown(
            longest.map(Nanos::as_nanos),
            "no frame came back while both the tester and the forwarder had their CPUs",
        ),
        energy,
    }
}

fn longest(blocks: &[Block], changing: bool) -> Reading<u64> {
    let of = blocks.iter().filter(|block| block.changing == changing).flat_map(|block| &block.seconds);
    let longest = of.filter_map(|second| second.longest_clean_ns).max();
    Reading::or_unknown(longest, "no frame came back while both the tester and the forwarder had their CPUs")
}

fn notes(access: &Access, blocks: &[Block], restored: &anyhow::Result<()>) -> Vec<String> {
    let mut notes = Vec::new();
    if !access.is_live() {
        notes.push("The frequencies were set in a copy of a host: no core changed its frequency.".to_owned());
    }
    let (asked, otherwise) = blocks.iter().fold((0, 0), |sum, block| (sum.0 + block.asked, sum.1 + block.otherwise));
    if otherwise > 0 {
        notes.push(format!("{otherwise} of {asked} frequency changes were not carried out as requested."));
    }
    if let Err(error) = restored {
        notes.push(format!("The frequency limits are not restored: {error:#}"));
    }
    notes
}
