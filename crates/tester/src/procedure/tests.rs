//! Tests of the procedures on a simulated device in virtual time, with known buffer, latency and recovery time.

use units::Nanos;

use super::simulated::{Simulated, Tamper};
use super::*;
use crate::document::Name;
use crate::frame::FrameSize;
use crate::search::mlr::Preset;

fn plan(tests: &[Test], effort: Effort) -> Plan {
    Plan {
        sizes: vec![Sizes::one(FrameSize::SMALLEST)],
        tests: tests.to_vec(),
        effort,
        min_pps: 10,
        max_pps: None,
        line_bits_per_s: Some(10_000_000),
        alone: Vec::new(),
        deviations: Vec::new(),
    }
}

fn measure(device: &mut Simulated, plan: &Plan) -> Rfc2544Result {
    run(device, plan, &mut |_| {})
}

fn document(result: Rfc2544Result) -> Rfc2544Document {
    let setup = Setup {
        device: Some("simulated".into()),
        tx_port: "a".into(),
        rx_port: "b".into(),
        bidirectional: false,
        flows: 1,
        traffic: "none".into(),
        line_bits_per_s: crate::host::Reading::known(10_000_000),
        latency_is: "virtual".into(),
    };
    let host = crate::host::HostState::read(std::path::Path::new("/nonexistent"), 1, 1);
    Rfc2544Document { apus: "0".into(), schema: RFC2544_SCHEMA.into(), host, setup, result }
}

#[track_caller]
fn close(what: &str, seen: f64, truth: f64) {
    assert!((seen / truth - 1.0).abs() <= 0.02, "{what}: {seen} against {truth}");
}

#[test]
fn what_is_known_comes_out_within_2_percent() {
    let mut device = Simulated::new(1);
    let result = measure(&mut device, &plan(&Test::ALL, Effort::FULL));
    assert!(result.conforms && result.ended.complete && result.standard == "RFC 2544", "{result:?}");
    let size = &result.sizes[0];
    let known = |repeated: &crate::host::Reading<Repeated>| repeated.value.clone().unwrap();
    close("throughput", known(&size.throughput_pps).median, 1_000.0);
    assert!((size.line_rate_pps.value.unwrap() - 14_880.95).abs() < 0.01 && !size.at_least);

    let latency = size.latency.value.as_ref().unwrap();
    close("typical latency", known(&latency.typical_ns).median, device.quantile(0.5));
    close("worst case latency", known(&latency.worst_case_ns).median, device.quantile(0.999));
    close("delay variation", known(&latency.pdv_ns).median, device.quantile(0.999) - device.quantile(0.0));
    close("mean latency", latency.mean_ns.mean, 15_000.0);
    assert_eq!((latency.mean_ns.values.len(), known(&latency.tagged_ns).values.len()), (20, 20));
    close("p99 of all", latency.all.p99_ns.unwrap() as f64, device.quantile(0.99));
    close("p99.9 of all", latency.all.p99_9_ns.unwrap() as f64, device.quantile(0.999));

    // The first device has a small buffer: a large one would fill up at the throughput and hide the latency. So a
    // second device has a large buffer of 500 frames. A burst of n frames at twice the capacity leaves n / 2 of them in
    // it.
    let mut large = Simulated { buffer: 500, ..Simulated::new(1) };
    let with_buffer = measure(&mut large, &plan(&[Test::BackToBack], Effort::FULL));
    let burst = with_buffer.sizes[0].back_to_back.value.as_ref().unwrap();
    assert_eq!(size.back_to_back.value.as_ref().unwrap().frames.values.len(), 50);
    assert_eq!((burst.frames.values.len(), burst.at_limit, burst.rate_pps), (50, 0, 2_000));
    close("longest burst", burst.frames.mean, 1_000.0);
    close("implied buffer time", burst.implied_buffer_ns, 0.5e9);
    close("corrected buffer time", burst.corrected_buffer_ns, 0.25e9);

    let recovery = known(&size.recovery_ns);
    assert_eq!(recovery.values.len(), 20);
    close("recovery", recovery.mean, 0.2e9);
    close("reset", size.reset_ns.value.unwrap() as f64, 3.5e9);
    let loss = size.loss.value.as_ref().unwrap();
    assert_eq!(loss.iter().map(|row| row.load_pps).collect::<Vec<_>>(), [2000, 1800, 1600, 1400, 1200, 1000, 800]);
    close("loss at 100 %", loss[0].loss_percent.unwrap(), 50.0);
    assert!(size.warnings.is_empty(), "{:?}", size.warnings);

    // Each trial has learning frames and pauses of 2 + 2 + 5 s, and takes at least 60 s where RFC 2544 asks for it.
    let trials = size.trials.len() as u64;
    assert_eq!(u64::from(device.trials), 2 * trials);
    let sending: u64 = size.trials.iter().map(|trial| trial.duration_ns).sum();
    assert!(device.now.as_nanos() >= sending + trials * 9_000_000_000, "{}", device.now);
    let long = size.trials.iter().filter(|trial| trial.test != Name::of(&Test::BackToBack));
    assert!(long.into_iter().all(|trial| trial.duration_ns >= 60_000_000_000));
}

