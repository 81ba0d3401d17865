//! S0.6: a forwarder whose core changes frequency ten times a second; one dot a second.

use std::collections::VecDeque;

use units::{Cycles, Hertz, Nanos, PacketRate};

use super::polled::{Core, Forwarder, Load};
use super::{Figure, Input, Kind, Plot, Row, Summary, Theirs, inputs_of, us};
use crate::At;
use crate::hw::pstate::PState;
use crate::machine::{Machine, MachineError, Processor};
use crate::random::Random;

/// Seconds of the figure.
const SECONDS: u64 = 200;
/// Requests a second.
const REQUESTS: u64 = 10;
/// Frames a second: 10 % of 10 Gbit/s, which the lowest frequency forwards without a queue.
const RATE: PacketRate = PacketRate::new(1_488_095);
/// The write itself, in the interrupt's handler: a serialising instruction of microcode, and the return.
const REGISTER_WRITE: Cycles = Cycles::new(600);
/// What is looked at before and after each request and each change; the rest is as quiet as that.
const BEFORE: Nanos = Nanos::from_micros(20);
const AFTER: Nanos = Nanos::from_micros(100);

pub(super) fn figure(seed: u64) -> Result<Figure, MachineError> {
    let nic = Machine::named("xl710")?;
    let generations = [("2nd Generation", "xeon-platinum-8260l"), ("3rd Generation", "xeon-platinum-8360y")];
    let (mut rows, mut plots, mut inputs) =
        (Vec::new(), Vec::new(), inputs_of(&nic, &["nic.receive", "nic.transmit", "nic.jitter", "nic.bus"]));
    for (number, (case, name)) in generations.into_iter().enumerate() {
        let machine = Machine::named(name)?;
        let dots = dots(machine.processor()?, &nic, RATE, SECONDS, seed ^ number as u64)?;
        let second = number == 0;
        let (least, most) =
            if second { (Theirs::AtLeast(22.0), Theirs::Value(36.0)) } else { (Theirs::Nothing, Theirs::AtMost(9.0)) };
        let row = |quantity| Row::predicted(case, quantity, "us", Kind::Extreme);
        let lowest = row("least of the maxima of a second").theirs(least).modelled(us(dots.least()));
        rows.push(if second {
            lowest.because(
                "Block and path: the block is theirs; the path of their testbed is longer than the model's (their 3rd \
                 generation ends at 9 us) and their load, which lengthens the burst after a block, is not known.",
            )
        } else {
            lowest
        });
        let highest = row("highest maximum of a second").theirs(most).modelled(us(dots.most()));
        rows.push(if second {
            highest.because(
                "The model has one block of 12 us a change. Dots above it need a second disturbance in the same moment \
                 (a block that is longer at times, an interrupt, the generator itself), of which the document says \
                 nothing.",
            )
        } else {
            highest
        });
        rows.push(Row::predicted(case, "median of the maxima", "us", Kind::Typical).modelled(us(dots.median())));
        plots.push(plot(case, second, &dots));
        let paths = ["processor.pstates", "processor.work", "processor.delivery.entry"];
        inputs.extend(inputs_of(&machine, &paths));
    }
    // How much of it is the load that had to be assumed.
    for rate in [PacketRate::new(148_810), PacketRate::new(4_464_286)] {
        let machine = Machine::named("xeon-platinum-8260l")?;
        let dots = dots(machine.processor()?, &nic, rate, SECONDS / 10, seed)?;
        let case = format!("2nd Generation, {rate}");
        rows.push(Row::predicted(case, "median of the maxima", "us", Kind::Typical).modelled(us(dots.median())));
    }
    let assumed = "assumption: the document does not say; the sensitivity stands in the last rows";
    inputs.push(Input::new("offered", format!("{RATE}, 64 octets, 10 Gbit/s"), assumed));
    inputs.push(Input::new(
        "write to the request register",
        format!("{} cycles", REGISTER_WRITE.count()),
        "estimate: WRMSR takes some hundred cycles (microcode, serialising), and the interrupt returns",
    ));
    inputs.push(Input::new(
        "frequencies",
        "the lowest, and the base frequency",
        "assumption: the document does not say; section 4.3 uses the same two",
    ));
    Ok(Figure {
        id: "s0.6",
        title: "Latency of forwarded traffic while the core changes frequency ten times a second",
        document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4.2, figures 6 and 7",
        method: format!(
            "{SECONDS} seconds with {REQUESTS} requests each, at random phases against the sequencing timer; a request \
             interrupts the forwarding core (a write to its register from another core is an inter-processor \
             interrupt). Frames are simulated around each request and each change; between them nothing differs. A \
             frame that comes as a block begins waits for all of it, and then for the burst that it is taken with."
        ),
        inputs,
        rows,
        plots,
    })
}

