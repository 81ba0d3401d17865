//! Compares the shortest path with every schedule on a fine grid, and the dual with every set of late packets.

use proptest::prelude::*;

use super::*;

/// End of the time grid in the small test cases.
const END: u64 = 8;

/// The cost of a schedule, and its number of late packets.
#[derive(Clone, Copy, Debug)]
struct Tried {
    cost: f64,
    late: u64,
}

/// How an interval between two polls was spent.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Spent {
    Awake,
    Rest(usize),
}

/// Tries every set of polls on the grid with every way to spend the time between them.
struct Search<'a> {
    line: &'a Line,
    prices: &'a Prices,
    /// The times of the polls, and how the interval before each was spent. The first is the start of the window.
    polls: Vec<(u64, Spent)>,
    all: Vec<Tried>,
}

impl Search<'_> {
    fn run(&mut self) {
        self.all.push(self.judge());
        let last = self.polls.last().unwrap().0;
        for time in last + 1..self.line.window.1 {
            let ways = (0..self.prices.rests.len()).map(Spent::Rest).chain([Spent::Awake]);
            for way in ways {
                self.polls.push((time, way));
                self.run();
                self.polls.pop();
            }
        }
    }

    /// The true cost. Each session costs its time awake, or its work and as much time in the dearest idle state,
    /// whichever is more; each wake-up costs its price. After the last poll the core rests in the cheapest state,
    /// without the cost of a wake-up.
    fn judge(&self) -> Tried {
        let Prices { awake, rests, packet, batch } = self.prices;
        let dearest = rests.iter().map(|rest| rest.slope).fold(0.0, f64::max);
        let (mut cost, mut late) = (0.0, 0);
        let mut taken = vec![false; self.line.packets.len()];
        let (mut begun, mut work, mut before) = (0u64, 0.0f64, 0u64);
        let session = |from: u64, to: u64, work: f64| {
            let time = (to - from) as f64;
            (awake * time).max(work + dearest * time)
        };
        for (number, (time, way)) in self.polls.iter().enumerate() {
            if let Spent::Rest(rest) = way
                && number > 0
            {
                cost += session(begun, before, work) + rests[*rest].wake + rests[*rest].slope * (time - before) as f64;
                (begun, work) = (*time, 0.0);
            }
            let awake_since = if number > 0 && *way == Spent::Awake { before } else { *time };
            let mut got = 0;
            for (index, packets) in self.line.packets.iter().enumerate() {
                if !taken[index] && packets.release <= *time {
                    taken[index] = true;
                    got += packets.count;
                    // A core that is awake takes a packet as soon as it is released.
                    late += if packets.deadline < awake_since { packets.count } else { 0 };
                }
            }
            work += got as f64 * packet + if got > 0 { *batch } else { 0.0 };
            before = *time;
        }
        let rest = rests.iter().map(|rest| rest.slope).fold(*awake, f64::min);
        cost += session(begun, before, work) + rest * (self.line.window.1 - before) as f64;
        late += self.line.packets.iter().zip(&taken).filter(|(_, taken)| !**taken).map(|(p, _)| p.count).sum::<u64>();
        Tried { cost, late }
    }
}

fn tried(line: &Line, prices: &Prices) -> Vec<Tried> {
    let mut search = Search { line, prices, polls: vec![(0, Spent::Awake)], all: Vec::new() };
    search.run();
    search.all
}

/// Lines on the grid with monotone releases and deadlines.
fn lines() -> impl Strategy<Value = Line> {
    prop::collection::vec((1..END - 1, 0u64..4, 1u64..3), 0..6).prop_map(|mut packets| {
        packets.sort_unstable();
        let mut line = Line { window: (0, END), packets: Vec::new() };
        for (release, slack, count) in packets {
            line.push(Packets { release, deadline: (release + slack).min(END - 1), count }, 0);
        }
        line
    })
}

/// Prices with up to two idle states. Of two states, the deeper one costs more to enter and less to stay in.
fn prices(work: bool) -> impl Strategy<Value = Prices> {
    let work = if work { 30u32 } else { 1 };
    (1u32..60, 0u32..200, 0u32..200, 0u32..30, 0usize..3, 0..work, 0..work).prop_map(
        |(awake, wake, deeper, slope, count, packet, batch)| {
            let slope = f64::from(slope.min(awake));
            let rests = [
                Rest { slope: if count == 1 { 0.0 } else { slope }, wake: f64::from(wake) },
                Rest { slope: 0.0, wake: f64::from(wake + deeper) },
            ];
            let (packet, batch) = (f64::from(packet), f64::from(batch));
            Prices { awake: f64::from(awake), rests: rests[..count].into(), packet, batch }
        },
    )
}

