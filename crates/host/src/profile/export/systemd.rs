//! Exports a plan as a file for sysctl.d(5), and a unit (systemd.service(5)) that changes all other settings at boot.
//!
//! Each line of the unit changes one setting, or reports that the machine does not have it. A rejected setting does not
//! stop the unit: it is recorded, and the last line makes the unit fail with a list of all rejected settings.

use std::fmt::Write as _;

use super::shell::{Command, quoted};
use super::steps::{Step, steps};
use super::{Export, ExportedFile, one_line};
use crate::knob::{Access, Error, Setting as _};
use crate::profile::Resolved;
use crate::transaction::OnRefusal;

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = &resolved.plan.name;
    let refused = format!("/run/apus-{name}.refused");
    let mut out = Export::default();
    let (mut sysctl, mut start) = (String::new(), String::new());
    for item in &resolved.plan.items {
        for step in steps(access, &item.setting, &item.wanted)? {
            match (&step, Command::of(&step)) {
                (Step::Sysctl { name, value, .. }, _) => {
                    // A slash inside a part stands for a dot in sysctl.d(5) too. Writing to a string cannot fail.
                    let _ = writeln!(sysctl, "{name} = {value}");
                }
                (_, Some(Command { subject, set, .. })) => {
                    let or = match item.on_refusal {
                        OnRefusal::RollBack => format!("echo {} >>{refused}", quoted(&item.setting.label())),
                        OnRefusal::Report => format!("echo {}", quoted(&format!("refused: {}", item.setting.label()))),
                    };
                    let (there, absent) = (quoted(&subject), quoted(&format!("not here: {subject}")));
                    let line = format!("if [ -e {there} ]; then {set} || {or}; else echo {absent}; fi");
                    let _ = writeln!(start, "ExecStart=/bin/sh -c {}", word(&line));
                }
                (Step::Arguments(arguments), None) => {
                    out.left_out.push(format!("kernel arguments, for the bootloader: {arguments}"))
                }
                (step, None) => out.left_out.push(step.why_not(&item.setting.label())),
            }
        }
    }
    if !sysctl.is_empty() {
        let text = format!("# Written by apus tune export. {summary}\n{sysctl}");
        let file = format!("90-apus-{name}.conf");
        out.files.push(ExportedFile { place: format!("/etc/sysctl.d/{file}"), name: file, text });
    }
    if !start.is_empty() {
        let last = format!("if [ -e {refused} ]; then echo refused:; cat {refused}; exit 1; fi");
        let text = format!(
            "# Written by apus tune export. It does not roll back what it sets, and sets nothing for devices that come later.\n\
             [Unit]\nDescription=Apus: {}\nAfter=network.target systemd-sysctl.service\n\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/rm -f {refused}\n{start}\
             ExecStart=/bin/sh -c {}\n\n[Install]\nWantedBy=multi-user.target\n",
            value(summary),
            word(&last)
        );
        let file = format!("apus-{name}.service");
        out.files.push(ExportedFile { place: format!("/etc/systemd/system/{file}"), name: file, text });
    }
    Ok(out)
}

/// Quotes a word for an ExecStart= line (systemd.service(5), "Command lines"), in which `%`, `$` and backslashes have a
/// special meaning.
pub(crate) fn word(text: &str) -> String {
    let mut escaped = String::from("\"");
    for c in text.chars() {
        match c {
            '\\' | '"' => escaped.extend(['\\', c]),
            '%' | '$' => escaped.extend([c, c]),
            c if c.is_ascii_control() => {
                let _ = write!(escaped, "\\x{:02x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped + "\""
}

/// Converts a string into the value of a key (systemd.syntax(7)). It must be one line without a specifier, which begins
/// with `%`, and without a backslash at its end, which would continue the line.
pub(crate) fn value(text: &str) -> String {
    one_line(text).replace('%', "%%").replace('\\', "/")
}
