//! A whole trial against a simulated device of known capacity, latency and loss, in virtual time.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use live::device::{Capabilities, Device, Health, Statistics};
use live::pool::{Frame, Pool, PoolConfig};
use tester::clock::TrialClock;
use tester::frame::{Encapsulation, FrameSize, LOCAL_EXPERIMENTAL, Layout};
use tester::gaps::{Gap, Recovery};
use tester::histogram::Histogram;
use tester::host::{HostState, Reading};
use tester::result::{Document, LatencyResult, LoadResult, Measured};
use tester::search::{BinarySearch, Outcome, Search as _, SearchConfig};
use tester::trial::{Trial, TrialConfig, run};
use units::{Instant, Monotonic, Nanos};

/// Each reading takes 100 ns; at `jump.0` it jumps ahead by `jump.1`: the host took the CPU.
#[derive(Clone, Default)]
struct Virtual {
    now: Arc<AtomicU64>,
    jump: Arc<[AtomicU64; 2]>,
}
impl TrialClock for Virtual {
    fn now(&self) -> Instant<Monotonic> {
        let mut now = self.now.fetch_add(100, Relaxed) + 100;
        if self.jump[1].load(Relaxed) > 0 && now >= self.jump[0].load(Relaxed) {
            let jump = self.jump[1].swap(0, Relaxed);
            now = self.now.fetch_add(jump, Relaxed) + jump;
        }
        Instant::from_nanos(now)
    }
}

/// Serves one frame each `service`, from a queue of `room`, and returns it `latency` later.
struct Simulated {
    clock: Virtual,
    service: u64,
    latency: u64,
    room: usize,
    /// Frames taken in one tx call.
    tx_room: usize,
    tx_cost: u64,
    free_at: u64,
    underway: VecDeque<(u64, Vec<u8>)>,
    count: u64,
    tamper: fn(u64, &[u8]) -> Vec<Vec<u8>>,
    swap_each: u64,
    health: Health,
}
impl Simulated {
    fn new(clock: &Virtual) -> Self {
        Self {
            clock: clock.clone(),
            service: 1_000,
            latency: 10_000,
            room: 256,
            tx_room: 64,
            tx_cost: 0,
            free_at: 0,
            underway: VecDeque::new(),
            count: 0,
            tamper: |_, octets| vec![octets.to_vec()],
            swap_each: u64::MAX,
            health: Health::Up,
        }
    }
}
impl Device for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }
    fn queues(&self) -> usize {
        1
    }
    fn rx(&mut self, _: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let now = self.clock.now.load(Relaxed);
        let mut n = 0;
        while n < room && self.underway.front().is_some_and(|(ready, _)| *ready <= now) {
            let Some(mut frame) = pool.take() else { break };
            let (_, octets) = self.underway.pop_front().unwrap();
            assert!(pool.set_len(&mut frame, octets.len()));
            pool.bytes_mut(&mut frame).copy_from_slice(&octets);
            out.push(frame);
            n += 1;
        }
        n
    }
    fn tx(&mut self, _: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let n = frames.len().min(self.tx_room);
        for frame in frames.drain(..n) {
            let now = self.clock.now.fetch_add(self.tx_cost, Relaxed);
            self.count += 1;
            let queued = self.free_at.saturating_sub(now) / self.service.max(1);
            if (queued as usize) < self.room {
                self.free_at = self.free_at.max(now) + self.service;
                for octets in (self.tamper)(self.count, pool.bytes(&frame)) {
                    self.underway.push_back((self.free_at + self.latency, octets));
                }
                let last = self.underway.len().wrapping_sub(1);
                if self.count.is_multiple_of(self.swap_each) && (1..usize::MAX).contains(&last) {
                    let (a, b) = (self.underway[last].1.clone(), self.underway[last - 1].1.clone());
                    (self.underway[last].1, self.underway[last - 1].1) = (b, a);
                }
            }
            pool.give(frame);
        }
        n
    }
    fn backlog(&self, _: usize) -> usize {
        self.underway.len()
    }
    fn arm(&mut self, _: usize) -> Result<(), live::Error> {
        Ok(())
    }
    fn disarm(&mut self, _: usize) {}
    fn wait_handle(&self, _: usize) -> Option<BorrowedFd<'_>> {
        None
    }
    fn health(&mut self) -> Result<Health, live::Error> {
        Ok(self.health)
    }
    fn statistics(&mut self, _: usize) -> Statistics {
        Statistics::default()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

fn config(schedule: &str) -> TrialConfig {
    let layout = Layout {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        encapsulation: Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL },
        size: FrameSize::SMALLEST,
    };
    let config = TrialConfig::new(layout, schedule.parse().unwrap());
    TrialConfig { warm_up: Nanos::ZERO, duration: Nanos::from_millis(20), drain: Nanos::from_millis(3), ..config }
}

