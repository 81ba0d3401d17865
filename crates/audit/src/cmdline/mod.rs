//! Checks a kernel command line, and suggests one.
//!
//! [`judge()`] needs only the command line and the purpose of the host. [`suggest()`] also needs the list of the host's
//! CPUs, because the suggested line names the housekeeping CPUs. [`table`] lists the known parameters and their values.
//! The private module `pairs` lists parameters that need or exclude each other, and `cautions` lists parameters that do
//! not do what users expect.

mod cautions;
mod judge;
mod pairs;
mod suggest;
pub mod table;

pub(crate) use judge::free;
pub use judge::{Kind, Remark, judge, judge_on};
pub(crate) use pairs::{UNLESS_PARTITION, intended};
pub use suggest::{Suggested, Suggestion, suggest};
