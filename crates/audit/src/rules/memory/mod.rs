//! Memory and NUMA.

mod hardware;
mod huge;
pub(super) mod paging;

use crate::Rule;

pub(in crate::rules) use huge::{GIB, MIB_2, Proposal, bytes, has_gib_pages};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[hardware::RULES, huge::RULES, paging::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[hardware::tests::CASES, huge::tests::CASES, paging::tests::CASES];
