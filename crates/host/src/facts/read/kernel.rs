//! The kernel: `/proc/version`, `/proc/config.gz`, `/sys/module`, tracefs, the clock source and kernel messages.

use std::collections::BTreeMap;
use std::io::Read;

use super::memory::chosen;
use super::{boot, messages, sysctls};
use crate::facts::cpu::Cpus;
use crate::facts::root::TABLE_LIMIT;
use crate::facts::{CommandLine, Context, Fact, Kernel, KernelConfig, KernelVersion, Root, Why};

/// Possible mount points of tracefs; older hosts use the second one.
const TRACING: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
const SCHED: &str = "sys/kernel/debug/sched";

/// The module parameters that rules use.
pub(crate) const PARAMETERS: [&str; 26] = [
    "haltpoll.guest_halt_poll_allow_shrink",
    "haltpoll.guest_halt_poll_grow",
    "haltpoll.guest_halt_poll_grow_start",
    "haltpoll.guest_halt_poll_ns",
    "haltpoll.guest_halt_poll_shrink",
    "intel_idle.max_cstate",
    "kvm.halt_poll_ns",
    "kvm.halt_poll_ns_grow",
    "kvm.halt_poll_ns_grow_start",
    "kvm.halt_poll_ns_shrink",
    "kvm.kvmclock_periodic_sync",
    "kvm.nx_huge_pages",
    "kvm_amd.avic",
    "kvm_intel.enable_apicv",
    "kvm_intel.ple_gap",
    "kvm_intel.ple_window",
    "pcie_aspm.policy",
    "processor.max_cstate",
    "rcupdate.rcu_expedited",
    "rcupdate.rcu_normal",
    "rcupdate.rcu_normal_after_boot",
    "rcutree.kthread_prio",
    "rcutree.nohz_full_patience_delay",
    "usbcore.autosuspend",
    "vfio_pci.disable_idle_d3",
    "workqueue.power_efficient",
];

pub(super) fn read(context: &Context, cmdline: &Fact<CommandLine>, cpus: &Cpus) -> Kernel {
    let root = context.root;
    let release = release(root, cmdline);
    let build = root.text("proc/sys/kernel/version").or_else(|| root.text("proc/version"));
    let config = config(root, &release);
    Kernel {
        version: release.clone().parse(|text| KernelVersion::parse(&text).ok_or("no version number")),
        realtime: realtime(root, &build, &config, &release),
        crash_kernel: root.switch("sys/kernel/kexec_crash_loaded"),
        preemption: preemption(root),
        modules: root.text_up_to("proc/modules", TABLE_LIMIT).map(|text| first_words(&text)),
        parameters: parameters(root),
        next_boot: boot::command_lines(root, &release),
        messages: messages::read(context),
        tracer: tracing(root, Root::text, "current_tracer"),
        tracing_on: tracing(root, Root::switch, "tracing_on"),
        trace_events: tracing(root, Root::text, "set_event").map(|text| text.lines().count() as u32),
        kprobes: tracing(root, Root::text, "kprobe_events").map(|text| text.lines().count() as u32),
        clocksource: root.text(&format!("{CLOCK}/current_clocksource")),
        clocksources: root
            .text(&format!("{CLOCK}/available_clocksource"))
            .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()),
        fair_server_ns: fair_server(root, cpus),
        sysctls: sysctls::read(root),
        release,
        build,
        config,
    }
}

/// The kernel's release: from /proc, from the output of `uname -a`, or from the name of the boot image.
pub(crate) fn release(root: &Root, cmdline: &Fact<CommandLine>) -> Fact<String> {
    let third_word = |text: String| match text.split_ascii_whitespace().nth(2) {
        Some(word) => Ok(word.to_owned()),
        None => Err(format!("{text:?} names no release")),
    };
    root.text("proc/sys/kernel/osrelease")
        .or_else(|| root.text("proc/version").parse(third_word))
        .or_else(|| root.command("uname -a").parse(third_word))
        .or_else(|| booted_image(cmdline))
}

