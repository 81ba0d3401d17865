//! Sets the frequency of a vCPU from inside a guest: requests it from the host, through a channel to
//! `apus power serve`.
//!
//! ```text
//!   Pace ──► Remote ──► apus/1 ID 1800000000Hz vcpu=1 ──► channel ──► apus power serve ──► the core's frequency
//!              ▲                                             │
//!              └───── granted, limited, held, refused ◄──────┘
//! ```
//! The host answers within milliseconds; until then the request is [`Acted::Later`]. Once a second, the actuator asks
//! the host which frequency is in force, because another vCPU may have changed it on a shared core, or the host's
//! service may have restarted.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use policy::frequency::PStates;
use units::{Hertz, Instant, Nanos};

use super::InForce;
use super::place::steps;
use crate::guests::client::Client;
use crate::guests::protocol::{Answer, Ask, Frequency, Id, Verdict};
use crate::seam::{Acted, Actuator, Away, Standing};

/// Interval between two checks for an answer.
const LOOK_EVERY: Nanos = Nanos::from_millis(2);
/// Maximum time to wait for an answer. A busy host may take a while.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// Number of consecutive checks without an answer (one check per second) after which the host counts as unavailable.
const SILENT_CHECKS: u32 = 2;

/// A channel that the actuators of all vCPUs share.
pub type Shared<P> = Arc<Mutex<Client<P>>>;

/// Actuator for the frequency of a vCPU's core, which the host sets.
#[derive(Debug)]
pub struct Remote<P, C> {
    client: Shared<P>,
    vcpu: u16,
    pstates: PStates,
    in_force: InForce,
    known: InForce,
    /// The frequency at which the host has fixed the core, according to its last answer, in kHz. `None` if the core is
    /// not fixed.
    fixed: Option<u32>,
    waiting: Option<(Id, Instant<C>)>,
    /// The last query of the state, if it has not been answered yet. `silent` counts consecutive unanswered queries.
    check: Option<Id>,
    silent: u32,
    /// The frequency that was requested last.
    asked: Option<Hertz>,
    changes: u64,
    /// The limit of idle states that the vCPU needs. `None` if it needs no limit.
    idle: Option<Nanos>,
    /// The last request of that limit that was not answered yet.
    idle_asked: Option<Id>,
    /// The reason why the limit is not in force. `None` if it is.
    idle_trouble: Option<String>,
    is_dry: bool,
}

impl<P: Read + Write, C> Remote<P, C> {
    /// Creates the actuator of a vCPU. `state` is the host's answer to [`Ask::State`]. The error says why the vCPU's
    /// frequency cannot be controlled.
    pub fn new(client: Shared<P>, vcpu: u16, state: &Answer) -> Result<Self, String> {
        let why = || match state.verdict.is_good() {
            true => "the host does not say which frequencies the guest may request".to_owned(),
            false => state.why.clone(),
        };
        let (least, most) = state.range_khz.ok_or_else(why)?;
        let [low, high] = [least, most].map(hertz);
        let pstates = steps(low, high).ok_or_else(|| format!("the host allows {low} to {high}, which is no range"))?;
        let in_force = InForce { frequency: state.khz.map_or(high, hertz), ceiling: high };
        let fixed = state.khz;
        let (known, waiting, check, silent, asked, changes) = (in_force, None, None, 0, None, 0);
        Ok(Self {
            client,
            vcpu,
            pstates,
            in_force,
            known,
            fixed,
            waiting,
            check,
            silent,
            asked,
            changes,
            idle: None,
            idle_asked: None,
            idle_trouble: None,
            is_dry: false,
        })
    }

    /// Keeps a limit of idle states in force: requests it again whenever the host does not apply it. `trouble` is the
    /// reason if the host did not apply it at the first request.
    pub fn limit_idle(&mut self, limit: Nanos, trouble: Option<String>) {
        (self.idle, self.idle_trouble) = (Some(limit), trouble);
    }

    /// The reason why the limit of idle states is not in force. `None` if it is, or if there is none.
    pub fn idle_trouble(&self) -> Option<String> {
        self.idle_trouble.clone()
    }

    /// Makes the actuator send no requests but report success (dry run).
    pub fn that_changes_nothing(self) -> Self {
        Self { is_dry: true, ..self }
    }

    /// Number of the vCPU that this actuator controls.
    pub fn vcpu(&self) -> u16 {
        self.vcpu
    }

