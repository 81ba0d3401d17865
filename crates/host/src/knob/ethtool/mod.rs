//! Settings of network interfaces that ethtool(8) makes, in the calling thread's network namespace.
//!
//! Each kind is a group of fields that is read and written together. Fields that the driver does not have are missing;
//! the driver refuses to change a fixed field.

mod coalesce;
mod message;
mod switches;
mod sys;

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};

use message::Message;

use super::{Access, Error, Setting, Value};

pub use coalesce::{Coalesce, CoalesceQueue};
pub use switches::{Features, PrivateFlags, is_offload};

/// Descriptors in the rings: fields `rx`, `tx`, `rx-mini`, `rx-jumbo`, `rx-buf-len`, `tcp-data-split`,
/// `cqe-size`, `tx-push`, `rx-push`, `tx-push-buf-len`, `hds-thresh`, as ethtool-netlink names them.
///
/// Most drivers stop and restart the interface for a change: frames are lost, and other settings may be reset.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rings {
    /// The interface's name.
    pub interface: String,
}

/// Numbers of queues: fields `rx`, `tx`, `other`, `combined`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    /// The interface's name.
    pub interface: String,
}

/// Ethernet flow control (IEEE 802.3, Annex 31B): fields `autoneg`, `rx`, `tx`, 0 or 1.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The interface's name.
    pub interface: String,
}

/// A field of a group: its name, its attribute's number, and whether that has 8 bits rather than 32.
struct Field(&'static str, u16, bool);

/// A group of numbers.
struct Group {
    what: &'static str,
    get: u8,
    set: u8,
    fields: &'static [Field],
    /// Attributes that tell how far a field goes, with that field's number.
    most: &'static [(u16, u16)],
}

const RINGS: Group = Group {
    what: "rings",
    get: 15,
    set: 16,
    fields: &[
        Field("rx", 6, false),
        Field("rx-mini", 7, false),
        Field("rx-jumbo", 8, false),
        Field("tx", 9, false),
        Field("rx-buf-len", 10, false),
        Field("tcp-data-split", 11, true),
        Field("cqe-size", 12, false),
        Field("tx-push", 13, true),
        Field("rx-push", 14, true),
        Field("tx-push-buf-len", 15, false),
        Field("hds-thresh", 17, false),
    ],
    most: &[(2, 6), (3, 7), (4, 8), (5, 9), (16, 15), (18, 17)],
};

const CHANNELS: Group = Group {
    what: "channels",
    get: 17,
    set: 18,
    fields: &[Field("rx", 6, false), Field("tx", 7, false), Field("other", 8, false), Field("combined", 9, false)],
    most: &[(2, 6), (3, 7), (4, 8), (5, 9)],
};

const PAUSE: Group = Group {
    what: "flow control",
    get: 21,
    set: 22,
    fields: &[Field("autoneg", 2, true), Field("rx", 3, true), Field("tx", 4, true)],
    most: &[],
};

impl Group {
    fn label(&self, interface: &str) -> String {
        format!("{} of {interface}", self.what)
    }

    fn read(&self, access: &Access, interface: &str) -> Result<Option<Value>, Error> {
        let Some(answer) = get(access, self.get, interface, self.what)? else { return Ok(None) };
        let fields = self.fields.iter().filter_map(|Field(name, number, _)| Some((*name, answer.number(*number)?)));
        let fields: Vec<_> = fields.collect();
        Ok((!fields.is_empty()).then(|| Value::fields(fields)))
    }

    fn write(&self, access: &Access, interface: &str, value: &Value) -> Result<(), Error> {
        let mut message = Message::new(self.set, interface);
        let now = self.read(access, interface)?;
        let lacking = now.map_or(Vec::new(), |now| unshown(&now, value));
        for (name, text) in value.as_fields().into_iter().flatten() {
            let number = text.parse().map_err(|_| self.wrong(interface, name, text))?;
            // It is so already; and a kernel that does not know the attribute refuses the whole request for it.
            if number == 0 && lacking.contains(name) {
                continue;
            }
            match self.fields.iter().find(|field| field.0 == name) {
                Some(Field(_, attribute, true)) => message.byte(*attribute, number as u8),
                Some(Field(_, attribute, false)) => message.number(*attribute, number),
                None => return Err(self.wrong(interface, name, text)),
            }
        }
        message.set(access, &format!("set {} of {interface} to {value}", self.what))
    }

    fn check(&self, access: &Access, interface: &str, value: &Value) -> Result<(), Error> {
        let fields = value.as_fields().filter(|fields| !fields.is_empty());
        let fields = fields.ok_or_else(|| Error::invalid(self.label(interface), "expected fields such as rx=512"))?;
        let answer = get(access, self.get, interface, self.what)?;
        let shown = |number| answer.as_ref().is_none_or(|answer| answer.number(number).is_some());
        let mut lacking = Vec::new();
        for (name, text) in fields {
            let wrong = || self.wrong(interface, name, text);
            let Field(_, number, byte) = self.fields.iter().find(|field| field.0 == name).ok_or_else(wrong)?;
            let wanted: u32 = text.parse().map_err(|_| wrong())?;
            if *byte && wanted > u8::MAX.into() {
                return Err(wrong());
            }
            if wanted != 0 && !shown(*number) {
                lacking.push(name.clone());
            }
            let most = self.most.iter().find(|(_, of)| of == number).map(|(most, _)| *most);
            let most = most.and_then(|most| answer.as_ref()?.number(most));
            if let Some(most) = most.filter(|most| wanted > *most) {
                return Err(Error::Refused {
                    what: format!("set {name}={text} in the {}", self.label(interface)),
                    why: format!("the driver allows at most {most}"),
                    fix: "choose a smaller number".into(),
                });
            }
        }
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(lacks(&self.label(interface), &lacking)),
        }
    }

    fn wrong(&self, interface: &str, name: &str, text: &str) -> Error {
        let known: Vec<&str> = self.fields.iter().map(|field| field.0).collect();
        Error::invalid(
            self.label(interface),
            format!("{name}={text}: expected one of {}, with a whole number", known.join(", ")),
        )
    }
}

