//! A netlink socket. A query takes one send and one receive, into a buffer that is reused.
//!
//! The crate netlink-socket2 (0.3.5) is not used, for two reasons: it reads past its 8 KiB buffer if a reply is longer
//! (a NIC's offloads take 3 to 9 KiB), and it requests an acknowledgement for every query, which needs a second
//! receive.

use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::error::Error;
use super::message::{Attributes, HEAD, Message};
use super::sys;

/// Size of the receive buffer in bytes. The kernel sends no longer part of a dump (net/netlink/af_netlink.c,
/// `netlink_recvmsg`).
const ROOM: usize = 32 << 10;

/// Message types and flags of include/uapi/linux/netlink.h.
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_MULTI: u16 = 0x02;
const NLM_F_ACK: u16 = 0x04;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;

/// The answers that a request expects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// Exactly one answer.
    One,
    /// One answer for each object (a dump).
    Each,
    /// No answer except an acknowledgement.
    Done,
}

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// What a received message means for the request.
enum Part<'a> {
    Other,
    Answer { body: &'a [u8], last: bool },
    End(Result<(), Error>),
}

impl Socket {
    /// Opens a socket for generic netlink families.
    pub(super) fn generic() -> Result<Self, Error> {
        Self::open(Some(netlink::GENERIC))
    }

    /// Opens a socket for links (NETLINK_ROUTE, which is protocol 0).
    pub(super) fn route() -> Result<Self, Error> {
        Self::open(None)
    }

    /// Opens a socket for the state of TCP and UDP sockets.
    pub(super) fn sockets() -> Result<Self, Error> {
        Self::open(Some(netlink::SOCK_DIAG))
    }

    fn open(protocol: Option<Protocol>) -> Result<Self, Error> {
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        sys::acknowledge_at_length(&socket)?;
        // Port 0 is the kernel. A connected socket accepts messages from no other sender.
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; ROOM] })
    }

    /// Sends a request of type `kind` (for generic netlink, the number of the family), and calls `each` with each
    /// answer. An answer begins with the family's own header.
    ///
    /// No system call waits: the kernel carries out the request during the send, and creates the next part of a dump
    /// during each receive (net/netlink/af_netlink.c, `netlink_unicast_kernel`, `netlink_dump`).
    pub(super) fn request(
        &mut self,
        message: &mut Message,
        kind: u16,
        wants: Wants,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = match wants {
            Wants::One => NLM_F_REQUEST,
            Wants::Each => NLM_F_REQUEST | NLM_F_DUMP,
            Wants::Done => NLM_F_REQUEST | NLM_F_ACK,
        };
        rustix::net::send(&self.socket, message.sealed(kind, flags, self.sequence), SendFlags::empty())?;
        let mut changed = false;
        loop {
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            let (_, length) = rustix::net::recv(&self.socket, &mut self.buffer[..], flags)?;
            let mut rest = self.buffer.get(..length).ok_or_else(|| {
                Error::torn(format!("a reply of {length} bytes, longer than the expected maximum of {ROOM}"))
            })?;
            while !rest.is_empty() {
                match part(&mut rest, self.sequence, message, &mut changed)? {
                    Part::Other => {}
                    Part::Answer { body, last } => {
                        each(body);
                        if last && wants == Wants::One {
                            return Ok(());
                        }
                    }
                    Part::End(Ok(())) if changed => {
                        return Err(Error::torn("the kernel's list changed meanwhile; try again"));
                    }
                    Part::End(end) => return end,
                }
            }
        }
    }
}

/// Removes the first message from `rest` and interprets it.
fn part<'a>(rest: &mut &'a [u8], sequence: u32, request: &Message, changed: &mut bool) -> Result<Part<'a>, Error> {
    let torn = || Error::torn("a message that ends too early");
    let head = rest.first_chunk::<HEAD>().ok_or_else(torn)?;
    let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let (length, kind, flags) = (word(0) as usize, half(4), half(6));
    let body = rest.get(HEAD..length).ok_or_else(torn)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    if word(8) != sequence {
        return Ok(Part::Other);
    }
    *changed |= flags & NLM_F_DUMP_INTR != 0;
    // Errors and ends of a dump begin with an error number. In an error, the request's header follows. Attributes may
    // come last.
    let end = |behind: usize| {
        let number = body.first_chunk().map(|octets| i32::from_ne_bytes(*octets)).ok_or_else(torn)?;
        let added = Attributes(body.get(behind..).unwrap_or_default());
        Ok(Part::End(if number == 0 { Ok(()) } else { Err(request.explained(-number, added)) }))
    };
    match kind {
        NLMSG_NOOP => Ok(Part::Other),
        NLMSG_ERROR => end(4 + HEAD),
        NLMSG_DONE => end(4),
        NLMSG_OVERRUN => Err(Error::torn("the kernel lost data")),
        _ => Ok(Part::Answer { body, last: flags & NLM_F_MULTI == 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::numbers::{NapiSettings, Numbers as _};

    /// The recorded answer of Linux 6.18 to `threaded=7` (request 5).
    const REFUSAL: &[u8] = include_bytes!("recorded/napi_set_threaded_7.bin");

    #[test]
    fn a_recorded_refusal_is_understood_and_no_part_of_it_is_trusted() {
        let mut message = Message::command(14).named(NapiSettings::FIELDS);
        message.number(2, 8193);
        message.number(8, 7);
        let mut all = REFUSAL;
        let Part::End(Err(error)) = part(&mut all, 5, &message, &mut false).unwrap() else {
            panic!("it is no refusal");
        };
        assert!(all.is_empty());
        assert_eq!(
            error.to_string(),
            "Numerical result out of range (os error 34): integer out of range: threaded, 0 to 1"
        );
        assert!(matches!(part(&mut &REFUSAL[..], 6, &message, &mut false), Ok(Part::Other)), "of another request");
        for length in 0..REFUSAL.len() {
            assert!(part(&mut &REFUSAL[..length], 5, &message, &mut false).is_err(), "{length}");
        }
    }
}
