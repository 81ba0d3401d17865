//! The clairvoyant's schedule: the minimum cost of being awake in time for packets whose arrivals are all known.
//!
//! A core is either awake or at rest. Each packet has a release, before which no core sees it, and a deadline, after
//! which it is late. A packet is in time if the core is awake at any moment between its release and its deadline. A
//! rest costs its `wake` once and its `slope` per nanosecond. Being awake costs [`Prices::awake`] per nanosecond, and
//! the packets' work is done in that time: for a time g awake with work c, the cost is at least awake · g and at least
//! c + d · g, where d is the largest `slope`. Being awake never costs less per nanosecond than d.
//!
//! **Duality.** Let m ≥ 0 be any price for a late packet. Every schedule with at most A late packets costs at least
//!
//! ```text
//!   g(m) = min over all schedules of (cost + m · late)  −  m · A
//! ```
//! because late − A ≤ 0 for a schedule with at most A late packets. g is concave, and its maximum is the bound. (In M.
//! J. Neely, "Stochastic Network Optimization", 2010, ch. 4, the length of a queue serves as this price; S. Boyd, L.
//! Vandenberghe, "Convex Optimization", 5.1.3, describes weak duality.) At the price m with the largest g, take the
//! optimal schedule whose number of late packets L is the largest that does not exceed A. It is allowed, so the true
//! optimum exceeds the bound by at most m · (A − L). Usually this is less than the price of one late packet; it is more
//! if packets can only be late in large groups.
//!
//! **One price.** Releases and deadlines have the same order. Let R(v) be the number of packets released by v, and X(u)
//! the number of packets whose deadline is before u. Then a rest from v to u makes the packets with indices R(v) to
//! X(u) late, and no others. Without the term m · late this is interval stabbing: wake at the earliest deadline and
//! serve all waiting packets. With that term it becomes a shortest-path problem. The nodes are the points at which it
//! can pay to begin or end a rest: the deadlines and the releases. To begin a rest later than the last release saves
//! its `slope`, at most d, per nanosecond and costs at least d per nanosecond awake.
//!
//! ```text
//!   S(u) = min ( min over rests a and v < u of  S(v) + slope_a (u − v) + wake_a + batch + m · max(0, X(u) − R(v)) ,
//!                min over v < u of              S(v) + max(0, awake (u − v) − work of the packets between) )
//! ```
//! Only the work of packets that are in time counts. There are at least `packets − A` of them.
//!
//! The `max` in each line has two cases. In either case, every term is the sum of a part that depends on v and a part
//! that depends on u. So the inner search is replaced by one running minimum per case: [`Resting`] holds those of the
//! first line, [`Sessions`] those of the second. Each v moves from one case to the other at most once. Apart from the
//! insertions into the ordered queue of [`Sessions`], the work for each m is O(packets).

use std::collections::VecDeque;

/// One packet, or several that are so close together that they are treated as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packets {
    /// When the first of these packets becomes visible, in nanoseconds.
    pub release: u64,
    /// The latest time at which the last of these packets can be taken without being late, in nanoseconds. At least
    /// `release`.
    pub deadline: u64,
    /// Number of packets in this entry.
    pub count: u64,
}

/// A way to rest: an idle state and its costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rest {
    /// Cost per nanosecond of rest.
    pub slope: f64,
    /// Cost of going to rest and waking again.
    pub wake: f64,
}

/// The prices of a core's activities. All use the same unit of cost, which the caller chooses.
#[derive(Clone, PartialEq, Debug)]
pub struct Prices {
    /// Cost per nanosecond of being awake. At least the `slope` of each of `rests`.
    pub awake: f64,
    /// The idle states in which the core can rest. If there are none, the core stays awake.
    pub rests: Vec<Rest>,
    /// Cost of the work for one packet, in addition to what the dearest of `rests` costs for as long as the work takes.
    /// If the core stays awake long enough, the cost of being awake already includes this work.
    pub packet: f64,
    /// Cost of taking the waiting packets after a rest, whatever their number.
    pub batch: f64,
}