    /// The frequencies that can be requested.
    pub fn pstates(&self) -> PStates {
        self.pstates
    }

    /// Number of times that a different frequency was requested for the vCPU.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The frequency in force according to the host's last answer, and the highest frequency that the guest may
    /// request. If the host has not fixed the core, both are the highest frequency.
    pub fn in_force(&self) -> InForce {
        self.in_force
    }

    fn ask(&mut self, ask: Ask) -> Result<Id, String> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.ask(ask, self.vcpu).map_err(broken)
    }

    fn answer(&mut self, id: Id) -> Result<Option<Answer>, String> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.answer(id).map_err(broken)
    }

    /// Handles a failure of the channel: the host has dropped the request, and its own limits are in force again.
    fn away(&mut self, why: String) -> Away {
        self.waiting = None;
        self.fixed = None;
        self.in_force.frequency = self.in_force.ceiling;
        Away(why)
    }

    /// Compares the limit of idle states with the one in force, and requests it again if it is not applied. The host may
    /// apply a stricter one.
    fn check_idle(&mut self, state: &Answer) -> Result<(), String> {
        let Some(limit) = self.idle else { return Ok(()) };
        if let Some(id) = self.idle_asked.take()
            && let Some(answer) = self.answer(id)?
            && !answer.verdict.is_good()
        {
            self.idle_trouble = Some(answer.why);
        }
        match state.idle_us {
            Some(us) if Nanos::from_micros(us) <= limit => self.idle_trouble = None,
            _ => {
                self.idle_trouble.get_or_insert_with(|| "the host does not apply it".into());
                self.idle_asked = Some(self.ask(Ask::Idle(Some(limit)))?);
            }
        }
        Ok(())
    }

    fn learn(&mut self, answer: &Answer) {
        let ceiling = answer.range_khz.map_or(self.in_force.ceiling, |(_, most)| hertz(most));
        self.in_force = InForce { frequency: answer.khz.map_or(ceiling, hertz), ceiling };
        self.fixed = answer.khz;
        self.known = self.in_force;
        self.silent = 0;
    }
}

impl<P: Read + Write, C> Actuator<C> for Remote<P, C> {
    type Setting = Hertz;
    type InForce = InForce;

    fn set(&mut self, now: Instant<C>, wish: &Hertz) -> Acted<InForce> {
        self.changes += u64::from(self.asked.replace(*wish).is_some_and(|before| before != *wish));
        if self.is_dry {
            self.in_force.frequency = *wish;
            self.known = self.in_force;
            return Acted::InForce;
        }
        // The answer to an earlier query would describe the state before this request.
        self.check = None;
        // The host never refuses a request for the maximum because of the rate of requests.
        let frequency = if *wish >= self.in_force.ceiling { Frequency::Max } else { Frequency::AtLeast(*wish) };
        match self.ask(Ask::Frequency(frequency)) {
            Ok(id) => self.waiting = Some((id, now)),
            Err(why) => return Acted::Away(self.away(why)),
        }
        self.look(now)
    }

    fn look(&mut self, now: Instant<C>) -> Acted<InForce> {
        let Some((id, since)) = self.waiting else { return Acted::InForce };
        let answer = match self.answer(id) {
            Ok(Some(answer)) => answer,
            Ok(None) if now.since(since).is_some_and(|waited| waited >= PATIENCE) => {
                self.waiting = None;
                return Acted::Away(Away(format!("the host has not answered for {PATIENCE}")));
            }
            Ok(None) => return Acted::Later { after: LOOK_EVERY },
            Err(why) => return Acted::Away(self.away(why)),
        };
        self.waiting = None;
        if answer.verdict == Verdict::Refused {
            return Acted::Refused { why: answer.why };
        }
        self.learn(&answer);
        match answer.verdict {
            Verdict::Granted if self.asked == Some(self.in_force.frequency) => Acted::InForce,
            // The core has no such frequency: the next higher one is in force.
            Verdict::Granted => Acted::Rounded { now: self.in_force, why: None },
            _ => Acted::Rounded { now: self.in_force, why: Some(answer.why) },
        }
    }

