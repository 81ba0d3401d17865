//! S4.1: flood ping and iperf on a 40 Gbit/s card that interrupts 8,000 times a second.

use units::Nanos;

use super::{Figure, Input, Kind, Row, Summary, Theirs, inputs_of, us};
use crate::At;
use crate::hw::interrupt::{Moderation, ModerationModel};
use crate::hw::spread::Spread;
use crate::machine::{Machine, MachineError};
use crate::random::Random;

const DOCUMENT: &str = "ixl 40G bad performance (FreeBSD, 2015)";
/// "41927 packets transmitted".
const PINGS: u64 = 41_927;
/// The round trip on the 10 Gbit/s card of the same machines: the row that the path is set by.
const PATH: Nanos = Nanos::from_micros(17);
/// From the kernel's reception of the reply to the next request's time stamp: wake-up and return of
/// `ping`, two characters written to a terminal, two system calls.
const TURNAROUND: Nanos = Nanos::from_micros(6);
/// Linux, dynamic ITR at its lowest latency (`I40E_LOWEST_LATENCY`).
const LINUX_ITR: Nanos = Nanos::from_micros(20);
/// Idle exits on an untuned Linux: responder's interrupt, sender's interrupt, sender's process.
const LINUX_EXITS: u64 = 3;
/// FreeBSD's receive buffer, `net.inet.tcp.recvspace`: what may be under way.
const WINDOW: u64 = 65_536;
/// TCP payload of a full frame, with time stamps, and its octets on the wire.
const PAYLOAD: u64 = 1_448;
const ON_WIRE: u64 = 1_538;

