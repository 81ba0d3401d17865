//! CPU frequency, idle states, uncore, hardware threads, topology.

pub(super) mod frequency;
mod hwp;
pub(super) mod idle;
mod limits;
mod topology;
mod uncore;

use crate::Rule;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] =
    &[frequency::RULES, hwp::RULES, limits::RULES, uncore::RULES, idle::RULES, topology::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[
    frequency::tests::CASES,
    hwp::tests::CASES,
    limits::tests::CASES,
    uncore::tests::CASES,
    idle::tests::CASES,
    topology::tests::CASES,
];
