//! Finds out which interrupt belongs to which queue.

use crate::facts::{Fact, Irqs, Napi, NapiSettings, QueueIrq, Root, Source};
use crate::nic::Numbers as _;

/// The interrupts of an interface's queues, and its NAPI instances, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub irqs: Vec<QueueIrq>,
    pub napi: Fact<Vec<Napi>>,
}

/// Reads the lines `napi id=8193 irq=71 …` and `queue 0 rx irq=71` of a snapshot.
pub(super) fn recorded(root: &Root, name: &str) -> Queues {
    let text = root.command(&format!("netdev {name}"));
    let Some(lines) = text.value() else { return Queues { irqs: Vec::new(), napi: text.map(|_| Vec::new()) } };
    let queues = parse(lines);
    Queues { irqs: queues.irqs, napi: Fact::known(queues.napi, Source::new(format!("netdev {name}"))) }
}

/// The contents of the lines that [`write()`] wrote.
pub(crate) struct Parsed {
    pub irqs: Vec<QueueIrq>,
    pub napi: Vec<Napi>,
}

/// Writes NAPI instances and queues as lines of text, for snapshots.
pub(crate) fn write(queues: &Queues) -> String {
    let mut text = String::new();
    for napi in queues.napi.value().into_iter().flatten() {
        let own = [("irq", napi.irq.map(u64::from)), ("pid", napi.pid.map(u64::from))];
        let settings = NapiSettings::FIELDS.iter().map(|field| (field.name, napi.settings.get(field)));
        text.push_str(&format!("napi id={}", napi.id));
        for (key, value) in own.into_iter().chain(settings).filter_map(|(key, value)| Some((key, value?))) {
            text.push_str(&format!(" {key}={value}"));
        }
        text.push('\n');
    }
    for queue in &queues.irqs {
        let rx = if queue.rx { " rx" } else { "" };
        let tx = if queue.tx { " tx" } else { "" };
        text.push_str(&format!("queue {}{rx}{tx} irq={}\n", queue.queue, queue.irq));
    }
    text
}

/// Parses the lines that [`write()`] wrote. Other lines are ignored.
pub(crate) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed { irqs: Vec::new(), napi: Vec::new() };
    for line in text.lines() {
        let value =
            |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok());
        let short = |key: &str| value(key).and_then(|value| u32::try_from(value).ok());
        if line.starts_with("napi ")
            && let Some(id) = short("id")
        {
            let mut settings = NapiSettings::default();
            for field in NapiSettings::FIELDS {
                value(field.name).map(|number| settings.fill(field, number));
            }
            parsed.napi.push(Napi { id, irq: short("irq"), pid: short("pid"), settings });
        }
        if let Some(rest) = line.strip_prefix("queue ")
            && let (Some(Ok(queue)), Some(irq)) = (rest.split(' ').next().map(str::parse), short("irq"))
        {
            let has = |word: &str| rest.split(' ').any(|part| part == word);
            parsed.irqs.push(QueueIrq { queue, rx: has("rx"), tx: has("tx"), irq });
        }
    }
    parsed
}

/// Finds the queues by the names that drivers give their interrupts: `i40e-ens1f0-TxRx-3`, `ens1f0-rx-3`,
/// `mlx5_comp3@pci:0000:3b:00.0`, `virtio1-input.0`.
pub(super) fn by_names(irqs: &Irqs, name: &str, pci: Option<&str>, virtio: Option<&str>) -> Vec<QueueIrq> {
    let mut queues = Vec::new();
    for irq in irqs.iter() {
        for action in irq.actions.value().into_iter().flatten() {
            if let Some((queue, rx, tx)) = queue_of(action, name, pci, virtio) {
                queues.push(QueueIrq { queue, rx, tx, irq: irq.number });
            }
        }
    }
    queues.sort_unstable_by_key(|queue| (queue.queue, queue.irq));
    queues
}

fn queue_of(action: &str, name: &str, pci: Option<&str>, virtio: Option<&str>) -> Option<(u32, bool, bool)> {
    if let Some((port, place)) = action.split_once("@pci:") {
        let index = port.trim_start_matches(|c: char| c != '_').strip_prefix("_comp")?.parse().ok()?;
        return (Some(place) == pci).then_some((index, true, true));
    }
    if let Some(rest) = virtio.and_then(|device| action.strip_prefix(device)) {
        let (input, index) = match rest.strip_prefix("-input.") {
            Some(index) => (true, index),
            None => (false, rest.strip_prefix("-output.")?),
        };
        return Some((index.parse().ok()?, input, !input));
    }
    // Looks for the interface's name as a whole word, then the direction, then the queue's number.
    let at = action.match_indices(name).map(|(at, _)| at).find(|at| {
        let before = action[..*at].chars().next_back();
        let after = action[at + name.len()..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric()) && after.is_some_and(|c| c == '-' || c == '@')
    })?;
    let rest = &action[at + name.len() + 1..];
    let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (kind, index) = rest.split_at(rest.len() - digits);
    let index = index.parse().ok()?;
    let kind = kind.to_ascii_lowercase();
    let (rx, tx) = (kind.contains("rx"), kind.contains("tx"));
    match kind.trim_end_matches(['-', '.', '_', ':']) {
        // A bare number or "fp" (bnx2x: fast path) means that the queue receives and transmits.
        "" | "fp" | "q" | "queue" => Some((index, true, true)),
        _ if rx || tx => Some((index, rx, tx)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_drivers_give() {
        let of = |action: &str| queue_of(action, "ens1f0", Some("0000:3b:00.0"), Some("virtio1"));
        assert_eq!(of("i40e-ens1f0-TxRx-3"), Some((3, true, true)));
        assert_eq!(of("ens1f0-rx-7"), Some((7, true, false)));
        assert_eq!(of("ens1f0-Tx-Rx-2"), Some((2, true, true)));
        assert_eq!(of("ens1f0-4"), Some((4, true, true)));
        assert_eq!(of("mlx5_comp12@pci:0000:3b:00.0"), Some((12, true, true)));
        assert_eq!(of("virtio1-output.0"), Some((0, false, true)));
        for other in
            ["ens1f01-TxRx-3", "mlx5_comp1@pci:0000:3b:00.1", "ens1f0", "ens1f0-misc", "virtio1-config", "xens1f0-rx-1"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn written_and_read_they_are_the_same() {
        let settings =
            NapiSettings { gro_flush_timeout_ns: Some(20_000), threaded: Some(2), ..NapiSettings::default() };
        let napi = Napi { id: 8193, irq: Some(71), pid: None, settings };
        let irqs = vec![QueueIrq { queue: 0, rx: true, tx: false, irq: 71 }];
        let text = write(&Queues { irqs: irqs.clone(), napi: Fact::known(vec![napi], "netlink") });
        let parsed = parse(&text);
        assert_eq!((parsed.napi, parsed.irqs), (vec![napi], irqs));
    }

    proptest! {
        #[test]
        fn any_name_is_a_queue_or_none(action in "\\PC{0,20}(eth0|@pci:)?\\PC{0,12}", text in "((napi|queue) \\PC{0,20}\n){0,5}") {
            let _ = queue_of(&action, "eth0", Some("a"), Some("virtio0"));
            parse(&text);
        }
    }
}
