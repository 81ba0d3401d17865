//! The prices that the bound takes from a machine's model: minimum powers in microwatts and energies in femtojoules.

use units::{Hertz, Nanos};

use super::schedule::{Line, Prices, Rest};
use crate::hw::cstate::{Gate, IdleState};
use crate::hw::interrupt::Handling;
use crate::hw::pstate::PStateModel;
use crate::scenario::{Host, Scenario, Worker};
use crate::world::BURST;

/// The maximum number of frequencies that the bound considers. If the processor has more, neighbouring frequencies are
/// merged into one entry that has the power of the lower and the speed of the higher.
const FREQUENCIES: u64 = 512;
/// Percentages of the stall savings by which the price of being awake is lowered; see [`Machine::stalls`]. A core that
/// is stalled by a frequency change draws less power than one that polls.
const SHARES: [u64; 4] = [0, 50, 80, 95];
/// Lengths of the parts into which [`Machine::work`] divides the window, as multiples of the time that a packet can
/// wait.
const PARTS: [u64; 3] = [8, 32, 128];
/// The maximum number of parts. If packets can wait only for some nanoseconds, the parts are longer than [`PARTS`]
/// says.
const MOST_PARTS: u64 = 250_000;
/// If stalls could save more than this share of the base power, all [`SHARES`] are tried; otherwise only 0 %.
const STALLS_MATTER: f64 = 1e-3;

/// The prices and speeds of a machine that the bound needs.
#[derive(Debug)]
pub struct Machine {
    /// The lowest power that a core ever draws, in microwatts.
    pub base: f64,
    /// Time from taking a packet to the end of this packet's work, at the highest frequency.
    pub shortest_service: Nanos,
    /// Whether the software forwards the packets.
    pub sends: bool,
    /// Cycles per packet, including the packet's share of the cycles of a full batch.
    batched: f64,
    prices: Prices,
    /// Power (in microwatts) and speed (in cycles per nanosecond) of a running core, one pair per frequency. A merged
    /// frequency has the lower power and the higher speed.
    running: Vec<(f64, f64)>,
    stall: Stall,
}

/// What a frequency change saves, because it stalls the core. Powers are in microwatts, times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Stall {
    /// How much less a stalled core draws than a polling one. At least `below_rest`.
    below_awake: f64,
    /// How much less a stalled core draws than one in the dearest of the idle states. 0 if it draws no less.
    below_rest: f64,
    /// How much less a stalled core draws than [`Machine::base`]. 0 if it draws no less.
    below_base: f64,
    /// Length of a stall.
    block: f64,
    /// The maximum share of time spent in stalls.
    share: f64,
}

impl Stall {
    /// The maximum time that a core is stalled within `window`.
    fn longest(&self, window: f64) -> f64 {
        (self.share * window + self.block).min(window)
    }
}

/// Work of the forwarding software: its cycles, and the number of pieces whose time the simulation rounds down.
#[derive(Clone, Copy, Debug)]
struct Work {
    cycles: u64,
    pieces: u64,
}

impl Work {
    const fn new(cycles: u64, pieces: u64) -> Self {
        Self { cycles, pieces }
    }

    /// The cycles that take their full time, however the simulation rounds. At `fastest` cycles per nanosecond, a piece
    /// loses less than `fastest` cycles. Below 0 if the pieces can lose more cycles than the work has; the cycles of
    /// other work in the same pieces are then lost, too.
    fn least(self, fastest: f64) -> f64 {
        self.cycles as f64 - self.pieces as f64 * fastest
    }
}

/// What the forwarding software does.
struct Software {
    /// From the end of one packet to the end of the next.
    packet: Work,
    /// In addition, once per batch.
    batch: Work,
    /// Number of packets in a full batch.
    full: u64,
    /// In addition, if a timer ends the rest. `None` for NAPI, which only an interrupt wakes.
    timer: Option<Work>,
    /// In addition, if an interrupt ends the rest.
    interrupt: Work,
}