/// The fields of `value` that `now` does not show.
fn unshown(now: &Value, value: &Value) -> Vec<String> {
    let fields = value.as_fields().into_iter().flatten();
    fields.filter(|(field, _)| now.field(field).is_none()).map(|(field, _)| field.clone()).collect()
}

/// The error of fields that the driver does not have.
fn lacks(label: &str, fields: &[String]) -> Error {
    Error::Refused {
        what: format!("set {} in the {label}", fields.join(", ")),
        why: "the driver does not support it".into(),
        fix: "remove it for this interface".into(),
    }
}

/// Asks for a group; `None` if the interface or the group is not there.
fn get(access: &Access, command: u8, interface: &str, what: &str) -> Result<Option<message::Attributes>, Error> {
    if !access.is_live() || index(interface).is_none() {
        return Ok(None);
    }
    absent_if_unsupported(Message::new(command, interface).ask(&format!("read the {what} of {interface}")))
}

/// A driver that does not support a group has none.
fn absent_if_unsupported<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NotThere { .. } | Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number of an interface; `None` if there is none of that name in the thread's network namespace.
pub(super) fn index(interface: &str) -> Option<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(socket, interface).ok()
}

/// An interface that comes back gets a new number.
pub(super) fn identity(access: &Access, interface: &str) -> Option<String> {
    if access.is_live() { index(interface).map(|index| format!("ifindex {index}")) } else { None }
}

macro_rules! groups {
    ($($kind:ident => $group:expr,)*) => {
        $(impl $kind {
            /// Makes the setting for an interface.
            pub fn new(interface: impl Into<String>) -> Self {
                Self { interface: interface.into() }
            }
        }

        impl Setting for $kind {
            fn label(&self) -> String {
                $group.label(&self.interface)
            }
            fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
                $group.read(access, &self.interface)
            }
            fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
                $group.write(access, &self.interface, value)
            }
            fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
                $group.check(access, &self.interface, value)
            }
            /// What the driver does not have is not shown, and is 0.
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
    Rings => RINGS,
    Channels => CHANNELS,
    Pause => PAUSE,
}

#[cfg(test)]
mod tests;
