//! `apus moderate check`: prints the interfaces, queues and goals of a configuration file.

use std::io::Write as _;

use anyhow::Context as _;
use host::knob::Access;

use super::config::{Config, InterfaceConfig};
use crate::args::moderate::{Check, Policy};
use crate::{Status, terminal};

/// Runs `apus moderate check`.
pub(super) fn run(typed: &Check) -> anyhow::Result<Status> {
    let config = Config::read(&typed.file)?;
    // A missing interface is only a note, not a mistake, because it may appear later, such as a tunnel's interface.
    let here = Access::live().and_then(|access| host::knob::interfaces(&access));
    let mut out = terminal::out();
    for interface in &config.interfaces {
        writeln!(out, "{}", described(interface)).context("cannot write the configuration")?;
        for (queue, goal) in &interface.queues {
            writeln!(out, "  queue {queue}: {goal}").context("cannot write the configuration")?;
        }
    }
    out.flush().context("cannot write the configuration")?;
    let mut err = terminal::err();
    match here {
        Ok(Some(here)) => {
            for interface in config.interfaces.iter().filter(|interface| !here.contains(&interface.name)) {
                let _ = writeln!(err, "note: {}: at present this host has no such interface", interface.name);
            }
        }
        Ok(None) => {}
        Err(error) => {
            let _ = writeln!(err, "note: cannot check whether the interfaces exist: {error}");
        }
    }
    Ok(Status::Good)
}

/// Describes an interface in one line: `eth0: goal p99=100us, place napi`.
fn described(interface: &InterfaceConfig) -> String {
    let how = match interface.policy {
        Policy::Goal => format!("goal {}", interface.goal),
        other => format!("policy {other}, judged by {}", interface.goal),
    };
    let peak = interface.peak_rate.map_or_else(String::new, |rate| format!(", at most {rate} per queue"));
    format!("{}: {how}, place {}{peak}", interface.name, interface.place.name())
}