fn trial(config: &TrialConfig, clock: &Virtual, device: &mut Simulated) -> Trial {
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let trial = run(config, device, 0, &mut pool, clock, &AtomicBool::new(false)).unwrap();
    assert_eq!(pool.free(), 8192, "no slot is lost");
    let counts = trial.counts;
    assert_eq!(counts.intended, counts.sent + counts.unsent());
    assert_eq!(counts.intended, trial.ledger.len());
    trial
}

#[test]
fn measures_the_latency_that_the_device_has() {
    let clock = Virtual::default();
    let trial = trial(&config("constant:20kpps"), &clock, &mut Simulated::new(&clock));
    assert_eq!((trial.counts.sent, trial.counts.received, trial.counts.lost()), (400, 400, 0));
    let split = trial.split(&[], Recovery::default());
    let median = split.clean.at_ranks([200])[0].unwrap();
    // 1 us of service, 10 us of latency, and up to two rounds of the loop.
    assert!((11_000..12_000).contains(&median), "{median}");
    assert!(trial.gaps.is_empty());
    assert!((trial.offered_pps().unwrap() - 20_000.0).abs() < 1.0);
    assert!(trial.ceiling_pps().unwrap() > 100_000.0);
    assert!(trial.idle_round_ns().unwrap() < 500.0);
}

/// Memory for the frames of a long trial takes milliseconds, in which frames were once due already, and not sent.
#[test]
fn the_schedule_starts_after_the_preparation() {
    let clock = Virtual::default();
    clock.jump[0].store(101, Relaxed); // the second reading, after the preparation
    clock.jump[1].store(5_000_000, Relaxed);
    let trial = trial(&config("constant:20kpps"), &clock, &mut Simulated::new(&clock));
    assert_eq!((trial.counts.sent, trial.counts.unsent()), (400, 0));
    assert!(trial.gaps.is_empty(), "{:?}", trial.gaps);
}

#[test]
fn counts_what_a_slow_device_loses() {
    let clock = Virtual::default();
    let mut device = Simulated { service: 10_000, ..Simulated::new(&clock) }; // 100 kpps
    let config = TrialConfig { duration: Nanos::from_millis(100), ..config("constant:200kpps") };
    let trial = trial(&config, &clock, &mut device);
    // 100 ms at 100 kpps and the queue of 256 get through.
    assert_eq!(trial.counts.sent, 20_000);
    assert!((10_200..10_300).contains(&trial.counts.received), "{:?}", trial.counts);
    assert_eq!(trial.split(&[], Recovery::default()).lost, trial.counts.lost());
}

#[test]
fn tells_damage_from_loss_duplicates_and_order() {
    let clock = Virtual::default();
    let tamper = |count: u64, octets: &[u8]| {
        let mut octets = octets.to_vec();
        match count % 10 {
            1 => vec![],
            2 => vec![octets.clone(), octets],
            3 => {
                octets[20] ^= 1;
                vec![octets]
            }
            4 => vec![octets, vec![0; 60]],
            _ => vec![octets],
        }
    };
    let mut device = Simulated { tamper, latency: 200_000, swap_each: 10, ..Simulated::new(&clock) };
    let counts = trial(&config("constant:20kpps"), &clock, &mut device).counts;
    assert_eq!((counts.sent, counts.received, counts.lost()), (400, 320, 80));
    assert_eq!((counts.duplicates, counts.corrupted, counts.foreign, counts.reordered), (40, 40, 40, 40));
}

/// A frame lost in the warm-up once made a rate fail.
#[test]
fn a_loss_in_the_warm_up_does_not_count_for_a_search() {
    let config = TrialConfig { warm_up: Nanos::from_millis(5), ..config("constant:20kpps") };
    let outcome = |tamper| {
        let clock = Virtual::default();
        let trial = trial(&config, &clock, &mut Simulated { tamper, ..Simulated::new(&clock) });
        assert_eq!((trial.counts.sent, trial.counts.lost()), (500, 10));
        // If the tester's own device lost 5 or 10 frames, these may be those of the warm-up.
        let of_device = |drops| {
            let device = Statistics { rx_ring_full: drops, ..Statistics::default() };
            Trial { device, ..trial.clone() }.outcome()
        };
        assert_eq!(of_device(5).lost + of_device(5).unsent, trial.outcome().lost);
        assert_eq!(of_device(5).lost, trial.outcome().lost);
        // Frames that the tester's own device lost were once due twice: as sent and as unsent.
        let due = |outcome: Outcome| outcome.sent + outcome.unsent;
        assert_eq!(due(of_device(20)), due(trial.outcome()));
        (trial.outcome().sent, trial.outcome().lost)
    };
    // 100 frames are due in the warm-up of 5 ms, and 400 after it. The device counts from 1.
    assert_eq!(
        outcome(|count, octets| if (10..20).contains(&count) { vec![] } else { vec![octets.to_vec()] }),
        (400, 0)
    );
    assert_eq!(
        outcome(|count, octets| if (96..106).contains(&count) { vec![] } else { vec![octets.to_vec()] }),
        (400, 5)
    );
}

