//! Knowledge of the kernel's command line: judges a line alone, and writes one.
//!
//! [`judge()`] needs nothing but the line and what the host is for; [`suggest()`] needs the CPUs too, for it names the
//! housekeeping ones. What a parameter means is in [`table`]; which ones belong together, or exclude each other,
//! in `pairs`; which ones do not do what is hoped, in `cautions`.

mod cautions;
mod judge;
mod pairs;
mod suggest;
pub mod table;

pub(crate) use judge::free;
pub use judge::{Kind, Remark, judge, judge_on};
pub(crate) use pairs::{UNLESS_PARTITION, intended};
pub use suggest::{Suggested, Suggestion, suggest};
