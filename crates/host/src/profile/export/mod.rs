//! A plan as what other engines apply: a fleet keeps the one that it has.
//!
//! What an engine cannot express is listed, never left out in silence.

mod ansible;
mod openshift;
mod steps;
mod systemd;
mod tuned;

use std::fmt;
use std::str::FromStr;

use super::Resolved;
use crate::knob::{Access, Error};

/// For which engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A profile of tuned(8).
    Tuned,
    /// A file for sysctl.d(5), and a systemd unit for the rest.
    Systemd,
    /// The arguments of the kernel's command line.
    Cmdline,
    /// A PerformanceProfile of OpenShift's node tuning operator.
    Openshift,
    /// A list of Ansible tasks.
    Ansible,
}

/// A plan, exported.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Export {
    /// The files.
    pub files: Vec<ExportedFile>,
    /// The settings that this engine cannot express, with the reason.
    pub left_out: Vec<String>,
}

/// A file of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedFile {
    /// Its name, below the folder that one chooses.
    pub name: String,
    /// Where it belongs on the machine.
    pub place: String,
    /// What is in it.
    pub text: String,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tuned, Self::Systemd, Self::Cmdline, Self::Openshift, Self::Ansible];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tuned => "tuned",
            Self::Systemd => "systemd",
            Self::Cmdline => "cmdline",
            Self::Openshift => "openshift",
            Self::Ansible => "ansible",
        })
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.to_string() == text);
        found.ok_or_else(|| format!("{text:?}: expected tuned, systemd, cmdline, openshift or ansible"))
    }
}

impl Resolved {
    /// The plan for another engine. What depends on the machine (policies, registers) is that of this machine.
    pub fn export(&self, access: &Access, summary: &str, format: Format) -> Result<Export, Error> {
        match format {
            Format::Tuned => tuned::export(self, access, summary),
            Format::Systemd => systemd::export(self, access, summary),
            Format::Cmdline => Ok(cmdline(self)),
            Format::Openshift => Ok(openshift::export(self, summary)),
            Format::Ansible => ansible::export(self, access, summary),
        }
    }
}

fn cmdline(resolved: &Resolved) -> Export {
    let text = format!("{}\n", resolved.arguments.join(" "));
    let place = "the bootloader's configuration, before a reboot".to_owned();
    let left_out = match resolved.plan.items.len() - usize::from(!resolved.arguments.is_empty()) {
        0 => Vec::new(),
        n => vec![format!("{n} settings that are no kernel arguments")],
    };
    Export { files: vec![ExportedFile { name: "cmdline".into(), place, text }], left_out }
}

/// A text for YAML, in double quotes (YAML 1.2, 7.3.1).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
