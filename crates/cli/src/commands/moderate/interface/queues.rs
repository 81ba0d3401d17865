//! The receive queues of an interface: which there are, and whether they can be measured.

use std::sync::{Mutex, PoisonError};

use host::knob::{Access, interface_index, interface_name, interfaces, lists_napis, napi_queues, napis_of};
use steer::moderation::watched::{Beside, Queue as Watch, Queues};

use super::super::config::InterfaceConfig;
use super::super::note;
use super::unsupported;
use crate::Failure;
use crate::args::moderate::{Place as TypedPlace, Policy};

/// Fails if this is an alternative name of an interface (ip-link(8), altname). Under two names, an interface could be
/// controlled twice.
pub(super) fn check_name(access: &Access, name: &str) -> anyhow::Result<()> {
    let own = interface_index(access, name).and_then(|index| interface_name(access, index));
    match own.filter(|own| own != name) {
        None => Ok(()),
        Some(own) => {
            let (what, why) = (format!("cannot moderate {name}"), format!("it is an alternative name of {own}"));
            Err(Failure::wrong(what, why, format!("use the name {own}")).into())
        }
    }
}

/// The receive queues of an interface that is up. If the kernel does not list NAPI instances, they come
/// from sysfs.
pub(super) fn receive_queues(access: &Access, interface: &str) -> Result<Vec<u32>, host::knob::Error> {
    /// The flag "up" in /sys/class/net/*/flags (include/uapi/linux/if.h).
    const IFF_UP: u32 = 1;
    if lists_napis(access) {
        return napi_queues(access, interface);
    }
    let folder = format!("/sys/class/net/{interface}");
    let flags = access.line(&format!("{folder}/flags"))?;
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok());
    match flags.is_some_and(|flags| flags & IFF_UP != 0) {
        true => access.numbered(&format!("{folder}/queues"), "rx-"),
        false => Ok(Vec::new()),
    }
}

/// The receive queues of an interface, with their NAPI instances if the kernel reports them.
pub(super) fn find(access: &Access, config: &InterfaceConfig, least_usecs: u32) -> anyhow::Result<Vec<Watch>> {
    let interface = &config.name;
    let queues = receive_queues(access, interface)?;
    let napis: Vec<(u32, Option<u32>)> = match lists_napis(access) {
        true => napis_of(access, interface, &queues)?.into_iter().map(|(napi, id)| (napi.queue, Some(id))).collect(),
        false => queues.into_iter().map(|queue| (queue, None)).collect(),
    };
    let what = || format!("cannot moderate {interface}");
    if napis.is_empty() {
        let exists = interfaces(access)?.unwrap_or_default().contains(interface);
        return Err(match exists {
            false => Failure::lacking(
                what(),
                "there is no such network interface in this network namespace",
                "ip -br link lists the interfaces",
            ),
            true => Failure::lacking(
                what(),
                "the kernel lists no NAPI instance for it: it is down, or its driver does not use NAPI",
                format!(
                    "ip link set dev {interface} up; a veth has NAPI with GRO: ethtool -K {interface} gro on, and tso \
                     off at its peer"
                ),
            ),
        }
        .into());
    }
    let beside = match config.place {
        TypedPlace::Napi | TypedPlace::Epoll => Beside::Card { least_usecs },
        TypedPlace::Nic => Beside::Deferral,
    };
    let queue = |(queue, napi)| Watch { interface: interface.clone(), queue, napi, beside };
    Ok(napis.into_iter().map(queue).collect())
}

/// Fails if the policy needs measurements that are not possible on these queues. A fixed timer needs none.
pub(super) fn check_measured(config: &InterfaceConfig, found: &[Watch], watch: &Mutex<Queues>) -> anyhow::Result<()> {
    let watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(why) = found.iter().find_map(|queue| watch.unmeasured(queue)) else { return Ok(()) };
    let InterfaceConfig { name, policy, .. } = config;
    if matches!(policy, Policy::Static(_)) {
        note(&format!("{name}: latency cannot be measured, so it stays unknown whether the goal is met: {why}"));
        return Ok(());
    }
    let what = format!("cannot moderate {name} with the policy {policy}, which needs measurements");
    Err(unsupported(what, why, "use a fixed time, which needs no measurement: --policy static:50us"))
}

/// Names the queues that have a goal of their own and are not in use.
pub(super) fn note_unused_goals(config: &InterfaceConfig, in_use: impl Iterator<Item = u32>) {
    let in_use: Vec<u32> = in_use.collect();
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let unused: Vec<u32> = config.queues.iter().map(|(queue, _)| *queue).filter(|one| !in_use.contains(one)).collect();
    let are = match unused.len() {
        0 => return,
        1 => "queue",
        _ => "queues",
    };
    let (name, unused, in_use) = (&config.name, list(&unused), list(&in_use));
    note(&format!("{name}: not in use, so their goals have no effect: {are} {unused}; the queues in use are {in_use}"));
}
