//! What a setting is outside of Apus: a file that is written, or a command.

use crate::knob::{Access, AnySetting, Error, Setting, Value};

/// A step that another engine can take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A kernel parameter.
    Sysctl {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A file that is written.
    Write {
        /// Its path.
        path: String,
        /// What.
        text: String,
    },
    /// A command.
    Run(Vec<String>),
    /// A folder that is made.
    Folder(String),
    /// Arguments of the kernel's command line.
    Arguments(String),
    /// A request for an exit latency, in microseconds, that must be held.
    Latency(String),
    /// There is no step outside of Apus.
    None(&'static str),
}

/// What to do for `setting` to be `wanted`, in this order.
pub(super) fn steps(access: &Access, setting: &AnySetting, wanted: &Value) -> Result<Vec<Step>, Error> {
    let text = || wanted.as_text().unwrap_or_default().to_owned();
    Ok(match setting {
        AnySetting::Sysctl(sysctl) => vec![Step::Sysctl { name: sysctl.name.clone(), value: text() }],
        AnySetting::BootFragment(_) => vec![Step::Arguments(text())],
        AnySetting::DmaLatency(_) => vec![Step::Latency(text())],
        AnySetting::CgroupFolder(folder) => vec![Step::Folder(folder.path.clone())],
        AnySetting::HwpRequest(_) | AnySetting::UncoreMsr(_) => {
            vec![Step::None("a register whose other bits must stay; use the sysfs way (--via cpufreq), or apus itself")]
        }
        AnySetting::ThreadAffinity(_) | AnySetting::ThreadClass(_) => {
            vec![Step::None("a thread that lives now; other engines name threads by patterns")]
        }
        AnySetting::IrqbalanceBans(_) => {
            vec![Step::None("a line of irqbalance's configuration; use the engine's own way")]
        }
        AnySetting::Napi(_) => {
            vec![Step::None(
                "a setting per NAPI instance over netlink; the files napi_defer_hard_irqs and gro_flush_timeout set all of a device",
            )]
        }
        AnySetting::Coalesce(it) => vec![ethtool("-C", &it.interface, wanted)],
        AnySetting::Rings(it) => vec![ethtool("-G", &it.interface, wanted)],
        AnySetting::Channels(it) => vec![ethtool("-L", &it.interface, wanted)],
        AnySetting::Pause(it) => vec![ethtool("-A", &it.interface, wanted)],
        AnySetting::Features(it) => vec![ethtool("-K", &it.interface, wanted)],
        AnySetting::PrivateFlags(it) => vec![ethtool("--set-priv-flags", &it.interface, wanted)],
        AnySetting::CoalesceQueue(it) => {
            let mask = format!("{:#x}", 1u128.checked_shl(it.queue).unwrap_or_default());
            let Step::Run(mut words) = ethtool("--coalesce", &it.interface, wanted) else { return Ok(Vec::new()) };
            let parameters = words.split_off(3);
            let start = ["ethtool", "--per-queue", &it.interface, "queue_mask", &mask, "--coalesce"];
            vec![Step::Run(start.map(str::to_owned).into_iter().chain(parameters).collect())]
        }
        files => {
            let writes = files.files(access, wanted)?;
            writes.into_iter().map(|(path, text)| Step::Write { path, text }).collect()
        }
    })
}

/// The names of ethtool(8)'s own words for fields of netlink.
fn word(option: &str, field: &str) -> String {
    match (option, field) {
        ("-C" | "--coalesce", "rx-max-frames") => "rx-frames".into(),
        ("-C" | "--coalesce", "tx-max-frames") => "tx-frames".into(),
        _ => field.into(),
    }
}

fn ethtool(option: &str, interface: &str, wanted: &Value) -> Step {
    let mut words = vec!["ethtool".to_owned(), option.to_owned(), interface.to_owned()];
    // Switches of ethtool are on and off where netlink has 1 and 0.
    let switch = |field: &str, text: &str| match (option, text) {
        ("-A", "0") => "off".to_owned(),
        ("-A", "1") => "on".to_owned(),
        ("-C" | "--coalesce", "0") if field.starts_with("adaptive-") => "off".to_owned(),
        ("-C" | "--coalesce", "1") if field.starts_with("adaptive-") => "on".to_owned(),
        _ => text.to_owned(),
    };
    for (field, text) in wanted.as_fields().into_iter().flatten() {
        words.extend([word(option, field), switch(field, text)]);
    }
    Step::Run(words)
}