impl Software {
    fn new(scenario: &Scenario) -> Self {
        let host = &scenario.host;
        let delivery = host.processor.delivery;
        let thread = if host.handling == Handling::Threaded { delivery.thread.count() } else { 0 };
        let told = delivery.entry.count() + delivery.handler.count() + thread;
        let switches = 2 * host.scheduler.switch.count();
        match scenario.worker {
            // A rest takes two context switches. One that an interrupt ends also takes a poll after arming, the
            // interrupt itself, and the return from the system call.
            Worker::User { work, .. } => Self {
                packet: Work::new(work.frame.count(), 0),
                batch: Work::new(work.burst.count(), 2),
                full: BURST as u64,
                timer: Some(Work::new(switches, 2)),
                interrupt: Work::new(switches + told + delivery.resume.count() + work.poll.count(), 7),
            },
            // NAPI rests and wakes in interrupt context; only an application is switched to.
            Worker::Kernel { model, .. } => {
                let (application, switches) = match model.application {
                    Some(application) => (Work::new(application.count(), 1), Work::new(switches, 2)),
                    None => (Work::new(0, 0), Work::new(0, 0)),
                };
                Self {
                    packet: Work::new(model.frame.count() + application.cycles, application.pieces),
                    batch: Work::new(model.poll.count(), 2),
                    full: crate::world::WEIGHT as u64,
                    timer: None,
                    interrupt: Work::new(told + switches.cycles, 3 + switches.pieces),
                }
            }
        }
    }
}

