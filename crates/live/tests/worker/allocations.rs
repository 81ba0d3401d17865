use live::app::drop::Drop as DropAll;
use live::app::headers::Mac;
use live::app::l2fwd::L2Fwd;
use live::app::l3fwd::L3Fwd;
use live::app::macswap::MacSwap;
use live::app::routes::Table;
use live::app::udp_echo::UdpEcho;
use live::app::{AnyApp, PortInfo};
use live::idle_limit::IdleLimit;
use live::record::{Known, Recording};
use policy::wait::{
    AdaptiveConfig, Belief, Decision, IdleState, Lateness, Mode, Observation, Policy, TimedCost, WaitPolicy, WakeCosts,
};
use policy::{Goal, LossBound};
use units::{Instant, Monotonic, Nanos, PacketRate, Quantile};

use super::scripted::{Event, Script, udp};

const OURS: [u8; 4] = [10, 0, 0, 1];
const FAR: [u8; 4] = [10, 1, 3, 3];

fn modes() -> Vec<Mode> {
    let goal = |us| Some(Goal { quantile: Quantile::P99, latency: Nanos::from_micros(us) });
    let loss = Some(LossBound { descriptors: 512, peak: PacketRate::new(1_000_000) });
    let mut modes = Mode::ALL.to_vec();
    for us in [15, 40, 250] {
        modes.push(Mode::Adaptive(AdaptiveConfig { goal: goal(us), loss, interrupts: true }));
        modes.push(Mode::Adaptive(AdaptiveConfig { goal: goal(us), loss, interrupts: false }));
    }
    modes
}

fn apps() -> Vec<(&'static str, AnyApp)> {
    let macs = [Mac::new([2, 0, 0, 0, 0, 0x10]), Mac::new([2, 0, 0, 0, 0, 0x11])];
    let ports = macs.map(|mac| PortInfo { name: format!("p{}", mac.octets()[5] - 0x10), mac });
    let routes = r#"
        [[port]]
        name = "p0"
        addresses = ["10.0.0.1/24"]
        [[route]]
        prefix = "10.1.0.0/16"
        port = "p1"
        mac = "02:00:00:00:00:21"
    "#;
    vec![
        ("drop", AnyApp::Drop(DropAll)),
        ("macswap", AnyApp::MacSwap(MacSwap)),
        ("l2fwd", AnyApp::L2Fwd(L2Fwd::rewriting(macs).finish_checksums(true))),
        ("udp-echo", AnyApp::UdpEcho(UdpEcho::new(&macs, &[OURS.into()], "any".parse().unwrap(), true))),
        ("l3fwd", AnyApp::L3Fwd(L3Fwd::new(Table::parse(routes, "routes", &ports).unwrap()))),
    ]
}

/// Traffic of all kinds for 160 ms of virtual time: periodic, then dense, with bursts, then silence; with a
/// link that fails, and a core that is stolen.
fn script() -> Script {
    let mut script = Script::new(2);
    script.late = Nanos::from_micros(6);
    script.costs = Nanos::from_nanos(6_543);
    let truncated = udp(OURS)[..20].to_vec();
    let frames = [udp(OURS), udp(FAR), udp([192, 0, 2, 1]), truncated, vec![0xff; 60]];
    let mut at = Nanos::from_micros(50);
    for number in 0..400 {
        at += if number < 100 { Nanos::from_micros(350) } else { Nanos::from_micros(20) };
        let burst = if number % 40 == 38 { 100 } else { 1 };
        for n in 0..burst {
            script.frame(at, number % 2, &frames[(number + n) % frames.len()]);
        }
    }
    script.at(Nanos::from_millis(20), Event::Stolen(Nanos::from_millis(4)));
    script.at(Nanos::from_millis(60), Event::Link { port: 1, state: live::device::memory::LinkState::Down });
    script.at(Nanos::from_millis(110), Event::Link { port: 1, state: live::device::memory::LinkState::Up });
    script.frame(Nanos::from_millis(150), 0, &frames[0]);
    script.at(Nanos::from_millis(160), Event::Stop);
    script
}

