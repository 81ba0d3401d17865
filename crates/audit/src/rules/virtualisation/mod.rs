//! Rules on hosts of virtual machines, and on guests.

mod guest;
mod module;
mod threads;

use crate::Rule;

pub(super) use guest::{INVTSC, MIGRATION};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[threads::RULES, module::RULES, guest::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[threads::tests::CASES, module::tests::CASES, guest::tests::CASES];
