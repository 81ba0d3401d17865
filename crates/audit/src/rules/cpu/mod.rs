//! CPU frequency, idle states, uncore, threads of a core, topology.

pub(super) mod frequency;
mod hwp;
pub(super) mod idle;
mod limits;
mod topology;
mod uncore;

use crate::Rule;

/// The rule tables of this group, in the order of the report.
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
