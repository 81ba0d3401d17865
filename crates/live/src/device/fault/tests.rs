use proptest::prelude::*;

use super::super::wakeup::readable;
use super::*;
use crate::device::memory::{LinkConfig, MemoryDevice, MemoryHandle};
use crate::pool::PoolConfig;

const ALL: FaultRates = FaultRates {
    drop_ppm: 100_000,
    duplicate_ppm: 100_000,
    corrupt_ppm: 100_000,
    truncate_ppm: 100_000,
    delay_ppm: 100_000,
    reorder_ppm: 100_000,
    hold_polls: 3,
};

struct Bed {
    port: Faulty<MemoryDevice>,
    meter: FaultMeter,
    far: MemoryHandle,
    pool: Pool,
    frames: Vec<Frame>,
}

impl Bed {
    fn new(plan: FaultPlan) -> Self {
        let config = LinkConfig { ring: 4096, longest_frame: 64, ..LinkConfig::default() };
        let (port, far) = MemoryDevice::scripted("p", config).unwrap();
        let (port, meter) = Faulty::new(port, plan).unwrap();
        let pool = Pool::new(PoolConfig { frames: 512, ..PoolConfig::default() }).unwrap();
        Self { port, meter, far, pool, frames: Vec::new() }
    }

    fn rx_only(rx: FaultRates) -> Self {
        Self::new(FaultPlan { seed: 1, rx, ..FaultPlan::default() })
    }

    /// Lets frames with these numbers arrive.
    fn arrive(&self, numbers: std::ops::Range<u32>) {
        for n in numbers {
            assert!(self.far.push(0, &[&n.to_be_bytes()[..], &[0; 28]].concat(), None));
        }
    }

    fn rx(&mut self, room: usize) -> Vec<u32> {
        let count = self.port.rx(0, &mut self.pool, &mut self.frames, room);
        assert!(count <= room);
        let number = |f: &Frame| u32::from_be_bytes(self.pool.bytes(f)[..4].try_into().unwrap());
        self.frames[self.frames.len() - count..].iter().map(number).collect()
    }

    fn tx(&mut self) -> usize {
        self.port.tx(0, &mut self.pool, &mut self.frames)
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.far.take_sent(0)).collect()
    }

    fn balance(&self) {
        let (rx, tx) = (self.meter.rx(), self.meter.tx());
        let inside = |c: FaultCounts| c.seen + c.duplicated - c.passed - c.dropped - c.lost;
        assert_eq!(inside(rx) + inside(tx), self.port.held() as u64);
        assert_eq!(self.pool.free() + self.frames.len() + self.port.held(), 512);
    }
}

/// Injects all faults at once in both directions, until all frames have been sent. Returns the sent frames and the
/// counts.
fn story(seed: u64) -> (Vec<Vec<u8>>, FaultCounts, FaultCounts) {
    let mut bed = Bed::new(FaultPlan { seed, rx: ALL, tx: ALL, fail_after: None });
    bed.arrive(0..2000);
    for _ in 0..200 {
        bed.port.rx(0, &mut bed.pool, &mut bed.frames, 32);
        bed.balance();
        bed.tx();
        bed.balance();
    }
    assert_eq!((bed.port.held(), bed.pool.free()), (0, 512));
    (bed.sent(), bed.meter.rx(), bed.meter.tx())
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let (sent, rx, tx) = story(42);
    assert_eq!((sent.clone(), rx, tx), story(42));
    assert_ne!(sent, story(43).0);
    assert_eq!(
        (rx.seen, rx.passed, tx.seen, tx.passed),
        (2000, 2000 + rx.duplicated - rx.dropped, rx.passed, sent.len() as u64)
    );
    // Each fault has a rate of 10 %: about 200 of 2,000 frames, with a standard deviation of 13. Reordering affects
    // fewer frames.
    for n in [rx.dropped, rx.duplicated, rx.corrupted, rx.truncated, rx.delayed, tx.dropped, tx.delayed] {
        assert!((130..270).contains(&n), "{rx:?} {tx:?}");
    }
    assert!(rx.reordered > 80 && rx.lost == 0 && rx.not_duplicated == 0);
}

