//! Millions of hostile messages from several guests at once: no effect outside of the manifests, constant memory, and a
//! neighbour that is always answered.
//!
//! `APUS_HOSTILE_MESSAGES=10000000 cargo test -p steer --test hostile -- --nocapture`

use std::collections::BTreeMap;

use host::CpuSet;
use steer::guests::dpdk;
use steer::guests::{Applied, Domain, Manifest, OUTBOX, Outside, Place, Record, Server};
use units::{Hertz, Instant, Monotonic, Nanos};

/// Guests that send anything. One more, the last one, asks politely.
const HOSTILE: usize = 4;
const STEPS: [u32; 4] = [800_000, 1_800_000, 2_600_000, 3_000_000];
/// The step between the limits of the hostile guests.
const ALLOWED: [u32; 2] = [1_800_000, 2_600_000];
const RATE: u32 = 100;

/// A machine that checks each change.
#[derive(Default)]
struct Machine {
    fixed: BTreeMap<u32, Option<u32>>,
    changes: u64,
    records: u64,
}

impl Outside for Machine {
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        assert!(policy < 2 * HOSTILE as u32 + 2, "CPU {policy} is in no manifest");
        let is_hostile = policy < 2 * HOSTILE as u32;
        assert!(!is_hostile || khz.is_none_or(|khz| ALLOWED.contains(&khz)), "CPU {policy} at {khz:?}");
        self.changes += u64::from(is_hostile);
        self.fixed.insert(policy, khz);
        Applied::InForce
    }
    fn settled(&mut self, _: u32, _: bool) -> Applied {
        Applied::InForce
    }
    fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied {
        assert!(limit.is_none() || !cpu.is_multiple_of(2), "guests with even CPUs may not limit idle states");
        Applied::InForce
    }
    fn frequency(&mut self, cpu: u32) -> Option<u32> {
        self.fixed.get(&cpu).copied().flatten()
    }
    fn log(&mut self, record: &Record<'_>) {
        assert!(record.why.len() < 1_000 && record.asked.len() < 1_000);
        self.records += 1;
    }
}

/// Marsaglia's xorshift64: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    /// A message, or what may be taken for one. `is_whole`: no noise and no half messages, after which the rest of a flood
    /// makes no sense.
    fn message(&mut self, is_whole: bool, into: &mut Vec<u8>) {
        into.clear();
        match self.next(if is_whole { 6 } else { 8 }) {
            0..=2 => {
                let vcpu = if self.next(4) == 0 { self.0 } else { self.next(6) };
                into.extend_from_slice(&dpdk::request(self.next(12) as u32, self.next(9) as u32, vcpu));
            }
            3 => {
                into.extend_from_slice(&dpdk::request(self.next(12) as u32, self.next(9) as u32, self.next(3)));
                for _ in 0..self.next(8) {
                    let at = self.next(dpdk::LENGTH as u64) as usize;
                    into[at] = self.next(256) as u8;
                }
            }
            4 | 5 => {
                const ASKS: [&str; 9] =
                    ["max", "min", "up", "down", "1.8GHz", "goal=p99=50us", "idle=20us", "release", "state"];
                let ask = ASKS[self.next(9) as usize];
                into.extend_from_slice(
                    format!("apus/1 {} {ask} vcpu={}\n", self.next(1 << 40), self.next(5)).as_bytes(),
                );
            }
            6 => {
                into.extend_from_slice(b"apus/1 x ");
                let length = self.next(400);
                into.extend((0..length).map(|_| self.next(256) as u8));
            }
            _ => {
                let length = self.next(700);
                into.extend((0..length).map(|_| self.next(256) as u8));
            }
        }
        // Half messages.
        if !is_whole && self.next(16) == 0 {
            let cut = self.next(into.len() as u64 + 1) as usize;
            into.truncate(cut);
        }
    }
}

