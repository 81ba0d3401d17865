//! Tests the guests' server with a machine that records the settings applied to it.

use proptest::prelude::*;
use units::Hertz;

use super::super::OUTBOX;
use super::super::dpdk::{Scale, scale};
use super::super::protocol::{Answer, Verdict};
use super::*;

/// A machine of four CPUs: 0 and 1 each have their own frequency, 2 and 3 share one.
#[derive(Default)]
struct Fake {
    fixed: BTreeMap<u32, Option<u32>>,
    idle: BTreeMap<u32, Option<Nanos>>,
    log: Vec<String>,
    changes: u64,
    answers: BTreeMap<u32, Applied>,
    /// Outcomes of changes that were settling, by policy. Without an entry, they go on settling until they are over.
    settled: BTreeMap<u32, Applied>,
    idle_answers: BTreeMap<u32, Applied>,
}

impl Outside for Fake {
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        self.changes += 1;
        self.fixed.insert(policy, khz);
        self.answers.get(&policy).cloned().unwrap_or(Applied::InForce)
    }
    fn settled(&mut self, policy: u32, is_over: bool) -> Applied {
        let otherwise = || if is_over { Applied::Otherwise("too hot".into()) } else { Applied::Settling };
        self.settled.get(&policy).cloned().unwrap_or_else(otherwise)
    }
    fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied {
        self.idle.insert(cpu, limit);
        self.idle_answers.get(&cpu).cloned().unwrap_or(Applied::InForce)
    }
    fn frequency(&mut self, cpu: u32) -> Option<u32> {
        self.fixed.get(&cpu).copied().flatten()
    }
    fn log(&mut self, record: &Record<'_>) {
        let verdict = record.verdict.map_or("-", Verdict::name);
        self.log.push(format!("{} {} {} {verdict}: {}", record.guest, record.event, record.asked, record.why));
        self.log.truncate(10_000);
    }
}

const STEPS: [u32; 4] = [800_000, 1_800_000, 2_600_000, 3_000_000];

fn domains() -> Vec<Domain> {
    let domain = |policy, cpus: &[u32]| Domain {
        policy,
        cpus: cpus.iter().copied().collect(),
        steps: STEPS.to_vec(),
        nominal: Some(2_600_000),
    };
    vec![domain(0, &[0]), domain(1, &[1]), domain(2, &[2, 3])]
}

fn manifest(name: &str, vcpus: &[(u16, &[u32])]) -> Manifest {
    Manifest {
        name: name.into(),
        vcpus: vcpus.iter().map(|(vcpu, cpus)| (*vcpu, cpus.iter().copied().collect())).collect(),
        min_frequency: None,
        max_frequency: None,
        may_limit_idle: true,
        may_query: true,
        requests_per_second: 1_000,
        channels: 2,
    }
}

fn at(ms: u64) -> Instant<Monotonic> {
    Instant::ORIGIN + Nanos::from_millis(ms)
}

fn pinned(places: &[(u16, u32)]) -> BTreeMap<u16, Place> {
    places.iter().map(|(vcpu, cpu)| (*vcpu, Place::Pinned(*cpu))).collect()
}

/// Two guests whose vCPUs run on the CPUs with the same numbers: `a` has 0 and 1, `b` has 2 and 3.
fn two() -> (Server, Fake) {
    let manifests = vec![manifest("a", &[(0, &[0]), (1, &[1])]), manifest("b", &[(2, &[2]), (3, &[3])])];
    let (mut server, mut fake) = (Server::new(domains(), manifests, at(0)), Fake::default());
    server.place(at(0), 0, &pinned(&[(0, 0), (1, 1)]), &mut fake);
    server.place(at(0), 1, &pinned(&[(2, 2), (3, 3)]), &mut fake);
    fake.log.clear();
    (server, fake)
}