#[test]
fn other_buffers_and_recovery_times() {
    for (capacity_pps, buffer, recovers_ms) in [(700, 100, 400), (1_500, 40, 1_000)] {
        let recovers_in = Nanos::from_millis(recovers_ms);
        let mut device = Simulated { capacity_pps, buffer, recovers_in, ..Simulated::new(2) };
        let effort = Effort { width_ppm: 1_000, bursts: 3, overloads: 3, ..Effort::FULL };
        let result = measure(&mut device, &plan(&[Test::BackToBack, Test::Recovery], effort));
        let size = &result.sizes[0];
        let burst = size.back_to_back.value.as_ref().unwrap();
        // The device holds one frame in service in addition to those in the buffer.
        close("corrected buffer", burst.corrected_buffer_ns, (buffer + 1) as f64 * 1e9 / 2_000.0);
        // The recovery time is accurate to one gap between frames at half the throughput.
        close("recovery", size.recovery_ns.value.as_ref().unwrap().mean, recovers_ms as f64 * 1e6);
    }
}

#[test]
fn what_cannot_be_claimed_is_refused() {
    // The device is as fast as the tester: the throughput is a lower bound, and nothing fills its buffer.
    let mut device = Simulated { capacity_pps: 5_000, ..Simulated::new(3) };
    let result = measure(&mut device, &plan(&Test::ALL, Effort { streams: 2, ..Effort::FULL }));
    let size = &result.sizes[0];
    assert!(size.at_least && size.throughput_pps.value.as_ref().unwrap().median == 2_000.0);
    assert!(size.back_to_back.unknown_because.as_ref().unwrap().contains("no burst can fill a buffer"));
    assert!(size.recovery_ns.unknown_because.as_ref().unwrap().contains("cannot be overloaded"));
    assert!(!result.conforms && result.deviations[0].contains("2 streams"), "{:?}", result.deviations);
    // These streams have too few frames for a 99.9th percentile.
    let effort = Effort { stream: Nanos::from_secs(2), ..Effort::QUICK };
    let result = measure(&mut Simulated::new(3), &plan(&[Test::Latency], effort));
    let latency = result.sizes[0].latency.value.as_ref().unwrap();
    assert!(latency.worst_case_ns.unknown_because.as_ref().unwrap().contains("3,688"));
    assert!(result.standard.starts_with("not RFC 2544"), "{}", result.standard);
    // No frame comes back to the receiving port.
    let mut device =
        Simulated { buffer: 0, recovers_in: Nanos::from_secs(1), each: 1, tamper: Tamper::Loop, ..Simulated::new(3) };
    let result = measure(&mut device, &plan(&Test::ALL, Effort::QUICK));
    let size = &result.sizes[0];
    assert!(size.throughput_pps.unknown_because.as_ref().unwrap().contains("no rate passed"));
    assert!(size.warnings[0].contains("sends them back"), "{:?}", size.warnings);
}

