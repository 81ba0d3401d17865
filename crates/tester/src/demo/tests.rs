//! Tests of the plan's arithmetic and of the table and report made from a result. As root, also a short demo.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use units::{Instant, Nanos};

use super::result::{BedDocument, NEAR, PlanDocument, Run, SCHEMA, Search};
use super::summary::{lead, rates, rows};
use super::*;
use crate::bed::BedConfig;
use crate::document::Distribution;
use crate::frame::{Encapsulation, FrameSize, Layout};
use crate::histogram::Histogram;
use crate::host::Reading;
use crate::ledger::Ledger;
use crate::random::Random;
use crate::report::model::{Section, TailPoint};
use crate::result::{CpuDocument, LatencyResult, LoadResult};
use crate::search::{BinarySearch, Outcome, Search as _};
use crate::trial::{Counts, LoopCost, Trial, TrialConfig};

/// A made-up result with all modes. Both functions take the index of a mode: `cpu` returns its CPU time (in %),
/// `latency` its latency (in ns).
fn made_up(cpu: impl Fn(usize) -> f64, latency: impl Fn(usize) -> u64) -> DemoResult {
    let plan = Plan::for_budget(Nanos::from_secs(150)).unwrap();
    let mut result = DemoResult {
        apus: "0".into(),
        schema: SCHEMA.into(),
        host: Reading::unknown("made up"),
        plan: PlanDocument::from(&plan),
        bed: BedDocument {
            name: "x".into(),
            tester_cpu: Some(0),
            tested_cpu: Some(1),
            tested_fifo_priority: Some(50),
            frame_octets: 64,
            peak_rate_pps: 3_000_000,
            rx_descriptors: Reading::known(2048),
            xdp_mode: Reading::known("native".into()),
            zero_copy: Reading::known(false),
        },
        runs: Vec::new(),
        searches: Vec::new(),
        not_done: Vec::new(),
        interrupted: false,
        elapsed_ns: 1,
    };
    for (i, mode) in result.plan.modes.clone().into_iter().enumerate() {
        for load in &result.plan.loads {
            let rounds = if load.id == NEAR { 1 } else { plan.rounds };
            for round in 0..rounds {
                let mut latency_of = one_frame();
                let mut histogram = Histogram::new();
                (0..4_000).for_each(|n| histogram.record(latency(i) + n % 100 + u64::from(round) * 50));
                latency_of.clean = Distribution::from(&histogram);
                (0..40).for_each(|n| histogram.record(10_000_000 + n * 100_000));
                latency_of.all = Distribution::from(&histogram);
                latency_of.exclusion.intended = 4_040;
                latency_of.exclusion.excluded = 40;
                latency_of.tested_cpu = Reading::known(CpuDocument {
                    interval_ns: 1_000_000_000,
                    cpu_ns: (cpu(i) * 1e7) as u64,
                    run_delay_ns: 0,
                    share_of_one_cpu_percent: Some(cpu(i)),
                    wakeups_per_s: Some(2_857.0),
                    preemptions: 0,
                    threads: 1,
                    threads_ended: 0,
                });
                let (mode, load) = (mode.name.clone(), load.id.clone());
                result.runs.push(Run { mode, load, round, latency: latency_of, reasons: BTreeMap::new() });
            }
        }
        let config = Plan::search_in(plan.search);
        let mut search = BinarySearch::new(config).unwrap();
        while let Some(step) = search.next_step() {
            let lost = step.load_pps.saturating_sub(500_000 + i as u64 * 1_000);
            search.record(step, Outcome { sent: step.load_pps, lost, unsent: 0 });
        }
        let load = LoadResult::new(&config, &search, Err("elsewhere".into()));
        result.searches.push(Search { mode: mode.name, load });
    }
    result
}

/// A machine without meters.
struct Unmetered;

impl crate::document::EnergyMeter for Unmetered {
    fn start(&mut self) {}

    fn stop(&mut self, _: Option<u64>, _: Result<crate::document::Work, String>) -> crate::document::Energy {
        crate::document::Energy::unmeasured("no energy meter here")
    }
}

