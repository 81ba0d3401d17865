//! Sets of CPUs, in both forms that the kernel uses: lists and masks.

use std::fmt;
use std::str::FromStr;

/// The largest `CONFIG_NR_CPUS` that a kernel can be built with on x86 (arch/x86/Kconfig, `NR_CPUS_RANGE_END`). Parsing
/// a CPU number of this size or above is an error.
pub const MAX_CPUS: u32 = 8192;

/// A set of CPU numbers below [`MAX_CPUS`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64`; no trailing zero words, so that equal sets are equal.
    words: Vec<u64>,
}

/// Why a string does not describe a set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CpuSetError {
    /// Part of the string is neither a number nor a range.
    #[error("{0:?} is not a CPU list: write numbers and ranges, such as 0-3,8,10-14:2/4")]
    Syntax(String),
    /// A number is too large.
    #[error("CPU {0} is out of range: kernels know at most {MAX_CPUS} CPUs")]
    TooLarge(u64),
    /// The end of a range is lower than its beginning.
    #[error("the range {0:?} runs backwards: write the smaller number first")]
    Backwards(String),
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Parses a CPU list as in `isolcpus=` and `smp_affinity_list`: `0-3,8,10-30:2/4`
    /// (Documentation/admin-guide/kernel-parameters.rst, "cpu lists"). An empty string gives the empty set. `all` and
    /// `N` (the last CPU) depend on the machine: use [`Self::parse_list_within`] for them.
    pub fn parse_list(text: &str) -> Result<Self, CpuSetError> {
        Self::parse_list_with(text, None)
    }

    /// Parses a list in which `all` means `present` and `N` the last CPU of `present`.
    pub fn parse_list_within(text: &str, present: &Self) -> Result<Self, CpuSetError> {
        Self::parse_list_with(text, Some(present))
    }

    fn parse_list_with(text: &str, present: Option<&Self>) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match present {
                Some(present) if part == "all" => set = set.union(present),
                _ => set.insert_part(part, present.and_then(Self::last))?,
            }
        }
        Ok(set)
    }

    /// Inserts `7`, `3-9` or `0-30:2/4` (the first 2 CPUs of each group of 4).
    fn insert_part(&mut self, part: &str, last: Option<u32>) -> Result<(), CpuSetError> {
        let number = |text: &str| match (text.trim(), last) {
            ("N", Some(last)) => Ok(last),
            (text, _) => number(text, part),
        };
        let (range, group) = part.split_once(':').map_or((part, None), |(range, group)| (range, Some(group)));
        let (first, end) = match range.split_once('-') {
            Some((first, end)) => (number(first)?, number(end)?),
            None => (number(range)?, number(range)?),
        };
        if first > end {
            return Err(CpuSetError::Backwards(part.into()));
        }
        let syntax = || CpuSetError::Syntax(part.into());
        let (used, size) = match group {
            None => (1, 1),
            Some(group) => {
                let (used, size) = group.split_once('/').ok_or_else(syntax)?;
                (number(used)?, number(size)?)
            }
        };
        if size == 0 || used > size {
            return Err(syntax());
        }
        (first..=end).filter(|cpu| (cpu - first) % size < used).for_each(|cpu| self.insert(cpu));
        Ok(())
    }

    /// Reads a mask as in `smp_affinity`: groups of up to 8 hexadecimal digits, the highest CPUs first, separated by
    /// commas. A prefix `0x` is allowed (`tuned.non_isolcpus` and irqbalance use it).
    pub fn parse_mask(text: &str) -> Result<Self, CpuSetError> {
        let syntax = || CpuSetError::Syntax(text.chars().take(40).collect());
        let digits = text.trim();
        let digits = digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits);
        if digits.is_empty() {
            return Err(syntax());
        }
        let mut set = Self::new();
        // Each group stands for 32 bits, even if it has fewer than 8 digits.
        let mut base = 0;
        for group in digits.rsplit(',') {
            if group.is_empty() || (digits.contains(',') && group.len() > 8) {
                return Err(syntax());
            }
            let mut bit = base;
            for digit in group.bytes().rev() {
                let digit = char::from(digit).to_digit(16).ok_or_else(syntax)?;
                for n in (0..4).filter(|n| digit >> n & 1 == 1) {
                    match bit + n {
                        cpu if cpu < MAX_CPUS => set.insert(cpu),
                        cpu => return Err(CpuSetError::TooLarge(cpu.into())),
                    }
                }
                bit = bit.saturating_add(4);
            }
            base = base.saturating_add(32);
        }
        Ok(set)
    }

    /// All CPUs below `n`.
    pub fn below(n: u32) -> Self {
        (0..n.min(MAX_CPUS)).collect()
    }

    /// Adds a CPU. Numbers of [`MAX_CPUS`] and above are ignored.
    pub fn insert(&mut self, cpu: u32) {
        if cpu >= MAX_CPUS {
            return;
        }
        let word = (cpu / 64) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Removes a CPU.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut((cpu / 64) as usize) {
            *word &= !(1 << (cpu % 64));
        }
        self.trim();
    }

    /// Whether the set contains this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set contains no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU number. `None` if the set is empty.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest CPU number. `None` if the set is empty.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.len().checked_sub(1)?;
        Some(word as u32 * 64 + 63 - self.words[word].leading_zeros())
    }

    /// The CPU numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    index as u32 * 64 + bit
                })
            })
        })
    }

    /// The CPUs that are in at least one of the two sets.
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    /// The CPUs that are in this set and not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// Whether the other set contains all CPUs of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether the two sets have a CPU in common.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    fn combine(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let word = |words: &[u64], n: usize| words.get(n).copied().unwrap_or(0);
        let len = self.words.len().max(other.words.len());
        let mut set = Self { words: (0..len).map(|n| f(word(&self.words, n), word(&other.words, n))).collect() };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// The set as a CPU list for the kernel, such as `0-3,8`. The empty set gives an empty string. [`fmt::Display`], in
    /// contrast, prints the word `none` for it.
    pub fn to_list(&self) -> String {
        if self.is_empty() { String::new() } else { self.to_string() }
    }

    /// The set as a mask for the kernel, such as `ff,ffffffff`.
    pub fn to_mask(&self) -> String {
        let halves: Vec<u32> = self.words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect();
        let used = halves.iter().rposition(|half| *half != 0).map_or(1, |n| n + 1);
        let mut text = format!("{:x}", halves.get(used - 1).copied().unwrap_or(0));
        for half in halves.iter().take(used - 1).rev() {
            text.push_str(&format!(",{half:08x}"));
        }
        text
    }
}

