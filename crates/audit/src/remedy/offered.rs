//! Reduces a fix to the parts that an interface's driver supports and that are not yet in force.

use host::Facts;
use host::facts::Link;
use host::knob::is_offload;

use super::setting::{OfNetwork, Place};
use super::{Action, Step};

/// Removes settings from a step if the interface does not support them or already has them, and lowers values to the
/// interface's maximum.
pub(super) fn keep(step: &mut Step, facts: &Facts) {
    let Action::Set(settings) = &mut step.action else { return };
    settings.retain_mut(|setting| match &setting.place {
        Place::Network(interface, group, field) => match facts.link(interface) {
            Some(link) => {
                let (useful, value) = one(link, *group, field, &setting.value);
                setting.value = value;
                useful
            }
            None => true,
        },
        _ => true,
    });
    if settings.is_empty() {
        *step = Step::advice("nothing: the driver offers no switch for it");
    }
}

/// Whether one field must be set, and the value to set.
fn one(link: &Link, group: OfNetwork, field: &str, value: &str) -> (bool, String) {
    let asked = || value.to_owned();
    let number = |now: Option<u32>, most: Option<u32>| match (now, value.parse::<u32>()) {
        (Some(now), Ok(wanted)) => {
            let wanted = most.filter(|most| *most > 0).map_or(wanted, |most| wanted.min(most));
            (wanted != now, wanted.to_string())
        }
        _ => (false, asked()),
    };
    let switch = |now: Option<bool>| (now.is_some_and(|now| now != (value == "1" || value == "on")), asked());
    match group {
        OfNetwork::Coalesce => {
            let Some(said) = link.coalesce.value() else { return (true, asked()) };
            match field {
                "adaptive-rx" => switch(said.adaptive_rx),
                "adaptive-tx" => switch(said.adaptive_tx),
                // A time that is set per queue is set for the whole interface.
                "rx-usecs" => (said.rx_usecs.is_some(), asked()),
                "tx-usecs" => (said.tx_usecs.is_some(), asked()),
                "rx-usecs-high" => (said.rx_usecs_high.is_some(), asked()),
                _ => (true, asked()),
            }
        }
        OfNetwork::Rings => match (link.rings.value(), field) {
            (Some(said), "rx") => number(said.rx, said.rx_max),
            (Some(said), "tx") => number(said.tx, said.tx_max),
            _ => (true, asked()),
        },
        OfNetwork::Channels => match (link.channels.value(), field) {
            (Some(said), "combined") => number(said.combined, said.combined_max),
            _ => (true, asked()),
        },
        OfNetwork::Features => {
            let Some(all) = link.features.value() else { return (true, asked()) };
            let on = value == "on";
            let open = |(name, feature): (&String, &host::facts::Feature)| {
                is_offload(field, name) && !feature.fixed && feature.on != on
            };
            (all.iter().any(open), asked())
        }
        OfNetwork::PrivateFlags => match link.private_flags.value() {
            Some(flags) => switch(flags.get(field).copied()),
            None => (true, asked()),
        },
        OfNetwork::Pause => match (link.pause.value(), field) {
            (Some(said), "autoneg") => switch(Some(said.autoneg)),
            (Some(said), "rx") => switch(Some(said.rx)),
            (Some(said), "tx") => switch(Some(said.tx)),
            _ => (true, asked()),
        },
    }
}
