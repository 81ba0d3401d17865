//! Rules on services and monitoring tools that disturb packet processing.

use std::collections::BTreeSet;

use host::Facts;
use host::facts::{Kind, Task};
use units::Nanos;

use super::common::line;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known, settled};

const GUIDE: &str = "Intel P-state guide (637284-001US, 2021), appendix A";
const KTHREADS: &str = "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst";
/// Maximum number of services that a finding names.
const NAMED: usize = 8;

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[TUNERS, MONITORS, EVIDENCE];

/// Rules on services that tune the host, and on other running services.
const TUNERS: &[Rule] = &[
    Rule {
        id: "svc.tuned-profile",
        cause: Cause::Services,
        title: "tuned applies a latency profile",
        applies: Applies::LINUX,
        judge: tuned,
        why: "tuned sets governor, idle limits, sysctls and interrupts by its profile. A profile for throughput or power \
         saving undoes latency settings each time that the service starts. A profile that does not exist is not \
         applied, and only tuned's log says so.",
        magnitude: Magnitude::untimed(
            "depends on the profile: powersave re-enables idle states of 100 us and more",
            "redhat-performance/tuned, profiles and issue 851",
        ),
        fix: Fix::both(
            "tuned-adm profile network-latency; tuned-adm verify",
            "tuned-adm profile network-latency # kept over reboots",
        ),
        cost: "The host uses more power.",
        references: &["redhat-performance/tuned, profiles", "redhat-performance/tuned issue 851"],
    },
    Rule {
        id: "svc.conflicts",
        cause: Cause::Services,
        title: "Each setting has one owner",
        applies: Applies::LINUX,
        judge: owners,
        why: "tuned, power-profiles-daemon, TLP, cpupower and thermald all set governors, preferences and limits. The \
         last one to start wins, until an event makes another one set its values again.",
        magnitude: Magnitude::untimed(
            "another of these services can change the settings at any moment",
            "redhat-performance/tuned, README: incompatible with cpupower and power-profiles-daemon",
        ),
        fix: Fix::for_good("stop and disable all but one of the services that are named"),
        cost: "The other functions of these services are lost.",
        references: &["redhat-performance/tuned, README"],
    },
    Rule {
        id: "svc.noise",
        cause: Cause::Services,
        title: "No service runs that packet processing does not need",
        applies: Applies::LINUX,
        judge: noise,
        why: "Each of these services wakes up by timers, scans memory, disks or packages, or communicates over the bus. \
         On housekeeping CPUs they delay interrupts and RCU; without isolation they delay packets.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "occasional runs of a few ms, on any CPU that they may use",
            "Mellanox mlnx-tools, mlnx_tune, which stops twenty such services; the figure is an estimate",
        ),
        fix: Fix::for_good("stop and disable the services that are named, or give systemd CPUAffinity={housekeeping}"),
        cost: "The functions of these services are lost: updates, crash reports, discovery.",
        references: &["Mellanox mlnx-tools, mlnx_tune", "FlexRAN real-time platform slides (2018)"],
    },
];

/// Rules on services that monitor the host.
const MONITORS: &[Rule] = &[
    Rule {
        id: "mon.msr-readers",
        cause: Cause::Tracing,
        title: "No tool reads registers of all CPUs",
        applies: Applies::LINUX,
        judge: registers,
        why: "A model-specific register is read on its own CPU: the reader interrupts that CPU, or runs there itself. \
         turbostat moves to every CPU in turn, including isolated ones.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "a few us per register, CPU and interval",
            "Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are an estimate",
        ),
        fix: Fix::for_good("run it on CPUs {housekeeping} alone (turbostat --cpu), or not at all"),
        cost: "The tool's readings are no longer available.",
        references: &[GUIDE],
    },
    Rule {
        id: "mon.perf-profilers",
        cause: Cause::Tracing,
        title: "No profiler runs",
        applies: Applies::LINUX,
        judge: profilers,
        why: "Profilers sample with interrupts that cannot be masked, stop all CPUs to switch tracepoints, and interrupt \
         each CPU to read its frequency.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 5 us per sample, 1,000 to 4,000 samples a second on each CPU",
            "perf-record(1), -F, default 4000; the microseconds are general knowledge",
        ),
        fix: Fix::for_good("run it on CPUs {housekeeping} alone (perf record -C), or not at all"),
        cost: "The profiler's data are no longer available.",
        references: &[GUIDE, KTHREADS],
    },
    Rule {
        id: "mon.self",
        cause: Cause::Tracing,
        title: "This audit did not run on the isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: this,
        why: "An audit that disturbs the host reports its own disturbance. So it runs on housekeeping CPUs, starts no \
         thread on each CPU, and reads registers only with --msr.",
        magnitude: Magnitude::untimed(
            "with --msr, a few us per register and CPU, once",
            "Intel P-state guide (637284-001US, 2021), appendix A",
        ),
        fix: Fix::runtime("taskset -c {housekeeping} apus audit"),
        cost: "None.",
        references: &[GUIDE],
    },
];

