//! `apus dim`: feeds recorded samples to Linux's dynamic interrupt moderation.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::one_of;

/// An exact copy of Linux's dynamic interrupt moderation (lib/dim).
#[derive(Subcommand, Debug)]
pub enum Dim {
    /// Runs DIM on recorded samples, and shows DIM's state after each sample or compares it with the recorded state.
    ///
    /// The file is CSV with a header; its columns may be in any order. A network queue needs the columns apply,
    /// time_ns, events, packets and bytes; RDMA needs apply, time_ns and completions.
    ///
    /// Each row is a call of DIM at time_ns. In the column apply, `reset` starts a new instance of DIM, 1 means that
    /// the driver had programmed the profile that DIM last chose, and 0 that it had not. A new instance starts at the
    /// profile of the column profile_ix, or at profile 0 if the file has no such column. If a call ends a measuring
    /// window, DIM reads the clock again to begin the next window. The optional column restart_time_ns holds this
    /// second reading [default: time_ns]. A column named `run` is allowed, and ignored.
    ///
    /// The optional columns state, tune_state, profile_ix, steps_right, steps_left and tired are compared with DIM's
    /// state. Exit status 1 if one of them differs.
    Replay(Replay),
}

/// Arguments of `apus dim replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// CSV file with the recorded calls of DIM.
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// DIM table and variant to use.
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
