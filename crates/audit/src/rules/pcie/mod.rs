//! PCI Express and the hardware of network interfaces.

mod card;
mod link;
mod port;
mod power;

use crate::Rule;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[link::RULES, power::RULES, card::RULES, port::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[link::tests::CASES, power::tests::CASES, card::tests::CASES, port::tests::CASES];
