//! `--platform`: reads a platform profile of `apus probe all`, from which the mode `adaptive` takes its initial wait
//! costs.

use std::path::Path;

use policy::wait::{LENGTHS, Lateness, TimedCost, WakeCosts};
use probe::Measured;
use probe::detail::Detail;
use probe::measured::Name;
use tester::document::Distribution;
use tester::histogram::{HIGHEST_NS, Histogram};
use tester::host::{HostState, Reading};
use units::Nanos;

use crate::Failure;
use crate::commands::probe::{File, read_measurements};

/// Wait costs from a platform profile, and warnings about differences between the profile and this run.
#[derive(Debug)]
pub struct Platform {
    pub costs: WakeCosts,
    pub warnings: Vec<String>,
}

/// Reads a platform profile. `fifo` is the real-time priority of the workers; `None` is the normal scheduling class.
pub fn read(path: &Path, fifo: Option<u8>) -> Result<Platform, Failure> {
    let File { host, measured } = read_measurements(path)?;
    let name = path.display().to_string();
    let costs = costs(&measured).map_err(|why| {
        Failure::wrong(
            format!("cannot use {name}"),
            why,
            "create one as root: apus probe all -o FILE, with --slice 500ms or more",
        )
    })?;
    let (pid, root) = (std::process::id(), Path::new("/"));
    let mut warnings = foreign(&name, &host, &HostState::read(root, pid, pid));
    warnings.extend(other_class(&name, &measured, fifo));
    warnings.extend(loaded(&name, &measured));
    if costs.interrupt.is_none() {
        let there = measured.iter().any(|of| of.probe == Name::Interrupt);
        let why = if there { "too few samples for a p99" } else { "apus probe all measures them only as root" };
        warnings.push(format!("{name} has no wake-up cost of interrupts ({why}); it is learned during the run"));
    }
    Ok(Platform { costs, warnings })
}

/// Extracts the wait costs from a profile: the lateness of clock_nanosleep timers by their interval, and of frames
/// after poll(2), because workers wait with these calls.
fn costs(measured: &[Measured]) -> Result<WakeCosts, String> {
    let mut timed: Vec<TimedCost> = Vec::new();
    for of in measured {
        let Detail::Timer(detail) = &of.detail else { continue };
        let Some(term) = of.terms.first().filter(|_| detail.wait == "clock_nanosleep") else { continue };
        if let Some(lateness) = lateness(&term.raw)? {
            timed.push(TimedCost { length: Nanos::from_nanos(detail.interval_ns), lateness });
        }
    }
    if timed.is_empty() {
        return Err("it has no clock_nanosleep timer result with a p99".into());
    }
    timed.sort_by_key(|cost| cost.length);
    if timed.len() > LENGTHS {
        return Err(format!("it has timer results for {} intervals, but at most {LENGTHS} are supported", timed.len()));
    }
    // Prefers the cost across CPUs if it was measured, because frames usually come from elsewhere.
    let blocked = |variant: &str| {
        let of = measured.iter().find(|of| of.probe == Name::Interrupt && of.variant.starts_with(variant))?;
        of.terms.iter().find(|term| term.name == "XDP to pick-up")
    };
    let interrupt = match blocked("block, wrong CPU").or_else(|| blocked("block")) {
        Some(term) => lateness(&term.raw)?,
        None => None,
    };
    let mut costs = WakeCosts { interrupt, ..WakeCosts::default() };
    costs.timed.iter_mut().zip(timed).for_each(|(place, cost)| *place = Some(cost));
    Ok(costs)
}

/// Quantiles of a series of lateness values. `None` if it has too few samples for a p99; the cost is then learned while
/// running.
fn lateness(series: &Distribution) -> Result<Option<Lateness>, String> {
    if series.p99_ns.is_none() {
        return Ok(None);
    }
    let histogram = Histogram::try_from(&series.histogram).map_err(|error| error.to_string())?;
    // Computes with 128 bits, because a file may claim any number of samples.
    let rank = |per_mille: u128| (u128::from(histogram.len()) * per_mille).div_ceil(1_000) as u64;
    let ranks = [500, 750, 900, 990, 999].map(rank);
    let [Some(p50), Some(p75), Some(p90), Some(p99), p999] = histogram.at_ranks(ranks) else {
        return Ok(None);
    };
    // The p999 is above the largest value that the histogram resolves. That value takes its place, so that the other
    // quantiles can be used.
    let p999 = p999.unwrap_or(HIGHEST_NS);
    let ns = Nanos::from_nanos;
    Ok(Some(Lateness { p50: ns(p50), p75: ns(p75), p90: ns(p90), p99: ns(p99), p999: ns(p999) }))
}

