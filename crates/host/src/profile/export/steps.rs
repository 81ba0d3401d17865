//! Determines how to change a setting without Apus: by writing a file, or by running a command.

use crate::knob::{Access, AnySetting, Error, Setting, Value};

/// A step that another tool can carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Sets a kernel parameter.
    Sysctl {
        /// Dotted name of the kernel parameter.
        name: String,
        /// Value to set.
        value: String,
        /// Path of the parameter's file below /proc/sys.
        path: String,
    },
    /// Writes a file.
    Write {
        /// Path of the file.
        path: String,
        /// The string to write.
        text: String,
    },
    /// Runs a command for an interface.
    Run {
        /// The command with its arguments.
        words: Vec<String>,
        /// The command that shows the current value of the setting that `words` changes.
        show: Vec<String>,
        /// Name of the interface.
        interface: String,
    },
    /// Creates the folder with this path.
    Folder(String),
    /// Adds these arguments to the kernel's command line.
    Arguments(String),
    /// Requests this exit latency, in microseconds. A process must hold the request.
    Latency(String),
    /// The setting cannot be changed without Apus. The string says why.
    None(&'static str),
}

impl Step {
    /// Why a tool that runs commands cannot carry out the step.
    pub(super) fn why_not(&self, label: &str) -> String {
        match self {
            Self::Latency(micros) => {
                format!(
                    "{label}, {micros} us: a process must keep /dev/cpu_dma_latency open, as apus tune apply and tuned do"
                )
            }
            Self::None(why) => format!("{label}: {why}"),
            _ => format!("{label}: this tool has no way to set it"),
        }
    }
}

/// The steps that give `setting` the value `wanted`, in the order in which to carry them out.
pub(super) fn steps(access: &Access, setting: &AnySetting, wanted: &Value) -> Result<Vec<Step>, Error> {
    let text = || wanted.as_text().unwrap_or_default().to_owned();
    Ok(match setting {
        AnySetting::Sysctl(sysctl) => {
            vec![Step::Sysctl { name: sysctl.name.clone(), value: text(), path: sysctl.path() }]
        }
        AnySetting::BootFragment(_) => vec![Step::Arguments(text())],
        AnySetting::DmaLatency(_) => vec![Step::Latency(text())],
        AnySetting::CgroupFolder(folder) => vec![Step::Folder(folder.path.clone())],
        AnySetting::HwpRequest(_) | AnySetting::UncoreMsr(_) => {
            vec![Step::None("it is a register whose other bits must stay; use --via cpufreq, or Apus itself")]
        }
        AnySetting::ThreadAffinity(_) | AnySetting::ThreadClass(_) => {
            vec![Step::None("it is a running thread; other tools select threads by patterns")]
        }
        AnySetting::IrqbalanceBans(_) => {
            vec![Step::None("it is a line of irqbalance's configuration; use the way that the tool offers")]
        }
        AnySetting::Napi(_) => {
            vec![Step::None(
                "it is set per NAPI instance over netlink; the files napi_defer_hard_irqs and gro_flush_timeout set it for a whole device",
            )]
        }
        AnySetting::Coalesce(it) => vec![ethtool(&["-C"], &["-c"], &it.interface, wanted)],
        AnySetting::Rings(it) => vec![ethtool(&["-G"], &["-g"], &it.interface, wanted)],
        AnySetting::Channels(it) => vec![ethtool(&["-L"], &["-l"], &it.interface, wanted)],
        AnySetting::Pause(it) => vec![ethtool(&["-A"], &["-a"], &it.interface, wanted)],
        AnySetting::Features(it) => vec![ethtool(&["-K"], &["-k"], &it.interface, wanted)],
        AnySetting::PrivateFlags(it) => {
            vec![ethtool(&["--set-priv-flags"], &["--show-priv-flags"], &it.interface, wanted)]
        }
        AnySetting::CoalesceQueue(it) => {
            // ethtool(8): "queue_mask" is a bit mask in hexadecimal digits.
            let digits = "0".repeat(it.queue as usize / 4);
            let mask = format!("0x{:x}{digits}", 1 << (it.queue % 4));
            let queue = |last| ["--per-queue", "queue_mask", &mask, last].map(str::to_owned);
            let (set, show) = (queue("--coalesce"), queue("--show-coalesce"));
            let (set, show) = (set.each_ref().map(String::as_str), show.each_ref().map(String::as_str));
            vec![ethtool(&set, &show, &it.interface, wanted)]
        }
        files => {
            let writes = files.files(access, wanted)?;
            writes.into_iter().map(|(path, text)| Step::Write { path, text }).collect()
        }
    })
}

/// The name that ethtool(8) uses for a netlink field.
fn word(option: &str, field: &str) -> String {
    match (option, field) {
        ("-C" | "--coalesce", "rx-max-frames") => "rx-frames".into(),
        ("-C" | "--coalesce", "tx-max-frames") => "tx-frames".into(),
        ("-C" | "--coalesce", "rate-sample-interval") => "sample-interval".into(),
        ("-C" | "--coalesce", of) if of.contains("-max-frames-") => of.replace("-max-frames-", "-frames-"),
        _ => field.into(),
    }
}

/// A step that runs ethtool(8). In the command, the interface follows the first option.
fn ethtool(set: &[&str], show: &[&str], interface: &str, wanted: &Value) -> Step {
    let line = |options: &[&str]| {
        let (first, others) = options.split_first().expect("there is an option");
        let words = ["ethtool", *first, interface].into_iter().chain(others.iter().copied());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut words = line(set);
    let option = *set.last().expect("there is an option");
    // ethtool writes switches as on and off; netlink uses 1 and 0.
    let switch = |field: &str, text: &str| match (option, text) {
        ("-A", "0") => "off".to_owned(),
        ("-A", "1") => "on".to_owned(),
        ("-C" | "--coalesce", "0") if is_switch(field) => "off".to_owned(),
        ("-C" | "--coalesce", "1") if is_switch(field) => "on".to_owned(),
        ("-G", "0") if matches!(field, "tx-push" | "rx-push") => "off".to_owned(),
        ("-G", "1") if matches!(field, "tx-push" | "rx-push") => "on".to_owned(),
        _ => text.to_owned(),
    };
    for (field, text) in wanted.as_fields().into_iter().flatten() {
        words.extend([word(option, field), switch(field, text)]);
    }
    Step::Run { words, show: line(show), interface: interface.into() }
}

/// Whether a coalescing field is one that ethtool(8) writes as `on` and `off`.
fn is_switch(field: &str) -> bool {
    field.starts_with("adaptive-") || field.starts_with("cqe-mode-")
}
