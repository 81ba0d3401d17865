//! `apus power serve`: answers the power requests of guests on the host.

mod attached;
mod log;
mod manifest;
pub(in crate::commands) mod published;
mod session;

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use host::knob::Access;
use live::os::Signals;
use live::os::notify::ServiceManager;
use units::Hertz;

use crate::args::power::serve::{Check, Command, ROOT, Serve, Show};
use crate::commands::ports;
use crate::commands::shown::{check_folder, leftover};
use crate::documents::VERSION;
use crate::documents::guests::{Guest, STATUS, StatusDocument};
use crate::{Status, terminal};
use manifest::GuestFile;
use session::Session;

const COMMAND: &str = "apus power serve";

/// Runs `apus power serve`.
pub(super) fn run(typed: &Serve) -> anyhow::Result<Status> {
    match &typed.command {
        Some(Command::Check(typed)) => check(typed),
        Some(Command::Status(typed)) => status(typed),
        None => serve(typed),
    }
}

fn serve(typed: &Serve) -> anyhow::Result<Status> {
    let signals = Signals::hold()?;
    let access = if typed.root == Path::new("/") {
        for line in ports::take_back_left_behind(COMMAND)? {
            note(&line);
        }
        Access::live()?
    } else {
        Access::below(&typed.root)?
    };
    let manager = ServiceManager::of_environment()?;
    let (document, is_good) = Session::begin(typed, &access)?.run(&signals, &manager)?;
    // All settings are restored, so Ctrl-C may end a wait for the reader of the output.
    signals.released(|| {
        terminal::aside::drain(None);
        terminal::print(typed.json, &document, |out| {
            for guest in &document.guests {
                writeln!(out, "{}", totals(guest))?;
            }
            match document.restored {
                Some(true) => writeln!(out, "all settings are restored to their original values"),
                Some(false) => writeln!(out, "not all settings could be restored; look at apus tune status"),
                None => writeln!(out, "no setting was changed"),
            }
        })
    })??;
    Ok(if document.restored == Some(false) || !is_good { Status::Findings } else { Status::Good })
}

fn check(typed: &Check) -> anyhow::Result<Status> {
    let path = typed.path.as_ref().unwrap_or(&typed.guests);
    let (guests, failures) = match path.is_dir() {
        true => manifest::all(path)?,
        false => (vec![GuestFile::read(path)?], Vec::new()),
    };
    let mut out = terminal::out();
    for guest in &guests {
        writeln!(out, "{guest}").context("cannot write the manifests")?;
    }
    if guests.is_empty() && failures.is_empty() {
        writeln!(out, "no manifest found").context("cannot write the manifests")?;
    }
    out.flush().context("cannot write the manifests")?;
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(Status::Good),
        Some(first) => {
            // Prints all mistakes at once.
            for failure in failures {
                let _ = writeln!(terminal::err(), "{failure}");
            }
            Err(first.into())
        }
    }
}

fn status(typed: &Show) -> anyhow::Result<Status> {
    check_folder("--folder", &typed.folder, ROOT)?;
    let (instances, leftovers) = published::all(&typed.folder)?;
    let document = StatusDocument { apus: VERSION.to_owned(), schema: STATUS.to_owned(), instances, leftovers };
    terminal::print(typed.json, &document, |out| {
        if document.instances.is_empty() {
            writeln!(out, "no instance of apus power serve is running")?;
        }
        for guest in document.instances.iter().flat_map(|instance| &instance.document.guests) {
            writeln!(out, "{}", totals(guest))?;
            for line in lines(guest) {
                writeln!(out, "  {line}")?;
            }
        }
        let leftovers = document.leftovers.iter();
        leftovers.map(leftover).try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()
    })?;
    let is_bad = |guest: &Guest| {
        guest.pinning_unknown.is_some()
            || guest.channels.iter().any(|channel| channel.trouble.is_some())
            || guest.vcpus.iter().any(|vcpu| vcpu.why.is_some())
    };
    let is_bad = document.instances.iter().flat_map(|instance| &instance.document.guests).any(is_bad);
    Ok(if is_bad { Status::Findings } else { Status::Good })
}

/// Summarizes a guest in one line: `vm1: 2 of 2 channels connected; 12 messages: 9 granted, 1 limited, 0 held, 2
/// refused (1 above the rate)`.
fn totals(guest: &Guest) -> String {
    format!(
        "{}: {} of {} channels connected; {} messages: {} granted, {} limited, {} held, {} refused ({} above the rate)",
        guest.name,
        guest.connected,
        guest.channels.len(),
        guest.messages,
        guest.granted,
        guest.limited,
        guest.held,
        guest.refused,
        guest.over_rate
    )
}

/// The lines below a guest's totals: problems, and the state of each vCPU.
fn lines(guest: &Guest) -> Vec<String> {
    let mut lines = Vec::new();
    for channel in &guest.channels {
        if let Some(why) = &channel.trouble {
            lines.push(format!("channel {}: {why}", channel.path));
        }
    }
    if let Some(why) = &guest.pinning_unknown {
        lines.push(format!("it is unknown on which CPUs its vCPUs run: {why}"));
    }
    for vcpu in &guest.vcpus {
        let cpus = vcpu.cpus.as_deref().unwrap_or("unknown");
        let wish = vcpu
            .wish_khz
            .map_or_else(|| "requests no frequency".to_owned(), |khz| format!("requests {}", Hertz::from_khz(khz)));
        let goal = vcpu.goal.as_ref().map_or_else(String::new, |goal| format!(", goal {goal}"));
        let fixed =
            vcpu.fixed_khz.map_or_else(|| "not fixed".to_owned(), |khz| format!("fixed at {}", Hertz::from_khz(khz)));
        let why = vcpu.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!("vCPU {} on CPU {cpus}: {wish}{goal}; {fixed}{why}", vcpu.vcpu));
    }
    lines
}

/// Prints a message that is not part of the result.
fn note(text: &str) {
    terminal::aside::eprint(terminal::line(&text.replace('\n', "; ")));
}
