//! Checks whether a setting has an effect. Reading the setting back would only show that its value was stored.
//!
//! An effect shows in counters that change between two observations. [`look`] makes an observation; [`judge`] compares
//! two of them without I/O.

use std::collections::BTreeMap;

use units::Nanos;

use super::{Access, AnySetting, Error, ResumeLatency, Value, online, policies, policy_cpus, states};
use crate::facts::CpuSet;

/// One reading of the counters in which a setting's effect shows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Look {
    counters: BTreeMap<String, u64>,
}

/// The effect of a setting, judged by two observations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The effect was seen; the string describes what was seen.
    Seen(String),
    /// The host behaves differently from the setting; the string describes how.
    NotSeen(String),
    /// Nothing happened that would show the effect; the string says why.
    Unknown(String),
}

/// A frequency counts as being at its limit if the difference is at most this. The threshold is that of mlnx_tune
/// (Mellanox/mlnx-tools).
const FREQUENCY_SLACK_KHZ: u64 = 100_000;

/// Reads the counters that would show a setting's effect. `None` if the setting's effect cannot be observed.
pub fn look(access: &Access, setting: &AnySetting, wanted: &Value) -> Result<Option<Look>, Error> {
    let mut look = Look::default();
    match setting {
        AnySetting::IdleState(it) if wanted.as_text() == Some("1") => {
            look.idle(access, it.cpu, |state| state.number == it.state)?;
        }
        AnySetting::CpuLatency(it) => {
            let limit = wanted.as_text().and_then(ResumeLatency::of_file);
            let Some(limit) = limit.and_then(limit_of) else { return Ok(None) };
            look.idle(access, it.cpu, |state| state.latency.is_some_and(|latency| latency > limit))?;
        }
        AnySetting::DmaLatency(_) => {
            let Some(micros) = wanted.as_text().and_then(|text| text.parse().ok()) else { return Ok(None) };
            let limit = Nanos::from_micros(micros);
            for cpu in online(access)?.iter() {
                look.idle(access, cpu, |state| state.latency.is_some_and(|latency| latency > limit))?;
            }
        }
        AnySetting::Governor(it) => look.frequency(access, it.policy)?,
        AnySetting::Limits(it) => look.frequency(access, it.policy)?,
        AnySetting::HwpRequest(it) => {
            for policy in policies(access)? {
                if policy_cpus(access, policy)?.contains(it.cpu) {
                    look.frequency(access, policy)?;
                }
            }
        }
        AnySetting::IrqAffinity(it) => look.interrupts(access, &[it.irq])?,
        AnySetting::Coalesce(it) => {
            let irqs = access.numbered(&format!("/sys/class/net/{}/device/msi_irqs", it.interface), "")?;
            look.interrupts(access, &irqs)?;
        }
        _ => return Ok(None),
    }
    Ok((!look.counters.is_empty()).then_some(look))
}

fn limit_of(latency: ResumeLatency) -> Option<Nanos> {
    match latency {
        ResumeLatency::NoLimit => None,
        ResumeLatency::Zero => Some(Nanos::ZERO),
        ResumeLatency::AtMost(limit) => Some(limit),
    }
}

/// Judges the effect of a setting from two observations. `span` is the time between them.
pub fn judge(setting: &AnySetting, wanted: &Value, first: &Look, second: &Look, span: Nanos) -> Effect {
    match setting {
        AnySetting::IdleState(_) | AnySetting::CpuLatency(_) | AnySetting::DmaLatency(_) => {
            let entered: Vec<(&String, u64)> = first.rises(second).filter(|(_, n)| *n > 0).collect();
            match entered.first() {
                None => Effect::Seen("no disabled idle state was requested".into()),
                Some((state, n)) => Effect::NotSeen(format!("{state} was requested {n} times")),
            }
        }
        AnySetting::Governor(_) | AnySetting::Limits(_) | AnySetting::HwpRequest(_) => {
            frequency(setting, wanted, second)
        }
        AnySetting::IrqAffinity(_) => {
            let allowed: CpuSet = wanted.as_text().and_then(|list| list.parse().ok()).unwrap_or_default();
            let (mut inside, mut outside) = (0, 0);
            for (name, n) in first.rises(second) {
                let cpu = name.rsplit(' ').next().and_then(|cpu| cpu.parse().ok());
                *(if cpu.is_some_and(|cpu| allowed.contains(cpu)) { &mut inside } else { &mut outside }) += n;
            }
            match (inside, outside) {
                (0, 0) => Effect::Unknown("the interrupt did not occur".into()),
                (inside, 0) => Effect::Seen(format!("{inside} interrupts, all on allowed CPUs")),
                (_, outside) => Effect::NotSeen(format!("{outside} interrupts on other CPUs")),
            }
        }
        AnySetting::Coalesce(_) => coalescing(wanted, first, second, span),
        _ => Effect::Unknown("its effect cannot be observed".into()),
    }
}

