use std::sync::Arc;

use policy::Goal;
use units::{Microwatts, Nanos, Quantile};

use super::*;

const BOUND: Nanos = Nanos::from_micros(50);
const GOAL: Goal = Goal { quantile: Quantile::P99_9, latency: BOUND };

fn run(late: u64, milliwatts: u64) -> Measured {
    Measured {
        offered: 10_000,
        packets: 10_000,
        lost: 0,
        late: vec![(BOUND, late)],
        overdue: vec![(BOUND, 0)],
        latency: vec![(GOAL.quantile, Some(BOUND))],
        power: Microwatts::new(milliwatts * 1_000),
        busy_ppm: 0,
        wakeups: 0,
        frequency_changes: 0,
        reasons: Default::default(),
        waits: Default::default(),
        polling: Spent::NONE,
        awake: Spent::NONE,
        idle: Spent::NONE,
    }
}

fn tried(way: &str, runs: &[Measured]) -> Tried {
    let way = if way == "adaptive" { Way::OURS } else { way.parse().unwrap() };
    Tried { way, runs: runs.to_vec() }
}

fn case(ours: &[Measured], others: &[Tried]) -> Case {
    let mut settings = Grid::Classic.plan().settings().unwrap();
    Case {
        setting: Arc::new(settings.remove(0)),
        goal: GOAL,
        peak: None,
        others: Arc::new(others.to_vec()),
        ours: tried("adaptive", ours),
        first_second: None,
        bound: None,
        ring: Nanos::from_micros(68),
    }
}

#[test]
fn verdicts_on_power() {
    let poll = |milliwatts| tried("poll", &[run(0, milliwatts)]);
    let tuned = |milliwatts| tried("poll@800MHz", &[run(0, milliwatts)]);
    for (others, verdict) in [
        (vec![poll(1_020)], Verdict::Won),
        (vec![poll(1_020), tuned(1_020)], Verdict::Won),
        (vec![poll(1_005)], Verdict::Tied),
        (vec![poll(995)], Verdict::Tied),
        (vec![poll(1_020), tuned(960)], Verdict::Tied),
        (vec![poll(1_020), tuned(940)], Verdict::LostToTuned),
        (vec![poll(980)], Verdict::Lost),
        (vec![poll(980), tuned(500)], Verdict::Lost),
        (vec![], Verdict::Won),
        // A way that does not hold the goal is not a rival.
        (vec![tried("interrupt", &[run(11, 100)]), poll(2_000)], Verdict::Won),
    ] {
        let case = case(&[run(10, 1_000)], &others);
        assert_eq!(case.verdict(), verdict, "{others:?}");
        assert_eq!(case.rival().is_none(), others.is_empty());
    }
    let lost = case(&[run(0, 1_000)], &[poll(980), tuned(500), tried("interrupt", &[run(0, 700)])]);
    assert_eq!(lost.rival().unwrap().way.to_string(), "interrupt", "the cheapest of those at their own settings");
    assert!((lost.ratio(lost.rival().unwrap()) - 1.0 / 0.7).abs() < 1e-9);
}

