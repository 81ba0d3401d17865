//! The host's side of all guests' channels: checks each request against the guest's manifest, and has it applied.
//!
//! ```text
//!   bytes ──► Parser ──► Message ──► rate ──► manifest ──► Wish of a vCPU ──┐
//!                                                                           ├──► the highest wish of each domain ──► Outside
//!   pinning ──► Place of each vCPU ─────────────────────────────────────────┘                                          │
//!   answers ◄── bounded outbox ◄── Verdict, reason ◄───────────────────────────────────────────────────────────────────┘
//! ```
//! Nothing that a guest sends is trusted. The server buffers at most one message and [`OUTBOX`](super::OUTBOX) bytes of
//! answers per channel; answers that the guest does not read are dropped. Requests affect only the CPUs in the guest's
//! manifest, within the manifest's limits. They do not slow other guests: see [`may_read`](Server::may_read).
//!
//! A domain is fixed at a frequency only if each of its CPUs belongs to vCPUs, and each of these vCPUs requests a
//! frequency. The highest request wins. Otherwise the domain keeps the host's own limits.

use std::collections::BTreeMap;

use host::CpuSet;
use policy::Goal;
use units::{Hertz, Instant, Monotonic, Nanos};

use super::call::{Call, Done};
use super::dpdk;
use super::guest::{Guest, Vcpu, Wish};
use super::machine::{Domain, Manifest, Place};
use super::parser::{Message, Parser};
use super::protocol::{self, Ask, Id, Request};
use super::record::{Applied, Counts, Event, Outside, Protocol, Record};

/// Maximum number of bytes read from a channel at once, so that one guest does not delay the others.
const AT_ONCE: usize = 4096;
/// Maximum number of vCPUs accepted for one guest when they are looked up: the maximum that KVM supports on x86
/// (`KVM_MAX_VCPUS`, 4096).
const MOST_VCPUS: usize = 4096;
/// Time from a failure of a setting to the next attempt.
const RETRY: Nanos = Nanos::from_secs(5);
/// Time after which a written frequency that the kernel does not show counts as limited. The kernel carries it out in a
/// work item (`host::knob::Limits`, `shows_within`).
const SETTLES_WITHIN: Nanos = Nanos::from_millis(500);

/// The setting that was last applied to a domain or a CPU, and its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Force<T> {
    pub(super) wanted: Option<T>,
    pub(super) applied: Applied,
    /// Whether the outcome of the last attempt is not known yet. A further attempt keeps the outcome of the previous
    /// one in `applied` until then.
    is_settling: bool,
    tried: Instant<Monotonic>,
}

impl<T> Force<T> {
    const NONE: Self = Self { wanted: None, applied: Applied::InForce, is_settling: false, tried: Instant::ORIGIN };

    /// Notes the outcome of an attempt. `again` says whether it repeats the previous one.
    fn tried(&mut self, now: Instant<Monotonic>, wanted: Option<T>, applied: Applied, again: bool) {
        self.is_settling = applied == Applied::Settling;
        if !(self.is_settling && again) {
            self.applied = applied;
        }
        (self.wanted, self.tried) = (wanted, now);
    }

    /// Whether it is time to repeat a failed attempt.
    fn is_due(&self, now: Instant<Monotonic>) -> bool {
        matches!(self.applied, Applied::Failed(_) | Applied::Otherwise(_))
            && !self.is_settling
            && now.since(self.tried).is_some_and(|since| since >= RETRY)
    }
}

/// The state of a vCPU, for display and for JSON documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Number of the vCPU.
    pub vcpu: u16,
    /// Where the vCPU runs.
    pub place: Place,
    /// The frequency that the vCPU requests, as a frequency step of its core in kHz. `None` if it requests none, or if
    /// its core is unknown.
    pub wish_khz: Option<u32>,
    /// The latency goal that the vCPU requests. `None` if it requests none.
    pub goal: Option<Goal>,
    /// The limit on the exit latency of idle states that the vCPU requests, or that its latency goal needs. `None` if
    /// there is neither.
    pub idle: Option<Nanos>,
    /// The frequency at which the vCPU's core is fixed, in kHz. `None` if it is not fixed.
    pub khz: Option<u32>,
    /// Why the requested frequency is not in force. `None` if it is in force, or if none is requested.
    pub why: Option<String>,
}

