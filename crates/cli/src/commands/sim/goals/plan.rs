//! The grid of cases. Arguments can replace parts of a named grid.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policy::wait::Mode;
use sim::goals::{Files, Idle, MACHINES, Pattern, Plan, PlanError, Setting, Way};

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
            plan.machines.push((named(&machine.processor)?, named(&nic)?));
        }
    }
    if !typed.traffic.is_empty() {
        plan.traffic.clear();
        for pattern in &typed.traffic {
            plan.traffic.push(match pattern {
                Pattern::File(path) => Pattern::File(read(path)?),
                known => known.clone(),
            });
        }
    }
    if !typed.idle.is_empty() {
        plan.idle = typed.idle.iter().map(|s| Idle { deepest: s.clone(), up_to_ppm: 1_000_000 }).collect();
    }
    plan.holds_off = typed.hold_off;
    if typed.hold_off {
        plan.rivals.extend(delayed(&plan.rivals));
    }
    if !typed.rival.is_empty() {
        // Only the chosen rivals. Rivals at other frequencies are added only on request.
        (plan.rivals, plan.frequencies) = (typed.rival.clone(), 0);
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
    let settings = plan.settings().map_err(wrong)?.into_iter().map(Arc::new).collect();
    Ok(Planned { plan, settings, inputs })
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

fn put<T: Clone>(into: &mut Vec<T>, typed: &[T]) {
    if !typed.is_empty() {
        *into = typed.to_vec();
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
