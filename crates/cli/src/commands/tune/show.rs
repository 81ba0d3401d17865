//! The subcommands that only read: `plan`, `status`, `verify`, `diff`, `export`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use host::at_boot;
use host::knob::effect::{self, Effect};
use host::knob::{Access, AnySetting, BootFragment, Value};
use host::profile::Library;
use host::transaction::{Meets, Transaction, transactions};
use units::Nanos;

use super::{machine, resolve, say};
use crate::args::tune::{Export, PlanArgs, RecommendArgs, Show, Target, Verify};
use crate::commands::output::unwritable;
use crate::documents::tune::{OpenItem, OpenTransaction, Plan, Recommend, Status as StatusDocument};
use crate::{Failure, Status, terminal};

/// Runs `apus tune plan`.
pub fn plan(typed: &PlanArgs) -> anyhow::Result<Status> {
    let Some(profile) = &typed.profile else {
        let mut out = terminal::out();
        for (name, summary) in Library::below(&typed.target.root).list() {
            match summary {
                Ok(summary) => writeln!(out, "{name:<12}{summary}")?,
                Err(error) => writeln!(out, "{name:<12}invalid: {error}")?,
            }
        }
        writeln!(out, "to see what a profile would change here: apus tune plan poll --isolated 2-5")?;
        return Ok(Status::Good);
    };
    let access = machine(&typed.target.root)?;
    let (_, resolved) = resolve(&access, profile, &typed.target)?;
    let previews = resolved.plan.preview(&access);
    terminal::print(typed.json, &Plan::of(&resolved, &previews), |out| say::plan(&resolved, &previews, out))?;
    Ok(Status::Good)
}

/// Runs `apus tune status`.
pub fn status(typed: &Show) -> anyhow::Result<Status> {
    let document = read(typed)?;
    terminal::print(typed.json, &document, |out| say::status(&document, out))?;
    let wrong = document.transactions.iter().any(|one| one.abandoned || one.damage.is_some());
    Ok(if wrong { Status::Findings } else { Status::Good })
}

/// Runs `apus tune verify`.
pub fn verify(typed: &Verify) -> anyhow::Result<Status> {
    let access = machine(&typed.target.root)?;
    if let Some(profile) = &typed.profile {
        return verify_profile(&access, profile, typed);
    }
    let Target { isolated, interfaces, variables, .. } = &typed.target;
    if isolated.is_some() || !interfaces.is_empty() || !variables.is_empty() {
        let why = "--isolated, --interface and --set need a profile";
        return Err(Failure::wrong("cannot verify", why, "give a profile: apus tune verify poll --isolated 2-5").into());
    }
    let known = transactions(&access)?;
    let effects = match typed.watch {
        Some(span) => watch(&access, &known, span)?,
        None => Vec::new(),
    };
    let document = StatusDocument::of(&access, &known, None).with_effects(effects);
    terminal::print(typed.json, &document, |out| say::verify(&document, out))?;
    // A profile that is no longer applied (after a reboot, or a rollback by someone else) does not count as success.
    if document.transactions.is_empty() {
        return Ok(Status::Findings);
    }
    // Settings that belong to another network namespace or ended with their thread are reported, but do not affect the
    // verdict. If none is left that could be checked here, the command fails.
    let all = || document.transactions.iter().flat_map(|one| &one.items);
    let mut items = all().filter(|item| item.is_here());
    let checked = all().any(OpenItem::is_here) || !all().any(OpenItem::is_elsewhere);
    let without_effect = |item: &OpenItem| item.effect.as_ref().is_some_and(|effect| effect.seen == Some(false));
    let good = items.all(|item| item.as_wanted == Some(true) && item.waits_for.is_none() && !without_effect(item));
    // What a killed command left behind counts, unless it ended with its network namespace.
    let left = |one: &OpenTransaction| one.abandoned && one.items.iter().any(OpenItem::is_here);
    let good = good && checked && !document.transactions.iter().any(|one| left(one) || one.damage.is_some());
    Ok(if good { Status::Good } else { Status::Findings })
}