/// The packets of one core. Releases and deadlines never decrease from one entry to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Line {
    /// Start and end of the window that the cost covers, in nanoseconds. The core is awake at the start.
    pub window: (u64, u64),
    /// The packets. Their deadlines lie within the window.
    pub packets: Vec<Packets>,
}

impl Line {
    /// Appends a packet that is released no earlier than those before it. Packets whose releases are less than `close`
    /// nanoseconds apart become one entry, which is in time if the core is awake at any moment from the first release
    /// to the last deadline. This makes the bound lower, never higher. A deadline that is earlier than the previous one
    /// is raised to the previous one, with the same effect.
    pub fn push(&mut self, mut packet: Packets, close: u64) {
        if let Some(last) = self.packets.last_mut() {
            packet.deadline = packet.deadline.max(last.deadline);
            debug_assert!(packet.release >= last.release, "{packet:?} after {last:?}");
            if packet.release - last.release < close {
                last.deadline = packet.deadline;
                last.count += packet.count;
                return;
            }
        }
        self.packets.push(packet);
    }

    fn count(&self) -> u64 {
        self.packets.iter().map(|packets| packets.count).sum()
    }
}

/// The best lower bound that the search found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Least {
    /// The bound: no schedule with at most the allowed number of late packets costs less.
    pub cost: f64,
    /// The price of a late packet that gives this bound.
    pub price: f64,
}

/// How close to the dual's maximum the search stops, as a share of the maximum.
const CLOSE_ENOUGH: f64 = 1e-4;
/// The maximum number of evaluations of the dual. Each gives a valid bound; usually ten are enough.
const EVALUATIONS: usize = 40;

/// Computes the minimum cost of all schedules with at most `allowed` late packets over all lines. `fixed` is a cost
/// that the caller adds in any case: the search's precision is relative to the total.
pub fn least(lines: &[Line], prices: &Prices, allowed: f64, fixed: f64) -> Least {
    debug_assert!(prices.rests.iter().all(|rest| rest.slope <= prices.awake), "resting costs more than {prices:?}");
    let packets: u64 = lines.iter().map(Line::count).sum();
    let work = prices.packet * (packets as f64 - allowed).max(0.0);
    let ready: Vec<Ready<'_>> = lines.iter().map(Ready::new).collect();
    let evaluate = |price: f64| {
        let sum = ready.iter().fold(Value::ZERO, |sum, line| sum.plus(line.evaluate(prices, price)));
        Support { price, value: work + sum.cost - price * allowed, slope: sum.late - allowed }
    };
    let (mut low, mut best) = (evaluate(0.0), None);
    let found = |best: &mut Option<Support>, at: Support| {
        if best.is_none_or(|known: Support| at.value > known.value) {
            *best = Some(at);
        }
    };
    found(&mut best, low);
    // At this price no packet is late, because even a wake-up for a single packet costs less.
    let dearest = prices.rests.iter().map(|rest| rest.wake).fold(0.0, f64::max) + prices.batch;
    let mut high = evaluate(1.0 + 1.001 * dearest);
    found(&mut best, high);
    for _ in 2..EVALUATIONS {
        if low.slope <= 0.0 || high.slope >= 0.0 {
            break;
        }
        // Where the two tangents meet; the largest value lies below that point.
        let price =
            (high.value - low.value + low.slope * low.price - high.slope * high.price) / (low.slope - high.slope);
        let ceiling = low.value + low.slope * (price - low.price);
        let value = best.map_or(0.0, |best| best.value);
        if ceiling - value <= CLOSE_ENOUGH * (value + fixed).abs() || price <= low.price || price >= high.price {
            break;
        }
        let at = evaluate(price);
        found(&mut best, at);
        if at.slope > 0.0 { low = at } else { high = at }
    }
    best.map_or(Least { cost: work, price: 0.0 }, |best| Least { cost: best.value, price: best.price })
}

/// The dual at one price, and its tangent there.
#[derive(Clone, Copy, Debug)]
struct Support {
    price: f64,
    value: f64,
    slope: f64,
}

/// A cost, and the number of packets that are late at this cost.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Value {
    cost: f64,
    late: f64,
}

impl Value {
    const ZERO: Self = Self { cost: 0.0, late: 0.0 };
    const NONE: Self = Self { cost: f64::INFINITY, late: 0.0 };

