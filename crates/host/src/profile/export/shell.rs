//! Converts a step into a shell command, for tools that run commands.

use super::steps::Step;

/// A step as shell commands.
pub(super) struct Command {
    /// Path that must exist for the step to apply to this machine: a file, or an interface's folder.
    pub(super) subject: String,
    /// A command that prints the current state.
    pub(super) show: String,
    /// A command that carries out the step.
    pub(super) set: String,
    /// What `show` prints if the step has nothing to do. `None` if the output of `show` does not tell.
    pub(super) wanted: Option<String>,
}

impl Command {
    /// The command that carries out a step. `None` if no command can do so.
    pub(super) fn of(step: &Step) -> Option<Self> {
        let file = |path: &str, text: &str| Self {
            subject: path.into(),
            show: format!("cat {}", quoted(path)),
            set: format!("printf '%s\\n' {} >{}", quoted(text), quoted(path)),
            wanted: Some(text.into()),
        };
        Some(match step {
            Step::Sysctl { value, path, .. } => file(path, value),
            Step::Write { path, text } => file(path, text),
            Step::Folder(path) => Self {
                subject: path.rsplit_once('/').map_or("/", |(parent, _)| parent).into(),
                show: format!("ls -d {}", quoted(path)),
                set: format!("mkdir -p {}", quoted(path)),
                wanted: Some(path.clone()),
            },
            Step::Run { words, show, interface } => {
                let line = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
                Self {
                    subject: format!("/sys/class/net/{interface}"),
                    show: line(show),
                    set: line(words),
                    wanted: None,
                }
            }
            Step::Arguments(_) | Step::Latency(_) | Step::None(_) => return None,
        })
    }
}

/// Quotes any string as one word for the shell (POSIX, Shell Command Language, 2.2.2).
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_a_word() {
        for text in ["", "a b", "it's", "$(reboot)", "`x`", "a\"b", "a\\nb", "*", "é", "-n", "a;b&c|d>e"] {
            let output = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(text))).output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), text);
        }
    }
}
