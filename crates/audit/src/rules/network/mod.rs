//! The kernel's network stack.

mod napi;
mod sockets;
mod stack;

use crate::Rule;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[napi::RULES, stack::RULES, sockets::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[napi::tests::CASES, stack::tests::CASES, sockets::tests::CASES];
