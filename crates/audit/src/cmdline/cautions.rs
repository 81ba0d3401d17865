//! Parameters that do not do what users usually expect, or that cost more than they gain.

use host::facts::{CommandLine, Parameter};

/// A parameter that needs a warning.
pub(super) struct Caution {
    /// The name of the parameter.
    pub name: &'static str,
    /// Whether the warning applies to this parameter on this line.
    pub of: fn(&Parameter, &CommandLine) -> bool,
    /// What the parameter does, in one sentence without a full stop.
    pub why: &'static str,
    /// The parameter to write instead. `None` if it should be left out.
    pub instead: Option<&'static str>,
    /// Title of the document that supports the warning.
    pub source: &'static str,
}

fn has(parameter: &Parameter, value: &str) -> bool {
    parameter.parts().any(|part| part == value)
}

/// Whether the parameter names a serial console. Writing to it is slow, because it sends one character at a time.
fn is_serial(parameter: &Parameter) -> bool {
    let to = parameter.value.as_deref().unwrap_or_default();
    ["ttyS", "ttyAMA", "ttyUSB"].iter().any(|kind| to.starts_with(kind))
}

/// Whether the line keeps all messages except errors off the console. Messages below the console level are printed:
/// KERN_WARNING is 4 (include/linux/kern_levels.h), and `quiet` sets level 4 (include/linux/printk.h,
/// CONSOLE_LOGLEVEL_QUIET, by default).
fn is_silent(line: &CommandLine) -> bool {
    match line.value("loglevel").and_then(|level| level.parse::<u32>().ok()) {
        Some(level) => level <= 4,
        None => line.has("quiet"),
    }
}

/// All warnings.
pub(super) const CAUTIONS: &[Caution] = &[
    Caution {
        name: "mce",
        of: |parameter, _| has(parameter, "off"),
        why: "it disables machine checks: the kernel handles none, not even uncorrected memory errors, and logs no error \
         from the processors' banks",
        instead: Some("mce=ignore_ce"),
        source: "Linux Documentation/arch/x86/x86_64/boot-options.rst, Machine check (newer kernels: kernel-parameters.txt, mce)",
    },
    Caution {
        name: "nomce",
        of: |_, _| true,
        why: "it disables machine checks: the kernel handles none, not even uncorrected memory errors, and logs no error \
         from the processors' banks",
        instead: Some("mce=ignore_ce"),
        source: "Linux Documentation/arch/x86/x86_64/boot-options.rst, Machine check (newer kernels: kernel-parameters.txt, mce)",
    },
    Caution {
        name: "idle",
        of: |parameter, _| has(parameter, "poll"),
        why: "no CPU ever sleeps, housekeeping CPUs included: it costs power and turbo, and slows the sibling threads; \
              pm_qos_resume_latency_us limits the application's CPUs alone",
        instead: None,
        source: "Linux Documentation/timers/no_hz.rst; Documentation/admin-guide/pm/cpuidle.rst",
    },
    Caution {
        name: "cpuidle.off",
        of: |parameter, _| has(parameter, "1"),
        why: "it disables cpuidle: every idle CPU uses the architecture's default idle state, limits such as \
         pm_qos_resume_latency_us have no effect, and the kernel's documentation advises against it in production",
        instead: None,
        source: "Linux Documentation/admin-guide/pm/cpuidle.rst, Idle States Control Via Kernel Command Line",
    },
    Caution {
        name: "acpi",
        of: |parameter, _| has(parameter, "off"),
        why: "the kernel reads no ACPI tables: they describe the CPUs, the NUMA nodes, and how interrupts are routed",
        instead: None,
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, acpi; arch/x86/kernel/acpi/boot.c",
    },
    Caution {
        name: "noapic",
        of: |_, _| true,
        why: "without the I/O APICs, all interrupts except MSIs go to one CPU, and irqaffinity= cannot move them",
        instead: None,
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, noapic; Documentation/arch/x86/i386/IO-APIC.rst",
    },
    Caution {
        name: "pcie_aspm",
        of: |parameter, line| has(parameter, "off") && !line.has("pcie_aspm.policy"),
        why: "it does not disable ASPM: the kernel leaves the links as the firmware set them, and they may still sleep",
        instead: Some("pcie_aspm.policy=performance"),
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, pcie_aspm",
    },
    Caution {
        name: "clocksource",
        of: |parameter, _| ["hpet", "acpi_pm", "jiffies"].iter().any(|slow| has(parameter, slow)),
        why: "each time stamp reads a device (about 1 us) or is as coarse as the tick, where the TSC takes some 20 ns",
        instead: Some("clocksource=tsc"),
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, clocksource; Documentation/timers/timekeeping.rst",
    },
    Caution {
        name: "pci",
        of: |parameter, _| has(parameter, "nomsi"),
        why: "without MSI-X a NIC has one interrupt, usually shared, instead of one per queue",
        instead: None,
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, pci=nomsi; Documentation/PCI/msi-howto.rst",
    },
    Caution {
        name: "ftrace",
        of: |parameter, _| parameter.value.as_deref().is_some_and(|value| value.starts_with("function")),
        why: "every function of the kernel is traced from boot on, which slows the whole kernel",
        instead: None,
        source: "Linux Documentation/trace/ftrace.rst, function tracer",
    },
    Caution {
        name: "crashkernel",
        of: |parameter, _| has(parameter, "auto"),
        why: "only kernels of Red Hat Enterprise Linux up to 8 support auto: others reserve nothing, and kdump does not \
         start",
        instead: Some("crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M"),
        source: "Linux Documentation/admin-guide/kdump/kdump.rst, crashkernel syntax; RHEL 9 documentation, Configuring kdump",
    },
    Caution {
        name: "console",
        of: |parameter, line| is_serial(parameter) && !is_silent(line),
        why: "kernel messages go out over a serial line, 87 us per character at 115,200 baud, mostly with interrupts off",
        instead: Some("quiet loglevel=4"),
        source: "Linux Documentation/admin-guide/serial-console.rst; ten bits per character at 115,200 bits per second",
    },
];
