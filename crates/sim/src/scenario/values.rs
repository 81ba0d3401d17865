//! Types of values that occur only in scenarios.

use std::str::FromStr;

use policy::moderation::Profile;
use policy::moderation::dim::NET_PROFILES;
use units::Cycles;

use crate::traffic::ppm_of_percent;

/// A number of cycles, written `150cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CycleCount(Cycles);

impl CycleCount {
    /// The number of cycles.
    pub const fn get(self) -> Cycles {
        self.0
    }
}

/// Reads `1cycles` to `1000000000cycles`. The maximum is a few tenths of a second, more than any frame takes.
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

/// A share, written `0%` or `0.1%`, with up to four decimals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent(u32);

impl Percent {
    /// The share in ppm.
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

/// A ratio of at most 1000 with up to three decimals, for example `0.5` or `1.25`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio(u32);

impl Ratio {
    /// The ratio in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected a ratio such as 0.5 or 2, to three decimals, from 0.001 to 1000";
        let (whole, decimals) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        let digits = |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 3 {
            return Err(ERROR);
        }
        let read = |text: &str| text.parse::<u32>().map_err(|_| ERROR);
        let thousandths = read(whole)? * 1_000 + read(&format!("{decimals:0<3}"))?;
        if (1..=1_000_000).contains(&thousandths) { Ok(Self(thousandths)) } else { Err(ERROR) }
    }
}

/// A device's own DIM profiles, in the format of `ethtool -C IF rx-profile`:
/// `1,256,n_8,256,n_64,256,n_128,256,n_256,256,n`. Profiles are separated by `_` and consist of microseconds, frames
/// and completions; `n` keeps the kernel's value. Completions belong to RDMA and must be `n` or left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DimProfiles([(Option<u16>, Option<u16>); NET_PROFILES]);

impl DimProfiles {
    /// The complete profiles: `n` is replaced by the value in `kernels`.
    pub fn over(&self, mut kernels: [Profile; NET_PROFILES]) -> [Profile; NET_PROFILES] {
        for (profile, (usecs, frames)) in kernels.iter_mut().zip(self.0) {
            profile.usecs = usecs.map_or(profile.usecs, u32::from);
            profile.frames = frames.map_or(profile.frames, u32::from);
        }
        kernels
    }
}

impl FromStr for DimProfiles {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "expected five profiles of microseconds and frames, each from 0 to 65535 or n for the kernel's, \
                             as ethtool's rx-profile: 1,256,n_8,256,n_64,256,n_128,256,n_256,256,n";
        let number = |text: &str| match text {
            "n" => Ok(None),
            _ => text.parse::<u16>().map(Some).map_err(|_| ERROR),
        };
        let mut profiles = [(None, None); NET_PROFILES];
        let mut read = text.trim().split('_');
        for profile in &mut profiles {
            let fields: Vec<&str> = read.next().ok_or(ERROR)?.split(',').map(str::trim).collect();
            let ([usecs, frames] | [usecs, frames, "n"]) = fields[..] else { return Err(ERROR) };
            *profile = (number(usecs)?, number(frames)?);
        }
        if read.next().is_some() { Err(ERROR) } else { Ok(Self(profiles)) }
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

    #[test]
    fn ratios_and_profiles() {
        assert_eq!("0.5".parse::<Ratio>().map(Ratio::thousandths), Ok(500));
        assert_eq!("2".parse::<Ratio>().map(Ratio::thousandths), Ok(2_000));
        for text in ["0", "", ".5", "1.", "0.0005", "1001", "-1", "99999999999"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        let kernels = [1, 8, 64, 128, 256].map(|usecs| Profile::eqe(usecs, 256));
        let own: DimProfiles = "2,32,n_n,16_30,n,n_n,n,n_50,0".parse().unwrap();
        let usecs_frames = own.over(kernels).map(|profile| (profile.usecs, profile.frames));
        assert_eq!(usecs_frames, [(2, 32), (8, 16), (30, 256), (128, 256), (50, 0)]);
        for text in [
            "",
            "1,1_1,1_1,1_1,1",
            "1,1_1,1_1,1_1,1_1,1_1,1",
            "1_1_1_1_1",
            "1,1,1_n,n_n,n_n,n_n,n",
            "65536,1_n,n_n,n_n,n_n,n",
        ] {
            assert!(text.parse::<DimProfiles>().is_err(), "{text}");
        }
    }
}