/// The maximum cost of the first wake-up, for which the path does not pay.
fn first(prices: &Prices) -> f64 {
    prices.rests.iter().map(|rest| rest.wake).fold(0.0, f64::max) + prices.batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No schedule on the grid, whichever packets it leaves late, costs less than the bound.
    #[test]
    fn no_schedule_costs_less(line in lines(), prices in prices(true), allowed in 0u64..6) {
        let bound = least(std::slice::from_ref(&line), &prices, allowed as f64, 0.0);
        let optimum = tried(&line, &prices).into_iter().filter(|tried| tried.late <= allowed);
        let optimum = optimum.map(|tried| tried.cost).fold(f64::INFINITY, f64::min);
        prop_assert!(bound.cost <= optimum + 1e-6, "{bound:?} above {optimum}: {line:?} {prices:?}");
    }

    /// Without work, the path costs as much as the cheapest schedule at the same price of a late packet, except for the
    /// first wake-up.
    #[test]
    fn the_path_is_the_cheapest(line in lines(), prices in prices(false), price in 0u32..300) {
        let price = f64::from(price);
        let best = tried(&line, &prices).into_iter().map(|tried| tried.cost + price * tried.late as f64);
        let best = best.fold(f64::INFINITY, f64::min);
        let path = Ready::new(&line).evaluate(&prices, price);
        prop_assert!(path.cost <= best + 1e-6, "{path:?} above {best}");
        prop_assert!(path.cost + first(&prices) >= best - 1e-6, "{path:?} below {best}: {line:?} {prices:?}");
    }

    /// With several cores, no split of the late packets among them costs less than the bound.
    #[test]
    fn cores_share_what_may_be_late(a in lines(), b in lines(), prices in prices(true), allowed in 0u64..6) {
        let bound = least(&[a.clone(), b.clone()], &prices, allowed as f64, 0.0);
        let cheapest = |line: &Line, allowed: u64| {
            tried(line, &prices).into_iter().filter(|t| t.late <= allowed).map(|t| t.cost).fold(f64::INFINITY, f64::min)
        };
        let optimum = (0..=allowed).map(|part| cheapest(&a, part) + cheapest(&b, allowed - part));
        let optimum = optimum.fold(f64::INFINITY, f64::min);
        prop_assert!(bound.cost <= optimum + 1e-6, "{bound:?} above {optimum}");
    }
}

/// Packets with deadlines in any order, as they arrive: no two are one entry.
fn raw_packets() -> impl Strategy<Value = Vec<Packets>> {
    prop::collection::vec((0..RAW_END - 1, 0u64..6, 1u64..4), 0..7).prop_map(|mut packets| {
        packets.sort_unstable_by_key(|(release, ..)| *release);
        let packet = |(release, slack, count): (u64, u64, u64)| Packets {
            release,
            deadline: (release + slack).min(RAW_END - 1),
            count,
        };
        packets.into_iter().map(packet).collect()
    })
}

/// End of the time grid in the test below. The end of the other grid would make it too slow.
const RAW_END: u64 = 6;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Neither treating close packets as one, nor three idle states whose costs are in no order, raises the bound above
    /// the cheapest schedule for the packets as they arrived.
    #[test]
    fn close_packets_and_any_idle_states_leave_it_a_bound(
        packets in raw_packets(), close in 0u64..5, allowed in 0u64..8, awake in 0u32..40,
        rests in prop::collection::vec((0u32..60, 0u32..150), 0..4), packet in 0u32..40, batch in 0u32..40,
    ) {
        let rests = rests.into_iter().map(|(slope, wake)| Rest { slope: slope.min(awake).into(), wake: wake.into() });
        let prices = Prices { awake: awake.into(), rests: rests.collect(), packet: packet.into(), batch: batch.into() };
        let raw = Line { window: (0, RAW_END), packets: packets.clone() };
        let mut line = Line { window: (0, RAW_END), packets: Vec::new() };
        packets.iter().for_each(|packet| line.push(*packet, close));
        let optimum = tried(&raw, &prices).into_iter().filter(|tried| tried.late <= allowed);
        let optimum = optimum.map(|tried| tried.cost).fold(f64::INFINITY, f64::min);
        let bound = least(std::slice::from_ref(&line), &prices, allowed as f64, 0.0);
        prop_assert!(bound.cost <= optimum + 1e-6, "{bound:?} above {optimum}: {raw:?} {line:?} {prices:?}");
    }
}