/// Parses a decimal number below [`MAX_CPUS`].
fn number(text: &str, part: &str) -> Result<u32, CpuSetError> {
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(CpuSetError::Syntax(part.chars().take(40).collect()));
    }
    match text.parse::<u64>() {
        Ok(n) if n < u64::from(MAX_CPUS) => Ok(n as u32),
        Ok(n) => Err(CpuSetError::TooLarge(n)),
        Err(_) => Err(CpuSetError::TooLarge(u64::MAX)),
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl<const N: usize> From<[u32; N]> for CpuSet {
    fn from(cpus: [u32; N]) -> Self {
        cpus.into_iter().collect()
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// Parses a CPU list; see [`Self::parse_list`].
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        Self::parse_list(text)
    }
}

impl fmt::Display for CpuSet {
    /// The list as the kernel writes it: `0-3,8`; the empty set is `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        assert_eq!(set("0-3,8\n"), CpuSet::from([0, 1, 2, 3, 8]));
        assert_eq!(set("0-10:2/4"), CpuSet::from([0, 1, 4, 5, 8, 9]));
        assert_eq!(set(""), CpuSet::new());
        let present = CpuSet::below(12);
        assert_eq!(CpuSet::parse_list_within("8-N", &present), Ok(CpuSet::from([8, 9, 10, 11])));
        assert_eq!(CpuSet::parse_list_within("all", &present), Ok(present));
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
            assert_eq!(set(list).to_mask(), mask);
            assert_eq!(CpuSet::parse_mask(mask), Ok(set(list)), "{mask}");
            assert_eq!(set(list).to_list(), list);
        }
        assert_eq!(CpuSet::parse_mask("00000000,00000003"), Ok(set("0,1")), "leading zeroes, as the kernel pads");
    }

    #[test]
    fn what_is_no_list_is_an_error_that_says_so() {
        assert_eq!(CpuSet::parse_list("0-4000000000"), Err(CpuSetError::TooLarge(4_000_000_000)));
        assert_eq!(CpuSet::parse_list("5-3"), Err(CpuSetError::Backwards("5-3".into())));
        for text in ["managed_irq", "1-", "-1", "1:2", "0-9:3/0", "0-9:3/2", "+1", "0x3", "1-N"] {
            assert!(matches!(CpuSet::parse_list(text), Err(CpuSetError::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn masks_are_read_from_the_right_and_short_groups_count_whole() {
        assert_eq!(CpuSet::parse_mask("000007e0\n").unwrap(), set("5-10"));
        assert_eq!(CpuSet::parse_mask("1,00000000").unwrap(), set("32"));
        assert_eq!(CpuSet::parse_mask("1,0").unwrap(), set("32"));
        assert_eq!(CpuSet::parse_mask("0xffffffffff").unwrap(), set("0-39"));
        assert!(CpuSet::parse_mask("").is_err() && CpuSet::parse_mask("g").is_err());
        assert_eq!(CpuSet::parse_mask(&format!("1{}", ",00000000".repeat(256))), Err(CpuSetError::TooLarge(8192)));
    }

    #[test]
    fn sets_combine() {
        let (all, isolated) = (set("0-7"), set("2-7,70"));
        assert_eq!(all.difference(&isolated), set("0-1"));
        assert_eq!(isolated.difference(&all), set("70"));
        assert_eq!(all.intersection(&isolated), set("2-7"));
        assert_eq!(all.union(&isolated).to_string(), "0-7,70");
        assert!(!isolated.is_subset(&all) && set("2-3").is_subset(&isolated));
        assert!(all.intersects(&isolated) && !set("0").intersects(&isolated));
        assert_eq!((isolated.first(), isolated.last(), isolated.len()), (Some(2), Some(70), 7));
        assert_eq!(CpuSet::new().to_string(), "none");
    }

    proptest! {
        #[test]
        fn any_text_is_a_set_or_an_error(text in ".{0,60}") {
            let _ = CpuSet::parse_list(&text);
            let _ = CpuSet::parse_mask(&text);
        }

        #[test]
        fn a_set_written_and_read_is_the_same(cpus in prop::collection::btree_set(0..MAX_CPUS, 0..40)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(&CpuSet::parse_mask(&set.to_mask()).unwrap(), &set);
            if !set.is_empty() {
                prop_assert_eq!(&CpuSet::parse_list(&set.to_string()).unwrap(), &set);
            }
        }
    }
}