    const fn plus(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, late: self.late + other.late }
    }
    const fn costs(self, more: f64) -> Self {
        Self { cost: self.cost + more, late: self.late }
    }
    const fn min(self, other: Self) -> Self {
        if other.cost < self.cost { other } else { self }
    }
}

/// A line with the running sums of its packets.
struct Ready<'a> {
    line: &'a Line,
    /// `before[n]` is the number of packets in the first n entries.
    before: Vec<f64>,
}

/// The minimum cost of a schedule that ends a rest now, in two forms. `paid` includes all work. `owed` leaves out the
/// work for the waiting packets that are in time: a core that stays awake does this work in its time awake.
#[derive(Clone, Copy, Debug)]
struct Starts {
    paid: Value,
    owed: Value,
}

impl Starts {
    const NONE: Self = Self { paid: Value::NONE, owed: Value::NONE };
}

/// A sliding-window minimum: a queue of the entries that can still become the minimum, in ascending order of value.
#[derive(Debug, Default)]
struct Window(VecDeque<(usize, Value)>);

impl Window {
    fn push(&mut self, number: usize, value: Value) {
        while self.0.back().is_some_and(|(_, last)| last.cost >= value.cost) {
            self.0.pop_back();
        }
        self.0.push_back((number, value));
    }
    fn drop_before(&mut self, number: usize) {
        while self.0.front().is_some_and(|(first, _)| *first < number) {
            self.0.pop_front();
        }
    }
    fn least(&self) -> Value {
        self.0.front().map_or(Value::NONE, |(_, value)| *value)
    }
}

/// Awake periods ("sessions") that have not ended.
///
/// A session of length g with work c costs max(awake · g, c). If the core works all the time, the cost is c; if it
/// waits for some of the time, the cost is awake · g. Let f(v) be the price of being awake up to v, minus the work that
/// has arrived by v. Up to v, a session that began at u costs the larger of `paid` and `owed` + f(v). `paid` is the
/// larger until f(v) reaches the threshold `paid` − `owed`.
#[derive(Debug)]
struct Sessions {
    /// Sessions below their threshold, in ascending order of threshold and price. A session with a lower threshold and
    /// a higher price than another is never the cheaper one, so it is dropped.
    working: VecDeque<(f64, Starts)>,
    /// The lowest `owed` of the sessions that have reached their threshold.
    waiting: Value,
}

impl Sessions {
    /// The cost of the cheapest session so far.
    fn least(&mut self, f: f64) -> Value {
        while let Some((_, first)) = self.working.front().filter(|(threshold, _)| *threshold <= f) {
            self.waiting = self.waiting.min(first.owed);
            self.working.pop_front();
        }
        let working = self.working.front().map_or(Value::NONE, |(_, first)| first.paid);
        working.min(self.waiting.costs(f))
    }

    fn begin(&mut self, starts: Starts) {
        let threshold = starts.paid.cost - starts.owed.cost;
        if !threshold.is_finite() {
            return;
        }
        let place = self.working.partition_point(|(known, _)| *known < threshold);
        if self.working.get(place).is_some_and(|(_, better)| better.paid.cost <= starts.paid.cost) {
            return;
        }
        let mut from = place;
        while from > 0 && self.working[from - 1].1.paid.cost >= starts.paid.cost {
            from -= 1;
        }
        self.working.drain(from..place);
        self.working.insert(from, (threshold, starts));
    }
}

/// Rests in one idle state that have begun.
#[derive(Debug)]
struct Resting {
    rest: Rest,
    /// The lowest cost of the rests that have already made packets late.
    old: Value,
    /// Costs of the rests that have not made any packet late yet, to compute [`Starts::paid`] and [`Starts::owed`].
    recent: (Window, Window),
}

/// A point at which the core is awake.
#[derive(Clone, Copy, Debug)]
struct Node {
    time: f64,
    value: Value,
    /// Number of entries released by `time`.
    released: usize,
}

impl<'a> Ready<'a> {
    fn new(line: &'a Line) -> Self {
        let mut sum = 0.0;
        let before = std::iter::once(0.0).chain(line.packets.iter().map(|packets| {
            sum += packets.count as f64;
            sum
        }));
        Self { line, before: before.collect() }
    }

