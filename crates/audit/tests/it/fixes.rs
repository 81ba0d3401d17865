//! The fixes of every rule on every recorded host, with several intents: nothing in them is left open, none takes CPUs from
//! housekeeping, and what `apus audit --fix` writes is what the text says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use audit::cmdline::{Kind, judge};
use audit::remedy::{OfInterrupts, OfWorkqueues, Place};
use audit::{Action, Finding, Goal, Intent, Level, Report, Risk, Setting, Workload, audit, plan};
use host::facts::{CommandLine, CpuSet, Facts, Os, Root};
use host::profile::Layer;
use units::{Nanos, Quantile};

/// Every recording beside the checkout.
fn recordings() -> Vec<(String, Facts)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here.ancestors().flat_map(|folder| ["hosts", "hosts2"].map(|name| folder.join("shared").join(name)));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().ends_with(".tar.gz")).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy().replace(".tar.gz", "");
        (name, Facts::read(&Root::open(file).unwrap()))
    };
    files.iter().map(read).collect()
}

/// What such a host could be for: as inferred, and with CPUs, uses, goals and interfaces given.
fn intents(facts: &Facts) -> Vec<Intent> {
    let all = facts.cpus.all();
    let last = all.last().unwrap_or(7);
    let upper: CpuSet = all.iter().filter(|cpu| *cpu > last / 2).collect();
    let odd: CpuSet = all.iter().filter(|cpu| *cpu > 1 && cpu % 3 > 0).collect();
    let goal = |micros| Some(Goal { quantile: Quantile::P99_9, latency: Nanos::from_micros(micros) });
    let names = facts.links.value().into_iter().flatten().map(|link| link.name.clone());
    let nics: Vec<String> = names.filter(|name| name != "lo").take(2).collect();
    let nics = (!nics.is_empty()).then_some(nics);
    vec![
        Intent::default(),
        Intent { goal: goal(50), ..Intent::default() },
        Intent { isolated: Some(upper.clone()), workloads: Some(vec![Workload::Poll]), goal: goal(5), nics },
        Intent { isolated: Some(odd), workloads: Some(vec![Workload::Rt]), goal: goal(200), ..Intent::default() },
        Intent { isolated: Some(upper), workloads: Some(vec![Workload::Interrupt]), ..Intent::default() },
        Intent { workloads: Some(vec![Workload::KvmHost, Workload::Poll]), ..Intent::default() },
        // The line isolates all that there is: nothing is left to name.
        Intent { isolated: Some(all), ..Intent::default() },
    ]
}

/// A recording, and the report of each intent with what it is about.
struct Audited {
    facts: Facts,
    reports: Vec<(String, Report)>,
}

/// All recordings with all intents: audited once for all tests.
static AUDITED: LazyLock<Vec<Audited>> = LazyLock::new(|| {
    let audited = |(name, facts): (String, Facts)| {
        let one = |intent: Intent| {
            let about = format!("{name}, isolated {:?}, {:?}", intent.isolated, intent.workloads);
            (about, audit(&facts, &intent))
        };
        let reports = intents(&facts).into_iter().map(one).collect();
        Audited { facts, reports }
    };
    recordings().into_iter().map(audited).collect()
});

/// The report of every recording with every intent.
pub(crate) fn each(mut check: impl FnMut(&str, &Facts, &Report)) {
    if AUDITED.is_empty() {
        testkit::skip("there is no recorded host: put them into shared/hosts beside the checkout");
    }
    for Audited { facts, reports } in AUDITED.iter() {
        reports.iter().for_each(|(about, report)| check(about, facts, report));
    }
}

/// All lines of a finding's fix, as they are shown.
fn lines(finding: &Finding) -> Vec<String> {
    finding.fix.look.iter().cloned().chain(finding.fix.steps().map(ToString::to_string)).collect()
}

