//! Sets of CPUs, in the two notations of the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPUs, by their numbers.
///
/// Source: kernel documentation, admin-guide/cputopology and admin-guide/kernel-parameters, "cpu lists".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Cpus(BTreeSet<u32>);

/// CPU numbers beyond this are a typing mistake; NR_CPUS is at most 8192 (arch/x86/Kconfig).
const MOST: u32 = 8192;

impl Cpus {
    /// No CPU.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `cpu` is one.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Those of `self` that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Those in both.
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Whether all of `self` are in `other`.
    pub fn within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Reads `ff,00000003`: hexadecimal words of 32 bits, the highest first, as in `smp_affinity`.
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        let words: Vec<&str> = text.trim().split(',').collect();
        for (word, text) in words.iter().rev().enumerate() {
            if text.is_empty() || text.len() > 8 {
                return None;
            }
            let bits = u32::from_str_radix(text, 16).ok()?;
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word as u32 * 32 + bit));
        }
        (words.len() as u32 <= MOST / 32).then_some(Self(cpus))
    }

    /// Writes the notation of [`Cpus::from_mask`], without leading zeroes: `3` or `ff,00000003`.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let mut text = String::new();
        for word in (0..words).rev() {
            let bits = (0..32).filter(|bit| self.contains(word * 32 + bit)).fold(0u32, |bits, bit| bits | 1 << bit);
            if text.is_empty() {
                text = format!("{bits:x}");
            } else {
                text.push_str(&format!(",{bits:08x}"));
            }
        }
        text
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

/// A text that is no set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a list of CPUs such as 0-3,8 (numbers below {MOST})")]
pub struct NoCpus;

/// `0-3,8`; the empty text is no CPU.
impl FromStr for Cpus {
    type Err = NoCpus;
    fn from_str(text: &str) -> Result<Self, NoCpus> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < MOST).ok_or(NoCpus);
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(NoCpus);
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

/// `0-3,8`, as the kernel writes it (lib/bitmap-str.c, `%*pbl`).
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    #[test]
    fn both_notations_mean_the_same() {
        for (list, mask) in [
            ("0-1", "3"),
            ("", "0"),
            ("1,33", "2,00000002"),
            ("0-63", "ffffffff,ffffffff"),
            ("64", "1,00000000,00000000"),
        ] {
            assert_eq!(cpus(list).to_mask(), mask);
            assert_eq!(Cpus::from_mask(mask), Some(cpus(list)), "{mask}");
            assert_eq!(cpus(list).to_string(), list);
        }
        assert_eq!(Cpus::from_mask("00000000,00000003"), Some(cpus("0,1")), "leading zeroes, as the kernel pads");
    }

    #[test]
    fn wrong_texts_are_refused() {
        for text in ["3-1", "a", "1,,2", "-1", "8192", "0x3"] {
            assert!(text.parse::<Cpus>().is_err(), "{text:?} was taken");
        }
        for text in ["", "g", "123456789", "1,", ",1"] {
            assert!(Cpus::from_mask(text).is_none(), "{text:?} was taken");
        }
    }

    #[test]
    fn sets_subtract() {
        assert_eq!(cpus("0-7").without(&cpus("2-3")).to_string(), "0-1,4-7");
        assert!(cpus("2").within(&cpus("0-3")));
    }
}
