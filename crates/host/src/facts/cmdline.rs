//! A kernel command line.

use std::fmt;

use super::{CpuSet, CpuSetError};

/// A kernel command line as a sequence of words (Documentation/admin-guide/kernel-parameters.rst).
///
/// In names, the kernel treats dashes and underscores as equal. The same holds for [`Self::last`], [`Self::all`] and
/// [`Self::has`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// The text as it was read, without the final newline.
    pub raw: String,
    /// The words before `--`. Words after `--` are passed to the init process.
    pub parameters: Vec<Parameter>,
}

/// One word of a kernel command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name as written, without quotes.
    pub name: String,
    /// The text after the first `=`, without quotes. `None` if there is no `=`.
    pub value: Option<String>,
}

impl CommandLine {
    /// Splits a command line; any text is valid. Double quotes protect spaces, as in the kernel's `next_arg`
    /// (lib/cmdline.c).
    pub fn parse(text: &str) -> Self {
        let raw = text.trim_matches(['\n', '\0', ' ']).to_owned();
        let parameters = words(&raw).into_iter().take_while(|word| *word != "--").map(Parameter::parse).collect();
        Self { raw, parameters }
    }

    /// The last parameter with this name. For most parameters, the kernel uses the last one. `None` if no parameter has
    /// this name.
    pub fn last(&self, name: &str) -> Option<&Parameter> {
        self.all(name).next_back()
    }

    /// The value of the last parameter with this name that has a value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.all(name).rev().find_map(|parameter| parameter.value.as_deref())
    }

    /// All parameters with this name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl DoubleEndedIterator<Item = &'a Parameter> + use<'a, 'n> {
        self.parameters.iter().filter(move |parameter| same_name(&parameter.name, name))
    }

    /// Whether there is a parameter with this name, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether there is a parameter with this name whose value, or a comma-separated part of it, equals `value`.
    pub fn has_value(&self, name: &str, value: &str) -> bool {
        self.all(name).any(|parameter| parameter.parts().any(|part| part == value))
    }
}

impl Parameter {
    fn parse(word: &str) -> Self {
        let unquoted = word.replace('"', "");
        match unquoted.split_once('=') {
            Some((name, value)) => Self { name: name.to_owned(), value: Some(value.to_owned()) },
            None => Self { name: unquoted, value: None },
        }
    }

    /// The comma-separated parts of the value.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.value.iter().flat_map(|value| value.split(','))
    }

    /// The words before a CPU list: `managed_irq` and `domain` in `isolcpus=managed_irq,domain,2-7`.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.parts().take_while(|part| is_flag(part))
    }

    /// The CPU list after the flags. In the list, `all` means all CPUs of `present`, and `N` means the last CPU of
    /// `present`.
    pub fn cpu_set(&self, present: &CpuSet) -> Result<CpuSet, CpuSetError> {
        let list: Vec<&str> = self.parts().skip_while(|part| is_flag(part)).collect();
        CpuSet::parse_list_within(&list.join(","), present)
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn is_flag(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_lowercase()) && part != "all"
}

/// Compares names as the kernel does: `-` and `_` are equal (`parameqn`, kernel/params.c).
pub fn same_name(a: &str, b: &str) -> bool {
    let dash = |c: u8| if c == b'-' { b'_' } else { c };
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(a, b)| dash(a) == dash(b))
}

fn words(text: &str) -> Vec<&str> {
    let mut quoted = false;
    let words = text.split(move |c: char| {
        if c == '"' {
            quoted = !quoted;
        }
        c.is_whitespace() && !quoted
    });
    words.filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_values_and_quotes() {
        let line =
            CommandLine::parse("ro isolcpus=managed_irq,domain,2-7 dyndbg=\"file a.c +p\" tsc=reliable -- tsc=x\n");
        assert_eq!(line.parameters.len(), 4);
        assert_eq!(line.value("dyndbg"), Some("file a.c +p"));
        assert_eq!(line.value("tsc"), Some("reliable"));
        assert_eq!(line.last("ro").unwrap().value, None);
        assert!(line.has_value("isolcpus", "domain") && !line.has_value("isolcpus", "2"));
    }

    #[test]
    fn flags_stand_before_the_cpus() {
        let line = CommandLine::parse("isolcpus=managed_irq,domain,2-3,8 nohz_full=all irqaffinity=0,x");
        let isolcpus = line.last("isolcpus").unwrap();
        assert_eq!(isolcpus.flags().collect::<Vec<_>>(), ["managed_irq", "domain"]);
        assert_eq!(isolcpus.cpu_set(&CpuSet::new()), Ok(CpuSet::from([2, 3, 8])));
        let present = CpuSet::below(4);
        assert_eq!(line.last("nohz_full").unwrap().cpu_set(&present), Ok(present.clone()));
        assert!(line.last("irqaffinity").unwrap().cpu_set(&present).is_err());
    }

    #[test]
    fn the_last_one_counts_and_dashes_are_underscores() {
        let line = CommandLine::parse("nohz_full=1 skew_tick=1 nohz-full=2-3 skew_tick=1");
        assert_eq!(line.value("nohz_full"), Some("2-3"));
        assert_eq!(line.all("skew-tick").count(), 2);
    }

    proptest! {
        #[test]
        fn any_text_is_a_command_line(text in ".{0,200}") {
            let line = CommandLine::parse(&text);
            prop_assert!(line.parameters.iter().all(|parameter| !parameter.name.contains('"')));
        }
    }
}