/// Words in capitals that are names, not holes.
const NAMES: &[&str] = &[
    "A20",
    "ACPI",
    "ALL",
    "AMD",
    "BAR",
    "BIOS",
    "C0",
    "C1",
    "C1E",
    "CI",
    "CONFIG",
    "CPU",
    "CPUS",
    "CPUSCHEDULINGPOLICY",
    "CRI-O",
    "EPP",
    "ESMI",
    "FUTURE",
    "I/O",
    "IOMMU",
    "IRQ",
    "IRQBALANCE",
    "BANNED",
    "CPULIST",
    "KVM",
    "L3",
    "LLDP",
    "MB",
    "MCL",
    "CURRENT",
    "MSR",
    "NIC",
    "NPS1",
    "NUMA",
    "OVS",
    "PL1",
    "PL2",
    "PREEMPT",
    "RT",
    "DYNAMIC",
    "RSS",
    "SMI",
    "SR-IOV",
    "TCO",
    "TSC",
    "USB",
    "UDP",
    "VF",
    "NO",
    "HZ",
    "FULL",
    "HPET",
    "VT-d",
    "CAP",
    "EXP",
    "PCI",
    "PID",
    "GB",
    "RCU",
    "NOCB",
    "HIGH",
    "RES",
    "TIMERS",
    "CPUSETS",
    "ISOLATION",
    "DEBUG",
    "DPDK",
    "VLAN",
    "SO",
    "RCVBUF",
];

/// A word that somebody would have to replace.
fn placeholder(line: &str) -> Option<String> {
    let line = &line.replace("ethtool -X", "ethtool");
    // The block of a chain of nft is quoted and begins with a space.
    let holes = line.contains('{') && line.contains('}') && !line.contains("${") && !line.contains("'{ ");
    let word = |word: &str| {
        let plain = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let capitals =
            plain.len() > 1 && plain.chars().all(|c| c.is_ascii_uppercase() || c == '-') && !NAMES.contains(&plain);
        let end = plain.len() > 1
            && plain.ends_with(['N', 'X'])
            && plain.chars().rev().nth(1).is_some_and(|c| c.is_ascii_lowercase());
        let letter = matches!(plain, "N" | "X" | "MASK" | "VALUE");
        (capitals || end || letter || word.contains('…')).then(|| word.to_owned())
    };
    match holes {
        true => Some(line.to_owned()),
        false => line.split(|c: char| c.is_whitespace() || "=/,:_".contains(c)).find_map(word),
    }
}

