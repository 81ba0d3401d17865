//! Messages of the generic netlink family `ethtool`, as attributes by number.
//!
//! Source: kernel documentation, networking/ethtool-netlink; include/uapi/linux/ethtool_netlink.h. (The
//! generated bindings of netlink-bindings 0.3.5 number the family's requests as if notifications counted.)

use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_bindings::utils::{chop_header, finalize_nested_header, push_header, push_nested_header};
use netlink_socket2::NetlinkSocket;

use crate::knob::{Access, Error};

/// `ETHTOOL_A_HEADER_DEV_NAME`, in the header that is attribute 1 of every message.
const HEADER_DEV_NAME: u16 = 2;
const HEADER: u16 = 1;

/// A request of the family, on one interface.
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Request `command` (`ETHTOOL_MSG_*`) on `interface`.
    pub(super) fn new(command: u8, interface: &str) -> Self {
        // struct genlmsghdr: command, version, reserved.
        let mut message = Self(vec![command, 1, 0, 0]);
        let header = push_nested_header(&mut message.0, HEADER);
        message.text(HEADER_DEV_NAME, interface);
        finalize_nested_header(&mut message.0, header);
        message
    }

    pub(super) fn number(&mut self, attribute: u16, value: u32) {
        push_header(&mut self.0, attribute, 4);
        self.0.extend(value.to_ne_bytes());
    }

    pub(super) fn byte(&mut self, attribute: u16, value: u8) {
        push_header(&mut self.0, attribute, 1);
        self.0.push(value);
    }

    pub(super) fn flag(&mut self, attribute: u16) {
        push_header(&mut self.0, attribute, 0);
    }

    pub(super) fn text(&mut self, attribute: u16, text: &str) {
        push_header(&mut self.0, attribute, text.len() as u16 + 1);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// An attribute that holds what `fill` adds.
    pub(super) fn nest(&mut self, attribute: u16, fill: impl FnOnce(&mut Self)) {
        let start = push_nested_header(&mut self.0, attribute);
        fill(self);
        finalize_nested_header(&mut self.0, start);
    }

    /// Sends it and returns the attributes of the answer; none to a request that is only acknowledged.
    ///
    /// The socket belongs to the network namespace of the calling thread.
    pub(super) fn ask(&self, what: &str) -> Result<Attributes, Error> {
        let failed = |e: std::io::Error| Error::of(what, &e);
        let mut socket = NetlinkSocket::new();
        let mut reply = socket.request(self).map_err(failed)?;
        let mut answer = Attributes(Vec::new());
        while let Some(part) = reply.recv() {
            answer = part.map_err(|e| said(what, &e.to_string(), e.as_io_error()))?;
        }
        Ok(answer)
    }

    /// Sends a request that changes something.
    pub(super) fn set(&self, access: &Access, what: &str) -> Result<(), Error> {
        access.act("netlink", what, || self.ask(what)).map(|_| ())
    }
}

/// The error with what the kernel said besides its number (extended acknowledgement).
fn said(what: &str, text: &str, error: &std::io::Error) -> Error {
    let mut error = Error::of(what, error);
    match &mut error {
        Error::NotPermitted { why, .. }
        | Error::NotThere { why, .. }
        | Error::Refused { why, .. }
        | Error::System { why, .. } => {
            *why = text.to_owned();
        }
        Error::ReadOnly { .. } | Error::Invalid { .. } | Error::Unreadable { .. } => {}
    }
    error
}

impl NetlinkRequest for Message {
    fn protocol(&self) -> Protocol {
        Protocol::Generic(b"ethtool")
    }
    fn flags(&self) -> u16 {
        0
    }
    fn payload(&self) -> &[u8] {
        &self.0
    }
    type ReplyType<'buf> = Attributes;
    fn decode_reply(buf: &[u8]) -> Attributes {
        Attributes(buf.get(4..).unwrap_or_default().to_vec())
    }
}

/// Attributes, in their order.
#[derive(Clone)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut position = 0;
        std::iter::from_fn(move || chop_header(&self.0, &mut position).map(|(header, value)| (header.r#type, value)))
    }

    fn find(&self, attribute: u16) -> Option<&[u8]> {
        self.iter().find(|(number, _)| *number == attribute).map(|(_, value)| value)
    }

    pub(super) fn nest(&self, attribute: u16) -> Option<Self> {
        self.find(attribute).map(|value| Self(value.to_vec()))
    }

    /// A number of 8 or 32 bits.
    pub(super) fn number(&self, attribute: u16) -> Option<u32> {
        match self.find(attribute)? {
            [byte] => Some((*byte).into()),
            octets => octets.try_into().ok().map(u32::from_ne_bytes),
        }
    }

    pub(super) fn text(&self, attribute: u16) -> Option<String> {
        let text = self.find(attribute)?;
        String::from_utf8(text.strip_suffix(&[0]).unwrap_or(text).to_vec()).ok()
    }

    pub(super) fn has(&self, attribute: u16) -> bool {
        self.find(attribute).is_some()
    }
}

/// A bit set in its long form (kernel documentation, networking/ethtool-netlink, "Bit sets").
pub(super) struct Bits {
    /// Whether bits that are not listed are off rather than not spoken of.
    pub(super) complete: bool,
    /// The bits listed, by name.
    pub(super) listed: Vec<(String, bool)>,
}

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

impl Bits {
    pub(super) fn of(set: &Attributes) -> Self {
        let complete = set.has(BITSET_NOMASK);
        let bits = set.nest(BITSET_BITS).unwrap_or(Attributes(Vec::new()));
        let bits = bits.iter().filter(|(number, _)| *number == BITS_BIT).filter_map(|(_, bit)| {
            let bit = Attributes(bit.to_vec());
            Some((bit.text(BIT_NAME)?, complete || bit.has(BIT_VALUE)))
        });
        Self { complete, listed: bits.collect() }
    }

    pub(super) fn is_on(&self, name: &str) -> Option<bool> {
        let found = self.listed.iter().find(|(bit, _)| bit == name).map(|(_, on)| *on);
        found.or(self.complete.then_some(false))
    }

    /// Adds a bit set that changes these bits and no others.
    pub(super) fn push<'a>(message: &mut Message, attribute: u16, bits: impl Iterator<Item = (&'a str, bool)>) {
        message.nest(attribute, |message| {
            message.nest(BITSET_BITS, |message| {
                for (name, on) in bits {
                    message.nest(BITS_BIT, |message| {
                        message.text(BIT_NAME, name);
                        if on {
                            message.flag(BIT_VALUE);
                        }
                    });
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::new(20, "eth0");
        message.number(2, 50);
        message.byte(11, 1);
        Bits::push(&mut message, 3, [("rx-gro", true), ("tx-nocache-copy", false)].into_iter());
        assert_eq!(message.payload()[..4], [20, 1, 0, 0]);
        let read = Message::decode_reply(message.payload());
        assert_eq!(read.nest(HEADER).unwrap().text(HEADER_DEV_NAME).unwrap(), "eth0");
        assert_eq!((read.number(2), read.number(11), read.number(12)), (Some(50), Some(1), None));
        let bits = Bits::of(&read.nest(3).unwrap());
        assert_eq!(
            (bits.is_on("rx-gro"), bits.is_on("tx-nocache-copy"), bits.is_on("x")),
            (Some(true), Some(false), None)
        );
    }
}
