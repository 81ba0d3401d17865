//! `apus power`: one file per subcommand. Only `set` is elsewhere, because it is a transaction like `apus tune apply`.

mod branches;
mod channel;
mod learn;
mod request;
pub(super) mod serve;
pub(super) mod steer;
mod sweep;
mod watch;

use crate::Status;
use crate::args::power::Power;

/// Runs `apus power`.
pub fn run(typed: Power) -> anyhow::Result<Status> {
    match typed {
        Power::Set(typed) => super::tune::set_power(&typed),
        Power::Sweep(typed) => sweep::run(&typed),
        Power::Steer(typed) => steer::run(&typed),
        Power::Learn(typed) => learn::run(&typed),
        Power::Watch(typed) => watch::run(&typed),
        Power::Serve(typed) => serve::run(&typed),
        Power::Request(typed) => request::run(&typed),
    }
}
