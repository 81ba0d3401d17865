//! Chooses the next trial for one goal. RFC 9971 leaves the choice to the implementation. This code chooses in the same
//! way as the reference controller (MLRsearch 1.2.1), so that results can be compared trial by trial.
//!
//! ```text
//!  targets of the goal, coarse to final; for each, the first of these that is worth a trial:
//!  halve the initial bounds ► refine the lower ► refine the upper ► extend down ► extend up ► bisect
//!   └── none is: the target is reached; its bounds are the next target's initial bounds
//! ```

use super::classify::{Bounds, Target, Trials};
use super::grid::{Grid, Load, Width, middle};

/// An external search looks for a bound outside the known bounds. After each trial that does not find one, it
/// multiplies the width of its step by this factor.
const EXPANSION: Width = 2;

/// A trial that a goal nominates.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub load: Load,
    pub duration_s: f64,
    /// Width of the step that led to this load. If the candidate is run, all goals use this width next.
    pub width: Width,
}

impl Candidate {
    /// Whether this candidate is run before `other`: lower loads go first, then longer trials, then wider steps. If
    /// they are equal in all three, this candidate goes first.
    pub fn precedes(&self, other: &Self) -> bool {
        if self.load != other.load {
            return self.load < other.load;
        }
        if self.duration_s != other.duration_s {
            return self.duration_s > other.duration_s;
        }
        self.width >= other.width
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strategy {
    Halve,
    RefineLower,
    RefineUpper,
    ExtendDown,
    ExtendUp,
    Bisect,
}

const STRATEGIES: [Strategy; 6] = [
    Strategy::Halve,
    Strategy::RefineLower,
    Strategy::RefineUpper,
    Strategy::ExtendDown,
    Strategy::ExtendUp,
    Strategy::Bisect,
];

/// Chooses the trials of one goal.
#[derive(Clone, Debug)]
pub struct Selector {
    /// The targets after the current one, in reverse order: the final target is first, the next target is last.
    stack: Vec<Target>,
    target: Target,
    initial_lower: Option<Load>,
    initial_upper: Option<Load>,
    next_width: Width,
    expand_if_lower: bool,
    expand_if_upper: bool,
    nominated: Option<Strategy>,
}

impl Selector {
    /// Starts with the coarsest target, and with two initial loads as bounds. `targets` are ordered from coarse to
    /// final.
    pub fn new(targets: &[Target], lower: Load, upper: Load) -> Option<Self> {
        let mut stack: Vec<Target> = targets.iter().rev().copied().collect();
        let target = stack.pop()?;
        let mut selector = Self {
            stack,
            target,
            initial_lower: Some(lower),
            initial_upper: Some(upper),
            next_width: 0,
            expand_if_lower: false,
            expand_if_upper: false,
            nominated: None,
        };
        selector.begin();
        Some(selector)
    }

    /// The trial that the goal needs next; `None` if the goal is reached. `global` is the step width that all goals
    /// share.
    pub fn nominate(&mut self, trials: &Trials, grid: &Grid, global: Width) -> Option<Candidate> {
        self.nominated = None;
        loop {
            let bounds = trials.bounds(&self.target);
            for strategy in STRATEGIES {
                if let Some((load, width)) = self.apply(strategy, bounds, grid, global) {
                    self.nominated = Some(strategy);
                    return Some(Candidate { load, duration_s: self.target.trial_s, width });
                }
            }
            self.target = self.stack.pop()?;
            (self.initial_lower, self.initial_upper) = (bounds.lower, bounds.upper);
            self.begin();
        }
    }

    /// Records that the candidate of this selector was run. Returns the new step width for all goals if the step must
    /// be widened.
    pub fn ran(&mut self, load: Load, trials: &Trials) -> Option<Width> {
        let bounds = trials.bounds(&self.target);
        let (is_lower, is_upper) = (bounds.lower == Some(load), bounds.upper == Some(load));
        let expand = match self.nominated {
            Some(Strategy::ExtendDown) => is_upper,
            Some(Strategy::ExtendUp) => is_lower,
            Some(Strategy::Bisect) => (self.expand_if_lower && is_lower) || (self.expand_if_upper && is_upper),
            _ => false,
        };
        if expand {
            self.next_width = self.next_width.saturating_mul(EXPANSION);
        }
        expand.then_some(self.next_width)
    }

    fn begin(&mut self) {
        let between = self.initial_lower.zip(self.initial_upper).map_or(0, |(lower, upper)| upper - lower);
        self.next_width = self.target.width.max(between).saturating_mul(EXPANSION);
        (self.expand_if_lower, self.expand_if_upper) = (false, false);
    }

    /// Sets the width of the next external step to [`EXPANSION`] times `width`, or times the target's width if that is
    /// larger.
    fn limit(&mut self, width: Width) {
        self.next_width = width.max(self.target.width).saturating_mul(EXPANSION);
    }

    fn apply(&mut self, strategy: Strategy, bounds: Bounds, grid: &Grid, global: Width) -> Option<(Load, Width)> {
        match strategy {
            Strategy::Halve => {
                let (lower, upper) = self.initial_lower.zip(self.initial_upper)?;
                let between = (upper - lower).abs();
                if between <= self.target.width || between > 2 * self.target.width {
                    return None;
                }
                self.refine(middle(lower.min(upper), lower.max(upper), self.target.width), bounds)
            }
            Strategy::RefineLower => self.refine(self.initial_lower?, bounds),
            Strategy::RefineUpper => self.refine(self.initial_upper?, bounds),
            Strategy::ExtendDown => {
                let upper = bounds.upper.filter(|upper| bounds.lower.is_none() && *upper > 0)?;
                let width = global.max(self.next_width);
                let load = within(grid, upper - width, self.target.width, bounds)?;
                self.is_worth(load, bounds).then_some((load, width))
            }
            Strategy::ExtendUp => {
                let lower = bounds.lower.filter(|lower| bounds.upper.is_none() && *lower < grid.last())?;
                let width = global.max(self.next_width);
                let load = within(grid, lower.saturating_add(width), self.target.width, bounds)?;
                self.is_worth(load, bounds).then_some((load, width))
            }
            Strategy::Bisect => self.bisect(bounds, grid, global),
        }
    }

    fn refine(&mut self, load: Load, bounds: Bounds) -> Option<(Load, Width)> {
        if !self.is_worth(load, bounds) {
            return None;
        }
        self.limit(self.target.width);
        Some((load, self.target.width))
    }

    /// Chooses a load between two bounds: normally their middle. If the next step of an external search lies between
    /// the middle and the initial bound, that step takes precedence.
    fn bisect(&mut self, bounds: Bounds, grid: &Grid, global: Width) -> Option<(Load, Width)> {
        let (lower, upper) = bounds.lower.zip(bounds.upper)?;
        if lower >= grid.last() || upper <= 0 || upper - lower <= self.target.width {
            return None;
        }
        let half = middle(lower, upper, self.target.width);
        let width = global.max(self.next_width);
        let down = self.initial_upper.filter(|initial| half < *initial).and_then(|initial| {
            let load = within(grid, upper - width, self.target.width, bounds)?;
            (load > half && load < initial).then_some(load)
        });
        if let Some(load) = down {
            (self.expand_if_lower, self.expand_if_upper) = (false, true);
            return Some((load, width));
        }
        let up = self.initial_lower.filter(|initial| half > *initial).and_then(|initial| {
            let load = within(grid, lower.saturating_add(width), self.target.width, bounds)?;
            (load < half && load > initial).then_some(load)
        });
        if let Some(load) = up {
            (self.expand_if_lower, self.expand_if_upper) = (true, false);
            return Some((load, width));
        }
        (self.expand_if_lower, self.expand_if_upper) = (false, false);
        let width = (half - lower).min(upper - half);
        self.limit(width);
        Some((half, width))
    }

    /// Whether a trial at `load` can give a new bound, or a closer one.
    fn is_worth(&self, load: Load, bounds: Bounds) -> bool {
        bounds.lower.is_none_or(|lower| lower < load)
            && bounds.upper.is_none_or(|upper| upper > load)
            && bounds.lower.zip(bounds.upper).is_none_or(|(lower, upper)| upper - lower > self.target.width)
    }
}

/// Moves `load` away from a bound or an end of the range that is closer than `width`. `None` if there is no room for a
/// trial.
pub fn within(grid: &Grid, load: Load, width: Width, bounds: Bounds) -> Option<Load> {
    let last = grid.last();
    let load = load.clamp(0, last);
    let (low, high) = match (bounds.lower, bounds.upper) {
        (Some(lower), Some(upper)) if load <= lower || load >= upper => return None,
        (None, Some(upper)) if upper <= 0 || load >= upper => return None,
        (Some(lower), None) if lower >= last || load <= lower => return None,
        (lower, upper) => (lower.unwrap_or(0), upper.unwrap_or(last)),
    };
    // Bounds have been measured already. An end of the range that is not a bound may still be measured.
    let (low_is_free, high_is_free) = (bounds.lower.is_none(), bounds.upper.is_none());
    if width >= high - low {
        return if low_is_free { Some(low) } else { high_is_free.then_some(high) };
    }
    let (mut soft_low, mut soft_high) = (low + width, high - width);
    if soft_low > soft_high {
        soft_low = middle(low, high, width);
        soft_high = soft_low;
    }
    if load < soft_low {
        Some(if low_is_free { low } else { soft_low })
    } else if load > soft_high {
        Some(if high_is_free { high } else { soft_high })
    } else {
        Some(load)
    }
}
