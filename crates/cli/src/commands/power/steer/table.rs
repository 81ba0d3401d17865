//! A table of the CPUs that running instances control, for `apus power steer status` and `apus top`.

use tester::layout::aligned;
use units::{Hertz, Nanos};

use crate::commands::published::SILENT;
use crate::commands::shown::{UNKNOWN, span};
use crate::documents::power_steer::{Cpu, Document, Instance};
use crate::terminal::line;

/// Renders one row per CPU. Lines below the table show peculiarities of CPUs and instances.
pub(in crate::commands) fn lines(instances: &[Instance]) -> Vec<String> {
    let head =
        ["CPU", "WATCHED", "POLICY", "ASKED", "IN FORCE", "BUSY", "LATE", "VERDICT", "CHANGES", "IDLE", "REASON"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = Vec::new();
    for instance in instances {
        rows.extend(instance.document.cpus.iter().map(|cpu| row(&instance.document, cpu).to_vec()));
        notes.extend(special(instance));
    }
    let mut lines = aligned(&rows, |column| matches!(column, 1 | 2 | 7 | 10));
    lines.extend(notes);
    lines
}

fn row(document: &Document, cpu: &Cpu) -> [String; 11] {
    let unknown = || UNKNOWN.to_owned();
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let late = cpu.late.zip(cpu.judged).filter(|(_, judged)| *judged > 0);
    let domain = document.domains.iter().find(|domain| domain.domain == cpu.domain);
    [
        cpu.cpu.to_string(),
        cpu.watches.as_deref().map_or_else(unknown, line),
        line(&policy(document)),
        hertz(cpu.wish_hz),
        hertz(cpu.frequency_hz),
        cpu.last_second.as_ref().and_then(|second| second.busy_ratio).map_or_else(unknown, percent),
        late.map_or_else(unknown, |(late, judged)| format!("{:.2} %", 100.0 * late as f64 / judged as f64)),
        cpu.verdict.to_string(),
        domain.map_or_else(unknown, |domain| domain.changes.to_string()),
        cpu.idle_limit_ns.map_or_else(unknown, |limit| Nanos::from_nanos(limit).to_string()),
        line(&cpu.reason),
    ]
}

/// The policy, and its goal if it has one: `goal p99=50us`.
fn policy(document: &Document) -> String {
    document.goal.as_ref().map_or_else(|| document.policy.clone(), |goal| format!("{} {goal}", document.policy))
}

/// A frequency in whole megahertz.
fn hertz(hz: u64) -> String {
    Hertz::new(hz / 1_000_000 * 1_000_000).to_string()
}

/// Peculiarities of an instance or a CPU that the table has no column for.
fn special(instance: &Instance) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |text: String| format!("process {}: {text}", instance.pid);
    if instance.document.dry_run {
        notes.push(of("changes nothing (--dry-run)".into()));
    }
    if instance.silent_ns >= SILENT {
        notes.push(of(format!("has not updated its state for {}", span(Some(instance.silent_ns)))));
    }
    for cpu in &instance.document.cpus {
        let is_limited = cpu.trouble.is_none() && cpu.wish_hz > cpu.ceiling_hz;
        let limited = is_limited.then(|| format!("its frequency is limited to {}", hertz(cpu.ceiling_hz)));
        let lost = cpu.lost.as_ref().map(|why| format!("no longer controlled: {}", line(why)));
        let idle = cpu.idle_trouble.as_ref().map(|why| format!("its idle states are not limited: {}", line(why)));
        let troubles = [cpu.trouble.as_ref().map(|text| line(text)), limited, lost, idle];
        notes.extend(troubles.into_iter().flatten().map(|text| format!("CPU {}: {text}", cpu.cpu)));
    }
    for shared in &instance.document.shared {
        let state = match (&shared.trouble, shared.lowered) {
            (Some(why), _) => line(why),
            (None, true) => "lowered, because no controlled CPU needs it".to_owned(),
            (None, false) => continue,
        };
        notes.push(format!("{}: {state}", line(&shared.setting)));
    }
    notes
}

