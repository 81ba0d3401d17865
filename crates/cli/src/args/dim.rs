//! `apus dim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::one_of;

/// Linux's dynamic interrupt moderation (lib/dim), bit for bit.
#[derive(Subcommand, Debug)]
pub enum Dim {
    /// Runs DIM on recorded samples, and shows its state after each or compares it with the recorded one.
    ///
    /// The file is CSV with a header; its columns may be in any order. For a network queue they are apply, time_ns,
    /// events, packets and bytes; for RDMA apply, time_ns and completions.
    ///
    /// apply is `reset` to start a new instance, 1 if the driver had programmed the chosen profile before this call,
    /// or 0. A new instance starts at the profile_ix of its row, or at 0. The optional restart_time_ns is the clock
    /// when a new window begins during the call [default: time_ns]. The column run is ignored.
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
