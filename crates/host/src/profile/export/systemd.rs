//! A file for sysctl.d(5), and a unit (systemd.service(5)) that does the rest at boot.

use std::fmt::Write as _;

use super::steps::{Step, steps};
use super::{Export, ExportedFile};
use crate::knob::{Access, Error, Setting as _};
use crate::profile::Resolved;

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = &resolved.plan.name;
    let mut out = Export::default();
    let (mut sysctl, mut start) = (String::new(), String::new());
    for item in &resolved.plan.items {
        for step in steps(access, &item.setting, &item.wanted)? {
            // Writing to a string cannot fail.
            let _ = match step {
                // A slash inside a part stands for a dot in sysctl.d(5) too.
                Step::Sysctl { name, value } => writeln!(sysctl, "{name} = {value}"),
                Step::Write { path, text } => {
                    writeln!(start, "ExecStart=/bin/sh -c {}", word(&format!("echo '{text}' > '{path}'")))
                }
                Step::Run(words) => {
                    let words: Vec<String> = words.iter().skip(1).map(|text| word(text)).collect();
                    writeln!(start, "ExecStart=/usr/sbin/ethtool {}", words.join(" "))
                }
                Step::Folder(path) => writeln!(start, "ExecStart=/bin/mkdir -p {}", word(&path)),
                Step::Arguments(arguments) => {
                    out.left_out.push(format!("kernel arguments, for the bootloader: {arguments}"));
                    Ok(())
                }
                Step::Latency(micros) => {
                    out.left_out
                        .push(format!("exit latency of {micros} us: a process must hold /dev/cpu_dma_latency open"));
                    Ok(())
                }
                Step::None(why) => {
                    out.left_out.push(format!("{}: {why}", item.setting.label()));
                    Ok(())
                }
            };
        }
    }
    if !sysctl.is_empty() {
        let text = format!("# Written by apus tune export. {summary}\n{sysctl}");
        let file = format!("90-apus-{name}.conf");
        out.files.push(ExportedFile { place: format!("/etc/sysctl.d/{file}"), name: file, text });
    }
    if !start.is_empty() {
        let text = format!(
            "# Written by apus tune export. It does not take back what it sets.\n\
             [Unit]\nDescription=Apus: {summary}\nAfter=network.target systemd-sysctl.service\n\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\n{start}\n\
             [Install]\nWantedBy=multi-user.target\n"
        );
        let file = format!("apus-{name}.service");
        out.files.push(ExportedFile { place: format!("/etc/systemd/system/{file}"), name: file, text });
    }
    Ok(out)
}

/// A word of an ExecStart= line (systemd.service(5), "Command lines"): `%` and `$` mean something there.
fn word(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    if escaped.chars().all(plain) && !escaped.is_empty() { escaped } else { format!("\"{escaped}\"") }
}
