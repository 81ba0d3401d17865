use std::cell::RefCell;
use std::rc::Rc;

use live::app::drop::Drop as DropAll;
use live::app::l2fwd::L2Fwd;
use live::app::macswap::MacSwap;
use live::telemetry::State;
use live::worker::{Finish, HEALTH_INTERVAL};
use policy::wait::{Action, Decision, Ended, Interrupt, Observation, Poll, Reason, Sent, WaitKind, WaitPolicy};
use units::{Instant, Monotonic, Nanos};

use super::scripted::{Event, Quirky, Script, TICK, udp};

const US: Nanos = Nanos::from_micros(1);
const MS: Nanos = Nanos::from_millis(1);
const OURS: [u8; 4] = [10, 0, 0, 1];

/// Waits the same way after each empty poll, and notes what it was told of its waits.
#[derive(Clone)]
struct Always {
    wait: fn(Instant<Monotonic>) -> Action<Monotonic>,
    told: Rc<RefCell<Vec<Told>>>,
}

/// One observation: frames, how late the first was and whether that is known, and the wait before.
#[derive(Clone, Copy)]
struct Told {
    now: Instant<Monotonic>,
    received: u32,
    lateness: Option<Nanos>,
    stamped: Option<bool>,
    sent: Option<Sent<Monotonic>>,
    ended: Option<Ended<Monotonic>>,
}

impl Always {
    fn new(wait: fn(Instant<Monotonic>) -> Action<Monotonic>) -> Self {
        Self { wait, told: Rc::default() }
    }
}

impl WaitPolicy<Monotonic> for Always {
    fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
        let (now, received, ended) = (seen.now, seen.received(), seen.ended);
        let arrivals = seen.queues[0].arrivals;
        let (lateness, stamped) = (arrivals.map(|came| came.lateness()), arrivals.map(|came| came.stamped));
        let sent = arrivals.and_then(|came| came.sent);
        self.told.borrow_mut().push(Told { now, received, lateness, stamped, sent, ended });
        let action = if seen.received() > 0 { Action::Poll } else { (self.wait)(seen.now) };
        Decision { action, reason: Reason::Fixed }
    }
}

#[test]
fn a_policy_is_told_how_late_its_waits_end() {
    let waits: [fn(Instant<Monotonic>) -> Action<Monotonic>; 2] =
        [|now| Action::SleepUntil(now + US * 20), |now| Action::BlockUntil(Some(now + US * 20))];
    for wait in waits {
        let mut script = Script::new(1);
        script.late = US * 7;
        script.at(MS, Event::Stop);
        let ended = script.run(DropAll, Always::new(wait));
        assert_eq!(ended.finish.unwrap(), Finish::Stopped);
        let told = ended.policy.told.borrow();
        assert!(told.len() > 20);
        assert!(told[0].ended.is_none());
        for pair in told.windows(2) {
            let wait = pair[1].ended.unwrap();
            assert_eq!(wait.overshoot(), Some(US * 7 + TICK));
            assert!(wait.began >= pair[0].now && wait.ended <= pair[1].now);
        }
    }
}

/// Regression test: the time in which the ports were opened counted as part of the run, so that the shares of CPU time
/// and waits were too low.
#[test]
fn a_run_begins_when_the_ports_are_open() {
    let mut script = Script::new(1);
    script.time.pass(MS);
    script.at(MS * 2, Event::Stop);
    let ended = script.run(DropAll, Always::new(|now| Action::SleepUntil(now + US * 100)));
    let began = ended.snapshot.started;
    assert!((MS..MS * 2).contains(&began.since(Instant::ORIGIN).unwrap()), "{began:?}");
}

/// Drivers of DPDK, for example, stamp no frame. It may have come right after the poll before.
#[test]
fn a_frame_without_a_stamp_came_after_the_poll_before() {
    let mut script = Script::new(1);
    script.at(US * 500, Event::Unstamped { port: 0, data: udp(OURS).into() });
    script.frame(US * 700, 0, &udp(OURS));
    script.at(MS, Event::Stop);
    let ended = script.run(DropAll, Always::new(|now| Action::SleepUntil(now + US * 100)));
    let told = ended.policy.told.borrow();
    let [(before, blind), (_, stamped)] =
        *told.windows(2).filter(|pair| pair[1].received == 1).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
    else {
        panic!("two frames in two polls")
    };
    assert_eq!((blind.stamped, stamped.stamped), (Some(false), Some(true)));
    // All of the sleep, and the time around it in which nothing was seen of the queue.
    let (slept, late) = (blind.now.since(before.now).unwrap(), blind.lateness.unwrap());
    assert!((slept.saturating_sub(TICK * 2)..=slept + TICK * 2).contains(&late), "{late} in {slept}");
    assert!(stamped.lateness.unwrap() < US * 100);
    // Nothing is known of its lateness, so none is shown.
    assert_eq!(ended.snapshot.counts.lateness.count(), 1);
}