#[test]
fn a_gap_of_the_tester_shows_in_all_and_not_in_clean() {
    let clock = Virtual::default();
    clock.jump[0].store(10_000_000, Relaxed);
    clock.jump[1].store(400_000, Relaxed);
    let trial = trial(&config("constant:20kpps"), &clock, &mut Simulated::new(&clock));
    assert_eq!(trial.gaps.len(), 1);
    assert!(trial.gaps[0].length() >= Nanos::from_micros(400));
    assert_eq!((trial.counts.unsent(), trial.counts.lost()), (0, 0));
    let split = trial.split(&[], Recovery::default());
    assert!(split.all.max_ns().unwrap() > 350_000, "latency counts from the intended time");
    assert!(split.clean.max_ns().unwrap() < 13_000);
    assert!((8..=12).contains(&split.excluded), "{}", split.excluded); // 400 + 100 + 20 us at 20 kpps
    assert!(trial.lateness.max_ns().unwrap() > 300_000);
    let tested = Gap { start: trial.start + Nanos::from_millis(5), end: trial.start + Nanos::from_millis(6) };
    let both = trial.split(&[tested], Recovery { fixed: Nanos::ZERO, share_ppm: 0 });
    assert!((8 + 20..=12 + 22).contains(&both.excluded), "{}", both.excluded);
}

#[test]
fn frames_that_are_too_late_are_unsent_not_skipped() {
    let clock = Virtual::default();
    clock.jump[0].store(10_000_000, Relaxed);
    clock.jump[1].store(5_000_000, Relaxed);
    let trial = trial(&config("constant:20kpps"), &clock, &mut Simulated::new(&clock));
    let counts = trial.counts;
    assert_eq!((counts.intended, counts.lost()), (400, 0));
    assert!((79..=81).contains(&counts.unsent_late), "{counts:?}"); // 5 ms less 1 ms at 20 kpps
    let split = trial.split(&[], Recovery::default());
    assert_eq!(split.unsent, counts.unsent_late);
    assert!(split.share_excluded().unwrap() > 0.2);
}

#[test]
fn a_full_transmit_ring_is_the_testers_failure() {
    let clock = Virtual::default();
    let mut device = Simulated { tx_room: 1, tx_cost: 10_000, ..Simulated::new(&clock) }; // 100 kpps at most
    let trial = trial(&config("constant:200kpps"), &clock, &mut device);
    assert!(trial.counts.unsent_tx_full > 1_500, "{:?}", trial.counts);
    assert_eq!(trial.counts.lost(), 0);
    let ceiling = trial.ceiling_pps().unwrap();
    assert!((90_000.0..100_000.0).contains(&ceiling), "{ceiling}");
    assert!(trial.gaps.is_empty(), "10 us a frame are within the threshold");
}

#[test]
fn time_in_tx_is_no_gap_until_it_is_more_than_its_frames_can_take() {
    for (tx_cost, is_gap) in [(4_000, false), (8_000, true)] {
        let clock = Virtual::default();
        let mut device = Simulated { tx_cost, ..Simulated::new(&clock) };
        let trial = trial(&config("burst:32@1ms"), &clock, &mut device);
        assert_eq!(!trial.gaps.is_empty(), is_gap, "{tx_cost}"); // 30 + 32 * 5 = 190 us
    }
}

#[test]
fn an_empty_pool_is_the_testers_failure() {
    let clock = Virtual::default();
    let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
    let held = pool.take().unwrap();
    let config = config("constant:20kpps");
    let trial = run(&config, &mut Simulated::new(&clock), 0, &mut pool, &clock, &AtomicBool::new(false)).unwrap();
    assert_eq!((trial.counts.sent, trial.counts.unsent_no_buffer), (0, 400));
    pool.give(held);
}

