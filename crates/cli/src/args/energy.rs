//! The machine for which energy is modelled, in every command that reports energy.

use clap::Args;

/// The machine to model.
#[derive(Args, Clone, Debug, Default)]
pub struct Modelled {
    /// Also give the energy that a model of this machine would need for the same CPU time, marked as modelled. A name that
    /// `apus sim machines` lists, or FILE.toml [default: no modelled figure].
    #[arg(long, value_name = "NAME", help_heading = "Energy")]
    pub machine: Option<String>,
}
