//! What the server needs from the machine, and the records that it writes about guests.

use units::Nanos;

use super::protocol::Verdict;

/// The outcome of applying a guest's setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Applied {
    /// The requested value is now in force.
    InForce,
    /// A different value is in force. The string says why.
    Otherwise(String),
    /// The setting could not be applied. The string says why. The server tries again later.
    Failed(String),
    /// The value was written, and the kernel has not carried it out yet. [`Outside::settled`] has the outcome.
    Settling,
    /// Apus no longer controls the setting, because it is gone or was changed by something else. The string says which.
    Lost(String),
}

impl Applied {
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::InForce => None,
            Self::Settling => Some("the kernel has not confirmed it yet"),
            Self::Otherwise(why) | Self::Failed(why) | Self::Lost(why) => Some(why),
        }
    }
}

/// The server's interface to the machine's settings and to the log.
pub trait Outside {
    /// Fixes the frequency of a domain, in kHz. `None` restores the host's own limits.
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied;

    /// The outcome of a frequency for which [`Outside::fix_frequency`] returned [`Applied::Settling`]. `is_over` says
    /// that the kernel has had enough time; the result is then final.
    fn settled(&mut self, policy: u32, is_over: bool) -> Applied;

    /// Limits the exit latency of a CPU's idle states, unless the host's own limit is lower. `None` restores the host's
    /// own limit.
    fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied;

    /// The frequency of a CPU in kHz. `None` if it is not known.
    fn frequency(&mut self, cpu: u32) -> Option<u32>;

    /// Logs an event.
    fn log(&mut self, record: &Record<'_>);
}

units::named! {
    /// Kind of an event.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Event {
        /// The guest sent a message.
        Request = "request",
        /// The guest sent messages above its allowed rate. [`Record::asked`] says how many since the last such record.
        OverRate = "over-rate",
        /// A vCPU was found to run on other CPUs than before.
        Placed = "placed",
        /// All requests of a guest were dropped.
        Forgotten = "forgotten",
    }
}

units::named! {
    /// The protocol of a message.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Protocol {
        /// A packet of DPDK's guest channel.
        Dpdk = "dpdk",
        /// A line of Apus's own protocol.
        Apus = "apus",
    }
}

/// An event, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Kind of the event.
    pub event: Event,
    /// Name of the guest.
    pub guest: &'a str,
    /// Number of the channel, from 0. `None` if no channel is involved.
    pub channel: Option<usize>,
    /// Protocol of the message. `None` if the event is not about a complete message.
    pub protocol: Option<Protocol>,
    /// What the guest requested, as written in its message.
    pub asked: String,
    /// Number of the vCPU. `None` if the event concerns no single vCPU.
    pub vcpu: Option<u16>,
    /// The CPU to which the vCPU is pinned. `None` if it is not pinned.
    pub cpu: Option<u32>,
    /// The frequency at which that CPU is fixed, in kHz. `None` if it is not fixed.
    pub khz: Option<u32>,
    /// Outcome of the request. `None` if the event is not a request.
    pub verdict: Option<Verdict>,
    /// Why the event happened or the request has this outcome.
    pub why: String,
}

/// Counters of a guest.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Number of messages, including unreadable ones.
    pub messages: u64,
    /// Number of requests with the outcome [`Verdict::Granted`].
    pub granted: u64,
    /// Number of requests with the outcome [`Verdict::Limited`].
    pub limited: u64,
    /// Number of requests with the outcome [`Verdict::Held`].
    pub held: u64,
    /// Number of requests with the outcome [`Verdict::Refused`].
    pub refused: u64,
    /// Number of messages above the allowed rate. They are refused, except requests for the highest frequency.
    pub over_rate: u64,
    /// Number of messages that did not arrive completely in time.
    pub incomplete: u64,
    /// Number of answers that were dropped because the guest had not read earlier ones.
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