#[test]
fn a_lost_case_says_why() {
    let ms = Nanos::from_millis;
    let spent = |time, milliwatts: u64| Spent { time, power: Microwatts::new(milliwatts * 1_000) };
    let run = |late, polling, awake, idle: Spent| {
        let power: Spent = [polling, awake, idle].into_iter().fold(Spent::NONE, |sum, part: Spent| Spent {
            power: Microwatts::new(sum.power.as_microwatts() + part.power.as_microwatts()),
            ..sum
        });
        Measured { polling, awake, idle, ..run(late, power.power.as_microwatts() / 1_000) }
    };
    let none = Spent::NONE;
    let rival = || run(0, none, spent(ms(100), 200), spent(ms(900), 100));
    let because = |ours: Measured, way: &str, rival: Measured| case(&[ours], &[tried(way, &[rival])]).because();
    for (ours, why) in [
        (run(0, spent(ms(300), 700), spent(ms(100), 200), spent(ms(600), 70)), Because::Polling),
        (run(0, none, spent(ms(300), 600), spent(ms(700), 80)), Because::Awake),
        (run(0, none, spent(ms(90), 500), spent(ms(910), 110)), Because::Frequency),
        (run(0, none, spent(ms(100), 200), spent(ms(900), 400)), Because::Idle),
    ] {
        assert_eq!(because(ours, "interrupt@1GHz", rival()), Some(why));
    }
    let dear = || run(0, spent(ms(300), 700), none, none);
    // The goal is 50 us and allows 10 late packets in 10,000; Apus aims at 7.5.
    assert_eq!(because(dear(), "interrupt", Measured { late: vec![(BOUND, 8)], ..rival() }), Some(Because::Lateness));
    assert_eq!(because(dear(), "interrupt", Measured { late: vec![(BOUND, 7)], ..rival() }), Some(Because::Polling));
    assert_eq!(because(dear(), "backoff=69us", rival()), Some(Because::Ring));
    assert_eq!(because(dear(), "backoff=68us", rival()), Some(Because::Polling));
    // A case that Apus wins, or in which it misses the goal, has no such reason.
    assert_eq!(because(rival(), "poll", dear()), None);
    assert_eq!(because(Measured { late: vec![(BOUND, 11)], ..dear() }, "poll", rival()), None);
}

#[test]
fn verdicts_on_lateness() {
    let poll = tried("poll", &[run(0, 900)]);
    let lossy = Measured { lost: 1, ..run(1, 100) };
    for (ours, others, verdict) in [
        (run(11, 100), vec![poll.clone()], Verdict::Missed),
        (run(11, 100), vec![tried("poll@800MHz", &[run(10, 900)])], Verdict::Missed),
        (run(11, 100), vec![tried("poll", &[run(11, 900)])], Verdict::Nobody),
        (run(11, 100), vec![], Verdict::Nobody),
        (lossy.clone(), vec![poll.clone()], Verdict::Missed),
        (run(10, 800), vec![poll, tried("interrupt", &[lossy])], Verdict::Won),
    ] {
        assert_eq!(case(&[ours], &others).verdict(), verdict);
    }
    let few = Measured { packets: 3_687, ..run(0, 1) };
    assert_eq!(case(std::slice::from_ref(&few), &[tried("poll", &[run(0, 900)])]).verdict(), Verdict::TooFew);
    assert_ne!(case(&[few.clone(), few], &[]).verdict(), Verdict::TooFew, "seeds count together");
}

#[test]
fn the_interval_over_seeds_is_for_ours_and_not_for_rivals() {
    let poll = || tried("poll", &[0; 5].map(|late| run(late, 2_000)));
    // Five seeds with 11 late packets on average, where 10 are allowed: by chance, or with every seed.
    let by_chance = [5, 18, 9, 16, 7].map(|late| run(late, 1_000));
    let always = [11; 5].map(|late| run(late, 1_000));
    let lucky = case(&by_chance, &[poll()]);
    assert_eq!(
        (lucky.ours.held(GOAL), lucky.verdict(), lucky.is_marginal()),
        (Held::WithinInterval, Verdict::Won, true)
    );
    assert_eq!(case(&always, &[poll()]).verdict(), Verdict::Missed);
    let cheap = tried("interrupt", &by_chance.clone().map(|run| Measured { power: Microwatts::new(1), ..run }));
    assert_eq!(
        case(&[0; 5].map(|late| run(late, 1_000)), &[poll(), cheap]).verdict(),
        Verdict::Won,
        "a rival must hold it"
    );
    // t(4) = 2.776, s = 5.70 late packets in 10,000.
    let (low, high) = lucky.ours.late_interval(BOUND).unwrap();
    assert!((low - 0.000_392).abs() < 2e-6 && (high - 0.001_808).abs() < 2e-6, "{low} {high}");
    assert_eq!(tried("poll", &[run(3, 1)]).late_interval(BOUND), None);
}

#[test]
fn powers_are_compared_over_the_seeds_that_both_have() {
    let ours = [1_000, 3_000].map(|milliwatts| run(0, milliwatts));
    let ruled_out = case(&ours, &[tried("poll", &[run(0, 1_500)])]);
    assert_eq!(ruled_out.verdict(), Verdict::Won);
    let both = case(&ours, &[tried("poll", &[run(0, 1_500), run(0, 1_500)])]);
    assert_eq!(both.verdict(), Verdict::Lost);
    assert!((both.ratio(both.rival().unwrap()) - 4.0 / 3.0).abs() < 1e-9);
}

