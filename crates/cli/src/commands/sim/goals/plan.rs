//! The grid of cases. Arguments can replace parts of a named grid.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::wait::Mode;
use sim::goals::{Files, Idle, MACHINES, Pattern, Peak, Plan, PlanError, Setting, Way};

use crate::Failure;
use crate::args::sim::Goals as Typed;

/// What to simulate.
pub struct Planned {
    /// The grid of cases.
    pub plan: Plan,
    /// The grid's settings.
    pub settings: Vec<Arc<Setting>>,
    /// The files that were read.
    pub inputs: Vec<PathBuf>,
}

/// Builds the grid and its settings, and reads the files that it names.
pub fn plan(typed: &Typed) -> Result<Planned, Failure> {
    let mut plan = typed.grid.plan();
    let (mut files, mut inputs) = (Files::new(), Vec::new());
    let mut read = |path: &str| {
        inputs.push(PathBuf::from(path));
        read(path, &mut files)
    };
    if !typed.machine.is_empty() {
        plan.machines.clear();
        for machine in &typed.machine {
            let known = MACHINES.iter().find(|(name, _)| *name == machine.processor).map(|(_, nic)| (*nic).to_owned());
            let nic = machine.nic.clone().or(known).unwrap_or_else(|| machine.processor.clone());
            let mut named = |name: &String| if name.ends_with(".toml") { read(name) } else { Ok(name.clone()) };
            let machine = (named(&machine.processor)?, named(&nic)?);
            if !plan.machines.contains(&machine) {
                plan.machines.push(machine);
            }
        }
    }
    if !typed.traffic.is_empty() {
        plan.traffic.clear();
        for pattern in &typed.traffic {
            let pattern = match pattern {
                Pattern::File(path) => Pattern::File(read(path)?),
                known => known.clone(),
            };
            if !plan.traffic.contains(&pattern) {
                plan.traffic.push(pattern);
            }
        }
    }
    let idle: Vec<Idle> = typed.idle.iter().map(|s| Idle { deepest: s.clone(), up_to_ppm: 1_000_000 }).collect();
    put(&mut plan.idle, &idle);
    plan.limits_idle = !typed.no_idle_limit;
    plan.holds_off = typed.hold_off;
    if typed.hold_off {
        plan.rivals.extend(delayed(&plan.rivals));
    }
    if !typed.rival.is_empty() {
        // Only the chosen rivals. Rivals at other frequencies are added only on request.
        put(&mut plan.rivals, &typed.rival);
        plan.frequencies = 0;
    }
    put(&mut plan.loads_ppm, &typed.load);
    put(&mut plan.goals, &typed.goal);
    put(&mut plan.peaks, &typed.peak);
    plan.frequencies = typed.frequencies.unwrap_or(plan.frequencies);
    plan.seed = typed.seed;
    plan.seeds = typed.seeds.unwrap_or(plan.seeds);
    plan.duration = typed.duration.map_or(plan.duration, |duration| (duration, duration));
    plan.sample = typed.sample.map(|cases| (cases as usize, typed.sample_seed));
    plan.files = files;
    plan.warm_up = match typed.warm_up {
        Some(warm_up) => warm_up,
        None => plan.warm_up.max(plan.settling().map_err(wrong)?),
    };
    all_are_used(&plan, &typed.idle)?;
    let settings = plan.settings().map_err(wrong)?.into_iter().map(Arc::new).collect();
    Ok(Planned { plan, settings, inputs })
}

/// Refuses idle states that no machine has, and traffic from a file without a peak to tell: cases with them would
/// silently be left out.
fn all_are_used(plan: &Plan, states: &[String]) -> Result<(), Failure> {
    for state in states {
        let one = Idle { deepest: state.clone(), up_to_ppm: 1_000_000 };
        let (traffic, peaks) = (vec![Pattern::Constant], vec![Peak::Untold]);
        let alone = Plan { idle: vec![one], traffic, peaks, sample: None, ..plan.clone() };
        alone.settings().map_err(|error| match error {
            PlanError::Empty => Failure::wrong(
                "cannot plan the runs",
                format!("none of the machines has the idle state {state}"),
                "choose states of the machines with --idle; apus sim machines NAME lists them",
            ),
            error => wrong(error),
        })?;
    }
    match plan.traffic.iter().find(|pattern| matches!(pattern, Pattern::File(_))) {
        Some(file) if plan.peaks == [Peak::Told] => Err(Failure::wrong(
            "cannot plan the runs",
            format!("the peak rate of {file} is not known, so adaptive cannot be told it"),
            "add --peak untold or a rate, such as --peak 1Mpps",
        )),
        _ => Ok(()),
    }
}

/// Rivals whose interrupts are delayed for as long as the `rivals` with backoff sleep.
fn delayed(rivals: &[Way]) -> Vec<Way> {
    let delay = |way: &Way| match way.wait {
        Mode::Backoff { max } => Some(Way { delay: max, ..Way::at_base(Mode::Interrupt) }),
        _ => None,
    };
    rivals.iter().filter_map(delay).collect()
}

fn wrong(error: PlanError) -> Failure {
    let fix = match &error {
        PlanError::Empty => "give other values of --idle, --load, --peak or --traffic",
        PlanError::Frequency { .. } => "choose a frequency that every machine has, or fewer machines with --machine",
        _ => "choose machines that apus sim machines lists, with a network controller after a +",
    };
    Failure::wrong("cannot plan the runs", error, fix)
}

fn put<T: Clone + PartialEq>(into: &mut Vec<T>, typed: &[T]) {
    if !typed.is_empty() {
        into.clear();
        // A value that is given twice counts once.
        typed.iter().for_each(|value| {
            if !into.contains(value) {
                into.push(value.clone())
            }
        });
    }
}

/// Reads a file. Scenarios refer to it by its file name, without the folder.
fn read(path: &str, files: &mut Files) -> Result<String, Failure> {
    let failed = |why: String, fix: &str| Failure::wrong(format!("cannot read {path}"), why, fix);
    let octets = fs::read(path).map_err(|error| failed(error.to_string(), "give a readable file"))?;
    let name = Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned());
    // Scenarios contain the name between quotes.
    if name.contains(['"', '\\']) || name.contains(char::is_control) {
        return Err(failed("its name contains quotes, backslashes or control characters".into(), "rename it"));
    }
    match files.insert(name.clone(), octets.as_slice().into()) {
        Some(other) if *other != octets[..] => {
            Err(failed(format!("another file is also called {name}"), "rename one of the files"))
        }
        _ => Ok(name),
    }
}