    fn stands(&mut self) -> Standing {
        let mut standing = Standing::AsLeft;
        if self.is_dry {
            return standing;
        }
        if let Some(id) = self.check.take() {
            match self.answer(id) {
                // For example, the manifest no longer lists the vCPU.
                Ok(Some(answer)) if answer.verdict == Verdict::Refused => {
                    self.silent = SILENT_CHECKS;
                    standing = Standing::Away(self.away(answer.why));
                }
                Ok(Some(answer)) => {
                    let (before, known) = (self.fixed, self.known);
                    let was_away = self.silent >= SILENT_CHECKS;
                    self.learn(&answer);
                    // Lets the control loop learn that another frequency is in force.
                    self.known = known;
                    if let Err(why) = self.check_idle(&answer) {
                        return Standing::Away(self.away(why));
                    }
                    // The host's service was restarted, or another vCPU has moved to this core or away from it.
                    if self.asked.is_some() && (was_away || answer.khz != before) {
                        standing = Standing::Fresh;
                    }
                }
                Ok(None) => {
                    self.silent += 1;
                    if self.silent >= SILENT_CHECKS {
                        standing = Standing::Away(Away("the host does not answer".into()));
                    }
                }
                Err(why) => {
                    self.silent = SILENT_CHECKS;
                    standing = Standing::Away(self.away(why));
                }
            }
        }
        match self.ask(Ask::State) {
            Ok(id) => self.check = Some(id),
            Err(why) => {
                self.silent = SILENT_CHECKS;
                standing = Standing::Away(self.away(why));
            }
        }
        standing
    }

    fn shifted(&mut self) -> Option<InForce> {
        let now = self.in_force;
        (std::mem::replace(&mut self.known, now) != now).then_some(now)
    }
}

fn broken(error: std::io::Error) -> String {
    format!("the channel to the host fails: {error}")
}

