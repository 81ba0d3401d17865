//! Reads files that hold one value.

use std::fmt::Display;
use std::str::FromStr;

use super::Root;
use crate::facts::{CpuSet, Fact, MAX_CPUS};

impl Root {
    /// Reads a file that contains a number.
    pub(crate) fn number<T: FromStr<Err: Display>>(&self, path: &str) -> Fact<T> {
        self.text(path).parse(|text| text.parse())
    }

    /// Reads a file that contains `0` or `1`, or `N` or `Y`.
    pub(crate) fn switch(&self, path: &str) -> Fact<bool> {
        self.text(path).parse(|text| match text.as_str() {
            "0" | "N" | "n" => Ok(false),
            "1" | "Y" | "y" => Ok(true),
            other => Err(format!("{:?} is neither 0 nor 1", start(other))),
        })
    }

    /// Reads a file that contains a CPU list, such as `0-3,8`.
    pub(crate) fn cpu_list(&self, path: &str) -> Fact<CpuSet> {
        self.text(path).parse(|text| CpuSet::parse_list(&text))
    }

    /// Reads a file that contains a CPU mask in hexadecimal.
    pub(crate) fn cpu_mask(&self, path: &str) -> Fact<CpuSet> {
        self.text(path).parse(|text| CpuSet::parse_mask(&text))
    }

    /// The numbers N of a directory's entries that are called `prefixN`, sorted. Numbers from [`MAX_CPUS`] on are left
    /// out.
    pub(crate) fn numbered(&self, place: &str, prefix: &str) -> Vec<u32> {
        let names = self.list(place).into_value().unwrap_or_default();
        let number = |name: &String| name.strip_prefix(prefix)?.parse().ok().filter(|n| *n < MAX_CPUS);
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}

fn start(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_should_be_or_not_understood() {
        let root = Root::given([
            ("n", "42\n"),
            ("on", "Y\n"),
            ("off", "0"),
            ("list", "0-2\n"),
            ("mask", "6"),
            ("text", "maybe"),
        ]);
        assert_eq!((root.number::<u32>("n").get(), root.number::<i64>("n").get()), (Some(42), Some(42)));
        assert_eq!((root.switch("on").get(), root.switch("off").get()), (Some(true), Some(false)));
        assert_eq!(root.cpu_list("list").value(), Some(&CpuSet::from([0, 1, 2])));
        assert_eq!(root.cpu_mask("mask").value(), Some(&CpuSet::from([1, 2])));
        for unknown in [root.number::<u8>("text").why(), root.switch("n").why(), root.cpu_list("text").why()] {
            assert!(matches!(unknown, Some(crate::facts::Why::Malformed(_))), "{unknown:?}");
        }
    }
}
