//! Any octets as what several guests send in turn, while their vCPUs move: no setting outside the manifests, no frequency
//! outside the limits, bounded answers. The first octet of each step says who, how long after, and what moves.
#![no_main]

use std::collections::BTreeMap;

use host::CpuSet;
use libfuzzer_sys::fuzz_target;
use steer::guests::{Applied, Domain, Manifest, OUTBOX, Outside, Place, Record, Server};
use units::{Hertz, Instant, Nanos};

struct Machine;

impl Outside for Machine {
    fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        assert!(policy <= 4);
        let allowed: &[u32] = if policy == 4 { &[800_000, 1_800_000, 2_600_000] } else { &[1_800_000] };
        assert!(khz.is_none_or(|khz| allowed.contains(&khz)), "policy {policy} at {khz:?}");
        match khz {
            Some(1_800_000) if policy == 1 => Applied::Failed("busy".into()),
            Some(_) if policy == 3 => Applied::Lost("gone".into()),
            Some(_) if policy == 2 => Applied::Settling,
            _ => Applied::InForce,
        }
    }
    fn settled(&mut self, policy: u32, is_over: bool) -> Applied {
        assert_eq!(policy, 2, "no other policy settles");
        if is_over { Applied::Otherwise("limited".into()) } else { Applied::Settling }
    }
    fn limit_idle(&mut self, cpu: u32, _: Option<Nanos>) -> Applied {
        assert!(cpu >= 4, "CPU {cpu} is of guests that may not limit it");
        Applied::InForce
    }
    fn frequency(&mut self, _: u32) -> Option<u32> {
        None
    }
    fn log(&mut self, record: &Record<'_>) {
        assert!(record.why.len() < 1_000 && record.asked.len() < 1_000);
    }
}

fn manifest(guest: u32) -> Manifest {
    let is_free = guest == 2;
    Manifest {
        name: format!("guest{guest}"),
        vcpus: (0..2).map(|vcpu: u16| (vcpu, CpuSet::from([2 * guest + u32::from(vcpu)]))).collect(),
        min_frequency: (!is_free).then(|| Hertz::new(1_000_000_000)),
        max_frequency: (!is_free).then(|| Hertz::new(2_000_000_000)),
        may_limit_idle: is_free,
        may_query: true,
        requests_per_second: 20,
        channels: 2,
    }
}

fuzz_target!(|data: &[u8]| {
    // CPUs 4 and 5 share a clock.
    let domain = |policy: u32, cpus: &[u32]| Domain {
        policy,
        cpus: cpus.iter().copied().collect(),
        steps: vec![800_000, 1_800_000, 2_600_000],
        nominal: (policy == 2).then_some(1_800_000),
    };
    let domains = vec![domain(0, &[0]), domain(1, &[1]), domain(2, &[2]), domain(3, &[3]), domain(4, &[4, 5])];
    let mut now = Instant::ORIGIN;
    let mut server = Server::new(domains, (0..3).map(manifest).collect(), now);
    for step in data.chunks(470) {
        let [who, pause, bytes @ ..] = step else { return };
        let guest = usize::from(*who % 3);
        now = now + Nanos::from_millis(u64::from(*pause));
        let cpu = |vcpu: u32| 2 * guest as u32 + vcpu;
        let places: BTreeMap<u16, Place> = match who / 32 {
            0..=4 => [(0, Place::Pinned(cpu(0))), (1, Place::Pinned(cpu(1)))].into(),
            5 => [(0, Place::Pinned(cpu(1))), (1, Place::Pinned(cpu(1)))].into(),
            6 => [(0, Place::Floating(CpuSet::below(6))), (7, Place::Pinned(u32::from(*pause % 8)))].into(),
            _ => BTreeMap::new(),
        };
        server.place(now, guest, &places, &mut Machine);
        let room = server.may_read(guest, now).min(bytes.len());
        server.receive(now, guest, usize::from(*who / 3 % 2), &bytes[..room], &mut Machine);
        assert!((0..2).all(|channel| server.outgoing(guest, channel).len() <= OUTBOX));
        server.tick(now, &mut Machine);
        match pause % 16 {
            0 => server.forget(now, guest, "reset", &mut Machine),
            1 => server.sent(guest, 0, usize::from(*pause) * 4),
            2 => server.reopened(guest, 0),
            3 => {
                server.pause(&mut Machine);
                server.resume(now, &mut Machine);
            }
            _ => {}
        }
        let _ = server.standing(guest);
    }
});