/// A policy that took all frames of a poll for sent when the last one was kept a batch's whole time free in each sleep.
#[test]
fn a_policy_is_told_when_the_frames_left_if_they_leave_one_after_another() {
    for in_turn in [true, false] {
        let mut script = Script::new(1);
        let time = script.time.clone();
        let takes = in_turn.then_some((time, US * 30));
        script.wrap(0, |device| Box::new(Quirky { sending_takes: takes, ..Quirky::new(device) }));
        for frame in 0..4 {
            script.frame(US * (510 + frame), 0, &udp(OURS));
        }
        script.at(MS, Event::Stop);
        let ended = script.run(MacSwap, Always::new(|now| Action::SleepUntil(now + US * 100)));
        let told = ended.policy.told.borrow();
        let batch = told.iter().max_by_key(|told| told.received).unwrap();
        let frames = u64::from(batch.received);
        assert!(frames >= 3, "{frames}");
        let Some(sent) = batch.sent else {
            assert!(!in_turn);
            continue;
        };
        // The first frame takes its own time, and as much as for two frames to begin.
        let after_the_first = sent.last.since(sent.first).unwrap();
        let expected = US * (30 * frames * (frames - 1) / (frames + 2));
        assert!(
            after_the_first >= expected && after_the_first <= expected + TICK,
            "{after_the_first}, {frames} frames"
        );
        assert_eq!(sent.last, batch.now);
    }
}

#[test]
fn a_policy_is_told_what_its_waits_cost_from_a_sample_of_them() {
    let waits: [fn(Instant<Monotonic>) -> Action<Monotonic>; 2] =
        [|now| Action::SleepUntil(now + US * 20), |now| Action::BlockUntil(Some(now + US * 20))];
    for wait in waits {
        let mut script = Script::new(1);
        script.costs = Nanos::from_nanos(6_543);
        // The device ends some of the blocks: these cost as much.
        for n in 0..100 {
            script.frame(US * 50 * n, 0, &udp(OURS));
        }
        script.at(MS * 20, Event::Stop);
        let ended = script.run(DropAll, Always::new(wait));
        let told = ended.policy.told.borrow();
        let spent: Vec<Option<Nanos>> = told.iter().filter_map(|told| told.ended).map(|wait| wait.spent).collect();
        assert!(spent.len() > 500, "{}", spent.len());
        for (number, spent) in spent.iter().enumerate() {
            let measured = number < 64 || number % 16 == 0;
            assert_eq!(*spent, measured.then_some(Nanos::from_nanos(6_543)), "wait {number}");
        }
        // The last wait may be one that the policy was not told of: the stop came in it.
        let (measured, readings) = (spent.iter().flatten().count() as u64, ended.waits.readings.get());
        assert!(readings == 2 * measured || readings == 2 * measured + 2, "{readings} readings for {measured} waits");
    }
}

#[test]
fn a_pause_costs_its_length_and_neither_it_nor_polling_reads_the_threads_time() {
    for wait in [|_| Action::Poll, |_| Action::Pause(US * 3)] {
        let mut script = Script::new(1);
        script.at(MS, Event::Stop);
        let ended = script.run(DropAll, Always::new(wait));
        assert_eq!(ended.waits.readings.get(), 0);
        let told = ended.policy.told.borrow();
        for wait in told.iter().filter_map(|told| told.ended) {
            assert_eq!(wait.spent, wait.ended.since(wait.began));
        }
    }
}

#[test]
fn a_frame_ends_a_block_and_its_lateness_is_that_of_the_wake_up() {
    let mut script = Script::new(1);
    script.late = US * 9;
    script.frame(MS, 0, &udp(OURS)).at(MS * 2, Event::Stop);
    let ended = script.run(DropAll, Always::new(|_| Action::BlockUntil(None)));
    let told = ended.policy.told.borrow();
    let frame = told.iter().find(|told| told.received == 1).unwrap();
    let wait = frame.ended.unwrap();
    assert_eq!((wait.action, wait.overshoot()), (Action::BlockUntil(None), None));
    let lateness = frame.lateness.unwrap();
    assert!(lateness >= US * 9 && lateness <= US * 9 + TICK * 4, "{lateness}");
    assert_eq!(ended.snapshot.counts.lateness.count(), 1);
}