/// The server's answer to `line`.
fn ask(server: &mut Server, fake: &mut Fake, now: Instant<Monotonic>, guest: usize, line: &str) -> Answer {
    server.receive(now, guest, 0, format!("apus/1 x {line}\n").as_bytes(), fake);
    let text = String::from_utf8(server.outgoing(guest, 0).to_vec()).unwrap();
    server.sent(guest, 0, text.len());
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// Whether the server acknowledges a DPDK packet.
fn send(server: &mut Server, fake: &mut Fake, guest: usize, vcpu: u64, what: Scale) -> bool {
    server.receive(at(0), guest, 1, &scale(vcpu, what), fake);
    let answer = server.outgoing(guest, 1).to_vec();
    server.sent(guest, 1, answer.len());
    assert_eq!(answer.len(), dpdk::LENGTH);
    answer[12] == 1
}

#[test]
fn dpdk_scales_step_by_step() {
    let (mut server, mut fake) = two();
    for (what, khz) in [
        (Scale::Min, 800_000),
        (Scale::Up, 1_800_000),
        (Scale::Up, 2_600_000),
        (Scale::Up, 3_000_000),
        (Scale::Up, 3_000_000),
        (Scale::DisableTurbo, 2_600_000),
        (Scale::Down, 1_800_000),
        (Scale::Max, 2_600_000),
        (Scale::EnableTurbo, 3_000_000),
    ] {
        assert!(send(&mut server, &mut fake, 0, 1, what), "{what}: {:?}", fake.log.last());
        assert_eq!(fake.fixed[&1], Some(khz), "{what}");
    }
    assert!(!fake.fixed.contains_key(&0), "the other vCPU's core was not touched");
    let down = send(&mut server, &mut fake, 0, 0, Scale::Down);
    assert!(down && fake.fixed[&0] == Some(2_600_000), "without a wish before, it begins at the top");
    for hopeless in [2, 7, 65_536, u64::MAX] {
        assert!(!send(&mut server, &mut fake, 0, hopeless, Scale::Min), "{hopeless}");
    }
    assert!(!fake.fixed.contains_key(&2));
    server.receive(at(0), 0, 0, &dpdk::request(2, 9, 9), &mut fake);
    assert!(server.outgoing(0, 0).is_empty(), "DPDK expects no answer to its first packet");
}

#[test]
fn queries_are_answered_in_their_form_also_when_they_are_refused() {
    let (mut server, mut fake) = two();
    assert!(send(&mut server, &mut fake, 0, 1, Scale::Min));
    let mut query = |server: &mut Server, command, vcpu| {
        server.receive(at(0), 0, 0, &dpdk::request(command, 0, vcpu), &mut fake);
        let answer = server.outgoing(0, 0).to_vec();
        server.sent(0, 0, answer.len());
        answer
    };
    let list = query(&mut server, 7, 0);
    assert_eq!((list.len(), list[12], list[80]), (dpdk::FREQ_LIST_LENGTH, 3, 2));
    assert_eq!(list[52..56], 800_000_u32.to_ne_bytes());
    let caps = query(&mut server, 10, 1);
    assert_eq!((caps.len(), caps[12], caps[56]), (dpdk::CAPS_LIST_LENGTH, 4, 1));
    let refused = query(&mut server, 8, 5);
    assert_eq!((refused.len(), refused[12]), (dpdk::FREQ_LIST_LENGTH, 2));
}

#[test]
fn own_requests_are_answered_with_reasons() {
    let (mut server, mut fake) = two();
    let mut ask = |line: &str| ask(&mut server, &mut fake, at(0), 0, line);
    let granted = ask("1.7GHz vcpu=0");
    assert_eq!((granted.verdict, granted.khz), (Verdict::Granted, Some(1_800_000)));
    let limited = ask("9GHz vcpu=0");
    assert_eq!((limited.verdict, limited.khz), (Verdict::Limited, Some(3_000_000)));
    let goal = ask("goal=p99=50us vcpu=1");
    assert_eq!((goal.verdict, goal.khz, goal.idle_us), (Verdict::Granted, Some(3_000_000), Some(25)));
    let idle = ask("idle=10us vcpu=1");
    assert_eq!((idle.verdict, idle.idle_us), (Verdict::Granted, Some(10)), "the stricter of both");
    assert_eq!(ask("state vcpu=1").khz, Some(3_000_000));
    let released = ask("release vcpu=1");
    assert_eq!((released.verdict, released.khz, released.idle_us), (Verdict::Granted, None, None));
    let refused = ask("max vcpu=9");
    assert!(refused.verdict == Verdict::Refused && refused.why.contains("no vCPU 9"), "{refused:?}");
    assert!(ask("faster vcpu=0").why.contains("expected max"));
    assert_eq!(fake.fixed[&1], None);
    assert_eq!(fake.idle[&1], None);
}

#[test]
fn the_highest_wish_of_a_shared_clock_wins_and_says_so() {
    let (mut server, mut fake) = two();
    let first = ask(&mut server, &mut fake, at(0), 1, "min vcpu=2");
    assert_eq!((first.verdict, first.khz), (Verdict::Held, None));
    assert!(first.why.contains("vCPU 3 of b also runs on CPU 3"), "{first:?}");
    let second = ask(&mut server, &mut fake, at(0), 1, "1.8GHz vcpu=3");
    assert_eq!((second.verdict, second.khz), (Verdict::Granted, Some(1_800_000)));
    let first = ask(&mut server, &mut fake, at(0), 1, "min vcpu=2");
    assert_eq!((first.verdict, first.khz), (Verdict::Held, Some(1_800_000)));
    assert!(first.why.contains("the highest request wins"), "{first:?}");
    ask(&mut server, &mut fake, at(0), 1, "release vcpu=3");
    assert_eq!(fake.fixed[&2], None, "who gives up its wish is not slowed by another's");
}

#[test]
fn a_core_shared_with_another_guest_is_not_lowered() {
    let manifests = vec![manifest("a", &[(0, &[0, 1])]), manifest("b", &[(0, &[0])])];
    let (mut server, mut fake) = (Server::new(domains(), manifests, at(0)), Fake::default());
    server.place(at(0), 0, &pinned(&[(0, 0)]), &mut fake);
    server.place(at(0), 1, &pinned(&[(0, 1), (5, 0)]), &mut fake);
    let held = ask(&mut server, &mut fake, at(0), 0, "min vcpu=0");
    assert!(held.verdict == Verdict::Held && held.why.contains("vCPU 5 of b"), "{held:?}");
    server.place(at(0), 1, &pinned(&[(0, 0)]), &mut fake);
    assert!(ask(&mut server, &mut fake, at(0), 0, "state vcpu=0").why.contains("vCPU 0 of b"));
    assert_eq!(fake.fixed.get(&0), None, "never lowered");
    let both = ask(&mut server, &mut fake, at(0), 1, "1.8GHz vcpu=0");
    assert_eq!(both.khz, Some(1_800_000), "both ask: the higher one");
}

#[test]
fn pinning_that_changes_takes_the_wish_along_only_where_the_manifest_allows() {
    let manifests = vec![manifest("a", &[(0, &[0, 1])])];
    let (mut server, mut fake) = (Server::new(domains(), manifests, at(0)), Fake::default());
    let early = ask(&mut server, &mut fake, at(0), 0, "min vcpu=0");
    assert!(early.verdict == Verdict::Held && early.why.contains("unknown"), "{early:?}");
    server.place(at(1), 0, &pinned(&[(0, 0)]), &mut fake);
    assert_eq!(fake.fixed, BTreeMap::from([(0, Some(800_000))]));
    server.place(at(2), 0, &pinned(&[(0, 1)]), &mut fake);
    assert_eq!(fake.fixed, BTreeMap::from([(0, None), (1, Some(800_000))]));
    server.place(at(3), 0, &pinned(&[(0, 2)]), &mut fake);
    assert_eq!(fake.fixed, BTreeMap::from([(0, None), (1, None)]), "CPU 2 is not in the manifest");
    assert!(fake.log.last().unwrap().contains("pinned to CPU 2, and the manifest allows CPU 0-1"), "{:?}", fake.log);
    let floating = BTreeMap::from([(0, Place::Floating(CpuSet::from([0, 1])))]);
    server.place(at(4), 0, &floating, &mut fake);
    let held = ask(&mut server, &mut fake, at(4), 0, "state vcpu=0");
    assert!(held.why.contains("pin it to one"), "{held:?}");
    server.place(at(5), 0, &pinned(&[(0, 1)]), &mut fake);
    assert_eq!(fake.fixed[&1], Some(800_000), "the wish was kept");
    server.forget(at(6), 0, "the guest was reset", &mut fake);
    assert_eq!(fake.fixed[&1], None);
    assert!(fake.log.last().unwrap().contains("the guest was reset"));
}

#[test]
fn a_flood_is_bounded_and_the_maximum_is_never_refused() {
    let mut slow = manifest("a", &[(0, &[0])]);
    slow.requests_per_second = 10;
    let (mut server, mut fake) = (Server::new(domains(), vec![slow], at(0)), Fake::default());
    server.place(at(0), 0, &pinned(&[(0, 0)]), &mut fake);
    for _ in 0..1_000 {
        send(&mut server, &mut fake, 0, 0, Scale::Min);
        assert!(send(&mut server, &mut fake, 0, 0, Scale::Max), "{:?}", fake.log);
    }
    assert_eq!(fake.fixed[&0], Some(3_000_000));
    assert!(fake.changes <= 20, "{} changes", fake.changes);
    assert!(fake.log.len() <= 12, "{:?}", fake.log);
    let before = fake.log.len();
    server.tick(at(100), &mut fake);
    server.tick(at(200), &mut fake);
    let told = &fake.log[before..];
    assert!(told.len() == 1 && told[0].contains("a over-rate 1990 -: the manifest allows 10"), "{told:?}");
    let counts = server.counts(0);
    assert_eq!((counts.messages, counts.over_rate), (2_000, 1_990));
    // Its bytes are spent as well: nothing is read from it, while others are.
    assert_eq!(server.may_read(0, at(0)), 0);
    assert!(server.reads_at(0) > at(0) && server.may_read(0, server.reads_at(0)) >= dpdk::LENGTH);
}

#[test]
fn who_does_not_read_loses_answers_and_never_half_of_one() {
    let (mut server, mut fake) = two();
    for _ in 0..100 {
        server.receive(at(0), 0, 1, &scale(0, Scale::Max), &mut fake);
    }
    let waiting = server.outgoing(0, 1).len();
    assert!(waiting <= OUTBOX && waiting.is_multiple_of(dpdk::LENGTH), "{waiting}");
    assert_eq!(server.counts(0).unread, 100 - (waiting / dpdk::LENGTH) as u64);
    assert_eq!(ask(&mut server, &mut fake, at(0), 1, "state vcpu=2").verdict, Verdict::Granted, "the other guest");
    server.sent(0, 1, 100);
    assert_eq!(server.outgoing(0, 1).len(), waiting - 100);
    server.reopened(0, 1);
    assert!(server.outgoing(0, 1).is_empty());
}

#[test]
fn what_the_machine_does_not_do_is_said_and_tried_again() {
    let (mut server, mut fake) = two();
    fake.answers.insert(0, Applied::Otherwise("the firmware limits it".into()));
    let limited = ask(&mut server, &mut fake, at(0), 0, "max vcpu=0");
    assert_eq!(
        (limited.verdict, limited.khz, limited.why.as_str()),
        (Verdict::Limited, None, "the firmware limits it")
    );
    fake.answers.insert(0, Applied::InForce);
    server.tick(at(1_000), &mut fake);
    assert_eq!(ask(&mut server, &mut fake, at(1_000), 0, "state vcpu=0").verdict, Verdict::Limited, "too early");
    server.tick(at(5_000), &mut fake);
    assert_eq!(ask(&mut server, &mut fake, at(5_000), 0, "state vcpu=0").khz, Some(3_000_000));
    fake.answers.insert(1, Applied::Lost("somebody else set it".into()));
    let lost = ask(&mut server, &mut fake, at(5_000), 0, "min vcpu=1");
    assert_eq!((lost.verdict, lost.khz), (Verdict::Held, None));
    let changes = fake.changes;
    ask(&mut server, &mut fake, at(5_000), 0, "max vcpu=1");
    assert_eq!(fake.changes, changes, "what is somebody else's is left alone");
}

#[test]
fn a_change_that_the_kernel_has_not_carried_out_yet_is_looked_at_again() {
    let (mut server, mut fake) = two();
    fake.answers.insert(0, Applied::Settling);
    let held = ask(&mut server, &mut fake, at(0), 0, "min vcpu=0");
    assert_eq!((held.verdict, held.khz), (Verdict::Held, None));
    assert!(held.why.contains("not confirmed it yet"), "{held:?}");
    let state = |server: &mut Server, fake: &mut Fake, ms| {
        server.settle(at(ms), fake);
        let answer = ask(server, fake, at(ms), 0, "state vcpu=0");
        (answer.verdict, answer.khz)
    };
    assert_eq!(state(&mut server, &mut fake, 100), (Verdict::Held, None));
    fake.settled.insert(0, Applied::InForce);
    assert_eq!(state(&mut server, &mut fake, 200), (Verdict::Granted, Some(800_000)));
    // A cooling device limits the frequency: it never shows.
    fake.settled.clear();
    ask(&mut server, &mut fake, at(1_000), 0, "max vcpu=0");
    assert_eq!(state(&mut server, &mut fake, 1_499), (Verdict::Held, None));
    assert_eq!(state(&mut server, &mut fake, 1_500), (Verdict::Limited, None));
    // While it is tried again, what is known stays.
    let changes = fake.changes;
    server.tick(at(6_000), &mut fake);
    assert_eq!((fake.changes, state(&mut server, &mut fake, 6_100)), (changes + 1, (Verdict::Limited, None)));
    server.tick(at(6_400), &mut fake);
    assert_eq!(fake.changes, changes + 1);
    fake.settled.insert(0, Applied::InForce);
    assert_eq!(state(&mut server, &mut fake, 6_500), (Verdict::Granted, Some(3_000_000)));
}

#[test]
fn an_idle_limit_that_failed_is_tried_again() {
    let (mut server, mut fake) = two();
    fake.idle_answers.insert(0, Applied::Failed("busy".into()));
    assert_eq!(ask(&mut server, &mut fake, at(0), 0, "idle=10us vcpu=0").verdict, Verdict::Held);
    fake.idle_answers.clear();
    fake.idle.clear();
    server.tick(at(4_999), &mut fake);
    assert_eq!(fake.idle.get(&0), None, "too early");
    server.tick(at(5_000), &mut fake);
    assert_eq!(fake.idle[&0], Some(Nanos::from_micros(10)));
    assert_eq!(ask(&mut server, &mut fake, at(5_000), 0, "idle=10us vcpu=0").verdict, Verdict::Granted);
    // The original limit is tried again too.
    fake.idle_answers.insert(0, Applied::Failed("busy".into()));
    ask(&mut server, &mut fake, at(6_000), 0, "idle=none vcpu=0");
    (fake.idle_answers, fake.idle) = Default::default();
    server.tick(at(11_000), &mut fake);
    assert_eq!(fake.idle, BTreeMap::from([(0, None)]));
}

#[test]
fn a_cpu_that_is_offline_does_not_hold_a_shared_clock() {
    let manifests = vec![manifest("b", &[(2, &[2])])];
    let (mut server, mut fake) = (Server::new(domains(), manifests, at(0)), Fake::default());
    server.place(at(0), 0, &pinned(&[(2, 2)]), &mut fake);
    let held = ask(&mut server, &mut fake, at(0), 0, "min vcpu=2");
    assert!(held.why.contains("CPU 3 shares the frequency domain"), "{held:?}");
    server.set_online(at(1_000), CpuSet::from([0, 1, 2]), &mut fake);
    assert_eq!(ask(&mut server, &mut fake, at(1_000), 0, "state vcpu=2").khz, Some(800_000));
    server.set_online(at(2_000), CpuSet::from([0, 1, 2, 3]), &mut fake);
    assert_eq!(fake.fixed[&2], None, "it is online again, and belongs to no guest");
}

#[test]
fn a_repeated_request_with_the_same_outcome_is_logged_once() {
    let (mut server, mut fake) = two();
    for _ in 0..10 {
        ask(&mut server, &mut fake, at(0), 0, "state vcpu=0");
        ask(&mut server, &mut fake, at(0), 0, "max vcpu=1");
    }
    assert_eq!((fake.log.len(), server.counts(0).messages), (2, 20), "{:?}", fake.log);
    ask(&mut server, &mut fake, at(0), 0, "min vcpu=1");
    ask(&mut server, &mut fake, at(0), 0, "max vcpu=1");
    assert_eq!(fake.log.len(), 4, "{:?}", fake.log);
}

#[test]
fn a_server_with_other_manifests_takes_the_wishes_over() {
    let (mut server, mut fake) = two();
    ask(&mut server, &mut fake, at(0), 0, "min vcpu=0");
    ask(&mut server, &mut fake, at(0), 0, "goal=p99=50us vcpu=1");
    server.pause(&mut fake);
    assert!(fake.fixed.values().chain([&None]).all(Option::is_none) && fake.idle[&1].is_none(), "{:?}", fake.fixed);
    server.resume(at(0), &mut fake);
    assert_eq!((fake.fixed[&0], fake.idle[&1]), (Some(800_000), Some(Nanos::from_micros(25))));
    server.pause(&mut fake);
    let mut other = Server::new(domains(), vec![manifest("c", &[(0, &[2])]), manifest("a", &[(0, &[0])])], at(1));
    other.adopt(server);
    other.place(at(1), 1, &pinned(&[(0, 0), (1, 1)]), &mut fake);
    assert_eq!((fake.fixed[&0], fake.fixed[&1]), (Some(800_000), None), "vCPU 1 is no longer listed");
    assert_eq!(other.counts(1).messages, 2);
}

#[test]
fn a_manifest_bounds_what_a_guest_can_cause() {
    let mut bounded = manifest("a", &[(0, &[0])]);
    (bounded.min_frequency, bounded.max_frequency) = (Some(Hertz::new(1_000_000_000)), Some(Hertz::new(2_700_000_000)));
    (bounded.may_limit_idle, bounded.may_query) = (false, false);
    let (mut server, mut fake) = (Server::new(domains(), vec![bounded], at(0)), Fake::default());
    server.place(at(0), 0, &pinned(&[(0, 0)]), &mut fake);
    let mut ask = |line: &str| ask(&mut server, &mut fake, at(0), 0, line);
    assert_eq!(ask("max vcpu=0").khz, Some(2_600_000));
    assert_eq!(ask("min vcpu=0").khz, Some(1_800_000));
    let limited = ask("800MHz vcpu=0");
    assert!(limited.verdict == Verdict::Limited && limited.why.contains("1.8GHz to 2.6GHz"), "{limited:?}");
    assert_eq!(ask("down vcpu=0").verdict, Verdict::Limited);
    assert_eq!(ask("idle=1us vcpu=0").verdict, Verdict::Refused);
    let goal = ask("goal=p99=50us vcpu=0");
    assert_eq!((goal.verdict, goal.idle_us), (Verdict::Limited, None));
    server.receive(at(0), 0, 0, &dpdk::request(7, 0, 0), &mut fake);
    assert_eq!((server.outgoing(0, 0).len(), server.outgoing(0, 0)[12]), (dpdk::FREQ_LIST_LENGTH, 2));
    assert!(fake.idle.values().all(Option::is_none), "{:?}", fake.idle);
}

/// Messages that a hostile guest may send: packets with any fields, lines, pieces of both, and noise.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let packet = (0..12_u32, 0..12_u32, prop_oneof![0..6_u64, any::<u64>()], any::<u8>(), 0..dpdk::LENGTH);
    let packet = packet.prop_map(|(command, unit, vcpu, noise, at)| {
        let mut bytes = dpdk::request(command, unit, vcpu);
        bytes[at] = noise;
        bytes.to_vec()
    });
    let line = "apus/[12] [a-z0-9]{1,17} (max|min|up|down|1.8GHz|goal=p99=50us|idle=[0-9]{1,9}us|release|state) \
                vcpu=[0-9]{1,5}\n";
    prop_oneof![
        4 => packet,
        4 => line.prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..600),
    ]
}

