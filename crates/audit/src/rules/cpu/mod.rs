//! CPU frequency, idle states, uncore, threads of a core, topology.

pub(super) mod frequency;
mod hwp;
pub(super) mod idle;
mod limits;
mod topology;
mod uncore;

use crate::Rule;

/// The rules of this group as tables, in the order in which the report lists them.
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