#[test]
fn the_bound_and_the_first_second() {
    let mut case = case(&[run(0, 1_500)], &[]);
    assert_eq!((case.bound_multiple(), case.first_second_multiples()), (None, vec![]));
    case.bound = Some(Microwatts::new(1_000_000));
    case.first_second = Some(tried("adaptive", &[run(5, 1), run(30, 1), Measured { packets: 0, ..run(0, 1) }]));
    assert_eq!((case.bound_multiple(), case.first_second_multiples()), (Some(1.5), vec![0.5, 3.0]));
    assert_eq!(quartiles(&[3.0, 1.0, 2.0, 5.0, 4.0]), Some([1.0, 2.0, 3.0, 4.0, 5.0]));
    case.ours = tried("adaptive", &[run(11, 500)]);
    assert_eq!(case.bound_multiple(), None, "below the least possible power by missing the goal");
    assert_eq!((quartiles(&[]), quartiles(&[7.0])), (None, Some([7.0; 5])));
    assert_eq!(quartiles(&[2.0, 1.0]), Some([1.0, 1.25, 1.5, 1.75, 2.0]), "the median of two is their mean");
}

#[test]
fn only_a_rival_that_no_seed_can_save_is_dropped() {
    let ours = |powers: [u64; 5]| tried("adaptive", &powers.map(|milliwatts| run(0, milliwatts)));
    let even = ours([1_000; 5]);
    let packets = |packets, run: Measured| Measured { offered: packets, packets, ..run };
    // 10,000 packets with each of five seeds allow 50 late ones, wherever they are.
    let burst = packets(1_000, run(40, 900));
    assert!(setting::matters(GOAL, &even, Way::L3FWD_POWER, &burst, false), "40 times the allowed share of one seed");
    assert!(!setting::matters(GOAL, &even, Way::L3FWD_POWER, &run(51, 900), false));
    assert!(setting::matters(GOAL, &even, Way::L3FWD_POWER, &run(51, 900), true), "others may have more packets");
    assert!(!setting::matters(GOAL, &even, Way::L3FWD_POWER, &Measured { lost: 1, ..run(1, 900) }, true));
    let poll: Way = "poll".parse().unwrap();
    assert!(!setting::matters(GOAL, &even, poll, &run(0, 1_200), false), "a fifth dearer");
    assert!(setting::matters(GOAL, &even, Way::L3FWD_POWER, &run(0, 1_200), false), "cheaper at another frequency");
    assert!(setting::matters(GOAL, &ours([1_000, 3_000, 3_000, 3_000, 3_000]), poll, &run(0, 1_200), false));
    assert!(
        setting::matters(GOAL, &ours([3_000, 500, 500, 500, 500]), poll, &run(0, 1_200), false),
        "lost in the first"
    );
    assert!(setting::matters(GOAL, &even, poll, &packets(20_000, run(0, 1_200)), false), "many packets at first");
    let misses = tried("adaptive", &[11; 5].map(|late| run(late, 1_000)));
    assert!(setting::matters(GOAL, &misses, poll, &run(0, 9_000), false), "ours misses: power does not count");
}

fn cases(settings: &[Setting]) -> usize {
    settings.iter().map(|setting| setting.goals.len()).sum()
}

