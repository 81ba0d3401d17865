//! Sums over several settings: each of them can look well, and their sum not.
//!
//! The formulas are in [`formulas`], with their units; what is put into them, in [`terms`]. An input that is not known
//! makes the rule unknown, unless what is known already exceeds the bound.

mod budget;
mod capacity;
mod formulas;
mod rings;
mod terms;

use crate::Rule;

/// The rule tables of this group, in the order of the report.
pub const RULES: &[&[Rule]] = &[rings::RULES, budget::RULES, capacity::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[rings::tests::CASES, budget::tests::CASES, capacity::tests::CASES];

/// What other groups' cases take from here.
#[cfg(test)]
pub(crate) use rings::tests as samples;