#[test]
fn frames_that_latency_streams_lose_or_skip_are_told() {
    let lost = "2 of the 2 latency streams lost frames, 2 of 2";
    let skipped = "in 2 of the 2 latency streams the tester skipped frames, 2 of 2";
    for (tamper, told, not) in [(Tamper::Loop, lost, "skipped"), (Tamper::Skip, skipped, "lost")] {
        // Every 100,000th frame is affected: there is one in a stream of 120 s, but none in a trial of 60 s.
        let mut device = Simulated { each: 100_000, tamper, ..Simulated::new(5) };
        let result = measure(&mut device, &plan(&[Test::Latency], Effort { streams: 2, ..Effort::FULL }));
        let size = &result.sizes[0];
        assert!(size.throughput_pps.value.as_ref().unwrap().median > 900.0);
        let of_streams: Vec<_> = size.warnings.iter().filter(|warning| warning.contains("latency streams")).collect();
        assert!(of_streams.len() == 1 && of_streams[0].starts_with(told), "{:?}", size.warnings);
        assert!(!of_streams[0].contains(not), "{of_streams:?}");
    }
}

#[test]
fn what_comes_back_wrongly_is_named_and_is_no_throughput() {
    for (tamper, word) in
        [(Tamper::Reorder, "reorders"), (Tamper::Corrupt, "corrupts"), (Tamper::Loop, "sends them back")]
    {
        let mut device = Simulated { each: 50, tamper, ..Simulated::new(4) };
        let result = measure(&mut device, &plan(&[Test::Throughput], Effort::QUICK));
        let size = &result.sizes[0];
        // One frame in 50 is affected, so only a trial with fewer than 50 frames can pass: at most 250 pps for 200 ms.
        let passes = size.throughput_pps.value.as_ref().map_or(0.0, |found| found.median);
        assert!(passes <= 250.0, "{tamper:?}: {passes}");
        assert!(size.warnings.iter().any(|warning| warning.contains(word)), "{tamper:?}: {:?}", size.warnings);
    }
    // A duplicate is reported, but does not count as a second forwarded frame.
    let mut device = Simulated { each: 50, tamper: Tamper::Duplicate, ..Simulated::new(4) };
    let result = measure(&mut device, &plan(&[Test::Throughput], Effort::QUICK));
    let size = &result.sizes[0];
    assert!(size.warnings[0].contains("duplicates") && size.anomalies.duplicates > 0);
    assert!(size.throughput_pps.value.as_ref().unwrap().median <= 1_000.0 * 1.5);
}

#[test]
fn an_interrupted_or_failed_procedure_keeps_what_it_measured() {
    let mut plan = plan(&Test::ALL, Effort::QUICK);
    plan.sizes.push(Sizes::one(FrameSize::with_fcs(128).unwrap()));
    let whole = {
        let mut device = Simulated::new(5);
        measure(&mut device, &plan);
        device.trials
    };
    let later = Some(whole / 2 + 40);
    for (vanishes_at, stops_at, word) in [(None, later, "interrupted"), (later, None, "sim0")] {
        let mut device = Simulated { vanishes_at, stops_at, ..Simulated::new(5) };
        let result = measure(&mut device, &plan);
        assert!(!result.ended.complete && result.ended.because.as_ref().unwrap().contains(word), "{:?}", result.ended);
        assert_eq!(result.sizes.len(), 2, "the second size had begun");
        assert!(result.sizes[0].throughput_pps.value.is_some() && result.sizes[0].loss.value.is_some());
        assert!(!result.sizes[1].trials.is_empty());
        let text = rfc2544_table(&result).join("\n");
        assert!(text.contains("INCOMPLETE") && text.starts_with("not RFC 2544"), "{text}");
    }
}

/// Ctrl-C in the first tenth of a second once made a complete result: "the tester can send only 0pps".
#[test]
fn an_interruption_before_the_first_trial_is_told() {
    let mut device = Simulated { stops_at: Some(0), ..Simulated::new(5) };
    let result = measure(&mut device, &plan(&Test::ALL, Effort::QUICK));
    assert!(!result.ended.complete && result.ended.because.as_deref() == Some("interrupted by the user"));
    assert_eq!(result.sizes[0].throughput_pps.unknown_because.as_deref(), Some("not measured"));
    assert!(result.sizes[0].tester_ceiling_pps.value.is_none());
}

