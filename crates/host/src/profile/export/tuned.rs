//! Exports a plan as a profile for tuned: `/etc/tuned/NAME/tuned.conf`. A Tuned object of OpenShift contains the same
//! profile.
//!
//! Source: tuned-profiles(7), tuned.conf(5), and the plugins of redhat-performance/tuned 2.20 and 2.28: sysctl, sysfs,
//! cpu, net, irqbalance, bootloader, script. The plugin sysfs writes only below /sys. A `#` after a space begins a
//! comment, and `${` begins an expansion (profiles/loader.py, profiles/variables.py), so settings that contain a `#` or
//! `$` go into the script.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::shell::{Command, quoted};
use super::steps::{Step, steps};
use super::{Export, ExportedFile};
use crate::knob::{Access, AnySetting, Error, Setting as _};
use crate::profile::Resolved;

/// The parts of a tuned profile.
#[derive(Default)]
pub(super) struct Parts {
    /// The lines of each section, by the section's name.
    sections: BTreeMap<String, String>,
    /// Settings that no plugin can change: for each, its label, and the step with its command.
    pub(super) commands: Vec<(String, Step, Command)>,
    /// Settings that a tuned profile cannot express, each with the reason.
    pub(super) left_out: Vec<String>,
}

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = format!("apus-{}", resolved.plan.name);
    let parts = Parts::of(resolved, access)?;
    let mut text = parts.conf(summary, None);
    let mut out = Export { left_out: parts.left_out, files: Vec::new() };
    let place = |file: &str| format!("/etc/tuned/{name}/{file}");
    if !parts.commands.is_empty() {
        text.push_str("\n[script]\nscript=${i:PROFILE_DIR}/script.sh\n");
        let text = script(&parts.commands);
        out.files.push(ExportedFile { name: format!("{name}/script.sh"), place: place("script.sh"), text });
    }
    out.files.insert(0, ExportedFile { name: format!("{name}/tuned.conf"), place: place("tuned.conf"), text });
    Ok(out)
}

impl Parts {
    pub(super) fn of(resolved: &Resolved, access: &Access) -> Result<Self, Error> {
        let mut parts = Self::default();
        for item in &resolved.plan.items {
            if let (AnySetting::IrqbalanceBans(_), Some(cpus)) = (&item.setting, item.wanted.as_text())
                && cpus != "unset"
            {
                parts.line("irqbalance", "banned_cpus", cpus);
                continue;
            }
            for step in steps(access, &item.setting, &item.wanted)? {
                parts.step(access, &item.setting, step);
            }
        }
        Ok(parts)
    }

    fn step(&mut self, access: &Access, setting: &AnySetting, step: Step) {
        let taken = match &step {
            // The plugin interprets every dot as a separator.
            Step::Sysctl { name, value, .. } => !name.contains('/') && self.line("sysctl", name, value),
            Step::Write { path, text } => {
                path.starts_with("/sys/") && !path.contains(['*', '?', '[']) && self.line("sysfs", path, text)
            }
            Step::Arguments(arguments) => {
                if !self.line("bootloader", "cmdline_apus", &format!("+{arguments}")) {
                    self.left_out.push(format!("kernel arguments that tuned would expand: {arguments}"));
                }
                true
            }
            Step::Latency(micros) => self.line("cpu", "force_latency", micros),
            Step::Run { words, interface, .. } => match plugin(setting, words) {
                // The plugin ignores virtual interfaces (`_init_devices`).
                Some((option, parameters)) if access.exists(&format!("/sys/class/net/{interface}/device")) => {
                    let section = format!("net_{interface}");
                    if !self.sections.contains_key(&section) {
                        self.line(&section, "type", "net");
                        self.line(&section, "devices", interface);
                    }
                    self.line(&section, option, &parameters)
                }
                _ => false,
            },
            Step::Folder(_) | Step::None(_) => false,
        };
        if !taken {
            match Command::of(&step) {
                Some(command) => self.commands.push((setting.label(), step, command)),
                None => self.left_out.push(step.why_not(&setting.label())),
            }
        }
    }

    /// Adds a line to a section if tuned would parse the line as intended. Returns false otherwise.
    fn line(&mut self, section: &str, key: &str, value: &str) -> bool {
        let trap = |text: &str| text.contains(['#', '$', '\\']) || text.chars().any(char::is_control);
        if trap(key) || trap(value) || key.contains(['=', ' ']) || value.trim() != value || value.is_empty() {
            return false;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.sections.entry(section.to_owned()).or_default(), "{key}={value}");
        true
    }

    /// The contents of tuned.conf, without the script.
    pub(super) fn conf(&self, summary: &str, include: Option<&str>) -> String {
        let summary = summary.replace(['$', '#'], "");
        let mut text = format!("# Written by apus tune export.\n[main]\nsummary={}\n", summary.trim());
        if let Some(include) = include {
            let _ = writeln!(text, "include={include}");
        }
        for (section, lines) in &self.sections {
            let _ = write!(text, "\n[{section}]\n{lines}");
        }
        text
    }
}

/// Features that `ethtool -k` does not show under the kernel's name (ethtool(8), ethtool.c, `off_flag_def`): the
/// kernel's name, the name in ethtool's output, and the name in tuned.
const SHOWN: [(&str, &str, &str); 8] = [
    ("rx-gro", "generic-receive-offload", "gro"),
    ("rx-lro", "large-receive-offload", "lro"),
    ("rx-checksum", "rx-checksumming", "rx"),
    ("rx-hashing", "receive-hashing", "rxhash"),
    ("rx-ntuple-filter", "ntuple-filters", "ntuple"),
    ("tx-generic-segmentation", "generic-segmentation-offload", "gso"),
    ("rx-vlan-hw-parse", "rx-vlan-offload", "rxvlan"),
    ("tx-vlan-hw-insert", "tx-vlan-offload", "txvlan"),
];