    /// The minimum of cost + `price` · late over all schedules, without the packets' work.
    fn evaluate(&self, prices: &Prices, price: f64) -> Value {
        let packets = &self.line.packets;
        let (start, end) = self.line.window;
        let time_of = |at: u64| at.saturating_sub(start) as f64;
        // With only one way to rest, it never pays to wake before the next deadline.
        let several = prices.rests.len() > 1;
        let dearest = prices.rests.iter().map(|rest| rest.wake).fold(0.0, f64::max) + prices.batch;
        let mut resting: Vec<Resting> = prices
            .rests
            .iter()
            .map(|rest| Resting { rest: *rest, old: Value::NONE, recent: <(Window, Window)>::default() })
            .collect();
        let mut nodes: Vec<Node> = Vec::with_capacity(2 * packets.len() + 2);
        // The first rest may have begun, and its wake-up been paid, before the window.
        nodes.push(Node { time: 0.0, value: Value { cost: -dearest, late: 0.0 }, released: 0 });
        // Awake from the beginning, or since some later point.
        let mut sessions = Sessions { working: VecDeque::new(), waiting: Value::ZERO };
        let (mut released, mut due, mut kept, mut seen) = (0, 0, 0, 0);
        loop {
            let next_release = packets.get(released).map(|packets| packets.release);
            let next_deadline = packets.get(due).map(|packets| packets.deadline);
            let Some(now) = next_release.into_iter().chain(next_deadline).min() else { break };
            while packets.get(released).is_some_and(|packets| packets.release <= now) {
                released += 1;
            }
            let time = time_of(now);
            let late = self.before[due];
            let mut begins = Starts::NONE;
            let at_deadline = next_deadline == Some(now);
            if at_deadline || several {
                while kept < nodes.len() && nodes[kept].released <= due {
                    self.put_down(&nodes[kept], &mut resting, price);
                    kept += 1;
                }
                for way in &mut resting {
                    for (number, node) in nodes.iter().enumerate().skip(seen.max(kept)) {
                        let value = node.value.costs(-way.rest.slope * node.time);
                        way.recent.0.push(number, value);
                        way.recent.1.push(number, value.costs(prices.packet * self.before[node.released]));
                    }
                    way.recent.0.drop_before(kept);
                    way.recent.1.drop_before(kept);
                    let wakes = way.rest.slope * time + way.rest.wake;
                    let old = Value { cost: way.old.cost + price * late, late: way.old.late + late };
                    // The work of late packets is not counted.
                    let old_owed = old.costs(prices.packet * late);
                    let paid = old.min(way.recent.0.least()).costs(wakes + prices.batch);
                    begins.paid = begins.paid.min(paid);
                    begins.owed = begins.owed.min(old_owed.min(way.recent.1.least()).costs(wakes));
                }
                seen = nodes.len();
            }
            let goes_on = sessions.least(prices.awake * time - prices.packet * self.before[released]);
            let value = begins.paid.min(goes_on);
            sessions.begin(Starts { owed: begins.owed.costs(-prices.awake * time), ..begins });
            nodes.push(Node { time, value, released });
            while packets.get(due).is_some_and(|packets| packets.deadline <= now) {
                due += 1;
            }
        }
        let time = time_of(end);
        let all = self.before[packets.len()];
        let to_the_end = sessions.least(prices.awake * time - prices.packet * all);
        // The last rest needs no wake-up.
        nodes.iter().fold(to_the_end, |least, node| {
            let late = all - self.before[node.released];
            let slope = prices.rests.iter().map(|rest| rest.slope).fold(prices.awake, f64::min);
            let rests = slope * (time - node.time) + price * late;
            least.min(Value { cost: node.value.cost + rests, late: node.value.late + late })
        })
    }

    /// Adds the rest that begins at `node` to those that have made packets late.
    fn put_down(&self, node: &Node, resting: &mut [Resting], price: f64) {
        let released = self.before[node.released];
        for way in resting {
            let cost = node.value.cost - way.rest.slope * node.time - price * released;
            way.old = way.old.min(Value { cost, late: node.value.late - released });
        }
    }
}

#[cfg(test)]
mod tests;
