//! Energy of a run: reads the machine's energy meters before and after it, and computes the modelled energy if the user
//! named a machine.
//!
//! During the run, a separate thread also reads each meter whose counter can wrap around within minutes, and each meter
//! that shows power instead of energy. The thread sleeps most of the time. Without such a meter there is no thread.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::facts::Root;
use host::meter::{Account, Meters};
use sim::machine::{Machine, Processor};
use tester::document::{Energy, EnergyMeter, MeasuredEnergy, MeterEnergy, ModelledEnergy, Work};
use tester::host::Reading;
use units::{Nanojoules, Nanos};

use crate::args::energy::Modelled;
use crate::commands::sim::machine;

/// The energy meters of this machine, used for one run after another.
pub struct Wattmeter {
    meters: Arc<Mutex<Meters>>,
    began: Instant,
    /// State of the meters and time when the current run started.
    start: Option<(Account, Nanos)>,
    model: Option<Machine>,
    /// The thread that reads the meters during a run. Dropping the value ends the thread.
    _reader: Option<Reader>,
}

impl Wattmeter {
    /// Opens the meters. `modelled` names the machine whose energy to model; its model must have a processor.
    pub fn open(modelled: &Modelled) -> anyhow::Result<Self> {
        let model = match &modelled.machine {
            Some(name) => {
                let machine = machine(name)?;
                machine.processor()?;
                Some(machine)
            }
            None => None,
        };
        let meters = Arc::new(Mutex::new(Meters::find(&Root::live())));
        let began = Instant::now();
        let within = lock(&meters).poll_within();
        let reader = within.map(|within| Reader::start(Arc::clone(&meters), began, within)).transpose()?;
        Ok(Self { meters, began, start: None, model, _reader: reader })
    }
}

impl EnergyMeter for Wattmeter {
    fn start(&mut self) {
        let mut meters = lock(&self.meters);
        meters.poll(since(self.began));
        // Reads the clock after the meters, so that the time of the reading does not belong to the run.
        self.start = Some((meters.account(), since(self.began)));
    }

    fn stop(&mut self, frames: Option<u64>, work: Result<Work, String>) -> Energy {
        let now = since(self.began);
        let mut meters = lock(&self.meters);
        meters.poll(now);
        let Some((start, then)) = &self.start else { return Energy::unmeasured("the measurement was not started") };
        let span = now.checked_sub(*then).unwrap_or(Nanos::ZERO);
        let account = meters.since(start);
        let modelled = self.model.as_ref().map(|machine| Reading::from(modelled(machine, span, frames, &work)));
        let cpu_ns = work.map(|work| work.cpu_ns);
        Energy {
            measured: measured(&meters, &account, frames).into(),
            meters: each(&meters, &account),
            cpu_per_frame_ns: cpu_ns.as_ref().ok().and_then(|ns| Energy::per_frame(*ns as f64, frames)),
            cpu_ns: cpu_ns.into(),
            frames,
            modelled,
        }
    }
}