/// Shell commands that save features, and shell commands that restore them.
fn features(n: usize, interface: &str, words: &[String]) -> (String, String) {
    let (mut save, mut restore) = (String::new(), String::new());
    let there = quoted(&format!("/sys/class/net/{interface}"));
    for name in words.iter().skip(3).step_by(2) {
        let shown = SHOWN.iter().find(|(kernel, ..)| kernel == name).map_or(name.as_str(), |(_, shown, _)| shown);
        let (interface, word, store) = (quoted(interface), quoted(name), quoted(&format!("apus_{n}_{name}")));
        let find = quoted(&format!("s/^[[:space:]]*{shown}: \\(on\\|off\\).*/\\1/p"));
        let _ =
            writeln!(save, "    [ ! -e {there} ] || save_value {store} \"$(ethtool -k {interface} | sed -n {find})\"");
        let _ = writeln!(
            restore,
            "    v=$(restore_value {store}); [ -z \"$v\" ] || [ ! -e {there} ] || ethtool -K {interface} {word} \"$v\""
        );
    }
    (save, restore)
}

/// The script for settings that no plugin can change. Functions of tuned save and restore files; the script itself
/// saves and restores features. Other settings that ethtool changes are not restored.
fn script(commands: &[(String, Step, Command)]) -> String {
    let (mut start, mut stop, mut verify) = (String::new(), String::new(), String::new());
    for (n, (label, step, Command { subject, set, show, wanted })) in commands.iter().enumerate() {
        let subject = quoted(subject);
        let _ = match step {
            Step::Write { path, text } | Step::Sysctl { path, value: text, .. } => {
                let (path, text) = (quoted(path), quoted(text));
                let _ = writeln!(stop, "    restore_sys apus_{n} {path}");
                writeln!(start, "    [ ! -e {subject} ] || save_set_sys apus_{n} {path} {text}")
            }
            Step::Run { words, interface, .. } if words.get(1).is_some_and(|option| option == "-K") => {
                let (save, restore) = features(n, interface, words);
                stop.push_str(&restore);
                writeln!(start, "{save}    [ ! -e {subject} ] || {set}")
            }
            _ => writeln!(start, "    [ ! -e {subject} ] || {set}"),
        };
        if let Some(wanted) = wanted {
            let _ = writeln!(
                verify,
                "    [ ! -e {subject} ] || as_wanted \"$({show})\" {} || {{ echo {} >&2; bad=1; }}",
                quoted(wanted),
                quoted(&format!("not as wanted: {label}"))
            );
        }
    }
    format!(
        "#!/bin/bash\n# Written by apus tune export. What ethtool sets here, but for offloads, is not rolled back when tuned stops.\n\
         . /usr/lib/tuned/functions\n\nstart() {{\n{start}    return 0\n}}\n\nstop() {{\n{stop}    return 0\n}}\n\n\
         # Whether two texts are the same, or the same mask of CPUs.\n\
         as_wanted() {{\n    [ \"$1\" = \"$2\" ] || [ \"$(bare \"$1\")\" = \"$(bare \"$2\")\" ]\n}}\n\n\
         bare() {{\n    printf '%s' \"$1\" | tr -d , | sed 's/^0*\\(.\\)/\\1/'\n}}\n\n\
         verify() {{\n    local bad=0\n{verify}    return $bad\n}}\n\nprocess \"$@\"\n"
    )
}

/// The option of the plugin net that changes a setting, and its parameters (plugins/plugin_net.py). `None` if the
/// plugin has no such option.
fn plugin(setting: &AnySetting, words: &[String]) -> Option<(&'static str, String)> {
    const COALESCE: [&str; 22] = [
        "adaptive-rx",
        "adaptive-tx",
        "rx-usecs",
        "rx-frames",
        "rx-usecs-irq",
        "rx-frames-irq",
        "tx-usecs",
        "tx-frames",
        "tx-usecs-irq",
        "tx-frames-irq",
        "stats-block-usecs",
        "pkt-rate-low",
        "rx-usecs-low",
        "rx-frames-low",
        "tx-usecs-low",
        "tx-frames-low",
        "pkt-rate-high",
        "rx-usecs-high",
        "rx-frames-high",
        "tx-usecs-high",
        "tx-frames-high",
        "sample-interval",
    ];
    let short = |name: &str| SHOWN.iter().find(|(kernel, ..)| *kernel == name).map(|(_, _, short)| *short);
    let [_, _, _, parameters @ ..] = words else { return None };
    let known = |names: &[&str]| parameters.iter().step_by(2).all(|name| names.contains(&name.as_str()));
    let option = match setting {
        AnySetting::Coalesce(_) if known(&COALESCE) => "coalesce",
        // The plugin knows features only by short names (`_parse_device_parameters`).
        AnySetting::Features(_) if parameters.iter().step_by(2).all(|name| short(name).is_some()) => "features",
        AnySetting::Pause(_) => "pause",
        AnySetting::Rings(_) if known(&["rx", "rx-mini", "rx-jumbo", "tx"]) => "ring",
        AnySetting::Channels(_) => "channels",
        _ => return None,
    };
    let name = |word: &String| short(word).filter(|_| option == "features").map_or(word.clone(), str::to_owned);
    Some((option, parameters.iter().map(name).collect::<Vec<_>>().join(" ")))
}
