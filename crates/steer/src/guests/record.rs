//! What the server needs of the machine, and what it tells of guests.

use units::Nanos;

use super::protocol::Verdict;

/// What became of a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It is in force.
    InForce,
    /// Something else is in force, for this reason.
    Otherwise(String),
    /// It could not be applied, for this reason. It may be tried again.
    Failed(String),
    /// Somebody else has set it, or it is gone: it is no longer Apus's.
    Lost(String),
}

impl Applied {
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::InForce => None,
            Self::Otherwise(why) | Self::Failed(why) | Self::Lost(why) => Some(why),
        }
    }
}

/// The machine, and the log.
pub trait Outside {
    /// Fixes the frequency of a domain, in kHz. `None` restores the host's own limits.
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied;

    /// Limits the exit latency of a CPU's idle states, unless the host's own limit is lower. `None` restores that.
    fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied;

    /// The frequency of a CPU in kHz. `None` if it is not known.
    fn frequency(&mut self, cpu: u32) -> Option<u32>;

    /// Takes in what happened.
    fn log(&mut self, record: &Record<'_>);
}

units::named! {
    /// What a record is about.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Event {
        /// A message of a guest.
        Request = "request",
        /// Messages above the guest's rate since the last such record; `asked` is their number.
        OverRate = "over-rate",
        /// A vCPU was found on other CPUs than before.
        Placed = "placed",
        /// All wishes of a guest were dropped.
        Forgotten = "forgotten",
    }
}

units::named! {
    /// The protocol of a message.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Protocol {
        /// DPDK's guest channel packets.
        Dpdk = "dpdk",
        /// Apus's own lines.
        Apus = "apus",
    }
}

/// Something that happened, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// What it is about.
    pub event: Event,
    /// The guest.
    pub guest: &'a str,
    /// The number of its channel, from 0. `None` if it came by none.
    pub channel: Option<usize>,
    /// The protocol. `None` if it was no message, or not a whole one.
    pub protocol: Option<Protocol>,
    /// What was asked for.
    pub asked: String,
    /// The vCPU.
    pub vcpu: Option<u16>,
    /// The CPU to which the vCPU is pinned.
    pub cpu: Option<u32>,
    /// The frequency at which that CPU is fixed, in kHz.
    pub khz: Option<u32>,
    /// What became of it. `None` if it was no request.
    pub verdict: Option<Verdict>,
    /// Why.
    pub why: String,
}

/// How often something happened to a guest.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Messages, also those that make no sense.
    pub messages: u64,
    /// Requests by verdict.
    pub granted: u64,
    /// See [`Verdict::Limited`].
    pub limited: u64,
    /// See [`Verdict::Held`].
    pub held: u64,
    /// See [`Verdict::Refused`].
    pub refused: u64,
    /// Messages above the rate. They are refused, but for requests for the highest frequency.
    pub over_rate: u64,
    /// Messages that were not ended in time.
    pub incomplete: u64,
    /// Answers that were dropped because the guest did not read those before.
    pub unread: u64,
}

impl Counts {
    pub(super) fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Granted => &mut self.granted,
            Verdict::Limited => &mut self.limited,
            Verdict::Held => &mut self.held,
            Verdict::Refused => &mut self.refused,
        } += 1;
    }
}

impl<'a> Record<'a> {
    pub(super) fn of(event: Event, guest: &'a str, why: String) -> Self {
        Self {
            event,
            guest,
            channel: None,
            protocol: None,
            asked: String::new(),
            vcpu: None,
            cpu: None,
            khz: None,
            verdict: None,
            why,
        }
    }
}