#[test]
fn a_frame_between_the_empty_poll_and_the_arming_is_handled_without_a_wait() {
    let mut script = Script::new(1);
    let wire = script.wires[0].clone();
    script.wrap(0, |inner| Box::new(Quirky { before_arming: Some((wire, udp(OURS))), ..Quirky::new(inner) }));
    // The stop comes while the worker works on that frame: any block would be one too many.
    script.at(TICK * 5, Event::Stop);
    let ended = script.run(DropAll, Always::new(|_| Action::BlockUntil(None)));
    let counts = &ended.snapshot.counts;
    assert_eq!((counts.received_frames, ended.waits.blocks.get(), counts.wait(WaitKind::Block).count), (1, 0, 0));
    let told = ended.policy.told.borrow();
    assert!(told.iter().all(|told| told.ended.is_none()), "a wait was reported that did not take place");
}

#[test]
fn a_stop_is_seen_within_the_health_interval_however_the_worker_waits() {
    let waits: [fn(Instant<Monotonic>) -> Action<Monotonic>; 4] = [
        |_| Action::Poll,
        |_| Action::Pause(US),
        |now| Action::SleepUntil(now + Nanos::from_secs(3600)),
        |_| Action::BlockUntil(None),
    ];
    for wait in waits {
        let mut script = Script::new(1);
        script.at(MS, Event::Stop);
        let ended = script.run(DropAll, Always::new(wait));
        assert_eq!(ended.finish.unwrap(), Finish::Stopped);
        assert!(ended.time <= Instant::ORIGIN + MS + HEALTH_INTERVAL + TICK * 8, "{}", ended.time.as_nanos());
        assert_eq!(ended.snapshot.state, Some(State::Stopped));
    }
}

#[test]
fn only_time_lost_while_running_is_a_gap() {
    // In a poll, and in a pause: the core was kept, and someone took it.
    for wait in [|_| Action::Poll, |_| Action::Pause(US * 2)] {
        let mut script = Script::new(1);
        script.at(MS, Event::Stolen(US * 200)).at(MS * 2, Event::Stop);
        let gaps = script.run(DropAll, Always::new(wait)).gaps;
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        let span = gaps[0].1.since(gaps[0].0).unwrap();
        assert!(span >= US * 200 && span <= US * 202 + TICK, "{span}");
    }
    // In a sleep and in a block it had been given away: late, but no gap.
    let waits: [fn(Instant<Monotonic>) -> Action<Monotonic>; 2] =
        [|now| Action::SleepUntil(now + US * 50), |now| Action::BlockUntil(Some(now + US * 50))];
    for wait in waits {
        let mut script = Script::new(1);
        script.late = US * 300;
        script.at(MS * 2, Event::Stop);
        let ended = script.run(DropAll, Always::new(wait));
        assert!(ended.waits.sleeps.get() + ended.waits.blocks.get() > 4);
        assert_eq!(ended.gaps, []);
    }
}

#[test]
fn looking_after_a_port_is_no_gap() {
    let mut script = Script::new(1);
    let time = script.time.clone();
    script.wrap(0, |inner| Box::new(Quirky { health_takes: Some((time, US * 80)), ..Quirky::new(inner) }));
    script.at(HEALTH_INTERVAL * 2, Event::Stop);
    assert_eq!(script.run(DropAll, Poll).gaps, []);
}

#[test]
fn frames_for_a_port_whose_link_is_down_are_counted_as_such_until_it_is_up() {
    use live::device::memory::LinkState;
    use live::telemetry::DropReason;
    let mut script = Script::new(2);
    script.at(MS, Event::Link { port: 1, state: LinkState::Down });
    script.at(MS * 300, Event::Link { port: 1, state: LinkState::Up });
    // One a millisecond: the health is looked at each 100 ms, so the loss is noticed, and then its end.
    for ms in 0..600 {
        script.frame(MS * ms + US, 0, &udp(OURS));
    }
    script.at(MS * 600, Event::Stop);
    let ended = script.run(L2Fwd::transparent(), Interrupt);
    let counts = &ended.snapshot.counts;
    let down = counts.dropped(DropReason::LinkDown);
    // What was sent before the worker noticed is the wire's loss.
    let (lost, delivered) = (ended.wires[1].lost(0), std::iter::from_fn(|| ended.wires[1].take_sent(0)).count() as u64);
    let overflow = ended.wires[1].sent_overflow(0);
    assert_eq!(counts.received_frames, 600);
    assert_eq!(counts.sent_frames + down, 600);
    assert_eq!(lost + delivered + overflow, counts.sent_frames);
    assert!((200..=400).contains(&down), "{down}");
    assert!(lost <= 101, "{lost}");
    assert_eq!(ended.snapshot.state, Some(State::Stopped));
}
