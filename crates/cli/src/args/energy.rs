//! The machine for which energy is modelled, in every command that reports energy.

use clap::Args;

/// The machine to model.
#[derive(Args, Clone, Debug, Default)]
pub struct Modelled {
    /// Also estimate the energy for the measured CPU time, from the model of the machine NAME, which `apus sim
    /// machines` lists, or of a machine in FILE.toml. The result marks it as modelled [default: no modelled figure].
    #[arg(long, value_name = "NAME", help_heading = "Energy")]
    pub machine: Option<String>,
}