#[test]
fn grids_have_their_sizes() {
    assert_eq!(cases(&Grid::Classic.plan().settings().unwrap()), 48);
    assert_eq!(cases(&Grid::Quick.plan().settings().unwrap()), 2 * 4 * 3 * 3);
    let full = Grid::Full.plan().settings().unwrap();
    // Machines, traffic, loads with C1 and with C6, quantiles, bounds, with and without a peak.
    assert_eq!(cases(&full), 4 * 7 * (7 + 4) * 3 * 5 * 2);
    // At 0.01 % load, p99.99 needs more packets than arrive in 10 s. The measured time depends on the quantile, so each
    // quantile has its own setting.
    let alike = |s: &&Setting| s.machine.contains("6338n") && s.pattern == Pattern::Poisson && s.deepest == "C1";
    let least: Vec<Nanos> = full.iter().filter(alike).filter(|s| s.load_ppm == Some(100)).map(|s| s.duration).collect();
    assert_eq!(least.len(), 3);
    assert_eq!(*least.iter().max().unwrap(), Nanos::from_secs(10));
    let tuned = |load| {
        let one = full.iter().filter(alike).find(|s| s.load_ppm == Some(load)).unwrap();
        one.rivals.iter().filter(|way| way.is_tuned()).map(Way::to_string).collect::<Vec<_>>()
    };
    // Three frequencies for each of poll, five maxima of backoff, and interrupt. At 50 % load the lowest frequency is
    // too slow, and at 90 % all are.
    assert_eq!(
        (tuned(10_000).len(), tuned(500_000).len(), tuned(900_000).len()),
        (3 * 7, 2 * 7, 0),
        "{:?}",
        tuned(500_000)
    );
    let most = full.iter().filter(alike).filter(|s| s.load_ppm == Some(900_000));
    assert_eq!(most.map(|s| (s.duration, s.goals.len())).collect::<Vec<_>>(), [(Nanos::from_millis(500), 30)]);
}

#[test]
fn a_sample_is_of_the_grid_and_repeats_itself() {
    let plan = |seed| Plan { sample: Some((200, seed)), ..Grid::Full.plan() };
    let [first, again, other] = [7, 7, 8].map(|seed| plan(seed).settings().unwrap());
    assert_eq!((cases(&first), &first), (200, &again));
    assert_ne!(first, other);
    let machines: std::collections::BTreeSet<&str> = first.iter().map(|setting| setting.machine.as_str()).collect();
    assert_eq!(machines.len(), 4);
    let all = Plan { sample: Some((1_000_000, 1)), ..Grid::Classic.plan() };
    assert_eq!(all.settings().unwrap(), Grid::Classic.plan().settings().unwrap());
}

#[test]
fn an_empty_grid_and_unknown_machines_are_errors() {
    let none = Plan { idle: vec![Idle { deepest: "C10".into(), up_to_ppm: 1_000_000 }], ..Grid::Quick.plan() };
    assert_eq!(none.settings().unwrap_err(), PlanError::Empty);
    let unknown = Plan { machines: vec![("xeon".into(), "x540".into())], ..Grid::Quick.plan() };
    assert!(unknown.settings().unwrap_err().to_string().contains("xeon-e5-2699v3"));
    // Refused before anything is simulated.
    let rivals = vec!["poll@850MHz".parse().unwrap()];
    let error = Plan { rivals, ..Grid::Quick.plan() }.settings().unwrap_err().to_string();
    assert!(error.contains("poll@850MHz") && error.contains("xeon-platinum-8260l runs at 1000 MHz"), "{error}");
    let own = Machine::text("xeon-gold-6338n").unwrap().as_bytes().into();
    let files = Files::from([("own.toml".into(), own)]);
    let plan = Plan { machines: vec![("own.toml".into(), "82599".into())], files, ..Grid::Quick.plan() };
    assert_eq!(cases(&plan.settings().unwrap()), 36);
}

use crate::machine::Machine;

/// A short plan of one setting.
fn short(goals: &[Goal], rivals: &[&str]) -> Plan {
    Plan {
        machines: vec![("xeon-gold-6338n".into(), "82599".into())],
        traffic: vec![Pattern::Poisson],
        loads_ppm: vec![10_000],
        goals: goals.to_vec(),
        rivals: rivals.iter().map(|way| way.parse().unwrap()).collect(),
        frequencies: 0,
        seeds: 2,
        warm_up: Nanos::from_millis(20),
        duration: (Nanos::from_millis(60), Nanos::from_millis(60)),
        holds_off: false,
        limits_idle: true,
        first_second: false,
        ..Grid::Quick.plan()
    }
}