#[test]
fn mlrsearch_runs_on_the_same_device() {
    let plan = MlrPlan {
        sizes: vec![Sizes::one(FrameSize::SMALLEST)],
        goals: Preset::Csit.goals(),
        min_pps: 10,
        max_pps: None,
        line_bits_per_s: None,
        warm_up: Nanos::from_secs(1),
        longest: Nanos::from_secs(10_000),
        effort: Effort::FULL,
    };
    let result = run_mlr(&mut Simulated::new(6), &plan, &mut |_| {});
    let size = &result.sizes[0];
    assert!(result.ended.complete && size.goals.iter().all(|goal| goal.reached));
    for goal in &size.goals {
        let capacity = 1_000.0 / (1.0 - f64::from(goal.loss_ratio_ppm) / 1e6);
        assert!(goal.lower_pps.value.unwrap() <= capacity * 1.01 && goal.upper_pps.value.unwrap() >= capacity * 0.99);
        assert!(goal.latency.value.is_some());
    }
    let mut device = Simulated { stops_at: Some(20), ..Simulated::new(6) };
    let result = run_mlr(&mut device, &plan, &mut |_| {});
    assert!(!result.ended.complete && !result.sizes[0].goals.is_empty() && !result.sizes[0].goals[0].reached);
    assert!(mlr_table(&result).join("\n").contains("INCOMPLETE"));
}

/// The tester counted a burst that it had not sent completely as a failure of the device.
#[test]
fn bursts_that_the_tester_did_not_send_are_not_blamed_on_the_device() {
    // The buffer holds 12 frames, and one is in service. At twice the capacity, half of a burst is in it: 25 frames.
    let burst = |tamper, each| {
        let mut device = Simulated { buffer: 12, each, tamper, ..Simulated::new(7) };
        let result = measure(&mut device, &plan(&[Test::BackToBack], Effort::QUICK));
        let found = result.sizes[0].back_to_back.value.clone().unwrap();
        let text = rfc2544_table(&result).join("\n");
        let bound = found.is_lower_bound();
        (found.frames.values, found.tester_limited, bound, text.contains("back to back at least"))
    };
    assert_eq!(burst(Tamper::No, 1), (vec![25.0; 3], 0, false, false));
    // The tester skips every 40th frame. Shorter bursts show the limit of the device all the same.
    assert_eq!(burst(Tamper::Skip, 40), (vec![25.0; 3], 0, false, false));
    assert_eq!(burst(Tamper::Skip, 20), (vec![19.0; 3], 3, true, true));
    // A burst that is repeated arrives in the end.
    assert_eq!(burst(Tamper::SkipSometimes, 20), (vec![25.0; 3], 0, false, false));
}

/// The tester of each test below stalls for 15 ms, and then sends the overdue frames in one burst.
fn stalling(every_s: u64, device: &Simulated) -> Simulated {
    Simulated { stalls: Some((Nanos::from_secs(every_s), Nanos::from_millis(15))), ..device.clone() }
}

/// A burst of overdue frames overflowed a small ring, and the search went on below a rate that the device forwards.
#[test]
fn losses_in_bursts_of_overdue_frames_are_not_blamed_on_the_device() {
    let plan = plan(&[Test::Loss, Test::Latency], Effort { searches: 3, streams: 3, ..Effort::FULL });
    let of = |device: &Simulated| run(&mut device.clone(), &plan, &mut |_| {}).sizes.swap_remove(0);
    let rates = |size: &SizeResult| size.throughput_pps.value.clone().unwrap().values;
    let told = |size: &SizeResult, word: &str| size.warnings.iter().any(|warning| warning.contains(word));
    let losing =
        |size: &SizeResult| size.loss.value.clone().unwrap().iter().map(|row| row.lost > 0).collect::<Vec<_>>();

    // A stall every 251 s meets some trials and streams, but never two in a row.
    let small = Simulated::new(9);
    let (calm, stalled) = (of(&small), of(&stalling(251, &small)));
    close("throughput", rates(&calm)[0], 1_000.0);
    assert_eq!((rates(&stalled), stalled.at_least, losing(&stalled)), (rates(&calm), false, losing(&calm)));
    let disturbed = stalled.trials.iter().filter(|trial| trial.disturbed).count() as u64;
    let tester = &stalled.tester;
    assert!(disturbed > 0 && [tester.disturbed_trials, tester.repeated_trials] == [disturbed; 2], "{tester:?}");
    assert!(told(&stalled, "trials were repeated") && !told(&stalled, "say nothing"), "{:?}", stalled.warnings);
    assert!((calm.tester.disturbed_trials, calm.warnings.len()) == (0, 0), "{:?}", calm.warnings);
    assert_eq!(stalled.latency.value.unwrap().lost, 0);

    // A device that forwards the bursts has passed a harder test.
    let large = stalling(61, &Simulated { buffer: 20, ..Simulated::new(9) });
    close("throughput of a large ring", rates(&of(&large))[0], 1_000.0);
    assert_eq!(of(&large).tester.disturbed_trials, 0);

    // If each attempt is disturbed, the tester is the limit.
    let always = of(&stalling(5, &small));
    assert!(rates(&always)[0] < 900.0 && always.at_least && told(&always, "trials say nothing"), "{always:?}");
}

