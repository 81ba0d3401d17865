//! Audits a host: checks the facts about the host against rules, and returns findings.
//!
//! **Law:** this crate opens no file and writes nothing. If a fact is unknown, the rules that need it neither pass nor
//! fail.
//!
//! [`rules::all`] returns the rules. Each [`Rule`] has a judge (the function that checks the facts), an explanation of
//! how the problem delays packets and by how much, a fix and its cost, and references. [`Context`] says what the host
//! is for, as stated by the user or inferred. [`audit`] runs all rules and returns a [`Report`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod advice;
mod applies;
mod baseline;
mod catalogue;
mod cause;
pub mod cmdline;
mod context;
pub mod diagnosis;
mod difference;
mod finding;
mod hits;
mod infer;
mod judgement;
mod plan;
pub mod remedy;
mod report;
mod rule;
pub mod rules;
#[cfg(test)]
mod testing;
mod unlock;
mod verdict;
mod wording;

pub use advice::{Advice, Advised, ByRule, Caused, Doing, Gain, Said, advise, shell_word};
pub use applies::{Applies, Place};
pub use baseline::{read_baseline, write_baseline};
pub use catalogue::{applies, markdown};
pub use cause::Cause;
pub use context::{Context, Goal, How, Intended, Workload};
pub use difference::{Difference, DifferenceKind, difference};
pub use finding::Finding;
pub use hits::{Hit, HitKind, Hits, hits};
pub use infer::Intent;
pub use judgement::{Evidence, Judged, Judgement, Skip, Subject, known, settled};
pub use plan::{KernelLine, Plan, Planned, plan};
pub use remedy::{Action, Remedy, Risk, Setting, Step};
pub use report::{Level, Report, Selection, Selector, Tally, audit, audit_with};
pub use rule::{Effect, Fix, Group, Magnitude, Rule};
pub use unlock::{Unlock, unlocks};
pub use verdict::Verdict;
pub use wording::spaced;
