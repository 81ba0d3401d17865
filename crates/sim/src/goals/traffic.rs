//! The traffic patterns for judging goals: seven built-in ones at any rate, and the user's own.
//!
//! | pattern | is | peak |
//! | --- | --- | --- |
//! | `poisson` | exponential gaps | twice the mean |
//! | `constant` | equal gaps | the mean |
//! | `on-off` | 10 ms at five times the mean, but at most what the core can forward; then silence | the rate of a burst |
//! | `self-similar` | 16 senders with Pareto on and off times, Hurst parameter 0.8 | all senders together |
//! | `slots` | a burst every 500 us (single frames less often at lower rates), with a jitter of up to 10 us | the rate of a burst |
//! | `step` | 250 ms at a hundredth of the load (Poisson), then 250 ms at the full load | the load |
//! | `replay` | a generated record with Pareto-distributed gaps, alpha 1.5, repeated | three times the mean |
//!
//! The peak is what a policy is told (`goal.peak`). It is never more than the core can forward at its base frequency.
//! The load is the mean rate, except for `step`, where it is the upper rate.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use units::{Nanos, PacketRate};

use super::Files;
use crate::random::Random;

/// An arrival pattern of packets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pattern {
    /// Exponential gaps, as from many independent senders.
    Poisson,
    /// Equal gaps.
    Constant,
    /// Bursts with silence between them.
    OnOff,
    /// Bursts at all time scales.
    SelfSimilar,
    /// One burst per period.
    Slots,
    /// A rate that alternates between two values, one 100 times the other.
    Step,
    /// Pareto-distributed gaps from a generated record.
    Replay,
    /// A file with its own rate: `[[traffic]]` tables as in a scenario (.toml), or a record to repeat (.pcap, .csv).
    File(String),
}

impl Pattern {
    /// All built-in patterns.
    pub const ALL: [Self; 7] =
        [Self::Poisson, Self::Constant, Self::OnOff, Self::SelfSimilar, Self::Slots, Self::Step, Self::Replay];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Constant => "constant",
            Self::OnOff => "on-off",
            Self::SelfSimilar => "self-similar",
            Self::Slots => "slots",
            Self::Step => "step",
            Self::Replay => "replay",
            Self::File(name) => name,
        })
    }
}

impl FromStr for Pattern {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|pattern| pattern.to_string() == text);
        let file = || [".toml", ".pcap", ".csv"].iter().any(|end| text.ends_with(end)).then(|| Self::File(text.into()));
        known.or_else(file).ok_or_else(|| {
            let known = Self::ALL.map(|pattern| pattern.to_string()).join(", ");
            format!("expected {known}, or a file: FILE.toml with [[traffic]] tables, FILE.pcap or FILE.csv")
        })
    }
}

/// Traffic in the form of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arriving {
    /// The `[[traffic]]` tables.
    pub tables: String,
    /// The highest rate at which packets arrive. `None` if it is not known.
    pub peak: Option<PacketRate>,
    /// Name and content of the generated record that `tables` refer to. `None` if none was generated.
    pub record: Option<(String, Arc<str>)>,
}

/// Duration of a burst of `on-off`, as a sensor or a data transfer would send it.
const ON: Nanos = Nanos::from_millis(10);
/// Duration of each rate of `step`.
const STEP: Nanos = Nanos::from_millis(250);
/// The period of `slots`: a 5G slot with a subcarrier spacing of 30 kHz (3GPP TS 38.211, 4.3.2).
const SLOT: Nanos = Nanos::from_micros(500);
const JITTER: Nanos = Nanos::from_micros(10);
/// Number of senders of `self-similar`, and the smallest number of frames in a burst of one sender.
const SENDERS: u64 = 16;
const BURST_FRAMES: u64 = 20;

