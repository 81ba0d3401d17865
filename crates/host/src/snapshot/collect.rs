//! Collects the files, command outputs and threads of a snapshot, masks them, and records which paths were looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, SystemTime};

use super::paths::{How, Wanted, expand, wanted};
use super::{Plan, SIZE_LIMIT, Snapshot, commands, mask};
use crate::facts::{
    CpuSet, Fact, Facts, Kind, LiveLinks, OBSERVED, REGISTERS, Root, Why, away_from_isolated, isolated_cpus, mangled,
    raw_messages, thread_files,
};

/// Maximum size in bytes of a text file that is not a table.
const TEXT_LIMIT: usize = 8 << 20;
/// Number of bytes that are kept of a PCI configuration space. They are its standard part; after it comes the
/// capability Device Serial Number, which contains a MAC address (PCI Express Base Specification, 7.9.3).
const CONFIG: usize = 256;

struct Collector<'a> {
    root: &'a Root,
    plan: Plan,
    /// CPUs that must not be interrupted.
    spared: CpuSet,
    files: BTreeMap<String, Vec<u8>>,
    size: usize,
    is_full: bool,
    names: BTreeSet<String>,
    links: BTreeMap<String, String>,
    denied: BTreeSet<String>,
    unasked: BTreeSet<String>,
    looked: BTreeSet<String>,
}

pub(super) fn take(root: &Root, plan: Plan) -> Snapshot {
    let is_live = root.kind() == Kind::Live;
    let _place = is_live.then(away_from_isolated);
    let spared = if is_live && !plan.msrs { isolated_cpus(root) } else { CpuSet::new() };
    let mut collector = Collector {
        root,
        plan,
        spared,
        files: BTreeMap::new(),
        size: 0,
        is_full: false,
        names: BTreeSet::new(),
        links: BTreeMap::new(),
        denied: BTreeSet::new(),
        unasked: BTreeSet::new(),
        looked: BTreeSet::new(),
    };
    let release = root.kernel_release().into_value().unwrap_or_default();
    // Reads first what is read only once, so that exactly the interval passes between the two readings of the counters.
    for one in wanted().filter(|one| !one.twice) {
        collector.take(&one, &release, "");
    }
    if is_live {
        collector.outputs();
    } else {
        collector.recorded_outputs();
    }
    collector.counters("");
    if is_live {
        match plan.watch {
            true => collector.text(OBSERVED, Facts::observe(root, plan.interval)),
            false => thread::sleep(Duration::from_nanos(plan.interval.as_nanos())),
        }
        collector.counters("again/");
    }
    collector.finish()
}

