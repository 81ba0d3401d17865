//! Arguments for the kernel's command line, in a configuration fragment for the boot loader.
//!
//! Source: GRUB manual, "Simple configuration handling"; Debian's grub-mkconfig, which reads
//! /etc/default/grub.d/*.cfg.

use serde::{Deserialize, Serialize};

use super::file::text;
use super::{Access, Error, Lasts, Setting, Value, config};

/// The arguments in Apus's fragment for GRUB: `none` (no fragment), or the arguments, separated by spaces.
///
/// GRUB appends the fragment's arguments to those already configured. They take effect after the user runs
/// `update-grub` and reboots. On hosts where GRUB reads no fragments (BLS entries, systemd-boot), the setting does not
/// exist; Apus can only show the arguments, and the user adds them by hand.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct BootFragment {}

const FOLDER: &str = "/etc/default/grub.d";
const FRAGMENT: &str = "/etc/default/grub.d/60-apus.cfg";
const NONE: &str = "none";
const HEAD: &str = "# Written by apus tune; apus tune rollback removes it. In force after update-grub and a reboot.\n";
const BEFORE: &str = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT ";
const AFTER: &str = "\"\n";

impl BootFragment {
    /// Path of the file that Apus writes for the boot loader.
    pub const PATH: &str = FRAGMENT;

    /// The contents of the fragment file for `arguments`.
    pub fn content(arguments: &str) -> String {
        format!("{HEAD}{BEFORE}{arguments}{AFTER}")
    }

    /// The arguments that the running kernel's command line lacks. `None` if the command line is not known.
    pub fn missing(access: &Access, arguments: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(line) = access.line("/proc/cmdline")? else { return Ok(None) };
        let running: Vec<&str> = line.split_whitespace().collect();
        let missing = arguments.split_whitespace().filter(|argument| !running.contains(argument));
        Ok(Some(missing.map(str::to_owned).collect()))
    }
}

/// The arguments in a fragment that Apus wrote. `None` if Apus did not write it.
fn arguments_of(content: &str) -> Option<&str> {
    content.strip_prefix(HEAD)?.strip_prefix(BEFORE)?.strip_suffix(AFTER)
}

impl Setting for BootFragment {
    fn label(&self) -> String {
        format!("kernel arguments in {FRAGMENT}")
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if let Some(content) = access.read(FRAGMENT)? {
            // If someone else wrote or edited the file, the value is its whole content.
            return Ok(Some(Value::Text(arguments_of(&content).unwrap_or(&content).to_owned())));
        }
        Ok(access.exists(FOLDER).then(|| Value::text(NONE)))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let arguments = value.as_text().ok_or_else(|| Error::invalid(self.label(), "takes one line"))?;
        if arguments == NONE {
            return config::replace(access, FRAGMENT, None);
        }
        config::replace(access, FRAGMENT, Some(&Self::content(arguments)))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let arguments = text(&self.label(), value)?;
        if arguments.trim().is_empty()
            || arguments.contains(['"', '$', '`', '\\', '\'', ';', '&', '|', '<', '>', '(', ')'])
        {
            let why = format!(
                "{arguments:?}: expected kernel arguments without shell characters, such as isolcpus=managed_irq,domain,2-5"
            );
            return Err(Error::invalid(self.label(), why));
        }
        match access.read(FRAGMENT)? {
            Some(content) if arguments_of(&content).is_none() => Err(Error::Refused {
                what: format!("write {FRAGMENT}"),
                why: "a file of that name exists that Apus did not write".into(),
                fix: "move that file away".into(),
            }),
            _ => Ok(()),
        }
    }

    fn lasts(&self) -> Lasts {
        Lasts::AcrossReboots
    }

    fn settle(&self, access: &Access) -> Result<(), Error> {
        config::settle(access, FRAGMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Theirs};
    use crate::testing::Folder;

    #[test]
    fn a_fragment_is_written_and_removed() {
        let folder = Folder::new(&[("etc/default/grub.d/50-x.cfg", ""), ("proc/cmdline", "quiet nohz_full=2-5\n")]);
        let (access, knob) = (folder.access(), Knob(BootFragment {}));
        let wanted = "isolcpus=managed_irq,domain,2-5 nohz_full=2-5";
        let change = knob.set(&access, &Value::text(wanted)).unwrap();
        assert!(change.verdict.is_good(), "{change:?}");
        let content = folder.read(FRAGMENT);
        assert!(content.ends_with(&format!("=\"$GRUB_CMDLINE_LINUX_DEFAULT {wanted}\"\n")), "{content}");
        let missing = BootFragment::missing(&access, wanted).unwrap();
        assert_eq!(missing, Some(vec!["isolcpus=managed_irq,domain,2-5".to_owned()]));
        knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
        assert!(!folder.path(FRAGMENT).exists());
    }

    #[test]
    fn nothing_reaches_the_shell() {
        let folder = Folder::new(&[("etc/default/grub.d/50-x.cfg", "")]);
        for wrong in ["a\"; rm -rf /", "$(x)", "`x`", "", "a\nb"] {
            assert!(Knob(BootFragment {}).set(&folder.access(), &Value::text(wrong)).is_err(), "{wrong:?} was taken");
        }
        for theirs in ["someone's\n", "someone"] {
            folder.put(FRAGMENT, theirs);
            assert!(Knob(BootFragment {}).set(&folder.access(), &Value::text("quiet")).is_err());
            assert_eq!(folder.read(FRAGMENT), theirs);
        }
    }
}
