//! `apus experiment`: the crate `tester` chooses the settings to try next. This module changes them, starts the command
//! that measures, and rolls them back.

mod measure;
pub(super) mod plan;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use host::knob::{Access, Holder, Setting as _};
use host::profile::{Profile, Purpose};
use host::transaction::{Held, Meets, Plan as Changes, Preview};
use live::os::Signals;
use tester::document::{Energy, EnergyMeter as _, Name};
use tester::experiment::result::{About, Ending, ExperimentResult};
use tester::experiment::{Experiment, Step};
use tester::host::{HostState, Reading};
use units::Nanos;

use crate::args::experiment::Experiment as Typed;
use crate::commands::energy::Wattmeter;
use crate::commands::output::Output;
use crate::documents::VERSION;
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};
use measure::Missing;
use plan::Plan;

/// The command as recorded in the journal of changes.
const COMMAND: &str = "apus experiment";

/// Runs `apus experiment`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let plan = Plan::load(&typed.plan)?;
    let experiment = Experiment::new(plan.settings.clone())
        .map_err(|e| Failure::wrong("cannot use the plan", e, "correct the plan"))?;
    let root = Path::new("/");
    let access = Access::below(root)?;
    if typed.dry_run {
        return dry_run(&access, &plan);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::lacking(
            "cannot try settings on this host",
            "this needs root",
            "try again with sudo (--dry-run works without)",
        )
        .into());
    }
    let output = Output::open_named(typed.output.as_deref())?;
    let arguments = ["tune", "hold", "--root", "/"].map(str::to_owned).to_vec();
    let access = access.with_holder(Holder { program: std::env::current_exe()?, arguments });
    let signals = Signals::hold()?;
    let baseline = match &plan.baseline {
        Some(profile) => {
            possible(&access, profile, false)?;
            Some(held(&access, &changes(&access, profile)?)?)
        }
        None => None,
    };
    for factor in &plan.factors {
        check(&access, factor)?;
    }
    let mut meter = Wattmeter::open(&typed.modelled)?;
    let (experiment, energies, interrupted) = conduct(&access, &plan, experiment, &signals, &mut meter)?;
    if let Some(baseline) = baseline {
        baseline.release()?;
    }
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let host = Reading::known(HostState::read(root, std::process::id(), tid));
    let about = About { name: plan.name.clone(), metric: plan.metric.name.clone() };
    let result = ExperimentResult::new(&experiment, &about, host, interrupted).with_energy(energies);
    let kept = output.map_or(Ok(()), |mut output| output.write(&tester::report::render(&result.report())));
    if typed.json {
        print_json(&result)?;
    } else {
        let mut out = terminal::out();
        out.write_all(result.table().as_bytes())?;
        out.flush()?;
    }
    kept?;
    let ended = [Ending::Failed, Ending::Zero, Ending::Interrupted].iter().all(|other| result.ended != Name::of(other));
    Ok(if ended && result.noise_floor_is_sound && result.is_judged() { Status::Good } else { Status::Findings })
}

/// Runs one measurement after another until the result is decided, the time budget is used up, or a signal arrives.
fn conduct(
    access: &Access,
    plan: &Plan,
    mut experiment: Experiment,
    signals: &Signals,
    meter: &mut Wattmeter,
) -> anyhow::Result<(Experiment, Vec<Energy>, bool)> {
    let start = Instant::now();
    let now = || Nanos::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let (mut interrupted, mut energies) = (false, Vec::new());
    while let Some(step) = experiment.next(now()) {
        if signals.wait(Duration::ZERO).is_some() {
            interrupted = true;
            break;
        }
        progress(&experiment, step, now());
        let trying = held(access, &together(access, plan, step.on)?)?;
        std::thread::sleep(Duration::from_nanos(plan.settle.as_nanos()));
        meter.start();
        let left = plan.settings.budget.saturating_sub(now()).max(Nanos::from_millis(1));
        let measured = measure::run(&plan.measure, &plan.metric, signals, Duration::from_nanos(left.as_nanos()));
        let (value, frames, work) = match measured {
            Ok(run) => (Some(Ok(run.value)), run.frames, run.work),
            Err(Missing::Failed(why)) => (Some(Err(why.clone())), None, Err(why)),
            Err(Missing::Interrupted) => (None, None, Err("the run was interrupted".to_owned())),
        };
        let energy = meter.stop(frames, work);
        if let Some(back) = trying.release()?
            && !back.closed
        {
            let id = back.id;
            let why = "a setting could not be rolled back, or something else has changed it meanwhile".to_owned();
            return Err(Failure::lacking(
                "cannot go on with the experiment",
                why,
                format!("look at apus tune status, then run apus tune rollback {id}"),
            )
            .into());
        }
        let Some(value) = value else {
            interrupted = true;
            break;
        };
        energies.push(energy);
        experiment.record(value, now());
    }
    if terminal::err_is_terminal() {
        let _ = terminal::err().erase_line();
    }
    Ok((experiment, energies, interrupted))
}

