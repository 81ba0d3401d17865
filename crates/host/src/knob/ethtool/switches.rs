//! Offloads and private flags, which are on or off.
//!
//! Source: kernel documentation, networking/ethtool-netlink, "FEATURES_GET", "PRIVFLAGS_GET";
//! networking/netdev-features, about wanted and active features.

use serde::{Deserialize, Serialize};

use super::{ask, change};
use crate::knob::{Access, Error, Setting, Value};
use crate::nic::Feature;

/// Offloads of a device, by the names that the kernel uses and `ethtool -k` prints, such as `rx-gro`. Values are `on`,
/// `off`, or for example `off (wanted on)` while another setting overrides the requested state.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// The interface's name.
    pub interface: String,
}

/// A driver's private flags, by the names that the driver gives them: `on` or `off`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct PrivateFlags {
    /// The interface's name.
    pub interface: String,
}

/// The short names of ethtool(8) with the kernel names for which they stand; `*` matches any string (ethtool.c,
/// `off_flag_def`).
const ALIASES: [(&str, &str); 12] = [
    ("gro", "rx-gro"),
    ("lro", "rx-lro"),
    ("gso", "tx-generic-segmentation"),
    ("tso", "tx-tcp*-segmentation"),
    ("ufo", "tx-udp-fragmentation"),
    ("rx", "rx-checksum"),
    ("tx", "tx-checksum-*"),
    ("sg", "tx-scatter-gather*"),
    ("rxvlan", "rx-vlan-hw-parse"),
    ("txvlan", "tx-vlan-hw-insert"),
    ("ntuple", "rx-ntuple-filter"),
    ("rxhash", "rx-hashing"),
];

/// Whether `name` means the offload `kernel_name`: it is the same name, or a short name of ethtool(8) such as `tx`.
pub fn is_offload(name: &str, kernel_name: &str) -> bool {
    let meant = ALIASES.iter().find(|(short, _)| *short == name).map_or(name, |(_, meant)| *meant);
    match meant.split_once('*') {
        Some((start, end)) => {
            kernel_name.len() >= start.len() + end.len() && kernel_name.starts_with(start) && kernel_name.ends_with(end)
        }
        None => meant == kernel_name,
    }
}

impl Features {
    /// Makes the setting for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into() }
    }

    /// Replaces each short name of ethtool(8) by the kernel names for which it stands, as far as the driver can switch
    /// them. Unknown names do not change.
    pub fn meant(&self, access: &Access, wanted: Value) -> Result<Value, Error> {
        let (Some(fields), Some(Value::Fields(now))) = (wanted.as_fields(), self.read(access)?) else {
            return Ok(wanted);
        };
        let names = |name: &String| -> Vec<String> {
            let meant: Vec<String> = now.keys().filter(|known| is_offload(name, known)).cloned().collect();
            if meant.is_empty() { vec![name.clone()] } else { meant }
        };
        let all = fields.iter().flat_map(|(name, text)| names(name).into_iter().map(move |name| (name, text)));
        Ok(Value::fields(all))
    }
}

impl PrivateFlags {
    /// Makes the setting for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into() }
    }
}

/// The requested state of a switch: true for `on` and `off (wanted on)`, false for `off` and `on (wanted off)`. `None`
/// for other strings.
fn wish(text: &str) -> Option<bool> {
    match text {
        "on" | "off (wanted on)" => Some(true),
        "off" | "on (wanted off)" => Some(false),
        _ => None,
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn wishes<'a>(what: &str, value: &'a Value) -> Result<Vec<(&'a str, bool)>, Error> {
    let wrong = |name: &str, text: &str| Error::invalid(what, format!("{name}={text}: expected on or off"));
    let fields = value.as_fields().filter(|fields| !fields.is_empty());
    let fields = fields.ok_or_else(|| Error::invalid(what, "expected switches such as rx-gro=off"))?;
    fields.iter().map(|(name, text)| Ok((name.as_str(), wish(text).ok_or_else(|| wrong(name, text))?))).collect()
}

impl Setting for Features {
    fn label(&self) -> String {
        format!("offloads of {}", self.interface)
    }

    /// Reads the features that can be changed.
    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let features = ask(access, &self.interface, "features", |client, interface| client.features(interface))?;
        let changeable = features.map(|all| all.into_iter().filter(|(_, feature)| !feature.fixed));
        Ok(changeable.map(|all| {
            Value::fields(all.map(|(name, Feature { on, wanted, .. })| {
                let text = word(on).to_owned();
                (name, if on == wanted { text } else { format!("{text} (wanted {})", word(wanted)) })
            }))
        }))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wishes = wishes(&self.label(), value)?;
        let what = format!("set offloads of {} to {value}", self.interface);
        change(access, "netlink", &self.interface, &what, |client, interface| client.set_features(interface, wishes))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let now = self.read(access)?;
        for (name, _) in wishes(&self.label(), value)? {
            if now.as_ref().is_some_and(|now| now.field(name).is_none()) {
                let hint = ALIASES.iter().find(|(short, _)| *short == name);
                let fix = match hint {
                    Some((_, meant)) => {
                        format!("this name stands for {meant}; those that ethtool -k marks [fixed] cannot be changed")
                    }
                    None => "check ethtool -k: it is marked [fixed] there, or has another name".into(),
                };
                return Err(Error::Refused {
                    what: format!("switch {name} of {}", self.interface),
                    why: "the driver has no such offload that can be changed".into(),
                    fix,
                });
            }
        }
        Ok(())
    }

    /// Compares the strings exactly: `off (wanted on)` is not `on`.
    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        a == b
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }

    fn explain(&self, _: &Access, wanted: &Value, now: &Value) -> Option<String> {
        let stuck =
            wanted.as_fields()?.iter().find(|(name, _)| now.field(name).is_some_and(|now| now.contains("wanted")))?;
        Some(format!("{} depends on another offload, or the driver forces it", stuck.0))
    }
}

impl Setting for PrivateFlags {
    fn label(&self) -> String {
        format!("private flags of {}", self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let flags = ask(access, &self.interface, "private flags", |client, interface| client.private_flags(interface))?;
        Ok(flags.map(|flags| Value::fields(flags.into_iter().map(|(name, on)| (name, word(on))))))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wishes = wishes(&self.label(), value)?;
        let what = format!("set private flags of {} to {value}", self.interface);
        change(access, "netlink", &self.interface, &what, |client, interface| {
            client.set_private_flags(interface, wishes)
        })
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let now = self.read(access)?;
        for (name, _) in wishes(&self.label(), value)? {
            if let Some(Value::Fields(now)) = &now
                && !now.contains_key(name)
            {
                let known: Vec<&str> = now.keys().map(String::as_str).collect();
                return Err(Error::invalid(self.label(), format!("{name}: expected one of {}", known.join(", "))));
            }
        }
        Ok(())
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_what_they_mean_to_ethtool() {
        for (short, name) in [
            ("tx", "tx-checksum-ip-generic"),
            ("tx", "tx-checksum-ipv6"),
            ("rx", "rx-checksum"),
            ("tso", "tx-tcp-segmentation"),
            ("tso", "tx-tcp6-segmentation"),
            ("sg", "tx-scatter-gather-fraglist"),
            ("rx-gro-hw", "rx-gro-hw"),
        ] {
            assert!(is_offload(short, name), "{short} {name}");
        }
        for (short, name) in
            [("rx", "rx-gro"), ("gro", "rx-gro-hw"), ("tso", "tx-udp-segmentation"), ("tx", "tx-lockless")]
        {
            assert!(!is_offload(short, name), "{short} {name}");
        }
    }
}
