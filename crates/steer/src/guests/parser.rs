//! Splits the bytes of a channel into messages of the two protocols.
//!
//! ```text
//!            ┌── begins as apus/ ──► LINE ── line end ──► Message::Own ──┐
//!   START ───┤                        └── too long ──► SKIP ── line end ─┼──► START
//!     ▲      └── anything else ──► PACKET ── 464 bytes ──► Message::Dpdk ┘
//!     └── nothing for a second: what was begun is discarded
//! ```
//! A parser buffers at most one message. Several programs of a guest may use the same port one after the other, and a
//! killed program may leave half a message behind. After a pause, the half message is discarded, so the next program
//! can start with a complete message.

use units::{Instant, Monotonic, Nanos};

use super::{dpdk, protocol};

/// Time without a byte after which an incomplete message is discarded. Programs write a message in one piece, and DPDK
/// waits one second before its first message (DPDK 22.11, lib/power/guest_channel.c).
const PATIENCE: Nanos = Nanos::from_secs(1);

/// A message, or the remains of an invalid one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A DPDK packet.
    Dpdk(&'a [u8; dpdk::LENGTH]),
    /// A line of Apus's own protocol, without the line end.
    Own(&'a [u8]),
    /// A line of Apus's own protocol that was skipped because it is too long.
    TooLong,
    /// A message that did not arrive completely in time. The number says how many bytes did arrive.
    Incomplete(usize),
}

/// State of a channel's parser between two reads.
#[derive(Clone, Debug)]
pub struct Parser {
    buffer: [u8; dpdk::LENGTH],
    length: usize,
    is_skipping: bool,
    last: Instant<Monotonic>,
}

impl Default for Parser {
    fn default() -> Self {
        Self { buffer: [0; dpdk::LENGTH], length: 0, is_skipping: false, last: Instant::ORIGIN }
    }
}

impl Parser {
    /// Adds received bytes, and passes each completed message to `take`.
    pub fn feed(&mut self, now: Instant<Monotonic>, bytes: &[u8], mut take: impl FnMut(Message<'_>)) {
        self.expire(now, &mut take);
        self.last = now;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.is_skipping {
                match rest.iter().position(|byte| *byte == b'\n') {
                    Some(end) => (self.is_skipping, rest) = (false, &rest[end + 1..]),
                    None => return,
                }
                continue;
            }
            rest = self.more(rest, &mut take);
        }
    }

    /// Discards a message that did not arrive completely in time.
    pub fn expire(&mut self, now: Instant<Monotonic>, mut take: impl FnMut(Message<'_>)) {
        let is_late = now.since(self.last).is_some_and(|silent| silent >= PATIENCE);
        if is_late && self.length > 0 {
            take(Message::Incomplete(self.length));
        }
        if is_late {
            self.length = 0;
            self.is_skipping = false;
        }
    }

    /// When [`expire`](Self::expire) will discard the incomplete message. `None` if no message is incomplete.
    pub fn expires_at(&self) -> Option<Instant<Monotonic>> {
        (self.length > 0 || self.is_skipping).then(|| self.last + PATIENCE)
    }

    /// Takes at most one message from the front of `bytes`, and returns the remaining bytes.
    fn more<'b>(&mut self, bytes: &'b [u8], take: &mut impl FnMut(Message<'_>)) -> &'b [u8] {
        // The first bytes, which tell the protocols apart, are read one by one.
        if self.length < protocol::MAGIC.len() && self.is_line() {
            self.buffer[self.length] = bytes[0];
            self.length += 1;
            // The message is a line, whose fifth byte cannot be its end.
            return &bytes[1..];
        }
        if self.is_line() {
            let room = protocol::LONGEST - self.length;
            let end = bytes.iter().take(room + 1).position(|byte| *byte == b'\n');
            match end {
                Some(end) => {
                    self.put(&bytes[..end]);
                    take(Message::Own(&self.buffer[..self.length]));
                    self.length = 0;
                    &bytes[end + 1..]
                }
                None if bytes.len() > room => {
                    take(Message::TooLong);
                    self.length = 0;
                    self.is_skipping = true;
                    bytes
                }
                None => {
                    self.put(bytes);
                    &[]
                }
            }
        } else {
            let taken = bytes.len().min(dpdk::LENGTH - self.length);
            self.put(&bytes[..taken]);
            if self.length == dpdk::LENGTH {
                take(Message::Dpdk(&self.buffer));
                self.length = 0;
            }
            &bytes[taken..]
        }
    }

    /// Whether the buffered bytes may be the beginning of a line.
    fn is_line(&self) -> bool {
        let begin = self.length.min(protocol::MAGIC.len());
        self.buffer[..begin] == protocol::MAGIC[..begin]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::super::dpdk::{LENGTH, Scale, scale};
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant<Monotonic> = Instant::from_nanos(5_000_000_000);

    /// The messages, as strings, that a parser finds if the bytes arrive in pieces of the lengths `cuts`, repeated as
    /// needed.
    fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<String> {
        let (mut parser, mut found, mut rest) = (Parser::default(), Vec::new(), bytes);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).clamp(1, rest.len()));
            parser.feed(NOW, now, |message| found.push(format!("{message:?}")));
            rest = later;
        }
        found
    }

    #[test]
    fn both_protocols_on_one_channel() {
        let stream = [&scale(1, Scale::Max)[..], b"apus/1 7 max vcpu=1\n", &scale(2, Scale::Min)].concat();
        let found = pieces(&stream, &[stream.len()]);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("Dpdk") && found[1].starts_with("Own") && found[2].starts_with("Dpdk"));
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_skipped() {
        for length in [protocol::LONGEST, protocol::LONGEST + 1, 10_000] {
            let line = format!("apus/1 {}\napus/1 7 max vcpu=1\n", "a".repeat(length - 7));
            let found = pieces(line.as_bytes(), &[line.len()]);
            assert_eq!(found.len(), 2, "{length}");
            assert_eq!(found[0] == "TooLong", length > protocol::LONGEST, "{length}");
            assert_eq!(pieces(line.as_bytes(), &[7, 1, 190, 300]), found, "{length}");
        }
    }

    #[test]
    fn half_a_message_is_discarded_after_a_pause() {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        parser.feed(NOW, &scale(1, Scale::Min)[..300], |message| found.push(format!("{message:?}")));
        assert_eq!(parser.expires_at(), Some(NOW + PATIENCE));
        parser.expire(NOW + Nanos::from_millis(999), |_| panic!("too early"));
        parser.feed(NOW + PATIENCE, &scale(1, Scale::Max), |message| found.push(format!("{message:?}")));
        assert_eq!(found[0], "Incomplete(300)");
        assert!(found.len() == 2 && found[1] == format!("{:?}", Message::Dpdk(&scale(1, Scale::Max))));
        assert_eq!(parser.expires_at(), None);
        // An endless line too.
        parser.feed(NOW + PATIENCE, &[b'a'; 1], |_| {});
        parser.feed(NOW + PATIENCE, b"pus/", |_| {});
        parser.feed(NOW + PATIENCE, &[b'a'; 500], |message| assert_eq!(message, Message::TooLong));
        let mut after = 0;
        parser.feed(NOW + PATIENCE + PATIENCE, &[0; LENGTH], |_| after += 1);
        assert_eq!(after, 1);
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|vcpu| scale(vcpu.into(), Scale::Up).to_vec()),
            "apus/1 [a-z0-9]{1,20} (max|goal=p99=50us|[ -~]{0,250}) vcpu=[0-9]{1,6}\n".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..600),
            Just(b"apus".to_vec()),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// However a stream is cut into pieces, the parser finds the same messages.
        #[test]
        fn pieces_make_no_difference(stream in stream(), cuts in proptest::collection::vec(1..700_usize, 1..20)) {
            prop_assert_eq!(pieces(&stream, &cuts), pieces(&stream, &[stream.len().max(1)]));
        }
    }
}
