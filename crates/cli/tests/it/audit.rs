//! `apus audit` and `apus irqs`: what is printed, what is written, and how they end.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, Running, bare, text};

/// A small host: CPUs 2 to 7 are isolated, unbound work may run there, and the clock is slow.
fn host(place: &Root) -> PathBuf {
    let root = place.0.join("host");
    let files = [
        ("proc/cmdline", "isolcpus=managed_irq,2-7 nohz_full=2-7 <b>quiet</b>\n"),
        (
            "proc/interrupts",
            "      CPU0 CPU1 CPU2\n 55:  1 0 900  PCI-MSIX-0000:04:00.0 3-edge eth0-TxRx-3\nLOC: 7 8 9 Local timer interrupts\n",
        ),
        ("sys/devices/system/cpu/present", "0-7\n"),
        ("sys/devices/system/cpu/online", "0-7\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        ("sys/devices/virtual/workqueue/cpumask", "ff\n"),
        ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc\n\n"),
    ];
    for (path, contents) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    root
}

fn audit(root: &Path, words: &[&str]) -> Output {
    let mut all = vec!["audit", "--from", root.to_str().unwrap()];
    all.extend(words);
    bare(&all)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn ids(document: &Value) -> Vec<&str> {
    document["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

#[test]
fn the_document_is_valid_and_the_fix_has_its_values() {
    let place = Root::new();
    let output = audit(&host(&place), &["--json", "--goal", "p99.9=50us"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = json(&output);
    validate(&document);
    assert_eq!(document["intent"]["isolated"], "2-7");
    assert_eq!(document["intent"]["goal"], "p99.9=50us");
    let findings = document["findings"].as_array().unwrap();
    let one = findings.iter().find(|finding| finding["id"] == "wq.global-cpumask").unwrap();
    assert_eq!((&one["verdict"], &one["subject"]), (&"warn".into(), &"CPUs 2-7".into()));
    assert_eq!(one["fix"]["runtime"][0], "echo 3 > /sys/devices/virtual/workqueue/cpumask");
    assert_eq!(one["evidence"][0]["source"], "/sys/devices/virtual/workqueue/cpumask");
    let judged = |finding: &&Value| ["warn", "fail"].contains(&finding["verdict"].as_str().unwrap());
    let effects: Vec<u64> = findings.iter().filter(judged).map(|f| f["effect_ns"].as_u64().unwrap_or(0)).collect();
    assert!(effects.is_sorted_by(|a, b| a >= b), "with a goal the costliest come first: {effects:?}");
}

#[test]
fn people_see_what_to_do_first_then_the_findings_then_the_counts() {
    let place = Root::new();
    let root = host(&place);
    let output = audit(&root, &[]);
    let said = text(&output.stdout);
    let mut last = 0;
    for word in [
        "inferred from isolcpus=",
        "Do these first",
        "1. ",
        "   why   ",
        "   risk  ",
        "[✗] clk.source",
        "seen  hpet",
        "why ",
        "cost  ",
    ] {
        let at = said[last..].find(word).unwrap_or_else(|| panic!("{word:?} is not in its place in\n{said}"));
        last += at;
    }
    let (findings, counts) = said.split_once("\n[!] Threads, workqueues, tracing").expect(said);
    assert!(findings.contains("wq.global-cpumask") && counts.contains(" warn"), "{said}");
    // One command line for all causes.
    assert_eq!(said.matches("Boot with a changed kernel command line").count(), 1, "{said}");
    assert!(!said.contains('\x1b'), "colours without a terminal");
    let explained = audit(&root, &["--explain", "clk.source"]);
    assert!(text(&explained.stdout).contains("reference") && text(&explained.stdout).contains("on this host:"));
    let wrong = audit(&root, &["--explain", "clk.sourc"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("clk."), "{}", text(&wrong.stderr));
}

#[test]
fn the_document_and_the_page_say_first_what_to_do_first() {
    let place = Root::new();
    let root = host(&place);
    let page = place.0.join("page.html");
    let output = audit(&root, &["--json", "-o", page.to_str().unwrap()]);
    let document = json(&output);
    validate(&document);
    let list = |name: &str| document[name].as_array().unwrap();
    let keys: Vec<&str> = list("findings").iter().map(|finding| finding["key"].as_str().unwrap()).collect();
    assert!((1..=5).contains(&list("do_first").len()), "{}", document["do_first"]);
    for action in list("do_first") {
        assert!(!action["lines"].as_array().unwrap().is_empty(), "{action}");
        let from = action["findings"].as_array().unwrap();
        assert!(!from.is_empty() && from.iter().all(|key| keys.contains(&key.as_str().unwrap())), "{action}");
        assert!(from.contains(&action["gain"]["finding"]), "{action}");
    }
    let boot: Vec<&Value> = list("do_first").iter().filter(|action| action["kind"] == "boot").collect();
    let [boot] = boot[..] else { panic!("{}", document["do_first"]) };
    assert!(boot["lines"][0].as_str().unwrap().contains("isolcpus=managed_irq,domain,2-7"), "{boot}");
    // Every warning and failure has its cause, once.
    let said = list("causes").iter().flat_map(|cause| cause["said"].as_array().unwrap());
    let mut of_causes: Vec<&str> =
        said.flat_map(|said| said["findings"].as_array().unwrap()).map(|key| key.as_str().unwrap()).collect();
    let wrong = |finding: &&Value| ["warn", "fail"].contains(&finding["verdict"].as_str().unwrap());
    let mut wrong: Vec<&str> = list("findings").iter().filter(wrong).map(|f| f["key"].as_str().unwrap()).collect();
    of_causes.sort_unstable();
    wrong.sort_unstable();
    assert_eq!(of_causes, wrong);
    // Isolated CPUs show; an interface and a use would tell more.
    assert!(list("unlocks").iter().all(|one| one["option"] != "--isolated" && one["rules"].as_u64() > Some(0)));
    let page = fs::read_to_string(page).unwrap();
    let place = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words} is not in the page"));
    assert!(place("Do these first") < place("clk.source") && place("clk.source") < place("<h2>Counts</h2>"));
}

/// Two screens of 40 lines hold what to do first and the beginning of the findings, whatever the host.
#[test]
fn two_screens_of_any_recorded_host_are_few_findings() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here.ancestors().flat_map(|folder| ["hosts", "hosts2"].map(|name| folder.join("shared").join(name)));
    let hosts: Vec<PathBuf> = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(".tar.gz")))
        .collect();
    if hosts.is_empty() {
        testkit::skip("no recorded hosts: put them into shared/hosts and shared/hosts2 beside the checkout");
        return;
    }
    for host in hosts {
        let output = audit(&host, &[]);
        let said = text(&output.stdout);
        let lines: Vec<&str> = said.lines().collect();
        let name = host.display();
        let first = lines.iter().position(|line| *line == "Do these first");
        assert!(first.is_some_and(|line| line < 12), "{name}: nothing to do first\n{said}");
        let is_finding = |line: &&&str| ["[✗] ", "[!] "].iter().any(|mark| line.starts_with(mark));
        let two_screens = &lines[..lines.len().min(80)];
        let shown = two_screens.iter().filter(is_finding).count();
        assert!((1..=15).contains(&shown), "{name}: {shown} findings on two screens\n{said}");
        let actions = lines.iter().filter(|line| line.as_bytes().get(1..3) == Some(b". ")).count();
        assert!((1..=5).contains(&actions), "{name}: {actions} actions\n{said}");
        // The counts are the last that is said of groups.
        let counts = lines.iter().position(|line| line.contains("pass, ") && line.contains("not applicable"));
        assert!(counts.is_some_and(|line| line > lines.len() / 2), "{name}: counts first\n{said}");
    }
}

#[test]
fn levels_and_selections_choose_what_is_shown_and_what_counts() {
    let place = Root::new();
    let root = host(&place);
    let only = audit(&root, &["--json", "--only", "clock"]);
    assert!(ids(&json(&only)).iter().all(|id| id.starts_with("clk.")));
    let skipped = audit(&root, &["--json", "--only", "clk.source", "--skip", "clock"]);
    assert_eq!((ids(&json(&skipped)).len(), skipped.status.code()), (0, Some(0)));
    let warn = audit(&root, &["--only", "wq.global-cpumask", "--min-level", "fail"]);
    assert_eq!(warn.status.code(), Some(0));
    assert_eq!(audit(&root, &["--only", "wq.global-cpumask"]).status.code(), Some(1));
    assert_eq!(audit(&root, &["--only", "nothing"]).status.code(), Some(2));
}

#[test]
fn a_baseline_accepts_what_was_found_and_a_diff_finds_what_is_new() {
    let place = Root::new();
    let root = host(&place);
    let baseline = place.0.join("baseline");
    let baseline = baseline.to_str().unwrap();
    audit(&root, &["--write-baseline", baseline]);
    let output = audit(&root, &["--baseline", baseline]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    fs::write(root.join("sys/devices/virtual/workqueue/cpumask"), "3\n").unwrap();
    let mended = audit(&root, &["--baseline", baseline]);
    assert!(text(&mended.stdout).contains("no longer occurs: wq.global-cpumask CPUs 2-7"), "{}", text(&mended.stdout));

    let other = Root::new();
    let before = host(&other);
    let words = ["audit", "diff", root.to_str().unwrap(), before.to_str().unwrap(), "--json"];
    let worse = bare(&words);
    assert_eq!(worse.status.code(), Some(1));
    let document = json(&worse);
    validate(&document);
    assert!(document["differences"].as_array().unwrap().iter().any(|one| one["kind"] == "worse"));
    let same = bare(&["audit", "diff", before.to_str().unwrap(), before.to_str().unwrap()]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
}

#[test]
fn what_a_host_has_not_and_what_a_recording_cannot_do_is_refused() {
    let place = Root::new();
    let root = host(&place);
    let path = root.to_str().unwrap();
    for words in [
        &["audit", "--from", path, "--isolated", "500"][..],
        &["audit", "--from", path, "--isolated", "0-7"],
        &["audit", "diff", path, path, "--isolated", "500"],
        &["audit", "diff", path, path, "--isolated", "0-7"],
        &["audit", "--from", path, "--msr"],
        &["audit", "--from", path, "--interval", "1s"],
    ] {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
    }
    // A pipe that nobody writes into must not be waited for.
    let pipe = place.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = bare(&["audit", "--from", pipe.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("neither a file nor a folder"), "{}", text(&output.stderr));
    // Which interfaces a host has is known where it has any at all.
    fs::create_dir_all(root.join("sys/class/net/eth0")).unwrap();
    fs::write(root.join("sys/class/net/eth0/mtu"), "1500\n").unwrap();
    for words in [&["audit", "--from", path, "--nic", "nope"][..], &["audit", "diff", path, path, "--nic", "nope"]] {
        let output = bare(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("nope"), "{words:?}: {}", text(&output.stderr));
    }
}

/// What SARIF 2.1.0 asks of a result: a level other than none only with the kind fail, a rule that is listed, a message.
#[test]
fn sarif_and_page_hold_the_findings_and_no_markup_of_the_host() {
    let place = Root::new();
    let root = host(&place);
    let (sarif, page) = (place.0.join("a.sarif"), place.0.join("a.html"));
    let words = ["--sarif", sarif.to_str().unwrap(), "-o", page.to_str().unwrap(), "--goal", "p99.9=50us"];
    let output = audit(&root, &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let sarif: Value = serde_json::from_str(&fs::read_to_string(sarif).unwrap()).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    assert!(sarif["$schema"].as_str().unwrap().ends_with("sarif-2.1.0.json"));
    let run = &sarif["runs"][0];
    let driver = &run["tool"]["driver"];
    assert!(driver["name"].is_string() && driver["semanticVersion"].is_string());
    assert_eq!(run["columnKind"], "unicodeCodePoints");
    // The lists of values of SARIF 2.1.0, 3.27.9 and 3.27.10.
    let kinds = ["notApplicable", "pass", "fail", "review", "open", "informational"];
    let levels = ["none", "note", "warning", "error"];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["level"] == "error"));
    for result in results {
        let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
        assert_eq!(rule["id"], result["ruleId"]);
        for text in ["shortDescription", "fullDescription", "help"] {
            assert!(rule[text]["text"].as_str().is_some_and(|text| !text.is_empty()), "{rule}");
        }
        assert!(
            kinds.contains(&result["kind"].as_str().unwrap()) && levels.contains(&result["level"].as_str().unwrap())
        );
        for location in result["locations"].as_array().unwrap() {
            assert!(location["logicalLocations"][0]["name"].is_string(), "{location}");
            let uri = &location["physicalLocation"]["artifactLocation"]["uri"];
            assert!(uri.is_null() || uri.as_str().is_some_and(|uri| uri.starts_with("file:///")), "{location}");
        }
        assert!(result["level"] == "none" || result["kind"] == "fail", "{result}");
        assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()));
        assert!(result["partialFingerprints"]["apusKey/v1"].is_string());
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("clk.source") && page.contains("default-src 'none'"));
    assert!(page.contains("Delays compared with the goal p99.9=50us") && page.contains("class=\"bar\""));
    // The verdict is said in a word too, for those who see no colours.
    assert!(page.contains("<span class=\"verdict\">fail</span> <code>"));
    // Every element that is opened is closed, in order.
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "in {tag}"),
            None if name == "!DOCTYPE" || name == "meta" => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    for forbidden in ["<script", "<b>quiet", "http://", "https://", "src=\""] {
        assert!(!page.contains(forbidden), "{forbidden} is in the page");
    }
}

/// Slides about real-time platforms print this line for a guest, with a value of tsc= that no kernel knows.
#[test]
fn a_command_line_alone_is_judged() {
    let line = "console=tty0 console=ttyS0 biosdevname=0 net.ifnames=0 no_timer_check isolcpus=1-14 irqaffinity=0 \
                default_hugepagesz=1G hugepagesz=1G hugepages=5 clocksource=tsc tsc=perfect intel_idle.max_cstate=0 \
                processor.max_cstate=1 nohz_full=1-14";
    let output = bare(&["audit", "cmdline", line, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = json(&output);
    validate(&document);
    let remarks = document["remarks"].as_array().unwrap();
    let unknown: Vec<&Value> = remarks.iter().filter(|remark| remark["kind"] == "unknown-value").collect();
    assert_eq!(unknown.len(), 1, "{remarks:#?}");
    assert_eq!(unknown[0]["parameter"], "tsc=perfect");
    let twice = bare(&["audit", "cmdline", "skew_tick=1 tsc=reliable skew_tick=1 audit=0 audit=1", "--json"]);
    let kinds: Vec<String> =
        json(&twice)["remarks"].as_array().unwrap().iter().map(|remark| remark["kind"].to_string()).collect();
    assert!(kinds.contains(&"\"duplicate\"".into()) && kinds.contains(&"\"overridden\"".into()), "{kinds:?}");
}

/// The same slides' line for a host, with the underscores that their text lost: one parameter that kernel.org does not
/// have, one flag without which isolcpus= does less than meant, and nothing else.
#[test]
fn the_line_of_a_host_is_judged_whole() {
    let line = "crashkernel=auto biosdevname=0 iommu=pt usbcore.autosuspend=-1 selinux=0 enforcing=0 nmi_watchdog=0 \
                softlockup_panic=0 intel_iommu=on audit=0 cgroup_disable=memory hugepagesz=1G hugepages=21 hugepagesz=2M \
                hugepages=0 default_hugepagesz=1G isolcpus=1-55 rcu_nocbs=1-55 kthread_cpus=0 irqaffinity=0 idle=poll \
                nohz_full=1-55";
    let document = json(&bare(&["audit", "cmdline", line, "--json"]));
    validate(&document);
    let remarks: Vec<(&str, &str)> = document["remarks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|remark| (remark["kind"].as_str().unwrap(), remark["parameter"].as_str().unwrap()))
        .collect();
    let said = [
        ("caution", "idle=poll"),
        ("caution", "crashkernel=auto"),
        ("not-mainline", "kthread_cpus=0"),
        ("missing", "isolcpus=managed_irq,domain,1-55"),
    ];
    assert_eq!(remarks, said);
    // As the text of the slides and of guides has it: without underscores these are words that nobody reads.
    let lost = json(&bare(&["audit", "cmdline", "isolcpus=20-22 rcu nocbs=20-22 nohz full=20-22", "--json"]));
    let instead: Vec<&str> =
        lost["remarks"].as_array().unwrap().iter().filter_map(|remark| remark["instead"].as_str()).collect();
    assert!(instead.contains(&"rcu_nocbs") && instead.contains(&"nohz_full"), "{instead:?}");
}

/// What a guide for measuring latency asks for, one by one and together: isolated CPUs, no callbacks, no tick, a clock
/// that is not watched. Alone each misses its companions; together they are a set.
#[test]
fn a_list_for_latency_is_judged_word_by_word_and_whole() {
    let kinds = |line: &str| -> Vec<(String, String)> {
        let document = json(&bare(&["audit", "cmdline", line, "--json"]));
        validate(&document);
        let remarks = document["remarks"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        remarks.iter().map(|remark| (text(&remark["kind"]), text(&remark["parameter"]))).collect()
    };
    let whole = "isolcpus=managed_irq,domain,20-22 rcu_nocbs=20-22 nohz_full=20-22 tsc=reliable irqaffinity=0-19 nmi_watchdog=0";
    assert_eq!(kinds(whole), []);
    let guide = kinds("isolcpus=20-22 rcu_nocbs=20-22 nohz_full=20-22 tsc=reliable");
    assert!(guide.iter().all(|(kind, _)| kind == "missing"), "{guide:?}");
    assert!(guide.iter().any(|(_, word)| word == "isolcpus=managed_irq,domain,20-22"), "{guide:?}");
    assert!(guide.iter().any(|(_, word)| word.starts_with("irqaffinity=")), "{guide:?}");
    let differs =
        kinds("isolcpus=managed_irq,domain,20-22 rcu_nocbs=20-21 nohz_full=20-22 irqaffinity=0-19 nmi_watchdog=0");
    assert_eq!(differs.len(), 1, "{differs:?}");
}

#[test]
fn unknown_words_and_absent_cpus_of_a_line_are_findings() {
    let unknown = bare(&["audit", "cmdline", "foo=bar"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown.stdout));
    assert!(text(&unknown.stdout).ends_with("1 parameter, 1 finding\n"), "{}", text(&unknown.stdout));
    assert_eq!(bare(&["audit", "cmdline", "nomodule swiotlb=65536 rdinit=/bin/sh"]).status.code(), Some(0));
    let small = bare(&["audit", "cmdline", "--cpus", "4", "isolcpus=managed_irq,domain,2-7"]);
    assert!(text(&small.stdout).contains("CPUs 4-7, but the host only has CPUs 0-3"), "{}", text(&small.stdout));
    let fits = bare(&["audit", "cmdline", "--cpus", "8", "isolcpus=managed_irq,domain,2-7"]);
    assert!(text(&fits.stdout).contains("irqaffinity=0-1"), "{}", text(&fits.stdout));
    let refused = bare(&["audit", "cmdline", "--cpus", "4", "--isolated", "2-7", "quiet"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
}

#[test]
fn findings_become_a_profile_that_tune_reads() {
    let place = Root::new();
    let root = host(&place);
    let file = place.0.join("found.toml");
    let file = file.to_str().unwrap();
    let output = audit(&root, &["--fix", file]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("apus tune plan"), "{}", text(&output.stderr));
    let profile = fs::read_to_string(file).unwrap();
    assert!(profile.contains("[workqueues]\ncpus = \"0-1\" # cmd.sets-agree, wq.global-cpumask"), "{profile}");
    let plan = bare(&["tune", "plan", file, "--root", root.to_str().unwrap(), "--isolated", "2-7"]);
    assert_eq!(plan.status.code(), Some(0), "{}{}\n{profile}", text(&plan.stdout), text(&plan.stderr));
    assert!(text(&plan.stdout).contains("/sys/devices/virtual/workqueue/cpumask"), "{}", text(&plan.stdout));
    let printed = audit(&root, &["--fix", "-"]);
    assert_eq!(text(&printed.stdout), profile);
    assert_eq!(audit(&root, &["--fix", "-", "--json"]).status.code(), Some(2));
}

#[test]
fn a_command_line_is_written_that_passes_its_own_check() {
    let words = ["audit", "cmdline", "--suggest", "--isolated", "2-7", "--cpus", "8", "--workload", "poll", "--json"];
    let document = json(&bare(&words));
    validate(&document);
    let line = document["line"].as_str().unwrap();
    for word in ["isolcpus=managed_irq,domain,2-7", "nohz_full=2-7", "irqaffinity=0-1"] {
        assert!(line.contains(word), "{line}");
    }
    let judged = bare(&["audit", "cmdline", line, "--isolated", "2-7"]);
    assert_eq!(judged.status.code(), Some(0), "{}", text(&judged.stdout));
    let wrong = bare(&["audit", "cmdline", "--suggest", "--isolated", "0-7", "--cpus", "8"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(bare(&["audit", "cmdline", "--suggest"]).status.code(), Some(2));
}

#[test]
fn what_hits_a_cpu_is_counted() {
    let place = Root::new();
    let root = host(&place);
    let output = bare(&["irqs", "--from", root.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = json(&output);
    validate(&document);
    assert_eq!(document["cpus"], "2-7", "the isolated ones unless others are named");
    assert_eq!(document["sources"][0]["name"], "eth0-TxRx-3");
    assert_eq!(document["sources"][0]["by_cpu"]["2"], 900);
    let here = json(&bare(&["irqs", "--interval", "50ms", "--json"]));
    validate(&here);
    assert!(here["during_ns"].as_u64().unwrap() >= 50_000_000);
    assert_eq!(bare(&["irqs", "--cpu", "8000"]).status.code(), Some(2));
}

/// Ctrl-C ends the interval, not only the pause after it: without that, a table would follow after it.
#[test]
fn a_watch_ends_at_once() {
    // The signal is blocked before the test sends it, so that it waits for the program.
    let mut command = Command::new("env");
    command.args(["--block-signal=INT", "sh", "-c", "echo ready; exec \"$0\" irqs --watch --interval 60s"]);
    command.arg(env!("CARGO_BIN_EXE_apus")).stdin(Stdio::null()).stdout(Stdio::piped());
    let Ok(child) = command.spawn() else {
        testkit::skip("there is no env that blocks signals (coreutils 8.31 and later)");
        return;
    };
    let mut running = Running(child);
    let mut output = BufReader::new(running.0.stdout.take().unwrap());
    let mut said = String::new();
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    assert_eq!(running.end(Signal::INT), Some(0));
    output.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ready\n");
}

#[test]
fn wrong_use_says_what_is_wrong_and_ends_with_2() {
    let place = Root::new();
    let root = host(&place);
    for words in [
        &["--isolated", "2-70"][..],
        &["--goal", "50us"],
        &["--workload", "fun"],
        &["--min-level", "high"],
        &["--baseline", "/does/not/exist"],
        &["--sarif", "-", "--json"],
    ] {
        let output = audit(&root, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
    }
    assert_eq!(bare(&["audit", "--from", "/does/not/exist"]).status.code(), Some(2));
    let no_host = audit(&place.0.join("host/proc"), &[]);
    assert_eq!(no_host.status.code(), Some(2), "{}", text(&no_host.stdout));
}

/// "Nothing to do: no problem was found" was the answer to a truncated snapshot, of which one rule of 113 could be judged.
#[test]
fn a_host_of_which_nothing_is_known_is_not_well() {
    let place = Root::new();
    let root = place.0.join("host");
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/version"), "Linux\n").unwrap();
    let output = audit(&root, &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Almost nothing could be judged") && !said.contains("Nothing to do"), "{said}");
    assert_eq!(audit(&root, &["--json"]).status.code(), Some(1));
    assert_eq!(audit(&root, &["--explain", "cpu.governor"]).status.code(), Some(0));
}

/// The status was 2, as for wrong usage; other commands end with 3.
#[test]
fn output_that_cannot_be_written_is_no_wrong_usage() {
    let place = Root::new();
    let root = host(&place);
    for option in ["-o", "--fix", "--sarif", "--write-baseline"] {
        for (path, fix) in [("/dev/full", "free space"), ("/does/not/exist", "a folder that you can write to")] {
            let output = audit(&root, &[option, path]);
            assert_eq!(output.status.code(), Some(3), "{option} {path}");
            assert!(text(&output.stderr).contains(fix), "{}", text(&output.stderr));
        }
    }
}

/// As root and as nobody: the document is valid, it is there in time, and nothing is claimed of what a guest lacks.
#[test]
fn this_machine_is_audited_by_root_and_by_nobody() {
    let apus = env!("CARGO_BIN_EXE_apus");
    let mut commands = vec![Command::new(apus)];
    if rustix::process::geteuid().is_root() {
        // Nobody may not reach the binary where it was built.
        let copy = std::env::temp_dir().join(format!("apus-audit-{}", std::process::id()));
        testkit::put_program(apus.as_ref(), &copy);
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        commands.push(nobody);
    } else {
        testkit::skip("only root can become nobody");
    }
    let mut by_root: Option<Vec<String>> = None;
    for mut command in commands {
        let start = Instant::now();
        let output = command.args(["audit", "--json"]).stdin(Stdio::null()).output().unwrap();
        let took = start.elapsed();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
        let document = json(&output);
        validate(&document);
        println!("audited in {took:?}");
        let limit = if cfg!(debug_assertions) { Duration::from_secs(10) } else { Duration::from_millis(300) };
        assert!(took < limit, "{took:?}");
        let is_guest = document["intent"]["workloads"].as_array().unwrap().contains(&"guest".into());
        let has_states = Path::new("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists();
        let scales = Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists();
        for finding in document["findings"].as_array().unwrap() {
            let (id, verdict) = (finding["id"].as_str().unwrap(), finding["verdict"].as_str().unwrap());
            if is_guest && (!has_states && id.starts_with("idle.") || !scales && id.starts_with("cpu.")) {
                assert_eq!(verdict, "not-applicable", "{finding:#}");
            }
        }
        // Who sees less claims no more.
        let findings = document["findings"].as_array().unwrap().iter();
        // Real-time threads come and go from one audit to the next: those of other tests do.
        let stays = |finding: &&Value| !finding["id"].as_str().unwrap().starts_with("app.");
        let claims = findings.filter(stays);
        let claims = claims.filter(|finding| ["warn", "fail"].contains(&finding["verdict"].as_str().unwrap()));
        let claims: Vec<String> = claims.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect();
        if let Some(by_root) = &by_root {
            let more: Vec<&String> = claims.iter().filter(|id| !by_root.contains(id)).collect();
            assert!(more.is_empty(), "nobody claims what root does not: {more:?}");
        }
        by_root.get_or_insert(claims);
    }
    let _ = fs::remove_file(std::env::temp_dir().join(format!("apus-audit-{}", std::process::id())));
}

#[test]
fn the_committed_catalogue_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let now = bare(&["audit", "rules", "--markdown"]);
    assert_eq!(now.status.code(), Some(0));
    if std::env::var_os("APUS_UPDATE_RULES").is_some() {
        fs::write(&path, &now.stdout).unwrap();
    }
    let committed = fs::read(&path).unwrap_or_default();
    assert!(
        committed == now.stdout,
        "{} is not what the table says: APUS_UPDATE_RULES=1 cargo test -p cli --test it audit",
        path.display()
    );
}