fn one_frame() -> LatencyResult {
    let layout = Layout {
        destination: [2; 6],
        source: [4; 6],
        encapsulation: Encapsulation::Ethernet { ethertype: 0x88b5 },
        size: FrameSize::SMALLEST,
    };
    let config = TrialConfig::new(layout, "constant:350us".parse().unwrap());
    let mut ledger = Ledger::default();
    let sequence = ledger.intend(config.warm_up);
    ledger.received(sequence, Nanos::from_micros(10));
    let trial = Trial {
        start: Instant::ORIGIN,
        warm_up: config.warm_up,
        planned: config.duration,
        sending: config.duration,
        ledger,
        counts: Counts { intended: 1, sent: 1, received: 1, ..Counts::default() },
        gaps: Vec::new(),
        lateness: Histogram::new(),
        cost: LoopCost::default(),
        device: live::device::Statistics::default(),
        link_down_seen: 0,
        interrupted: false,
    };
    LatencyResult::new(&config, &trial, Ok(&[]), crate::gaps::Recovery::default(), Err("made up".into()))
}

/// A result in which the goal of 30 us is missed, and those of 60 and 250 us are met. The looser the goal, the less CPU
/// time its mode takes.
fn usual() -> DemoResult {
    let cpu = [99.0, 5.0, 12.0, 90.0, 40.0, 20.0, 8.0];
    let us = [10, 45, 70, 12, 35, 50, 200];
    made_up(|i| cpu[i], |i| us[i] * 1_000)
}

#[test]
fn the_parts_of_a_plan_fill_its_budget() {
    for seconds in [8, 12, 30, 60, 100, 150, 300, 1_000, 3_600] {
        let budget = Nanos::from_secs(seconds);
        let plan = Plan::for_budget(budget).unwrap();
        let expected = plan.expected();
        assert!(expected <= budget + Nanos::from_millis(1), "{seconds} s: {expected}");
        assert!(expected >= budget.scale(85, 100), "{seconds} s: {expected}");
        assert!(plan.rounds % 2 == 1 && plan.run > Nanos::ZERO && plan.learn <= Nanos::from_millis(500));
        let search = Plan::search_in(plan.search);
        assert!(seconds < 100 || search.trial >= Nanos::from_millis(100), "{}", search.trial);
    }
    let usual = Plan::for_budget(Nanos::from_secs(150)).unwrap();
    assert!(usual.rounds >= 3 && usual.learn == Nanos::from_millis(500));
    // Long enough for p99.9 even if a tenth of the samples is excluded.
    assert!(usual.run >= Nanos::from_millis(1_450), "{}", usual.run);
    for seconds in [0, 1, 5] {
        let error = Plan::for_budget(Nanos::from_secs(seconds)).unwrap_err();
        assert!(!error.lacks() && error.to_string().contains("longer budget"), "{error}");
    }
}

#[test]
fn each_round_runs_all_modes_and_every_other_one_backwards() {
    let plan = Plan::for_budget(Nanos::from_secs(150)).unwrap();
    let all: BTreeSet<usize> = (0..plan.modes.len()).collect();
    for round in 0..6 {
        assert_eq!(plan.order(round).into_iter().collect::<BTreeSet<_>>(), all);
    }
    let mut backwards = plan.order(1);
    backwards.reverse();
    assert_eq!(plan.order(0), backwards);
    assert_ne!(plan.order(0)[0], plan.order(2)[0]);
}

#[test]
fn the_lead_follows_from_the_data() {
    let result = usual();
    let text = lead(&result, &rows(&result).unwrap());
    assert!(text.contains("p99 within 250 us") && text.contains("8 % of a core"), "{text}");
    assert!(text.contains("Missed: p99=30us at one packet every 350 us"), "{text}");
    let none = made_up(|_| 50.0, |_| 900_000);
    let text = lead(&none, &rows(&none).unwrap());
    assert!(text.starts_with("In this run, no latency goal was met"), "{text}");
    let nothing = DemoResult { runs: Vec::new(), ..usual() };
    assert_eq!(lead(&nothing, &rows(&nothing).unwrap()), "Nothing was measured.");
}