proptest! {
    /// Whatever guest `a` sends, CPUs 2 and 3 are not changed, guest `b` still gets answers, and every applied
    /// frequency is a step within the manifest.
    #[test]
    fn nothing_happens_outside_the_manifest(
        messages in proptest::collection::vec((hostile(), 0..3_000_u64, any::<bool>()), 0..60),
    ) {
        let mut bounded = manifest("a", &[(0, &[0, 1]), (1, &[1])]);
        bounded.min_frequency = Some(Hertz::new(1_800_000_000));
        bounded.max_frequency = Some(Hertz::new(2_600_000_000));
        let manifests = vec![bounded, manifest("b", &[(2, &[2]), (3, &[3])])];
        let (mut server, mut fake) = (Server::new(domains(), manifests, at(0)), Fake::default());
        server.place(at(0), 1, &pinned(&[(2, 2), (3, 3)]), &mut fake);
        let mut now = at(0);
        for (number, (message, pause, moves)) in messages.iter().enumerate() {
            now = now + Nanos::from_millis(*pause);
            let places = if *moves { [(0, 0), (1, 1)] } else { [(0, number as u32 % 5), (1, 1)] };
            server.place(now, 0, &pinned(&places), &mut fake);
            server.receive(now, 0, number % 2, message, &mut fake);
            server.tick(now, &mut fake);
            prop_assert!(server.outgoing(0, number % 2).len() <= OUTBOX);
        }
        prop_assert!(!fake.fixed.contains_key(&2));
        prop_assert!(fake.idle.keys().all(|cpu| *cpu < 2));
        prop_assert!(fake.fixed.values().flatten().all(|khz| [1_800_000, 2_600_000].contains(khz)), "{:?}", fake.fixed);
        server.place(now, 0, &pinned(&[(0, 0), (1, 1)]), &mut fake);
        let neighbour = ask(&mut server, &mut fake, now, 1, "max vcpu=2");
        prop_assert_eq!(neighbour.verdict, Verdict::Held);
        ask(&mut server, &mut fake, now, 1, "max vcpu=3");
        prop_assert_eq!(fake.fixed[&2], Some(3_000_000));
        server.forget(now, 0, "gone", &mut fake);
        prop_assert!([0, 1].iter().all(|policy| fake.fixed.get(policy).copied().flatten().is_none()));
    }
}