/// Too high a rate is too high, whatever the tester does.
#[test]
fn a_device_that_loses_frames_is_found_out_although_the_tester_stalls() {
    let plan = plan(&[Test::Throughput], Effort::FULL);
    // The second device loses one frame in 3,000 at each rate, so only trials with fewer frames pass: 49 pps.
    let lossy = Simulated { each: 3_000, tamper: Tamper::Corrupt, ..Simulated::new(10) };
    for (device, expected) in [(Simulated::new(10), 1_000.0), (lossy, 49.0)] {
        for every_s in [251, 31] {
            let of = |device: &Simulated| measure(&mut device.clone(), &plan).sizes.swap_remove(0);
            let (calm, stalled) = (of(&device), of(&stalling(every_s, &device)));
            let rate = |size: &SizeResult| size.throughput_pps.value.as_ref().unwrap().median;
            close("throughput", rate(&calm), expected);
            assert!(rate(&stalled) <= rate(&calm), "{every_s}: {stalled:?}");
            assert!(every_s == 31 || (rate(&stalled), stalled.at_least) == (rate(&calm), false), "{stalled:?}");
        }
    }
    // A stall in each trial does not hide that the device loses half of the frames.
    let full = measure(&mut stalling(5, &Simulated::new(10)), &plan).sizes.swap_remove(0);
    assert!(!full.trials[0].disturbed && full.trials[0].load_pps == 2_000, "{full:?}");
    assert_ne!(full.trials[1].load_pps, 2_000, "it was repeated");
}

#[test]
fn mlrsearch_and_soak_tell_of_disturbed_trials() {
    let small = Simulated::new(11);
    let plan = MlrPlan {
        sizes: vec![Sizes::one(FrameSize::SMALLEST)],
        goals: Preset::Rfc2544.goals(),
        min_pps: 10,
        max_pps: None,
        line_bits_per_s: None,
        warm_up: Nanos::from_secs(1),
        longest: Nanos::from_secs(10_000),
        effort: Effort::FULL,
    };
    let of = |device: &Simulated| run_mlr(&mut device.clone(), &plan, &mut |_| {}).sizes.swap_remove(0);
    let (calm, stalled) = (of(&small), of(&stalling(97, &small)));
    let bounds = |size: &MlrSize| (size.goals[0].lower_pps.value, size.goals[0].upper_pps.value);
    assert_eq!(bounds(&stalled), bounds(&calm));
    assert!(stalled.tester.repeated_trials > 0 && stalled.warnings[0].contains("trials were repeated"), "{stalled:?}");

    let sizes = Sizes::one(FrameSize::SMALLEST);
    let plan = SoakPlan { sizes, load_pps: 900, duration: Nanos::from_secs(200), window: Nanos::from_secs(10) };
    let soak = run_soak(&mut stalling(97, &small), &plan, &mut |_| {});
    assert_eq!((soak.windows.len(), soak.tester.disturbed_trials, soak.tester.repeated_trials), (20, 2, 0));
    assert!(soak.warnings[0].starts_with("2 windows say nothing about the device, which lost frames"), "{soak:?}");
}

