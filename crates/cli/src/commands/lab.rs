//! `apus lab`: creates, lists, uses and removes labs.

use std::io::Write as _;

use live::os::Signals;
use tester::lab::{self, Found};

use crate::args::lab::{Lab as Typed, Up};
use crate::args::values::show_mac;
use crate::documents::VERSION;
use crate::documents::lab::{Document, Lab, SCHEMA};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus lab`.
pub fn run(typed: Typed) -> anyhow::Result<Status> {
    match typed {
        Typed::Up(typed) => up(&typed),
        Typed::Down { name } => down(&name),
        Typed::List { json } => list(json),
        Typed::Exec { name, role, command } => Err(lab::exec(&name, &role, &command).into()),
    }
}

fn up(typed: &Up) -> anyhow::Result<Status> {
    // Ctrl-C takes effect only when the lab is complete, so that the lab can be removed.
    let signals = Signals::hold()?;
    let mut wanted = lab::Lab::new(typed.preset, &typed.name);
    wanted.queues = typed.queues.unwrap_or(wanted.queues);
    wanted.mtu = typed.mtu.unwrap_or(wanted.mtu);
    let guard = wanted.up()?;
    if signals.wait(std::time::Duration::ZERO).is_some() {
        guard.down()?;
        let what = format!("the lab {} was not created", typed.name);
        return Err(
            Failure::interrupted(what, "it was interrupted; what was created is removed", "run it again").into()
        );
    }
    let lab = guard.keep();
    let mut out = terminal::out();
    writeln!(out, "lab {} is up", lab.name)?;
    for (a, b) in &lab.links {
        for end in [a, b] {
            let mac = lab.mac(end).map(show_mac).unwrap_or_default();
            let addresses = lab.addresses.iter().filter(|address| address.end == *end);
            let addresses: String = addresses.map(|address| format!(" {}/{}", address.ip, address.prefix)).collect();
            writeln!(out, "  {:<6} in {}  {mac}{addresses}", end.interface, lab.namespace(&end.namespace))?;
        }
    }
    writeln!(out, "run a command in it: apus lab exec {} {} -- ip link", lab.name, lab.namespaces[0])?;
    writeln!(out, "remove it:           apus lab down {}", lab.name)?;
    Ok(Status::Good)
}

fn down(name: &str) -> anyhow::Result<Status> {
    // Ctrl-C takes effect only when the lab is removed, because half a lab is of no use.
    let _signals = Signals::hold()?;
    let removed = lab::down(name)?;
    let mut out = terminal::out();
    if removed.namespaces.is_empty() {
        writeln!(out, "there is no lab {name}")?;
    } else {
        writeln!(out, "lab {name} was removed")?;
    }
    for pid in removed.still_running {
        writeln!(
            terminal::err(),
            "warning: process {pid} still runs in a namespace of the lab, without network links; stop it"
        )?;
    }
    Ok(Status::Good)
}

fn list(json: bool) -> anyhow::Result<Status> {
    let labs = lab::list()?;
    if json {
        let labs = labs.into_iter().map(|Found { name, namespaces }| Lab {
            namespaces: namespaces.iter().map(|role| lab::full_name(&name, role)).collect(),
            roles: namespaces,
            name,
        });
        let document = Document { apus: VERSION.to_owned(), schema: SCHEMA.to_owned(), labs: labs.collect() };
        print_json(&document)?;
        return Ok(Status::Good);
    }
    let mut out = terminal::out();
    if labs.is_empty() {
        writeln!(out, "there is no lab; `apus lab up` creates one")?;
    }
    for Found { name, namespaces } in labs {
        writeln!(out, "{name}: {}", namespaces.join(", "))?;
    }
    Ok(Status::Good)
}