fn frequency(setting: &AnySetting, wanted: &Value, look: &Look) -> Effect {
    let Some(now) = look.counters.get("frequency_khz") else {
        return Effect::Unknown("the kernel does not show the frequency".into());
    };
    let number =
        |field: &str, unit: u64| wanted.field(field).and_then(|text| text.parse::<u64>().ok()).map(|n| n * unit);
    let (least, most) = match setting {
        AnySetting::HwpRequest(_) => (number("min", 100_000), number("max", 100_000)),
        AnySetting::Governor(_) => {
            let speed = wanted.as_text().and_then(|text| text.strip_prefix("userspace ")?.parse().ok());
            match (speed, wanted.as_text()) {
                (Some(speed), _) => (Some(speed), Some(speed)),
                // This governor requests the highest frequency, but the firmware may allow less.
                (None, Some("performance")) => (look.counters.get("most_khz").copied(), None),
                (None, _) => return Effect::Unknown("this governor chooses the frequency by itself".into()),
            }
        }
        _ => (number("min", 1), number("max", 1)),
    };
    if most.is_some_and(|most| *now > most + FREQUENCY_SLACK_KHZ) {
        return Effect::NotSeen(format!("it runs at {now} kHz, above the limit"));
    }
    if let Some(limit) = look.counters.get("bios_limit_khz")
        && least.is_some_and(|least| *limit < least)
    {
        return Effect::NotSeen(format!("the firmware limits it to {limit} kHz (bios_limit)"));
    }
    if least.is_some_and(|least| now + FREQUENCY_SLACK_KHZ < least) {
        return Effect::Unknown(format!("it shows {now} kHz: the CPU is idle, or limited by power or temperature"));
    }
    Effect::Seen(format!("it runs at {now} kHz"))
}

/// Judges whether `rx-usecs` limits the interrupt rate: each interrupt should occur at most once in `rx-usecs`
/// microseconds.
fn coalescing(wanted: &Value, first: &Look, second: &Look, span: Nanos) -> Effect {
    let Some(usecs) = wanted.field("rx-usecs").and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0) else {
        return Effect::Unknown("without rx-usecs the interrupt rate has no limit".into());
    };
    if span == Nanos::ZERO {
        return Effect::Unknown("both readings are from the same time".into());
    }
    let mut each: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, n) in first.rises(second) {
        *each.entry(name.rsplit_once(' ').map_or("", |(irq, _)| irq)).or_default() += n;
    }
    let bound = 1_000_000 / usecs;
    let most = each.into_values().max().unwrap_or(0);
    let rate = Nanos::from_secs(1).scale(most, 1).as_nanos() / span.as_nanos().max(1);
    match rate {
        // Tolerates a fifth more, because an observation itself takes time.
        rate if rate > bound + bound / 5 => {
            Effect::NotSeen(format!("{rate} interrupts per second from one vector; {usecs} us allow {bound}"))
        }
        // With less traffic, the interrupt rate is low whatever the setting.
        rate if rate > bound / 2 => {
            Effect::Seen(format!("{rate} interrupts per second from one vector; {usecs} us allow {bound}"))
        }
        rate => {
            Effect::Unknown(format!("{rate} interrupts per second are too few to judge ({usecs} us allow {bound})"))
        }
    }
}

impl Look {
    /// The increase of each counter. Counters that are new, or that decreased, are left out.
    fn rises<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = (&'a String, u64)> {
        self.counters.iter().filter_map(|(name, n)| Some((name, later.counters.get(name)?.checked_sub(*n)?)))
    }

    fn idle(&mut self, access: &Access, cpu: u32, which: impl Fn(&super::State) -> bool) -> Result<(), Error> {
        for state in states(access, cpu)?.into_iter().filter(which) {
            if let Some(usage) = state.usage {
                let name = state.name.unwrap_or_else(|| format!("state {}", state.number));
                self.counters.insert(format!("{name} of CPU {cpu}"), usage);
            }
        }
        Ok(())
    }

    fn frequency(&mut self, access: &Access, policy: u32) -> Result<(), Error> {
        for (name, file) in
            [("frequency_khz", "scaling_cur_freq"), ("bios_limit_khz", "bios_limit"), ("most_khz", "cpuinfo_max_freq")]
        {
            let path = format!("/sys/devices/system/cpu/cpufreq/policy{policy}/{file}");
            if let Some(khz) = access.number(&path)? {
                self.counters.insert(name.into(), khz);
            }
        }
        Ok(())
    }