#[test]
fn the_table_has_every_mode_at_every_load() {
    let result = usual();
    let text = table::render(&result).unwrap();
    for mode in &result.plan.modes {
        let times = text.lines().filter(|line| line.trim_start().starts_with(&mode.name)).count();
        assert_eq!(times, 4, "{}:\n{text}", mode.name);
    }
    assert!(text.contains("missed") && text.contains("held") && text.contains("1.0 %"), "{text}");
    // Columns are aligned: each number ends below the end of its heading.
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("p50 us")).take(3).collect();
    let end = lines[0].find("p99 us").unwrap() + "p99 us".len();
    assert!(lines[1..].iter().all(|line| line.as_bytes()[end - 1].is_ascii_digit() && line.as_bytes()[end] == b' '));
}

#[test]
fn the_report_has_every_mode_in_every_figure() {
    let result = usual();
    let report = report::report(&result).unwrap();
    let names: BTreeSet<&str> = result.plan.modes.iter().map(|mode| mode.name.as_str()).collect();
    let mut kinds = BTreeSet::new();
    for section in &report.sections {
        match section {
            Section::Scatter(figure) => {
                kinds.insert("scatter");
                assert_eq!(figure.panels.len(), 2);
                for panel in &figure.panels {
                    assert_eq!(panel.points.iter().map(|p| p.series.as_str()).collect::<BTreeSet<_>>(), names);
                    assert!(panel.points.iter().all(|p| p.x.value > 0.0 && p.y.interval.is_some()));
                    assert_eq!(panel.goals.len(), 3);
                }
            }
            Section::Distribution(figure) => {
                kinds.insert("distribution");
                assert_eq!(figure.panels.len(), 3);
                for line in figure.panels.iter().flat_map(|panel| &panel.lines) {
                    let ends = |points: &[TailPoint]| points.last().map(|point| point.value);
                    assert!(!line.clean.is_empty() && ends(&line.all) > ends(&line.clean), "{}", line.series);
                    assert!(line.all.windows(2).all(|w| w[0].value <= w[1].value && w[0].above >= w[1].above));
                }
            }
            Section::Bars(figure) => {
                kinds.insert("bars");
                assert_eq!(figure.bars.iter().map(|bar| bar.series.as_str()).collect::<BTreeSet<_>>(), names);
                assert!(figure.bars.iter().all(|bar| bar.value.value > 400.0 && bar.value.value < 520.0));
            }
            Section::Trace(_) => panic!("the demo draws nothing over time"),
            Section::Table(table) => {
                kinds.insert("table");
                assert_eq!(table.rows.len(), 7);
                assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
            }
        }
    }
    assert_eq!(kinds.len(), 4);
    assert!(rates(&result).iter().all(|rate| rate.passed_pps.is_some()));
    let html = crate::report::render(&report);
    assert!(!html.contains("No data") && html.contains("Power is unknown"));
}

#[test]
fn what_is_missing_is_said_and_breaks_nothing() {
    let mut result = usual();
    result.runs.retain(|run| run.mode != "poll" && run.load != NEAR);
    result.runs[0].latency.interrupted = true;
    result.searches.clear();
    result.not_done.push("poll: interrupted".into());
    let html = crate::report::render(&report::report(&result).unwrap());
    assert!(html.contains("Not done: poll: interrupted"));
    assert!(table::render(&result).unwrap().contains("not done: poll: interrupted"));
    let nothing = DemoResult { runs: Vec::new(), searches: Vec::new(), ..usual() };
    assert!(crate::report::render(&report::report(&nothing).unwrap()).contains("Nothing was measured."));
    assert!(table::render(&nothing).unwrap().contains("Nothing was measured."));
}

