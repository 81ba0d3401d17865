//! Arguments shared by all commands that report energy: the machine whose energy to model.

use clap::Args;

/// The machine whose energy to model.
#[derive(Args, Clone, Debug, Default)]
pub struct Modelled {
    /// Also estimate the energy that a modelled machine would use for the measured CPU time. NAME is a machine that
    /// `apus sim machines` lists, or a FILE.toml. The result marks the estimate as modelled [default: no estimate].
    #[arg(long, value_name = "NAME", help_heading = "Energy")]
    pub machine: Option<String>,
}