/// A device that forwards nothing until a search has ended at the lowest rate.
struct Asleep(Simulated, u32);

impl Measurer for Asleep {
    fn trial(&mut self, offer: &Offer) -> Result<Observed, crate::Error> {
        let mut seen = self.0.trial(offer)?;
        if self.1 > 0 {
            seen.outcome.lost = seen.outcome.sent;
            self.1 -= u32::from(offer.phases[0].rate_pps == 10);
        }
        Ok(seen)
    }
    fn ceiling(&mut self, sizes: &Sizes, span: Nanos) -> Result<u64, crate::Error> {
        self.0.ceiling(sizes, span)
    }
    fn wait(&mut self, span: Nanos) {
        self.0.wait(span);
    }
    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

/// Only the searches that found a rate were counted, and nothing told of the others.
#[test]
fn a_search_without_a_rate_counts_as_0() {
    let effort = Effort { searches: 3, ..Effort::QUICK };
    let of = |searches: u32| {
        let mut device = Asleep(Simulated::new(8), searches * effort.failures_needed);
        run(&mut device, &plan(&[Test::Throughput, Test::Loss], effort), &mut |_| {}).sizes.swap_remove(0)
    };
    let [one, two, all] = [1, 2, 3].map(of);
    let values = |size: &SizeResult| size.throughput_pps.value.as_ref().map(|found| found.values.clone());
    assert!(matches!(values(&one).unwrap()[..], [0.0, a, b] if a > 900.0 && b > 900.0), "{one:?}");
    assert!(one.warnings.iter().any(|said| said.contains("1 of the 3 throughput searches count as 0")), "{one:?}");
    assert!(one.loss.value.is_some());
    assert!(matches!(values(&two).unwrap()[..], [0.0, 0.0, a] if a > 900.0), "{two:?}");
    assert!(two.loss.unknown_because.unwrap().contains("at least half"));
    assert!(values(&all).is_none() && all.throughput_pps.unknown_because.unwrap().contains("no rate passed"));
    // The tester sends nothing at any rate.
    let mut device = Simulated { each: 1, tamper: Tamper::Skip, ..Simulated::new(8) };
    let size = measure(&mut device, &plan(&[Test::Throughput], effort)).sizes.swap_remove(0);
    assert!(size.throughput_pps.unknown_because.unwrap().contains("the tester could not send"));
    assert!(size.warnings.iter().any(|said| said.contains("3 of the 3 throughput searches are left out")));
}

#[test]
fn two_results_are_compared_by_their_repetitions() {
    let effort = Effort { searches: 5, streams: 6, stream: Nanos::from_secs(20), ..Effort::QUICK };
    let plan = plan(&[Test::Latency], effort);
    let of = |spread, seed| {
        document(measure(&mut Simulated { spread: Nanos::from_micros(spread), ..Simulated::new(seed) }, &plan))
    };
    let (native, guest, again) = (of(5, 1), of(8, 2), of(5, 3));
    let found = compare(("native", &native), ("guest", &guest));
    let mean = found.comparisons.iter().find(|one| one.quantity == Name::of(&Compared::MeanLatency)).unwrap();
    assert_eq!(mean.significant.value, Some(true), "{mean:?}");
    close("ratio", mean.ratio.unwrap(), 18.0 / 15.0);
    let found = compare(("native", &native), ("again", &again));
    assert!(found.comparisons.iter().all(|one| one.significant.value == Some(false)), "{found:?}");
    let text = compare_table(&found).join("\n");
    assert!(text.contains("mean_latency_ns") && text.contains("native") && !text.contains("Some("), "{text}");
    // A single search is too few to decide about significance.
    let one = document(measure(&mut Simulated::new(1), &self::plan(&[Test::Throughput], Effort::QUICK)));
    let found = compare(("a", &one), ("b", &one));
    let why = found.comparisons[0].significant.unknown_because.clone().unwrap();
    assert_eq!(why, "too few repetitions for 1 comparison: each side needs at least 4 (--searches)");

    let html = crate::report::render(&report("Two devices", &[("native".into(), native), ("guest".into(), guest)]));
    for word in ["Throughput against frame size", "theoretical line rate", "not RFC 2544", "guest"] {
        assert!(html.contains(word), "{word}");
    }
}

/// `>= 2000` against `>= 2000` was "no significant difference", and a median of 0 gave a ratio that JSON has no word for.
#[test]
fn bounds_are_no_values() {
    let effort = Effort { searches: 6, streams: 6, stream: Nanos::from_secs(20), ..Effort::QUICK };
    let of = |capacity_pps| {
        document(measure(&mut Simulated { capacity_pps, ..Simulated::new(1) }, &plan(&[Test::Latency], effort)))
    };
    let (bound, value) = (of(5_000), of(1_000));
    for (a, b, at_least) in
        [(&bound, &value, [true, false]), (&value, &bound, [false, true]), (&bound, &bound, [true, true])]
    {
        let found = compare(("a", a), ("b", b));
        let rate = &found.comparisons[0];
        assert_eq!([rate.a_at_least, rate.b_at_least], at_least);
        assert!(rate.ratio.is_none() && rate.ratio_ci95_low.is_none() && rate.p.value.is_none(), "{rate:?}");
        assert!(rate.significant.unknown_because.as_ref().unwrap().contains("lower bound"), "{rate:?}");
        assert!(found.comparisons[1].significant.value.is_some(), "a latency is a value: {found:?}");
        let text = compare_table(&found).join("\n");
        assert!(text.contains(">=2000") && text.contains("unknown: a value marked >="), "{text}");
        let differs = found.conditions.iter().any(|said| said.starts_with("rate of the latency test at 64: "));
        assert_eq!(differs, at_least != [true, true], "{:?}", found.conditions);
    }
    let html =
        crate::report::render(&report("Bounds", &[("bound".into(), bound.clone()), ("value".into(), value.clone())]));
    assert!(html.contains("&gt;= 2.0"), "the table of the report");
    let mut still = value.clone();
    still.result.sizes[0].throughput_pps = crate::host::Reading::known(Repeated::of(&[0.0; 6]).unwrap());
    let found = compare(("still", &still), ("value", &value));
    assert_eq!((found.comparisons[0].ratio, found.comparisons[0].significant.value), (None, Some(true)));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<CompareDocument>(&json).unwrap(), found);
}

