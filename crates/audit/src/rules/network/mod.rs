//! The kernel's network stack.

mod napi;
mod sockets;
mod stack;

use crate::Rule;

/// The rule tables of this group, in the order of the report.
pub const RULES: &[&[Rule]] = &[napi::RULES, stack::RULES, sockets::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[napi::tests::CASES, stack::tests::CASES, sockets::tests::CASES];