#[test]
fn the_loop_never_calls_the_allocator() {
    for mode in modes() {
        for (name, app) in apps() {
            let ended = script().run(app, mode.policy());
            // Published by those that have one.
            assert_eq!(ended.snapshot.choice.is_some(), matches!(mode, Mode::Adaptive(_)), "{mode} {name}");
            let counts = &ended.snapshot.counts;
            assert_eq!(ended.allocator_calls, 0, "{mode} {name}");
            let (received, polls) = (counts.received_frames, counts.polls);
            assert!(received == 1_391 && polls > 200, "{mode} {name}: {received} frames in {polls} polls");
        }
    }
}

/// A policy that is recorded; cloned at the end, when it is no longer counted.
#[derive(Clone)]
struct Recorded(std::rc::Rc<std::cell::RefCell<Recording<Policy<Monotonic>>>>);

impl WaitPolicy<Monotonic> for Recorded {
    fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
        self.0.borrow_mut().decide(seen)
    }

    fn belief(&self) -> Option<Belief> {
        self.0.borrow().belief()
    }

    fn limit_idle_is_due(&self, now: Instant<Monotonic>) -> bool {
        self.0.borrow().limit_idle_is_due(now)
    }

    fn limit_idle(&mut self, now: Instant<Monotonic>, in_force: Nanos) -> Nanos {
        self.0.borrow_mut().limit_idle(now, in_force)
    }
}

#[test]
fn what_a_policy_started_from_is_recorded_with_it() {
    let us = Nanos::from_micros;
    let lateness = Lateness { p50: us(60), p75: us(70), p90: us(80), p99: us(95), p999: us(99) };
    let timed = [20, 50, 100, 200, 350, 1_000, 5_000, 10_000];
    let costs = WakeCosts {
        timed: timed.map(|length| Some(TimedCost { length: us(length), lateness })),
        interrupt: Some(lateness),
    };
    let mode: Mode = "adaptive p99=100us".parse().unwrap();
    let mut policy = mode.policy();
    policy.know(&costs);
    let policy = Recorded(std::rc::Rc::new(std::cell::RefCell::new(Recording::new(policy, 1_000_000))));
    let ended = script().run(MacSwap, policy);
    assert_eq!(ended.allocator_calls, 0);
    let replayed = |costs: Option<&WakeCosts>| {
        let mut file = Vec::new();
        ended.policy.0.borrow().write(&mode.into(), &Known { costs, ..Known::default() }, &mut file).unwrap();
        live::record::replay(&file[..], "recorded").unwrap()
    };
    assert_eq!(replayed(Some(&costs)).first_difference, None);
    // Without them the policy decides otherwise: they had an effect.
    assert!(replayed(None).first_difference.is_some());
}

