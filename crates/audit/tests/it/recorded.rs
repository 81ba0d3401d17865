//! Recorded hosts of others: each is audited, and its golden findings are there. The recordings lie beside the checkout;
//! where they are not, the test says that it is skipped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use audit::{Context, Finding, HitKind, Intent, Level, Report, Workload, audit, hits};
use host::facts::{Facts, Root};

fn recording(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = ["shared/hosts", "shared/hosts2"];
    let files = here.ancestors().flat_map(|folder| places.map(|place| folder.join(place)));
    let found = files.map(|folder| folder.join(format!("{name}.tar.gz"))).find(|file| file.is_file());
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
    assert!(first.counts.iter().all(|(cpu, _)| context.isolated.value.contains(*cpu)), "{:?}", first.counts);
}

/// The same as a finding.
#[test]
fn the_interrupts_on_isolated_cpus_are_a_finding() {
    let Some(report) = audited("telco-worker1", &Intent::default()) else { return };
    finding(&report, "irq.on-iso");
    // 12 of 554 directories of /proc/irq have no row in /proc/interrupts: no handler, and no count.
    says(
        &report,
        "irq.on-iso",
        &["502 of 542 interrupts are directed to isolated CPUs, 148 of them managed", "eno3-TxRx-0"],
    );
}

/// A server as it was delivered: deep idle states, a preference for balance, an uncore that follows the load.
#[test]
fn the_untuned_server_sleeps_deeply() {
    let Some(report) = audited("icx2s0", &Intent::default()) else { return };
    finding(&report, "idle.states");
    says(&report, "idle.states", &["C6", "170us", "C1E 4us, C6 170us"]);
    says(&report, "cpu.hwp-request", &["0x774", "0x80"]);
    says(&report, "cpu.hwp-request", &["800 MHz to 3500 MHz"]);
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
        says(&report, "cpu.hwp-request", &["800 MHz to 3800 MHz", "0x20"]);
    }
    if let Some(report) = audited("rome0", &Intent::default()) {
        says(&report, "idle.states", &["C2", "400us"]);
    }
}

/// Of every recording everything is judged, and nothing that a recording does not hold is claimed.
#[test]
fn every_recording_is_audited() {
    let hosts = [
        "adl0",
        "bdwde0",
        "clx2s0",
        "emr0",
        "genoa0",
        "gnr0",
        "icx2s0",
        "icx2s3",
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

/// A lower clock makes work slower, and no packet late; Intel's figures are of no use on an AMD host.
#[test]
fn what_is_slower_is_not_late() {
    for name in ["icx2s0", "gnr0", "rome0", "genoa0", "adl0"] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        let slower = ["cpu.governor", "cpu.epp", "cpu.hwp-request"];
        for finding in report.at_least(Level::Warn).filter(|finding| slower.contains(&finding.rule.id)) {
            assert_eq!((finding.effect, finding.slower), (None, true), "{name}: {}", finding.rule.id);
            assert!(!finding.rule.magnitude.text.contains("500 us"), "{name}: {}", finding.rule.id);
        }
        finding(&report, "cpu.governor");
        // The largest lateness is the host's own figure: that of its deepest idle state.
        assert_eq!(report.budget()[0].0.rule.id, "idle.states", "{name}");
    }
}

/// A hybrid part: its levels have scales of their own, its package limit is C10, and it has no C1 to promote.
#[test]
fn a_hybrid_part_is_read_as_one() {
    let Some(report) = audited("adl0", &Intent::default()) else { return };
    says(&report, "cpu.hwp-request", &["level 6 to level 60 with", "level 4 to level 34 with"]);
    assert!(!said(&report, "cpu.hwp-request").contains("MHz"));
    says(&report, "idle.pkg-cstate", &["limit is C10", "0x74000008"]);
    says(&report, "idle.c1e", &["pass"]);
}

/// The codes of the package limit differ by model.
#[test]
fn the_package_limit_has_its_name() {
    for (name, limit) in [
        ("bdwde0", "limit is C6, locked"),
        ("skld0", "limit is C6 with retention, locked"),
        ("emr0", "limit is C6 with retention, not locked:"),
        ("spr1", "limit is C6 with retention, not locked:"),
        ("gnr0", "limit is C6 without retention, not locked:"),
        ("icx2s0", "limit is C6, not locked:"),
        ("icx2s3", "locked by the firmware"),
        ("clx2s0", "limit is C0/C1:"),
    ] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        says(&report, "idle.pkg-cstate", &[limit]);
    }
}