    /// Reads the counters of /proc/interrupts (proc(5)) under names of the form `IRQ CPU`. The file's first line names
    /// the CPU of each column.
    fn interrupts(&mut self, access: &Access, irqs: &[u32]) -> Result<(), Error> {
        let text = access.read("/proc/interrupts")?.unwrap_or_default();
        let mut lines = text.lines();
        let cpus: Vec<&str> =
            lines.next().unwrap_or_default().split_whitespace().filter_map(|name| name.strip_prefix("CPU")).collect();
        for line in lines {
            let Some((irq, counts)) = line.split_once(':') else { continue };
            if irq.trim().parse::<u32>().is_ok_and(|irq| irqs.contains(&irq)) {
                for (cpu, count) in cpus.iter().zip(counts.split_whitespace()) {
                    if let Ok(count) = count.parse() {
                        self.counters.insert(format!("{} {cpu}", irq.trim()), count);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Effect {
    /// Whether the effect was seen. `None` if nothing happened that would show it.
    pub fn seen(&self) -> Option<bool> {
        match self {
            Self::Seen(_) => Some(true),
            Self::NotSeen(_) => Some(false),
            Self::Unknown(_) => None,
        }
    }

    /// The explanation of the result, as a sentence.
    pub fn text(&self) -> &str {
        match self {
            Self::Seen(text) | Self::NotSeen(text) | Self::Unknown(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Coalesce, CpuLatency, Governor, IdleState, IrqAffinity, Limits};
    use crate::testing::Folder;

    const SECOND: Nanos = Nanos::from_secs(1);

    fn look_of(counters: &[(&str, u64)]) -> Look {
        Look { counters: counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect() }
    }

    #[test]
    fn idle_states_show_in_their_usage() {
        let state = "sys/devices/system/cpu/cpu1/cpuidle/state";
        let folder = Folder::new(&[
            (&format!("{state}0/latency"), "2\n"),
            (&format!("{state}0/usage"), "5\n"),
            (&format!("{state}1/name"), "C6\n"),
            (&format!("{state}1/latency"), "133\n"),
            (&format!("{state}1/usage"), "7\n"),
        ]);
        let access = folder.access();
        let limited = AnySetting::from(CpuLatency::new(1));
        let wanted = ResumeLatency::AtMost(Nanos::from_micros(10)).value();
        let disabled = (AnySetting::from(IdleState::new(1, 1)), IdleState::disabled(true));
        for (setting, wanted) in [(&limited, &wanted), (&disabled.0, &disabled.1)] {
            let first = look(&access, setting, wanted).unwrap().unwrap();
            folder.put(&format!("{state}0/usage"), "50\n");
            let second = look(&access, setting, wanted).unwrap().unwrap();
            assert_eq!(judge(setting, wanted, &first, &second, SECOND).seen(), Some(true));
            folder.put(&format!("{state}1/usage"), "9\n");
            let third = look(&access, setting, wanted).unwrap().unwrap();
            let effect = judge(setting, wanted, &first, &third, SECOND);
            assert_eq!(effect, Effect::NotSeen("C6 of CPU 1 was requested 2 times".into()));
            folder.put(&format!("{state}1/usage"), "7\n");
        }
        assert_eq!(look(&access, &limited, &ResumeLatency::NoLimit.value()).unwrap(), None, "no limit, no effect");
    }

    #[test]
    fn frequencies_are_compared_with_the_firmwares_limit_too() {
        let judge = |setting: AnySetting, wanted: &Value, look: &[(&str, u64)]| {
            judge(&setting, wanted, &Look::default(), &look_of(look), SECOND).seen()
        };
        let limits = Value::fields([("min", 3_000_000), ("max", 3_500_000)]);
        let of = |khz| judge(Limits::new(0).into(), &limits, &[("frequency_khz", khz)]);
        assert_eq!((of(3_400_000), of(3_700_000), of(800_000)), (Some(true), Some(false), None));
        let capped = [("frequency_khz", 1_800_000), ("bios_limit_khz", 1_800_000), ("most_khz", 3_500_000)];
        assert_eq!(judge(Governor::new(0).into(), &Value::text("performance"), &capped), Some(false));
        assert_eq!(judge(Governor::new(0).into(), &Value::text("powersave"), &capped), None);
        assert_eq!(judge(Governor::new(0).into(), &Value::text("userspace 1800000"), &capped), Some(true));
    }

    #[test]
    fn interrupts_show_where_and_how_often_they_are() {
        let folder = Folder::new(&[(
            "proc/interrupts",
            "           CPU0       CPU3\n 24:         10         20   PCI-MSI  eth0\nLOC:          1          1\n",
        )]);
        let irq = AnySetting::from(IrqAffinity::new(24));
        let first = look(&folder.access(), &irq, &Value::text("0")).unwrap().unwrap();
        assert_eq!(first, look_of(&[("24 0", 10), ("24 3", 20)]));
        let rise = |a, b| judge(&irq, &Value::text("0"), &first, &look_of(&[("24 0", a), ("24 3", b)]), SECOND).seen();
        assert_eq!((rise(11, 20), rise(11, 21), rise(10, 20)), (Some(true), Some(false), None));
        let coalesce = AnySetting::from(Coalesce::new("eth0"));
        let rate = |n: u64| {
            judge(
                &coalesce,
                &Value::fields([("rx-usecs", 50)]),
                &first,
                &look_of(&[("24 0", 10 + n), ("24 3", 20)]),
                SECOND,
            )
            .seen()
        };
        assert_eq!(
            (rate(19_000), rate(90_000), rate(100)),
            (Some(true), Some(false), None),
            "50 us allow 20,000 a second"
        );
    }
}