/// Rules on kernel messages and crashes.
const EVIDENCE: &[Rule] = &[
    Rule {
        id: "svc.console",
        cause: Cause::Console,
        title: "Kernel messages do not go out over a slow console",
        applies: Applies::LINUX,
        judge: console,
        why: "A serial port is written character by character, on most kernels by the CPU that prints the message, \
              with interrupts off. The console's log level decides which messages go there.",
        magnitude: Magnitude::untimed(
            "87 us per character at 115,200 baud, 7 ms for a line of 80 characters, whenever the kernel prints something",
            "ten bits per character at 115,200 bits per second",
        ),
        fix: Fix::runtime_or_boot("dmesg -n 4 # errors and worse only", "loglevel=4").traded(),
        cost: "The kernel's warnings and notices appear only in the log.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/kernel.rst, printk",
            "Linux Documentation/admin-guide/serial-console.rst",
        ],
    },
    Rule {
        id: "svc.kdump",
        cause: Cause::Services,
        title: "A kernel crash is recorded",
        applies: Applies::LINUX.to(&[Workload::Rt]),
        judge: dump,
        why: "A hang of a real-time host is hard to reproduce. With crashkernel= and a loaded crash kernel, its memory \
         is saved; if one of them is missing, nothing is saved.",
        magnitude: Magnitude::untimed(
            "packets are not delayed; some memory is reserved",
            "Linux Documentation/admin-guide/kdump/kdump.rst",
        ),
        fix: Fix::runtime_or_boot("systemctl start kdump", "crashkernel=512M\nsystemctl enable kdump").decided(),
        cost: "The reserved memory cannot be used otherwise.",
        references: &[
            "FlexRAN real-time platform slides (2018)",
            "clrkwllms/realtime-setup",
            "Linux Documentation/admin-guide/kdump/kdump.rst",
        ],
    },
];

/// Tuning profiles for low latency: those of tuned, of the node tuning operator, and of Intel.
const FOR_LATENCY: [&str; 8] = [
    "latency-performance",
    "network-latency",
    "realtime",
    "cpu-partitioning",
    "openshift-node-performance",
    "hpc-compute",
    "low-latency",
    "apus",
];
/// Services that set frequencies, energy preferences or frequency limits.
const OWNERS: [&str; 7] = [
    "tuned.service",
    "power-profiles-daemon.service",
    "thermald.service",
    "tlp.service",
    "cpupower.service",
    "cpufrequtils.service",
    "auto-cpufreq.service",
];
/// Services that mlnx_tune stops, and similar ones.
const NOISE: [&str; 21] = [
    "abrtd.service",
    "anacron.service",
    "alsa-state.service",
    "atd.service",
    "avahi-daemon.service",
    "bluetooth.service",
    "colord.service",
    "cups.service",
    "fwupd.service",
    "gdm.service",
    "ksm.service",
    "ksmtuned.service",
    "ModemManager.service",
    "mcelog.service",
    "mdmonitor.service",
    "numad.service",
    "packagekit.service",
    "snapd.service",
    "switcheroo-control.service",
    "udisks2.service",
    "unattended-upgrades.service",
];
/// Names of processes that read registers, truncated to 15 bytes: the kernel keeps no more (TASK_COMM_LEN,
/// include/linux/sched.h).
const READERS: [&str; 8] =
    ["turbostat", "powertop", "pcm", "pcm-sensor-serv", "corefreqd", "i7z", "rdmsr", "intel_gpu_top"];
const PROFILERS: [&str; 10] = [
    "perf",
    "oprofiled",
    "operf",
    "bpftrace",
    "sadc",
    "node_exporter",
    "prometheus-node",
    "vtune",
    "parca-agent",
    "trace-cmd",
];

fn tuned(facts: &Facts, context: &Context) -> Judged {
    let fact = &facts.services.tuned_profile;
    let Some(profile) = settled(fact)?.map(|profile| profile.trim()) else {
        return Err(Skip::not_applicable("tuned has no profile here"));
    };
    let fits = FOR_LATENCY.iter().any(|name| profile.contains(name));
    let runs = facts.services.running.is(|units| units.contains("tuned.service"));
    let judgement = match (profile.is_empty(), fits, runs) {
        (true, ..) => Judgement::warn("tuned has no active profile"),
        (_, true, Some(false)) => Judgement::warn(format!("the profile {profile} is active, but tuned does not run")),
        (_, true, _) => Judgement::pass(format!("the profile {profile} is active")),
        (_, false, _) => {
            let goal = if context.goal.is_some() { "the goal" } else { "latency" };
            Judgement::warn(format!("the profile {profile} is not meant for {goal}"))
        }
    };
    let judgement = judgement.see(fact);
    match runs {
        Some(runs) => judgement.see_as(if runs { "running" } else { "not running" }, facts.services.running.source()),
        None => judgement,
    }
    .alone()
}

