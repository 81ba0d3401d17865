//! A step as a shell command, for engines that run commands.

use super::steps::Step;

/// What the shell needs to know of a step.
pub(super) struct Command {
    /// What must exist for the step to mean anything here: a file, an interface's folder.
    pub(super) subject: String,
    /// Prints how it stands.
    pub(super) show: String,
    /// Sets it.
    pub(super) set: String,
    /// The text that is shown where the step has nothing to do; `None` if only its effect tells.
    pub(super) wanted: Option<String>,
}

impl Command {
    /// `None` for what is no command.
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

/// A word for the shell (POSIX, Shell Command Language, 2.2.2): as it is, whatever is in it.
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