impl Machine {
    /// Computes the prices for the machine of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let host = &scenario.host;
        let power = &host.processor.power;
        let lowest = host.processor.pstates.lowest;
        let running: Vec<(f64, f64)> = frequencies(&host.processor.pstates)
            .map(|(low, high)| (microwatts(power.active(low, 1_000)), high.as_hertz() as f64 / 1e9))
            .collect();
        let awake = running.iter().map(|(power, _)| *power).fold(f64::INFINITY, f64::min);
        let fastest = running.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        let allowed = allowed(host).map(|state| (state, microwatts(power.idle(state.gate, lowest))));
        // A state that draws no less than a running core, such as POLL, is not a rest.
        let allowed: Vec<(&IdleState, f64)> = allowed.filter(|(_, power)| *power < awake).collect();
        let base = allowed.iter().map(|(_, power)| *power).fold(awake, f64::min);
        let highest = allowed.iter().map(|(_, power)| *power).fold(base, f64::max);
        let cycle =
            |above: f64| running.iter().map(|(power, speed)| (power - above) / speed).fold(f64::INFINITY, f64::min);
        let software = Software::new(scenario);
        let rests = allowed.iter().map(|(state, power)| {
            let (cycle, above) = (cycle(*power), awake - power);
            let cost = |time: Nanos, work: Work| {
                let work = Work::new(work.cycles + state.refill.count(), work.pieces + 1);
                time.as_nanos() as f64 * above + work.least(fastest).max(0.0) * cycle
            };
            let late = state.timer_exit.least() + host.timer.lateness.least();
            let by_timer = software.timer.map_or(f64::INFINITY, |work| cost(late, work));
            let wake = by_timer.min(cost(state.exit.least(), software.interrupt));
            Rest { slope: power - base, wake }
        });
        // The extra cost of a cycle is lowest where it replaces the idle state that draws the most.
        let cheapest = cycle(highest);
        let (packet, batch) = (software.packet.least(fastest), software.batch.least(fastest));
        // What a batch may lose in addition to its own cycles, each packet may lose: it may be alone in its batch.
        let (packet, batch) = ((packet + batch.min(0.0)).max(0.0), batch.max(0.0));
        let prices = Prices {
            awake: awake - base,
            rests: useful(rests.collect()),
            packet: packet * cheapest,
            batch: batch * cheapest,
        };
        let service = (software.packet.cycles + software.batch.cycles) as f64 / fastest;
        let pstates = host.processor.pstates;
        let (block, period) = (pstates.block.as_nanos() as f64, pstates.period.as_nanos() as f64);
        let standing = microwatts(power.idle(Gate::Clock, lowest));
        Self {
            base,
            // The simulation rounds down the two parts of a batch.
            shortest_service: Nanos::from_nanos((service as u64).saturating_sub(2)),
            sends: match scenario.worker {
                Worker::User { forward, .. } => forward,
                Worker::Kernel { .. } => true,
            },
            batched: packet + batch / software.full as f64,
            prices,
            stall: Stall {
                below_awake: (awake - standing).max(0.0),
                below_rest: (highest - standing).max(0.0),
                below_base: (base - standing).max(0.0),
                block,
                share: if block == 0.0 { 0.0 } else { (block / period).min(1.0) },
            },
            running,
        }
    }

    /// The energy that `cores` cores draw at least within `window`, whatever they do.
    pub fn floor(&self, cores: f64, window: f64) -> f64 {
        cores * (window * self.base - self.stall.longest(window) * self.stall.below_base)
    }

    /// Several sets of prices that allow for the stalls of frequency changes, each with an amount to subtract from the
    /// total cost. Each set gives a valid bound, so the caller uses the set with the highest bound.
    ///
    /// A stall does not reduce the cycles that are needed. But while a core is stalled, it draws less than one that
    /// polls, and on some machines less than one in an idle state. Let d and r be these two differences in power (r ≤
    /// d), T the window, and S = φ T + `block` the longest time in stalls, where φ = `block` / `period`. Each core
    /// saves at most r S + (d − r) min(awake time, S). This minimum is at most any weighted mean of its two terms. For
    /// a weight λ of the first term, the price of being awake falls by λ (d − r), and r S + (1 − λ) (d − r) S is
    /// subtracted per core. At low loads, with few waits, a λ near 1 gives the better bound; with many waits, a λ of 0
    /// does.
    pub fn stalls(&self, cores: f64, window: f64) -> Vec<(Prices, f64)> {
        let Stall { below_awake, below_rest, block, .. } = self.stall;
        if block == 0.0 {
            return vec![(self.prices.clone(), 0.0)];
        }
        let longest = cores * self.stall.longest(window);
        let matters = longest * below_awake > STALLS_MATTER * cores * self.base * window;
        let more = below_awake - below_rest;
        let shares = SHARES.iter().filter(|share| matters || **share == 0);
        shares
            .map(|share| {
                let part = *share as f64 / 100.0;
                let prices = Prices { awake: (self.prices.awake - part * more).max(0.0), ..self.prices.clone() };
                (prices, longest * (below_rest + (1.0 - part) * more))
            })
            .collect()
    }

    /// The minimum energy for doing the work in time, however the core waits.
    ///
    /// Consider a line a + s · f that lies below the power of every state, where f is the state's speed. For any
    /// duration w the line gives the energy a · w + s · cycles. The result is the largest of several estimates. One
    /// covers the whole window. Each of the others divides the window into parts of one length and sums the energy of
    /// the parts, each with the packets that must be done within it. A late packet saves at most the energy of its
    /// cycles at the steepest line. The energy that stalls of frequency changes can save is subtracted.
    pub fn work(&self, lines: &[Line], allowed: f64) -> f64 {
        let below = self.below();
        let best = |span: f64, cycles: f64| {
            let value = |line: &(f64, f64)| line.0 * span + line.1 * cycles;
            below.iter().map(|line| (value(line), line.1)).fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
        };
        let spans = lines.iter().map(|line| (line.window.1 - line.window.0) as f64);
        let span: f64 = spans.sum();
        let served: u64 = lines.iter().flat_map(|line| &line.packets).map(|packets| packets.count).sum();
        let (mut most, _) = best(span, (served as f64 - allowed).max(0.0) * self.batched);
        for length in self.parts_of(lines) {
            let (mut energy, mut steepest) = (0.0, 0.0f64);
            for line in lines {
                self.parts(line, length, |span, packets| {
                    let (value, slope) = best(span, packets as f64 * self.batched);
                    energy += value;
                    steepest = steepest.max(slope);
                });
            }
            most = most.max(energy - steepest * allowed * self.batched);
        }
        // During the stall of a frequency change a core may draw less than the lines say.
        let stalled = lines.iter().map(|line| self.stall.longest((line.window.1 - line.window.0) as f64));
        most - self.stall.below_base * stalled.sum::<f64>()
    }

    /// The lengths of the parts into which [`Self::work`] divides the window.
    pub(super) fn parts_of(&self, lines: &[Line]) -> [u64; 3] {
        let first = lines.iter().find_map(|line| line.packets.first());
        let waits = first.map_or(0, |first| first.deadline - first.release);
        let window = lines.first().map_or(0, |line| line.window.1 - line.window.0);
        PARTS.map(|times| (times * waits.max(1)).max(window.div_ceil(MOST_PARTS)).max(1))
    }

    /// Calls `each` with the length of each part of the window and the number of packets that must be done within it.
    fn parts(&self, line: &Line, length: u64, mut each: impl FnMut(f64, u64)) {
        let ((start, end), mut packets) = (line.window, line.packets.iter().peekable());
        let mut from = start;
        while from < end {
            let to = end.min(from + length);
            let mut count = 0;
            while let Some(next) = packets.next_if(|next| next.release < to) {
                // The simulation rounds down, so the deadline is moved up by as much.
                let done = next.deadline + self.shortest_service.as_nanos() + 4;
                count += if next.release >= from && done <= to { next.count } else { 0 };
            }
            each((to - from) as f64, count);
            from = to;
        }
    }

    /// Lines below the power of every state, as a function of the state's speed: each line's value at speed 0, and its
    /// slope.
    fn below(&self) -> Vec<(f64, f64)> {
        let corners = self.running.iter().map(|(power, speed)| (power - self.base) / speed);
        let edges = self.running.windows(2).map(|pair| (pair[1].0 - pair[0].0) / (pair[1].1 - pair[0].1));
        let slopes = corners.chain(edges).filter(|slope| slope.is_finite() && *slope >= 0.0);
        let line = |slope: f64| {
            let at_none = self.running.iter().map(|(power, speed)| power - slope * speed).fold(self.base, f64::min);
            (at_none, slope)
        };
        slopes.map(line).collect()
    }
}