/// The maximum of each second, in nanoseconds.
struct Dots(Vec<u64>);

impl Dots {
    fn sorted(&self) -> Vec<u64> {
        let mut all = self.0.clone();
        all.sort_unstable();
        all
    }
    fn least(&self) -> f64 {
        self.sorted()[0] as f64
    }
    fn median(&self) -> f64 {
        self.sorted()[self.0.len() / 2] as f64
    }
    fn most(&self) -> f64 {
        self.sorted()[self.0.len() - 1] as f64
    }
}

fn dots(processor: &Processor, nic: &Machine, rate: PacketRate, seconds: u64, seed: u64) -> Result<Dots, MachineError> {
    // The controller of the 40 Gbit/s card on a 10 Gbit/s link, as the 700 series has both.
    let mut nic = nic.nic()?.clone();
    nic.link.rate = units::BitRate::new(10_000_000_000);
    let forwarder = Forwarder { nic: &nic, work: processor.work, octets: 64 };
    let mut random = Random::stream(seed, 60);
    let (low, high) = (processor.pstates.lowest, processor.base);
    let interval = Nanos::from_secs(1) / REQUESTS;
    let phase = At::from_nanos(random.below(processor.pstates.period.as_nanos()));
    let mut pstate = PState::new(processor.pstates, high, phase).expect("a machine's P-states are sound");
    let mut maxima = Vec::new();
    for second in 0..seconds {
        let mut seen = Summary::default();
        for request in 0..REQUESTS {
            let nth = second * REQUESTS + request;
            // The writer's own clock is not in step with the timer.
            let at = At::from_nanos(1_000_000) + interval * nth + random.uniform(Nanos::ZERO, Nanos::from_millis(5));
            let interrupt = interruption(processor, pstate.frequency());
            let wanted: Hertz = if nth.is_multiple_of(2) { low } else { high };
            let begin = at.before(BEFORE).unwrap_or(At::ORIGIN);
            let mut core = Core { pstate, stalls: VecDeque::from([(at, interrupt)]) };
            core.pstate.request(at, wanted);
            let due = core.pstate.poll_at().unwrap_or(at);
            // One stretch around both, or one each if they are far apart.
            let apart = due.since(at).is_some_and(|gap| gap > BEFORE + AFTER);
            let end = if apart { at + AFTER } else { due + AFTER };
            let mut stretch = |core: &mut Core, begin: At, end: At| {
                let span = end.since(begin).unwrap_or(Nanos::ZERO);
                let frames = span.as_nanos() * rate.as_pps() / 1_000_000_000;
                let from = begin + random.uniform(Nanos::ZERO, rate.time_for(1));
                let load = Load { from, spacing: (1_000_000_000, rate.as_pps()), frames };
                forwarder.forward(core, load, &mut random, |_, latency| seen.add(latency));
            };
            stretch(&mut core, begin, end);
            if apart {
                stretch(&mut core, due.before(BEFORE).unwrap_or(at), due + AFTER);
            }
            core.pstate.poll(due);
            pstate = core.pstate;
        }
        maxima.push(seen.most() as u64);
    }
    Ok(Dots(maxima))
}

/// What a write to the core's register takes from it: an interrupt, and the write.
fn interruption(processor: &Processor, frequency: Hertz) -> Nanos {
    processor.delivery.entry / frequency + REGISTER_WRITE / frequency
}

fn plot(case: &str, second: bool, dots: &Dots) -> Plot {
    let points = dots.0.iter().enumerate().map(|(i, &most)| (i as f64 + 1.0, us(most as f64))).collect();
    let lines = if second {
        vec![("document: all above 22 us".to_owned(), 22.0), ("document: up to 36 us".to_owned(), 36.0)]
    } else {
        vec![("document: none above 9 us".to_owned(), 9.0)]
    };
    Plot {
        title: format!("{case}: maximum of each second"),
        x: ("time", "s"),
        y: ("maximum latency", "us"),
        points,
        lines,
    }
}