impl Pattern {
    /// The traffic of this pattern at `rate_pps`, on a core that can forward `full_pps`. Traffic from a file keeps its
    /// own rate.
    pub fn at(&self, rate_pps: u64, full_pps: u64, files: &Files) -> Arriving {
        let (rate, full) = (rate_pps.max(1), full_pps.max(1));
        let one = |text: String, peak: u64| Arriving {
            tables: format!("[[traffic]]\n{text}"),
            peak: Some(PacketRate::new(peak.clamp(1, full))),
            record: None,
        };
        match self {
            Self::Poisson => one(format!("kind = \"poisson\"\nrate = \"{rate}pps\"\n"), rate * 2),
            Self::Constant => one(format!("kind = \"constant\"\nrate = \"{rate}pps\"\n"), rate),
            Self::OnOff => {
                let peak = (rate * 5).min(full).max(rate);
                let off = ON.scale(peak - rate, rate);
                one(format!("kind = \"on-off\"\nrate = \"{peak}pps\"\non = \"{ON}\"\noff = \"{off}\"\n"), peak)
            }
            Self::SelfSimilar => {
                // The peak of all senders together must be above the mean rate.
                let each = ((rate * 8).min(full) / SENDERS).max(rate / SENDERS + 1);
                let burst = PacketRate::new(each).time_for(BURST_FRAMES).max(Nanos::from_millis(1));
                let text = format!(
                    "kind = \"self-similar\"\nrate = \"{rate}pps\"\npeak = \"{each}pps\"\nsources = {SENDERS}\nburst = \
                     \"{burst}\"\nhurst = \"0.8\"\n"
                );
                one(text, each * SENDERS)
            }
            Self::Slots => {
                let burst = (rate * SLOT.as_nanos() / 1_000_000_000).max(1);
                let period = PacketRate::new(rate).time_for(burst);
                let spacing = Nanos::from_nanos(1_000_000_000_u64.div_ceil(full));
                let free = period.saturating_sub(spacing * burst);
                let jitter = JITTER.min(free / 2);
                let text = format!(
                    "kind = \"slots\"\nperiod = \"{period}\"\nburst = {burst}\nspacing = \"{spacing}\"\njitter = \
                     \"{jitter}\"\n"
                );
                one(text, if burst > 1 { full } else { rate * 2 })
            }
            Self::Step => {
                let low = (rate / 100).max(1);
                let text = format!(
                    "kind = \"poisson\"\nrate = \"{low}pps\"\n\n[[traffic]]\nkind = \"on-off\"\nrate = \
                     \"{}pps\"\non = \"{STEP}\"\noff = \"{STEP}\"\nstart = \"{STEP}\"\n",
                    (rate - low).max(1)
                );
                one(text, rate)
            }
            Self::Replay => {
                let name = format!("pareto-{rate}pps.csv");
                let text = format!("kind = \"replay\"\nfile = \"{name}\"\nrepeat = true\n");
                Arriving { record: Some((name, pareto_gaps(rate).into())), ..one(text, rate * 3) }
            }
            Self::File(name) => {
                let text = || files.get(name).map(|octets| String::from_utf8_lossy(octets).into_owned());
                let replay = || format!("[[traffic]]\nkind = \"replay\"\nfile = \"{name}\"\nrepeat = true\n");
                let tables = if name.ends_with(".toml") { text().unwrap_or_default() } else { replay() };
                Arriving { tables, peak: None, record: None }
            }
        }
    }
}

/// Number of frames in the record. The distribution's variance is infinite, so many frames are needed before the
/// record's mean comes close to the distribution's.
const RECORDED: u64 = 50_000;

/// A record of frames with Pareto-distributed gaps. The shortest gap is a third of the mean; a gap exceeds t with
/// probability (shortest / t)^1.5. The record is always the same: it does not depend on the seeds of the runs.
fn pareto_gaps(rate_pps: u64) -> String {
    /// The longest gap, as a multiple of the mean gap. Without this limit, a single gap could make up most of so short
    /// a record.
    const LONGEST: u64 = 2_000;
    const BITS: u32 = 20;
    let mean = 1_000_000_000 / rate_pps.max(1);
    let least = u128::from((mean / 3).max(1));
    let mut random = Random::stream(1, 0);
    let mut text = "time_ns,octets\n".to_owned();
    let mut at = 0u64;
    for _ in 0..RECORDED {
        let _ = writeln!(text, "{at},64");
        // least u^(-2/3) for u uniform: the cube root of least^3 u^-2.
        let u = u128::from(random.below(1 << BITS) + 1);
        let gap = cube_root((least.pow(3) << (2 * BITS)) / (u * u));
        at += u64::try_from(gap).unwrap_or(u64::MAX).min(mean.saturating_mul(LONGEST));
    }
    text
}

