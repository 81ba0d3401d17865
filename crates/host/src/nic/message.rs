//! Netlink messages, whose attributes are identified by number (include/uapi/linux/netlink.h).
//!
//! The crate netlink-bindings packs and unpacks the attributes' headers. Its typed requests and replies are not used,
//! because version 0.3.5 has two bugs. First, it gives requests of the family `ethtool` wrong numbers, because it
//! counts requests and notifications in one sequence (a request for coalescing settings would start a cable test).
//! Second, it reads only the low half of every 64-bit `uint`, so a counter would wrap around at 4 Gi.

use netlink_bindings::utils::{chop_header, finalize_nested_header, push_header, push_nested_header};

use super::error::{Error, Said};
use super::numbers::Field;

/// Size of `struct nlmsghdr` in bytes.
pub(super) const HEAD: usize = 16;

/// A netlink request.
pub(super) struct Message {
    /// The whole message: netlink header, the family's own header, attributes.
    octets: Vec<u8>,
    /// Offset of the attributes in the message, in bytes.
    start: usize,
    /// Names of the attributes, for error messages.
    names: &'static [Field],
}

impl Message {
    /// Makes a request that begins with the family's own header `own`.
    pub(super) fn new(own: &[u8]) -> Self {
        let mut octets = vec![0; HEAD];
        octets.extend(own);
        Self { start: octets.len(), octets, names: &[] }
    }

    /// The generic netlink command of the request.
    pub(super) fn of_command(&self) -> u8 {
        self.octets[HEAD]
    }

    /// Makes a request of a generic netlink family (`struct genlmsghdr`: command, version, reserved).
    pub(super) fn command(command: u8) -> Self {
        Self::new(&[command, 1, 0, 0])
    }

    /// Adds the names of the request's attributes, for error messages.
    pub(super) fn named(mut self, names: &'static [Field]) -> Self {
        self.names = names;
        self
    }

    pub(super) fn attribute(&mut self, number: u16, octets: &[u8]) {
        push_header(&mut self.octets, number, octets.len() as u16);
        self.octets.extend(octets);
    }

    pub(super) fn number(&mut self, attribute: u16, number: u32) {
        self.attribute(attribute, &number.to_ne_bytes());
    }

    pub(super) fn text(&mut self, attribute: u16, text: &str) {
        push_header(&mut self.octets, attribute, text.len() as u16 + 1);
        self.octets.extend(text.bytes().chain([0]));
    }

    /// Adds an attribute that contains the attributes that `fill` writes.
    pub(super) fn nest(&mut self, attribute: u16, fill: impl FnOnce(&mut Self)) {
        let start = push_nested_header(&mut self.octets, attribute);
        fill(self);
        finalize_nested_header(&mut self.octets, start);
    }

