//! `apus tune enable` and `disable`: installs or removes a systemd unit that applies a profile at each boot.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use host::at_boot::{self, AtBoot, Changed};

use super::{machine_to_change, resolve};
use crate::args::tune::Enable;
use crate::{Failure, Status, terminal};

/// Runs `apus tune enable`.
pub fn enable(typed: &Enable) -> anyhow::Result<Status> {
    let access = machine_to_change(&typed.target.root, false)?;
    // Reports now, not at the next boot, that a profile cannot be applied.
    let (profile, resolved) = resolve(&access, &typed.profile, &typed.target)?;
    let is_file = typed.profile.contains('/') || typed.profile.ends_with(".toml");
    let name = if is_file {
        let path =
            Path::new(&typed.profile).canonicalize().with_context(|| format!("cannot find {}", typed.profile))?;
        let text = |path: &Path| path.to_str().map(str::to_owned);
        text(&path).ok_or_else(|| {
            Failure::wrong("cannot enable the profile", "its path is not valid UTF-8", "rename the file or its folder")
        })?
    } else {
        typed.profile.clone()
    };
    let mut arguments = ["tune", "apply", &name, "--yes", "--wait", "60s"].map(str::to_owned).to_vec();
    if typed.keep_going {
        arguments.push("--keep-going".into());
    }
    if let Some(cpus) = &typed.target.isolated {
        arguments.extend(["--isolated".into(), cpus.to_list()]);
    }
    for interface in &typed.target.interfaces {
        arguments.extend(["--interface".into(), interface.clone()]);
    }
    for variable in &typed.target.variables {
        arguments.extend(["--set".into(), variable.clone()]);
    }
    let program = std::env::current_exe()?;
    let files = profile.layers.iter().filter(|layer| layer.folder.is_some()).map(|layer| PathBuf::from(&layer.name));
    let mut changeable = Vec::new();
    for file in files.chain([program.clone()]) {
        let why = at_boot::changeable_by_others(&file)
            .with_context(|| format!("cannot read the owner of {}", file.display()))?;
        changeable.extend(why.map(|why| (file, why)));
    }
    let at_boot = AtBoot { program, arguments, interfaces: typed.target.interfaces.clone(), summary: profile.summary };
    let changed = at_boot.enable(&access)?;
    let mut out = terminal::out();
    for path in &changed.paths {
        writeln!(out, "wrote {path}")?;
    }
    if changed.paths.is_empty() {
        writeln!(out, "{} is already enabled; nothing was written", resolved.plan.name)?;
    } else {
        writeln!(out, "{} will be applied at each boot; to apply it now: apus tune apply {name}", resolved.plan.name)?;
    }
    writeln!(out, "to undo: apus tune disable")?;
    for note in &resolved.notes {
        writeln!(out, "note: {note}")?;
    }
    for (file, why) in &changeable {
        writeln!(
            out,
            "WARNING: users other than root can change what is applied at each boot, through {}: {why}. Fix: chown root and chmod go-w, or move the file",
            file.display()
        )?;
    }
    reload(&changed)
}

/// Runs `apus tune disable`.
pub fn disable(root: &Path) -> anyhow::Result<Status> {
    let access = machine_to_change(root, false)?;
    let changed = at_boot::disable(&access)?;
    let mut out = terminal::out();
    for path in &changed.paths {
        writeln!(out, "removed {path}")?;
    }
    if changed.paths.is_empty() {
        writeln!(out, "no profile is enabled, so nothing was removed")?;
    } else {
        writeln!(out, "profiles are no longer applied at boot; what is applied now stays (see apus tune status)")?;
    }
    reload(&changed)
}

fn reload(changed: &Changed) -> anyhow::Result<Status> {
    match &changed.not_reloaded {
        None => Ok(Status::Good),
        Some(why) => {
            Err(Failure::lacking("cannot make systemd reload its units", why.clone(), "run systemctl daemon-reload")
                .into())
        }
    }
}
