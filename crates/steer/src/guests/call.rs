//! Processes one message of a guest: parses it, checks whether it is allowed, applies the change and answers.

use units::{Hertz, Instant, Monotonic, Nanos};

use super::dpdk::{self, Packet, Scale, Workload};
use super::guest::{Guest, Level, Wish};
use super::machine::Domain;
use super::protocol::{Answer, Ask, Frequency, Id, Request, Verdict};
use super::record::{Applied, Outside};
use super::server::Server;
use policy::Goal;

/// The outcome of a guest's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Done {
    pub(super) asked: String,
    pub(super) vcpu: Option<u16>,
    pub(super) cpu: Option<u32>,
    pub(super) khz: Option<u32>,
    pub(super) idle: Option<Nanos>,
    /// The frequencies that the guest may request, in kHz.
    pub(super) range: Option<(u32, u32)>,
    pub(super) verdict: Verdict,
    pub(super) why: String,
}

impl Done {
    pub(super) fn refused(asked: &str, why: String) -> Self {
        let asked = asked.to_owned();
        Self { asked, vcpu: None, cpu: None, khz: None, idle: None, range: None, verdict: Verdict::Refused, why }
    }
}

/// A message that is being processed.
pub(super) struct Call<'s, O> {
    pub(super) server: &'s mut Server,
    pub(super) now: Instant<Monotonic>,
    pub(super) guest: usize,
    /// Whether the message is within the guest's allowed rate.
    pub(super) is_within: bool,
    pub(super) outside: &'s mut O,
}

/// How a request changes the requests of its vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Level(Level),
    Step { is_up: bool },
    Turbo { is_allowed: bool },
    Goal(Option<Goal>),
    Idle(Option<Nanos>),
    Release,
    Nothing,
}

impl Change {
    /// Whether a request is carried out even above the allowed rate. This applies to the highest frequency and to the
    /// withdrawal of all requests, so that a guest that sends too many requests does not stay slow. Such a request has
    /// an effect only after a change that was within the rate, so there are at most three times as many changes as the
    /// rate allows. A query changes nothing.
    const fn is_always_allowed(self) -> bool {
        matches!(self, Self::Level(Level::Max) | Self::Release | Self::Nothing)
    }
}