/// Compares the host with a profile. It does not matter who set the values.
fn verify_profile(access: &Access, profile: &str, typed: &Verify) -> anyhow::Result<Status> {
    let (_, resolved) = resolve(access, profile, &typed.target)?;
    let mut previews = resolved.plan.preview(access);
    for preview in &mut previews {
        // Arguments of the command line count only if the running kernel has them, not if they are only in a file.
        if let (AnySetting::BootFragment(_), Some(wanted)) = (&preview.item.setting, preview.item.wanted.as_text()) {
            let now = Value::text(access.line("/proc/cmdline")?.unwrap_or_default());
            preview.meets = match BootFragment::missing(access, wanted) {
                Ok(Some(missing)) if missing.is_empty() => Meets::AsWanted { now },
                Ok(_) => Meets::Other { now },
                Err(error) => Meets::Refused(error),
            };
        }
    }
    terminal::print(typed.json, &Plan::of(&resolved, &previews), |out| say::verify_profile(&resolved, &previews, out))?;
    let there: Vec<_> = previews.iter().filter(|preview| preview.meets != Meets::NotThere).collect();
    let good = there.iter().all(|preview| matches!(preview.meets, Meets::AsWanted { .. }));
    Ok(if good && !there.is_empty() { Status::Good } else { Status::Findings })
}

/// Runs `apus tune recommend`.
pub fn recommend(typed: &RecommendArgs) -> anyhow::Result<Status> {
    let access = machine(&typed.root)?;
    let found = host::profile::recommend(&access)?;
    terminal::print(typed.json, &Recommend::of(&found), |out| say::recommendation(&found, out))?;
    Ok(Status::Good)
}

/// Observes the effects of all settings: takes two readings `span` apart. The result is in the order in which the
/// document lists the settings.
fn watch(access: &Access, known: &[Transaction], span: Nanos) -> anyhow::Result<Vec<Option<Effect>>> {
    let settings: Vec<(&AnySetting, &Value)> = known
        .iter()
        .flat_map(|one| {
            let changed = one.wanted_entries().map(|entry| (&entry.intent.setting, &entry.intent.wanted));
            let already = one.already.iter().map(|(setting, wanted)| (setting, wanted));
            changed.chain(already).chain(one.refused.iter().map(|(setting, wanted, _)| (setting, wanted)))
        })
        .collect();
    let look = || {
        settings.iter().map(|(setting, wanted)| effect::look(access, setting, wanted)).collect::<Result<Vec<_>, _>>()
    };
    let first = look()?;
    let start = Instant::now();
    std::thread::sleep(Duration::from_nanos(span.as_nanos()));
    let second = look()?;
    let span = Nanos::from_nanos(u64::try_from(start.elapsed().as_nanos())?);
    let looks = first.into_iter().zip(second);
    let judged = settings.iter().zip(looks).map(|((setting, wanted), looks)| {
        let (first, second) = (looks.0?, looks.1?);
        Some(effect::judge(setting, wanted, &first, &second, span))
    });
    Ok(judged.collect())
}

/// Runs `apus tune diff`.
pub fn diff(typed: &Show) -> anyhow::Result<Status> {
    let document = read(typed)?;
    terminal::print(typed.json, &document, |out| say::diff(&document, out))?;
    Ok(Status::Good)
}

fn read(typed: &Show) -> anyhow::Result<StatusDocument> {
    let access = machine(&typed.root)?;
    let known = transactions(&access)?;
    Ok(StatusDocument::of(&access, &known, at_boot::enabled(&access)?))
}

/// Runs `apus tune export`.
pub fn export(typed: &Export) -> anyhow::Result<Status> {
    let access = machine(&typed.target.root)?;
    let (profile, resolved) = resolve(&access, &typed.profile, &typed.target)?;
    let export = resolved.export(&access, &profile.summary, typed.format)?;
    let (mut out, mut err) = (terminal::out(), terminal::err());
    for file in &export.files {
        match &typed.output {
            Some(folder) => {
                let path = folder.join(&file.name);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)
                        .with_context(|| format!("cannot make the folder {}", parent.display()))?;
                }
                terminal::file(&path, &file.text).map_err(|error| unwritable(&path, error))?;
                // tuned starts the script itself.
                if file.text.starts_with("#!") {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                        .with_context(|| format!("cannot make {} executable", path.display()))?;
                }
                writeln!(out, "{}  goes to {}", path.display(), file.place)?;
            }
            None if export.files.len() == 1 => write!(out, "{}", file.text)?,
            None => write!(out, "### {}\n{}", file.place, file.text)?,
        }
    }
    for note in &resolved.notes {
        writeln!(err, "note: {note}")?;
    }
    for left in &export.left_out {
        writeln!(err, "not exported: {left}")?;
    }
    Ok(Status::Good)
}
