//! Apus's own guest protocol, version 1: one line per message, so that it can be read in a log and typed by hand.
//!
//! ```text
//!   guest ──► apus/1 ID ASK [vcpu=N]                                            at most 200 bytes
//!   host  ──► apus/1 ID VERDICT vcpu=N khz=F idle_us=L range_khz=F-F because REASON
//!                                                                               at most 400 bytes
//! ```
//! | ask | meaning |
//! | --- | --- |
//! | `max`, `min`, `up`, `down` | the highest or lowest frequency, one step up or down |
//! | `1.8GHz` | the lowest frequency step that is at least 1.8 GHz |
//! | `goal=p99=50us` | latency goal: highest frequency; no idle state takes more than half the goal to leave |
//! | `idle=20us` | no idle state that takes more than 20 us to leave; `idle=none`: any idle state |
//! | `release` | withdraw all requests |
//! | `state` | show the requests in force |
//!
//! An unknown field in the answer is `-`. The guest chooses ID, and uses it to match answers to requests. A program may
//! leave answers unread, and the next program that opens the port receives those answers first.

use std::fmt;
use std::str::FromStr;

use policy::goal::{Goal, GoalError};
use units::{Hertz, Nanos};

/// Prefix of every message. A DPDK packet starts with a vCPU number. These bytes, read as a number, are larger than any
/// vCPU number, so the two protocols cannot be confused.
pub const MAGIC: &[u8; 5] = b"apus/";
/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Maximum length of a request in bytes, without the line end.
pub const LONGEST: usize = 200;
/// Maximum length of an answer in bytes, including the line end.
pub const LONGEST_ANSWER: usize = 400;

/// Identifier of a request and its answer, chosen by the guest: 1 to 16 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id([u8; 16], u8);

impl Id {
    /// The ID in answers to messages without a readable ID.
    pub const NONE: Self = Self(*b"-               ", 1);

    /// The ID as a string.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0[..usize::from(self.1)]).unwrap_or_default()
    }
}

impl FromStr for Id {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_good = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_good {
            return Err("an ID has 1 to 16 letters and digits");
        }
        let mut bytes = [0; 16];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes, text.len() as u8))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A requested frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frequency {
    /// The highest frequency that the manifest allows.
    Max,
    /// The lowest frequency that the manifest allows.
    Min,
    /// One frequency step above the present one.
    Up,
    /// One frequency step below the present one.
    Down,
    /// The lowest frequency step that is at least this frequency.
    AtLeast(Hertz),
}

/// What a guest asks for in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Sets the vCPU's frequency.
    Frequency(Frequency),
    /// Sets a latency goal. `None` withdraws it.
    Goal(Option<Goal>),
    /// Limits the exit latency of the idle states that the core may enter. `None` withdraws the limit.
    Idle(Option<Nanos>),
    /// Withdraws all requests of the vCPU.
    Release,
    /// Asks which requests are in force, and changes nothing.
    State,
}

/// Parses the ASK part of a request. The command line accepts the same syntax.
impl FromStr for Ask {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "max" => Self::Frequency(Frequency::Max),
            "min" => Self::Frequency(Frequency::Min),
            "up" => Self::Frequency(Frequency::Up),
            "down" => Self::Frequency(Frequency::Down),
            "release" => Self::Release,
            "state" => Self::State,
            "goal=none" => Self::Goal(None),
            "idle=none" => Self::Idle(None),
            _ => match text.split_once('=') {
                Some(("goal", goal)) => Self::Goal(Some(goal.parse().map_err(|e: GoalError| e.to_string())?)),
                Some(("idle", limit)) => Self::Idle(Some(limit.parse().map_err(|e: units::ParseError| e.to_string())?)),
                _ => {
                    let frequency: Hertz = text.parse().map_err(|_| {
                        "expected max, min, up, down, a frequency such as 1.8GHz, goal=p99=50us, idle=20us, release or \
                         state"
                            .to_owned()
                    })?;
                    Self::Frequency(Frequency::AtLeast(frequency))
                }
            },
        })
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frequency(Frequency::Max) => f.write_str("max"),
            Self::Frequency(Frequency::Min) => f.write_str("min"),
            Self::Frequency(Frequency::Up) => f.write_str("up"),
            Self::Frequency(Frequency::Down) => f.write_str("down"),
            Self::Frequency(Frequency::AtLeast(frequency)) => write!(f, "{}Hz", frequency.as_hertz()),
            Self::Goal(Some(goal)) => write!(f, "goal={goal}"),
            Self::Goal(None) => f.write_str("goal=none"),
            // In nanoseconds, because rounding would change the limit.
            Self::Idle(Some(limit)) => write!(f, "idle={}ns", limit.as_nanos()),
            Self::Idle(None) => f.write_str("idle=none"),
            Self::Release => f.write_str("release"),
            Self::State => f.write_str("state"),
        }
    }
}

