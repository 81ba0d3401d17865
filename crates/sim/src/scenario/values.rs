//! Values that only scenarios have.

use std::str::FromStr;

use units::Cycles;

use crate::traffic::ppm_of_percent;

/// A number of cycles: `150cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CycleCount(Cycles);

impl CycleCount {
    /// The number.
    pub const fn get(self) -> Cycles {
        self.0
    }
}

/// `150cycles`, `1 cycles` to `1000000000cycles`: some tenths of a second, which no frame takes.
impl FromStr for CycleCount {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected a number of cycles from 1cycles to 1000000000cycles, such as 150cycles";
        let number = text.trim().strip_suffix("cycles").ok_or(ERROR)?.trim_end();
        if number.is_empty() || !number.bytes().all(|octet| octet.is_ascii_digit()) {
            return Err(ERROR);
        }
        let count: u64 = number.parse().map_err(|_| ERROR)?;
        if (1..=1_000_000_000).contains(&count) { Ok(Self(Cycles::new(count))) } else { Err(ERROR) }
    }
}

/// A share: `0%`, `0.1%`, to ten thousandths of a percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent(u32);

impl Percent {
    /// Parts per million.
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

impl FromStr for Percent {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let ppm = number.and_then(ppm_of_percent).filter(|ppm| *ppm <= 1_000_000);
        ppm.map(Self).ok_or("expected a share such as 0% or 0.1%, at most 100%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_and_shares() {
        assert_eq!("150cycles".parse::<CycleCount>().map(|c| c.get().count()), Ok(150));
        for text in ["150", "0cycles", "cycles", "1.5cycles", "2000000000cycles", "-1cycles"] {
            assert!(text.parse::<CycleCount>().is_err(), "{text}");
        }
        assert_eq!("0.1%".parse::<Percent>().map(Percent::ppm), Ok(1_000));
        assert_eq!("100%".parse::<Percent>().map(Percent::ppm), Ok(1_000_000));
        for text in ["0.1", "101%", "%", "0.00001%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }
}
