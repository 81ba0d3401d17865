//! Detects other programs that change the same settings and would undo a profile.

use crate::knob::{Access, AnySetting, Error};
use crate::transaction::Plan;

/// A program that may undo settings of a plan, and what to do about it.
struct Rival {
    name: &'static str,
    /// How to recognize that the program runs: by the name of its process (15 characters, proc_pid_comm(5)), or by a
    /// file that it creates.
    shows: Shows,
    touches: fn(&AnySetting) -> bool,
    does: &'static str,
    remedy: &'static str,
}

enum Shows {
    Process(&'static str),
    File(&'static str),
}

use AnySetting as S;

fn frequencies(setting: &AnySetting) -> bool {
    matches!(setting, S::Governor(_) | S::Limits(_) | S::Epp(_) | S::Turbo(_) | S::HwpRequest(_))
}

const RIVALS: [Rival; 6] = [
    Rival {
        name: "tuned",
        shows: Shows::Process("tuned"),
        touches: |setting| !matches!(setting, S::BootFragment(_) | S::CgroupFolder(_) | S::CgroupFile(_)),
        does: "applies its own profile when it starts, when a device appears and on request",
        remedy: "systemctl disable --now tuned; or let it apply this one: apus tune export PROFILE --format tuned",
    },
    Rival {
        name: "irqbalance",
        shows: Shows::Process("irqbalance"),
        touches: |setting| matches!(setting, S::IrqAffinity(_) | S::IrqDefaultAffinity(_)),
        does: "moves interrupts every 10 s and reads its list of banned CPUs only when it starts",
        remedy: "systemctl restart irqbalance after applying a profile that bans CPUs; or systemctl disable --now irqbalance",
    },
    Rival {
        name: "TLP",
        shows: Shows::File("/run/tlp"),
        touches: frequencies,
        does: "sets governors, energy preferences and turbo when it starts and when the power source changes",
        remedy: "systemctl disable --now tlp",
    },
    Rival {
        name: "power-profiles-daemon",
        shows: Shows::Process("power-profiles-"),
        touches: frequencies,
        does: "sets energy preferences and turbo with its power profile",
        remedy: "systemctl disable --now power-profiles-daemon",
    },
    Rival {
        name: "auto-cpufreq",
        shows: Shows::Process("auto-cpufreq"),
        touches: frequencies,
        does: "sets governors and turbo by the load, every few seconds",
        remedy: "auto-cpufreq --remove",
    },
    Rival {
        name: "ksmtuned",
        shows: Shows::Process("ksmtuned"),
        touches: |setting| matches!(setting, S::File(file) if file.path.starts_with("/sys/kernel/mm/ksm/")),
        does: "starts and stops the merging of identical pages as free memory changes",
        remedy: "systemctl disable --now ksmtuned",
    },
];

/// The running programs that would undo settings of `plan` on this machine. Each string names the program, what it
/// does, and what to do about it. Empty if there are no such programs.
pub fn rivals(access: &Access, plan: &Plan) -> Result<Vec<String>, Error> {
    let mut running = Vec::new();
    for process in access.numbered("/proc", "")? {
        // A process may end during the search.
        running.extend(access.line(&format!("/proc/{process}/comm")).ok().flatten());
    }
    let runs = |rival: &&Rival| match rival.shows {
        Shows::Process(name) => running.iter().any(|comm| comm == name),
        Shows::File(path) => access.exists(path),
    };
    let touched = |rival: &Rival| plan.items.iter().filter(|item| (rival.touches)(&item.setting)).count();
    let active = access.line("/etc/tuned/active_profile").ok().flatten().filter(|profile| !profile.is_empty());
    let told = RIVALS.iter().filter(runs).filter_map(|rival| {
        let (name, does, remedy) = (rival.name, rival.does, rival.remedy);
        let with = active.as_ref().filter(|_| name == "tuned").map_or(String::new(), |on| format!(" (profile {on})"));
        match touched(rival) {
            0 => None,
            n => Some(format!(
                "{name} is running{with} and may undo {n} of these settings, because it {does}. Fix: {remedy}"
            )),
        }
    });
    Ok(told.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Governor, IrqAffinity, Sysctl, Value};
    use crate::testing::Folder;

    #[test]
    fn only_who_runs_and_touches_the_same() {
        let plan = Plan::new("p")
            .with(Governor::new(0), Value::text("performance"))
            .with(IrqAffinity::new(24), Value::text("0"))
            .with(Sysctl::new("a.b"), Value::text(1));
        let folder = Folder::new(&[("proc/1/comm", "systemd\n")]);
        assert_eq!(rivals(&folder.access(), &plan).unwrap(), Vec::<String>::new());
        folder.put("proc/7/comm", "tuned\n");
        folder.put("proc/8/comm", "irqbalance\n");
        folder.put("etc/tuned/active_profile", "balanced\n");
        folder.put("run/tlp/last_pwr", "0\n");
        let told = rivals(&folder.access(), &plan).unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[0].starts_with("tuned is running (profile balanced) and may undo 3 of these settings"),
            "{told:?}"
        );
        assert!(told[1].starts_with("irqbalance is running and may undo 1 "), "{told:?}");
        assert!(told[2].starts_with("TLP is running and may undo 1 "), "{told:?}");
        let sysctl = Plan::new("p").with(Sysctl::new("a.b"), Value::text(1));
        let told = rivals(&folder.access(), &sysctl).unwrap();
        assert!(told.len() == 1 && told[0].starts_with("tuned"), "{told:?}");
    }
}