impl Collector<'_> {
    /// Collects all counters, for the first reading if `place` is empty, or for the second one if it is `again/`.
    fn counters(&mut self, place: &str) {
        for one in wanted().filter(|one| one.twice) {
            self.take(&one, "", place);
        }
        if self.root.kind() != Kind::Live {
            return;
        }
        for (name, text) in thread_files() {
            self.put(&format!("{place}tasks/{name}"), text.into_bytes());
        }
        for (name, counts) in LiveLinks::statistics() {
            let path = format!("{place}commands/{}", mangled(&format!("ethtool -S {name}")));
            self.text(&path, commands::statistics(&counts));
        }
        if self.plan.msrs {
            let facts = Facts::registers(self.root);
            for (address, _) in REGISTERS {
                if let Some(values) = facts.register(address).value() {
                    let lines = values.iter().map(|(cpu, value)| format!("{cpu} 0x{value:x}\n"));
                    self.put(&format!("{place}msr/0x{address:x}"), lines.collect::<String>().into_bytes());
                }
            }
        }
    }

    /// Collects the parts that do not come from files.
    fn outputs(&mut self) {
        if let Fact::Known { value, .. } = raw_messages() {
            self.text("commands/dmesg", messages(&value));
        }
        let facts = Facts::outputs(self.root);
        if let Some(latency) = facts.dma_latency.get() {
            self.text("commands/cpu_dma_latency", format!("{}\n", latency.as_micros_floor()));
        }
        if let Some(holders) = facts.dma_latency_holders.value() {
            // Without the final newline, an empty list would look like a file that could not be read.
            let text = holders.iter().map(|holder| format!("{holder}\n")).collect::<String>();
            self.text("commands/cpu_dma_latency_holders", text);
        }
        if let Some(modules) = facts.modules.value().filter(|modules| !modules.is_empty()) {
            self.text("commands/dmidecode_-t_17", commands::modules(modules));
        }
        for (name, said, queues) in LiveLinks::all(self.root) {
            for (command, text) in commands::ethtool(&name, &said, &queues) {
                self.text(&format!("commands/{}", mangled(&command)), text);
            }
        }
    }

    /// Copies the parts of another recording that did not come from files, and masks them. The other recording may have
    /// been taken with `--unmask`, or by another tool.
    fn recorded_outputs(&mut self) {
        for place in ["", "again/"] {
            for folder in ["commands", "tasks", "msr"] {
                let at = format!("{place}{folder}");
                for name in self.root.list(&at).into_value().unwrap_or_default() {
                    let path = format!("{at}/{name}");
                    let Some(text) = self.root.text_up_to(&path, SIZE_LIMIT).into_value() else { continue };
                    let masked = match folder == "commands" && name == "dmesg" {
                        true => Some(messages(&text)),
                        false => mask::recorded(folder, &name, &text),
                    };
                    if let Some(text) = masked {
                        self.text(&path, text);
                    }
                }
            }
        }
    }

    fn take(&mut self, one: &Wanted, release: &str, place: &str) {
        let unified = || self.root.text("sys/fs/cgroup/cgroup.controllers").is_known();
        if one.how == How::Unmasked && !self.plan.unmask || one.how == How::Unified && !unified() {
            return;
        }
        let pattern = one.pattern.replace("RELEASE", release);
        self.looked.insert(pattern.clone());
        for path in expand(self.root, &pattern) {
            if one.how == How::Link {
                if let Some(target) = self.root.link_target(&path).into_value() {
                    self.links.insert(path, target);
                }
                continue;
            }
            if matches!(one.how, How::Register | How::CpuInfo) && self.would_disturb(one.how, &path) {
                self.unasked.insert(path);
                continue;
            }
            if one.how == How::Names {
                self.names.insert(path);
                continue;
            }
            self.file(one.how, &path, place);
        }
    }

    fn file(&mut self, how: How, path: &str, place: &str) {
        let is_long = matches!(how, How::Whole | How::CpuInfo | How::Config);
        let limit = if is_long { SIZE_LIMIT } else { TEXT_LIMIT };
        let octets = match self.root.bytes(path, limit) {
            Fact::Known { value, .. } => value,
            Fact::Missing { why: Why::NotPermitted, .. } => {
                self.denied.insert(format!("{place}{path}"));
                return;
            }
            Fact::Missing { why: Why::Unsupported(_), .. } => {
                self.names.insert(format!("{place}{path}"));
                return;
            }
            Fact::Missing { .. } => return,
        };
        let text = String::from_utf8_lossy(&octets);
        let masked = match how {
            How::PciConfig => {
                self.put(&format!("{place}{path}"), octets[..octets.len().min(CONFIG)].to_vec());
                return;
            }
            How::Config if path.ends_with(".gz") => {
                // A configuration that cannot be unpacked cannot be masked, so it is left out.
                if let Some(packed) = mask::packed_config(&octets) {
                    self.put(&format!("{place}{path}"), packed);
                }
                return;
            }
            How::Config => mask::config(&text),
            How::CommandLine => mask::command_line(&text),
            How::Loader => mask::loader(&text),
            How::Mounts => mask::mounts(&text),
            How::Kubelet => mask::kubelet(&text),
            How::CpuManager => mask::cpu_manager(&text),
            How::Limits => mask::limits(&text),
            How::Modules => mask::modules(&text),
            How::Prose => mask::prose(&text),
            How::Count => mask::counted(&text),
            How::Swaps => mask::swaps(&text),
            How::Settings => mask::settings(&text),
            How::CpuInfo if !self.plan.unmask => mask::cpu_info(&text),
            How::Lines
            | How::Whole
            | How::Unified
            | How::Register
            | How::CpuInfo
            | How::Link
            | How::Names
            | How::Unmasked => {
                self.put(&format!("{place}{path}"), octets);
                return;
            }
        };
        self.text(&format!("{place}{path}"), masked);
    }

    /// Whether reading `path` could interrupt one of the CPUs in `spared`.
    fn would_disturb(&self, how: How, path: &str) -> bool {
        if self.spared.is_empty() {
            return false;
        }
        if how == How::CpuInfo {
            return !Facts::cpuinfo_is_quiet(self.root, &self.spared);
        }
        let number = path
            .split('/')
            .find_map(|part| part.strip_prefix("cpu").or(part.strip_prefix("policy"))?.parse::<u32>().ok());
        // A path without a CPU or policy belongs to a package. The kernel reads it on the package's first CPU, which
        // may be one to be spared.
        number.is_none_or(|cpu| self.spared.contains(cpu))
    }

    fn text(&mut self, path: &str, text: String) {
        self.put(path, text.into_bytes());
    }

    fn put(&mut self, path: &str, contents: Vec<u8>) {
        if self.size + contents.len() > SIZE_LIMIT {
            self.is_full = true;
            return;
        }
        self.size += contents.len();
        self.files.insert(path.to_owned(), contents);
    }

    fn finish(mut self) -> Snapshot {
        let list =
            |paths: &BTreeSet<String>| paths.iter().map(|path| format!("/{path}\n")).collect::<String>().into_bytes();
        for (name, paths) in [("bundle/paths", &self.names), ("denied", &self.denied), ("unasked", &self.unasked)] {
            if !paths.is_empty() {
                self.files.insert(name.to_owned(), list(paths));
            }
        }
        let links: String = self.links.iter().map(|(path, target)| format!(" /{path} -> {target}\n")).collect();
        self.files.insert("bundle/links".to_owned(), links.into_bytes());
        if !self.plan.unmask {
            let files = std::mem::take(&mut self.files).into_iter();
            let masked = |(path, contents): (String, Vec<u8>)| match path.as_str() {
                // The observations contain only numbers. A long one could look like a MAC address.
                OBSERVED => (path, contents),
                _ => (mask::path(&path), mask::names(&path, contents)),
            };
            self.files = files.map(masked).collect();
        }
        // If a recording lacks a file, this does not mean that the file was looked for on the host.
        let looked = self.looked.iter().filter(|_| self.root.is_complete());
        let looked: String = looked.map(|path| format!("looked: {path}\n")).collect();
        let manifest = format!(
            "apus-snapshot 1\nos: Linux\ntaken: {}\nby: apus {}\nmasked: {}\ncomplete: {}\n{looked}",
            now(),
            env!("CARGO_PKG_VERSION"),
            if self.plan.unmask { "no" } else { "yes" },
            if self.is_full { "no" } else { "yes" },
        );
        self.files.insert("apus-snapshot".to_owned(), manifest.into_bytes());
        Snapshot { files: self.files, complete: !self.is_full }
    }
}