fn lock(meters: &Mutex<Meters>) -> MutexGuard<'_, Meters> {
    meters.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since(began: Instant) -> Nanos {
    Nanos::from_nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The sum over the meters that do not overlap.
pub(super) fn measured(meters: &Meters, account: &Account, frames: Option<u64>) -> Result<MeasuredEnergy, String> {
    let share = meters.sum(account)?;
    let all: Vec<_> = meters.list().collect();
    let counted: Vec<_> = meters.counted().iter().map(|place| all[*place]).collect();
    let mut includes: Vec<String> = Vec::new();
    for meter in &counted {
        let line = meter.part.includes().to_owned();
        if !includes.contains(&line) {
            includes.push(line);
        }
    }
    // In the worst case, the resolutions of several counters add up.
    let steps: Option<u64> = counted.iter().map(|meter| Some(meter.resolution()?.as_nanojoules())).sum();
    Ok(MeasuredEnergy {
        energy_uj: share.energy.as_nanojoules() / 1_000,
        energy_per_frame_nj: Energy::per_frame(share.energy.as_nanojoules() as f64, frames),
        power_uw: share.power().map(units::Microwatts::as_microwatts),
        interval_ns: share.span.as_nanos(),
        meter: meters.counted_name(),
        includes: includes.join("; "),
        resolution_nj: steps,
    })
}

/// The energy of each meter separately.
pub(super) fn each(meters: &Meters, account: &Account) -> Vec<MeterEnergy> {
    let shares = account.shares();
    let one = |(place, meter): (usize, &host::meter::Meter)| {
        let share = shares
            .get(place)
            .cloned()
            .unwrap_or_else(|| Err("it was not read at the beginning and at the end".to_owned()));
        MeterEnergy {
            meter: meter.part.name(),
            interface: meter.by.name().to_owned(),
            place: meter.place.clone(),
            includes: meter.part.includes().to_owned(),
            counted: meters.counted().contains(&place),
            power_uw: share.as_ref().ok().and_then(|share| share.power()).map(units::Microwatts::as_microwatts),
            energy_uj: share.map(|share| share.energy.as_nanojoules() / 1_000).into(),
            resolution_nj: meter.resolution().map(Nanojoules::as_nanojoules),
            update_interval_ns: meter.update.map(Nanos::as_nanos),
            accuracy_ppm: meter.accuracy_ppm,
        }
    };
    meters.list().enumerate().map(one).collect()
}

/// Energy that one core of the machine's model would use for the measured CPU time within `span`.
fn modelled(
    machine: &Machine,
    span: Nanos,
    frames: Option<u64>,
    work: &Result<Work, String>,
) -> Result<ModelledEnergy, String> {
    let processor = machine.processor().map_err(|error| error.to_string())?;
    let work = work.as_ref().map_err(|why| format!("the CPU time of the tested program is unknown: {why}"))?;
    let busy = Nanos::from_nanos(work.cpu_ns).min(span);
    let idle = span.saturating_sub(busy);
    let (state, gate) = resting(processor, idle, work.wakeups);
    let power = &processor.power;
    let energy = power.active(processor.base, 1_000) * busy + power.idle(gate, processor.base) * idle;
    Ok(ModelledEnergy {
        machine: machine.name.clone(),
        includes: format!(
            "one core at {:.2} GHz, executing for the measured CPU time, and in {state} otherwise; no uncore, no memory",
            processor.base.as_hertz() as f64 / 1e9
        ),
        energy_uj: energy.as_nanojoules() / 1_000,
        energy_per_frame_nj: Energy::per_frame(energy.as_nanojoules() as f64, frames),
        power_uw: energy.over(span).map(units::Microwatts::as_microwatts),
    })
}

/// The idle state for idle periods of the measured mean length: the deepest one that saves energy. If the number of
/// idle periods is unknown, it is the shallowest state below polling, so that the energy is not underestimated.
fn resting(processor: &Processor, idle: Nanos, wakeups: Option<u64>) -> (String, sim::hw::cstate::Gate) {
    let states = &processor.cstates.states;
    let index = match wakeups {
        // The kernel's default: no limit on the exit latency.
        Some(wakeups) => processor.cstates.choose(idle / wakeups.max(1), Nanos::from_secs(2_000)),
        None => usize::from(states.len() > 1),
    };
    (states[index].name.clone(), states[index].gate)
}

/// The thread that reads the meters between the start and the end of a run.
struct Reader {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(meters: Arc<Mutex<Meters>>, began: Instant, within: Nanos) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let within = Duration::from_nanos(within.as_nanos());
        let read = move || {
            // Reading the open meters needs no privilege.
            let _ = host::privilege::keep_only(rustix::thread::CapabilitySet::empty());
            while stopped.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
                lock(&meters).poll(since(began));
            }
        };
        let thread = std::thread::Builder::new().name("meters".into()).spawn(read)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread only reads. After a panic, the result only lacks some readings.
            let _ = thread.join();
        }
    }
}

/// CPU time of this process so far, including its ended threads (clock_gettime(2), `CLOCK_PROCESS_CPUTIME_ID`). The
/// error says why it is unknown.
pub fn own_work() -> Result<Work, String> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_ns = u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec));
    Ok(Work { cpu_ns: cpu_ns.map_err(|error| error.to_string())?, wakeups: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wakeups: Option<u64>, cpu_ns: u64) -> ModelledEnergy {
        let machine = Machine::named("xeon-gold-6338n").unwrap();
        modelled(&machine, Nanos::from_secs(1), Some(1_000), &Ok(Work { cpu_ns, wakeups })).unwrap()
    }

    #[test]
    fn a_model_is_the_measured_time_at_the_machines_power() {
        let machine = Machine::named("xeon-gold-6338n").unwrap();
        let power = &machine.processor().unwrap().power;
        let base = machine.processor().unwrap().base;
        let polling = of(Some(0), 1_000_000_000);
        assert_eq!(polling.power_uw, Some(power.active(base, 1_000).as_microwatts()));
        assert_eq!(polling.energy_per_frame_nj, Some(polling.energy_uj as f64));
        // On this machine, a pause every 350 us is too short for C6; a pause every 10 ms is long enough.
        let (short, long) = (of(Some(2_857), 0), of(Some(100), 0));
        assert!(short.includes.contains("in C1E otherwise"), "{}", short.includes);
        assert!(long.includes.contains("in C6 otherwise") && long.energy_uj < short.energy_uj);
        assert!(of(None, 0).includes.contains("in C1 otherwise"), "without wake-ups nothing deep is promised");
        let unknown = modelled(&machine, Nanos::from_secs(1), None, &Err("no process was named".into()));
        assert!(unknown.unwrap_err().contains("no process was named"));
    }

    #[test]
    fn this_machine_has_a_figure_or_a_reason_and_the_cpu_time() {
        let mut meter = Wattmeter::open(&Modelled::default()).unwrap();
        meter.start();
        let energy = meter.stop(Some(2), Ok(Work { cpu_ns: 3_000, wakeups: Some(1) }));
        assert_eq!(energy.measured.value.is_some(), energy.measured.unknown_because.is_none());
        assert_eq!((energy.cpu_ns.value, energy.cpu_per_frame_ns, energy.modelled), (Some(3_000), Some(1_500.0), None));
        assert!(Wattmeter::open(&Modelled { machine: Some("abacus".into()) }).is_err());
        assert!(Wattmeter::open(&Modelled { machine: Some("x540".into()) }).is_err(), "a NIC has no core");
    }
}