/// Work costs what it costs above the dearest idle state, so no time awake is free, however much work there is.
#[test]
fn staying_awake_costs_more_than_rest_even_with_much_work() {
    let line = Line { window: (0, 6), packets: vec![Packets { release: 4, deadline: 5, count: 2 }] };
    let rests = vec![Rest { slope: 16.0, wake: 0.0 }];
    let prices = Prices { awake: 35.0, rests, packet: 28.0, batch: 0.0 };
    let optimum = tried(&line, &prices).into_iter().filter(|tried| tried.late == 0);
    let optimum = optimum.map(|tried| tried.cost).fold(f64::INFINITY, f64::min);
    // Rest for 4, or 5, take both packets, and rest for the remaining 2, or 1.
    assert_eq!(optimum, 6.0 * 16.0 + 2.0 * 28.0);
    assert!(least(&[line], &prices, 0.0, 0.0).cost <= optimum);
}

const ONE_REST: Rest = Rest { slope: 0.0, wake: 100.0 };

/// One packet every `gap`; each packet can wait `slack`.
fn regular(count: u64, gap: u64, slack: u64) -> Line {
    let packets = (1..=count).map(|n| Packets { release: n * gap, deadline: n * gap + slack, count: 1 });
    Line { window: (0, (count + 1) * gap + slack), packets: packets.collect() }
}

#[test]
fn a_wake_up_serves_all_that_came_while_the_first_could_wait() {
    // Packets come every 10 and wait at most 45, so each wake-up serves five. The first wake-up is free.
    let prices = Prices { awake: 1_000.0, rests: vec![ONE_REST], packet: 0.0, batch: 0.0 };
    assert_eq!(least(&[regular(1_000, 10, 45)], &prices, 0.0, 0.0).cost, 199.0 * 100.0);
    // A tenth may be late, which saves about a tenth of the wake-ups, each for five packets.
    let some = least(&[regular(1_000, 10, 45)], &prices, 100.0, 0.0);
    assert!(some.cost < 181.0 * 100.0 && some.cost > 170.0 * 100.0, "{some:?}");
    // All may be late.
    assert_eq!(least(&[regular(1_000, 10, 45)], &prices, 1_000.0, 0.0).cost, -100.0);
}

#[test]
fn where_waking_costs_more_than_staying_awake_the_core_stays_awake() {
    let prices = Prices { awake: 1.0, rests: vec![ONE_REST], packet: 0.0, batch: 0.0 };
    let line = regular(1_000, 10, 15);
    let bound = least(std::slice::from_ref(&line), &prices, 0.0, 0.0);
    // The core is awake from the first deadline to the last release. The first wake-up is free.
    assert_eq!(bound.cost, (10_000.0 - 25.0) * 1.0);
    // The work fits into the time awake, so it adds no cost.
    let busy = Prices { packet: 4.0, ..prices };
    assert_eq!(least(&[line], &busy, 0.0, 0.0).cost, bound.cost);
}

#[test]
fn nothing_that_comes_costs_nothing() {
    let line = Line { window: (0, 1_000), packets: Vec::new() };
    let prices = Prices { awake: 1.0, rests: vec![ONE_REST], packet: 3.0, batch: 2.0 };
    assert!(least(&[line], &prices, 0.0, 0.0).cost <= 0.0);
    assert!(least(&[], &prices, 0.0, 0.0).cost <= 0.0);
}

#[test]
fn close_packets_become_one_that_can_be_served_whenever_one_of_them_can() {
    let mut line = Line { window: (0, 100), packets: Vec::new() };
    for (release, deadline) in [(10, 30), (12, 32), (15, 31), (20, 45)] {
        line.push(Packets { release, deadline, count: 1 }, 6);
    }
    let expected = [Packets { release: 10, deadline: 32, count: 3 }, Packets { release: 20, deadline: 45, count: 1 }];
    assert_eq!(line.packets, expected);
}
