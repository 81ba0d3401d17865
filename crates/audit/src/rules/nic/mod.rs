//! Settings of network interfaces.

mod flow;
mod moderation;
mod offloads;
mod queues;
mod wire;

use crate::Rule;

pub(super) use queues::wider;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[moderation::RULES, queues::RULES, offloads::RULES, flow::RULES, wire::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[moderation::tests::CASES, queues::tests::CASES, offloads::tests::CASES, flow::tests::CASES, wire::tests::CASES];
