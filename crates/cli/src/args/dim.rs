//! `apus dim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::one_of;

/// Linux's dynamic interrupt moderation (lib/dim), bit for bit.
#[derive(Subcommand, Debug)]
pub enum Dim {
    /// Feeds recorded calls to DIM, and shows or compares its state after each.
    ///
    /// The file is CSV with a header; columns are found by name. For a network queue: apply, time_ns,
    /// events, packets, bytes; for RDMA: apply, time_ns, completions. apply is `reset` (a new instance, whose
    /// profile_ix is that of the row, else 0), 1 (before this call the driver had programmed the profile) or
    /// 0. restart_time_ns is what the clock says if a new window begins in the call [default: time_ns]; run
    /// is not looked at. Where state, tune_state, profile_ix, steps_right, steps_left or tired are there,
    /// they are compared with what DIM comes to: exit status 1 if one differs.
    Replay(Replay),
}

/// `apus dim replay`
#[derive(Args, Debug)]
pub struct Replay {
    /// The calls.
    #[arg(value_name = "FILE.csv")]
    pub file: PathBuf,
    /// Which of DIM's tables and variants.
    #[arg(long, value_parser = one_of::<Mode>(), default_value_t = Mode::RxEqe)]
    pub mode: Mode,
    /// Print one JSON document (schema apus.dim-replay/1), with the state after each call.
    #[arg(long)]
    pub json: bool,
}

units::named! {
    /// DIM's tables, and its RDMA variant.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Mode {
        /// Receive; the timer starts at the event.
        RxEqe = "rx-eqe",
        /// Receive; every completion starts the timer anew.
        RxCqe = "rx-cqe",
        /// Transmit; the timer starts at the event.
        TxEqe = "tx-eqe",
        /// Transmit; every completion starts the timer anew.
        TxCqe = "tx-cqe",
        /// RDMA completion queues.
        Rdma = "rdma",
    }
}
