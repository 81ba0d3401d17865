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
    /// The column apply is `reset` to start a new instance, 1 if the driver had programmed the chosen profile before
    /// this call, and 0 otherwise. A new instance starts at the profile_ix of its row, or at 0 without this column.
    /// DIM measures over a window of events, and reads the clock again when it begins the next window. The optional
    /// column restart_time_ns is that second reading [default: time_ns]. The column run is ignored.
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
