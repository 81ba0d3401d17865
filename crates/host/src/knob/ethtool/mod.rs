//! Settings of network interfaces that ethtool(8) shows and changes, in the calling thread's network namespace.
//!
//! Each kind is a group of fields that is read and written together. Fields that the driver does not support are
//! missing. The driver rejects changes of a fixed field.

mod coalesce;
mod switches;

use serde::{Deserialize, Serialize};

use super::{Access, Error, Setting, Value};
use crate::nic::{self, Client, EthtoolGroup, Field, Interface, Numbers};

pub use coalesce::{Coalesce, CoalesceQueue};
pub use switches::{Features, PrivateFlags, is_offload};

/// Ring parameters of the interface. The fields have the names of ethtool-netlink: `rx`, `tx`, `rx-mini`, `rx-jumbo`,
/// `rx-buf-len`, `tcp-data-split`, `cqe-size`, `tx-push`, `rx-push`, `tx-push-buf-len`, `hds-thresh`.
///
/// To change them, most drivers stop and restart the interface: frames are lost, and other settings may be reset.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// The interface's name.
    pub interface: String,
}

/// The numbers of queues of an interface, by type: fields `rx`, `tx`, `other`, `combined`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// The interface's name.
    pub interface: String,
}

/// Ethernet flow control (IEEE 802.3, Annex 31B): fields `autoneg`, `rx` and `tx`, each 0 or 1.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The interface's name.
    pub interface: String,
}

/// The fields of a group that have a value. `None` if no field has a value.
pub(super) fn shown<G: Numbers>(group: &G, fields: &[Field]) -> Option<Value> {
    let known: Vec<_> = fields.iter().filter_map(|field| Some((field.name, group.get(field)?))).collect();
    (!known.is_empty()).then(|| Value::fields(known))
}

/// Parses a value into a group of settings with the fields `fields`.
pub(super) fn parse<G: Numbers>(what: &str, value: &Value, fields: &[Field], unit: &str) -> Result<G, Error> {
    let example = fields.first().map_or("", |field| field.name);
    let named = value.as_fields().filter(|fields| !fields.is_empty());
    let named = named.ok_or_else(|| Error::invalid(what, format!("expected fields such as {example}=1")))?;
    let mut group = G::default();
    for (name, text) in named {
        let number = text.parse::<u32>().ok().map(u64::from);
        let field = fields.iter().find(|field| field.name == name);
        let taken = field.zip(number).is_some_and(|(field, number)| group.fill(field, number));
        if !taken {
            let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let why = format!("{name}={text}: expected one of {}, with a whole number{unit}", known.join(", "));
            return Err(Error::invalid(what, why));
        }
    }
    Ok(group)
}

/// Reads a group of fields of an interface. `None` if the interface does not exist, or if the driver does not support
/// the group or any of its fields.
fn read<G: EthtoolGroup>(access: &Access, interface: &str, what: &str) -> Result<Option<Value>, Error> {
    let group = ask(access, interface, what, |client, interface| client.get::<G>(interface))?;
    Ok(group.and_then(|group| shown(&group, G::FIELDS)))
}

/// Writes the fields of the value. Fields that are 0 and not supported by the driver are left out, because the kernel
/// rejects the whole request if the driver does not declare one of its fields, even if that field is 0
/// (net/ethtool/coalesce.c, `ethnl_set_coalesce_validate`), or if the kernel does not know one.
fn write<G: EthtoolGroup>(access: &Access, interface: &str, what: &str, value: &Value) -> Result<(), Error> {
    let wanted: G = parse(&format!("{what} of {interface}"), value, G::FIELDS, "")?;
    let now = ask(access, interface, what, |client, interface| client.get::<G>(interface))?;
    let mut sent = G::default();
    for field in G::FIELDS {
        let lacks = now.as_ref().is_some_and(|now| !now.is_empty() && now.get(field).is_none());
        if let Some(number) = wanted.get(field).filter(|number| *number != 0 || !lacks) {
            sent.fill(field, number);
        }
    }
    if sent.is_empty() {
        return Ok(());
    }
    change(access, "netlink", interface, &format!("set {what} of {interface} to {value}"), |client, interface| {
        client.set(interface, &sent)
    })
}