/// A request of a guest, for one of its vCPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Identifier that the guest chose; the answer repeats it.
    pub id: Id,
    /// What the guest asks for.
    pub ask: Ask,
    /// Number of the vCPU to which the request applies.
    pub vcpu: u16,
}

impl Request {
    /// Parses a line without its line end. The error contains the ID for the answer, or [`Id::NONE`] if the ID is
    /// unreadable.
    pub fn read(line: &[u8]) -> Result<Self, (Id, String)> {
        let Ok(line) = std::str::from_utf8(line) else { return Err((Id::NONE, "the line is not text".into())) };
        let mut words = line.split(' ');
        let version = words.next().unwrap_or_default();
        let id = words.next().and_then(|id| id.parse::<Id>().ok());
        let wrong = |why: &str| Err((id.unwrap_or(Id::NONE), why.to_owned()));
        if version != "apus/1" {
            return wrong("this host speaks apus/1");
        }
        let (Some(id), Some(ask)) = (id, words.next()) else { return wrong("expected apus/1 ID ASK vcpu=N") };
        let vcpu = words.next().and_then(|word| number(word.strip_prefix("vcpu=")?));
        let Some(vcpu) = vcpu else { return wrong("expected vcpu=N after what is asked for, with N from 0 to 65535") };
        if words.next().is_some() {
            return wrong("there is more after vcpu=N");
        }
        let ask = ask.parse().map_err(|why| (id, why))?;
        Ok(Self { id, ask, vcpu })
    }
}

/// Parses a number without sign and leading zeros.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number: &u16| number.to_string() == text)
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "apus/{VERSION} {} {} vcpu={}", self.id, self.ask, self.vcpu)
    }
}

units::named! {
    /// The outcome of a guest's request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// The request is in force.
        Granted = "granted",
        /// The request is in force in part: the manifest or the hardware does not allow more.
        Limited = "limited",
        /// The request is accepted but not in force yet, because another vCPU shares the core, or because the vCPU is
        /// not pinned as the manifest requires.
        Held = "held",
        /// The request was refused and has no effect.
        Refused = "refused",
    }
}

impl Verdict {
    /// Whether the request is in force, at least in part. DPDK's protocol then answers ACK, otherwise NACK.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Granted | Self::Limited)
    }
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Identifier of the request.
    pub id: Id,
    /// The outcome of the request.
    pub verdict: Verdict,
    /// Number of the vCPU. `None` if the request named none.
    pub vcpu: Option<u16>,
    /// The frequency at which the vCPU's core is fixed, in kHz. `None` if it is not fixed.
    pub khz: Option<u32>,
    /// Maximum exit latency of idle states that the core may enter, in us. `None` if no guest limits it.
    pub idle_us: Option<u64>,
    /// The lowest and the highest frequency that the guest may request for the vCPU, in kHz. `None` if the host does not
    /// say: the manifest does not allow queries, the vCPU is not pinned, or the host's Apus is older than this field.
    pub range_khz: Option<(u32, u32)>,
    /// Why the request has this outcome.
    pub why: String,
}

/// Writes the line, including its end. A reason that is too long is truncated.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let head = format!(
            "apus/{VERSION} {} {} vcpu={} khz={} idle_us={} range_khz={} because ",
            self.id,
            self.verdict,
            known(self.vcpu.map(u64::from)),
            known(self.khz.map(u64::from)),
            known(self.idle_us),
            self.range_khz.map_or_else(|| "-".to_owned(), |(least, most)| format!("{least}-{most}"))
        );
        let why = self.why.replace(|c: char| c.is_control(), " ");
        let end = LONGEST_ANSWER - 1 - head.len();
        let cut = (0..=end.min(why.len())).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        writeln!(f, "{head}{}", &why[..cut])
    }
}

