//! The traffic of a scenario: the sections `[[traffic]]`.
//!
//! Keys of every kind: `kind`; `frame`, by default 64 bytes (not for `replay`); `queue`, by default all queues;
//! `start`, by default at once; `answer`, the size of the answer, by default the size of the frame.

use std::sync::Arc;

use units::{BitRate, Nanos};

use super::Load;
use crate::hw::nic::NicModel;
use crate::strict::{Error, Section, Spot};
use crate::traffic::on_off::{Lengths, OnOff};
use crate::traffic::replay::{self, Replay};
use crate::traffic::request::Request;
use crate::traffic::self_similar::SelfSimilar;
use crate::traffic::slots::Slots;
use crate::traffic::{Kind, LONGEST_FRAME, Rate, Records, SHORTEST_FRAME, Sizes, Traffic};

/// The longest burst, silence, period or distance.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// One kind of traffic, and the size of the answers to it.
#[derive(Clone, PartialEq, Debug)]
pub struct Stream {
    /// The frames that arrive.
    pub traffic: Traffic,
    /// Size of the answers in bytes, with check sequence. `None` if an answer is as large as its frame.
    pub answer: Option<u32>,
    /// The record to replay. `None` for other kinds of traffic.
    pub records: Option<Records>,
}

#[derive(Clone, Copy)]
enum Name {
    Constant,
    Poisson,
    OnOff,
    Slots,
    Request,
    SelfSimilar,
    Replay,
}

const KINDS: &[(&str, Name)] = &[
    ("constant", Name::Constant),
    ("poisson", Name::Poisson),
    ("on-off", Name::OnOff),
    ("slots", Name::Slots),
    ("request", Name::Request),
    ("self-similar", Name::SelfSimilar),
    ("replay", Name::Replay),
];

pub(super) fn read(root: &mut Section, nic: &NicModel, queues: u32, load: Load<'_>) -> Result<Vec<Stream>, Error> {
    let sections = root.sections("traffic")?;
    if sections.is_empty() {
        return Err(root.wrong("there is no traffic", "add [[traffic]] with a kind and a rate"));
    }
    let mut wire = Wire { line: nic.link.rate, used: 0 };
    sections.into_iter().map(|section| stream(section, &mut wire, queues, &mut *load)).collect()
}

/// The wire, and the part of its rate that is already used.
struct Wire {
    line: BitRate,
    used: u64,
}

impl Wire {
    /// Checks that the wire can carry a peak rate, without other traffic. Returns the rate in bits per second on the
    /// wire.
    fn fits(&self, rate: &Spot<Rate>, sizes: &Sizes) -> Result<u64, Error> {
        let bits = rate.value.on_wire(sizes, self.line).as_bps();
        if bits <= self.line.as_bps() {
            return Ok(bits);
        }
        let what = format!("{} is {} Mbit/s on the wire", rate.value, bits / 1_000_000);
        let fix = format!("the line has {}: give a lower rate or a shorter frame", self.line_text());
        Err(rate.wrong(what, fix))
    }

    /// Adds a mean rate, and checks that the wire can carry the sum of all mean rates.
    fn takes(&mut self, rate: &Spot<Rate>, bits: u64) -> Result<(), Error> {
        self.used = self.used.saturating_add(bits);
        if self.used <= self.line.as_bps() {
            return Ok(());
        }
        let what = format!("with this traffic there are {} Mbit/s on the wire", self.used / 1_000_000);
        Err(rate.wrong(what, format!("the line has {}: give lower rates", self.line_text())))
    }

    fn line_text(&self) -> String {
        format!("{} Mbit/s", self.line.as_bps() / 1_000_000)
    }
}

fn stream(mut section: Section, wire: &mut Wire, queues: u32, load: Load<'_>) -> Result<Stream, Error> {
    let name = section.required_choice("kind", KINDS)?.value;
    let queue = section.count("queue", 0..=u64::from(queues) - 1)?.map(|spot| spot.value as u32);
    let start = span(&mut section, "start")?.unwrap_or(Nanos::ZERO);
    let octets = u64::from(SHORTEST_FRAME)..=u64::from(LONGEST_FRAME);
    let answer = section.count("answer", octets)?.map(|spot| spot.value as u32);
    let mut records = None;
    let (kind, sizes) = match name {
        Name::Replay => {
            let file = section.required::<String>("file", "traffic.pcap")?;
            let repeat = section.flag("repeat")?.is_some_and(|spot| spot.value);
            let octets = load(&file.value).map_err(|why| file.wrong(format!("`{}`: {why}", file.value), FILE_FIX))?;
            let read = replay::parse(&octets).map_err(|why| file.wrong(format!("`{}` {why}", file.value), FILE_FIX))?;
            if let Some(beyond) = read.iter().filter_map(|record| record.queue).find(|queue| *queue >= queues) {
                let what = format!("`{}` has frames for queue {beyond}", file.value);
                return Err(file.wrong(what, format!("there are {queues}, counted from 0: add some in [queues]")));
            }
            let longest = read.iter().map(|record| record.octets).max().unwrap_or(SHORTEST_FRAME);
            records = Some(Arc::clone(&read));
            let sizes = Sizes::fixed(longest).ok_or_else(|| file.wrong("a frame of no size", FILE_FIX))?;
            (Kind::Replay(Replay { file: file.value, repeat }), sizes)
        }
        name => {
            let sizes = sizes(&mut section)?;
            (kind(name, &mut section, wire, &sizes)?, sizes)
        }
    };
    section.finish()?;
    Ok(Stream { traffic: Traffic { kind, sizes, queue, start }, answer, records })
}

const FILE_FIX: &str = "name a pcap or CSV file";