/// The units in `list` that are running.
fn running(facts: &Facts, list: &[&'static str]) -> Result<Vec<&'static str>, Skip> {
    let units: &BTreeSet<String> = known(&facts.services.running)?;
    Ok(list.iter().copied().filter(|unit| units.contains(*unit)).collect())
}

fn owners(facts: &Facts, _: &Context) -> Judged {
    let owners = running(facts, &OWNERS)?;
    let names = owners.join(", ");
    match owners.len() {
        0 => Judgement::pass("no known service sets frequencies and limits"),
        1 => Judgement::pass(format!("{names} sets frequencies and limits, and no other known service does")),
        n => Judgement::warn(format!("{n} services set frequencies and limits")),
    }
    .see_as(if names.is_empty() { "none of them".into() } else { names }, facts.services.running.source())
    .alone()
}

fn noise(facts: &Facts, _: &Context) -> Judged {
    let units = running(facts, &NOISE)?;
    match units.len() {
        0 => Judgement::pass(format!("none of {} such services runs", NOISE.len())),
        n => Judgement::warn(format!("{n} such services run")),
    }
    .see_as(if units.is_empty() { "none".into() } else { units.join(", ") }, facts.services.running.source())
    .alone()
}

/// Finds processes by their names.
fn processes(facts: &Facts, names: &[&str], what: &str) -> Judged {
    known(&facts.tasks)?;
    let is_one = |task: &&Task| !task.kernel && task.tid == task.pid && names.contains(&task.process.as_str());
    let found: Vec<String> = facts.tasks().filter(is_one).map(|task| format!("{} ({})", task.comm, task.pid)).collect();
    match found.len() {
        0 => Judgement::pass(format!("no {what} runs")).see_as("none", facts.tasks.source()),
        n => Judgement::warn(format!("{n} {what}s run"))
            .see_as(found.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "), facts.tasks.source()),
    }
    .alone()
}

fn registers(facts: &Facts, _: &Context) -> Judged {
    processes(facts, &READERS, "known MSR reader")
}

fn profilers(facts: &Facts, _: &Context) -> Judged {
    processes(facts, &PROFILERS, "known profiler")
}

fn this(facts: &Facts, context: &Context) -> Judged {
    if facts.origin.kind != Kind::Live {
        return Err(match facts.origin.name.is_empty() {
            true => Skip::unknown("the origin of the facts is not known"),
            false => Skip::not_applicable("this is a recording, so it disturbs no CPU"),
        });
    }
    let source = "this process";
    let stayed = facts.origin.notes.iter().find(|note| note.starts_with("read from where it was"));
    match stayed {
        Some(note) => {
            Judgement::warn_for(&context.isolated.value, "this audit may have run there").see_as(note, source)
        }
        None => Judgement::pass_for(&context.isolated.value, "this audit ran on the other CPUs")
            .see_as("its affinity", source),
    }
    .alone()
}

/// Judges by the command line whether the console is quiet. Used if the console level is not known. By default, the
/// kernel prints everything except debugging messages (include/linux/printk.h, CONSOLE_LOGLEVEL_DEFAULT).
fn by_line(facts: &Facts, slow: &[String], printk: &host::Fact<&str>) -> Judged {
    let line = line(facts)?;
    let level = line.value("loglevel").and_then(|level| level.parse::<u32>().ok());
    if level.is_some_and(|level| level <= 4) || level.is_none() && line.has("quiet") {
        return Err(Skip::of(printk));
    }
    let why = match level {
        Some(level) => format!("loglevel={level} lets them through"),
        None => "the command line has neither quiet nor a loglevel= of at most 4".to_owned(),
    };
    let text = format!("kernel messages may go out over {}: {why}", slow.join(" "));
    Judgement::warn(text).see_as(slow.join(" "), facts.cmdline.source()).see(printk).alone()
}

fn console(facts: &Facts, _: &Context) -> Judged {
    // ttyS, ttyAMA, hvc and ttyUSB are written character by character; tty0 is not.
    let slow: Vec<String> = line(facts)?
        .all("console")
        .filter(|parameter| {
            parameter
                .value
                .as_deref()
                .is_some_and(|to| ["ttyS", "ttyAMA", "ttyUSB"].iter().any(|kind| to.starts_with(kind)))
        })
        .map(ToString::to_string)
        .collect();
    if slow.is_empty() {
        return Judgement::pass("the command line names no serial console")
            .see_as("no console=ttyS", facts.cmdline.source())
            .alone();
    }
    let printk = facts.sysctl("kernel.printk");
    if printk.is_unknown() {
        return by_line(facts, &slow, &printk);
    }
    let level: u32 = known(&printk)?
        .split_whitespace()
        .next()
        .and_then(|level| level.parse().ok())
        .ok_or_else(|| Skip::unknown("kernel.printk has no number"))?;
    // Messages below the level are printed; KERN_ERR is 3, KERN_WARNING is 4 (include/linux/kern_levels.h).
    match level <= 4 {
        true => Judgement::pass(format!("messages of level {level} and above stay off the serial console")),
        false => Judgement::warn(format!("messages up to level {} go to a serial console", level - 1)),
    }
    .see_as(slow.join(" "), facts.cmdline.source())
    .see(&printk)
    .alone()
}

fn dump(facts: &Facts, _: &Context) -> Judged {
    let reserved = line(facts)?.last("crashkernel").is_some();
    let loaded = &facts.kernel.crash_kernel;
    let is_loaded = settled(loaded)?.copied();
    match (reserved, is_loaded) {
        (true, Some(true)) => Judgement::pass("a crash kernel is loaded"),
        (true, _) => Judgement::warn("memory is reserved, but no crash kernel is loaded"),
        (false, _) => Judgement::warn("no memory is reserved for a crash kernel"),
    }
    .see_as(if reserved { "crashkernel=" } else { "no crashkernel=" }, facts.cmdline.source())
    .see_whether(loaded, "a crash kernel is loaded", "no crash kernel is loaded")
    .alone()
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use super::super::scheduling::samples::{put, task};
    use super::*;
    use crate::testing::{Case, Host, host};

    const LOADED: &str = "/sys/kernel/kexec_crash_loaded";

    fn profile(name: &str) -> Host {
        host().file("/etc/tuned/active_profile", name)
    }

    fn units(names: &[&str]) -> Host {
        let text: String = names.iter().map(|name| format!("  {name} loaded active running X\n")).collect();
        host().command("systemctl list-units", &text)
    }

    fn process(facts: &mut Facts, name: &str) {
        put(facts, vec![task(9, name, "0-7")]);
    }

    fn rt() -> Host {
        host().workload(Workload::Rt)
    }

    fn live(facts: &mut Facts) {
        facts.origin.kind = Kind::Live;
    }

    fn printk(levels: &str) -> Host {
        host().cmdline("console=tty0 console=ttyS0,115200").file("/proc/sys/kernel/printk", levels)
    }

    pub(super) const CASES: &[Case] = &[
        Case::pass("svc.tuned-profile", || profile("openshift-node-performance-x\n")),
        Case::warn("svc.tuned-profile", || profile("powersave\n")),
        Case::unknown("svc.tuned-profile", host),
        Case::pass("svc.conflicts", || units(&["tuned.service", "sshd.service"])),
        Case::warn("svc.conflicts", || units(&["tuned.service", "power-profiles-daemon.service"])),
        Case::unknown("svc.conflicts", host),
        Case::pass("svc.noise", || units(&["sshd.service"])),
        Case::warn("svc.noise", || units(&["snapd.service"])),
        Case::unknown("svc.noise", host),
        Case::pass("mon.msr-readers", || host().edit(|f| process(f, "bash"))),
        Case::warn("mon.msr-readers", || host().edit(|f| process(f, "turbostat"))),
        Case::unknown("mon.msr-readers", host),
        Case::pass("mon.perf-profilers", || host().edit(|f| process(f, "bash"))),
        Case::warn("mon.perf-profilers", || host().edit(|f| process(f, "perf"))),
        Case::unknown("mon.perf-profilers", host),
        Case::pass("mon.self", || host().isolated("2-7").edit(live)),
        Case::warn("mon.self", || {
            host().isolated("2-7").edit(live).edit(|f| f.origin.notes.push("read from where it was: no".into()))
        }),
        Case::unknown("mon.self", || host().isolated("2-7").edit(|f| f.origin.name.clear())),
        Case::pass("svc.console", || printk("4 4 1 7\n")),
        Case::pass("svc.console", || host().cmdline("console=tty0")),
        Case::warn("svc.console", || printk("7 4 1 7\n")),
        Case::warn("svc.console", || host().cmdline("console=ttyS0")),
        Case::unknown("svc.console", || host().cmdline("console=ttyS0 quiet")),
        Case::pass("svc.kdump", || rt().cmdline("crashkernel=512M").file(LOADED, "1\n")),
        Case::warn("svc.kdump", || rt().cmdline("crashkernel=512M").file(LOADED, "0\n")),
        Case::unknown("svc.kdump", || rt().cmdline("quiet")),
    ];
}
