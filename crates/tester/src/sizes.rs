//! The sizes of a trial's frames: one size, or a repeating pattern of sizes (IMIX Genome, RFC 6985).

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::frame::FrameSize;

/// Bytes that each frame takes on the wire in addition to its size: preamble, start delimiter and inter-frame gap. IEEE
/// 802.3-2018, 4.4.2.
const BESIDE: u64 = 20;
/// Largest number of letters in a genome. Each letter needs a prepared frame.
const LONGEST: usize = 64;
/// Frame sizes of the genome's letters `a` to `i` in bytes (RFC 6985, 4). The letter `j` (16000) is missing, because
/// the tester's largest frame has 9004 bytes.
const LETTERS: [u32; 9] = [64, 128, 256, 512, 1024, 1280, 1518, 2112, 9000];

/// A pattern of frame sizes. Frames are sent with these sizes in order, and the pattern repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    pattern: Vec<FrameSize>,
    text: String,
}

impl Sizes {
    /// All frames have the same size.
    pub fn one(size: FrameSize) -> Self {
        Self { pattern: vec![size], text: size.octets().to_string() }
    }

    /// The size of frame number `sequence`.
    pub fn of(&self, sequence: u64) -> FrameSize {
        self.pattern[(sequence % self.pattern.len() as u64) as usize]
    }

    /// The sizes of one repetition of the pattern.
    pub fn pattern(&self) -> &[FrameSize] {
        &self.pattern
    }

    /// The largest size in the pattern.
    pub fn longest(&self) -> FrameSize {
        self.pattern.iter().copied().max().unwrap_or(FrameSize::SMALLEST)
    }

    /// The smallest size in the pattern.
    pub fn shortest(&self) -> FrameSize {
        self.pattern.iter().copied().min().unwrap_or(FrameSize::SMALLEST)
    }

    /// Theoretical maximum rate, in frames per second, on a link of `bits_per_s`, with preamble and inter-frame gap.
    pub fn line_rate_pps(&self, bits_per_s: u64) -> f64 {
        let octets: u64 = self.pattern.iter().map(|size| u64::from(size.octets()) + BESIDE).sum();
        bits_per_s as f64 * self.pattern.len() as f64 / (octets as f64 * 8.0)
    }
}

/// Shows `64` (bytes with frame check sequence) or `imix:aaaaaaaddddg`.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Sizes {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let Some(genome) = text.strip_prefix("imix:") else { return text.parse().map(Self::one) };
        let wrong = || {
            Error::invalid(
                format!("frame sizes {text:?}"),
                "expected imix: and 1 to 64 letters of RFC 6985: a 64, b 128, c 256, d 512, e 1024, f 1280, g 1518, \
                 h 2112, i 9000 bytes; such as imix:aaaaaaaddddg",
            )
        };
        let size = |letter: u8| {
            let at = letter.checked_sub(b'a').ok_or_else(wrong)?;
            FrameSize::with_fcs(*LETTERS.get(usize::from(at)).ok_or_else(wrong)?)
        };
        let pattern = genome.bytes().map(size).collect::<Result<Vec<_>, Error>>()?;
        if pattern.is_empty() || pattern.len() > LONGEST {
            return Err(wrong());
        }
        Ok(Self { pattern, text: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_genome_repeats() {
        let imix: Sizes = "imix:aaaaaaaddddg".parse().unwrap();
        let sizes: Vec<u32> = (0..13).map(|n| imix.of(n).octets()).collect();
        assert_eq!(sizes, [64, 64, 64, 64, 64, 64, 64, 512, 512, 512, 512, 1518, 64]);
        assert_eq!((imix.longest().octets(), imix.to_string()), (1518, "imix:aaaaaaaddddg".into()));
        for text in ["imix:", "imix:x", "imix:A", "63", "imix", &format!("imix:{}", "a".repeat(65))] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn line_rates_are_those_of_rfc_2544() {
        // RFC 2544, appendix B, lists 14,880 and 812 frames per second for 10 Mbit/s.
        let rate = |text: &str| text.parse::<Sizes>().unwrap().line_rate_pps(10_000_000) as u64;
        assert_eq!((rate("64"), rate("1518")), (14_880, 812));
        assert_eq!("64".parse::<Sizes>().unwrap().line_rate_pps(10_000_000_000).round(), 14_880_952.0);
        assert_eq!(rate("imix:ag"), 10_000_000 / 8 * 2 / (84 + 1538));
    }
}
