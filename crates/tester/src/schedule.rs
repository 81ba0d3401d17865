//! Schedules: when frames are due to be sent. They are open loop: what happens to earlier frames never changes when
//! later frames are due.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pcap::PcapReader;
use units::{Nanos, PacketRate};

use crate::{Error, Random};

/// The forms of a schedule on the command line, for error messages.
pub const FORMS: &str = "expected constant:20kpps, constant:350us, poisson:20kpps, burst:32@1ms[,rate=1Mpps], \
                         slot:500us,frames=4,jitter=20us, pareto:30kpps[,alpha=1.5], ramp:1kpps-100kpps@2s[,gaps=even] \
                         phases:2kpps@60s+1kpps@60s or pcap:FILE";

/// When the frames of a trial are due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// Evenly spaced frames at a rate. Frame i is due at i / rate, rounded down to 1 ns, so there is no drift.
    ConstantRate(PacketRate),
    /// Evenly spaced frames: one every gap of this length, starting at 0.
    ConstantGap(Nanos),
    /// Random frames at a mean rate, with exponentially distributed gaps, as from many independent senders.
    Poisson(PacketRate),
    /// Bursts: from the start of each period, `frames` frames are due at the rate `rate`, or all at once.
    Burst {
        /// Frames in a burst.
        frames: u32,
        /// Time from the start of a burst to the start of the next.
        period: Nanos,
        /// Rate within a burst; `None` if all its frames are due at once.
        rate: Option<PacketRate>,
    },
    /// Frames in slots, as in 5G: all frames of a slot are due at once. Each slot is delayed by a random time from 0 to
    /// `jitter`, uniformly distributed.
    Slot {
        /// Time from the start of a slot to the start of the next.
        period: Nanos,
        /// Frames in a slot.
        frames: u32,
        /// Largest delay of a slot; shorter than `period`.
        jitter: Nanos,
    },
    /// Pareto distributed gaps: a gap is longer than t with probability (x / t)^alpha, where x is the shortest gap.
    /// Frames come in clusters, with silences of all lengths between them.
    Pareto {
        /// Mean rate. It determines the shortest gap x, which is (alpha - 1) / alpha of the mean gap.
        rate: PacketRate,
        /// The shape alpha in thousandths, above 1000, because the gaps would otherwise have no mean. Up to 2000, the
        /// variance of the gaps is infinite.
        alpha_thousandths: u32,
    },
    /// A rate that rises linearly from `low` to `high` in the first half of each period, and falls back to `low` in the
    /// second half.
    Ramp {
        /// Rate at the start of a period.
        low: PacketRate,
        /// Rate in the middle of a period.
        high: PacketRate,
        /// Length of a period.
        period: Nanos,
        /// Whether gaps follow the current rate exactly. Otherwise arrivals are random: a Poisson process at the
        /// current rate.
        even: bool,
    },
    /// Phases of constant rates, each with its duration. The last rate continues without end.
    Phases(Vec<(PacketRate, Nanos)>),
    /// The frames of a capture file, with their recorded gaps and sizes, played once.
    Pcap(PathBuf),
}

/// Default alpha, in thousandths. W. Willinger et al., "Self-similarity through high-variability", IEEE/ACM ToN 5(1),
/// 1997, find an alpha of 1 to 2 in Ethernet traffic.
const USUAL_ALPHA: u32 = 1_500;

/// One frame to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Due time, from the start of the trial.
    pub offset: Nanos,
    /// Size in bytes without frame check sequence; `None` for the frame size of the trial.
    pub data_octets: Option<u32>,
}

impl Schedule {
    /// The arrivals in order of time. They never end, except those of [`Schedule::Pcap`]. Random arrivals depend only
    /// on `seed`.
    pub fn arrivals(&self, seed: u64) -> Result<Arrivals, Error> {
        let source = match self {
            Self::Pcap(path) => Source::Recorded(recorded(path)?),
            other => Source::Endless(other.clone()),
        };
        Ok(Arrivals { source, next: 0, at: 0.0, shift: 0, random: Random::new(seed) })
    }

