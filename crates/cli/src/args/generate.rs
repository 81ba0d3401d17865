//! `apus generate`: writes completions and manual pages from the definitions of the commands, for packages and `make
//! install`.
//!
//! The program itself generates its completions and pages, because it contains the definitions anyway. A separate
//! program would take as long to link, and a user who has only `apus` could not generate them.

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