/// Finds the release in the name of the boot image: `BOOT_IMAGE=(hd0,gpt3)/…/vmlinuz-5.14.0-427.el9.x86_64`.
fn booted_image(cmdline: &Fact<CommandLine>) -> Fact<String> {
    cmdline.as_ref().and_then(|line| {
        let image = line.value("BOOT_IMAGE").and_then(|image| image.rsplit('/').next());
        let release = image.and_then(|name| name.strip_prefix("vmlinuz-").or(name.strip_prefix("bzImage-")));
        match release.filter(|release| KernelVersion::parse(release).is_some()) {
            Some(release) => Fact::known(release.to_owned(), "/proc/cmdline BOOT_IMAGE"),
            None => Fact::not_recorded("/proc/sys/kernel/osrelease"),
        }
    })
}

fn realtime(root: &Root, build: &Fact<String>, config: &Fact<KernelConfig>, release: &Fact<String>) -> Fact<bool> {
    let flag = root.switch("sys/kernel/realtime");
    if flag.is_known() {
        return flag;
    }
    // Without the flag, the build text shows it: mkcompile writes PREEMPT_RT, and older patches write "PREEMPT RT".
    let by_text = build.clone().map(|text| text.contains("PREEMPT_RT") || text.contains("PREEMPT RT"));
    let by_config = || config.as_ref().map(|config| config.is_set("PREEMPT_RT") || config.is_set("PREEMPT_RT_FULL"));
    // A release's name can prove that the kernel is real-time, but not that it is not.
    let by_release = || match release {
        Fact::Known { value, source } if names_realtime(value) => Fact::known(true, source.clone()),
        _ => flag,
    };
    by_text.or_else(by_config).or_else(by_release)
}

/// Whether a release looks like that of a real-time kernel: `5.14.0-427.el9.x86_64+rt`, `4.18.0-372.rt7.129.el8`,
/// `6.1.0-9-rt-amd64`, `5.15.0-1032-realtime`.
fn names_realtime(release: &str) -> bool {
    let marks = |part: &str| {
        part == "realtime" || part.strip_prefix("rt").is_some_and(|n| n.bytes().all(|c| c.is_ascii_digit()))
    };
    release.split(['+', '.', '-', '_']).any(marks)
}

/// Reads the preemption mode, the word in parentheses: `none (voluntary) full lazy` (kernel/sched/debug.c,
/// `sched_dynamic_show`).
fn preemption(root: &Root) -> Fact<String> {
    root.text(&format!("{SCHED}/preempt")).parse(|text| {
        let word = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(word, _)| word.to_owned());
        word.ok_or_else(|| format!("no choice is marked in {text:?}"))
    })
}

fn config(root: &Root, release: &Fact<String>) -> Fact<KernelConfig> {
    let packed = root.bytes("proc/config.gz", TABLE_LIMIT).parse(|packed| {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(packed.as_slice()).take(TABLE_LIMIT as u64).read_to_string(&mut text);
        read.map(|_| parse_config(&text)).map_err(|error| error.to_string())
    });
    let installed = || {
        let Some(release) = release.value().filter(|release| !release.contains('/')) else {
            return Fact::not_recorded("/boot/config-$(uname -r)");
        };
        let read = |place: String| root.text_up_to(&place, TABLE_LIMIT).map(|text| parse_config(&text));
        read(format!("boot/config-{release}")).or_else(|| read(format!("lib/modules/{release}/config")))
    };
    packed.or_else(installed)
}

/// Parses lines such as `CONFIG_NO_HZ_FULL=y`. Options in comments count as not set.
pub(crate) fn parse_config(text: &str) -> KernelConfig {
    let option = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        Some((name.to_owned(), value.trim().trim_matches('"').to_owned()))
    };
    KernelConfig { options: text.lines().filter_map(option).collect() }
}

fn first_words(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_ascii_whitespace().next()).map(str::to_owned).collect()
}

fn parameters(root: &Root) -> BTreeMap<String, Fact<String>> {
    let path = |name: &str| format!("sys/module/{}", name.replacen('.', "/parameters/", 1));
    let read = |name: &&str| match *name {
        "pcie_aspm.policy" => ((*name).to_string(), chosen(root, &path(name))),
        _ => ((*name).to_string(), root.text(&path(name))),
    };
    PARAMETERS.iter().map(read).collect()
}

