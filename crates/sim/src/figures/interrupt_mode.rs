//! S1: interrupt-mode forwarding, over the idle states, and before and after the optimisations.

use units::{Cycles, Hertz, Nanos};

use super::sleeper::{Choice, Seen, Sleeper, Stream};
use super::{Figure, Input, Kind, Row, Theirs, inputs_of, us};
use crate::hw::cstate::CStateModel;
use crate::hw::interrupt::{Affinity, Handling};
use crate::hw::spread::Spread;
use crate::machine::{Machine, MachineError};

const DOCUMENT: &str = "Towards Low Latency Interrupt Mode DPDK (2017), performance evaluation";
/// The core's frequency: the product's, "@ 2.30GHz".
const CLOCK: Hertz = Hertz::new(2_300_000_000);
/// "1 packet every 350 us"; how long the test lasted is not said: three quarters of a minute.
const STREAM: Stream =
    Stream { gap: Nanos::from_micros(350), deviation: Nanos::from_nanos(100), packets: 120_000, octets: 64 };

pub(super) fn idle_states(seed: u64) -> Result<Figure, MachineError> {
    let parts = Parts::new()?;
    let mut rows = Vec::new();
    for (name, state, theirs) in [("C0", "POLL", 14.0), ("C1", "C1", 14.9), ("C3", "C3", 60.9), ("C6", "C6", 87.7)] {
        let mut sleeper = parts.optimised(state)?;
        let seen = sleeper.run(&STREAM, seed);
        let row = average(&format!("maximum C-state {name}"), &seen).theirs(Theirs::Value(theirs));
        // C3: that the deepest state is entered, and not the governor's choice, was decided by this row.
        rows.push(if name == "C0" || name == "C3" { row.calibrated() } else { row });
        if name == "C3" || name == "C6" {
            let warm = Sleeper { cstates: without_refill(&sleeper.cstates), ..parts.optimised(state)? };
            let seen = warm.run(&STREAM, seed);
            rows.push(average(&format!("maximum C-state {name}, caches kept"), &seen).because(
                "Own variant, without the estimate of 10 us for the private caches that the state loses: how much of \
                 the row above hangs on it.",
            ));
            sleeper.choice = Choice::Menu;
            let seen = sleeper.run(&STREAM, seed);
            rows.push(average(&format!("maximum C-state {name}, the menu governor's choice"), &seen).because(
                "Own variant: after 50 us of idleness the governor takes C1E, so that the document's C3 and C6 rows \
                 cannot have come from it on the packet's own core.",
            ));
        }
    }
    let mut inputs = parts.inputs();
    inputs.extend(inputs_of(&parts.host, &["processor.idle"]));
    inputs.push(Input::new(
        "idle state that is entered",
        "the deepest that is allowed",
        "calibrated on the row C3, which needs it; the menu governor's choice stands beside it",
    ));
    let window = parts.optimised("C1")?.window();
    inputs.push(Input::new(
        "the loop polls on for",
        window.to_string(),
        "computed: l3fwd-power's 300 empty polls (10 free, the others with a pause of 1 us) at this core's poll",
    ));
    Ok(Figure {
        id: "s1-idle",
        title: "Interrupt-mode forwarding latency over the deepest allowed idle state",
        document: DOCUMENT,
        method:
            "A closed loop: one packet every 350 us; the application polls on after each, then arms the interrupt and \
                 blocks; the core enters the deepest allowed state, whose exit takes what the system states; the next \
                 packet meets the loop in whatever it does then. Calibrated on the row C0 (the software from interrupt \
                 to first poll), and the choice of the state on the row C3; C1 and C6 are predictions. From C6 the application is back so late that it still \
                 polls when the next packet comes: every second packet finds it awake, and the average is that of both."
                .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

pub(super) fn optimisation(seed: u64) -> Result<Figure, MachineError> {
    let parts = Parts::new()?;
    let host_after = parts.optimised("POLL")?.run(&STREAM, seed);
    let vm_after = Sleeper { virtual_machine: true, ..parts.optimised("POLL")? }.run(&STREAM, seed);
    let host_before = parts.untuned()?.run(&STREAM, seed);
    let vm_before =
        Sleeper { virtual_machine: true, loses_after: Some(STREAM.packets / 2), ..parts.untuned()? }.run(&STREAM, seed);
    let mut rows = Vec::new();
    rows.extend(three("host, before", [19.0, 105.0, 418.0], &host_before));
    rows.extend(three("host, after", [9.0, 14.0, 21.0], &host_after));
    rows.extend(three("VM, before", [9.0, 112.0, 7_210.0], &vm_before));
    rows.extend(three("VM, after", [9.0, 20.0, 35.0], &vm_after));
    for row in &mut rows {
        row.explanation = match (row.case.as_str(), row.quantity) {
            ("host, before", "minimum latency") => Some(
                "In the model packets that meet a loop that still polls are as fast before as after (9 us, which is \
                 also the document's minimum in the other three cases). That theirs has none is not explained by what \
                 the document says; a PCI Express link that sleeps (8.8 us more for every packet) would: last rows.",
            ),
            ("host, before", "average latency") | ("VM, before", "average latency") => Some(
                "Half of the model's packets meet a loop that still polls; theirs, by its minimum on the host, fewer.",
            ),
            ("host, before", "maximum latency") => Some(
                "The kernel's longest delay without PREEMPT_RT is an estimate; what else ran on that host is unknown.",
            ),
            ("VM, before", "maximum latency") => Some(
                "A lost wake-up (“potential bugs on the VMM layer”) ends at the application's own timeout of 10 ms; \
                 theirs ended earlier, by another event.",
            ),
            _ => None,
        }
        .map(str::to_owned);
    }
    for row in rows.iter_mut().filter(|row| row.case == "host, after" && row.kind == Kind::Typical) {
        // The same measurement as C0 in the table of idle states.
        row.role = super::Role::Calibrated;
    }
    let asleep = Sleeper { aspm: true, ..parts.untuned()? }.run(&STREAM, seed);
    for mut row in three("host, before, if the link slept", [0.0; 3], &asleep) {
        row.theirs = Theirs::Nothing;
        rows.push(row.because(
            "Own variant: PCI Express power management on. The document does not name it, but “host, before” would look \
             like this.",
        ));
    }
    let mut inputs = parts.inputs();
    inputs.extend(inputs_of(&parts.host, &["processor.vcpu", "processor.aspm"]));
    inputs.push(Input::new(
        "before: kernel's delay without PREEMPT_RT",
        format!("{UNTUNED_EXCESS} on average, {UNTUNED_MOST} at most"),
        "estimate: cyclictest on kernels without PREEMPT_RT, hundreds of microseconds at worst; recalled",
    ));
    inputs.push(Input::new(
        "before, VM: wake-ups that the hypervisor loses",
        "one, in the middle of the test",
        "assumption: the document names a bug of the hypervisor with longer latency; how often it struck is not said",
    ));
    Ok(Figure {
        id: "s1-latency",
        title: "Interrupt-mode forwarding latency before and after the optimisations",
        document: DOCUMENT,
        method: "The closed loop of the table of idle states. After: interrupt handled directly, on the right CPU, no \
                 throttling, PREEMPT_RT, no idle state below C0. Before: threaded handler, wrong CPU, throttled to one \
                 interrupt in 500 us, idle states down to C6, a kernel without PREEMPT_RT. VM: exit, kick, entry, \
                 injection and the guest's own wake-up besides. The first packet meets a loop that polls. Calibrated: the \
                 average of “host, after”, by the row C0 of the other table; everything else is a prediction."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

/// The same states, but nothing has to be fetched again afterwards.
fn without_refill(model: &CStateModel) -> CStateModel {
    let mut model = model.clone();
    model.states.iter_mut().for_each(|state| state.refill = Cycles::new(0));
    model
}

const UNTUNED_EXCESS: Nanos = Nanos::from_micros(5);
const UNTUNED_MOST: Nanos = Nanos::from_micros(300);

struct Parts {
    nic: Machine,
    host: Machine,
}

impl Parts {
    fn new() -> Result<Self, MachineError> {
        Ok(Self { nic: Machine::named("x540")?, host: Machine::named("xeon-e5-2699v3")? })
    }

    fn optimised(&self, deepest: &str) -> Result<Sleeper<'_>, MachineError> {
        let processor = self.host.processor()?;
        let place = || self.host.name.clone();
        let limited = processor.cstates.limited_to(deepest);
        Ok(Sleeper {
            nic: self.nic.nic()?,
            processor,
            frequency: CLOCK,
            cstates: limited.map_err(|error| MachineError::Model { place: place(), line: 1, error })?,
            choice: Choice::Deepest,
            handling: Handling::Direct,
            affinity: Affinity::Right,
            interval: Nanos::ZERO,
            unpreemptible: Spread::exactly(Nanos::ZERO),
            virtual_machine: false,
            loses_after: None,
            aspm: false,
        })
    }

    fn untuned(&self) -> Result<Sleeper<'_>, MachineError> {
        Ok(Sleeper {
            handling: Handling::Threaded,
            affinity: Affinity::Wrong,
            interval: self.nic.nic()?.rx_moderation.interval,
            unpreemptible: Spread::new(Nanos::ZERO, UNTUNED_EXCESS, UNTUNED_MOST).expect("ordered"),
            ..self.optimised("C6")?
        })
    }

    fn inputs(&self) -> Vec<Input> {
        let nic = ["nic.phy", "nic.receive", "nic.transmit", "nic.jitter", "nic.rx_moderation.interval"];
        let mut inputs = inputs_of(&self.nic, &nic);
        inputs.extend(inputs_of(&self.host, &["processor.delivery", "processor.work", "processor.disturbance"]));
        let slides = "Towards Low Latency Interrupt Mode DPDK (2017), test environment";
        inputs.push(Input::new("traffic", "1 packet every 350 us", slides));
        inputs.push(Input::new("frequency", "2.3 GHz", slides));
        inputs
    }
}

fn average(case: &str, seen: &Seen) -> Row {
    Row::predicted(case, "average latency", "us", Kind::Typical).modelled(us(seen.latency.average()))
}

fn three(case: &str, theirs: [f64; 3], seen: &Seen) -> [Row; 3] {
    let extreme = |quantity, theirs, modelled: f64| {
        Row::predicted(case, quantity, "us", Kind::Extreme).theirs(Theirs::Value(theirs)).modelled(us(modelled))
    };
    [
        extreme("minimum latency", theirs[0], seen.latency.least()),
        average(case, seen).theirs(Theirs::Value(theirs[1])),
        extreme("maximum latency", theirs[2], seen.latency.most()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> Stream {
        Stream { packets: 5_000, ..STREAM }
    }

    #[test]
    fn a_deep_state_lets_every_second_packet_meet_a_loop_that_polls() {
        let parts = Parts::new().unwrap();
        let polled = |state| parts.optimised(state).unwrap().run(&short(), 1).polled;
        assert!(polled("POLL") < 10 && polled("C3") < 500, "{} {}", polled("POLL"), polled("C3"));
        assert!((2_400..2_600).contains(&polled("C6")), "{}", polled("C6"));
    }

    #[test]
    fn throttling_delays_what_comes_sooner_than_its_interval() {
        let parts = Parts::new().unwrap();
        let mut sleeper = parts.optimised("POLL").unwrap();
        let free = sleeper.run(&short(), 1).latency.average();
        sleeper.interval = Nanos::from_micros(500);
        let throttled = sleeper.run(&short(), 1).latency.average();
        assert!(throttled > free + 40_000.0, "{free} {throttled}");
    }

    #[test]
    fn the_loop_polls_on_for_about_300_us() {
        let window = Parts::new().unwrap().optimised("C1").unwrap().window();
        assert!((295..305).contains(&window.as_micros_floor()), "{window}");
    }
}
