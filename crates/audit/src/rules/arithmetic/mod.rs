//! Rules that calculate with several settings. Each setting can be good on its own while their sum is too large.
//!
//! The module [`formulas`] has the formulas and their units; [`terms`] has their inputs. If an input is not known, the
//! verdict is unknown, unless the known inputs alone exceed the limit.

mod budget;
mod capacity;
mod formulas;
mod rings;
mod terms;

use crate::Rule;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[rings::RULES, budget::RULES, capacity::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[rings::tests::CASES, budget::tests::CASES, capacity::tests::CASES];

/// Helpers that the test cases of other groups also use.
#[cfg(test)]
pub(crate) use rings::tests as samples;
