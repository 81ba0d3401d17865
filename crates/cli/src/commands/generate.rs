//! `apus generate`: writes shell completions and manual pages. Both come from the definitions that parse the arguments.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::Args;
use crate::args::generate::{Generate, Shell};
use crate::documents::VERSION;
use crate::{Failure, Status, terminal};

/// Prints the completions, or writes the manual pages to a folder.
pub(super) fn run(typed: &Generate) -> anyhow::Result<Status> {
    match typed {
        Generate::Completions { shell } => {
            let mut out = terminal::out();
            out.write_all(&completions(*shell)).and_then(|()| out.flush()).context("print the completions")?;
        }
        Generate::Man { folder } => write_pages(folder)?,
    }
    Ok(Status::Good)
}

/// The completion script for this shell.
fn completions(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown(&Args::command()), "apus", &mut text);
    text
}

/// The command without hidden subcommands and options, which clap_complete would complete too.
fn shown(command: &clap::Command) -> clap::Command {
    let mut shown = clap::Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    shown.args(arguments.cloned()).subcommands(inner.map(self::shown))
}

fn write_pages(folder: &Path) -> anyhow::Result<()> {
    let failed = |e: std::io::Error| {
        Failure::lacking(
            format!("write manual pages to {}", folder.display()),
            e,
            "name a folder that you can write to",
        )
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in pages()? {
        terminal::file(&folder.join(name), &text).map_err(failed)?;
    }
    Ok(())
}

/// The pages with their file names: `apus.1`, `apus-tune.1`, `apus-tune-apply.1` and so on.
fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let mut command = Args::command().disable_help_subcommand(true);
    // Gives each command its whole name.
    command.build();
    let mut pages = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned());
        // The date would differ at each build, so the version takes its place. If it were empty, roff would drop this
        // argument of .TH and shift the following ones.
        let page = Man::new(command).date(format!("Apus {VERSION}")).source("");
        let mut text = Vec::new();
        page.render(&mut text).context("render a manual page")?;
        pages.push((page.get_filename(), String::from_utf8(text).context("render a manual page")?));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_is_a_page_for_each_command_that_is_shown() {
        let pages = pages().unwrap();
        let names: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), pages.len(), "two pages of one name");
        for name in ["apus.1", "apus-run.1", "apus-run-macswap.1", "apus-tune-apply.1", "apus-bench-latency.1"] {
            assert!(names.contains(name), "{name} is missing from {names:?}");
        }
        for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(names.contains(format!("apus-{}.1", command.get_name()).as_str()), "{}", command.get_name());
        }
        for hidden in ["apus-generate.1", "apus-tune-hold.1", "apus-tune-guard.1", "apus-help.1"] {
            assert!(!names.contains(hidden), "{hidden}");
        }
    }

    #[test]
    fn a_page_says_what_the_help_says() {
        let pages = pages().unwrap();
        let (_, top) = pages.iter().find(|(name, _)| name == "apus-top.1").unwrap();
        for wanted in [&*format!(".TH apus-top 1 \"Apus {VERSION}\""), ".SH NAME", "\\-\\-once", ".SH OPTIONS"] {
            assert!(top.contains(wanted), "{wanted}: {top}");
        }
        for (name, text) in &pages {
            assert_eq!(terminal::clean(text), *text, "{name} holds characters that act");
            let about = text.split(".SH DESCRIPTION").nth(1).unwrap_or_default();
            assert!(!about.starts_with("\n.SH"), "{name} has no description");
        }
    }

    #[test]
    fn completions_show_what_the_help_shows() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(completions(shell)).unwrap();
            assert_eq!(terminal::clean(&text), text, "{shell:?}: characters that act");
            for hidden in ["generate", "guard"] {
                assert!(!text.contains(hidden), "{shell:?}: {hidden}");
            }
            for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(text.contains(command.get_name()), "{shell:?}: {}", command.get_name());
            }
        }
    }
}
