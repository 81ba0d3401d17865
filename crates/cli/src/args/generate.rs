//! `apus generate`: what packages and `make install` make of the definitions of the commands.
//!
//! The program generates its own completions and pages, since it holds their definitions anyway: a second program for it
//! would take as long to link as the first, and whoever has the program alone has its completions too.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// What to generate.
#[derive(Subcommand, Debug)]
pub enum Generate {
    /// Prints the completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the manual pages: apus.1, and one for each command, such as apus-tune-apply.1.
    Man {
        /// Folder to write to; created if it does not exist.
        folder: PathBuf,
    },
}

/// A shell for which there are completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[expect(missing_docs, reason = "each is a shell's name")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}
