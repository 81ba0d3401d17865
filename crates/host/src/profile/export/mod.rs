//! Exports a plan for hosts that are managed with another configuration tool.
//!
//! Settings that the tool cannot express are listed, never silently omitted.

mod ansible;
mod openshift;
mod shell;
mod steps;
pub(crate) mod systemd;
mod tuned;
mod tuned_object;

use super::Resolved;
use crate::knob::{Access, Error, Setting as _};

units::named! {
    /// The configuration tool for which a plan is exported.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Format {
        /// A profile for tuned(8).
        Tuned = "tuned",
        /// A file for sysctl.d(5), and a systemd unit for all other settings.
        Systemd = "systemd",
        /// Arguments for the kernel's command line.
        Cmdline = "cmdline",
        /// A PerformanceProfile for OpenShift's node tuning operator.
        Openshift = "openshift",
        /// A Tuned object for OpenShift's node tuning operator.
        OpenshiftTuned = "openshift-tuned",
        /// A playbook for Ansible.
        Ansible = "ansible",
    }
}

/// An exported plan.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Export {
    /// The files to install.
    pub files: Vec<ExportedFile>,
    /// Settings that the tool cannot express, each with the reason.
    pub left_out: Vec<String>,
}

/// A file of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedFile {
    /// Name of the file, below the folder that the user chooses.
    pub name: String,
    /// Path at which to install the file on the host.
    pub place: String,
    /// The contents of the file.
    pub text: String,
}

impl Resolved {
    /// Exports the plan for another configuration tool. The result is valid only for this machine, because it contains,
    /// for example, this machine's CPU policies and registers.
    pub fn export(&self, access: &Access, summary: &str, format: Format) -> Result<Export, Error> {
        let summary = &one_line(summary);
        let mut named = self.clone();
        named.plan.name = slug(&self.plan.name);
        if matches!(format, Format::Openshift | Format::OpenshiftTuned) {
            // Kubernetes requires names in the form of RFC 1123.
            named.plan.name = named.plan.name.to_ascii_lowercase().replace('_', "-");
        }
        // Settings that this machine is known to refuse (a managed interrupt) would fail in every tool.
        let mut refused = Vec::new();
        named.plan.items.retain(|item| match item.setting.check(access, &item.wanted) {
            Err(error @ Error::Refused { .. }) => {
                refused.push(format!("{}: {}", item.setting.label(), error.to_string().replace('\n', "; ")));
                false
            }
            _ => true,
        });
        let mut export = match format {
            Format::Tuned => tuned::export(&named, access, summary),
            Format::Systemd => systemd::export(&named, access, summary),
            Format::Cmdline => Ok(cmdline(self)),
            Format::Openshift => Ok(openshift::export(&named, summary)),
            Format::OpenshiftTuned => tuned_object::export(&named, access, summary),
            Format::Ansible => ansible::export(&named, access, summary),
        }?;
        export.left_out.extend(refused);
        Ok(export)
    }
}

fn cmdline(resolved: &Resolved) -> Export {
    let text = format!("{}\n", resolved.arguments.join(" "));
    let place = "the bootloader's configuration, before a reboot".to_owned();
    let left_out = match resolved.plan.items.len() - usize::from(!resolved.arguments.is_empty()) {
        0 => Vec::new(),
        n => vec![format!("{n} settings that are not kernel arguments")],
    };
    Export { files: vec![ExportedFile { name: "cmdline".into(), place, text }], left_out }
}

/// Joins a summary into one line that every format accepts as a comment, title or value. Removes control characters,
/// and backslashes at the end, which would continue the line in some formats.
fn one_line(text: &str) -> String {
    let text: String =
        text.chars().map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c }).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_end_matches(['\\', ' ']).to_owned()
}

/// Makes a name for files and objects. Characters other than letters, digits, `.`, `_` and `-` become `-`.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let slug: String = name.chars().map(plain).collect();
    let slug = slug.trim_matches(['.', '-']);
    if slug.is_empty() { "profile".into() } else { slug.to_owned() }
}

/// Puts a string in double quotes for YAML (YAML 1.2, 7.3.1).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // YAML 1.2, 5.7: an unprintable character is written as its number.
            c if c.is_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
