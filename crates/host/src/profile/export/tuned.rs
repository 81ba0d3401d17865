//! A profile of tuned: `/etc/tuned/NAME/tuned.conf`.
//!
//! Source: tuned-profiles(7), tuned.conf(5), and the plugins of redhat-performance/tuned 2.28: sysctl, sysfs, cpu, net,
//! bootloader, script.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::steps::{Step, steps};
use super::{Export, ExportedFile};
use crate::knob::{Access, AnySetting, Error, Setting as _};
use crate::profile::Resolved;

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = format!("apus-{}", resolved.plan.name);
    let mut out = Export::default();
    let (mut sysctl, mut sysfs, mut boot, mut cpu) = (String::new(), String::new(), String::new(), String::new());
    let mut net: BTreeMap<String, String> = BTreeMap::new();
    let mut script = String::new();
    for item in &resolved.plan.items {
        for step in steps(access, &item.setting, &item.wanted)? {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::Sysctl { name, value } => writeln!(sysctl, "{name}={value}"),
                Step::Write { path, text } => writeln!(sysfs, "{path}={text}"),
                Step::Arguments(arguments) => writeln!(boot, "cmdline_apus=+{arguments}"),
                Step::Latency(micros) => writeln!(cpu, "force_latency={micros}"),
                Step::Run(words) => match plugin(&item.setting, &words) {
                    Some((interface, line)) => writeln!(net.entry(interface).or_default(), "{line}"),
                    None => writeln!(script, "    {}", words.join(" ")),
                },
                Step::Folder(path) => writeln!(script, "    mkdir -p {path}"),
                Step::None(why) => {
                    out.left_out.push(format!("{}: {why}", item.setting.label()));
                    Ok(())
                }
            };
        }
    }
    let mut text = format!("# Written by apus tune export.\n[main]\nsummary={summary}\n");
    for (section, lines) in [("sysctl", &sysctl), ("sysfs", &sysfs), ("cpu", &cpu), ("bootloader", &boot)] {
        if !lines.is_empty() {
            let _ = write!(text, "\n[{section}]\n{lines}");
        }
    }
    for (interface, lines) in net {
        let _ = write!(text, "\n[net_{interface}]\ntype=net\ndevices={interface}\n{lines}");
    }
    let place = |file: &str| format!("/etc/tuned/{name}/{file}");
    if !script.is_empty() {
        text.push_str("\n[script]\nscript=${i:PROFILE_DIR}/script.sh\n");
        let text = format!(
            "#!/bin/sh\n# Written by apus tune export. tuned does not take these back when it stops.\n\
             . /usr/lib/tuned/functions\n\nstart() {{\n{script}}}\n\nstop() {{\n    return 0\n}}\n\nprocess $@\n"
        );
        out.files.push(ExportedFile { name: format!("{name}/script.sh"), place: place("script.sh"), text });
    }
    out.files.insert(0, ExportedFile { name: format!("{name}/tuned.conf"), place: place("tuned.conf"), text });
    Ok(out)
}

/// What the plugin net has an option for (tuned/plugins/plugin_net.py).
fn plugin(setting: &AnySetting, words: &[String]) -> Option<(String, String)> {
    let option = match setting {
        AnySetting::Coalesce(_) => "coalesce",
        AnySetting::Features(_) => "features",
        AnySetting::Pause(_) => "pause",
        AnySetting::Rings(_) => "ring",
        AnySetting::Channels(_) => "channels",
        _ => return None,
    };
    let [_, _, interface, parameters @ ..] = words else { return None };
    Some((interface.clone(), format!("{option}={}", parameters.join(" "))))
}