impl FromStr for Answer {
    type Err = String;
    /// Reads a line, with or without its line end.
    fn from_str(line: &str) -> Result<Self, String> {
        let line = line.trim_end_matches('\n');
        let (head, why) = line.split_once(" because ").ok_or("there is no reason in it")?;
        let mut words = head.split(' ');
        let mut next = || words.next().unwrap_or_default();
        if next() != "apus/1" {
            return Err("the host speaks another version".into());
        }
        let id = next();
        let id = if id == "-" { Id::NONE } else { id.parse()? };
        let verdict = next().parse().map_err(|e: units::UnknownName| e.to_string())?;
        let mut field = |name: &str| -> Result<Option<u64>, String> {
            let word = next();
            let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            match value.ok_or_else(|| format!("expected {name}= and not {word:?}"))? {
                "-" => Ok(None),
                number => number.parse().map(Some).map_err(|_| format!("{word:?} has no number")),
            }
        };
        let narrow = |_| "a number is too large".to_owned();
        let vcpu = field("vcpu")?.map(u16::try_from).transpose().map_err(narrow)?;
        let khz = field("khz")?.map(u32::try_from).transpose().map_err(narrow)?;
        let idle_us = field("idle_us")?;
        let range_khz = words.next().and_then(|word| word.strip_prefix("range_khz=")?.split_once('-'));
        let range_khz = range_khz.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
        Ok(Self { id, verdict, vcpu, khz, idle_us, range_khz, why: why.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str) -> Result<Request, (Id, String)> {
        Request::read(line.as_bytes())
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for ask in [
            "max",
            "min",
            "up",
            "down",
            "release",
            "state",
            "1800000000Hz",
            "goal=p99=50us",
            "goal=none",
            "idle=20000ns",
            "idle=none",
        ] {
            let line = format!("apus/1 a1 {ask} vcpu=3\n");
            assert_eq!(read(line.trim_end()).unwrap().to_string(), line);
        }
        let idle = read("apus/1 7 idle=20us vcpu=0").unwrap().ask;
        assert_eq!(idle, Ask::Idle(Some(Nanos::from_micros(20))));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_id() {
        for (line, id, why) in [
            ("apus/2 7 max vcpu=0", "7", "apus/1"),
            ("apus/1", "-", "expected apus/1 ID"),
            ("apus/1 7", "7", "expected apus/1 ID"),
            ("apus/1 7 max", "7", "vcpu=N"),
            ("apus/1 7 max vcpu=65536", "7", "vcpu=N"),
            ("apus/1 7 max vcpu=+1", "7", "vcpu=N"),
            ("apus/1 7 max vcpu=1 more", "7", "more"),
            ("apus/1 7 fast vcpu=1", "7", "expected max"),
            ("apus/1 7 1.8 vcpu=1", "7", "expected max"),
            ("apus/1 7 goal=50us vcpu=1", "7", "goal such as"),
            ("apus/1 7 idle=20 vcpu=1", "7", "a duration"),
            ("apus/1 /etc/passwd max vcpu=1", "-", "expected apus/1 ID"),
            ("apus/1 \u{7f} max vcpu=1", "-", "expected apus/1 ID"),
        ] {
            let (found, said) = read(line).unwrap_err();
            assert!(found.as_str() == id && said.contains(why), "{line:?}: {found} {said}");
        }
        assert!(Request::read(b"apus/1 \xff max vcpu=1").is_err());
    }

    #[test]
    fn an_answer_fits_whatever_its_reason() {
        let mut answer = Answer {
            id: "0123456789abcdef".parse().unwrap(),
            verdict: Verdict::Granted,
            vcpu: Some(u16::MAX),
            khz: Some(u32::MAX),
            idle_us: Some(u64::MAX),
            range_khz: Some((u32::MAX, u32::MAX)),
            why: "é\n".repeat(400),
        };
        let line = answer.to_string();
        assert!(line.len() <= LONGEST_ANSWER && line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
        answer.why = "as asked".into();
        assert_eq!(answer.to_string().parse(), Ok(answer.clone()));
        // A host whose Apus knows no range.
        let older = "apus/1 a1 granted vcpu=3 khz=800000 idle_us=- because as asked\n";
        let of_older: Answer = older.parse().unwrap();
        assert_eq!((of_older.khz, of_older.range_khz), (Some(800_000), None));
        answer.range_khz = None;
        assert_eq!(answer.to_string().parse(), Ok(answer));
    }

    proptest! {
        #[test]
        fn any_line_has_an_answer(line in proptest::collection::vec(any::<u8>(), 0..LONGEST)) {
            if let Ok(request) = Request::read(&line) {
                prop_assert!(request.to_string().len() <= LONGEST + 1);
                prop_assert_eq!(read(request.to_string().trim_end()).unwrap(), request);
            }
        }
    }
}