fn manifest(guest: usize) -> Manifest {
    let cpus = |vcpu: u16| CpuSet::from([2 * guest as u32 + u32::from(vcpu)]);
    let is_hostile = guest < HOSTILE;
    Manifest {
        name: format!("guest{guest}"),
        vcpus: (0..2).map(|vcpu| (vcpu, cpus(vcpu))).collect(),
        min_frequency: is_hostile.then(|| Hertz::new(1_000_000_000)),
        max_frequency: is_hostile.then(|| Hertz::new(2_700_000_000)),
        may_limit_idle: !is_hostile,
        may_query: true,
        requests_per_second: if is_hostile { RATE } else { 10_000 },
        channels: 2,
    }
}

/// Resident memory in bytes.
#[expect(clippy::disallowed_methods, reason = "the test looks at itself")]
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[test]
fn hostile_guests_reach_nothing_and_stop_nobody() {
    let wanted: u64 = std::env::var("APUS_HOSTILE_MESSAGES").map_or(200_000, |text| text.parse().unwrap());
    let domains = (0..2 * HOSTILE as u32 + 2)
        .map(|cpu| Domain { policy: cpu, cpus: CpuSet::from([cpu]), steps: STEPS.to_vec(), nominal: None })
        .collect();
    let mut now: Instant<Monotonic> = Instant::ORIGIN;
    let mut server = Server::new(domains, (0..=HOSTILE).map(manifest).collect(), now);
    let mut machine = Machine::default();
    for guest in 0..=HOSTILE {
        let places = (0..2).map(|vcpu| (vcpu, Place::Pinned(2 * guest as u32 + u32::from(vcpu)))).collect();
        server.place(now, guest, &places, &mut machine);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut message, mut sent, mut polite) = (Vec::with_capacity(1_024), 0_u64, 0_u64);
    let mut before = 0;
    while sent < wanted {
        let guest = random.next(HOSTILE as u64) as usize;
        let channel = random.next(2) as usize;
        random.message(guest < HOSTILE / 2, &mut message);
        now = now + Nanos::from_micros(random.next(200));
        server.receive(now, guest, channel, &message, &mut machine);
        sent += 1;
        // One guest never reads; the others sometimes.
        if guest > 0 && random.next(4) == 0 {
            let waiting = server.outgoing(guest, channel).len();
            server.sent(guest, channel, waiting);
        }
        assert!(server.outgoing(guest, channel).len() <= OUTBOX);
        if sent.is_multiple_of(1_000) {
            server.tick(now, &mut machine);
            // The neighbour is answered at once, and gets what it asks for.
            let (ask, khz) = [("min", "800000"), ("max", "3000000")][(sent / 1_000 % 2) as usize];
            server.receive(now, HOSTILE, 0, format!("apus/1 {sent} {ask} vcpu=1\n").as_bytes(), &mut machine);
            let answer = String::from_utf8(server.outgoing(HOSTILE, 0).to_vec()).unwrap();
            assert!(answer.starts_with(&format!("apus/1 {sent} granted vcpu=1 khz={khz} ")), "{answer}");
            server.sent(HOSTILE, 0, answer.len());
            assert_eq!(machine.fixed[&(2 * HOSTILE as u32 + 1)], Some(khz.parse().unwrap()));
            polite += 1;
        }
        if sent == wanted / 10 {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before);
    let seconds = now.since(Instant::ORIGIN).unwrap().as_nanos() / 1_000_000_000 + 1;
    let most = 2 * (seconds + 1) * u64::from(RATE) * HOSTILE as u64;
    let counts = (0..HOSTILE).map(|guest| server.counts(guest));
    let (taken, over, unread) =
        counts.fold((0, 0, 0), |sum, one| (sum.0 + one.messages, sum.1 + one.over_rate, sum.2 + one.unread));
    println!(
        "{sent} pieces in {seconds} s of virtual time: {taken} messages, {over} above the rate, {unread} answers unread; \
         {} changes (at most {most}), {} records, {polite} requests of the neighbour granted; memory grew by {grown} bytes",
        machine.changes, machine.records
    );
    assert!(machine.changes > 0 && machine.changes <= most);
    // Requests within the rate, as many queries, and at each tick a number for what was above it.
    let ticks = polite * HOSTILE as u64;
    assert!(machine.records <= 2 * (seconds + 1) * u64::from(RATE) * HOSTILE as u64 + polite + ticks + 100);
    assert!(grown < 1 << 20, "memory grew by {grown} bytes");
}
