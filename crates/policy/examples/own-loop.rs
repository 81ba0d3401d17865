//! A poll loop of your own, with the crate `policy` alone: a UDP socket on the loopback interface, and a thread that sends.
//!
//! The loop has the clock and does the waiting; the policy only decides.

#![allow(clippy::disallowed_methods)] // the loop has the clock, not the policy

use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant as Clock};

use policy::wait::{Action, Arrivals, Ended, Mode, Observation, Queue, WaitKind, WaitPolicy};
use units::{Instant, Monotonic, Nanos};

fn main() -> std::io::Result<()> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_nonblocking(true)?;
    let to = server.local_addr()?;
    let sender = std::thread::spawn(move || -> std::io::Result<()> {
        let client = UdpSocket::bind("127.0.0.1:0")?;
        for _ in 0..500 {
            client.send_to(b"packet", to)?;
            sleep(Duration::from_micros(400));
        }
        client.send_to(b"stop", to)?;
        Ok(())
    });

    // Sleeps alone: a block would need poll(2), which the standard library lacks.
    let mode: Mode = "adaptive=p99=300us".parse().expect("a mode");
    let mode = match mode {
        Mode::Adaptive(config) => Mode::Adaptive(policy::wait::AdaptiveConfig { interrupts: false, ..config }),
        other => other,
    };
    let mut policy = mode.policy::<Monotonic>();
    let start = Clock::now();
    let now = || Instant::<Monotonic>::from_nanos(start.elapsed().as_nanos() as u64 + 1);
    let (mut packets, mut waits, mut running) = (0u64, [0u64; WaitKind::ALL.len()], true);
    let (mut polled_before, mut ended, mut data) = (now(), None, [0; 2048]);
    while running {
        let picked_up = now();
        let mut received = 0;
        while let Ok((length, _)) = server.recv_from(&mut data) {
            received += 1;
            running &= &data[..length] != b"stop";
        }
        packets += u64::from(received);
        // The socket gives no time stamps: what came, came after the poll before.
        let arrivals = (received > 0).then(|| Arrivals::unstamped(polled_before, picked_up));
        polled_before = picked_up;
        let queue = Queue { received, fill: received, arrivals };
        let began = now();
        let decision = policy.decide(&Observation { now: began, queues: &[queue], ended });
        waits[decision.action.kind() as usize] += 1;
        ended = match decision.action.until(began) {
            Some(until) if decision.action != Action::Poll => {
                sleep(Duration::from_nanos(until.since(now()).unwrap_or(Nanos::ZERO).as_nanos()));
                // The cost is not measured here; the policy then takes the time that a wait ends late.
                Some(Ended { action: decision.action, began, ended: now(), spent: None, idle: Nanos::ZERO })
            }
            _ => None,
        };
    }
    sender.join().expect("the sender's thread")?;
    print!("{packets} packets;");
    for kind in WaitKind::ALL {
        print!(" {kind} {}", waits[kind as usize]);
    }
    println!();
    Ok(())
}