/// The idle states that a governor may choose.
fn allowed(host: &Host) -> impl Iterator<Item = &IdleState> {
    let cstates = &host.processor.cstates;
    // Governors choose the first state if no other meets the latency limit.
    let keeps = |(number, state): &(usize, &IdleState)| *number == 0 || state.stated_exit <= host.latency_limit;
    cstates.states[..=cstates.deepest].iter().enumerate().filter(keeps).map(|(_, state)| state)
}

/// Pairs of a lower and a higher frequency to merge. The two are equal unless the processor has more than
/// [`FREQUENCIES`].
fn frequencies(pstates: &PStateModel) -> impl Iterator<Item = (Hertz, Hertz)> {
    let (lowest, highest) = (pstates.lowest.as_hertz(), pstates.highest.as_hertz());
    let step = pstates.step.as_hertz().max(1);
    let each = (highest - lowest) / step + 2 <= FREQUENCIES;
    let stride = if each { step } else { (highest - lowest).div_ceil(FREQUENCIES) };
    // Multiples of the step, and the two ends.
    let first = if each { lowest / step * step } else { lowest };
    let lows = (0..=FREQUENCIES).map(move |n| first + n * stride).take_while(move |low| *low <= highest);
    lows.chain([highest]).map(move |low| {
        let low = low.clamp(lowest, highest);
        let high = if each { low } else { (low + stride).min(highest) };
        (Hertz::new(low), Hertz::new(high))
    })
}

/// Removes each rest for which another rest costs no more to wake from and no more per nanosecond.
fn useful(rests: Vec<Rest>) -> Vec<Rest> {
    let better = |a: &Rest, b: &Rest| a.slope <= b.slope && a.wake <= b.wake && a != b;
    let mut kept: Vec<Rest> =
        rests.iter().filter(|rest| !rests.iter().any(|other| better(other, rest))).copied().collect();
    kept.dedup();
    kept
}

fn microwatts(power: units::Microwatts) -> f64 {
    power.as_microwatts() as f64
}