    /// Expected number of frames in `span`, to reserve memory; `None` for a capture, because [`Arrivals::recorded`]
    /// lists its frames.
    pub fn expected_frames(&self, span: Nanos) -> Option<u64> {
        let started = |period: Nanos| span.as_nanos().div_ceil(period.as_nanos().max(1)); // never 0: see from_str
        match self {
            Self::ConstantRate(rate) | Self::Poisson(rate) => {
                Some(span.scale(rate.as_pps(), 1_000_000_000).as_nanos().saturating_add(1))
            }
            Self::ConstantGap(gap) => Some(started(*gap)),
            Self::Burst { frames, period, .. } | Self::Slot { period, frames, .. } => {
                Some(started(*period).saturating_mul(u64::from(*frames)))
            }
            // The sum of 100,000 Pareto gaps falls short of its mean by some 2 %, so more frames come than the mean.
            // For fewer gaps, the difference is larger. 10 % are added.
            Self::Pareto { rate, .. } => {
                let mean = span.scale(rate.as_pps(), 1_000_000_000).as_nanos();
                Some(mean.saturating_add(mean / 10).saturating_add(1))
            }
            Self::Ramp { low, high, period, .. } => {
                Some(Ramp::new(*low, *high, *period).frames_by(span.as_nanos() as f64) as u64 + 1)
            }
            Self::Phases(phases) => {
                let last = phases.last().map_or(0, |(rate, _)| rate.as_pps());
                let end = phases.iter().fold(Nanos::ZERO, |end, (_, length)| end + *length);
                let within: u64 = phases.iter().map(|(rate, length)| frames_of(*rate, *length)).sum();
                let beyond = span.saturating_sub(end).scale(last, 1_000_000_000).as_nanos();
                Some(within.saturating_add(beyond).saturating_add(1))
            }
            Self::Pcap(_) => None,
        }
    }
}

/// Number of frames of a phase: frame i is due at i / rate, if that is before the end of the phase.
fn frames_of(rate: PacketRate, length: Nanos) -> u64 {
    let frames = (u128::from(length.as_nanos()) * u128::from(rate.as_pps())).div_ceil(1_000_000_000);
    u64::try_from(frames).unwrap_or(u64::MAX)
}

/// Shortest frame on the wire, in bytes without frame check sequence. If a frame in a capture is shorter, it was
/// recorded before the port padded it. IEEE 802.3-2018, 4.2.3.3.
const SHORTEST: u32 = 60;

/// The frames of a capture, with their sizes and their times from the first frame. In a capture of several queues, a
/// frame may have an earlier time stamp than the frame before it; both are then due at the same time.
fn recorded(path: &Path) -> Result<Vec<Arrival>, Error> {
    let mut reader = PcapReader::open(path)?;
    let mut arrivals = Vec::new();
    while let Some(record) = reader.next_record()? {
        arrivals.push(Arrival { offset: record.offset, data_octets: Some(record.original_len.max(SHORTEST)) });
    }
    if arrivals.is_empty() { Err(Error::malformed(path, "holds no frame")) } else { Ok(arrivals) }
}

/// A [`Schedule::Ramp`]: rates in frames per ns, times in ns.
struct Ramp {
    low: f64,
    /// Increase of the rate per ns in the first half of a period.
    slope: f64,
    period: f64,
    /// Frames in a period.
    frames: f64,
}

impl Ramp {
    fn new(low: PacketRate, high: PacketRate, period: Nanos) -> Self {
        let (low, high, period) = (low.as_pps() as f64 / 1e9, high.as_pps() as f64 / 1e9, period.as_nanos() as f64);
        Self { low, slope: (high - low) / (period / 2.0), period, frames: (low + high) / 2.0 * period }
    }

