//! A file of sysfs or procfs.

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::{Access, Error, Setting, Value};

/// A file below `/sys` or `/proc` with one value.
///
/// Some files show all possible words, with the selected one in brackets, such as `always [madvise] never` (transparent
/// huge pages, KSM's advisor, I/O schedulers). The value of such a file is the word in brackets.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Path of the file.
    pub path: String,
}

impl File {
    /// Makes the setting for the file at `path`.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }
}

impl Setting for File {
    fn label(&self) -> String {
        self.path.clone()
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path.clone())
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        Ok(access.line(&self.path)?.map(|line| Value::Text(chosen(&line).unwrap_or(&line).to_owned())))
    }

    fn admit(&self) -> Result<(), Error> {
        let path = &self.path;
        if !["/sys/", "/proc/sys/", "/proc/irq/"].iter().any(|folder| path.starts_with(folder))
            || !super::is_plain(path)
        {
            return Err(Error::invalid(path, "only files below /sys, /proc/sys and /proc/irq can be set"));
        }
        Ok(())
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        let path = &self.path;
        let wanted = text(path, value)?;
        if let Some(line) = access.line(path)?
            && chosen(&line).is_some()
            && !words(&line).any(|word| word == wanted)
        {
            let known: Vec<&str> = words(&line).collect();
            return Err(Error::invalid(
                path,
                format!("{wanted} is not supported; expected one of {}", known.join(", ")),
            ));
        }
        Ok(())
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        let parameter = self.path.starts_with("/sys/module/");
        match (yes(a), yes(b)) {
            (Some(a), Some(b)) if parameter => a == b,
            _ => a.split_whitespace().eq(b.split_whitespace()),
        }
    }

    fn capability(&self) -> CapabilitySet {
        // net/core/net-sysfs.c requires this capability in addition to the file's mode.
        if super::is_file_of_network(&self.path) { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() }
    }

    fn is_of_network(&self) -> bool {
        super::is_file_of_network(&self.path)
    }

    fn identity(&self, access: &Access) -> Result<Option<String>, Error> {
        super::interface::identity_of_path(access, &self.path)
    }
}

/// The value as a single line. Returns an error if it consists of fields or of several lines.
pub(super) fn text<'a>(what: &str, value: &'a Value) -> Result<&'a str, Error> {
    let text = value.as_text().ok_or_else(|| Error::invalid(what, "it takes one value, not fields"))?;
    if text.contains(['\n', '\0']) {
        return Err(Error::invalid(what, "a value must be a single line"));
    }
    Ok(text)
}

/// The selected word, in brackets, of a line such as `always [madvise] never`. `None` unless exactly one word is in
/// brackets.
fn chosen(line: &str) -> Option<&str> {
    let mut bracketed = line.split_whitespace().filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let word = bracketed.next()?;
    (bracketed.next().is_none() && !word.is_empty()).then_some(word)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace().map(|word| word.trim_matches(['[', ']']))
}

/// Parses a boolean module parameter. The kernel shows Y or N and accepts several spellings (kernel/params.c,
/// `param_set_bool`).
fn yes(text: &str) -> Option<bool> {
    match text {
        "Y" | "y" | "1" => Some(true),
        "N" | "n" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Verdict};
    use crate::testing::Folder;

    const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

    #[test]
    fn a_choice_is_its_bracketed_word() {
        let folder = Folder::new(&[(THP, "always [madvise] never\n")]);
        let (knob, access) = (Knob(File::new(THP)), folder.access());
        assert_eq!(knob.read(&access).unwrap(), Some(Value::text("madvise")));
        let change = knob.set(&access, &Value::text("never")).unwrap();
        assert_eq!(change.before, Value::text("madvise"));
        assert!(change.verdict.is_good());
        let error = knob.set(&access, &Value::text("sometimes")).unwrap_err();
        assert!(error.to_string().contains("always, madvise, never"), "{error}");
    }

    #[test]
    fn module_parameters_are_booleans() {
        let path = "/sys/module/kvm/parameters/nx_huge_pages";
        let folder = Folder::new(&[(path, "Y\n"), ("/sys/x", "Y\n")]);
        let verify = |path| Knob(File::new(path)).verify(&folder.access(), &Value::text("1"), None).unwrap();
        assert!(verify(path).is_good());
        assert!(matches!(verify("/sys/x"), Verdict::Otherwise { .. }));
        assert_eq!(verify("/sys/y"), Verdict::Gone);
    }

    #[test]
    fn other_places_are_no_settings() {
        let folder = Folder::new(&[("etc/passwd", "root\n")]);
        for path in ["/etc/passwd", "/sys/../etc/passwd"] {
            assert!(matches!(
                Knob(File::new(path)).set(&folder.access(), &Value::text("x")),
                Err(Error::Invalid { .. } | Error::NotThere { .. })
            ));
        }
        assert_eq!(folder.read("etc/passwd"), "root\n");
    }
}