    /// Fills in the message's header (`struct nlmsghdr`: length, type, flags, sequence, port) and returns the whole
    /// message.
    pub(super) fn sealed(&mut self, kind: u16, flags: u16, sequence: u32) -> &[u8] {
        let length = self.octets.len() as u32;
        self.octets[..4].copy_from_slice(&length.to_ne_bytes());
        self.octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        self.octets[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.octets[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.octets
    }

    /// Converts the kernel's error number and its extended acknowledgement of this request into an error.
    pub(super) fn explained(&self, number: i32, added: Attributes<'_>) -> Error {
        // Attribute numbers of `enum nlmsgerr_attrs`; inside the policy, of `enum netlink_policy_type_attr`.
        let policy = added.nest(4).unwrap_or(Attributes(&[]));
        let signed = |attribute| policy.number(attribute).map(|number| i128::from(number.cast_signed()));
        let unsigned = |attribute| policy.number(attribute).map(i128::from);
        Error::of(Said {
            number,
            message: added.text(1),
            field: added.number(2).and_then(|offset| self.name_at(offset as usize)),
            missing: added.number(5).map(|attribute| self.name_of(attribute as u16)),
            range: unsigned(4).zip(unsigned(5)).or(signed(2).zip(signed(3))),
        })
    }

    fn name_of(&self, attribute: u16) -> String {
        let named = self.names.iter().find(|field| field.attribute == attribute);
        named.map_or_else(|| format!("attribute {attribute}"), |field| field.name.to_owned())
    }

    /// The name of the attribute at `offset` bytes from the start of the message. A nested attribute is named by its
    /// string if it has one, such as the name of a bit.
    fn name_at(&self, offset: usize) -> Option<String> {
        let mut position = self.start;
        loop {
            let at = position;
            let (head, _) = chop_header(&self.octets, &mut position)?;
            if offset == at {
                return Some(self.name_of(head.r#type));
            }
            if (at..position).contains(&offset) {
                let inner = Attributes(self.octets.get(offset..position)?);
                let text = inner.iter().next().and_then(|(_, octets)| text(octets));
                return text.or_else(|| Some(self.name_of(head.r#type)));
            }
        }
    }
}

/// Netlink attributes, in the order of the message.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut position = 0;
        std::iter::from_fn(move || chop_header(self.0, &mut position).map(|(header, value)| (header.r#type, value)))
    }

    pub(super) fn find(self, attribute: u16) -> Option<&'a [u8]> {
        self.iter().find(|(number, _)| *number == attribute).map(|(_, value)| value)
    }

    pub(super) fn nest(self, attribute: u16) -> Option<Self> {
        self.find(attribute).map(Self)
    }

    pub(super) fn number(self, attribute: u16) -> Option<u64> {
        number(self.find(attribute)?)
    }

    pub(super) fn word(self, attribute: u16) -> Option<u32> {
        self.number(attribute)?.try_into().ok()
    }

    pub(super) fn text(self, attribute: u16) -> Option<String> {
        text(self.find(attribute)?)
    }
}

/// Parses a number of 8, 16, 32 or 64 bits. The kernel sends a `uint` as 32 or 64 bits.
pub(super) fn number(octets: &[u8]) -> Option<u64> {
    match octets {
        [octet] => Some((*octet).into()),
        [_, _] => octets.try_into().ok().map(u16::from_ne_bytes).map(u64::from),
        [_, _, _, _] => octets.try_into().ok().map(u32::from_ne_bytes).map(u64::from),
        octets => octets.try_into().ok().map(u64::from_ne_bytes),
    }
}

/// Parses a string that ends with a zero byte.
fn text(octets: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(octets.strip_suffix(&[0])?).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::numbers::{Coalescing, NapiSettings, Numbers, push, read};

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::command(20);
        message.nest(1, |header| header.text(2, "eth0"));
        let written = Coalescing { rx_usecs: Some(50), adaptive_rx: Some(true), ..Coalescing::default() };
        push(&written, &mut message);
        let octets = message.sealed(21, 1, 7);
        assert_eq!(octets[..4], (octets.len() as u32).to_ne_bytes());
        assert_eq!(octets[HEAD..HEAD + 4], [20, 1, 0, 0]);
        let attributes = Attributes(&octets[HEAD + 4..]);
        assert_eq!(attributes.nest(1).unwrap().text(2).unwrap(), "eth0");
        assert_eq!(attributes.find(11), Some(&[1][..]), "a switch has 8 bits");
        assert_eq!(read::<Coalescing>(attributes), written);
    }

    /// A `uint` that exceeds 32 bits keeps its upper half.
    #[test]
    fn a_long_number_is_whole() {
        let settings = NapiSettings { gro_flush_timeout_ns: Some(5 << 32 | 7), ..NapiSettings::default() };
        let mut message = Message::command(14);
        push(&settings, &mut message);
        assert_eq!(read::<NapiSettings>(Attributes(&message.octets[HEAD + 4..])), settings);
    }

    /// An extended acknowledgement contains the offset of the rejected field and the accepted range.
    #[test]
    fn an_acknowledgement_names_the_field() {
        let mut message = Message::command(14).named(NapiSettings::FIELDS);
        message.number(2, 8193);
        push(&NapiSettings { threaded: Some(7), ..NapiSettings::default() }, &mut message);
        let mut added = Message::new(&[]);
        added.text(1, "integer out of range");
        added.number(2, HEAD as u32 + 4 + 8);
        added.nest(4, |policy| {
            policy.attribute(4, &0_u64.to_ne_bytes());
            policy.attribute(5, &1_u64.to_ne_bytes());
        });
        added.number(5, 6);
        let error = message.explained(libc::ERANGE, Attributes(&added.octets[HEAD..]));
        assert!(matches!(error, Error::Refused(_)));
        let text = error.to_string();
        assert!(text.ends_with(": integer out of range: threaded, 0 to 1: gro-flush-timeout is missing"), "{text}");
        for torn in 0..added.octets.len() - HEAD {
            message.explained(libc::ERANGE, Attributes(&added.octets[HEAD..HEAD + torn]));
        }
    }
}
