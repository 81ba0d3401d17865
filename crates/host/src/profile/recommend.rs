//! Recommends a built-in profile for a machine, based on its hardware and on the programs that run on it.

use crate::facts::{self, CpuSet, Root};
use crate::knob::{Access, Error, online};

/// A recommended profile, and the reasons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recommendation {
    /// The name of the profile.
    pub profile: &'static str,
    /// The CPUs that the kernel has isolated, to which the profile would apply.
    pub isolated: CpuSet,
    /// The observations that support the recommendation, each with the file that shows it.
    pub reasons: Vec<String>,
    /// The other profiles, each with the reason against it.
    pub others: Vec<(&'static str, String)>,
}

/// Drivers that hand a device to a user-space program (DPDK, "Linux Drivers"). vfio-pci can also hand it to a guest.
const USER_SPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

const INTERFACES: &str = "/sys/class/net";

/// The observations on which the recommendation is based.
struct Seen {
    isolated: CpuSet,
    online: CpuSet,
    /// The file which shows that virtual machines run. `None` if none run.
    guests: Option<String>,
    /// Network devices that a user-space program can use, each with its driver.
    user_space: Vec<String>,
    /// Names of the kernel's network interfaces that have a device.
    interfaces: Vec<String>,
    battery: Option<String>,
    /// The source which shows that this machine is itself a guest. `None` if nothing shows it.
    guest_by: Option<String>,
}

/// Chooses the profile that fits the machine. Changes nothing, and needs no privileges.
pub fn recommend(access: &Access) -> Result<Recommendation, Error> {
    let seen = Seen::look(access)?;
    let profile = seen.choose();
    let others = ["poll", "kvm-host", "interrupt", "powersave"].into_iter().filter(|other| *other != profile);
    let others = others.map(|other| (other, seen.against(other))).collect();
    Ok(Recommendation { profile, reasons: seen.reasons(profile), others, isolated: seen.isolated })
}

impl Seen {
    fn look(access: &Access) -> Result<Self, Error> {
        let mut guests = None;
        for module in ["kvm_intel", "kvm_amd"] {
            let path = format!("/sys/module/{module}/refcnt");
            if access.number(&path)?.is_some_and(|users| users > 0) {
                guests = Some(path);
            }
        }
        let mut user_space = Vec::new();
        for driver in USER_SPACE_DRIVERS {
            let folder = format!("/sys/bus/pci/drivers/{driver}");
            for device in access.list(&folder)?.unwrap_or_default() {
                // PCI class 02: network controller (PCI Code and ID Assignment Specification, 1.3).
                let class = access.line(&format!("{folder}/{device}/class"))?;
                if device.contains(':') && class.is_some_and(|class| class.starts_with("0x02")) {
                    user_space.push(format!("{device} ({driver})"));
                }
            }
        }
        let isolated = super::resolve::isolated(access)?;
        let names = match access.list(INTERFACES)? {
            Some(names) => names,
            // Unknown facts support no profile. Isolated CPUs and devices of user-space programs are evidence on their
            // own.
            None if isolated.is_empty() && user_space.is_empty() => {
                let what = format!("list the network interfaces in {}", access.show(INTERFACES));
                let why = "no such folder; choose a profile yourself: apus tune plan".into();
                return Err(Error::NotThere { what, why });
            }
            None => Vec::new(),
        };
        let interfaces = names.into_iter().filter(|name| access.exists(&format!("{INTERFACES}/{name}/device")));
        let mut battery = None;
        for supply in access.list("/sys/class/power_supply")?.unwrap_or_default() {
            let folder = format!("/sys/class/power_supply/{supply}");
            // Excludes batteries of peripherals such as a mouse: their scope is Device (kernel documentation,
            // ABI/testing/sysfs-class-power).
            if access.line(&format!("{folder}/type"))?.as_deref() == Some("Battery")
                && access.line(&format!("{folder}/scope"))?.as_deref() != Some("Device")
            {
                battery = Some(format!("{folder}/type"));
            }
        }
        // A folder that is no host's root shows nothing.
        let guest = Root::open(access.root()).ok().map(|root| facts::guest(&root));
        Ok(Self {
            isolated,
            online: online(access)?,
            guests,
            user_space,
            interfaces: interfaces.collect(),
            battery,
            guest_by: guest.filter(|guest| guest.get() == Some(true)).map(|guest| guest.source().to_string()),
        })
    }

