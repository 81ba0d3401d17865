//! The kernel command line.

mod accounting;
mod agreement;
mod devices;
mod idle;
mod isolation;
mod line;
mod watchdogs;

use super::memory::paging;
use crate::Rule;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[
    isolation::RULES,
    agreement::RULES,
    line::RULES,
    idle::RULES,
    watchdogs::RULES,
    devices::RULES,
    accounting::RULES,
    paging::LINE,
];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[
    isolation::tests::CASES,
    agreement::tests::CASES,
    line::tests::CASES,
    idle::tests::CASES,
    watchdogs::tests::CASES,
    devices::tests::CASES,
    accounting::tests::CASES,
];