/// Keeps only the kernel messages that rules use.
fn messages(text: &str) -> String {
    let kept = text.lines().filter(|line| crate::facts::message_matters(line));
    kept.filter_map(mask::message).map(|line| line + "\n").collect()
}

/// The current time in the form `2026-11-22T00:31:42Z` (RFC 3339). Source of the algorithm, whose inverse is
/// days-from-civil: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn now() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |span| span.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_779), (2026, 11, 22));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(now().len(), 20);
    }

    #[test]
    fn of_a_folder_what_is_listed_is_taken_and_the_rest_is_not() {
        let root = Root::given([
            ("proc/cmdline", "quiet rd.luks.key=abc isolcpus=2-3\n"),
            ("proc/interrupts", "CPU0\n 5: 1 chip edge enx001122334455\n"),
            ("etc/shadow", "root:x\n"),
            ("sys/class/net/enx001122334455/mtu", "1500\n"),
            ("sys/class/net/enx001122334455/address", "00:11:22:33:44:55\n"),
            ("sys/class/dmi/id/product_serial", "ABC\n"),
        ])
        .linked([("sys/class/net/enx001122334455/device", "../../../0000:3b:00.0")]);
        let snapshot = Snapshot::of(&root, Plan::default());
        let all: String =
            snapshot.files().map(|(path, text)| format!("{path}\n{}\n", String::from_utf8_lossy(text))).collect();
        for gone in ["abc", "root:x", "001122334455", "00:11:22", "ABC"] {
            assert!(!all.contains(gone), "{gone} in {all}");
        }
        for kept in ["isolcpus=2-3", "sys/class/net/enxmasked455/mtu", "chip edge enxmasked455"] {
            assert!(all.contains(kept), "{kept} in {all}");
        }
        assert!(snapshot.is_complete() && snapshot.size() > 100);
        let open = Snapshot::of(&root, Plan { unmask: true, ..Plan::default() });
        let files: BTreeMap<_, _> = open.files().collect();
        assert_eq!(files["sys/class/net/enx001122334455/address"], b"00:11:22:33:44:55\n");
        assert!(!String::from_utf8_lossy(files["proc/cmdline"]).contains("abc"), "a secret stays one");
    }
}
