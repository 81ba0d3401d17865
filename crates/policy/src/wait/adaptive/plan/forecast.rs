//! The waits that end shortly before a forecast burst, and the block that the burst itself ends.
//!
//! ```text
//!   now                                     due                  (the window in which the burst may come)
//!    ├────────────── wait ─────────┬─ margin ─┼─────── polling ───────┤
//!    │                             └─ room for the lateness of the timer
//!    ├──────────── ahead ─────────────────────┤
//! ```

use super::super::choice::{BLOCK, Choice, until};
use super::super::prices::Kind;
use super::super::slower::{SAME, Slower};
use super::super::tail::PARTS;
use super::expect::Cell;
use super::model::Model;
use super::record::ONE;
use super::rows::STALE;

/// A margin includes this much more than the lateness for which it leaves room, in nanoseconds.
const MORE: u64 = 1_000;

/// The possible waits for a forecast burst.
#[derive(Clone, Copy, Debug)]
struct Forecast {
    /// How long before the burst each wait is requested to end, in nanoseconds.
    margins: [u64; PARTS],
    /// Cost of each wait in nanoseconds. It includes the polls until the expected burst, but not those during the time
    /// window in which the burst may come.
    costs: [u64; PARTS],
    weights: [u64; PARTS],
    /// The share of late packets that the model expects of each wait, in millionths.
    lates: [u64; PARTS],
    /// The alternative to these waits: blocking until the frame arrives.
    block: Cell,
}

/// The waits for the next burst, computed once and reused.
#[derive(Clone, Debug)]
pub(super) struct Forecasts {
    /// The waits, and the number of waits learned when they were computed.
    known: Option<(Forecast, u32)>,
}

impl Forecasts {
    pub(super) const fn new() -> Self {
        Self { known: None }
    }

    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// The cheapest wait for a burst that is expected in about `ahead` nanoseconds, after which the core polls for
    /// `polling` nanoseconds on average. `None` if no wait is short enough.
    pub(super) fn best(&mut self, model: &Model, ahead: u64, polling: u64, multiplier: u64) -> Option<Choice> {
        let plan = self.waits(model, ahead);
        let lasts = ahead + polling;
        let mut best = None;
        for (part, margin) in plan.margins.iter().enumerate().filter(|(_, margin)| **margin < ahead) {
            let (late, weight) = (plan.lates[part], plan.weights[part]);
            let costs = plan.costs[part] + polling + weight * multiplier / 256;
            let choice = Choice {
                slot: until(part),
                wait: ahead - margin,
                costs,
                lasts,
                late,
                number: late,
                weight,
                cut: false,
            };
            best.get_or_insert(choice).or(choice);
        }
        if plan.block.wait > 0 {
            let block = plan.block.at_price(BLOCK, multiplier);
            let choice = Choice { lasts: lasts.max(block.lasts), ..block };
            best.get_or_insert(choice).or(choice);
        }
        best
    }

    fn waits(&mut self, model: &Model, ahead: u64) -> &Forecast {
        let stale = |learned: u32| model.learned.wrapping_sub(learned) >= 4 * STALE;
        if self.known.as_ref().is_none_or(|(_, learned)| stale(*learned)) {
            self.known = Some((waits(model, ahead), model.learned));
        }
        let (forecast, _) = self.known.as_ref().expect("just made");
        forecast
    }
}

/// The possible waits for a burst that is expected in about `ahead` nanoseconds.
fn waits(model: &Model, ahead: u64) -> Forecast {
    let atoms = model.lateness.of(Kind::Timer, ahead);
    let price = model.prices.of(Kind::Timer, ahead, SAME);
    let margins = atoms.at.map(|at| at + MORE);
    let costs = margins.map(|margin| price + margin.saturating_sub(atoms.mean));
    let lates = margins.map(|margin| {
        let late = |at: u64| at + model.service > model.target + margin;
        atoms.seen().filter(|(at, _)| late(*at)).map(|(_, share)| share).sum()
    });
    let weights = core::array::from_fn(|part| {
        let slot = until(part);
        model.weight(model.corrected((slot, model.seen(slot)), ONE, lates[part], Slower::NOT))
    });
    let block = if model.interrupts { model.block(ahead, Slower::NOT) } else { Cell::NONE };
    Forecast { margins, costs, weights, lates, block }
}
