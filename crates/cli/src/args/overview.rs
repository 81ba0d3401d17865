//! What `apus` and `apus --help` show: where to begin, and the commands, grouped by the question that they answer.
//!
//! clap lists all commands without groups. This module groups the same definitions: [`super::Command`] names and
//! describes each command, and [`QUESTIONS`] assigns it to a question. A test fails if a command belongs to no
//! question, or to two.

use clap::Subcommand as _;
use tester::layout;

/// The questions, in the order in which a new user asks them, with the commands that answer each.
const QUESTIONS: [(&str, &[&str]); 5] = [
    ("Find out what makes packets late", &["audit", "diagnose", "irqs", "snapshot"]),
    ("Change settings of the machine", &["tune", "moderate", "power"]),
    ("Run the packet loop, and watch it", &["run", "top", "metrics", "lab"]),
    ("Measure latency, loss and CPU time", &["demo", "bench", "probe", "experiment", "report"]),
    ("Model hardware, traffic and decisions", &["sim", "dim", "replay"]),
];

/// The first commands to try, with their purposes. The first one changes nothing and needs no privilege. The second
/// shows on this machine what Apus can do. The third tells how to move packets between the user's own interfaces.
const BEGIN: [(&str, &str); 3] = [
    ("apus audit", "find what makes packets late on this host, and how to fix it; changes nothing"),
    ("apus demo", "compare ways to wait for packets (polling, interrupts, adaptive); needs root, takes three minutes"),
    ("apus run --help", "move packets between your own interfaces"),
];

/// Maximum length of a line; the same as `max_term_width` of [`super::Args`].
pub(super) const WIDTH: usize = 100;

/// The template of the help text: like clap's default, but with grouped commands.
pub(super) fn template() -> String {
    let commands = super::Command::augment_subcommands(clap::Command::new("apus"));
    let styles = commands.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let mut group = |title: &str, rows: &[(String, String)]| {
        text.push_str(&format!("\n{header}{title}:{header:#}\n"));
        let column = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(NAME);
        for (name, about) in rows {
            let pad = column - name.len();
            let about = wrapped(about, 2 + column + 2);
            text.push_str(&format!("  {literal}{name}{literal:#}{:pad$}  {about}\n", ""));
        }
    };
    group("Begin with", &BEGIN.map(|(typed, what)| (typed.to_owned(), what.to_owned())));
    for (question, names) in QUESTIONS {
        let found = names.iter().filter_map(|name| commands.find_subcommand(name));
        let rows: Vec<(String, String)> = found
            .map(|command| {
                (command.get_name().to_owned(), command.get_about().map(ToString::to_string).unwrap_or_default())
            })
            .collect();
        group(question, &rows);
    }
    text.push_str(&format!("\n{header}Options:{header:#}\n{{options}}\n\n`apus COMMAND --help` explains a command."));
    text
}

/// Length of the longest command name, `experiment`. All groups use it, so that their columns align.
const NAME: usize = 10;

/// Wraps the text at [`WIDTH`]. All lines but the first are indented by `indent` spaces.
fn wrapped(text: &str, indent: usize) -> String {
    let margin = " ".repeat(indent);
    layout::wrapped(&margin, &margin, text, WIDTH).join("\n")[indent..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Args;
    use super::*;
    use clap::CommandFactory as _;

    fn commands() -> Vec<String> {
        let args = Args::command();
        let shown = args.get_subcommands().filter(|command| !command.is_hide_set());
        shown.map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn each_command_answers_one_question() {
        let mut grouped: Vec<String> =
            QUESTIONS.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect();
        let mut known = commands();
        grouped.sort();
        known.sort();
        assert_eq!(grouped, known, "a command stands under no question, or under two: see QUESTIONS");
    }

    #[test]
    fn one_begins_with_commands_that_there_are() {
        for (typed, _) in BEGIN {
            let name = typed.split(' ').nth(1).unwrap();
            assert!(commands().iter().any(|known| known == name), "{typed}");
            let ends = Args::command().try_get_matches_from(typed.split(' '));
            let asked_for_help = |e: clap::Error| e.kind() == clap::error::ErrorKind::DisplayHelp;
            assert!(ends.map_or_else(asked_for_help, |_| true), "{typed}");
        }
    }

    #[test]
    fn the_overview_names_each_command_with_its_description_and_fits() {
        for help in [Args::command().render_help(), Args::command().render_long_help()] {
            let help = help.to_string();
            assert!(!help.contains(['{', '}', '\u{1b}']), "{help}");
            let one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
            for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
                let about = command.get_about().expect("described").to_string();
                assert!(one_line.contains(&format!("{} {about}", command.get_name())), "{about}");
            }
            let longest = commands().iter().map(String::len).max();
            assert_eq!(longest, Some(NAME));
            let rows = help.split_once("\nBegin with:").and_then(|(_, rest)| rest.split_once("\nOptions:"));
            for line in rows.expect("the groups").0.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn texts_are_broken_between_words() {
        let text = "word ".repeat(40);
        let lines: Vec<String> = wrapped(&text, 14).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1..].iter().all(|line| line.starts_with(&" ".repeat(14)) && line.len() <= WIDTH), "{lines:?}");
        assert_eq!(wrapped("", 14), "");
    }
}