#[test]
fn a_setting_is_simulated_and_hopeless_rivals_but_once() {
    let goals = [GOAL, Goal { latency: Nanos::from_micros(100), ..GOAL }];
    let plan = short(&goals, &["poll", "backoff=5ms", "interrupt", "poll@800MHz"]);
    let settings = plan.settings().unwrap();
    assert_eq!(settings.len(), 1);
    let setting = Arc::new(settings[0].clone());
    let bound: Bound = |scenario, seeds| {
        assert_eq!(seeds, [1, 2], "one bound for all seeds");
        Some(Microwatts::new(scenario.goal.unwrap().latency.latency.as_micros_floor() + 50))
    };
    let cases = setting.judge(&plan.files, Some(bound)).unwrap();
    assert_eq!(cases.iter().map(|case| case.goal).collect::<Vec<_>>(), goals);
    assert_eq!(cases[1].bound, Some(Microwatts::new(150)));
    let case = &cases[0];
    assert_eq!(case.ours.runs.len(), 2);
    let seeds: Vec<(String, usize)> = case.others.iter().map(|o| (o.way.to_string(), o.runs.len())).collect();
    assert_eq!(seeds[1], ("backoff 5ms".to_owned(), 1), "late nearly always");
    // All ways receive the same frames; another seed gives different frames.
    assert!(case.others.iter().all(|other| other.runs[0].offered == case.ours.runs[0].offered), "{case:?}");
    assert_ne!(case.ours.runs[0].offered, case.ours.runs[1].offered);
    // The number of late packets agrees with the delay at the quantile.
    for run in case.others.iter().flat_map(|other| &other.runs).chain(&case.ours.runs) {
        let latency = run.latency[0].1.unwrap();
        assert_eq!(latency <= BOUND, run.late(BOUND) * 1_000 <= run.packets, "{run:?}");
    }
}

#[test]
fn l3fwd_power_is_measured_at_the_lowest_frequency() {
    for grid in Grid::ALL {
        let plan = grid.plan();
        assert!(plan.settling().unwrap() <= plan.warm_up, "{grid:?}: {}", plan.settling().unwrap());
    }
    let step = |text: &str| text.replace("step = { value = \"100MHz\"", "step = { value = \"25MHz\"");
    let files = Files::from([("own.toml".into(), step(Machine::text("xeon-gold-6338n").unwrap()).as_bytes().into())]);
    let own = Plan { machines: vec![("own.toml".into(), "82599".into())], files, ..Grid::Quick.plan() };
    assert_eq!(own.settling(), Ok(Nanos::from_millis(110) * 56));
    assert_eq!(Plan { rivals: vec!["poll".parse().unwrap()], ..own }.settling(), Ok(Nanos::ZERO));
    // Each grid's warm-up, with the machine that takes longest.
    let plan = Plan {
        machines: vec![("xeon-platinum-8360y".into(), "xl710".into())],
        traffic: vec![Pattern::Constant],
        loads_ppm: vec![100],
        seeds: 1,
        warm_up: Grid::Full.plan().warm_up.min(Grid::Quick.plan().warm_up),
        ..short(&[GOAL], &["l3fwd-power"])
    };
    let cases = Arc::new(plan.settings().unwrap()[0].clone()).judge(&plan.files, None).unwrap();
    assert_eq!(cases[0].others[0].runs[0].frequency_changes, 0);
}

/// The NIC delays interrupts by 40 us: the first packet of each interrupt waits for that long.
#[test]
fn a_rival_may_have_its_interrupts_delayed() {
    let plan = short(&[GOAL], &["interrupt", "interrupt=40us"]);
    let cases = Arc::new(plan.settings().unwrap()[0].clone()).judge(&plan.files, None).unwrap();
    let [at_once, delayed] = [0, 1].map(|index| &cases[0].others[index]);
    assert_eq!(delayed.way.to_string(), "interrupt 40us");
    let latency = |tried: &Tried| tried.latency(Quantile::P99_9).unwrap();
    assert!(latency(at_once) < Nanos::from_micros(20), "{at_once:?}");
    assert!(latency(delayed) > Nanos::from_micros(40) && delayed.power(2) < at_once.power(2) * 0.9, "{delayed:?}");
    let because = |delay: &str| {
        let dear = Measured { polling: Spent { time: BOUND, power: Microwatts::new(1_000_000) }, ..run(0, 1_000) };
        case(&[dear], &[tried(delay, &[run(0, 700)])]).because()
    };
    assert_eq!((because("interrupt=69us"), because("interrupt=68us")), (Some(Because::Ring), Some(Because::Polling)));
}

