//! `apus dim`: feeds recorded samples to Linux's dynamic interrupt moderation.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::one_of;

/// An exact copy of Linux's dynamic interrupt moderation (lib/dim).
#[derive(Subcommand, Debug)]
pub enum Dim {
    /// Runs DIM on recorded samples, and compares its state after each sample with the recorded state.
    ///
    /// The file is CSV with a header; its columns may be in any order. A network queue needs the columns apply,
    /// time_ns, events, packets and bytes (the last three are running totals). RDMA needs apply, time_ns and
    /// completions (since the previous call). A column named `run` is allowed, and ignored.
    ///
    /// Each row in which apply is 0 or 1 is a call of DIM at time_ns. 1 means that the driver's work finished since the
    /// previous call: it programmed a profile, and DIM begins a new measuring window. 0 means that it did not. A row in
    /// which apply is `reset` starts a new instance of DIM instead, at the profile in the column profile_ix (0 if the
    /// file has no such column).
    ///
    /// At the end of a measuring window, DIM reads the clock a second time, to begin the next window. The optional
    /// column restart_time_ns holds this second reading [default: time_ns].
    ///
    /// The optional columns state, tune_state, profile_ix, steps_right, steps_left and tired hold the recorded state.
    /// Exit status 1 if DIM's state differs from it. With --json, the command also prints DIM's state after each call.
    Replay(Replay),
}

/// Arguments of `apus dim replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// CSV file with the recorded calls of DIM.
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// Variant of DIM, with its table of moderation profiles.
    #[arg(long, value_parser = one_of::<Mode>(), default_value_t = Mode::RxEqe)]
    pub mode: Mode,
    /// Print one JSON document (schema apus.dim-replay/1) with the state after each call.
    #[arg(long)]
    pub json: bool,
}

units::named! {
    /// DIM's tables of moderation profiles, and its RDMA variant.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mode {
        /// Receive; the moderation timer starts at the first event.
        RxEqe = "rx-eqe",
        /// Receive; each completion restarts the moderation timer.
        RxCqe = "rx-cqe",
        /// Transmit; the moderation timer starts at the first event.
        TxEqe = "tx-eqe",
        /// Transmit; each completion restarts the moderation timer.
        TxCqe = "tx-cqe",
        /// RDMA completion queue.
        Rdma = "rdma",
    }
}