    /// The first profile that fits the machine. Specific profiles are tried before general ones.
    fn choose(&self) -> &'static str {
        if !self.isolated.is_empty() && self.guests.is_some() {
            "kvm-host"
        } else if !self.isolated.is_empty() || !self.user_space.is_empty() {
            "poll"
        } else if self.battery.is_some() || self.interfaces.is_empty() {
            "powersave"
        } else {
            "interrupt"
        }
    }

    fn reasons(&self, profile: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        if !self.isolated.is_empty() && matches!(profile, "poll" | "kvm-host") {
            reasons.push(format!(
                "CPUs {} of {} are isolated (/sys/devices/system/cpu/isolated)",
                self.isolated, self.online
            ));
        }
        if let Some(path) = self.guests.as_ref().filter(|_| profile == "kvm-host") {
            reasons.push(format!("virtual machines run ({path} is above 0)"));
        }
        if !self.user_space.is_empty() && profile == "poll" {
            reasons.push(format!("a program drives the network device {}", self.user_space.join(", ")));
            if self.isolated.is_empty() {
                reasons.push("no CPU is isolated for that program yet: choose some with --isolated".into());
            }
        }
        match (profile, &self.battery) {
            ("powersave", Some(path)) => reasons.push(format!("it runs on battery power ({path})")),
            ("powersave", None) => {
                reasons.push("no network interface belongs to a device (/sys/class/net/*/device)".into())
            }
            ("interrupt", _) => {
                reasons.push("no CPU is isolated (/sys/devices/system/cpu/isolated is empty)".into());
                reasons.push(format!("the kernel drives the interface {}", self.interfaces.join(", ")));
            }
            _ => {}
        }
        if let Some(source) = &self.guest_by {
            reasons.push(format!("it is a virtual machine ({source}): its host sets frequencies and idle states"));
        }
        reasons
    }

    fn against(&self, profile: &str) -> String {
        let isolated = !self.isolated.is_empty();
        match profile {
            "poll" if isolated => "virtual machines run on the isolated CPUs".into(),
            "poll" => "no CPU is isolated for a program that polls, and no program drives a network device".into(),
            "kvm-host" if self.guests.is_none() => "no virtual machine runs".into(),
            "kvm-host" => "no CPU is isolated for virtual CPUs".into(),
            "interrupt" if self.interfaces.is_empty() => "no network interface of the kernel belongs to a device".into(),
            "interrupt" if self.battery.is_some() => "it keeps all CPUs awake, and the host runs on battery power".into(),
            "interrupt" => {
                "it speeds up all CPUs, but here the isolated CPUs or a program with its own device do the latency-sensitive work"
                    .into()
            }
            _ => "packets wait for deep idle states and interrupt moderation, so it is only for hosts without a latency goal"
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn each_profile_has_its_machine() {
        const NIC: (&str, &str) = ("sys/class/net/eth0/device/vendor", "0x8086\n");
        const ISOLATED: (&str, &str) = ("sys/devices/system/cpu/isolated", "2-3\n");
        const DPDK: (&str, &str) = ("sys/bus/pci/drivers/vfio-pci/0000:3b:00.0/class", "0x020000\n");
        for (files, profile, part) in [
            (&[NIC][..], "interrupt", "eth0"),
            (&[NIC, ISOLATED], "poll", "CPUs 2-3 of 0-3"),
            (&[NIC, ISOLATED, ("sys/module/kvm_intel/refcnt", "4\n")], "kvm-host", "kvm_intel/refcnt"),
            (&[NIC, ISOLATED, ("sys/module/kvm_intel/refcnt", "0\n")], "poll", "isolated"),
            (&[NIC, DPDK], "poll", "0000:3b:00.0 (vfio-pci)"),
            (&[NIC, ("sys/bus/pci/drivers/vfio-pci/0000:3b:00.0/class", "0x030000\n")], "interrupt", "eth0"),
            (&[NIC, ("sys/class/power_supply/BAT0/type", "Battery\n")], "powersave", "BAT0"),
            (
                &[NIC, ("sys/class/power_supply/m/type", "Battery\n"), ("sys/class/power_supply/m/scope", "Device\n")],
                "interrupt",
                "eth0",
            ),
            (&[("sys/class/net/lo/mtu", "65536\n")], "powersave", "/sys/class/net"),
            (&[NIC, ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n")], "interrupt", "virtual machine"),
            // Arm has no such flag.
            (
                &[
                    NIC,
                    ("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\n"),
                    ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
                ],
                "interrupt",
                "virtual machine (/sys/class/dmi/id/sys_vendor)",
            ),
        ] {
            let folder = Folder::new(&[&[("sys/devices/system/cpu/online", "0-3\n")], files].concat());
            let found = recommend(&folder.access()).unwrap();
            assert_eq!(found.profile, profile, "{files:?}");
            assert!(found.reasons.iter().any(|reason| reason.contains(part)), "{found:?}");
            assert_eq!(found.others.len(), 3);
        }
        let unknown = Folder::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
        assert!(recommend(&unknown.access()).unwrap_err().is_absent(), "what is not known is no reason");
    }
}
