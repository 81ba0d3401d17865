//! S4.1: flood ping and iperf on a 40 Gbit/s card that raises 8,000 interrupts per second.

use units::Nanos;

use super::setup::{Loop, closed_loop, distance_for, mean};
use super::tuning::{Knob, Tuning};
use super::{FigureError, Input, Kind, Made, Plan, Role, Row, Theirs, inputs_of, us};
use crate::machine::Machine;

/// The round trip through the 10 Gbit/s card of the same machines. The path's delay is fitted to this round trip.
const PATH: &str = "path without moderation";
const PATH_US: f64 = 17.0;
/// Time from the kernel's reception of the reply to the timestamp of the next request: wake-up and return of `ping`,
/// two characters written to a terminal, two system calls.
const TURNAROUND: &str = "reply to next request";
const TURNAROUND_US: f64 = 6.0;
/// Inputs of the Linux row: the dynamic ITR at its lowest latency, and the responder's exit from idle.
const LINUX_ITR: &str = "Linux: throttling";
const LINUX_ITR_US: f64 = 20.0;
const LINUX_EXIT: &str = "Linux: the responder's idle exit";
/// The TCP window that iperf printed: "TCP window size: 32.5 KByte (default)".
const WINDOW: &str = "window";
const WINDOW_OCTETS: f64 = 32.5 * 1_024.0;
/// TCP payload of a full frame with timestamps, in bytes, and the bytes of that frame on the wire.
const PAYLOAD: f64 = 1_448.0;
const ON_WIRE: f64 = 1_538.0;

pub(super) const PLAN: Plan = Plan {
    id: "s4.1",
    title: "Flood ping and iperf with 8,000 interrupts a second",
    document: "ixl 40G bad performance (FreeBSD, 2015)",
    null_model: Some("the least interval between interrupts"),
    knobs: &[
        Knob::stated("nic.rx_moderation.interval"),
        Knob::fitted(PATH),
        Knob::estimate(TURNAROUND),
        Knob::assumption(LINUX_EXIT),
        Knob::stated(WINDOW),
    ],
    make,
};

/// The scenario of the host that sends pings: a reply arrives, `ping` reads it and sends the next request.
fn text(nic: &str, settings: &str, tuning: &Tuning) -> String {
    // Converted to cycles at 2.3 GHz.
    let cycles = TURNAROUND_US * tuning.factor(TURNAROUND) * 2_300.0;
    format!(
        "machine = \"xeon-e5-2699v3\"\nnic = \"{nic}\"\nwarm_up = \"10ms\"\nduration = \"{}ms\"\n\
         [[traffic]]\nkind = \"request\"\nframe = 102\ndistance = \"DISTANCE\"\n\
         [worker]\ndriver = \"kernel\"\napplication = \"{cycles:.0}cycles\"\n{settings}",
        tuning.count(1_000, 100)
    )
}