#[test]
fn no_fix_leaves_anything_open() {
    let mut wrong: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    each(|_, _, report| {
        for finding in report.at_least(Level::Choice) {
            let lines = lines(finding);
            if lines.is_empty() {
                wrong.entry(finding.rule.id).or_default().insert("says nothing".into());
            }
            let open = lines.iter().filter_map(|line| Some(format!("{}: {line}", placeholder(line)?)));
            let open: Vec<String> = open.collect();
            if !open.is_empty() {
                wrong.entry(finding.rule.id).or_default().extend(open);
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every template of every rule, whether a recording has it or not.
#[test]
fn no_template_has_a_placeholder() {
    let all = audit::rules::all().flat_map(|rule| {
        let fix = &rule.fix;
        let lines = [fix.look, fix.runtime, fix.persistent].into_iter().flatten().flat_map(str::lines);
        lines.map(move |line| (rule.id, line))
    });
    let without_holes = |line: &str| {
        [
            "{isolated}",
            "{housekeeping}",
            "{isolated-mask}",
            "{housekeeping-mask}",
            "{nic}",
            "{cpu}",
            "{cpu-words}",
            "{core}",
            "{core-words}",
            "{idle-limit}",
            "{bounds}",
            "{irq}",
            "{device}",
        ]
        .iter()
        .fold(line.to_owned(), |line, hole| line.replace(hole, "0"))
    };
    let wrong: Vec<_> = all.filter_map(|(id, line)| Some((id, line, placeholder(&without_holes(line))?))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The CPUs of a setting that says where work may go.
fn destination(setting: &Setting) -> Option<CpuSet> {
    match &setting.place {
        Place::Interrupts(OfInterrupts::Default | OfInterrupts::All)
        | Place::Workqueues(OfWorkqueues::All | OfWorkqueues::Writeback) => Some(setting.value.parse().unwrap()),
        _ => None,
    }
}

#[test]
fn no_fix_takes_cpus_from_housekeeping() {
    each(|about, facts, report| {
        let isolated = &report.context.isolated.value;
        let housekeeping = report.context.housekeeping(facts);
        for finding in report.at_least(Level::Choice) {
            let about = format!("{about}: {}: {:?}", finding.rule.id, lines(finding));
            for step in finding.fix.steps() {
                if let Action::Run(text) | Action::Advise(text) = &step.action {
                    // Second threads of the application's own cores may go offline, and nothing else.
                    if text.contains("/online") {
                        let (_, rest) = text.split_once("for n in ").unwrap();
                        let words = rest.split_once(';').unwrap().0.replace("$(seq ", "").replace(')', "");
                        let named: CpuSet = words.split(' ').map(|cpu| cpu.parse::<u32>().unwrap()).collect();
                        assert!(
                            named.is_subset(isolated) && !isolated.is_subset(&named),
                            "takes CPUs offline: {about}"
                        );
                        assert!(!step.risks.contains(&Risk::Reboot), "it acts at once: {about}");
                    }
                    let offline = text.split([' ', ',']).any(|word| word == "nosmt") && !text.contains("would");
                    assert!(!offline || !seconds(facts, &housekeeping) || isolated.is_empty(), "{about}");
                    for list in ["AllowedCPUs=", "CPUAffinity=", "taskset -pc "] {
                        let Some((_, rest)) = text.split_once(list) else { continue };
                        let cpus: CpuSet = rest.split([' ', ';']).next().unwrap().parse().unwrap();
                        assert!(!cpus.is_empty() && !cpus.intersects(isolated), "{about}");
                    }
                }
                if let Action::Set(settings) = &step.action {
                    for setting in settings {
                        assert!(
                            !matches!(&setting.place, Place::File(path) if path.contains("/online") || path.contains("/smt/")),
                            "{about}"
                        );
                        if let Some(cpus) = destination(setting) {
                            assert!(!cpus.is_empty() && !cpus.intersects(isolated), "{about}");
                            assert!(cpus.is_subset(&housekeeping), "{about}");
                        }
                        if setting.place == Place::Interrupts(OfInterrupts::Banned) {
                            let banned: CpuSet = setting.value.parse().unwrap();
                            assert!(!banned.intersects(&housekeeping) && !housekeeping.is_empty(), "{about}");
                        }
                    }
                }
            }
            for word in finding.fix.adds() {
                let cpus = || word.cpu_set(&facts.cpus.all()).unwrap();
                match word.name.as_str() {
                    "isolcpus" | "nohz_full" | "rcu_nocbs" => {
                        assert!(!cpus().is_empty() && cpus().is_subset(isolated), "{about}");
                        assert!(!housekeeping.is_empty() && !cpus().intersects(&housekeeping), "{about}");
                    }
                    "irqaffinity" => assert!(!cpus().is_empty() && cpus() == housekeeping, "{about}"),
                    "nosmt" | "maxcpus" | "nr_cpus" => panic!("takes CPUs away: {about}"),
                    _ => {}
                }
            }
        }
    });
}

/// Is any of these CPUs the second thread of its core?
fn seconds(facts: &Facts, cpus: &CpuSet) -> bool {
    cpus.iter().any(|cpu| {
        let siblings = facts.cpus.cpu(cpu).and_then(|cpu| cpu.siblings.value());
        siblings.is_some_and(|siblings| siblings.first() != Some(cpu))
    })
}

/// One setting for each CPU, so that two ways to write the same are equal.
fn single(setting: &Setting) -> Vec<(Place, String)> {
    match &setting.place {
        Place::Cpus(cpus, what) => {
            cpus.iter().map(|cpu| (Place::Cpus([cpu].into(), *what), setting.value.clone())).collect()
        }
        place => vec![(place.clone(), setting.value.clone())],
    }
}

#[test]
fn the_text_says_what_fix_writes() {
    each(|about, facts, report| {
        let plan = plan(report);
        let mut written = BTreeMap::new();
        for (place, value) in plan.settings.iter().flat_map(|planned| single(&planned.what)) {
            assert_eq!(written.insert(place.clone(), value), None, "{about}: {place:?} twice");
        }
        let mut names = BTreeSet::new();
        for word in &plan.kernel.add {
            assert!(names.insert(word.what.name.clone()), "{about}: {} twice", word.what);
        }
        let mut asked = 0;
        for finding in report.at_least(Level::Warn) {
            for (place, value) in finding.fix.settings().flat_map(single) {
                assert_eq!(written.get(&place), Some(&value), "{about}: {}", finding.rule.id);
                asked += 1;
            }
            for word in finding.fix.adds() {
                let planned = plan.kernel.add.iter().any(|planned| planned.what == *word);
                assert!(planned, "{about}: {} asks for {word}", finding.rule.id);
            }
            // What a profile can do is never left to people, and what is left to people is in no profile.
            let set = finding.fix.settings().next().is_some() || finding.fix.adds().next().is_some();
            assert_eq!(set, !plan.left.iter().any(|left| std::ptr::eq(*left, finding)), "{about}: {}", finding.rule.id);
        }
        assert!(asked >= written.len(), "{about}: the profile has more than the findings ask for");
        if facts.origin.os != Os::Linux {
            assert!(written.is_empty(), "{about}");
        }
        let text = plan.toml();
        let parsed = Layer::parse("found.toml", None, &text);
        assert!(parsed.is_ok(), "{about}: {parsed:?}\n{text}");
        assert!(!text.contains("sched_switch\" ="), "a diagnosis is no fix: {about}");
    });
}

#[test]
fn one_kernel_line_without_contradictions() {
    let grave = |line: &CommandLine| -> Vec<String> {
        let remarks = judge(line, &audit::Context::default());
        let kinds = [Kind::Contradiction, Kind::UnknownValue];
        remarks.into_iter().filter(|remark| kinds.contains(&remark.kind)).map(|remark| remark.text).collect()
    };
    let mut lines = 0;
    each(|about, _, report| {
        let plan = plan(report);
        let (Some(now), Some(then)) = (&report.line, plan.kernel.merged()) else { return };
        lines += 1;
        let (before, after) = (grave(now), grave(&then));
        let new: Vec<_> = after.iter().filter(|text| !before.contains(text)).collect();
        assert!(new.is_empty(), "{about}: {new:?}\n{}", then.raw);
        for word in &plan.kernel.add {
            assert!(
                then.all(&word.what.name).any(|there| *there == word.what),
                "{about}: {} is not in {}",
                word.what,
                then.raw
            );
            assert!(
                !now.last(&word.what.name).is_some_and(|last| *last == word.what),
                "{about}: {} is there",
                word.what
            );
        }
        for word in &plan.kernel.remove {
            let gone =
                then.all(&word.what.name).all(|there| word.what.value.is_some() && there.value != word.what.value);
            assert!(gone, "{about}: {} is still in {}", word.what, then.raw);
        }
    });
    println!("{lines} lines");
}

#[test]
fn each_fix_says_what_it_risks() {
    each(|about, _, report| {
        for finding in report.at_least(Level::Choice) {
            for step in finding.fix.steps() {
                let about = format!("{about}: {}: {step}", finding.rule.id);
                if let Action::Arguments { add, .. } = &step.action {
                    assert!(step.risks.contains(&Risk::Reboot), "{about}");
                    let opens = add.iter().any(|word| word.to_string().contains("=off") || word.name == "iommu");
                    assert!(!opens || step.risks.contains(&Risk::Security), "{about}");
                }
                if let Action::Set(settings) = &step.action {
                    assert!(!step.risks.contains(&Risk::Reboot), "{about}");
                    let restarts = settings.iter().any(|setting| setting.toml().0.ends_with(".rings"));
                    assert!(!restarts || step.risks.contains(&Risk::Network), "{about}");
                }
            }
            let of_steps: BTreeSet<Risk> = finding.fix.steps().flat_map(|step| step.risks.iter().copied()).collect();
            assert_eq!(finding.fix.risks(), of_steps, "{about}");
        }
    });
}

/// The node whose only housekeeping CPUs share their cores with isolated ones.
#[test]
fn siblings_that_do_housekeeping_stay_online() {
    let Some((_, facts)) = recordings().into_iter().find(|(name, _)| name == "telco-worker1") else {
        testkit::skip("there is no recording telco-worker1: put it into shared/hosts beside the checkout");
        return;
    };
    let report = audit(&facts, &Intent::default());
    let finding = report.findings.iter().find(|finding| finding.rule.id == "cmd.smt-siblings-split").unwrap();
    assert!(finding.level() >= Level::Warn, "{finding:?}");
    let text = lines(finding).join("\n");
    assert!(!text.contains("online"), "{text}");
    assert!(text.contains("run this audit again with --isolated 0-4,11-44,51-79"), "{text}");
    let flags = report.findings.iter().find(|finding| finding.rule.id == "cmd.isolcpus-flags").unwrap();
    let text = lines(flags).join("\n");
    assert!(
        text.contains("balanceIsolated: false") && !text.contains("isolcpus=managed_irq,domain,0-4,11-79"),
        "{text}"
    );
}