#[test]
fn traffic_and_machines_from_files() {
    let files = Files::from([
        ("mine.csv".to_owned(), Arc::from(&b"time_ns,octets\n0,64\n10000,64\n30000,64\n"[..])),
        ("mine.toml".to_owned(), Arc::from(&b"[[traffic]]\nkind = \"constant\"\nrate = \"100kpps\"\n"[..])),
    ]);
    let traffic = ["mine.csv", "mine.toml"].map(|name| name.parse().unwrap()).to_vec();
    let told = Plan { traffic, files, seeds: 1, ..short(&[GOAL], &["poll"]) };
    assert_eq!(told.settings().unwrap_err(), PlanError::Empty, "a file's peak is not known");
    let plan = Plan { peaks: vec![Peak::Told, Peak::Untold, Peak::Is(units::PacketRate::new(200_000))], ..told };
    let settings = plan.settings().unwrap();
    assert_eq!((settings.len(), cases(&settings), settings[0].load_ppm), (2, 4, None));
    let offered = settings.iter().map(|setting| {
        let cases = Arc::new(setting.clone()).judge(&plan.files, None).unwrap();
        cases[0].ours.runs[0].offered
    });
    // Three frames in 45 us are 66,667 a second; the other file has 100,000 a second.
    assert_eq!(offered.collect::<Vec<_>>(), [4_000, 6_000]);
}

#[test]
fn kept_scenarios_are_whole() {
    let plan = Plan { traffic: vec![Pattern::Replay], ..short(&[GOAL], &["poll"]) };
    let kept = plan.settings().unwrap()[0].scenarios();
    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "xeon-gold-6338n+82599-replay-1-C1-60ms-poll.toml",
            "xeon-gold-6338n+82599-replay-1-C1-60ms-adaptive-p99.9=50us.toml",
            "pareto-148809pps.csv"
        ]
    );
    assert!(kept[1].1.contains("file = \"pareto-148809pps.csv\"") && kept[1].1.contains("peak = \"446427pps\""));
}

/// Two runs were written to one file.
#[test]
fn each_run_has_a_file_of_its_own() {
    let machines = ["82599", "x540"].map(|nic| ("xeon-gold-6338n".to_owned(), nic.to_owned())).to_vec();
    let rate = |pps| Peak::Is(units::PacketRate::new(pps));
    let peaks = vec![Peak::Told, Peak::Untold, rate(1_000_000), rate(2_000_000)];
    let plan = Plan { machines, peaks, ..short(&[GOAL], &["poll"]) };
    let kept = plan.settings().unwrap().iter().flat_map(Setting::scenarios).map(|(name, _)| name).collect::<Vec<_>>();
    let names: std::collections::BTreeSet<&String> = kept.iter().collect();
    assert_eq!((kept.len(), names.len()), (2 * (1 + 4), 2 * (1 + 4)), "{kept:?}");
}

/// A frequency that is no whole number of megahertz was rounded down, and the processor then ran a step slower.
#[test]
fn frequencies_keep_their_fractions() {
    let step = "step = { value = \"37.5MHz\"";
    let text = Machine::text("xeon-gold-6338n").unwrap().replace("step = { value = \"100MHz\"", step);
    let files = Files::from([("own.toml".into(), text.as_bytes().into())]);
    let plan = Plan {
        machines: vec![("own.toml".into(), "82599".into())],
        files,
        seeds: 1,
        ..short(&[GOAL], &["poll@862.5MHz", "poll@825MHz"])
    };
    let cases = Arc::new(plan.settings().unwrap()[0].clone()).judge(&plan.files, None).unwrap();
    let [faster, slower] = [0, 1].map(|index| cases[0].others[index].power(1));
    assert!(faster > slower * 1.02, "{faster} {slower}");
}

#[test]
fn a_wrong_time_is_told() {
    let plan = Plan { duration: (Nanos::ZERO, Nanos::ZERO), ..short(&[GOAL], &[]) };
    let error = Arc::new(plan.settings().unwrap()[0].clone()).judge(&plan.files, None).unwrap_err().to_string();
    assert!(error.contains("duration"), "{error}");
}