/// The cube root, rounded down.
fn cube_root(n: u128) -> u128 {
    (0..=41).rev().fold(0u128, |root, bit| {
        let more = root | 1 << bit;
        if more * more * more <= n { more } else { root }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::traffic::Source;
    use crate::traffic::replay;

    /// The mean rate of a pattern over its first seconds.
    fn mean_rate(pattern: &Pattern, rate: u64, full: u64, window: Nanos) -> f64 {
        let arriving = pattern.at(rate, full, &Files::new());
        let text = format!(
            "machine = \"xeon-gold-6338n\"\nnic = \"xl710\"\nduration = \"1s\"\n\n{}\n[worker]\ndriver = \"user\"\nwait = \
             \"poll\"\n",
            arriving.tables
        );
        let mut load = |name: &str| {
            let (made, text) = arriving.record.as_ref().unwrap();
            assert_eq!(made, name);
            Ok(text.as_bytes().to_vec())
        };
        let scenario = Scenario::parse("t", &text, &[], &mut load).unwrap_or_else(|e| panic!("{pattern} {rate}: {e}"));
        let line = scenario.host.nic.link.rate;
        let mut frames = 0u64;
        for (number, stream) in scenario.traffic.iter().enumerate() {
            let random = Random::stream(3, number as u64);
            let mut source = Source::new(&stream.traffic, line, random, stream.records.clone());
            while source.draw().is_some_and(|frame| frame.at < crate::At::ORIGIN + window) {
                frames += 1;
            }
        }
        frames as f64 * 1e9 / window.as_nanos() as f64
    }

    #[test]
    fn every_pattern_is_a_scenario_at_every_load_and_has_its_rate() {
        let full = 10_000_000;
        for pattern in Pattern::ALL {
            // `step` runs at a hundredth of the rate for half of the time.
            let share = if pattern == Pattern::Step { 0.505 } else { 1.0 };
            let tolerance = if pattern == Pattern::SelfSimilar { 0.35 } else { 0.05 };
            for (rate, window) in [(1_000, 40), (100_000, 4), (5_000_000, 1), (9_500_000, 1)] {
                let seen = mean_rate(&pattern, rate, full, Nanos::from_secs(window)) / (rate as f64 * share);
                assert!((seen - 1.0).abs() < tolerance, "{pattern} at {rate}: {seen} of it");
            }
        }
        assert_eq!(Pattern::Poisson.at(9_000, 10_000, &Files::new()).peak, Some(PacketRate::new(10_000)));
        assert_eq!(Pattern::OnOff.at(1_000, 1_000_000, &Files::new()).peak, Some(PacketRate::new(5_000)));
    }

    #[test]
    fn the_record_has_paretos_tail() {
        let records = replay::parse(pareto_gaps(10_000).as_bytes()).unwrap();
        let gaps: Vec<u64> = records.windows(2).map(|w| (w[1].offset.saturating_sub(w[0].offset)).as_nanos()).collect();
        for factor in [2u32, 10, 30] {
            let above = gaps.iter().filter(|gap| **gap > 33_333 * u64::from(factor)).count() as f64 / gaps.len() as f64;
            let exact = f64::from(factor).powf(-1.5);
            assert!((above / exact - 1.0).abs() < 0.15, "{factor}: {above} {exact}");
        }
        assert!(gaps.iter().all(|gap| *gap >= 33_332), "shorter than the least");
    }

    #[test]
    fn patterns_are_read_as_they_are_shown() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        assert_eq!("mine.pcap".parse(), Ok(Pattern::File("mine.pcap".into())));
        assert!("bursty".parse::<Pattern>().unwrap_err().contains("self-similar"));
    }
}
