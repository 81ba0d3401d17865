//! `apus sim machines`: shows the machines that a scenario can name, and the source of each value.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use anyhow::Context as _;
use sim::machine::{Machine, MachineError};

use crate::args::sim::Machines as Typed;
use crate::documents::VERSION;
use crate::documents::machines::{Document, MACHINES, Shown};
use crate::terminal::print_json;
use crate::{Failure, Status, terminal};

/// Runs `apus sim machines`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let (machines, whole) = match &typed.name {
        Some(name) => (vec![read(name)?], true),
        None => (Machine::names().map(read).collect::<Result<_, _>>()?, false),
    };
    if typed.json {
        let machines = machines.iter().map(|(machine, _)| Shown::new(machine, whole)).collect();
        print_json(&Document { apus: VERSION.to_owned(), schema: MACHINES.to_owned(), machines })?;
        return Ok(Status::Good);
    }
    let said = match &machines[..] {
        [(_, text)] if typed.toml => text.clone(),
        [(machine, _)] if whole => one(machine),
        _ => all(machines.iter().map(|(machine, _)| machine)),
    };
    let mut out = terminal::out();
    out.write_all(said.as_bytes())?;
    out.flush().context("cannot write the machines")?;
    Ok(Status::Good)
}

/// Reads a machine model: a built-in one by its name, or FILE.toml.
pub fn machine(name: &str) -> Result<Machine, Failure> {
    read(name).map(|(machine, _)| machine)
}

/// Reads a machine and the text of its file.
fn read(name: &str) -> Result<(Machine, String), Failure> {
    let text = if name.ends_with(".toml") {
        fs::read_to_string(name).map_err(|error| {
            Failure::wrong(
                format!("cannot read the machine {name}"),
                error,
                "give a TOML file that describes a machine",
            )
        })?
    } else {
        Machine::text(name).unwrap_or_default().to_owned()
    };
    let found = if name.ends_with(".toml") { Machine::from_toml(&text, name) } else { Machine::named(name) };
    Ok((found.map_err(|error| failure(name, &error))?, text))
}

/// Turns an error in a machine into a message; one in the user's own file keeps its line and key.
fn failure(name: &str, error: &MachineError) -> Failure {
    let what = format!("read the machine {name}");
    match error.in_file() {
        Some(error) => Failure::wrong(what, format!("{}: {}", error.place, error.what), error.fix),
        None => Failure::wrong(what, error, "choose one that apus sim machines lists"),
    }
}

fn all<'a>(machines: impl Iterator<Item = &'a Machine>) -> String {
    let mut text = format!("{:<22}{:<12}DESCRIPTION\n", "NAME", "HAS");
    for machine in machines {
        let has = match (&machine.processor, &machine.nic) {
            (Some(_), Some(_)) => "both",
            (Some(_), None) => "processor",
            _ => "NIC",
        };
        let _ = writeln!(text, "{:<22}{has:<12}{}", machine.name, machine.description);
    }
    text.push_str("\nA scenario names a processor (machine = \"NAME\") and a NIC (nic = \"NAME\"); a NAME can also be your own FILE.toml.\n");
    text.push_str(
        "apus sim machines NAME shows each value with its source; --toml prints the file, as a starting point for your own.\n",
    );
    text
}

fn one(machine: &Machine) -> String {
    let mut text = format!("{}\n{}\n\n", machine.name, machine.description);
    for parameter in &machine.parameters {
        let _ = writeln!(text, "{} = {}\n    {}", parameter.path, parameter.value, parameter.source);
    }
    text
}