/// With the four repetitions that the documentation advised, no difference was ever significant.
#[test]
fn too_few_repetitions_for_the_number_of_comparisons_are_told() {
    let of = |repetitions, spread| {
        let effort =
            Effort { searches: repetitions, streams: repetitions, stream: Nanos::from_secs(20), ..Effort::QUICK };
        document(measure(
            &mut Simulated { spread: Nanos::from_micros(spread), ..Simulated::new(spread) },
            &plan(&[Test::Latency], effort),
        ))
    };
    // Four comparisons: 4 * 2 / "8 choose 4" is 0.11, and 4 * 2 / "10 choose 5" is 0.03.
    let found = compare(("a", &of(4, 5)), ("b", &of(4, 50)));
    assert_eq!(found.comparisons.len(), 4);
    for one in &found.comparisons {
        let why = one.significant.unknown_because.as_ref().unwrap();
        assert!(why.starts_with("too few repetitions for 4 comparisons: each side needs at least 5 (--s"), "{why}");
        assert!(one.p.value.unwrap() > 0.1);
    }
    let text = compare_table(&found).join("\n");
    assert!(text.contains("(--searches)") && text.contains("(--streams)"), "{text}");
    let found = compare(("a", &of(5, 5)), ("b", &of(5, 50)));
    let latencies = &found.comparisons[1..];
    assert!(latencies.iter().all(|one| one.significant.value == Some(true)), "{found:?}");
    // The throughput, with too few repetitions for itself alone, takes nothing from the latencies.
    let (mut a, mut b) = (of(5, 5), of(5, 50));
    for document in [&mut a, &mut b] {
        document.result.sizes[0].throughput_pps = crate::host::Reading::known(Repeated::of(&[1_000.0]).unwrap());
    }
    let found = compare(("a", &a), ("b", &b));
    assert!(found.comparisons[0].significant.unknown_because.is_some());
    assert!(found.comparisons[1..].iter().all(|one| one.significant.value == Some(true)), "{found:?}");
}