    /// Number of frames due before `at`: the integral of the rate.
    fn frames_by(&self, at: f64) -> f64 {
        let rising = |t: f64| self.low * t + self.slope / 2.0 * t * t;
        let (whole, t) = ((at / self.period).floor(), at % self.period);
        let part = if t < self.period / 2.0 { rising(t) } else { self.frames - rising(self.period - t) };
        whole * self.frames + part
    }

    /// Due time of frame `n`: the inverse of `frames_by`.
    fn due(&self, n: f64) -> f64 {
        // Solves slope / 2 t^2 + low t = n, in a form that also works for a slope of 0.
        let rising = |n: f64| 2.0 * n / (self.low + (self.low * self.low + 2.0 * self.slope * n).sqrt());
        let (whole, n) = ((n / self.frames).floor(), n % self.frames);
        let part = if n < self.frames / 2.0 { rising(n) } else { self.period - rising(self.frames - n) };
        whole * self.period + part
    }
}

#[derive(Clone, Debug)]
enum Source {
    Endless(Schedule),
    Recorded(Vec<Arrival>),
}

/// The arrivals of a [`Schedule`], in order of time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    source: Source,
    next: u64,
    /// For Poisson and Pareto: due time of the latest arrival in ns, exact to 1 ns for 104 days (53 bits). For a ramp:
    /// expected number of frames until the latest arrival.
    at: f64,
    /// For slots: delay of the current slot in ns.
    shift: u64,
    random: Random,
}

impl Arrivals {
    /// The recorded arrivals, if they come from a capture.
    pub fn recorded(&self) -> Option<&[Arrival]> {
        match &self.source {
            Source::Recorded(list) => Some(list),
            Source::Endless(_) => None,
        }
    }
}