#[test]
fn runs_that_another_process_disturbed_do_not_count() {
    let mut result = usual();
    let mut delay = |mode: &str, rounds: std::ops::Range<u32>| {
        for run in result.runs.iter_mut().filter(|run| run.mode == mode && rounds.contains(&run.round)) {
            run.latency.tested_cpu.value.as_mut().unwrap().run_delay_ns = 110_000_000;
        }
    };
    delay("interrupt", 1..2);
    delay("adaptive p99=250us", 0..9);
    let rows = rows(&result).unwrap();
    let row = |mode: &str| rows.iter().find(|row| row.mode.name == mode).unwrap();
    let rounds = result.plan.rounds as usize;
    assert_eq!((row("poll").runs, row("poll").disturbed), (rounds, 0));
    assert_eq!((row("interrupt").runs, row("interrupt").disturbed), (rounds - 1, 1));
    assert!(row("adaptive p99=250us").only_disturbed);
    let text = table::render(&result).unwrap();
    assert!(text.contains("do not trust them: adaptive p99=250us at one packet every 350 us"), "{text}");
    assert!(lead(&result, &rows).contains("p99 within 60 us"), "the lead trusts a disturbed run");
}

#[test]
fn a_mode_that_loses_frames_holds_no_goal() {
    let mut result = usual();
    let run = result.runs.iter_mut().find(|run| run.mode == "adaptive p99=250us").unwrap();
    run.latency.exclusion.lost_outside_gaps = 1;
    let rows = rows(&result).unwrap();
    let row = rows.iter().find(|row| row.mode.name == "adaptive p99=250us").unwrap();
    assert_eq!(row.goal_held, Some(false));
    assert!(lead(&result, &rows).contains("p99 within 60 us"));
}

#[test]
fn a_document_survives_json() {
    let result = usual();
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<DemoResult>(&text).unwrap(), result);
}

/// A result with as many samples as a demo of 150 s takes, and with latencies as on a busy virtual machine. Most
/// samples are tens of microseconds; one in fifty lies in a tail that reaches tens of milliseconds.
fn measured() -> DemoResult {
    let mut result = usual();
    let mut random = Random::new(13);
    for run in &mut result.runs {
        let pps = match run.load.as_str() {
            NEAR => 100_000,
            "constant:350us" | "constant:350000ns" => 2_857,
            _ => 20_000,
        };
        let samples = pps * if run.load == NEAR { result.plan.near_ns } else { result.plan.run_ns } / 1_000_000_000;
        let (mut clean, mut all) = (Histogram::new(), Histogram::new());
        for n in 0..samples {
            let body = 8_000.0 + random.exponential(20_000.0);
            let late = n % 50 == 0;
            let nanos = if late { body / random.unit().powf(1.5) } else { body } as u64;
            all.record(nanos);
            if n % 20 != 0 || !late {
                clean.record(nanos);
            }
        }
        run.latency.all = Distribution::from(&all);
        run.latency.clean = Distribution::from(&clean);
    }
    result
}

/// A report was once 6 MB large, mostly because of histograms that it did not show.
#[test]
fn a_report_is_small_and_the_document_has_everything() {
    let result = measured();
    let whole = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<DemoResult>(&whole).unwrap(), result);
    let report = report::report(&result).unwrap();
    let html = crate::report::render(&report);
    let (html, whole) = (html.len(), whole.len());
    assert!(html <= 1_500_000 && whole > 3_000_000, "{html} bytes of {whole}");
    for (run, embedded) in result.runs.iter().zip(report.results["runs"].as_array().unwrap()) {
        let clean = &embedded["latency"]["clean"];
        assert_eq!(clean["quantiles"], serde_json::to_value(&run.latency.clean.quantiles).unwrap());
        assert!(clean["count"].is_u64() && clean.get("histogram").is_none(), "{clean}");
    }
}

#[test]
fn a_stopped_demo_takes_the_lab_down() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("needs root");
        return;
    }
    let name = format!("stop{}", std::process::id());
    let Ok(config) = BedConfig::new(&name) else {
        testkit::skip("needs two CPUs");
        return;
    };
    let plan = Plan::for_budget(Nanos::from_secs(8)).unwrap();
    let mut said = Vec::new();
    let ended =
        run(&plan, config, &mut Unmetered, &AtomicBool::new(true), &mut |what| said.push(what.to_owned())).unwrap();
    assert!(ended.failure.is_none() && ended.result.interrupted && ended.result.runs.is_empty());
    assert_eq!(ended.result.not_done.len(), 14);
    assert_eq!(said, ["creating the lab"]);
    assert!(crate::lab::list().unwrap().iter().all(|lab| lab.name != name));
}
