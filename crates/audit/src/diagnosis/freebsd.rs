//! Observations of a FreeBSD host, from the output of its tools: settings of ixl, and loads of interrupt threads. There
//! is no observed interval: the loads are the mean values that `top` shows.

use host::facts::{BsdInterface, FreeBsd};

use super::end::{End, QueueShare};
use crate::rules::freebsd::{ITR_UNIT_US, gigabits_of, number, set, slots};

/// Exit latency, in us, of states deeper than C1 on a host that does not report it. On a Xeon E5 v3, C6 takes 133 us.
/// ACPI's C2 is the hardware's C3 on that processor, and takes 33 us (interrupt-mode DPDK slides, 2017).
const DEEP_US: f64 = 133.0;

pub(super) fn end(name: &str, host: &FreeBsd, interface: Option<&str>) -> End {
    let mut end = End { name: name.to_owned(), ..End::default() };
    let setting = |name: &str| number(&set(host, name)).ok().map(|n| n as f64);
    let itr = |name: &str| setting(name).map(|n| n * ITR_UNIT_US as f64);
    let interfaces = host.interfaces.value().map(Vec::as_slice).unwrap_or_default();
    match interfaces
        .iter()
        .filter(|link| interface.is_none_or(|name| link.name == name))
        .max_by_key(|link| gigabits_of(link))
    {
        Some(link) => offloads_and_speed(&mut end, link),
        None => end.unknown.push("interfaces: not recorded (ifconfig -a)".into()),
    }
    end.driver = Some("ixl".into()).filter(|_| end.interface.starts_with("ixl"));
    if end.driver.is_some() {
        // Dynamic moderation, if it exists and is on, does not always wait for the whole interval.
        let fixed = |name: &str| setting(name).unwrap_or(0.0) == 0.0;
        end.rx_hold_us = itr("hw.ixl.rx_itr").filter(|_| fixed("hw.ixl.dynamic_rx_itr"));
        end.tx_hold_us = itr("hw.ixl.tx_itr").filter(|_| fixed("hw.ixl.dynamic_tx_itr"));
        end.rx_hold_by = "sysctl hw.ixl.rx_itr, in units of 2 us".into();
        end.rx_slots = slots(host, "rx").ok().map(|(slots, _)| slots);
        end.tx_slots = slots(host, "tx").ok().map(|(slots, _)| slots);
        let queues = setting("hw.ixl.max_queues").filter(|queues| *queues > 0.0);
        end.queue_count = queues.map(|queues| queues as u32);
    }
    for thread in host.threads.value().into_iter().flatten() {
        // `intr{irq293: ixl1:q2}`
        let of_queue = thread.name.starts_with("intr{") && thread.name.contains(&format!(" {}:", end.interface));
        if of_queue {
            end.queues.push(QueueShare { queue: thread.name.clone(), amount: f64::from(thread.cpu_permyriad) });
        }
    }
    if host.threads.value().is_none() {
        end.unknown.push("interrupt threads: not recorded (top -bSH)".into());
    }
    let deepest = host.sysctl("hw.acpi.cpu.cx_lowest");
    if let Some(state) = deepest.value().map(|state| state.trim()).filter(|state| !matches!(*state, "C0" | "C1")) {
        end.idle_exit = Some((DEEP_US, state.to_owned(), 0.0));
    }
    end.unknown.push("sockets, packets by queue and drops: a recording of FreeBSD does not contain them".into());
    end
}

fn offloads_and_speed(end: &mut End, link: &BsdInterface) {
    end.interface.clone_from(&link.name);
    end.speed_bps = gigabits_of(link).map(|gigabits| gigabits as f64 * 1e9);
    let bulk = |option: &&String| matches!(option.as_str(), "TSO4" | "TSO6" | "LRO" | "RXCSUM" | "TXCSUM");
    end.offloads_on = link.options.iter().filter(bulk).cloned().collect();
}