/// The requests and channels of all guests, and the settings that result from them.
#[derive(Debug)]
pub struct Server {
    pub(super) domains: Vec<Domain>,
    /// Index of each CPU's frequency domain.
    pub(super) domain_of: BTreeMap<u32, usize>,
    pub(super) guests: Vec<Guest>,
    pub(super) frequencies: Vec<Force<u32>>,
    pub(super) idle: BTreeMap<u32, Force<Nanos>>,
    /// The host's CPUs that are online. `None` if that was not told yet: then all count as online.
    online: Option<CpuSet>,
}

impl Server {
    /// Creates a server. At first, the guests have no requests, and it is not known where their vCPUs run.
    pub fn new(domains: Vec<Domain>, manifests: Vec<Manifest>, now: Instant<Monotonic>) -> Self {
        let all = manifests.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus()));
        let domain_of = |(index, domain): (usize, &Domain)| -> Vec<(u32, usize)> {
            domain.cpus.iter().map(|cpu| (cpu, index)).collect()
        };
        Self {
            domain_of: domains.iter().enumerate().flat_map(domain_of).collect(),
            frequencies: vec![Force::NONE; domains.len()],
            idle: all.iter().map(|cpu| (cpu, Force::NONE)).collect(),
            guests: manifests.into_iter().map(|manifest| Guest::new(manifest, now)).collect(),
            domains,
            online: None,
        }
    }

    /// Number of bytes that may be read from a guest's channel now; 0 if the guest has sent too much, or does not read
    /// its answers.
    pub fn may_read(&mut self, guest: usize, now: Instant<Monotonic>) -> usize {
        let Some(guest) = self.guests.get_mut(guest) else { return 0 };
        let left = usize::try_from(guest.bytes.left(now)).unwrap_or(AT_ONCE).min(AT_ONCE);
        // Wait until a whole message may be read: reading it byte by byte would cost a system call for each byte.
        if left < dpdk::LENGTH { 0 } else { left }
    }

    /// When a whole message may be read from the guest's channels again. See [`may_read`](Self::may_read).
    pub fn reads_at(&self, guest: usize) -> Instant<Monotonic> {
        self.guests.get(guest).map_or(Instant::ORIGIN, |guest| guest.bytes.has_at(dpdk::LENGTH as u64))
    }

    /// Processes bytes that arrived on a channel.
    pub fn receive(
        &mut self,
        now: Instant<Monotonic>,
        guest: usize,
        channel: usize,
        bytes: &[u8],
        outside: &mut impl Outside,
    ) {
        let Some(one) = self.guests.get_mut(guest) else { return };
        one.bytes.spend(now, bytes.len() as u64);
        let Some(entry) = one.channels.get_mut(channel) else { return };
        // Take the parser (a few hundred bytes) out of its channel, so that handling a message can change the rest.
        let mut parser = std::mem::take(&mut entry.parser);
        parser.feed(now, bytes, |message| self.message(now, guest, channel, message, outside));
        self.guests[guest].channels[channel].parser = parser;
    }

    /// The answers that have not been sent on a channel yet.
    pub fn outgoing(&self, guest: usize, channel: usize) -> &[u8] {
        self.guests.get(guest).and_then(|guest| guest.channels.get(channel)).map_or(&[], |channel| &channel.out)
    }

    /// Removes the first `bytes` bytes of a channel's answers after they were sent.
    pub fn sent(&mut self, guest: usize, channel: usize, bytes: usize) {
        if let Some(channel) = self.guests.get_mut(guest).and_then(|guest| guest.channels.get_mut(channel)) {
            channel.out.drain(..bytes.min(channel.out.len()));
        }
    }

    /// Resets a channel that has a new peer: discards the incomplete message and the unsent answers.
    pub fn reopened(&mut self, guest: usize, channel: usize) {
        if let Some(channel) = self.guests.get_mut(guest).and_then(|guest| guest.channels.get_mut(channel)) {
            channel.parser = Parser::default();
            channel.out.clear();
        }
    }

    /// Drops all requests of a guest that was reset, or whose last channel was closed.
    pub fn forget(&mut self, now: Instant<Monotonic>, guest: usize, why: &str, outside: &mut impl Outside) {
        let Some(one) = self.guests.get_mut(guest) else { return };
        let had =
            one.vcpus.values_mut().fold(false, |had, vcpu| had | (std::mem::take(&mut vcpu.wish) != Wish::default()));
        if had {
            outside.log(&Record::of(Event::Forgotten, &one.manifest.name, why.to_owned()));
            self.settle_all(now, outside);
        }
    }

    /// Restores all settings until [`resume`](Self::resume), but keeps the requests.
    pub fn pause(&mut self, outside: &mut impl Outside) {
        for (domain, force) in self.domains.iter().zip(&mut self.frequencies) {
            if force.wanted.take().is_some() && !matches!(force.applied, Applied::Lost(_)) {
                let applied = outside.fix_frequency(domain.policy, None);
                force.tried(force.tried, None, applied, false);
            }
        }
        for (cpu, force) in &mut self.idle {
            if force.wanted.take().is_some() && !matches!(force.applied, Applied::Lost(_)) {
                force.applied = outside.limit_idle(*cpu, None);
            }
        }
    }

    /// Applies the requests again after [`pause`](Self::pause).
    pub fn resume(&mut self, now: Instant<Monotonic>, outside: &mut impl Outside) {
        self.settle_all(now, outside);
    }

    /// Takes over the counters and requests of an earlier server, for guests that this server also has. Only requests
    /// for vCPUs that the guests' manifests still list are taken over. They take effect once [`place`](Self::place) is
    /// called.
    pub fn adopt(&mut self, mut before: Self) {
        for guest in &mut self.guests {
            let Some(at) = before.guests.iter().position(|other| other.manifest.name == guest.manifest.name) else {
                continue;
            };
            let other = before.guests.swap_remove(at);
            guest.counts = other.counts;
            guest.untold = other.untold;
            for (number, vcpu) in other.vcpus {
                if let Some(own) = guest.vcpus.get_mut(&number) {
                    own.wish = vcpu.wish;
                }
            }
        }
    }

    /// Updates where the vCPUs of a guest run. If `places` does not list a vCPU, its place becomes unknown.
    pub fn place(
        &mut self,
        now: Instant<Monotonic>,
        guest: usize,
        places: &BTreeMap<u16, Place>,
        outside: &mut impl Outside,
    ) {
        let Some(one) = self.guests.get_mut(guest) else { return };
        let mut has_changed = false;
        for (number, vcpu) in &mut one.vcpus {
            let place = places.get(number).cloned();
            let place = place.unwrap_or_else(|| Place::Unknown("the guest has no such vCPU".into()));
            if place != vcpu.place {
                has_changed = true;
                vcpu.place = place;
                let cpu = vcpu.cpu();
                let (cpu, why) = (cpu.as_ref().ok().copied(), cpu.err());
                let why = why.unwrap_or_else(|| "pinned as the manifest says".into());
                outside.log(&Record { vcpu: Some(*number), cpu, ..Record::of(Event::Placed, &one.manifest.name, why) });
            }
        }
        let others: BTreeMap<u16, Place> = places
            .iter()
            .filter(|(number, _)| !one.vcpus.contains_key(number))
            .take(MOST_VCPUS)
            .map(|(number, place)| (*number, place.clone()))
            .collect();
        if has_changed || others != one.others {
            one.others = others;
            self.settle_all(now, outside);
        }
    }

    /// Does periodic work: discards incomplete messages, logs the number of messages above the rate, and retries failed
    /// settings. Call it about once a second.
    pub fn tick(&mut self, now: Instant<Monotonic>, outside: &mut impl Outside) {
        for guest in 0..self.guests.len() {
            for channel in 0..self.guests[guest].channels.len() {
                let mut parser = std::mem::take(&mut self.guests[guest].channels[channel].parser);
                parser.expire(now, |message| self.message(now, guest, channel, message, outside));
                self.guests[guest].channels[channel].parser = parser;
            }
            let one = &mut self.guests[guest];
            let untold = std::mem::take(&mut one.untold);
            if untold > 0 {
                let rate = one.manifest.requests_per_second;
                let why = format!("the manifest allows {rate} requests a second");
                let record = Record::of(Event::OverRate, &one.manifest.name, why);
                outside.log(&Record { asked: untold.to_string(), ..record });
            }
        }
        for index in 0..self.domains.len() {
            if self.frequencies[index].is_due(now) {
                self.settle_domain(now, index, true, outside);
            }
        }
        let due = self.idle.iter().filter(|(_, force)| force.is_due(now)).map(|(cpu, _)| *cpu);
        for cpu in due.collect::<Vec<_>>() {
            self.settle_idle(now, cpu, true, outside);
        }
    }

    /// Looks up the outcome of frequencies that the kernel had not carried out yet. Call it often.
    pub fn settle(&mut self, now: Instant<Monotonic>, outside: &mut impl Outside) {
        for (domain, force) in self.domains.iter().zip(&mut self.frequencies).filter(|(_, force)| force.is_settling) {
            let is_over = now.since(force.tried).is_some_and(|since| since >= SETTLES_WITHIN);
            let applied = outside.settled(domain.policy, is_over);
            if applied != Applied::Settling {
                (force.applied, force.is_settling) = (applied, false);
            }
        }
    }

    /// Tells which of the host's CPUs are online. A CPU that is offline does not keep the others of its domain from
    /// being fixed at a frequency. Call it about once a second.
    pub fn set_online(&mut self, now: Instant<Monotonic>, online: CpuSet, outside: &mut impl Outside) {
        if self.online.as_ref() != Some(&online) {
            self.online = Some(online);
            self.settle_all(now, outside);
        }
    }

    /// The state of a guest's vCPUs.
    pub fn standing(&self, guest: usize) -> Vec<Standing> {
        let Some(one) = self.guests.get(guest) else { return Vec::new() };
        let standing = |(number, vcpu): (&u16, &Vcpu)| {
            let cpu = vcpu.cpu();
            let domain = cpu.as_ref().ok().and_then(|cpu| self.domain_of.get(cpu));
            let wish_khz = domain.and_then(|index| one.resolved(vcpu, &self.domains[*index]));
            let why = match (&cpu, domain) {
                _ if vcpu.wish == Wish::default() => None,
                (Err(why), _) => Some(why.clone()),
                (Ok(cpu), None) => Some(format!("CPU {cpu} has no frequency scaling")),
                (Ok(_), Some(index)) => wish_khz.and_then(|wish| self.hindrance(*index, wish)),
            };
            Standing {
                vcpu: *number,
                place: vcpu.place.clone(),
                wish_khz,
                goal: vcpu.wish.goal,
                idle: vcpu.wish.idle(),
                khz: domain.and_then(|index| self.khz(*index)),
                why,
            }
        };
        one.vcpus.iter().map(standing).collect()
    }

    /// Counters of a guest.
    pub fn counts(&self, guest: usize) -> Counts {
        self.guests.get(guest).map_or_else(Counts::default, |guest| guest.counts)
    }

    /// A guest's manifest.
    pub fn manifest(&self, guest: usize) -> Option<&Manifest> {
        self.guests.get(guest).map(|guest| &guest.manifest)
    }

    /// Number of guests.
    pub fn guests(&self) -> usize {
        self.guests.len()
    }

    fn message(
        &mut self,
        now: Instant<Monotonic>,
        guest: usize,
        channel: usize,
        message: Message<'_>,
        outside: &mut impl Outside,
    ) {
        let one = &mut self.guests[guest];
        one.counts.messages += 1;
        one.counts.incomplete += u64::from(matches!(message, Message::Incomplete(_)));
        let is_query =
            matches!(&message, Message::Own(line) if Request::read(line).is_ok_and(|of| of.ask == Ask::State));
        let is_within = if is_query { one.queries.take(now) } else { one.requests.take(now) };
        if !is_within {
            one.counts.over_rate += 1;
            one.untold += 1;
        }
        let mut call = Call { server: self, now, guest, is_within, outside };
        let done = match message {
            Message::Dpdk(bytes) => call.dpdk(channel, bytes),
            Message::Own(line) => Some(call.own(channel, line)),
            Message::TooLong => {
                let done = Done::refused("line", format!("a request has at most {} bytes", protocol::LONGEST));
                call.answer_own(channel, Id::NONE, &done);
                Some(done)
            }
            Message::Incomplete(length) => {
                let why = "the rest of the message did not arrive within one second";
                Some(Done::refused(&format!("{length} bytes"), why.to_owned()))
            }
        };
        let Some(done) = done else { return };
        let protocol = match message {
            Message::Dpdk(_) => Some(Protocol::Dpdk),
            Message::Own(_) | Message::TooLong => Some(Protocol::Apus),
            Message::Incomplete(_) => None,
        };
        let one = &mut self.guests[guest];
        one.counts.count(done.verdict);
        if !is_within {
            return;
        }
        let vcpu = done.vcpu.and_then(|number| one.vcpus.get_mut(&number));
        if vcpu.is_none_or(|vcpu| vcpu.logged.replace(done.clone()).as_ref() != Some(&done)) {
            outside.log(&Record {
                event: Event::Request,
                guest: &one.manifest.name,
                channel: Some(channel),
                protocol,
                asked: done.asked,
                vcpu: done.vcpu,
                cpu: done.cpu,
                khz: done.khz,
                verdict: Some(done.verdict),
                why: done.why,
            });
        }
    }

    /// The frequency at which a domain should be fixed: the highest request, if each CPU of the domain belongs to vCPUs
    /// and each of these vCPUs requests a frequency. Also returns the guest and the vCPU of the highest request.
    /// `Ok(None)`: no vCPU requests a frequency. `Err`: a vCPU requests one, but it cannot be applied; the string says
    /// why.
    fn target(&self, domain: &Domain) -> Result<Option<(u32, usize, u16)>, String> {
        let mut highest: Option<(u32, usize, u16)> = None;
        let mut in_the_way = None;
        let is_online = |cpu: &u32| self.online.as_ref().is_none_or(|online| online.contains(*cpu));
        for cpu in domain.cpus.iter().filter(is_online) {
            let mut is_someones = false;
            for (index, guest) in self.guests.iter().enumerate() {
                let name = &guest.manifest.name;
                for (number, vcpu) in guest.vcpus.iter().filter(|(_, vcpu)| vcpu.may_be(cpu)) {
                    is_someones = true;
                    match guest.resolved(vcpu, domain).filter(|_| vcpu.cpu() == Ok(cpu)) {
                        Some(khz) => {
                            if highest.is_none_or(|(most, ..)| khz > most) {
                                highest = Some((khz, index, *number));
                            }
                        }
                        None => {
                            in_the_way.get_or_insert_with(|| {
                                format!("vCPU {number} of {name} also runs on CPU {cpu}, and requests no frequency")
                            });
                        }
                    }
                }
                for (number, _) in guest.others.iter().filter(|(_, place)| place.may_be(cpu)) {
                    is_someones = true;
                    in_the_way.get_or_insert_with(|| {
                        format!("vCPU {number} of {name} also runs on CPU {cpu}, and is not in its manifest")
                    });
                }
            }
            if !is_someones {
                in_the_way
                    .get_or_insert_with(|| format!("CPU {cpu} shares the frequency domain, and belongs to no guest"));
            }
        }
        match (highest, in_the_way) {
            (None, _) => Ok(None),
            (_, Some(why)) => Err(why),
            (highest, None) => Ok(highest),
        }
    }

    /// Why a domain is not fixed at the frequency `wish`. `None` if it is fixed at it.
    pub(super) fn hindrance(&self, index: usize, wish: u32) -> Option<String> {
        let force = &self.frequencies[index];
        match self.target(&self.domains[index]) {
            _ if matches!(force.applied, Applied::Lost(_)) => force.applied.why().map(str::to_owned),
            Err(why) => Some(why),
            Ok(Some((khz, guest, vcpu))) if khz > wish => {
                let name = &self.guests[guest].manifest.name;
                Some(format!(
                    "vCPU {vcpu} of {name} shares the frequency domain and requests {}; the highest request wins",
                    Hertz::from_khz(khz)
                ))
            }
            Ok(_) => force.applied.why().map(str::to_owned),
        }
    }

    /// The frequency at which a domain is fixed, in kHz. `None` if it is not fixed.
    pub(super) fn khz(&self, index: usize) -> Option<u32> {
        let force = &self.frequencies[index];
        force.wanted.filter(|_| force.applied == Applied::InForce && !force.is_settling)
    }

    pub(super) fn settle_domain(
        &mut self,
        now: Instant<Monotonic>,
        index: usize,
        again: bool,
        outside: &mut impl Outside,
    ) {
        let domain = &self.domains[index];
        let target = self.target(domain).ok().flatten().map(|(khz, ..)| khz);
        let force = &mut self.frequencies[index];
        if (target == force.wanted && !again) || matches!(force.applied, Applied::Lost(_)) {
            return;
        }
        let applied = outside.fix_frequency(domain.policy, target);
        force.tried(now, target, applied, again);
    }

    pub(super) fn settle_idle(&mut self, now: Instant<Monotonic>, cpu: u32, again: bool, outside: &mut impl Outside) {
        let vcpus = self.guests.iter().filter(|guest| guest.manifest.may_limit_idle).flat_map(|one| one.vcpus.values());
        let wanted = vcpus.filter(|vcpu| vcpu.cpu() == Ok(cpu)).filter_map(|vcpu| vcpu.wish.idle()).min();
        let Some(force) = self.idle.get_mut(&cpu) else { return };
        if (wanted == force.wanted && !again) || matches!(force.applied, Applied::Lost(_)) {
            return;
        }
        force.tried(now, wanted, outside.limit_idle(cpu, wanted), again);
    }

    /// Recomputes all settings after vCPUs have moved or guests have gone.
    fn settle_all(&mut self, now: Instant<Monotonic>, outside: &mut impl Outside) {
        for index in 0..self.domains.len() {
            self.settle_domain(now, index, false, outside);
        }
        let cpus: Vec<u32> = self.idle.keys().copied().collect();
        for cpu in cpus {
            self.settle_idle(now, cpu, false, outside);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