fn hertz(khz: u32) -> Hertz {
    Hertz::from_khz(khz)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use units::Monotonic;

    use super::*;
    use crate::guests::{Applied, Domain, Manifest, Outside, Place, Record, Server};

    #[derive(Default)]
    struct Machine(BTreeMap<u32, Option<u32>>, Option<Nanos>);

    impl Outside for Machine {
        fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
            self.0.insert(policy, khz);
            Applied::InForce
        }
        fn settled(&mut self, _: u32, _: bool) -> Applied {
            Applied::InForce
        }
        fn limit_idle(&mut self, _: u32, limit: Option<Nanos>) -> Applied {
            self.1 = limit;
            Applied::InForce
        }
        fn frequency(&mut self, cpu: u32) -> Option<u32> {
            self.0.get(&cpu).copied().flatten()
        }
        fn log(&mut self, _: &Record<'_>) {}
    }

    /// A host with one core, used by vCPU 0 alone, and the guest's port to the host.
    struct Host {
        server: Server,
        machine: Machine,
        now: Instant<Monotonic>,
        is_silent: bool,
        is_closed: bool,
        /// Whether the host answers as if the manifest listed no vCPU.
        is_manifest_empty: bool,
    }

    #[derive(Clone)]
    struct Port(Arc<Mutex<Host>>);

    impl Port {
        fn new(requests_per_second: u32) -> Self {
            let steps = vec![800_000, 1_800_000, 3_000_000];
            let domain = Domain { policy: 0, cpus: [0].into_iter().collect(), steps, nominal: None };
            let manifest = Manifest {
                name: "vm".into(),
                vcpus: [(0, [0].into_iter().collect())].into(),
                min_frequency: None,
                max_frequency: None,
                may_limit_idle: true,
                may_query: true,
                requests_per_second,
                channels: 1,
            };
            let server = Server::new(vec![domain], vec![manifest], Instant::ORIGIN);
            let (machine, now) = (Machine::default(), Instant::ORIGIN);
            let host = Host { server, machine, now, is_silent: false, is_closed: false, is_manifest_empty: false };
            let port = Self(Arc::new(Mutex::new(host)));
            port.place(&[(0, Place::Pinned(0))]);
            port
        }

        fn place(&self, places: &[(u16, Place)]) {
            let mut host = self.0.lock().unwrap();
            let Host { server, machine, now, .. } = &mut *host;
            server.place(*now, 0, &places.iter().cloned().collect(), machine);
        }

        fn fixed(&self) -> Option<u32> {
            self.0.lock().unwrap().machine.0.get(&0).copied().flatten()
        }

        /// Lets time pass, as the guest and the host see it.
        fn at(&self, ms: u64) -> Instant<Monotonic> {
            let mut host = self.0.lock().unwrap();
            host.now = Instant::ORIGIN + Nanos::from_millis(ms);
            host.now
        }

        fn be_silent(&self, is_silent: bool) {
            self.0.lock().unwrap().is_silent = is_silent;
        }
    }

    impl Read for Port {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut host = self.0.lock().unwrap();
            if host.is_closed {
                return Ok(0);
            }
            let waiting = host.server.outgoing(0, 0);
            let length = waiting.len().min(buffer.len());
            if length == 0 || host.is_silent {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            buffer[..length].copy_from_slice(&waiting[..length]);
            host.server.sent(0, 0, length);
            Ok(length)
        }
    }

    impl Write for Port {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut host = self.0.lock().unwrap();
            if host.is_closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if host.is_silent {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let Host { server, machine, now, is_manifest_empty, .. } = &mut *host;
            let line = String::from_utf8_lossy(bytes).into_owned();
            let line = if *is_manifest_empty { line.replace("vcpu=0", "vcpu=9") } else { line };
            server.receive(*now, 0, 0, line.as_bytes(), machine);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn mhz(mhz: u64) -> Hertz {
        Hertz::new(mhz * 1_000_000)
    }

    /// The state of vCPU 0, as a guest asks for it at the start.
    fn state(client: &Shared<Port>) -> Answer {
        let mut client = client.lock().unwrap();
        let id = client.ask(Ask::State, 0).unwrap();
        client.answer(id).unwrap().unwrap()
    }

    fn remote(port: &Port) -> Remote<Port, Monotonic> {
        let client = Arc::new(Mutex::new(Client::new(port.clone(), 7)));
        let state = state(&client);
        Remote::new(client, 0, &state).unwrap()
    }

    #[test]
    fn a_request_is_in_force_or_rounded_up() {
        let port = Port::new(1_000);
        let mut remote = remote(&port);
        assert_eq!(remote.in_force(), InForce { frequency: mhz(3_000), ceiling: mhz(3_000) });
        assert_eq!((remote.pstates().lowest(), remote.pstates().highest()), (mhz(800), mhz(3_000)));
        assert_eq!(remote.set(port.at(0), &mhz(800)), Acted::InForce);
        assert_eq!(port.fixed(), Some(800_000));
        // The core has no 1.2 GHz.
        let now = InForce { frequency: mhz(1_800), ceiling: mhz(3_000) };
        assert_eq!(remote.set(port.at(1), &mhz(1_200)), Acted::Rounded { now, why: None });
        assert_eq!((port.fixed(), remote.changes()), (Some(1_800_000), 1));
        assert_eq!(remote.shifted(), None, "it was the answer to its own request");
        // A question that was answered before the request says nothing of it.
        remote.stands();
        remote.set(port.at(2), &mhz(800));
        assert_eq!((remote.stands(), remote.stands()), (Standing::AsLeft, Standing::AsLeft));
    }

    #[test]
    fn a_host_that_forgets_is_asked_again() {
        let port = Port::new(1_000);
        let mut remote = remote(&port);
        remote.set(port.at(0), &mhz(800));
        assert_eq!((remote.stands(), remote.stands()), (Standing::AsLeft, Standing::AsLeft));
        {
            let mut host = port.0.lock().unwrap();
            let Host { server, machine, now, .. } = &mut *host;
            server.forget(*now, 0, "the guest was reset", machine);
        }
        // The question that is on its way was answered before.
        assert_eq!((remote.stands(), remote.stands()), (Standing::AsLeft, Standing::Fresh));
        assert_eq!(remote.shifted(), Some(InForce { frequency: mhz(3_000), ceiling: mhz(3_000) }));
        // A vCPU that is not pinned is not fixed, until it is.
        port.place(&[(0, Place::Floating([0, 1].into_iter().collect()))]);
        let acted = remote.set(port.at(10), &mhz(800));
        assert!(matches!(&acted, Acted::Rounded { why: Some(why), .. } if why.contains("pin it")), "{acted:?}");
        remote.stands();
        port.place(&[(0, Place::Pinned(0))]);
        remote.stands();
        assert_eq!((remote.stands(), port.fixed()), (Standing::Fresh, Some(800_000)));
    }

    #[test]
    fn a_silent_host_is_away_until_it_answers() {
        let port = Port::new(1_000);
        let mut remote = remote(&port);
        remote.stands();
        port.be_silent(true);
        assert_eq!(remote.set(port.at(0), &mhz(800)), Acted::Later { after: LOOK_EVERY });
        assert_eq!(remote.look(port.at(999)), Acted::Later { after: LOOK_EVERY });
        assert!(matches!(remote.look(port.at(1_000)), Acted::Away(_)));
        let looks: Vec<bool> = (0..4).map(|_| matches!(remote.stands(), Standing::Away(_))).collect();
        assert_eq!(looks, [false, false, true, true]);
        port.be_silent(false);
        let back = (0..2).map(|_| remote.stands()).find(|standing| *standing == Standing::Fresh);
        assert_eq!(back, Some(Standing::Fresh));
        assert_eq!(remote.set(port.at(9_000), &mhz(800)), Acted::InForce);
        port.0.lock().unwrap().is_closed = true;
        assert!(matches!(remote.set(port.at(9_001), &mhz(1_800)), Acted::Away(_)));
        assert_eq!(remote.in_force().frequency, mhz(3_000), "the host dropped the requests");
    }

    #[test]
    fn a_closed_channel_is_noticed_though_nothing_is_requested() {
        let port = Port::new(1_000);
        let mut remote = remote(&port);
        remote.set(port.at(0), &mhz(1_800));
        assert_eq!((remote.stands(), remote.stands()), (Standing::AsLeft, Standing::AsLeft));
        // The last question was answered before.
        port.0.lock().unwrap().is_closed = true;
        assert!(matches!(remote.stands(), Standing::Away(_)));
        assert_eq!(remote.shifted().map(|now| now.frequency), Some(mhz(3_000)));
    }

    #[test]
    fn an_idle_limit_is_requested_again_and_the_maximum_is_never_refused() {
        let port = Port::new(3);
        let mut remote = remote(&port);
        remote.set(port.at(0), &mhz(800));
        remote.limit_idle(Nanos::from_micros(20), Some("not requested yet".into()));
        let limit = || port.0.lock().unwrap().machine.1;
        // The first query is answered at the second look; the request that follows is answered before the third.
        (0..3).for_each(|_| drop(remote.stands()));
        assert_eq!((limit(), remote.idle_trouble()), (Some(Nanos::from_micros(20)), None));
        {
            let mut host = port.0.lock().unwrap();
            let Host { server, machine, now, .. } = &mut *host;
            server.forget(*now, 0, "the guest was reset", machine);
        }
        assert_eq!(limit(), None);
        port.at(10_000);
        remote.stands();
        remote.stands();
        assert!(remote.idle_trouble().is_some());
        remote.stands();
        assert_eq!((limit(), remote.idle_trouble()), (Some(Nanos::from_micros(20)), None));
        // Far more requests than are allowed.
        let acted: Vec<_> = (0..9).map(|n| remote.set(port.at(10_000), &mhz(800 + n % 2 * 1_000))).collect();
        assert!(acted.iter().any(|acted| matches!(acted, Acted::Refused { .. })), "{acted:?}");
        assert_eq!(remote.set(port.at(10_000), &mhz(3_000)), Acted::InForce);
    }

    #[test]
    fn a_vcpu_that_the_host_no_longer_serves_is_away() {
        let port = Port::new(1_000);
        let mut remote = remote(&port);
        remote.set(port.at(0), &mhz(800));
        remote.stands();
        {
            let mut host = port.0.lock().unwrap();
            host.is_manifest_empty = true;
        }
        remote.stands();
        let standing = remote.stands();
        assert!(matches!(&standing, Standing::Away(Away(why)) if why.contains("no vCPU 9")), "{standing:?}");
        assert_eq!(remote.in_force().frequency, mhz(3_000));
    }

    #[test]
    fn what_the_host_refuses_is_said() {
        let port = Port::new(2);
        let mut remote = remote(&port);
        remote.set(port.at(0), &mhz(800));
        let acted: Vec<_> = (1..10).map(|ms| remote.set(port.at(ms), &mhz(1_800))).collect();
        assert!(acted.iter().any(|acted| matches!(acted, Acted::Refused { why } if why.contains("2 requests"))));
        let client = Arc::new(Mutex::new(Client::new(port.clone(), 8)));
        port.place(&[(0, Place::Floating([0, 1].into_iter().collect()))]);
        port.at(60_000);
        let unpinned = state(&client);
        let why = Remote::<_, Monotonic>::new(client, 0, &unpinned).err().unwrap();
        assert!(why.contains("pin it"), "{why}");
    }
}
