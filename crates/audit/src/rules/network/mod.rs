//! The kernel's network stack.

mod napi;
mod sockets;
mod stack;

use crate::Rule;

/// The rules of this group as tables, in the order in which the report lists them.
pub const RULES: &[&[Rule]] = &[napi::RULES, stack::RULES, sockets::RULES];

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[napi::tests::CASES, stack::tests::CASES, sockets::tests::CASES];