#[test]
fn the_limit_of_the_exit_latency_is_set_without_it_and_recorded() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pm_qos_resume_latency_us");
    std::fs::write(&path, "100\n").unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let us = Nanos::from_micros;
    let state = |exit: u64| IdleState { exit: us(exit), residency: us(3 * exit) };
    let limit = IdleLimit::new(file, &[0, 2, 20, 90, 400].map(state)).unwrap();
    let mode: Mode = "adaptive p99=40us".parse().unwrap();
    let mut policy = mode.policy();
    policy.know_idle_states(limit.states());
    let policy = Recorded(std::rc::Rc::new(std::cell::RefCell::new(Recording::new(policy, 1_000_000))));
    let mut script = script();
    script.idle_limit = Some(limit.clone());
    let ended = script.run(MacSwap, policy);
    assert_eq!((ended.allocator_calls, limit.ended()), (0, None));
    // The policy begins with states whose exit latency is far below its goal.
    assert!(limit.changes() > 0, "{limit:?}");
    let now = std::fs::read_to_string(&path).unwrap();
    assert_eq!(now.lines().next(), Some(limit.last().as_str()));
    let mut file = Vec::new();
    let known = Known { idle_states: Some(limit.states()), ..Known::default() };
    ended.policy.0.borrow().write(&mode.into(), &known, &mut file).unwrap();
    assert_eq!(live::record::replay(&file[..], "recorded").unwrap().first_difference, None);
    let text = String::from_utf8(file).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exits: Vec<_> = lines[0]["idle_states"].as_array().unwrap().iter().map(|state| &state["exit_ns"]).collect();
    assert_eq!(exits, [0, 2_000, 20_000, 90_000]);
    let told: Vec<_> = lines[1..].iter().filter_map(|line| line.get("idle_limit_ns")).collect();
    assert!(told[0].is_null() && told.iter().any(|told| **told == 2_000), "{told:?}");
    // States that cannot be are no panic.
    for (exit, is_possible) in [(0, true), (200_000, true), (4_294_967_295_000, true), (u64::MAX, false)] {
        let damaged = text.replacen("\"exit_ns\":20000", &format!("\"exit_ns\":{exit}"), 1);
        assert_eq!(live::record::replay(damaged.as_bytes(), "damaged").is_ok(), is_possible, "{exit}");
    }
}

#[test]
fn nor_does_it_when_its_policy_is_recorded() {
    for (limit, all) in [(100, false), (10_000_000, true)] {
        let mode = Mode::ADAPTIVE;
        let recording = Recording::new(mode.policy(), limit);
        let policy = Recorded(std::rc::Rc::new(std::cell::RefCell::new(recording)));
        let ended = script().run(MacSwap, policy);
        assert_eq!(ended.allocator_calls, 0);
        let mut file = Vec::new();
        ended.policy.0.borrow().write(&mode.into(), &Known::default(), &mut file).unwrap();
        let replay = live::record::replay(&file[..], "recorded").unwrap();
        assert_eq!(replay.first_difference, None);
        assert_eq!(replay.left_out == 0, all);
        // What waits cost is part of what a policy sees, so the file holds it.
        let text = String::from_utf8(file).unwrap();
        assert!(text.contains(r#""spent_ns":6543"#), "no wait of 6543 ns in {} lines", text.lines().count());
        let decisions: Vec<serde_json::Value> =
            text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &decisions {
            // Frames that are left in a ring are taken at once, and an idle core blocks whatever it costs.
            let (reason, belief) = (&line["decision"]["reason"], &line["belief"]);
            let polls_on = line["decision"]["action"] == "poll";
            assert!(belief.is_object() || (polls_on && reason == "traffic"), "{line}");
            assert_eq!(belief["expected_late_ppm"].is_u64(), belief.is_object() && reason != "idle", "{line}");
        }
        let priced = decisions.iter().filter(|line| line["belief"]["price_ns_per_packet"].is_u64()).count();
        assert!(priced > 10, "{priced} of {}", decisions.len());
        // What it was made by is not compared: a replay works it out anew, and files of before have none.
        let without: Vec<String> = text
            .lines()
            .map(|line| {
                let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                line.as_object_mut().unwrap().remove("belief");
                line.to_string()
            })
            .collect();
        assert_eq!(live::record::replay(without.join("\n").as_bytes(), "older").unwrap(), replay);
    }
}

#[test]
fn the_count_counts() {
    /// Allocates, as no policy may.
    #[derive(Clone)]
    struct Wasteful;
    impl WaitPolicy<Monotonic> for Wasteful {
        fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
            drop(std::hint::black_box(Box::new(seen.now)));
            policy::wait::Poll.decide(seen)
        }
    }
    let ended = script().run(MacSwap, Wasteful);
    assert_eq!(ended.allocator_calls, 2 * ended.snapshot.counts.reason(policy::wait::Reason::Fixed));
}