fn tracing<T>(root: &Root, read: impl Fn(&Root, &str) -> Fact<T>, name: &str) -> Fact<T> {
    let [new, old] = TRACING.map(|place| format!("{place}/{name}"));
    // An empty directory where tracefs would be mounted does not mean that nothing is traced. It means that tracefs is
    // not mounted.
    let fact = read(root, &new).or_else(|| read(root, &old));
    match fact {
        Fact::Missing { why: Why::Absent, source } => Fact::missing(
            Why::Unsupported("tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing".into()),
            source,
        ),
        fact => fact,
    }
}

fn fair_server(root: &Root, cpus: &Cpus) -> BTreeMap<u32, Fact<u64>> {
    let place = format!("{SCHED}/fair_server");
    let there = root.list(&place);
    if !there.is_known() {
        return BTreeMap::new();
    }
    let runtime = |cpu: u32| (cpu, root.number(&format!("{place}/cpu{cpu}/runtime")));
    cpus.all().iter().map(runtime).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    fn kernel(files: &[(&str, &str)]) -> Kernel {
        Facts::read(&Root::given(files.iter().copied())).kernel
    }

    #[test]
    fn the_release_is_found_in_each_of_its_places() {
        let of = |path, text| kernel(&[(path, text)]).version.get();
        assert_eq!(
            of("proc/sys/kernel/osrelease", "6.18.44\n"),
            Some(KernelVersion { major: 6, minor: 18, patch: 44 })
        );
        assert_eq!(of("proc/version", "Linux version 5.10.0-1 (gcc)"), Some(KernelVersion::new(5, 10)));
        let line = "BOOT_IMAGE=(hd0,gpt3)/ostree/vmlinuz-5.14.0-427.59.1.el9_4.x86_64+rt rw";
        assert_eq!(of("proc/cmdline", line), Some(KernelVersion::new(5, 14)));
        assert_eq!(of("proc/cmdline", "BOOT_IMAGE=/vmlinuz-latest"), None);
    }

    #[test]
    fn realtime_by_flag_text_or_configuration() {
        assert_eq!(kernel(&[("sys/kernel/realtime", "1\n")]).realtime.get(), Some(true));
        assert_eq!(kernel(&[("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Mon")]).realtime.get(), Some(true));
        assert_eq!(kernel(&[("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Mon")]).realtime.get(), Some(false));
        assert_eq!(kernel(&[]).realtime.get(), None);
        let named = |release| kernel(&[("proc/sys/kernel/osrelease", release)]).realtime.get();
        assert_eq!((named("5.14.0-427.el9.x86_64+rt"), named("6.1.0-9-rt-amd64")), (Some(true), Some(true)));
        assert_eq!((named("4.18.0-372.rt7.129.el8"), named("6.1.0-smart")), (Some(true), None));
    }

    #[test]
    fn configuration_of_the_running_release() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-9-amd64"),
            (
                "boot/config-6.1.0-9-amd64",
                "# CONFIG_NO_HZ_FULL is not set\nCONFIG_HZ=250\nCONFIG_KVM=m\nCONFIG_LOCALVERSION=\"\"\n",
            ),
        ];
        let kernel = kernel(&files);
        let config = kernel.config.value().unwrap();
        assert_eq!((config.get("HZ"), config.get("CONFIG_KVM")), (Some("250"), Some("m")));
        assert!(config.is_set("KVM") && !config.is_set("NO_HZ_FULL") && !config.is_set("HZ"));
    }

    #[test]
    fn a_packed_configuration_and_a_damaged_one() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"CONFIG_PREEMPT_RT=y\n").unwrap();
        let packed = encoder.finish().unwrap();
        let kernel = |octets: &[u8]| Facts::read(&Root::given([("proc/config.gz", octets)])).kernel;
        assert_eq!(kernel(&packed).realtime.get(), Some(true));
        assert!(matches!(kernel(&packed[..12]).config.why(), Some(Why::Malformed(_))));
    }
}
