//! The CPUs that irqbalance must not use.
//!
//! Source: irqbalance(1), `IRQBALANCE_BANNED_CPULIST`.

use serde::{Deserialize, Serialize};

use super::file::text;
use super::irq::same_list;
use super::{Access, Error, Lasts, Setting, Value, config};
use crate::facts::CpuSet;

/// `IRQBALANCE_BANNED_CPULIST` in the daemon's configuration: `unset`, or a list of CPUs.
///
/// If the variable is unset, irqbalance avoids the CPUs of `isolcpus=` and `nohz_full=`. **If the variable is set,
/// irqbalance does not avoid them**, so the list must contain all banned CPUs. An empty list bans no CPU. A change
/// takes effect when the daemon is restarted.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct IrqbalanceBans {}

/// Paths of the configuration file on Debian and on Red Hat.
const FILES: [&str; 2] = ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"];
const KEY: &str = "IRQBALANCE_BANNED_CPULIST=";
const UNSET: &str = "unset";

fn file(access: &Access) -> Option<&'static str> {
    FILES.into_iter().find(|path| access.exists(path))
}

impl Setting for IrqbalanceBans {
    fn label(&self) -> String {
        "CPUs that irqbalance is banned from".into()
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let Some(path) = file(access) else { return Ok(None) };
        let config = access.read(path)?.unwrap_or_default();
        // The last assignment takes effect.
        let value = config.lines().rev().find_map(|line| line.strip_prefix(KEY));
        Ok(Some(Value::text(value.unwrap_or(UNSET))))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let path = file(access).ok_or_else(|| Error::NotThere {
            what: self.label(),
            why: "this host has no configuration file of irqbalance".into(),
        })?;
        let wanted = text(&self.label(), value)?;
        let config = access.read(path)?.unwrap_or_default();
        let mut lines: Vec<String> = config.split_inclusive('\n').map(str::to_owned).collect();
        let last = lines.iter().rposition(|line| line.starts_with(KEY));
        match (last, wanted) {
            (Some(at), UNSET) => drop(lines.remove(at)),
            (Some(at), wanted) => {
                let end = if lines[at].ends_with('\n') { "\n" } else { "" };
                lines[at] = format!("{KEY}{wanted}{end}");
            }
            (None, UNSET) => {}
            // The new line comes first, so that removing it restores the file byte by byte.
            (None, wanted) => lines.insert(0, format!("{KEY}{wanted}\n")),
        }
        config::replace(access, path, Some(&lines.concat()))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        let wanted = text(&self.label(), value)?;
        if wanted == UNSET || bare(wanted).parse::<CpuSet>().is_ok() {
            return Ok(());
        }
        Err(Error::invalid(self.label(), format!("{wanted:?}: expected unset or a list of CPUs such as 2-5")))
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        a == b || (a != UNSET && b != UNSET && same_list(bare(a), bare(b)))
    }

    fn lasts(&self) -> Lasts {
        Lasts::AcrossReboots
    }

    fn settle(&self, access: &Access) -> Result<(), Error> {
        file(access).map_or(Ok(()), |path| config::settle(access, path))
    }
}

/// Removes the quotes around a shell word.
fn bare(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Theirs};
    use crate::testing::Folder;

    #[test]
    fn the_file_comes_back_octet_by_octet() {
        for config in [
            "# a\n#IRQBALANCE_BANNED_CPULIST=\nIRQBALANCE_ARGS=--x\n",
            "no newline at the end",
            "",
            "IRQBALANCE_BANNED_CPULIST=\"1-2\"\nX=1\n",
            "X=1\nIRQBALANCE_BANNED_CPULIST=3",
        ] {
            let folder = Folder::new(&[("etc/default/irqbalance", config)]);
            let (access, knob) = (folder.access(), Knob(IrqbalanceBans {}));
            let change = knob.set(&access, &Value::text("4-7")).unwrap();
            assert!(change.verdict.is_good(), "{config:?}: {change:?}");
            knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
            assert_eq!(folder.read("etc/default/irqbalance"), config);
        }
    }

    #[test]
    fn an_empty_list_is_not_unset() {
        let folder = Folder::new(&[("etc/sysconfig/irqbalance", "IRQBALANCE_BANNED_CPULIST=\n")]);
        let (access, knob) = (folder.access(), Knob(IrqbalanceBans {}));
        assert_eq!(knob.read(&access).unwrap(), Some(Value::text("")));
        assert!(!knob.verify(&access, &Value::text("unset"), None).unwrap().is_good());
        assert!(knob.set(&access, &Value::text("2-x")).is_err());
        assert_eq!(Knob(IrqbalanceBans {}).read(&Folder::new(&[]).access()).unwrap(), None);
    }
}