fn make(seed: u64, tuning: &Tuning) -> Result<Made, FigureError> {
    let (fast, slow) = (Machine::named("xl710")?, Machine::named("82599")?);
    let host = Machine::named("xeon-e5-2699v3")?;
    let turnaround = TURNAROUND_US * tuning.factor(TURNAROUND);
    let c1 = "[idle]\ndeepest = \"C1\"\n";
    // The adaptive moderation of the 10 Gbit/s card is shorter than the round trip of such small frames, so it is off.
    let free = text("82599", &format!("{c1}[moderation]\npolicy = \"off\"\n"), tuning);
    let way = distance_for(&free, PATH_US * tuning.factor(PATH) + turnaround, tuning, seed)?;
    let ping = |settings: &str, more: Nanos| {
        let seen = closed_loop(&text("xl710", settings, tuning), way + more, tuning, seed)?;
        Ok::<Ping, FigureError>(Ping::of(&seen, turnaround))
    };
    let throttled = |us: f64| format!("[moderation]\npolicy = \"static\"\ninterval = \"{:.0}ns\"\n", us * 1_000.0);
    let ix = Ping::of(&closed_loop(&free, way, tuning, seed)?, turnaround);
    let ixl = ping(c1, Nanos::ZERO)?;
    let itr = us(fast.nic()?.rx_moderation.interval.as_nanos() as f64) * tuning.factor("nic.rx_moderation.interval");
    let c1e = host.processor()?.cstates.states.iter().find(|state| state.name == "C1E");
    let exit = tuning.nanos(LINUX_EXIT, c1e.map_or(Nanos::ZERO, |state| state.stated_exit));
    let linux = ping(&throttled(LINUX_ITR_US), exit / 2)?;
    let row = |role, case: &str, quantity, kind, value| Row::new(role, case, quantity, "us", kind).modelled(value);
    let noise = "The two extremes lie as far from the average as one delay of the sender or of the responder, about 30 us in \
                 theirs; the model's tick is that of a tuned Linux, as FreeBSD's is not known.";
    let own = |text: &str, us: f64| -> Result<Row, FigureError> {
        let average = ping(&format!("{c1}{}", throttled(us)), Nanos::ZERO)?.average;
        Ok(row(Role::Simulated, text, "flood ping, average", Kind::Typical, average))
    };
    let rows = vec![
        row(Role::Simulated, "40G, FreeBSD", "flood ping, average", Kind::Typical, ixl.average)
            .theirs(Theirs::Value(116.0))
            .null(itr),
        row(Role::Simulated, "40G, FreeBSD", "flood ping, minimum", Kind::Extreme, ixl.least)
            .theirs(Theirs::Value(84.0))
            .null(itr)
            .because(noise),
        row(Role::Simulated, "40G, FreeBSD", "flood ping, maximum", Kind::Extreme, ixl.most)
            .theirs(Theirs::Value(145.0))
            .null(itr)
            .because(noise),
        row(Role::Calibrated, "10G, FreeBSD", "flood ping, average", Kind::Typical, ix.average)
            .theirs(Theirs::Value(PATH_US)),
        row(Role::Assumption, "40G, Linux 4.3", "flood ping, average", Kind::Typical, linux.average)
            .theirs(Theirs::Value(52.0))
            .because(
                "Assumed: dynamic throttling at its lowest latency, which is shorter than the path and adds nothing; the menu \
                 governor on the host that pings; one exit from C1E on the other. What else an untuned Linux host does per \
                 round trip is not stated.",
            ),
        own("40G, FreeBSD, 20 k interrupts/s", 50.0)?,
        own("40G, FreeBSD, 50 k interrupts/s", 20.0)?,
        iperf("40G, FreeBSD", 3.36, WINDOW_OCTETS * tuning.factor(WINDOW) * 8.0 / (itr * 1_000.0)).because(
            "The window that iperf prints, once an interval. That window is the send buffer's at the start, which FreeBSD lets \
             grow (net.inet.tcp.sendbuf_auto; recalled): 51 KB would give their rate.",
        ),
        iperf("10G, FreeBSD", 9.39, slow.nic()?.link.rate.as_bps() as f64 / 1e9 * PAYLOAD / ON_WIRE),
        Row::new(Role::Simulated, "40G, Linux 4.3", "iperf", "Gbit/s", Kind::Typical).theirs(Theirs::Value(13.1)).because(
            "Not modelled: neither its window nor its moderation bounds Linux here, but the processor, which is not named.",
        ),
        Row::new(Role::Simulated, "40G, FreeBSD", "interrupt thread", "% of a CPU", Kind::Typical)
            .theirs(Theirs::Value(51.0))
            .because("Not modelled: FreeBSD's cost of a segment is not known."),
    ];
    let mut inputs = inputs_of(&fast, &["nic.rx_moderation.interval", "nic.tx_moderation.interval"]);
    inputs.extend(inputs_of(&host, &["processor.disturbance", "processor.idle.C1E.stated_exit"]));
    inputs.push(Input::new(
        PATH,
        format!("{PATH_US} us, of which {way} one way to the other host"),
        "calibrated on the same document: 17 us on the 10 Gbit/s card",
    ));
    inputs.push(Input::new(
        TURNAROUND,
        format!("{TURNAROUND_US} us"),
        "estimate: wake-up and return 3 us, two characters to the terminal 2 us, time stamp and call 1 us",
    ));
    inputs.push(Input::new(
        LINUX_ITR,
        format!("{LINUX_ITR_US} us"),
        "Linux drivers/net/ethernet/intel/i40e/i40e_txrx.c: up to 10 MB/s 50000 interrupts a second (ITR_50K, 0x0A in units of 2 us); \
         that it was there in 4.3 and on is an assumption",
    ));
    inputs.push(Input::new(
        LINUX_EXIT,
        "10 us, once a round trip",
        "assumption: an untuned host idles; the menu governor takes C1E for periods of 20 to 100 us",
    ));
    inputs.push(Input::new(
        WINDOW,
        "32.5 KB",
        "ixl 40G bad performance (FreeBSD, 2015): TCP window size: 32.5 KByte (default)",
    ));
    Ok(Made {
        method: "Ping: a closed loop, one request at a time, of the world's host, which pings, with another that stands for a \
                 delay. The sender's next interrupt cannot come earlier than one interval after its last, so that the round \
                 trip becomes the interval less what the sender needs from a reply to its next request. That delay is \
                 calibrated on the 10 Gbit/s card's 17 us. A transmit interrupt polls the receive ring, too. At 244 us it \
                 comes just behind every second receive interrupt (124 us) and finds no reply; with a receive interval \
                 20 % longer or shorter it comes in between, and every second or third round trip is short \
                 (sensitivity). Iperf is arithmetic: a window each interval on the 40 Gbit/s \
                 card, what the line carries on the other."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

/// Round trips as `ping -f` sees them, in microseconds.
struct Ping {
    least: f64,
    average: f64,
    most: f64,
}

impl Ping {
    /// One turn of the loop is a round trip plus the sender's turnaround. Only the host's latency varies from turn to
    /// turn.
    fn of(seen: &Loop, turnaround: f64) -> Self {
        let latency = &seen.outcome.latency;
        let average = seen.turn - turnaround;
        let rest = average - mean(latency);
        let nanos = |span: Option<Nanos>| us(span.unwrap_or(Nanos::ZERO).as_nanos() as f64);
        Self { least: nanos(latency.least()) + rest, average, most: nanos(latency.most()) + rest }
    }
}

fn iperf(case: &str, theirs: f64, value: f64) -> Row {
    Row::new(Role::Arithmetic, case, "iperf", "Gbit/s", Kind::Typical).theirs(Theirs::Value(theirs)).modelled(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_is_the_interval_less_the_turnaround() {
        let rows = make(1, &Tuning::SHORT).unwrap().rows;
        let value = |i: usize| rows[i].modelled.unwrap();
        assert!((value(0) - (124.0 - TURNAROUND_US)).abs() < 1.5, "{}", value(0));
        assert!((value(3) - PATH_US).abs() < 0.2, "{}", value(3));
        // An interval shorter than the path does not matter.
        assert!((value(6) - value(3)).abs() < 1.0, "{} {}", value(6), value(3));
    }
}
