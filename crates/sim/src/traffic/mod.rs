//! The traffic that arrives at the wire.
//!
//! Each kind of traffic has its own file. A [`Source`] says when its next frame is due on the wire. The
//! [port](crate::world) then serialises the frames of all sources onto one wire. Times are whole nanoseconds, but a
//! rate is kept exactly: the rounding error of a gap is carried to the next gap.
//!
//! | kind | is | keys |
//! | --- | --- | --- |
//! | [`constant`] | equal gaps | rate |
//! | [`poisson`] | exponential gaps: many independent senders | rate |
//! | [`on_off`] | bursts of equal gaps, and silence between them | rate, on, off, lengths |
//! | [`slots`] | one burst per period, with jitter: a radio frame's slots | period, burst, spacing, jitter |
//! | [`request`] | each request waits for the previous answer: TCP_RR | connections, distance, think |
//! | [`self_similar`] | bursts at all time scales | rate, sources, peak, burst, hurst |
//! | [`replay`] | the times and sizes of a capture or a table | file, repeat |

pub mod constant;
pub mod on_off;
mod pace;
pub mod poisson;
pub mod replay;
pub mod request;
pub mod self_similar;
pub mod slots;

pub(crate) use pace::ppm_of_percent;
pub use pace::{Pace, Rate};
pub use replay::{Record, Records};

use units::{BitRate, Nanos};

use crate::At;
use crate::random::Random;

/// The shortest frame in bytes, with its check sequence. IEEE 802.3-2018, 3.2.7.
pub const SHORTEST_FRAME: u32 = 64;
/// The longest frame in bytes: a jumbo frame of 9,216 bytes, which most switches accept.
pub const LONGEST_FRAME: u32 = 9_216;
/// Bytes on the wire per frame in addition to the frame itself: preamble and start delimiter (8), and the gap between
/// frames (12). IEEE 802.3-2018, 4.2.3.2.2 and 4.4.2.
pub const WIRE_OVERHEAD: u32 = 20;

/// A frame that a source wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// When the frame's first bit is due on the wire.
    pub at: At,
    /// Size of the frame in bytes, with check sequence.
    pub octets: u32,
    /// Identifies the sender within the source: the connection of a [`request`], otherwise 0.
    pub tag: u32,
    /// The receive queue, if the source chooses it. `None` otherwise.
    pub queue: Option<u32>,
}

/// One kind of traffic, as a scenario describes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// The arrival process and its parameters.
    pub kind: Kind,
    /// The sizes of the frames.
    pub sizes: Sizes,
    /// The receive queue for all frames of this traffic. `None` spreads them over all queues: each frame at random
    /// (many flows), but each connection of [`Kind::Request`] always to the same queue.
    pub queue: Option<u32>,
    /// When the traffic begins, counted from the start of the simulation.
    pub start: Nanos,
}

units::named! {
    /// The kinds of traffic, with their parameters.
    #[derive(Clone, PartialEq, Debug)]
    pub enum Kind {
        /// Equal gaps; see [`constant`].
        Constant {
            /// The constant rate.
            rate: Rate,
        } = "constant",
        /// Exponential gaps; see [`poisson`].
        Poisson {
            /// The mean rate.
            rate: Rate,
        } = "poisson",
        /// Bursts with silence between them; see [`on_off`].
        OnOff(on_off::OnOff) = "on-off",
        /// One burst per period; see [`slots`].
        Slots(slots::Slots) = "slots",
        /// Requests that wait for their answers; see [`request`].
        Request(request::Request) = "request",
        /// Bursts at all time scales; see [`self_similar`].
        SelfSimilar(self_similar::SelfSimilar) = "self-similar",
        /// Recorded traffic; see [`replay`].
        Replay(replay::Replay) = "replay",
    }
}

/// A sequence of frame sizes that repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    octets: Vec<u32>,
    next: usize,
}

impl Sizes {
    /// Frames of one size. `None` if the size is not between [`SHORTEST_FRAME`] and [`LONGEST_FRAME`].
    pub fn fixed(octets: u32) -> Option<Self> {
        (SHORTEST_FRAME..=LONGEST_FRAME).contains(&octets).then(|| Self { octets: vec![octets], next: 0 })
    }

    /// Reads an IMIX genome (RFC 6985, 4): one letter per frame, a = 64 to g = 1518, h = 2112, i = 9000 bytes. `None`
    /// if the text is not a genome.
    pub fn genome(text: &str) -> Option<Self> {
        let octets: Option<Vec<u32>> = text
            .bytes()
            .map(|letter| match letter {
                b'a' => Some(64),
                b'b' => Some(128),
                b'c' => Some(256),
                b'd' => Some(512),
                b'e' => Some(1024),
                b'f' => Some(1280),
                b'g' => Some(1518),
                b'h' => Some(2112),
                b'i' => Some(9000),
                _ => None,
            })
            .collect();
        octets.filter(|octets| !octets.is_empty()).map(|octets| Self { octets, next: 0 })
    }

