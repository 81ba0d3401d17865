//! Knowledge of the kernel's command line: judges a line alone, and writes one.
//!
//! [`judge()`] needs only the line and the purpose of the host. [`suggest()`] also needs the host's CPUs, because it
//! names the housekeeping ones. [`table`] has the meaning of each parameter, `pairs` those that need or exclude each
//! other, and `cautions` those that do not do what users expect.

mod cautions;
mod judge;
mod pairs;
mod suggest;
pub mod table;

pub(crate) use judge::free;
pub use judge::{Kind, Remark, judge, judge_on};
pub(crate) use pairs::{UNLESS_PARTITION, intended};
pub use suggest::{Suggested, Suggestion, suggest};