/// Returns an error for unknown fields, values that are not numbers, fields that the driver does not support, and
/// values above the driver's maximum.
fn check<G: EthtoolGroup>(access: &Access, interface: &str, what: &str, value: &Value) -> Result<(), Error> {
    let label = format!("{what} of {interface}");
    let wanted: G = parse(&label, value, G::FIELDS, "")?;
    let Some(now) = ask(access, interface, what, |client, interface| client.get::<G>(interface))? else {
        return Ok(());
    };
    let mut lacking = Vec::new();
    for field in G::FIELDS {
        let Some(number) = wanted.get(field) else { continue };
        if number != 0 && now.get(field).is_none() {
            lacking.push(field.name);
        }
        if let Some(most) = now.most(field).filter(|most| number > *most) {
            return Err(Error::Refused {
                what: format!("set {}={number} in the {label}", field.name),
                why: format!("the driver allows at most {most}"),
                fix: "choose a smaller number".into(),
            });
        }
    }
    if !lacking.is_empty() {
        return Err(Error::Refused {
            what: format!("set {} in the {label}", lacking.join(", ")),
            why: "the driver does not support it".into(),
            fix: "remove it for this interface".into(),
        });
    }
    Ok(())
}

/// The name of an interface's driver. `None` if there is no such interface, or if the interface reports no driver.
pub fn driver_of(access: &Access, interface: &str) -> Result<Option<String>, Error> {
    Ok(ask(access, interface, "driver", |client, interface| client.driver(interface))?.map(|driver| driver.name))
}

/// Sends a query about an interface. `None` if the interface does not exist or does not support the query.
pub(super) fn ask<T>(
    access: &Access,
    interface: &str,
    what: &str,
    ask: impl FnOnce(&mut Client, &Interface) -> Result<T, nic::Error>,
) -> Result<Option<T>, Error> {
    if !access.is_live() {
        return Ok(None);
    }
    let said = access.nic(|client| client.interface(interface).and_then(|interface| ask(client, &interface)));
    match said.map_err(|error| Error::nic(format!("read the {what} of {interface}"), &error)) {
        Ok(answer) => Ok(Some(answer)),
        // A driver that does not support the group has no value for it.
        Err(Error::NotThere { .. } | Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Carries out a change of an interface, after announcing it to the gate.
pub(super) fn change(
    access: &Access,
    operation: &'static str,
    interface: &str,
    what: &str,
    change: impl FnOnce(&mut Client, &Interface) -> Result<(), nic::Error>,
) -> Result<(), Error> {
    let change = |client: &mut Client| client.interface(interface).and_then(|interface| change(client, &interface));
    access.act(operation, what, || access.nic(change)).map_err(|error| Error::nic(what, &error))
}

/// The index of an interface. `None` if the thread's network namespace has no interface with this name.
pub(super) fn index(access: &Access, interface: &str) -> Option<u32> {
    access.nic(|client| client.interface(interface)).ok().map(|interface| interface.index())
}

/// Identifies the interface by its index: an interface that is removed and created again gets a new index.
pub(super) fn identity(access: &Access, interface: &str) -> Option<String> {
    if access.is_live() { index(access, interface).map(|index| format!("ifindex {index}")) } else { None }
}

macro_rules! groups {
    ($($kind:ident => $what:literal,)*) => {
        $(impl $kind {
            /// Makes the setting for an interface.
            pub fn new(interface: impl Into<String>) -> Self {
                Self { interface: interface.into() }
            }
        }

        impl Setting for $kind {
            fn label(&self) -> String {
                format!("{} of {}", $what, self.interface)
            }
            fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
                read::<nic::$kind>(access, &self.interface, $what)
            }
            fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
                write::<nic::$kind>(access, &self.interface, $what, value)
            }
            fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
                check::<nic::$kind>(access, &self.interface, $what, value)
            }
            /// Zero: a field that the driver does not show counts as 0.
            fn unshown(&self, _: &str) -> Option<&'static str> {
                Some("0")
            }
            fn interface(&self) -> Option<&str> {
                Some(&self.interface)
            }
        })*
    };
}

groups! {
    Rings => "rings",
    Channels => "channels",
    Pause => "flow control",
}

#[cfg(test)]
mod tests;
