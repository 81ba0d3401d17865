//! `apus tune` and `apus power set`: one file per group of subcommands.

mod at_boot;
mod change;
mod follow;
mod guard;
mod say;
mod show;

pub(super) use change::power as set_power;
pub(super) use say::recovered;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use host::knob::{Access, Act, Gate, Holder};
use host::profile::{Library, Profile, Purpose, Resolved};

use crate::args::tune::{Target, Tune as Typed};
use crate::{Failure, Status, terminal};

/// Runs `apus tune`.
pub fn run(typed: Typed) -> anyhow::Result<Status> {
    match typed {
        Typed::Plan(typed) => show::plan(&typed),
        Typed::Apply(typed) => change::apply(&typed),
        Typed::Rollback(typed) => change::rollback(&typed),
        Typed::Status(typed) => show::status(&typed),
        Typed::Verify(typed) => show::verify(&typed),
        Typed::Recommend(typed) => show::recommend(&typed),
        Typed::Follow(typed) => follow::run(&typed),
        Typed::Diff(typed) => show::diff(&typed),
        Typed::Export(typed) => show::export(&typed),
        Typed::Hold { root, micros } => {
            let access = Access::below(&root)?;
            host::privilege::keep_only(rustix::thread::CapabilitySet::empty())?;
            Err(host::knob::hold::hold(&access, micros, host::knob::hold::say_ready).into())
        }
        Typed::Enable(typed) => at_boot::enable(&typed),
        Typed::Disable { root } => at_boot::disable(&root),
        Typed::Guard(typed) => guard::run(&typed),
    }
}

/// Opens the host for reading.
fn machine(root: &Path) -> anyhow::Result<Access> {
    Ok(Access::below(root)?)
}

/// Opens the host for changes. `trace` prints each operation.
fn machine_to_change(root: &Path, trace: bool) -> anyhow::Result<Access> {
    let access = Access::below(root)?;
    if access.is_live() && !rustix::process::geteuid().is_root() {
        return Err(Failure::lacking(
            "cannot change the host's settings",
            "this needs root: it writes below /proc/sys and /sys, keeps a journal in /var/lib/apus, and needs CAP_NET_ADMIN, \
             CAP_SYS_RAWIO or CAP_SYS_NICE for interfaces, registers and threads",
            "run it with sudo (apus tune plan and apus tune export work without)",
        )
        .into());
    }
    let arguments = ["tune", "hold", "--root", &root.display().to_string()].map(str::to_owned).to_vec();
    let access = access.with_holder(Holder { program: std::env::current_exe()?, arguments });
    Ok(if trace { access.with_gate(Arc::new(Trace)) } else { access })
}

/// Prints each operation before it is done.
struct Trace;

impl Gate for Trace {
    fn before(&self, act: &Act) {
        // A failed output (a full disk) must not stop a transaction half-way.
        let _ = writeln!(terminal::err(), "{} {}", act.operation, act.object);
    }
}

/// Resolves a profile for a host.
fn resolve(access: &Access, profile: &str, target: &Target) -> anyhow::Result<(Profile, Resolved)> {
    let library = Library::below(&target.root).with(host::profile::variables(&target.variables)?);
    let profile = library.load(profile)?;
    known(access, &target.interfaces)?;
    let purpose = Purpose { isolated: target.isolated.clone(), interfaces: target.interfaces.clone() };
    let mut resolved = profile.resolve(access, &purpose)?;
    resolved.notes.extend(host::profile::rivals(access, &resolved.plan)?);
    Ok((profile, resolved))
}

/// Fails if the host does not have one of the interfaces. If a recording does not list its interfaces, any name is
/// accepted.
fn known(access: &Access, interfaces: &[String]) -> Result<(), Failure> {
    let Some(known) =
        host::knob::interfaces(access).map_err(|e| Failure::lacking("cannot list the interfaces", e, "run as root"))?
    else {
        return Ok(());
    };
    match interfaces.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::wrong(
            format!("--interface {name}"),
            "this host has no such interface",
            format!("use one of {}", known.join(", ")),
        )),
    }
}

/// The command line as typed, for the journal.
fn command_line() -> String {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    format!("apus {}", words.join(" "))
}
