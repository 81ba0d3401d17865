//! Recorded hosts of others: each is audited, and its golden findings are there. The recordings lie beside the checkout;
//! where they are not, the test says that it is skipped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use audit::{Context, Finding, HitKind, Intent, Level, Report, audit, hits};
use host::facts::{Facts, Root};

fn recording(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.ancestors().map(|folder| folder.join("shared/hosts").join(format!("{name}.tar.gz")));
    let found = file.into_iter().find(|file| file.is_file());
    if found.is_none() {
        testkit::skip(format!("no recording of {name} (shared/hosts/{name}.tar.gz beside the checkout)"));
    }
    found
}

fn audited(name: &str, intent: &Intent) -> Option<Report> {
    let facts = Facts::read(&Root::open(recording(name)?).unwrap());
    let report = audit(&facts, intent);
    assert!(report.findings.len() >= audit::rules::all().count(), "{name}: a rule said nothing");
    Some(report)
}

/// The first finding of a rule, from warnings on.
fn finding<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let found = report.at_least(Level::Choice).find(|finding| finding.rule.id == id);
    found.unwrap_or_else(|| {
        let said: Vec<_> = report.findings.iter().filter(|f| f.rule.id == id).map(|f| &f.judgement).collect();
        panic!("{id} is no finding: {said:#?}")
    })
}

/// Everything that a rule's findings say.
fn said(report: &Report, id: &str) -> String {
    let of_rule = report.findings.iter().filter(|finding| finding.rule.id == id);
    let texts = of_rule.map(|finding| {
        let judgement = &finding.judgement;
        let evidence: Vec<String> = judgement.evidence.iter().map(|e| format!("{} ({})", e.value, e.source)).collect();
        format!("{} {} {} {}\n", judgement.subject, judgement.verdict, judgement.found, evidence.join("; "))
    });
    texts.collect()
}

fn says(report: &Report, id: &str, words: &[&str]) {
    let text = said(report, id);
    for word in words {
        assert!(text.contains(word), "{id} does not say {word:?}:\n{text}");
    }
}

/// A tuned real-time node: its command line looks complete, and leaves the scheduler as it is.
#[test]
fn the_tuned_node_is_not_isolated_as_it_seems() {
    let Some(report) = audited("telco-worker1", &Intent::default()) else { return };
    assert_eq!(report.context.isolated.value.to_string(), "0-4,11-79");
    assert!(report.context.is(audit::Workload::Rt));
    says(&report, "cmd.isolcpus-flags", &["domain"]);
    assert!(finding(&report, "cmd.isolcpus-flags").level() >= Level::Warn);
    assert!(finding(&report, "cmd.idle-poll").rule.why.len() > 60);
    says(&report, "cmd.idle-poll", &["idle=poll"]);
    says(&report, "cmd.mce", &["mce=off"]);
    says(&report, "cmd.duplicate", &["skew_tick=1", "tsc=reliable"]);
}

/// What lands on its isolated CPUs is named, with its counts.
#[test]
fn the_interrupts_on_isolated_cpus_are_named() {
    let Some(file) = recording("telco-worker1") else { return };
    let facts = Facts::read(&Root::open(file).unwrap());
    let context = Context::of(&facts, &Intent::default());
    let hits = hits(&facts, &context.isolated.value).unwrap();
    assert_eq!(hits.during, None, "the recording holds one reading");
    let devices: Vec<_> = hits.list.iter().filter(|hit| hit.kind == HitKind::Device).collect();
    let total: u64 = devices.iter().map(|hit| hit.total).sum();
    assert!(devices.len() > 100 && total > 5_000_000, "{} interrupts, {total} times", devices.len());
    let first = devices[0];
    assert_eq!((first.label.as_str(), first.name.as_str(), first.total), ("151", "eno3-TxRx-0", 794_140));
    assert!(first.counts.iter().all(|(cpu, _)| context.is_isolated(*cpu)), "{:?}", first.counts);
}

/// The same as a finding.
#[test]
fn the_interrupts_on_isolated_cpus_are_a_finding() {
    let Some(report) = audited("telco-worker1", &Intent::default()) else { return };
    finding(&report, "irq.on-iso");
    says(&report, "irq.on-iso", &["513", "eno3-TxRx-0"]);
}

/// A server as it was delivered: deep idle states, a preference for balance, an uncore that follows the load.
#[test]
fn the_untuned_server_sleeps_deeply() {
    let Some(report) = audited("icx2s0", &Intent::default()) else { return };
    finding(&report, "idle.states");
    says(&report, "idle.states", &["C6", "170us", "C1E 4us, C6 170us"]);
    says(&report, "cpu.hwp-request", &["0x774", "0x80"]);
    says(&report, "cpu.hwp-request", &["ratios 8 to 35"]);
    says(&report, "unc.msr620", &["0x620", "800", "2400"]);
    finding(&report, "unc.sysfs-range");
    finding(&report, "cpu.governor");
    finding(&report, "cpu.epp");
    let c6 = report.findings.iter().find(|f| f.rule.id == "idle.states" && f.effect.is_some()).unwrap();
    assert!(c6.effect.unwrap() >= units::Nanos::from_micros(170), "{:?}", c6.effect);
}