fn sizes(section: &mut Section) -> Result<Sizes, Error> {
    let Some(frame) = section.word("frame")? else {
        return Ok(Sizes::fixed(SHORTEST_FRAME).unwrap_or_else(|| unreachable!("the shortest frame is one")));
    };
    let fixed = frame.value.parse().ok().and_then(Sizes::fixed);
    fixed.or_else(|| Sizes::genome(&frame.value)).ok_or_else(|| {
        let fix =
            format!("expected {SHORTEST_FRAME} to {LONGEST_FRAME} octets, or an IMIX genome such as \"aaaaaaaddddg\"");
        frame.wrong(format!("`frame = {}`", frame.value), fix)
    })
}

fn kind(name: Name, section: &mut Section, wire: &mut Wire, sizes: &Sizes) -> Result<Kind, Error> {
    Ok(match name {
        Name::Constant | Name::Poisson => {
            let rate = section.required::<Rate>("rate", "100kpps")?;
            let bits = wire.fits(&rate, sizes)?;
            wire.takes(&rate, bits)?;
            let rate = rate.value;
            if matches!(name, Name::Constant) { Kind::Constant { rate } } else { Kind::Poisson { rate } }
        }
        Name::OnOff => {
            let rate = section.required::<Rate>("rate", "1Mpps")?;
            let bits = wire.fits(&rate, sizes)?;
            let on = above_zero(section, "on", "100us")?;
            let off = span(section, "off")?.ok_or_else(|| section.wrong("`off` is missing", "add off = \"900us\""))?;
            let lengths =
                section.choice("lengths", &[("fixed", Lengths::Fixed), ("exponential", Lengths::Exponential)])?;
            let whole = u128::from((on + off).as_nanos());
            wire.takes(&rate, (u128::from(bits) * u128::from(on.as_nanos()) / whole) as u64)?;
            Kind::OnOff(OnOff { rate: rate.value, on, off, lengths: lengths.map_or(Lengths::Fixed, |spot| spot.value) })
        }
        Name::Slots => slots(section)?,
        Name::Request => Kind::Request(Request {
            connections: section.count("connections", 1..=1_000_000)?.map_or(1, |spot| spot.value as u32),
            distance: span(section, "distance")?.ok_or_else(|| {
                section.wrong("`distance` is missing", "add distance = \"10us\": one way to the client")
            })?,
            think: span(section, "think")?.unwrap_or(Nanos::ZERO),
            think_varies: section.flag("think_varies")?.is_some_and(|spot| spot.value),
            timeout: span(section, "timeout")?.unwrap_or(Request::TIMEOUT),
        }),
        Name::SelfSimilar => self_similar(section, wire, sizes)?,
        Name::Replay => unreachable!("is read by itself"),
    })
}

fn slots(section: &mut Section) -> Result<Kind, Error> {
    let period = above_zero(section, "period", "500us")?;
    let burst = section.count("burst", 1..=1_000_000)?.map_or(1, |spot| spot.value as u32);
    let spacing = span(section, "spacing")?.unwrap_or(Nanos::ZERO);
    let jitter = span(section, "jitter")?.unwrap_or(Nanos::ZERO);
    let slots = Slots { period, burst, spacing, jitter };
    if slots.burst_length() + jitter >= period {
        let what = format!("a burst of {} with a jitter of {jitter} does not fit {period}", slots.burst_length());
        return Err(section.wrong(what, "give a longer period, a smaller burst or less spacing"));
    }
    Ok(Kind::Slots(slots))
}

fn self_similar(section: &mut Section, wire: &mut Wire, sizes: &Sizes) -> Result<Kind, Error> {
    let rate = section.required::<Rate>("rate", "100kpps")?;
    let bits = wire.fits(&rate, sizes)?;
    wire.takes(&rate, bits)?;
    let peak = section.required::<Rate>("peak", "50kpps")?;
    wire.fits(&peak, sizes)?;
    let sources = section.count("sources", 1..=10_000)?.map_or(16, |spot| spot.value as u32);
    let burst = above_zero(section, "burst", "1ms")?;
    let hurst = section.word("hurst")?;
    let hurst_thousandths = match &hurst {
        None => 800,
        Some(spot) => hurst_thousandths(&spot.value).ok_or_else(|| {
            spot.wrong(format!("`hurst = {}`", spot.value), "expected \"0.501\" to \"0.999\", such as \"0.8\"")
        })?,
    };
    let what = SelfSimilar { rate: rate.value, sources, peak: peak.value, burst, hurst_thousandths };
    if what.silence(sizes, wire.line).is_none() {
        let said = format!("{sources} senders of {} cannot have a mean of {}", peak.value, rate.value);
        return Err(peak.wrong(said, "give a higher peak or more sources"));
    }
    Ok(Kind::SelfSimilar(what))
}

fn hurst_thousandths(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0.").filter(|digits| (1..=3).contains(&digits.len()))?;
    let value = format!("{digits:0<3}").parse().ok()?;
    (501..=999).contains(&value).then_some(value)
}

fn span(section: &mut Section, key: &'static str) -> Result<Option<Nanos>, Error> {
    let Some(spot) = section.text::<Nanos>(key)? else { return Ok(None) };
    if spot.value > LONGEST {
        return Err(spot.wrong(format!("`{key} = \"{}\"`", spot.value), format!("expected at most {LONGEST}")));
    }
    Ok(Some(spot.value))
}

fn above_zero(section: &mut Section, key: &'static str, example: &str) -> Result<Nanos, Error> {
    let value = span(section, key)?;
    match value {
        Some(value) if value > Nanos::ZERO => Ok(value),
        Some(_) => Err(section.wrong(format!("`{key}` is 0"), format!("expected more, such as {example}"))),
        None => Err(section.wrong(format!("`{key}` is missing"), format!("add {key} = \"{example}\""))),
    }
}
