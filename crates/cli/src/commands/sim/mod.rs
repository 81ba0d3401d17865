//! `apus sim`: one file per subcommand. [`mod@read`] reads scenarios, [`say`] and [`report`] show cases, [`csv`] keeps
//! those of a sweep, and [`seeds`] computes statistics over their seeds.

mod compare;
mod csv;
mod figures;
mod goals;
mod machines;
mod read;
mod report;
mod run;
mod say;
mod seeds;
mod sweep;

pub(super) use machines::machine;

use crate::Status;
use crate::args::sim::Sim;
use crate::documents::sim::Case;

/// Runs `apus sim`.
pub fn run(typed: &Sim) -> anyhow::Result<Status> {
    match typed {
        Sim::Run(typed) => run::run(typed),
        Sim::Compare(typed) => compare::run(typed),
        Sim::Sweep(typed) => sweep::run(typed),
        Sim::Figures(typed) => figures::run(typed),
        Sim::Goals(typed) => goals::run(typed),
        Sim::Machines(typed) => machines::run(typed),
    }
}

/// The exit status: 1 if any goal was missed or could not be judged.
fn status<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Status {
    let held = |case: &Case| case.goal.as_ref().is_none_or(|goal| goal.held == Some(true));
    if cases.into_iter().all(held) { Status::Good } else { Status::Findings }
}
