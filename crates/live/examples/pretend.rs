//! Workers that pretend: to look at `apus top` and `apus metrics` without a network.
//!
//! `cargo run -p live --example pretend -- DIR [WORKERS]`, then `apus top --telemetry DIR`.

use std::path::PathBuf;
use std::time::Duration;

use live::device::{Health, Statistics};
use live::telemetry::{DropReason, Identity, State, Telemetry};
use policy::wait::{Reason, WaitKind};
use units::{Instant, Nanos};

fn main() -> Result<(), live::Error> {
    let mut words = std::env::args().skip(1);
    let root = PathBuf::from(words.next().unwrap_or_else(|| live::telemetry::ROOT.to_owned()));
    let number = words.next().and_then(|n| n.parse().ok()).unwrap_or(2);
    let workers = (0..number).map(|n| Telemetry::create(&root, &identity(n))).collect::<Result<Vec<_>, _>>()?;
    let began = std::time::Instant::now();
    for round in 0u64.. {
        for (number, worker) in workers.iter().enumerate() {
            pretend(worker, round * 7 + number as u64);
            // The origin of std's clock is not public; telemetry compares this with CLOCK_MONOTONIC.
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            worker.touch(Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64));
        }
        if began.elapsed() > Duration::from_secs(3600) {
            break;
        }
        std::thread::sleep(Duration::from_micros(350));
    }
    Ok(())
}

fn identity(worker: u32) -> Identity {
    Identity {
        instance: "pretend".to_owned(),
        worker,
        app: "l2fwd".to_owned(),
        mode: "adaptive".to_owned(),
        goal: Some("p99.9=50us".to_owned()),
        ports: vec!["veth0".to_owned(), "veth1".to_owned()],
        cpu: Some(worker),
    }
}

fn pretend(worker: &Telemetry, n: u64) {
    worker.state(State::Running);
    worker.polled(n.is_multiple_of(3));
    worker.received(4, 4 * 128);
    worker.sent(4 - u64::from(n.is_multiple_of(50)), 3 * 128);
    if n.is_multiple_of(50) {
        worker.dropped(DropReason::NoRoute, 1);
    }
    worker.decided(if n.is_multiple_of(5) { Reason::Traffic } else { Reason::Periodic });
    worker.waited(WaitKind::Sleep, Nanos::from_micros(250));
    worker.waited(WaitKind::Pause, Nanos::from_micros(30));
    worker.waited(WaitKind::Block, Nanos::from_micros(15));
    worker.busy(Nanos::from_micros(40));
    for frame in 0..4 {
        worker.picked_up(Nanos::from_nanos(2_000 + (n * 2_654_435_761 + frame * 977) % 9_000));
        worker.served(Nanos::from_nanos(400));
    }
    worker.device(0, Statistics::default(), Some(Health::Up));
    worker.device(1, Statistics { rx_ring_full: n / 1_000, ..Statistics::default() }, Some(Health::Up));
}