impl From<Vec<Arrival>> for Arrivals {
    /// Arrivals from a list, which must be in order of time.
    fn from(list: Vec<Arrival>) -> Self {
        Self { source: Source::Recorded(list), next: 0, at: 0.0, shift: 0, random: Random::new(0) }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;
    fn next(&mut self) -> Option<Arrival> {
        let i = self.next;
        self.next += 1;
        let schedule = match &self.source {
            Source::Recorded(list) => return list.get(usize::try_from(i).ok()?).copied(),
            Source::Endless(schedule) => schedule,
        };
        let offset = match schedule {
            Schedule::ConstantRate(rate) => rate.time_for(i),
            Schedule::ConstantGap(gap) => *gap * i,
            Schedule::Poisson(rate) => {
                self.at += self.random.exponential(1e9 / rate.as_pps() as f64);
                Nanos::from_nanos(self.at as u64)
            }
            Schedule::Burst { frames, period, rate } => {
                let (burst, frame) = (i / u64::from(*frames), i % u64::from(*frames));
                *period * burst + rate.map_or(Nanos::ZERO, |rate| rate.time_for(frame))
            }
            Schedule::Slot { period, frames, jitter } => {
                if i.is_multiple_of(u64::from(*frames)) {
                    self.shift = self.random.up_to(jitter.as_nanos());
                }
                *period * (i / u64::from(*frames)) + Nanos::from_nanos(self.shift)
            }
            Schedule::Pareto { rate, alpha_thousandths } => {
                let alpha = f64::from(*alpha_thousandths) / 1e3;
                let least = 1e9 / rate.as_pps() as f64 * (alpha - 1.0) / alpha;
                self.at += least * self.random.unit().powf(-1.0 / alpha);
                Nanos::from_nanos(self.at as u64)
            }
            Schedule::Ramp { low, high, period, even } => {
                self.at = if *even { i as f64 } else { self.at + self.random.exponential(1.0) };
                Nanos::from_nanos(Ramp::new(*low, *high, *period).due(self.at) as u64)
            }
            Schedule::Phases(phases) => {
                let (mut first, mut begins) = (0, Nanos::ZERO);
                let mut due = None;
                for (at, (rate, length)) in phases.iter().enumerate() {
                    let frames = frames_of(*rate, *length);
                    if i - first < frames || at + 1 == phases.len() {
                        due = Some(begins + rate.time_for(i - first));
                        break;
                    }
                    first += frames;
                    begins += *length;
                }
                due?
            }
            // Not reached: `arrivals` turns a capture into `Source::Recorded`.
            Schedule::Pcap(_) => return None,
        };
        Some(Arrival { offset, data_octets: None })
    }
}

impl FromStr for Schedule {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::invalid(format!("schedule {text:?}"), format!("{why}; {FORMS}"));
        let (kind, rest) = text.trim().split_once(':').ok_or_else(|| wrong("it lacks a colon"))?;
        let rate = |text: &str| match text.parse::<PacketRate>() {
            Ok(rate) if rate.as_pps() == 0 => Err(wrong("a rate of 0 sends nothing")),
            Ok(rate) => Ok(rate),
            Err(error) => Err(wrong(&format!("{text:?}: {error}"))),
        };
        let span = |text: &str| match text.parse::<Nanos>() {
            Ok(Nanos::ZERO) => Err(wrong("a period of 0 never ends")),
            Ok(span) => Ok(span),
            Err(error) => Err(wrong(&format!("{text:?}: {error}"))),
        };
        let count = |text: &str| match text.trim().parse::<u32>() {
            Ok(0) | Err(_) => Err(wrong(&format!("{text:?} is not a number of frames (at least 1)"))),
            Ok(n) => Ok(n),
        };
        let mut parts = rest.split(',');
        let head = parts.next().unwrap_or_default();
        let mut options = Vec::new();
        if kind != "pcap" {
            for part in parts {
                options.push(part.split_once('=').ok_or_else(|| wrong(&format!("{part:?} is not KEY=VALUE")))?);
            }
        }
        let mut option = |key: &str| -> Result<Option<&str>, Error> {
            let Some(at) = options.iter().position(|(k, _)| k.trim() == key) else { return Ok(None) };
            let (_, value) = options.swap_remove(at);
            if options.iter().any(|(k, _)| k.trim() == key) {
                return Err(wrong(&format!("{key} is given twice")));
            }
            Ok(Some(value))
        };
        let schedule = match kind {
            "constant" if head.ends_with("pps") => Self::ConstantRate(rate(head)?),
            "constant" => Self::ConstantGap(span(head)?),
            "poisson" => Self::Poisson(rate(head)?),
            "burst" => {
                let (frames, period) = head.split_once('@').ok_or_else(|| wrong("a burst is FRAMES@PERIOD"))?;
                let (frames, period) = (count(frames)?, span(period)?);
                let rate = option("rate")?.map(rate).transpose()?;
                if rate.is_some_and(|rate| rate.time_for(u64::from(frames)) > period) {
                    return Err(wrong("the burst is longer than its period"));
                }
                Self::Burst { frames, period, rate }
            }
            "slot" => {
                let period = span(head)?;
                let frames = option("frames")?.map(count).transpose()?.unwrap_or(1);
                let jitter = match option("jitter")? {
                    Some(text) => text.parse::<Nanos>().map_err(|e| wrong(&format!("jitter {text:?}: {e}")))?,
                    None => Nanos::ZERO,
                };
                if jitter >= period {
                    return Err(wrong("the jitter must be shorter than the slot"));
                }
                Self::Slot { period, frames, jitter }
            }
            "pareto" => {
                let alpha = option("alpha")?.map(str::trim);
                let read = |text: &str| match text.parse::<f64>() {
                    Ok(alpha) if (1.001..=100.0).contains(&alpha) => Ok((alpha * 1e3).round() as u32),
                    _ => Err(wrong(&format!("alpha {text:?} is not a number from 1.001 to 100"))),
                };
                Self::Pareto { rate: rate(head)?, alpha_thousandths: alpha.map_or(Ok(USUAL_ALPHA), read)? }
            }
            "ramp" => {
                let form = || wrong("a ramp is LOW-HIGH@PERIOD");
                let (rates, period) = head.split_once('@').ok_or_else(form)?;
                let (low, high) = rates.split_once('-').ok_or_else(form)?;
                let even = match option("gaps")?.map(str::trim) {
                    None | Some("random") => false,
                    Some("even") => true,
                    Some(other) => return Err(wrong(&format!("gaps are even or random, not {other:?}"))),
                };
                Self::Ramp { low: rate(low)?, high: rate(high)?, period: span(period)?, even }
            }
            "phases" => {
                let mut phases = Vec::new();
                for part in head.split('+') {
                    let (at, length) = part.split_once('@').ok_or_else(|| wrong("a phase is RATE@DURATION"))?;
                    phases.push((rate(at)?, span(length)?));
                }
                Self::Phases(phases)
            }
            "pcap" if rest.is_empty() => return Err(wrong("the file is missing")),
            "pcap" => Self::Pcap(rest.into()),
            other => return Err(wrong(&format!("there is no schedule {other:?}"))),
        };
        match options.first() {
            Some((key, _)) => Err(wrong(&format!("{kind} has no option {key:?}"))),
            None => Ok(schedule),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phases(phases) => {
                let phase =
                    |(rate, length): &(PacketRate, Nanos)| format!("{}pps@{}ns", rate.as_pps(), length.as_nanos());
                write!(f, "phases:{}", phases.iter().map(phase).collect::<Vec<_>>().join("+"))
            }
            Self::ConstantRate(rate) => write!(f, "constant:{}pps", rate.as_pps()),
            Self::ConstantGap(gap) => write!(f, "constant:{}ns", gap.as_nanos()),
            Self::Poisson(rate) => write!(f, "poisson:{}pps", rate.as_pps()),
            Self::Burst { frames, period, rate: None } => write!(f, "burst:{frames}@{}ns", period.as_nanos()),
            Self::Burst { frames, period, rate: Some(rate) } => {
                write!(f, "burst:{frames}@{}ns,rate={}pps", period.as_nanos(), rate.as_pps())
            }
            Self::Slot { period, frames, jitter } => {
                write!(f, "slot:{}ns,frames={frames},jitter={}ns", period.as_nanos(), jitter.as_nanos())
            }
            Self::Pareto { rate, alpha_thousandths } => {
                write!(f, "pareto:{}pps,alpha={}", rate.as_pps(), f64::from(*alpha_thousandths) / 1e3)
            }
            Self::Ramp { low, high, period, even } => {
                let gaps = if *even { ",gaps=even" } else { "" };
                write!(f, "ramp:{}pps-{}pps@{}ns{gaps}", low.as_pps(), high.as_pps(), period.as_nanos())
            }
            Self::Pcap(path) => write!(f, "pcap:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(text: &str, n: usize) -> Vec<u64> {
        let schedule: Schedule = text.parse().unwrap();
        schedule.arrivals(42).unwrap().take(n).map(|a| a.offset.as_nanos()).collect()
    }

    #[test]
    fn a_capture_gives_offsets_and_sizes() {
        use pcap::{PcapWriter, Resolution};
        let path = std::env::temp_dir().join(format!("apus-schedule-{}.pcap", std::process::id()));
        let of = |frames: &[(u64, usize)]| {
            let mut writer = PcapWriter::create(&path, Resolution::Nanos).unwrap();
            for (at, len) in frames {
                writer.write(Nanos::from_nanos(*at), &vec![0; *len]).unwrap();
            }
            writer.finish().unwrap();
            let arrivals = Schedule::Pcap(path.clone()).arrivals(1);
            std::fs::remove_file(&path).unwrap();
            arrivals
        };
        let seen: Vec<_> = of(&[(5, 60), (2_005, 1500), (2_004, 20)])
            .unwrap()
            .map(|arrival| (arrival.offset.as_nanos(), arrival.data_octets))
            .collect();
        assert_eq!(seen, [(0, Some(60)), (2_000, Some(1500)), (2_000, Some(60))]);
        assert!(of(&[]).unwrap_err().to_string().contains("no frame"));
        let missing = Schedule::Pcap("/nonexistent.pcap".into()).arrivals(1).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent.pcap") && !missing.lacks(), "{missing}");
    }

    #[test]
    fn constant_does_not_drift() {
        assert_eq!(offsets("constant:3pps", 4), [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(offsets("constant:350us", 3), [0, 350_000, 700_000]);
    }

    #[test]
    fn poisson_has_its_mean_and_its_distribution() {
        let n = 200_000;
        let all = offsets("poisson:20kpps", n);
        let mean = all[n - 1] as f64 / n as f64;
        assert!((mean - 50_000.0).abs() < 50_000.0 * 4.0 / (n as f64).sqrt(), "{mean}"); // 4 sigma
        // Kolmogorov-Smirnov against 1 - exp(-x / mean): 1.63 / sqrt(n) at 1 % (Massey 1951).
        let mut gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        gaps.sort_by(f64::total_cmp);
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| ((i + 1) as f64 / gaps.len() as f64 - (1.0 - (-gap / 50_000.0).exp())).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.63 / (n as f64).sqrt(), "{distance}");
        assert_eq!(all, offsets("poisson:20kpps", n), "the same seed gives the same schedule");
    }

    #[test]
    fn bursts_and_slots() {
        assert_eq!(offsets("burst:2@1ms", 4), [0, 0, 1_000_000, 1_000_000]);
        assert_eq!(offsets("burst:2@1ms,rate=1Mpps", 4), [0, 1_000, 1_000_000, 1_001_000]);
        let slots = offsets("slot:500us,frames=4,jitter=20us", 4_000);
        assert!(slots.is_sorted());
        let delays: Vec<u64> = slots.chunks(4).enumerate().map(|(i, s)| s[0] - i as u64 * 500_000).collect();
        assert!(slots.chunks(4).all(|slot| slot.iter().all(|t| *t == slot[0])));
        assert!(delays.iter().all(|d| *d <= 20_000));
        let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64;
        assert!((mean - 10_000.0).abs() < 800.0, "{mean}"); // 4 sigma: 20000 / sqrt(12 * 1000) * 4
    }

    #[test]
    fn pareto_has_its_rate_and_its_tail() {
        let n = 400_000;
        // With alpha 2.5, the variance is finite, so the mean can be tested: sigma is 0.9 of the mean gap.
        let all = offsets("pareto:30kpps,alpha=2.5", n);
        let mean = all[n - 1] as f64 / n as f64;
        assert!((mean * 30e3 / 1e9 - 1.0).abs() < 4.0 * 0.9 / (n as f64).sqrt(), "{mean}");
        // With alpha 1.5 and the shortest gap x, a share of (1 / k)^1.5 of the gaps is longer than k x.
        let all = offsets("pareto:30kpps", n);
        let least = 1e9 / 30e3 / 3.0;
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        assert!(gaps.iter().all(|gap| *gap >= least - 1.0));
        for k in [1.5, 4.0, 30.0] {
            let expected = f64::powf(k, -1.5);
            let longer = gaps.iter().filter(|gap| **gap > k * least).count() as f64 / n as f64;
            let sigma = (expected * (1.0 - expected) / n as f64).sqrt();
            assert!((longer - expected).abs() < 4.0 * sigma + 1e-4, "{k}: {longer} of {expected}");
        }
    }

    #[test]
    fn a_ramp_has_the_rate_of_the_moment() {
        for (text, sigmas) in [("ramp:1kpps-100kpps@2s,gaps=even", 0.0), ("ramp:1kpps-100kpps@2s", 4.0)] {
            let all = offsets(text, 303_000);
            assert!(all.is_sorted());
            // The rate is 1, 100 and 1 kpps at 0, 1 and 2 s, and so on. Compares the number of frames in the 50 ms
            // around each time with the ramp.
            for (at_ms, kpps) in
                [(500.0, 50.5), (1_000.0, 98.7625), (1_500.0, 50.5), (3_000.0, 98.7625), (4_500.0, 50.5)]
            {
                let within = |ns: &&u64| (**ns as f64 / 1e6 - at_ms).abs() < 25.0;
                let (seen, expected) = (all.iter().filter(within).count() as f64, kpps * 50.0);
                assert!(
                    (seen - expected).abs() <= 2.0 + sigmas * expected.sqrt(),
                    "{text} at {at_ms} ms: {seen} of {expected}"
                );
            }
        }
        // A level ramp, and one that falls first.
        assert_eq!(offsets("ramp:4kpps-4kpps@1s,gaps=even", 4), [0, 250_000, 500_000, 750_000]);
        let down = offsets("ramp:100kpps-1kpps@2s,gaps=even", 101_000);
        assert!(down[1] == 10_000 && down.is_sorted(), "{:?}", &down[..3]);
    }

    #[test]
    fn expects_as_many_frames_as_come() {
        for (text, ms) in [
            ("constant:20kpps", 100),
            ("constant:350us", 100),
            ("burst:32@1ms", 100),
            ("slot:500us,frames=4,jitter=20us", 100),
            ("ramp:1kpps-100kpps@2s,gaps=even", 300),
            ("ramp:1kpps-100kpps@2s,gaps=even", 3_900),
        ] {
            let schedule: Schedule = text.parse().unwrap();
            let span = Nanos::from_millis(ms);
            let came = schedule.arrivals(1).unwrap().take_while(|a| a.offset < span).count() as u64;
            let expected = schedule.expected_frames(span).unwrap();
            assert!(came <= expected && expected <= came * 105 / 100 + 32, "{text}: {came} of {expected}");
        }
    }

    #[test]
    fn shows_what_it_reads() {
        for text in [
            "constant:20000pps",
            "constant:350000ns",
            "poisson:20000pps",
            "burst:32@1000000ns",
            "burst:32@1000000ns,rate=1000000pps",
            "slot:500000ns,frames=4,jitter=20000ns",
            "pareto:30000pps,alpha=1.5",
            "pareto:30000pps,alpha=1.234",
            "ramp:1000pps-100000pps@2000000000ns",
            "ramp:1000pps-100000pps@2000000000ns,gaps=even",
            "pcap:a,b.pcap",
        ] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_with_the_right_form() {
        for text in [
            "",
            "20kpps",
            "constant:",
            "constant:20",
            "constant:0pps",
            "constant:0us",
            "poisson:350us",
            "burst:32",
            "burst:0@1ms",
            "burst:32@1ms,rate=1kpps",
            "burst:32@1ms,speed=3",
            "slot:500us,jitter=500us",
            "slot:500us,frames=1,frames=2",
            "slot:500us,frames",
            "constant:20kpps,jitter=1us",
            "pareto:350us",
            "pareto:30kpps,alpha=1",
            "pareto:30kpps,alpha=nan",
            "ramp:1kpps@2s",
            "ramp:1kpps-100kpps",
            "ramp:0pps-100kpps@2s",
            "ramp:1kpps-100kpps@0s",
            "ramp:1kpps-100kpps@2s,gaps=odd",
            "pcap:",
            "uniform:20kpps",
        ] {
            let error = text.parse::<Schedule>().expect_err(text).to_string();
            assert!(error.contains("burst:32@1ms"), "{error}");
        }
    }
}