pub(super) fn figure(seed: u64) -> Result<Figure, MachineError> {
    let (fast, slow) = (Machine::named("xl710")?, Machine::named("82599")?);
    let host = Machine::named("xeon-e5-2699v3")?;
    let itr = fast.nic()?.rx_moderation.interval;
    let disturbance = host.processor()?.disturbance;
    let c1e = host.processor()?.cstates.states.iter().find(|s| s.name == "C1E").map_or(Nanos::ZERO, |s| s.stated_exit);
    let ping = |interval, path| flood_ping(interval, path, disturbance.takes, seed);
    // Adaptive moderation of the 10 Gbit/s card: below the round trip for such small frames.
    let ix = ping(Nanos::ZERO, PATH);
    let ixl = ping(itr, PATH);
    let linux = ping(LINUX_ITR, PATH + c1e * LINUX_EXITS);
    let row = |case: &str, quantity, kind| Row::predicted(case, quantity, "us", kind);
    let noise = format!(
        "The two extremes lie as far from the average as one delay of the sender or of the responder, about 30 us in \
         theirs; the model's disturbance, {}, is that of a tuned Linux, as FreeBSD's is not known.",
        disturbance.takes.typical()
    );
    let rows = vec![
        row("40G, FreeBSD", "flood ping, average", Kind::Typical).theirs(Theirs::Value(116.0)).modelled(us(ixl.average())),
        row("40G, FreeBSD", "flood ping, minimum", Kind::Extreme)
            .theirs(Theirs::Value(84.0))
            .modelled(us(ixl.least()))
            .because(noise.clone()),
        row("40G, FreeBSD", "flood ping, maximum", Kind::Extreme)
            .theirs(Theirs::Value(145.0))
            .modelled(us(ixl.most()))
            .because(noise.clone()),
        row("10G, FreeBSD", "flood ping, average", Kind::Typical)
            .theirs(Theirs::Value(17.0))
            .modelled(us(ix.average()))
            .calibrated(),
        row("40G, Linux 4.3", "flood ping, average", Kind::Typical)
            .theirs(Theirs::Value(52.0))
            .modelled(us(linux.average())),
        row("40G, FreeBSD, 20 k interrupts/s", "flood ping, average", Kind::Typical)
            .modelled(us(ping(Nanos::from_micros(50), PATH).average())),
        row("40G, FreeBSD, 50 k interrupts/s", "flood ping, average", Kind::Typical)
            .modelled(us(ping(Nanos::from_micros(20), PATH).average())),
        iperf("40G, FreeBSD", 3.36, window_rate(itr, fast.nic()?.link.rate.as_bps())).because(
            "Window over throttling alone: the hosts' own work on 45 segments a round is not in it, because the processor is \
             not named (one core was half busy with it).",
        ),
        iperf("10G, FreeBSD", 9.39, window_rate(slow.nic()?.rx_moderation.interval, slow.nic()?.link.rate.as_bps())),
        Row::predicted("40G, Linux 4.3", "iperf", "Gbit/s", Kind::Typical).theirs(Theirs::Value(13.1)).because(
            "Not modelled: neither its window nor its moderation bounds Linux here, but the processor, which is not named.",
        ),
        Row::predicted("40G, FreeBSD", "interrupt thread", "% of a CPU", Kind::Typical)
            .theirs(Theirs::Value(51.0))
            .because("Not modelled: FreeBSD's cost of a segment is not known."),
    ];
    let mut inputs = inputs_of(&fast, &["nic.rx_moderation.interval", "nic.interval_granularity"]);
    inputs.extend(inputs_of(&slow, &["nic.rx_moderation.interval"]));
    inputs.extend(inputs_of(&host, &["processor.disturbance", "processor.idle.C1E.stated_exit"]));
    inputs.push(Input::new(
        "path without moderation",
        PATH.to_string(),
        "calibrated on the same document: 17 us on the 10 Gbit/s card",
    ));
    inputs.push(Input::new(
        "reply to next request",
        TURNAROUND.to_string(),
        "estimate: wake-up and return 3 us, two characters to the terminal 2 us, time stamp and call 1 us",
    ));
    inputs.push(Input::new(
        "Linux: throttling",
        LINUX_ITR.to_string(),
        "Linux drivers/net/ethernet/intel/i40e/i40e_txrx.c: up to 10 MB/s 50000 interrupts a second (ITR_50K, 0x0A in units of 2 us)",
    ));
    inputs.push(Input::new(
        "Linux: idle exits a round trip",
        format!("{LINUX_EXITS}, from C1E"),
        "assumption: an untuned host idles; the menu governor takes C1E for periods of 20 to 100 us",
    ));
    inputs.push(Input::new(
        "window",
        format!("{WINDOW} octets"),
        "FreeBSD tcp(4), net.inet.tcp.recvspace: 65536; recalled",
    ));
    Ok(Figure {
        id: "s4.1",
        title: "Flood ping and iperf with 8,000 interrupts a second",
        document: DOCUMENT,
        method: "Ping: a closed loop of two hosts whose receive interrupts are throttled. The sender's next interrupt cannot \
                 come earlier than one interval after its last, so that the round trip becomes the interval less what the \
                 sender needs from a reply to its next request. Iperf: at most a window in each interval, or line rate. The \
                 path without moderation is calibrated on the 10 Gbit/s card's 17 us; the rest is predicted. The very \
                 first ping, which finds both queues at rest, is left out."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

fn iperf(case: &str, theirs: f64, modelled: f64) -> Row {
    Row::predicted(case, "iperf", "Gbit/s", Kind::Typical).theirs(Theirs::Value(theirs)).modelled(modelled)
}

/// Payload in Gbit/s: a window in each round, or what the line carries.
fn window_rate(interval: Nanos, line: u64) -> f64 {
    let round = interval.max(PATH).as_nanos() as f64;
    let line = line as f64 / 1e9 * PAYLOAD as f64 / ON_WIRE as f64;
    (WINDOW as f64 * 8.0 / round).min(line)
}

/// Round trips as `ping -f` sees them.
fn flood_ping(interval: Nanos, path: Nanos, disturbance: Spread, seed: u64) -> Summary {
    let mut random = Random::stream(seed, 41);
    let throttled = || Moderation::new(ModerationModel::throttled(interval));
    let (mut sender, mut responder) = (throttled(), throttled());
    let fire = |queue: &mut Moderation, at: At| {
        queue.frame(at);
        let fires = queue.poll_at().unwrap_or(at);
        queue.fire(fires);
        fires
    };
    // A disturbance a second, on either host.
    let per_million = (path + interval).as_nanos() / 1_000;
    let noise = |random: &mut Random| {
        let jitter = random.normal(Nanos::from_nanos(500), Nanos::from_nanos(250));
        jitter + if random.chance(per_million as u32) { disturbance.sample(random) } else { Nanos::ZERO }
    };
    let (mut now, mut seen) = (At::from_nanos(1_000_000), Summary::default());
    let half = (path / 2).saturating_sub(Nanos::from_nanos(500));
    for ping in 0..PINGS {
        let sent = now;
        let answered = fire(&mut responder, sent + half) + noise(&mut random);
        let received = fire(&mut sender, answered + half) + noise(&mut random);
        // The first meets two queues that have not interrupted yet.
        if ping > 0 {
            seen.add(received.since(sent).unwrap_or(Nanos::ZERO));
        }
        now = received + TURNAROUND + noise(&mut random);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_is_the_interval_less_the_turnaround() {
        let none = Spread::exactly(Nanos::ZERO);
        let average = |us: u64| flood_ping(Nanos::from_micros(us), PATH, none, 1).average() / 1_000.0;
        assert!((116.0..119.0).contains(&average(124)), "{}", average(124));
        assert!((16.5..17.5).contains(&average(0)), "{}", average(0));
        // Short of the path, throttling does not matter.
        assert!((average(10) - average(0)).abs() < 0.2);
    }
}
