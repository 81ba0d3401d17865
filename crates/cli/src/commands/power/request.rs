//! `apus power request`: sends a power request from a guest to its host, through a virtio-serial port or a UNIX socket,
//! and prints the answer.

use std::io::Write as _;

use steer::guests::protocol::Ask;
use tester::clock::{MonotonicClock, TrialClock as _};
use tester::document::Name;
use units::{Hertz, Nanos};

use super::channel::Channel;
use crate::args::power::request::Request as Typed;
use crate::documents::VERSION;
use crate::documents::guests::{REQUEST, RequestDocument};
use crate::{Failure, Status, terminal};

/// Runs `apus power request`.
pub(super) fn run(typed: &Typed) -> anyhow::Result<Status> {
    let words = typed.ask.join("=");
    let wrong = |why: String| {
        Failure::wrong(
            format!("cannot request {:?}", typed.ask.join(" ")),
            why,
            "apus power request --help lists the possible requests",
        )
    };
    let ask: Ask = words.parse().map_err(wrong)?;
    let channel = Channel::open(typed.port.as_deref(), typed.vcpu, "--port")?;
    let began = MonotonicClock.now();
    let answer = channel.ask(ask, typed.vcpu, typed.timeout)?;
    let round_trip = MonotonicClock.now().since(began).unwrap_or(Nanos::ZERO);
    let document = RequestDocument {
        apus: VERSION.to_owned(),
        schema: REQUEST.to_owned(),
        port: channel.path.display().to_string(),
        asked: ask.to_string(),
        vcpu: typed.vcpu,
        verdict: Name::of(&answer.verdict),
        fixed_khz: answer.khz,
        idle_limit_us: answer.idle_us,
        lowest_khz: answer.range_khz.map(|(least, _)| least),
        highest_khz: answer.range_khz.map(|(_, most)| most),
        why: answer.why.clone(),
        round_trip_ns: round_trip.as_nanos(),
    };
    terminal::print(typed.json, &document, |out| {
        let khz = answer.khz.map_or_else(|| "not fixed".to_owned(), |khz| format!("fixed at {}", Hertz::from_khz(khz)));
        let idle = answer.idle_us.map_or_else(String::new, |us| format!(", idle states of at most {us} us"));
        writeln!(out, "{}: vCPU {} is {khz}{idle} ({})", answer.verdict, typed.vcpu, answer.why)
    })?;
    Ok(if answer.verdict.is_good() { Status::Good } else { Status::Findings })
}