/// A node that nobody tuned: RDMA that came along with the cards has hundreds of interrupts.
#[test]
fn the_untuned_node_has_interrupts_of_rdma() {
    let Some(report) = audited("telco-master", &Intent::default()) else { return };
    finding(&report, "net.irdma");
    says(&report, "net.irdma", &["452 interrupts", "60691 times"]);
    says(&report, "cmd.skew-tick", &["112 CPUs"]);
    // Its interfaces show in the names of interrupts alone: their settings are not recorded, so nothing is claimed.
    for id in ["nic.adaptive", "nic.rx-usecs", "nic.ring", "nic.pause", "nic.mtu", "pci.link", "pci.aspm"] {
        let mut of_rule = report.findings.iter().filter(|finding| finding.rule.id == id);
        assert!(of_rule.all(|finding| matches!(finding.judgement.verdict, audit::Verdict::Unknown(_))), "{id}");
    }
}

/// The other servers as they were delivered: each has what its makers' defaults leave.
#[test]
fn servers_as_delivered_sleep_and_scale() {
    let worst = [
        ("clx2s0", "cpu.governor"),
        ("skld0", "idle.states"),
        ("bdwde0", "idle.states"),
        ("spr1", "idle.states"),
        ("rome0", "idle.states"),
        ("genoa0", "idle.states"),
    ];
    for (name, id) in worst {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        finding(&report, id);
    }
    if let Some(report) = audited("spr1", &Intent::default()) {
        says(&report, "idle.states", &["C6", "290us"]);
        says(&report, "cpu.hwp-request", &["ratios 8 to 38", "0x20"]);
    }
    if let Some(report) = audited("rome0", &Intent::default()) {
        says(&report, "idle.states", &["C2", "400us"]);
    }
}

/// Of every recording everything is judged, and nothing that a recording does not hold is claimed.
#[test]
fn every_recording_is_audited() {
    let hosts = [
        "bdwde0",
        "clx2s0",
        "genoa0",
        "icx2s0",
        "kvm-guest-sno",
        "rome0",
        "skld0",
        "spr1",
        "telco-master",
        "telco-worker1",
    ];
    let mut commands = String::new();
    for name in hosts {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        let tally = report.tally(None);
        println!("{name}: {tally:?}");
        for finding in report.at_least(Level::Choice) {
            let judgement = &finding.judgement;
            assert!(!judgement.evidence.is_empty(), "{name}: {} rests on nothing", finding.rule.id);
            let run = |step: &&audit::Step| !matches!(step.action, audit::Action::Advise(_) | audit::Action::Rerun(_));
            for command in finding.fix.runtime.iter().filter(run) {
                writeln!(commands, "{command}").unwrap();
            }
        }
    }
    let file = std::env::temp_dir().join(format!("apus-fixes-{}", std::process::id()));
    std::fs::write(&file, commands).unwrap();
    match std::process::Command::new("sh").arg("-n").arg(&file).output() {
        Ok(said) => assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr)),
        Err(error) => testkit::skip(format!("no sh: {error}")),
    }
    std::fs::remove_file(&file).unwrap();
}

/// A guest: what the hypervisor decides is no finding.
#[test]
fn a_guest_is_not_blamed_for_its_hypervisor() {
    let Some(report) = audited("kvm-guest-sno", &Intent::default()) else { return };
    assert!(report.context.is(audit::Workload::Guest));
    for finding in report.at_least(Level::Warn) {
        let id = finding.rule.id;
        let hardware =
            ["idle.pkg-cstate", "unc.sysfs-range", "unc.msr620", "cpu.hwp-request", "smi.count", "fw.bios-date"];
        assert!(!hardware.contains(&id), "{id}: {:?}", finding.judgement);
    }
}

/// AMD's servers have neither Intel's registers nor its uncore driver.
#[test]
fn amd_is_not_judged_by_the_registers_of_intel() {
    for name in ["rome0", "genoa0"] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        for id in ["unc.msr620", "cpu.hwp-request", "unc.sysfs-range"] {
            let open = report.findings.iter().filter(|f| f.rule.id == id);
            let mut judged = open.filter(|f| f.judgement.verdict.reason().is_none());
            assert!(judged.next().is_none(), "{name}: {id} judges");
        }
    }
}