impl<O: Outside> Call<'_, O> {
    fn one(&mut self) -> &mut Guest {
        &mut self.server.guests[self.guest]
    }

    pub(super) fn dpdk(&mut self, channel: usize, bytes: &[u8; dpdk::LENGTH]) -> Option<Done> {
        let done = match Packet::read(bytes) {
            Packet::Connect | Packet::RemovePolicy => {
                let asked = if Packet::read(bytes) == Packet::Connect { "connect" } else { "remove-policy" };
                let done = Done::refused(asked, "no action needed".into());
                return Some(Done { verdict: Verdict::Granted, ..done });
            }
            Packet::Query(query, resource) => {
                let done = self.query(query, resource);
                let list = |vcpus: &[u16], call: &mut Self| -> Vec<u32> {
                    vcpus.iter().map(|vcpu| call.frequency_of(*vcpu).unwrap_or(0)).collect()
                };
                let known = done.as_ref().ok().cloned();
                if query.is_of_frequencies() {
                    let known = known.map(|vcpus| list(&vcpus, self));
                    let bytes = dpdk::frequencies(bytes, known.as_deref());
                    self.one().answer(channel, &bytes);
                } else {
                    let has_turbo = |vcpu: &u16| self.domain_of(*vcpu).is_some_and(|domain| domain.nominal.is_some());
                    let known: Option<Vec<bool>> = known.map(|vcpus| vcpus.iter().map(has_turbo).collect());
                    let bytes = dpdk::capabilities(bytes, known.as_deref());
                    self.one().answer(channel, &bytes);
                }
                let vcpu = u16::try_from(resource).ok().filter(|_| !query.is_of_all());
                return Some(match done {
                    Ok(_) => Done { verdict: Verdict::Granted, vcpu, ..Done::refused(query.name(), "answered".into()) },
                    Err(why) => Done { vcpu, ..Done::refused(query.name(), why) },
                });
            }
            Packet::Scale(core, scale) => {
                let change = match scale {
                    Scale::Max => Change::Level(Level::Max),
                    Scale::Min => Change::Level(Level::Min),
                    Scale::Up => Change::Step { is_up: true },
                    Scale::Down => Change::Step { is_up: false },
                    Scale::EnableTurbo => Change::Turbo { is_allowed: true },
                    Scale::DisableTurbo => Change::Turbo { is_allowed: false },
                };
                match self.vcpu_of(core) {
                    Ok(vcpu) => self.change(scale.name(), vcpu, change),
                    Err(why) => Done::refused(scale.name(), why),
                }
            }
            Packet::Policy(dpdk::Policy::Workload(workload, vcpus)) => self.workload(workload, &vcpus),
            Packet::Policy(dpdk::Policy::Unsupported(name)) => {
                let why = format!("the policy {name} needs data about the guest that the host does not have");
                Done::refused(&format!("policy {name}"), why)
            }
            Packet::Policy(dpdk::Policy::Invalid(why)) => Done::refused("policy", why),
            Packet::Unknown { command, unit } => {
                let why = "DPDK 22.11 has no such command".to_owned();
                Done::refused(&format!("command {command} unit {unit}"), why)
            }
        };
        let answer = dpdk::acknowledged(bytes, done.verdict.is_good());
        self.one().answer(channel, &answer);
        Some(done)
    }

    pub(super) fn own(&mut self, channel: usize, line: &[u8]) -> Done {
        let (id, done) = match Request::read(line) {
            Err((id, why)) => (id, Done::refused("unreadable", why)),
            Ok(Request { id, ask, vcpu }) => {
                let change = match ask {
                    Ask::Frequency(Frequency::Max) => Change::Level(Level::Max),
                    Ask::Frequency(Frequency::Min) => Change::Level(Level::Min),
                    Ask::Frequency(Frequency::Up) => Change::Step { is_up: true },
                    Ask::Frequency(Frequency::Down) => Change::Step { is_up: false },
                    Ask::Frequency(Frequency::AtLeast(frequency)) => Change::Level(Level::Khz(khz_of(frequency))),
                    Ask::Goal(goal) => Change::Goal(goal),
                    Ask::Idle(limit) => Change::Idle(limit),
                    Ask::Release => Change::Release,
                    Ask::State => Change::Nothing,
                };
                (id, self.change(&ask.to_string(), vcpu, change))
            }
        };
        self.answer_own(channel, id, &done);
        done
    }

    pub(super) fn answer_own(&mut self, channel: usize, id: Id, done: &Done) {
        let idle_us = done.idle.map(|limit| limit.as_micros_floor());
        let (verdict, vcpu, khz, why) = (done.verdict, done.vcpu, done.khz, done.why.clone());
        let answer = Answer { id, verdict, vcpu, khz, idle_us, range_khz: done.range, why }.to_string();
        self.one().answer(channel, answer.as_bytes());
    }

    /// The vCPU that a DPDK packet refers to.
    fn vcpu_of(&self, core: dpdk::Core) -> Result<u16, String> {
        match core {
            dpdk::Core::Virtual(number) => u16::try_from(number).map_err(|_| format!("there is no vCPU {number}")),
            dpdk::Core::Physical(cpu) => {
                let mut vcpus = self.server.guests[self.guest].vcpus.iter();
                let found = vcpus.find(|(_, vcpu)| vcpu.cpu().is_ok_and(|at| u64::from(at) == cpu));
                found.map(|(number, _)| *number).ok_or_else(|| format!("no vCPU of this guest runs on CPU {cpu}"))
            }
        }
    }

    fn domain_of(&self, vcpu: u16) -> Option<&Domain> {
        let cpu = self.server.guests[self.guest].vcpus.get(&vcpu)?.cpu().ok()?;
        self.server.domain_of.get(&cpu).map(|index| &self.server.domains[*index])
    }

    fn frequency_of(&mut self, vcpu: u16) -> Option<u32> {
        let cpu = self.server.guests[self.guest].vcpus.get(&vcpu)?.cpu().ok()?;
        self.outside.frequency(cpu)
    }

    /// The vCPUs that the answer to a query must list: from 0 to the guest's last vCPU, but no more than fit into the
    /// answer. The error says why the query is refused.
    fn query(&self, query: dpdk::Query, resource: u64) -> Result<Vec<u16>, String> {
        let guest = &self.server.guests[self.guest];
        if !self.is_within {
            return Err(format!("the manifest allows {} requests a second", guest.manifest.requests_per_second));
        }
        if !guest.manifest.may_query {
            return Err("the manifest does not allow queries".into());
        }
        let listed = |number: &u16| guest.vcpus.contains_key(number);
        let last = guest.vcpus.keys().next_back().map_or(0, |last| usize::from(*last) + 1);
        let all = (0..last.min(dpdk::MOST_VCPUS) as u16).collect();
        if query.is_of_all() {
            return Ok(all);
        }
        match u16::try_from(resource).ok().filter(listed) {
            Some(vcpu) if usize::from(vcpu) < dpdk::MOST_VCPUS => Ok(all),
            Some(_) => Err(format!("an answer can only hold vCPUs 0 to {}", dpdk::MOST_VCPUS - 1)),
            None => Err(format!("the manifest has no vCPU {resource}")),
        }
    }

    fn workload(&mut self, workload: Workload, vcpus: &[u8]) -> Done {
        let level = match workload {
            Workload::High => Level::Max,
            Workload::Medium => Level::Medium,
            Workload::Low => Level::Min,
        };
        let asked = format!("policy workload {workload}");
        let guest = &self.server.guests[self.guest];
        if let Some(unknown) = vcpus.iter().find(|vcpu| !guest.vcpus.contains_key(&u16::from(**vcpu))) {
            return Done::refused(&asked, format!("the manifest has no vCPU {unknown}"));
        }
        let done = vcpus.iter().map(|vcpu| self.change(&asked, u16::from(*vcpu), Change::Level(level)));
        let done: Vec<Done> = done.collect();
        // The policy's outcome is the worst one of these vCPUs; there is at least one.
        let worst = done.into_iter().max_by_key(|done| done.verdict as u8);
        worst.unwrap_or_else(|| Done::refused(&asked, "it lists no vCPU".into()))
    }

    /// Changes the requests of a vCPU. Returns the outcome.
    fn change(&mut self, asked: &str, number: u16, change: Change) -> Done {
        let refused = |why: String| Done { vcpu: Some(number), ..Done::refused(asked, why) };
        let guest = &mut self.server.guests[self.guest];
        if !self.is_within && !change.is_always_allowed() {
            let rate = guest.manifest.requests_per_second;
            return refused(format!("the manifest allows {rate} requests a second"));
        }
        let may_limit_idle = guest.manifest.may_limit_idle;
        let Some(vcpu) = guest.vcpus.get(&number) else {
            return refused(format!("the manifest has no vCPU {number}"));
        };
        let cpu = vcpu.cpu();
        let index = cpu.as_ref().ok().and_then(|cpu| self.server.domain_of.get(cpu)).copied();
        let domain = index.map(|index| &self.server.domains[index]);
        let mut wish = vcpu.wish;
        let mut limited = None;
        match change {
            Change::Level(level) => {
                wish.level = Some(level);
                if let (Level::Khz(khz), Some(domain)) = (level, domain) {
                    let (least, most) = guest.range(vcpu, domain);
                    let bound = || format!("the range is {} to {}", Hertz::from_khz(least), Hertz::from_khz(most));
                    limited = (!(least..=most).contains(&domain.at_least(khz)) || khz > domain.highest()).then(bound);
                }
            }
            Change::Step { is_up } => match domain {
                Some(domain) => {
                    let (least, most) = guest.range(vcpu, domain);
                    let now = guest.resolved(vcpu, domain).unwrap_or(most);
                    let next = if is_up { domain.above(now) } else { domain.below(now) }.clamp(least, most);
                    limited =
                        (next == now).then(|| format!("{} is already the end of the range", Hertz::from_khz(now)));
                    wish.level = Some(Level::Khz(next));
                }
                None if is_up => wish.level = Some(Level::Max),
                None => {}
            },
            Change::Turbo { is_allowed } => {
                if domain.is_some_and(|domain| domain.nominal.is_none()) {
                    return refused("the core has no turbo frequency, or its driver does not report one".into());
                }
                wish.is_without_turbo = !is_allowed;
                wish.level = wish.level.or(Some(Level::Max));
            }
            Change::Goal(goal) => {
                wish.goal = goal;
                let bound = || "the manifest does not allow it to limit idle states".to_owned();
                limited = (goal.is_some() && !may_limit_idle).then(bound);
            }
            Change::Idle(Some(_)) if !may_limit_idle => {
                return refused("the manifest does not allow it to limit idle states".into());
            }
            Change::Idle(limit) => wish.idle = limit,
            Change::Release => wish = Wish::default(),
            Change::Nothing => {}
        }
        let is_news = wish != vcpu.wish;
        if let Some(vcpu) = guest.vcpus.get_mut(&number) {
            vcpu.wish = wish;
        }
        if let (Ok(cpu), true) = (&cpu, is_news) {
            if let Some(index) = index {
                self.server.settle_domain(self.now, index, false, self.outside);
            }
            self.server.settle_idle(self.now, *cpu, false, self.outside);
        }
        self.done(asked, number, change, &cpu, index, limited)
    }

    fn done(
        &self,
        asked: &str,
        number: u16,
        change: Change,
        cpu: &Result<u32, String>,
        index: Option<usize>,
        limited: Option<String>,
    ) -> Done {
        let guest = &self.server.guests[self.guest];
        let vcpu = &guest.vcpus[&number];
        let is_about_idle = matches!(change, Change::Idle(_) | Change::Goal(Some(_)));
        let idle = cpu.as_ref().ok().and_then(|cpu| self.server.idle.get(cpu));
        let idle_trouble = idle.filter(|force| force.wanted.is_some()).and_then(|force| force.applied.why());
        let (verdict, why) = match (cpu, index) {
            _ if change == Change::Release => (Verdict::Granted, "all requests are withdrawn".to_owned()),
            (Err(why), _) => (Verdict::Held, why.clone()),
            (Ok(_), _) if is_about_idle && idle_trouble.is_some() => {
                (Verdict::Held, idle_trouble.unwrap_or_default().to_owned())
            }
            (Ok(_), _) if matches!(change, Change::Idle(_)) => (Verdict::Granted, "as requested".into()),
            (Ok(cpu), None) => (Verdict::Held, format!("CPU {cpu} has no frequency scaling")),
            (Ok(_), Some(index)) => {
                let wish = guest.resolved(vcpu, &self.server.domains[index]);
                match (wish.and_then(|wish| self.server.hindrance(index, wish)), limited) {
                    (Some(why), _) => match self.server.frequencies[index].applied {
                        // For example, the firmware limits the frequency: the nearest possible one is in force.
                        Applied::Otherwise(_) => (Verdict::Limited, why),
                        _ => (Verdict::Held, why),
                    },
                    (None, Some(why)) => (Verdict::Limited, why),
                    (None, None) => (Verdict::Granted, "as requested".into()),
                }
            }
        };
        Done {
            asked: asked.to_owned(),
            vcpu: Some(number),
            cpu: cpu.as_ref().ok().copied(),
            khz: index.and_then(|index| self.server.khz(index)),
            idle: idle.filter(|force| force.applied == Applied::InForce).and_then(|force| force.wanted),
            range: index
                .filter(|_| guest.manifest.may_query)
                .map(|index| guest.range(vcpu, &self.server.domains[index])),
            verdict,
            why,
        }
    }
}

/// `frequency` in kHz, rounded up.
fn khz_of(frequency: Hertz) -> u32 {
    u32::try_from(frequency.as_hertz().div_ceil(1_000)).unwrap_or(u32::MAX)
}