#[test]
fn stopping_keeps_what_was_measured() {
    let clock = Virtual::default();
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let stop = AtomicBool::new(true);
    let trial = run(&config("constant:20kpps"), &mut Simulated::new(&clock), 0, &mut pool, &clock, &stop).unwrap();
    assert!(trial.interrupted);
    assert_eq!(trial.counts.intended, 0);
    assert_eq!(trial.offered_pps(), None);
}

#[test]
fn refuses_what_cannot_be() {
    let clock = Virtual::default();
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let mut refused = |config: TrialConfig, queue| {
        let mut device = Simulated::new(&clock);
        run(&config, &mut device, queue, &mut pool, &clock, &AtomicBool::new(false)).unwrap_err().to_string()
    };
    let usual = config("constant:20kpps");
    assert!(refused(usual.clone(), 1).contains("queues"));
    assert!(refused(TrialConfig { max_frames: 10, ..usual.clone() }, 0).contains("shorten"));
    let layout = Layout { size: FrameSize::LARGEST, ..usual.layout };
    assert!(refused(TrialConfig { layout, ..usual }, 0).contains("larger frames"));
}

#[test]
fn a_search_finds_the_devices_capacity_and_documents_it() {
    let clock = Virtual::default();
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    // 100 kpps; steady loads above it overflow the queue of 16 within a trial.
    let mut device = Simulated { service: 10_000, room: 16, ..Simulated::new(&clock) };
    let trial_span = Nanos::from_millis(20);
    let search_config =
        SearchConfig { trial: trial_span, confirm_trial: trial_span, ..SearchConfig::short(10_000, 400_000) };
    let mut search = BinarySearch::new(search_config).unwrap();
    let mut last = None;
    while let Some(step) = search.next_step() {
        let config = TrialConfig { duration: step.duration, ..config(&format!("constant:{}pps", step.load_pps)) };
        let trial = run(&config, &mut device, 0, &mut pool, &clock, &AtomicBool::new(false)).unwrap();
        search.record(step, trial.outcome());
        last = Some((config, trial));
    }
    let lower = search.found().unwrap().lower_pps.unwrap();
    assert!((95_000..=101_000).contains(&lower), "{lower}"); // the queue hides 16 of 2000 frames
    let (config, trial) = last.unwrap();
    let latency = LatencyResult::new(
        &config,
        &trial,
        Err("the device is simulated".into()),
        Recovery::default(),
        Err("the device is simulated".into()),
    );
    assert!(latency.clean.quantiles[0].latency_ns.is_some());
    assert!(latency.all.quantiles[4].refused_because.as_deref().unwrap().contains("needs 36887"));
    let load = LoadResult::new(&search_config, &search, Ok(latency.clone()));
    assert_eq!(load.highest_loss_free_pps.value, Some(lower));
    let host = HostState::read(std::path::Path::new("/"), std::process::id(), std::process::id());
    for measured in [Measured::Latency(latency.into()), Measured::Load(load.into())] {
        let document = Document::new(host.clone(), measured);
        let text = serde_json::to_string(&document).unwrap();
        assert!(text.contains(r#""schema":"apus.bench/2""#));
        let back: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document);
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schema = serde_json::to_value(schemars::schema_for!(Document)).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&json), "{:?}", validator.iter_errors(&json).next());
        json["surprise"] = true.into();
        assert!(!validator.is_valid(&json));
    }
}

#[test]
fn what_is_lost_and_what_is_late_fail_a_goal_together() {
    let clock = Virtual::default();
    let mut pool = Pool::new(PoolConfig::default()).unwrap();
    let mut device = Simulated::new(&clock);
    let config = TrialConfig { duration: Nanos::from_millis(100), ..config("constant:20kpps") };
    let trial = run(&config, &mut device, 0, &mut pool, &clock, &AtomicBool::new(false)).unwrap();
    let mut result = LatencyResult::new(&config, &trial, Ok(&[]), Recovery::default(), Err("made up".into()));
    result.exclusion.share_excluded = Reading::known(0.0);
    let held = |lost: u64, late: u64| {
        let mut clean = Histogram::new();
        clean.record_n(10_000, 9_910 - lost);
        clean.record_n(90_000, late);
        let mut result = result.clone();
        (result.exclusion.intended, result.exclusion.lost_outside_gaps) = (9_910 + late, lost);
        let bound = Nanos::from_micros(50);
        result.judged(units::Quantile::P99, bound, &clean).goal.unwrap().held.value
    };
    // Each alone is less than one in a hundred.
    assert_eq!((held(0, 90), held(90, 0)), (Some(true), Some(true)));
    assert_eq!(held(90, 90), Some(false));
}