    /// Draws the size of the next frame, in bytes.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        if let [only] = self.octets[..] {
            return only;
        }
        let octets = self.octets[self.next];
        self.next = (self.next + 1) % self.octets.len();
        octets
    }

    /// All sizes in their order, in bytes.
    pub fn octets(&self) -> &[u32] {
        &self.octets
    }

    /// Sum of all sizes on the wire in bits, including [`WIRE_OVERHEAD`].
    pub fn wire_bits(&self) -> u64 {
        self.octets.iter().map(|octets| u64::from(octets + WIRE_OVERHEAD) * 8).sum()
    }

    /// The largest size, in bytes.
    pub fn longest(&self) -> u32 {
        self.octets.iter().copied().max().unwrap_or(SHORTEST_FRAME)
    }
}

/// A running source of traffic.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a world has few, and each is used for every frame
pub enum Source {
    /// Runs [`constant`] traffic.
    Constant(constant::Source),
    /// Runs [`poisson`] traffic.
    Poisson(poisson::Source),
    /// Runs [`on_off`] traffic.
    OnOff(on_off::Source),
    /// Runs [`slots`] traffic.
    Slots(slots::Source),
    /// Runs [`request`] traffic.
    Request(request::Source),
    /// Runs [`self_similar`] traffic.
    SelfSimilar(self_similar::Source),
    /// Runs [`replay`] traffic.
    Replay(replay::Source),
}

impl Source {
    /// Starts `traffic` on a wire with the rate `line`. [`Kind::Replay`] needs the `records` of its file.
    pub fn new(traffic: &Traffic, line: BitRate, random: Random, records: Option<Records>) -> Self {
        let (sizes, start) = (traffic.sizes.clone(), At::ORIGIN + traffic.start);
        match &traffic.kind {
            Kind::Constant { rate } => Self::Constant(constant::Source::new(rate.pace(line), sizes, start)),
            Kind::Poisson { rate } => Self::Poisson(poisson::Source::new(rate.pace(line), sizes, start, random)),
            Kind::OnOff(what) => Self::OnOff(on_off::Source::new(what, line, sizes, start, random)),
            Kind::Slots(what) => Self::Slots(slots::Source::new(what, sizes, start, random)),
            Kind::Request(what) => Self::Request(request::Source::new(what, sizes, start, random)),
            Kind::SelfSimilar(what) => Self::SelfSimilar(self_similar::Source::new(what, line, sizes, start, random)),
            Kind::Replay(what) => Self::Replay(replay::Source::new(what, records.unwrap_or_default(), start)),
        }
    }

    /// Draws the next frame; times never decrease. `None` if all clients wait for an answer ([`request`]) or if the
    /// record has ended ([`replay`]).
    #[inline]
    pub fn draw(&mut self) -> Option<Frame> {
        match self {
            Self::Constant(source) => Some(source.draw()),
            Self::Poisson(source) => Some(source.draw()),
            Self::OnOff(source) => Some(source.draw()),
            Self::Slots(source) => Some(source.draw()),
            Self::Request(source) => source.draw(),
            Self::SelfSimilar(source) => Some(source.draw()),
            Self::Replay(source) => source.draw(),
        }
    }

    /// Reports that the answer to connection `tag` leaves the simulated host's wire at `at`. A [`request`] source then
    /// sends the next request; other sources ignore the report.
    pub fn answered(&mut self, tag: u32, at: At) {
        if let Self::Request(source) = self {
            source.answered(tag, at);
        }
    }

    /// Reports that the frame of connection `tag` was lost at `at`. A [`request`] source sends the request again after
    /// the timeout; other sources ignore the report.
    pub fn lost(&mut self, tag: u32, at: At) {
        if let Self::Request(source) = self {
            source.lost(tag, at);
        }
    }

    /// The minimum time from an answer to the next request, both at the simulated host. `None` if the source ignores
    /// [`answered`](Self::answered).
    pub const fn round_trip(&self) -> Option<Nanos> {
        match self {
            Self::Request(source) => Some(source.round_trip()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genomes_and_sizes() {
        let mut sizes = Sizes::genome("aag").unwrap();
        assert_eq!([sizes.draw(), sizes.draw(), sizes.draw(), sizes.draw()], [64, 64, 1518, 64]);
        assert_eq!(sizes.wire_bits(), (84 + 84 + 1538) * 8);
        assert_eq!(sizes.longest(), 1518);
        for text in ["", "A", "az", "64"] {
            assert_eq!(Sizes::genome(text), None, "{text}");
        }
        assert_eq!((Sizes::fixed(63), Sizes::fixed(9_217)), (None, None));
    }
}