/// What a recording does not prove is no finding.
#[test]
fn what_is_not_proven_is_not_claimed() {
    let no_finding = |report: &Report, id: &str, name: &str| {
        let said: Vec<_> = report.at_least(Level::Choice).filter(|finding| finding.rule.id == id).collect();
        assert!(said.is_empty(), "{name}: {said:#?}");
    };
    for name in ["adl0", "clx2s0", "emr0", "gnr0", "icx2s0", "icx2s3", "spr1"] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        // The energy preference decides, the firmware's ASPM is not recorded, and no document has the bit.
        for id in ["cpu.epb", "cmd.pcie-aspm", "cpu.ee-turbo"] {
            no_finding(&report, id, name);
        }
        // Of these only on Cascade Lake a change of frequency stops the core.
        let boosts = report.at_least(Level::Choice).any(|finding| finding.rule.id == "cpu.hwp-dynamic-boost");
        assert_eq!(boosts, name == "clx2s0", "{name}");
    }
    for name in ["skld0", "bdwde0"] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        finding(&report, "cpu.epb");
    }
    // el9_4 has the trust in the TSC by backport.
    if let Some(report) = audited("telco-master", &Intent::default()) {
        no_finding(&report, "cmd.tsc", "telco-master");
    }
}

/// Without an intent deep idle states are a warning, and no rule calls them a matter of taste beside it.
#[test]
fn deep_idle_states_have_one_verdict() {
    let goal = audit::Goal { quantile: units::Quantile::P99_9, latency: units::Nanos::from_micros(10) };
    for name in ["icx2s0", "rome0", "gnr0"] {
        let Some(report) = audited(name, &Intent::default()) else { continue };
        assert_eq!(finding(&report, "idle.states").level(), Level::Warn, "{name}");
        assert!(report.findings.iter().all(|finding| finding.rule.id != "choice.deep-idle"));
        let Some(report) = audited(name, &Intent { goal: Some(goal), ..Intent::default() }) else { continue };
        assert_eq!(finding(&report, "idle.states").level(), Level::Fail, "{name}");
    }
}