#[test]
fn each_fault_alone_does_what_it_says() {
    let sure = FaultRates { hold_polls: 2, ..FaultRates::default() };
    let mut bed = Bed::rx_only(FaultRates { drop_ppm: MILLION, ..sure });
    bed.arrive(0..5);
    assert_eq!((bed.rx(32), bed.meter.rx().dropped), (vec![], 5));

    let mut bed = Bed::rx_only(FaultRates { duplicate_ppm: MILLION, ..sure });
    bed.arrive(0..3);
    assert_eq!((bed.rx(3), bed.rx(32)), (vec![0, 0, 1], vec![1, 2, 2]));

    let mut bed = Bed::rx_only(FaultRates { corrupt_ppm: MILLION, ..sure });
    bed.far.push(0, &[0; 32], None);
    bed.rx(1);
    assert_eq!(bed.pool.bytes(&bed.frames[0]).iter().map(|b| b.count_ones()).sum::<u32>(), 1);

    let mut bed = Bed::rx_only(FaultRates { truncate_ppm: MILLION, ..sure });
    bed.far.push(0, &[0; 2], None);
    bed.far.push(0, &[0; 1], None);
    bed.port.rx(0, &mut bed.pool, &mut bed.frames, 2);
    assert_eq!((bed.frames[0].len(), bed.frames[1].len(), bed.meter.rx().truncated), (1, 1, 1));

    let mut bed = Bed::rx_only(FaultRates { delay_ppm: MILLION, ..sure });
    bed.arrive(0..2);
    assert!(!readable(bed.port.wait_handle(0).unwrap()));
    assert!(bed.rx(32).is_empty());
    assert!(readable(bed.port.wait_handle(0).unwrap()), "frames are held");
    assert_eq!((bed.rx(32), bed.rx(32)), (vec![], vec![0, 1]));
    assert!(!readable(bed.port.wait_handle(0).unwrap()));

    let mut bed = Bed::rx_only(FaultRates { reorder_ppm: MILLION, ..sure });
    bed.arrive(0..5);
    assert_eq!((bed.rx(32), bed.meter.rx().reordered), (vec![1, 0, 3, 2], 2));
    assert_eq!((bed.rx(32), bed.rx(32), bed.meter.rx().reordered), (vec![], vec![4], 2));
}

#[test]
fn a_copy_without_a_slot_is_counted() {
    let mut bed = Bed::rx_only(FaultRates { duplicate_ppm: MILLION, ..FaultRates::default() });
    // With an odd number of free slots, there is none for the copy of the last frame.
    bed.frames.extend(bed.pool.take());
    bed.arrive(0..512);
    while bed.pool.free() > 0 {
        bed.rx(32);
    }
    bed.balance();
    assert_eq!(bed.meter.rx().not_duplicated + bed.meter.rx().duplicated, bed.meter.rx().seen);
    assert!(bed.meter.rx().not_duplicated > 0);
}

#[test]
fn a_port_is_lost_after_exactly_n_frames() {
    let mut bed = Bed::new(FaultPlan { fail_after: Some((10, Outage::Lost)), ..FaultPlan::default() });
    bed.arrive(0..20);
    assert_eq!(bed.rx(6).len(), 6);
    assert_eq!((bed.tx(), bed.sent().len()), (6, 4));
    assert!(matches!(bed.port.health(), Err(Error::PortLost { .. })));
    assert!(bed.port.arm(0).is_err() && readable(bed.port.wait_handle(0).unwrap()));
    assert_eq!((bed.rx(6), bed.meter.tx().lost), (vec![], 2));
    bed.balance();
}

#[test]
fn a_link_is_down_for_a_while() {
    let down = Outage::Down { health_checks: 2 };
    let mut bed = Bed::new(FaultPlan { fail_after: Some((4, down)), ..FaultPlan::default() });
    bed.arrive(0..6);
    assert!(bed.rx(6).is_empty(), "the first four wait for the link");
    assert_eq!((bed.meter.rx().lost, bed.port.backlog(0)), (2, 0));
    bed.arrive(6..8);
    assert_eq!((bed.rx(6), bed.meter.rx().lost), (vec![], 4));
    assert_eq!((bed.port.health().unwrap(), bed.port.health().unwrap()), (Health::Down, Health::Down));
    assert_eq!(bed.port.health().unwrap(), Health::Up);
    bed.arrive(8..10);
    assert_eq!(bed.rx(32), [0, 1, 2, 3, 8, 9]);
    bed.balance();
}

#[test]
fn refuses_plans_that_cannot_be() {
    let port = || MemoryDevice::scripted("p", LinkConfig::default()).unwrap().0;
    for bad in [
        FaultRates { drop_ppm: MILLION + 1, ..FaultRates::default() },
        FaultRates { delay_ppm: 1, ..FaultRates::default() },
    ] {
        assert!(Faulty::new(port(), FaultPlan { rx: bad, ..FaultPlan::default() }).is_err());
        assert!(Faulty::new(port(), FaultPlan { tx: bad, ..FaultPlan::default() }).is_err());
    }
}

proptest! {
    #[test]
    fn every_frame_is_accounted_for(
        seed: u64, rates in proptest::array::uniform6(0..=MILLION), hold_polls in 1u32..5,
        after in proptest::option::of((0u64..100, proptest::option::of(0u32..3))),
        steps in proptest::collection::vec((0u8..4, 1usize..40), 1..60),
    ) {
        let [drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm] = rates;
        let rx = FaultRates { drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm, hold_polls };
        let outage = |checks: Option<u32>| checks.map_or(Outage::Lost, |health_checks| Outage::Down { health_checks });
        let fail_after = after.map(|(n, checks)| (n, outage(checks)));
        let mut bed = Bed::new(FaultPlan { seed, rx, tx: rx, fail_after });
        for (step, n) in steps {
            match step {
                0 => bed.arrive(0..n as u32),
                1 => { bed.port.rx(0, &mut bed.pool, &mut bed.frames, n); }
                2 => { bed.tx(); }
                _ => { let _ = bed.port.health(); }
            }
            bed.balance();
        }
    }
}

#[test]
fn splitmix64_is_the_published_one() {
    // First outputs for seed 1234567, as in the Java and C implementations
    // (rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64).
    let mut rng = SplitMix64(1_234_567);
    assert_eq!([rng.next(), rng.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}
