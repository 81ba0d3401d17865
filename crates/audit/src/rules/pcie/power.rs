//! Rules on power states of cards and their links.

use host::Facts;
use host::facts::PciDevice;
use units::Nanos;

use crate::rules::interfaces::{by_device, by_link, offered, path};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

const HARDWARE: &str = "Linux Documentation/core-api/real-time/hardware.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "pci.aspm",
        cause: Cause::LinkPower,
        title: "The card's link does not sleep between frames",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: aspm,
        why: "With active-state power management an idle link enters L0s or L1. The first frame after a pause waits \
         until both ends have left that state.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "up to 4 us from L0s, microseconds to tens of microseconds from L1, as reported in the devices' Link \
             Capabilities",
            "PCI Express Base Specification, 7.5.3.6 (L0s and L1 Exit Latency fields); the typical value is an estimate",
        ),
        fix: Fix::runtime_or_boot(
            "for f in /sys/bus/pci/devices/{device}/link/*_aspm; do echo 0 > $f; done",
            "pcie_aspm.policy=performance",
        ),
        cost: "Each link uses about a watt more.",
        references: &[
            HARDWARE,
            "Linux Documentation/ABI/testing/sysfs-bus-pci, link/l1_aspm",
            "FlexRAN real-time platform slides (2018)",
        ],
    },
    Rule {
        id: "pci.runtime-pm",
        cause: Cause::LinkPower,
        title: "The card is not put to sleep while it is unused",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: runtime,
        why: "With power/control=auto the kernel puts an unused device into D3; the next process that opens it waits \
              until the device is back.",
        magnitude: Magnitude::untimed(
            "10 ms from D3hot to D0",
            "PCI Express Base Specification, 5.9 (state transition delays)",
        ),
        fix: Fix::runtime("echo on > /sys/bus/pci/devices/{device}/power/control"),
        cost: "An unused card draws its idle power.",
        references: &["Linux Documentation/power/pci.rst", "OpenShift vDU/RAN reference configuration"],
    },
    Rule {
        id: "nic.eee",
        cause: Cause::LinkPower,
        title: "Energy-efficient Ethernet is off",
        applies: Applies::LINUX.with_nic(),
        judge: efficient,
        why: "With EEE the transmitter sleeps when there is nothing to send, and the next frame waits until both ends \
         are awake.",
        magnitude: Magnitude::late(
            Nanos::from_nanos(16_500),
            "16.5 us at 1000BASE-T, 4.5 to 7.4 us at 10GBASE-T",
            "IEEE 802.3az (Tw_sys); the numbers are general knowledge, not read in the standard",
        ),
        fix: Fix::both("ethtool --set-eee {nic} eee off", "set the same in a udev rule or with NetworkManager"),
        cost: "Each port uses less than a watt more.",
        references: &["ethtool(8), --set-eee", "IEEE 802.3az"],
    },
];

/// The sleep states that are enabled for a device's link. `None` if they are not known.
fn sleeps(device: &PciDevice) -> Option<Vec<String>> {
    if let Some(aspm) = device.aspm.get() {
        let states = [("L0s", aspm.l0s), ("L1", aspm.l1)];
        return Some(states.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect());
    }
    if device.link_states.is_empty() {
        return None;
    }
    // clkpm stops the reference clock, and saves power only in addition to the link's own states.
    let on = device.link_states.iter().filter(|(name, fact)| fact.get() == Some(true) && *name != "clkpm");
    Some(on.map(|(name, _)| name.clone()).collect())
}

fn aspm(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let path = path(facts, device);
        let told: Vec<(&PciDevice, Vec<String>)> =
            path.iter().filter_map(|part| Some((*part, sleeps(part)?))).collect();
        let policy = &facts.pci.aspm_policy;
        if !told.iter().any(|(part, _)| part.address == device.address) {
            // Under this policy, the kernel disables all states (drivers/pci/pcie/aspm.c).
            return match policy.value().map(String::as_str) {
                Some("performance") => Ok(Judgement::pass("the policy lets no link sleep").see(policy)),
                _ => Err(Skip::of(&device.aspm)),
            };
        }
        let asleep: Vec<String> = told
            .iter()
            .filter(|(_, states)| !states.is_empty())
            .map(|(part, states)| format!("{} {}", part.address, states.join(" ")))
            .collect();
        let judgement = match asleep.is_empty() {
            true => Judgement::pass("neither its link nor one above it sleeps").see_as("off", device.aspm.source()),
            false => {
                let found = format!("{} of {} links between it and the processor may sleep", asleep.len(), told.len());
                Judgement::warn(found).see_as(asleep.join(", "), device.aspm.source())
            }
        };
        Ok(judgement.see(policy))
    })
}

fn runtime(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let control = known(&device.power_control)?;
        let judgement = match control.as_str() {
            "auto" => Judgement::warn("the kernel may put it to sleep while it is not in use"),
            _ => Judgement::pass("it stays awake"),
        };
        Ok(judgement.see(&device.power_control))
    })
}

fn efficient(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let judgement = match *offered(&link.eee)? {
            true => Judgement::warn("the transmitter may sleep between frames"),
            false => Judgement::pass("the transmitter never sleeps"),
        };
        Ok(judgement.see_whether(&link.eee, "EEE on", "EEE off"))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::link::tests::{card, device, of};
    use crate::testing::{Case, Host};
    use host::facts::Aspm;

    const PLACE: &str = "/sys/bus/pci/devices/0000:3b:00.0";

    fn eee(text: &str) -> Host {
        card().command("ethtool --show-eee eth0", text)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("pci.aspm", || card().edit(|facts| device(facts).aspm = of(Aspm::default()))),
        Case::warn("pci.aspm", || card().edit(|facts| device(facts).aspm = of(Aspm { l0s: false, l1: true }))),
        Case::warn("pci.aspm", || card().file(&format!("{PLACE}/link/l1_aspm"), "1\n")),
        Case::pass("pci.aspm", || card().file(&format!("{PLACE}/link/l1_aspm"), "0\n")),
        Case::pass("pci.aspm", || {
            card().file("/sys/module/pcie_aspm/parameters/policy", "default [performance] powersave\n")
        }),
        Case::unknown("pci.aspm", card),
        Case::unknown("pci.aspm", || {
            card().file("/sys/module/pcie_aspm/parameters/policy", "[default] performance powersave\n")
        }),
        Case::pass("pci.runtime-pm", || card().file(&format!("{PLACE}/power/control"), "on\n")),
        Case::warn("pci.runtime-pm", || card().file(&format!("{PLACE}/power/control"), "auto\n")),
        Case::unknown("pci.runtime-pm", card),
        Case::pass("nic.eee", || eee("EEE settings for eth0:\n\tEEE status: disabled\n")),
        Case::warn("nic.eee", || eee("EEE settings for eth0:\n\tEEE status: enabled - active\n")),
        Case::unknown("nic.eee", card),
        Case::not_applicable("nic.eee", || eee("netlink error: Operation not supported\n")),
    ];
}