/// The files that a finding cites are those of the CPUs that it names.
#[test]
fn siblings_cite_their_own_file() {
    let Some(report) = audited("telco-worker1", &Intent::default()) else { return };
    let evidence = &finding(&report, "cmd.smt-siblings-split").judgement.evidence[0];
    assert_eq!(evidence.value, "siblings of CPU 45: 5");
    assert_eq!(evidence.source, "/sys/devices/system/cpu/cpu45/topology/thread_siblings_list");
    // Its cards' nodes are known from PCI, although no interface was recorded.
    says(&report, "pci.numa-node", &["on its node"]);
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

fn of_use(workloads: &[Workload], isolated: Option<&str>) -> Intent {
    let isolated = isolated.map(|list| list.parse().unwrap());
    Intent { workloads: Some(workloads.to_vec()), isolated, ..Intent::default() }
}

/// The core of a thread that polls stops too where a change of frequency stops it, and a pass says what was added up.
#[test]
fn a_polling_host_counts_the_stops_of_its_core() {
    let goal = Some(audit::Goal { quantile: units::Quantile::P99_9, latency: units::Nanos::from_micros(100) });
    let poll = |isolated| Intent { goal, ..of_use(&[Workload::Poll], Some(isolated)) };
    let Some(report) = audited("clx2s0", &poll("2-9,50-57")) else { return };
    says(
        &report,
        "math.latency-budget",
        &["change of frequency takes up to 12us (not counted: idle states, ", "; the goal is 100us"],
    );
    let Some(report) = audited("skld0", &poll("2-5,10-13")) else { return };
    let open = report.findings.iter().find(|finding| finding.rule.id == "math.latency-budget").unwrap();
    let reason = open.judgement.verdict.reason().unwrap_or_default();
    assert!(reason.contains("of Xeon Scalable (Cascade Lake, Ice Lake), not Skylake"), "{reason}");
    let Some(report) = audited("icx2s0", &poll("18-35,90-107")) else { return };
    says(&report, "math.latency-budget", &["nothing that this rule adds up delays a thread that polls"]);
}

/// What the tenth draw found: each sentence with the host that showed it.
#[test]
fn sentences_say_what_the_recording_and_the_source_say() {
    let isolated = |list: &str| of_use(&[], Some(list));
    for (name, list) in [("clx2s0", "20-23,68-71"), ("skld0", "1-7,9-15")] {
        let Some(report) = audited(name, &isolated(list)) else { return };
        says(&report, "rdt.available", &["warn", "the kernel has disabled cache allocation", "without rdt=l3cat"]);
    }
    let Some(report) = audited("icx2s0", &isolated("40-60,112-132")) else { return };
    says(&report, "rdt.available", &["resctrl, the kernel's interface to it, is not mounted"]);
    let Some(report) = audited("adl0", &isolated("0-1,10")) else { return };
    says(
        &report,
        "idle.c1e",
        &["the kernel's first idle state is C1E (2us): promotion of C1 to C1E is on, and without it C1E would be C1"],
    );
    let Some(report) = audited("kvm-guest-sno", &isolated("2-3,9")) else { return };
    says(&report, "cmd.duplicate", &["rw is given more than once"]);
    says(&report, "cmd.companions", &["new interrupts may go to CPUs 2-3,9, which are the application's"]);
    for (name, advice) in [("clx2s0", "(tuned and OpenShift node tuning operator)"), ("spr1", "(tuned)")] {
        let Some(report) = audited(name, &Intent::default()) else { return };
        says(&report, "choice.pstate-driver", &["intel_pstate=disable", advice]);
    }
    let Some(report) = audited("telco-master", &isolated("1-9")) else { return };
    let agree = report.findings.iter().find(|finding| finding.rule.id == "cmd.sets-agree").unwrap();
    assert!(agree.cost().starts_with("The housekeeping CPUs handle all interrupts"), "{}", agree.cost());
    let Some(report) = audited("gnr0", &isolated("300-320")) else { return };
    let span = report.findings.iter().find(|finding| finding.rule.id == "cpu.freq-span").unwrap();
    assert!(span.cost().ends_with("Also changes CPUs 44-64, which share these cores."), "{}", span.cost());
    let goal = Some(audit::Goal { quantile: units::Quantile::P99_9, latency: units::Nanos::from_micros(400) });
    let Some(report) = audited("rome0", &Intent { goal, ..isolated("1-20,129-148") }) else { return };
    says(
        &report,
        "math.latency-budget",
        &["warn", "C2 takes up to 400us", "this leaves less than half of the goal for processing"],
    );
    let own = report.findings.iter().find(|finding| finding.rule.id == "idle.pmqos-percpu").unwrap();
    assert!(!own.judgement.found.contains("none is needed"), "{}", own.judgement.found);
}

/// Bare metal that is said to be a guest, and uses of which no source speaks.
#[test]
fn what_was_said_decides_only_what_it_can() {
    let Some(report) = audited("skld0", &of_use(&[Workload::Guest], Some("4-7"))) else { return };
    assert!(report.findings.iter().all(|finding| finding.fix.adds().all(|word| word.name != "no-kvmapf")));
    assert_eq!(report.context.notes.len(), 1, "{:?}", report.context.notes);
    let Some(report) = audited("telco-master", &of_use(&[Workload::Rt, Workload::KvmHost], Some("1,3,5,7"))) else {
        return;
    };
    says(&report, "smt.state", &["sources-disagree", "The opposite advice is one thread per core"]);
    let Some(report) = audited("telco-worker1", &of_use(&[Workload::Poll, Workload::Interrupt], Some("11-39"))) else {
        return;
    };
    says(&report, "smt.state", &[", but with --workload poll the advice is one thread per core"]);
}

/// CPUs beside the application's are not said to do housekeeping, and bounds that boost exceeds are not said to hold.
#[test]
fn no_more_is_said_than_was_recorded() {
    let Some(report) = audited("telco-worker1", &of_use(&[], Some("12-19,52-57"))) else { return };
    says(&report, "cmd.smt-siblings-split", &["CPUs 18-19 share their cores with CPUs 58-59, which are not isolated"]);
    let Some(report) = audited("rome0", &of_use(&[], Some("8-12,136-140"))) else { return };
    says(&report, "cpu.freq-span", &["may be set between 1500 MHz and 2250 MHz; boost goes above, up to"]);
}

/// Evidence is of what the finding says, and what moves interrupts on a node is its PerformanceProfile's switch for them.
#[test]
fn evidence_and_fixes_of_the_nodes_are_their_own() {
    let isolated = "28,30,32,34,36,38,40,42,44,46,48,50,52,54,84,86,88,90,92,94,96,98,100,102,104,106,108,110";
    let Some(report) = audited("telco-master", &of_use(&[Workload::Poll], Some(isolated))) else { return };
    says(&report, "irq.on-iso", &["584 of 1862 interrupts"]);
    assert!(!said(&report, "irq.on-iso").contains("(IRQ 2019)"), "its effective affinity is CPU 82");
    says(&report, "cmd.hugepages", &["no pages of 1 GB are reserved", "0 (/sys/devices/system/node/node*"]);
    let Some(report) = audited("telco-worker1", &of_use(&[Workload::Poll], None)) else { return };
    says(&report, "cmd.hugepages", &["no pages of 1 GB are reserved", "no hugepages= of 1 GB (/proc/cmdline)"]);
    assert!(finding(&report, "irq.rate-iso").cost().starts_with("Idle CPUs sleep"));
    for id in ["irq.on-iso", "irq.softirq-iso"] {
        let steps: Vec<String> = finding(&report, id).fix.persistent.iter().map(ToString::to_string).collect();
        assert!(steps.iter().all(|step| step.contains("globallyDisableIrqLoadBalancing")), "{id}: {steps:?}");
    }
}

/// The card that was named is judged, and no other; what cannot be told of counts since boot is not said.
#[test]
fn findings_are_of_the_declared_card_and_of_what_was_counted() {
    let isolated = "4,6,8,10,12,14,16,18,60,62,64,66,68,70,72,74";
    let of_nic = |nic: &str| Intent {
        isolated: Some(isolated.parse().unwrap()),
        nics: Some(vec![nic.to_owned()]),
        ..Intent::default()
    };
    let Some(report) = audited("telco-master", &of_nic("ens3f0")) else { return };
    says(&report, "pci.numa-node", &["0000:4b:00.0 pass", "are on its node 0; it is the card of ens3f0"]);
    assert!(!said(&report, "pci.numa-node").contains("0000:98:00"));
    let Some(report) = audited("telco-master", &of_nic("ens6f1")) else { return };
    says(
        &report,
        "pci.numa-node",
        &["0000:98:00.1 warn none of the isolated CPUs is on its node 1; it is the card of ens6f1"],
    );
    let Some(report) = audited("kvm-guest-sno", &of_use(&[], Some("5-10"))) else { return };
    says(
        &report,
        "irq.rate-iso",
        &["on average, 100 % as many timer interrupts", "nothing stops the tick of CPUs 5-10 while they are busy"],
    );
    let Some(report) = audited("kvm-guest-sno", &of_use(&[], Some("7"))) else { return };
    says(
        &report,
        "irq.softirq-iso",
        &["32623 NET_RX, 19 BLOCK and 4 NET_TX softirqs", "the present network devices raised no interrupt here"],
    );
    let Some(report) = audited("genoa0", &of_use(&[], Some("28-36,92-100"))) else { return };
    says(
        &report,
        "topo.snc",
        &["each socket is one node; the application has CPUs 28-31,92-95 on node 0 and 32-36,96-100 on node 1"],
    );
    says(
        &report,
        "cpu.freq-span",
        &["up to about 3800 MHz", "3800 MHz (/sys", "on (/sys/devices/system/cpu/cpufreq/boost)"],
    );
    says(&report, "idle.driver-governor", &["as usual on AMD"]);
    let Some(report) = audited("clx2s0", &of_use(&[], Some("2-9,50-57"))) else { return };
    says(&report, "cpu.freq-span", &["each change stops the core", "CascadeLake"]);
    let Some(report) = audited("telco-worker1", &Intent::default()) else { return };
    says(&report, "clk.tsc-flags", &["the kernel measures its frequency at boot (no tsc_known_freq)"]);
}

/// A node of a card is neither right nor wrong where no CPU is known to be the application's.
#[test]
fn a_card_belongs_to_no_application_where_none_is_known() {
    let Some(report) = audited("telco-master", &Intent::default()) else { return };
    let of_rule: Vec<&Finding> = report.findings.iter().filter(|finding| finding.rule.id == "pci.numa-node").collect();
    assert!(!of_rule.is_empty() && of_rule.iter().all(|one| one.judgement.verdict != audit::Verdict::Pass));
}