/// Merges the settings of all factors that are switched on in `on`, a bit mask.
fn together(access: &Access, plan: &Plan, on: u32) -> anyhow::Result<Changes> {
    let mut all = Changes::new("experiment");
    for (place, factor) in plan.factors.iter().enumerate() {
        if on >> place & 1 == 1 {
            changes(access, factor)?.items.into_iter().for_each(|item| all.push(item));
        }
    }
    Ok(all)
}

fn changes(access: &Access, profile: &Profile) -> anyhow::Result<Changes> {
    Ok(profile.resolve(access, &Purpose::default())?.plan)
}

fn held(access: &Access, plan: &Changes) -> anyhow::Result<Held> {
    Ok(Held::new(access, plan, COMMAND, VERSION)?)
}

/// Returns an error for a factor that changes nothing on this host. Otherwise it would wrongly be reported as having no
/// effect.
fn check(access: &Access, factor: &Profile) -> anyhow::Result<()> {
    let previews = possible(access, factor, true)?;
    if previews.iter().all(|preview| matches!(preview.meets, Meets::AsWanted { .. })) {
        return Err(impossible(factor, "it changes nothing: all its settings have these values already".into()));
    }
    Ok(())
}

/// Previews the settings of a factor or of the baseline. Returns an error if this host lacks one of them or all of them.
/// `reads_all` says whether a value that cannot be read is an error too.
fn possible(access: &Access, profile: &Profile, reads_all: bool) -> anyhow::Result<Vec<Preview>> {
    let resolved = profile.resolve(access, &Purpose::default())?;
    let previews = resolved.plan.preview(access);
    for preview in &previews {
        let label = preview.item.setting.label();
        match &preview.meets {
            Meets::NotThere => return Err(impossible(profile, format!("this host has no {label}"))),
            Meets::Refused(error) if reads_all => {
                return Err(impossible(profile, error.to_string().replace('\n', "; ")));
            }
            Meets::Refused(_) | Meets::AsWanted { .. } | Meets::Other { .. } => {}
        }
    }
    if previews.is_empty() {
        let why = match resolved.notes.is_empty() {
            true => "it has no settings".to_owned(),
            false => format!("none of its settings applies to this host: {}", resolved.notes.join("; ")),
        };
        return Err(impossible(profile, why));
    }
    Ok(previews)
}

fn impossible(profile: &Profile, why: String) -> anyhow::Error {
    let fix = "remove it from the plan, or run the experiment on a host that supports it";
    Failure::lacking(format!("cannot try {:?}", profile.name), why, fix).into()
}

fn dry_run(access: &Access, plan: &Plan) -> anyhow::Result<Status> {
    let mut out = terminal::out();
    writeln!(
        out,
        "{}: {} of {} factors, at most {}",
        plan.name,
        plan.metric.name,
        plan.factors.len(),
        plan.settings.budget
    )?;
    for profile in plan.baseline.iter().chain(&plan.factors) {
        writeln!(out, "  {}", profile.name)?;
        for item in changes(access, profile)?.items {
            writeln!(out, "    {} = {}", item.setting.label(), item.wanted)?;
        }
    }
    out.flush()?;
    // Only root can read every value.
    let is_root = rustix::process::geteuid().is_root();
    for profile in plan.baseline.iter().chain(&plan.factors) {
        possible(access, profile, is_root)?;
    }
    Ok(Status::Good)
}

fn progress(experiment: &Experiment, step: Step, now: Nanos) {
    if !terminal::err_is_terminal() {
        return;
    }
    let what = step.replicate.map_or("noise floor".to_owned(), |replicate| format!("replicate {}", replicate + 1));
    let left = experiment.runs_left_in_replicate();
    let (mut err, gone) = (terminal::err(), now.as_nanos() as f64 / 1e9);
    let _ = err.erase_line().and_then(|()| write!(err, "{what}: {left} runs left; {gone:.0} s elapsed"));
}