#[cfg(test)]
pub(in crate::commands) use tests::instance;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::VERSION;
    use crate::documents::power_steer::{Domain, LastSecond, SCHEMA, SharedSetting, Verdict, Via};
    use policy::frequency::outside::Reason;
    use steer::frequency::Phase;

    /// An instance with two CPUs that share a frequency: the first needs 1.8 GHz and gets the 2.6 GHz of the second.
    pub(in crate::commands) fn instance() -> Instance {
        let cpu = |number, wish_hz, busy_ratio| Cpu {
            cpu: number,
            domain: 2,
            watches: Some(format!("edge/{number}")),
            wish_hz,
            frequency_hz: 2_600_000_000,
            ceiling_hz: 3_000_000_000,
            mean_frequency_hz: Some(1_912_345_678),
            phase: Phase::Load.into(),
            reason: "frequency fits the load".into(),
            policy_reason: Some(Reason::Steady.into()),
            unsure: None,
            busy_ratio: Some(0.5),
            packets: Some(1_000_000),
            judged: Some(800_000),
            late: Some(2_000),
            verdict: Verdict::Held.into(),
            cycles_per_packet: None,
            wishes: 9,
            last_second: Some(LastSecond {
                span_ns: 1_000_000_000,
                mean_frequency_hz: 2_600_000_000,
                busy_ratio: Some(busy_ratio),
                packets: Some(90_000),
                judged: Some(90_000),
                late: Some(45),
            }),
            trouble: None,
            refused: false,
            lost: None,
            idle_limit_ns: Some(20_000),
            idle_trouble: None,
        };
        let domain = Domain {
            domain: 2,
            cpus: "2-3".into(),
            driver: Some("acpi-cpufreq".into()),
            via: Via::Setspeed.into(),
            changes: 17,
            changes_per_second: 0.28,
            stall_ratio: 0.000_003,
        };
        let document = Document {
            apus: VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            dry_run: false,
            duration_ns: 60_000_000_000,
            policy: "goal".into(),
            goal: Some("p99=50us".into()),
            change_ns: 530_000,
            stall_ns: 12_000,
            cpus: vec![cpu(2, 1_800_000_000, 0.551), cpu(3, 2_600_000_000, 0.7)],
            domains: vec![domain],
            shared: Vec::new(),
            restored: None,
        };
        Instance { pid: 4_242, silent_ns: 300_000_000, document }
    }

    #[test]
    fn a_row_a_cpu() {
        let mut unknown = instance();
        (unknown.document.policy, unknown.document.goal) = ("fixed:1.2GHz".into(), None);
        unknown.document.cpus.truncate(1);
        let cpu = &mut unknown.document.cpus[0];
        (cpu.cpu, cpu.domain, cpu.watches, cpu.last_second, cpu.idle_limit_ns) = (12, 9, None, None, None);
        (cpu.judged, cpu.late, cpu.verdict) = (None, None, Verdict::Unmeasured.into());
        let shown = lines(&[instance(), unknown]);
        let expected = [
            "CPU  WATCHED  POLICY          ASKED  IN FORCE    BUSY    LATE  VERDICT     CHANGES  IDLE  REASON",
            "  2  edge/2   goal p99=50us  1.8GHz    2.6GHz  55.1 %  0.25 %  held             17  20us  frequency fits the load",
            "  3  edge/3   goal p99=50us  2.6GHz    2.6GHz  70.0 %  0.25 %  held             17  20us  frequency fits the load",
            " 12  –        fixed:1.2GHz   1.8GHz    2.6GHz       –       –  unmeasured        –     –  frequency fits the load",
        ];
        assert_eq!(shown, expected, "\n{}", shown.join("\n"));
    }

    #[test]
    fn a_refused_frequency_is_a_finding_and_a_limited_one_is_not() {
        let mut document = instance().document;
        document.cpus[0].trouble = Some("the frequency is 2.2GHz instead".into());
        assert!(!document.has_findings());
        document.cpus[0].refused = true;
        assert!(document.has_findings());
    }

    #[test]
    fn what_is_special_is_said_below() {
        let mut one = instance();
        (one.document.dry_run, one.silent_ns) = (true, 7_200_000_000);
        let cpus = &mut one.document.cpus;
        cpus[0].watches = Some("e\n\u{1b}[2J".into());
        cpus[0].trouble = Some("refused: no permission\n".into());
        cpus[0].idle_trouble = Some("somebody else has removed the limit".into());
        (cpus[1].wish_hz, cpus[1].ceiling_hz) = (2_600_000_000, 2_200_000_000);
        cpus[1].lost = Some("somebody else set it to powersave".into());
        let shared = |setting: &str, lowered, trouble: Option<&str>| SharedSetting {
            setting: setting.into(),
            lowered,
            lowered_ratio: 0.5,
            changes: 3,
            trouble: trouble.map(str::to_owned),
        };
        let uncore = shared("uncore package_00_die_00", false, Some("it is gone"));
        one.document.shared = vec![shared("turbo", true, None), uncore, shared("uncore uncore01", false, None)];
        let shown = lines(&[one]);
        assert!(shown[1].contains("e\\u000a\\u001b[2J"), "{}", shown[1]);
        assert_eq!(
            shown[3..],
            [
                "process 4242: changes nothing (--dry-run)",
                "process 4242: has not updated its state for 7.2s",
                "CPU 2: refused: no permission\\u000a",
                "CPU 2: its idle states are not limited: somebody else has removed the limit",
                "CPU 3: its frequency is limited to 2.2GHz",
                "CPU 3: no longer controlled: somebody else set it to powersave",
                "turbo: lowered, because no controlled CPU needs it",
                "uncore package_00_die_00: it is gone",
            ]
        );
    }
}