/// Warns if the profile comes from a host with another CPU or kernel.
fn foreign(name: &str, theirs: &HostState, ours: &HostState) -> Vec<String> {
    let differs = |what: &str, theirs: &Reading<String>, ours: &Reading<String>| {
        let (theirs, ours) = (theirs.value.as_ref()?, ours.value.as_ref()?);
        (theirs != ours)
            .then(|| format!("{name} was measured with another {what} ({theirs:?}); this host has {ours:?}"))
    };
    [differs("CPU", &theirs.cpu_model, &ours.cpu_model), differs("kernel", &theirs.kernel, &ours.kernel)]
        .into_iter()
        .flatten()
        .collect()
}

/// Warns if the profile was measured in another scheduling class than the workers run in.
fn other_class(name: &str, measured: &[Measured], fifo: Option<u8>) -> Option<String> {
    let of = measured.iter().find(|of| of.probe == Name::Timer)?;
    let class = of.conditions.scheduling.value.as_ref()?;
    let real_time = class.rt_priority > 0;
    let say = |real_time: bool| if real_time { "under SCHED_FIFO" } else { "under the normal scheduling class" };
    (real_time != fifo.is_some())
        .then(|| format!("{name} was measured {}, but the workers run {}", say(real_time), say(fifo.is_some())))
}

/// Warns if the profile was measured under load.
fn loaded(name: &str, measured: &[Measured]) -> Option<String> {
    let load = &measured.iter().find(|of| of.probe == Name::Timer)?.conditions.load;
    (load != "none").then(|| format!("{name} was measured while the load {load} ran; waits may cost less here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::record::Recorder;
    use probe::timer::Timer;
    use probe::{Control, Probe};

    fn series(samples: &[(u64, u64)]) -> Distribution {
        let mut recorder = Recorder::new();
        samples.iter().for_each(|(us, n)| recorder.record_n(Nanos::from_micros(*us), *n));
        recorder.series(None)
    }

    /// The result of a timer probe with the given samples.
    fn timer(interval: Nanos, raw: Distribution) -> Measured {
        let cpu = *probe::place::allowed().unwrap().last().unwrap();
        let probe = Timer { interval, duration: interval * 2, ..Timer::new(cpu) };
        // On a separate thread, because the probe changes the affinity and scheduling class of the calling thread.
        let run = move || probe.run(&Control::new(None)).unwrap();
        let mut measured = std::thread::spawn(run).join().unwrap();
        measured.terms[0].raw = raw;
        measured
    }

    #[test]
    fn timers_become_costs_by_their_length() {
        let us = Nanos::from_micros;
        let long = timer(us(1_000), series(&[(8, 500), (10, 300), (20, 180), (70, 17), (90, 3)]));
        let short = timer(us(50), series(&[(5, 1_000)]));
        let few = timer(us(200), series(&[(5, 100)]));
        let measured = [long, few, short];
        let costs = costs(&measured).unwrap();
        // libapus reads the same file without the probe crate.
        let text = serde_json::json!({ "schema": "apus.platform/2", "measured": measured }).to_string();
        assert_eq!(live::platform::costs(&text), Ok(costs));
        let lengths: Vec<Nanos> = costs.timed.iter().flatten().map(|cost| cost.length).collect();
        assert_eq!(lengths, [us(50), us(1_000)], "ascending, and none of too few samples");
        let of = costs.timed[1].unwrap().lateness;
        let rounded = [of.p50, of.p75, of.p90, of.p99, of.p999].map(Nanos::as_micros_floor);
        assert_eq!(rounded, [8, 10, 20, 70, 90]);
        assert_eq!(costs.interrupt, None);
    }

    #[test]
    fn long_stalls_and_many_samples_leave_the_costs() {
        let us = Nanos::from_micros;
        let stalled = lateness(&series(&[(8, 998), (5_000_000, 2)])).unwrap().unwrap();
        assert_eq!((stalled.p99.as_micros_floor(), stalled.p999), (8, Nanos::from_nanos(HIGHEST_NS)));
        let many = lateness(&series(&[(8, u64::MAX / 4)])).unwrap().unwrap();
        assert!(many.p999 < us(9), "{many:?}");
    }

    #[test]
    fn a_profile_without_timers_is_refused() {
        assert!(costs(&[]).unwrap_err().contains("no clock_nanosleep timer"));
        let few = timer(Nanos::from_micros(200), series(&[(5, 100)]));
        assert!(costs(&[few]).unwrap_err().contains("with a p99"));
    }

    #[test]
    fn another_class_and_another_host_are_named() {
        let measured = [timer(Nanos::from_micros(200), series(&[(5, 500)]))];
        assert_eq!(other_class("x", &measured, None), None);
        assert!(other_class("x", &measured, Some(50)).unwrap().contains("the workers run under SCHED_FIFO"));
        let pid = std::process::id();
        let ours = HostState::read(Path::new("/"), pid, pid);
        assert_eq!(foreign("x", &ours, &ours), Vec::<String>::new());
        let theirs = HostState { kernel: Reading::known("2.4".into()), ..ours.clone() };
        assert!(foreign("x", &theirs, &ours)[0].contains("another kernel"));
    }
}
