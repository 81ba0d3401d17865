//! Idle states and frequencies: the settings on folders that stand for machines, the measuring on this one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probe::detail::Detail;
use probe::frequency::{Frequency, Via};
use probe::idle::{How, Idle};
use probe::mark::{Mark, MarkKind};
use probe::{Control, Error, Measured, Probe, place};
use units::{Hertz, Nanos};

use crate::support::turn;

/// A folder of a test's own, removed on drop.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        // In memory where there is such a folder: the journal syncs each record, and disks may be slow.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        let root = folder.join(format!("apus-power-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }
    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    /// Every file's content, but for the journal's folder, and for the set speed: the kernel has one only under the
    /// userspace governor, and the files of a folder keep it.
    fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.snapshot_of(&[""])
    }
    /// The same of some folders.
    fn snapshot_of(&self, which: &[&str]) -> BTreeMap<PathBuf, Vec<u8>> {
        let there = which.iter().map(|folder| self.0.join(folder)).filter(|folder| folder.is_dir());
        let (mut found, mut folders) = (BTreeMap::new(), there.collect::<Vec<PathBuf>>());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.starts_with(self.0.join("var")) && !path.ends_with("scaling_setspeed") {
                    found.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        found
    }
    /// Journals of transactions that were not taken back.
    fn left_in_journal(&self) -> usize {
        let folder = self.0.join("var/lib/apus/tune");
        let names = fs::read_dir(folder).map_or(Vec::new(), |all| all.flatten().map(|e| e.file_name()).collect());
        names.iter().filter(|name| name.to_string_lossy().contains("journal")).count()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The first CPU of this process: the folders have settings for it.
fn cpu() -> usize {
    place::allowed().unwrap()[0]
}

fn run(probe: &(impl Probe + Sync), root: &Root) -> Result<Measured, Error> {
    let mut control = Control::new(None);
    control.root = root.0.clone();
    std::thread::scope(|scope| scope.spawn(|| probe.run(&control)).join().unwrap())
}

const BARE_METAL: &str = "processor\t: 0\nmodel name\t: X\nflags\t\t: fpu constant_tsc nonstop_tsc\n";

/// A machine with POLL, C1 and C6, of which C6 was disabled by someone.
fn with_idle_states(name: &str) -> Root {
    let root = Root::new(name);
    root.put("proc/cpuinfo", BARE_METAL);
    root.put("sys/devices/system/cpu/online", "0-7\n");
    for (state, name, latency, residency, disable) in
        [(0, "POLL", 0, 0, "0"), (1, "C1", 2, 2, "0"), (2, "C6", 133, 600, "1")]
    {
        let file = |leaf: &str| format!("sys/devices/system/cpu/cpu{}/cpuidle/state{state}/{leaf}", cpu());
        root.put(&file("name"), &format!("{name}\n"));
        root.put(&file("latency"), &format!("{latency}\n"));
        root.put(&file("residency"), &format!("{residency}\n"));
        root.put(&file("usage"), "7\n");
        root.put(&file("time"), "7\n");
        root.put(&file("disable"), &format!("{disable}\n"));
    }
    root.put(&format!("sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us", cpu()), "0\n");
    root
}

#[test]
fn each_idle_state_is_allowed_alone_and_all_is_put_back() {
    let _turn = turn();
    let root = with_idle_states("alone");
    let before = root.snapshot();
    let idle = Idle { duration: Nanos::from_millis(120), ..Idle::new(cpu(), None) };
    let (done, seen) = (AtomicBool::new(false), std::sync::Mutex::new(BTreeSet::new()));
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let disabled = |state: u32| {
                    let file = format!("sys/devices/system/cpu/cpu{}/cpuidle/state{state}/disable", cpu());
                    fs::read_to_string(root.0.join(file)).unwrap_or_default().trim().to_owned()
                };
                seen.lock().unwrap().insert([disabled(0), disabled(1), disabled(2)].join(""));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let measured = run(&idle, &root);
        done.store(true, Ordering::Relaxed);
        measured.unwrap()
    });
    for alone in ["011", "101", "110"] {
        assert!(seen.lock().unwrap().contains(alone), "{alone} was not seen: {:?}", seen.lock().unwrap());
    }
    assert_eq!(root.snapshot(), before);
    assert_eq!(root.left_in_journal(), 0);
    let Detail::Idle(detail) = &measured.detail else { panic!("not the detail of idle") };
    let claims: Vec<Option<u64>> = detail.states.iter().map(|state| state.claimed_exit_ns).collect();
    assert_eq!(claims, [Some(0), Some(2_000), Some(133_000)]);
    assert_eq!(detail.states[2].was_disabled, Some(true));
    // The class and the slack are those of the sleeping thread, which asked for the least, not of the one that looks on.
    assert_eq!(measured.conditions.timer_slack_ns.value, Some(1));
    // Twice the residency of 600 us; at least 200 us.
    let sleeps: Vec<u64> = detail.cases.iter().map(|case| case.sleep_ns).collect();
    assert_eq!(sleeps, [200_000, 200_000, 1_200_000]);
    assert_eq!(measured.terms.len(), 3);
    // The folder's counters stand still: that the state was never asked for does not go unnoticed.
    assert!(measured.marks.iter().any(|mark| mark.kind == MarkKind::Suspect && mark.text.contains("0 times")));
}

#[test]
fn an_exit_latency_is_limited_and_put_back() {
    let _turn = turn();
    let root = with_idle_states("pmqos");
    let before = root.snapshot();
    let idle = Idle { how: How::PmQos, duration: Nanos::from_millis(20), ..Idle::new(cpu(), None) };
    let measured = run(&idle, &root).unwrap();
    assert_eq!((measured.variant.as_str(), measured.terms.len()), ("pm-qos", 3));
    assert_eq!(root.snapshot(), before);
}

#[test]
fn a_guest_that_halts_is_measured_over_a_ladder_of_sleeps() {
    let _turn = turn();
    let root = with_idle_states("haltpoll");
    root.put("sys/devices/system/cpu/cpuidle/current_driver", "haltpoll\n");
    root.put("sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n");
    let idle = Idle { duration: Nanos::from_millis(20), ..Idle::new(cpu(), None) };
    let measured = run(&idle, &root).unwrap();
    let Detail::Idle(detail) = &measured.detail else { panic!("not the detail of idle") };
    let sleeps: Vec<u64> = detail.cases[..5].iter().map(|case| case.sleep_ns / 1_000).collect();
    assert_eq!((sleeps, detail.cases.len()), (vec![50, 100, 350, 1_000, 10_000], 15));
    assert_eq!(detail.guest_halt_polling.value.as_ref().map(|of| of.guest_halt_poll_ns), Some(200_000));
}

#[test]
fn a_run_that_is_stopped_puts_all_back_too() {
    let _turn = turn();
    let root = with_idle_states("stopped");
    let before = root.snapshot();
    let mut control = Control::new(None);
    control.root = root.0.clone();
    let idle = Idle { duration: Nanos::from_secs(60), ..Idle::new(cpu(), None) };
    let measured = std::thread::scope(|scope| {
        let thread = scope.spawn(|| idle.run(&control).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        control.stop();
        thread.join().unwrap()
    });
    assert!(measured.interrupted && measured.terms.len() == 1, "{:?}", measured.terms.len());
    assert_eq!(root.snapshot(), before);
}

/// Waits until a file of the machine has a text.
fn wait_for(path: &Path, is_it: impl Fn(&str) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(path).is_ok_and(|text| is_it(text.trim())) {
        assert!(Instant::now() < until, "{}: {:?}", path.display(), fs::read_to_string(path));
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Root {
    /// Whether a journal, or the moves next to it, have a text.
    fn journal_says(&self, word: &str) -> bool {
        let all = fs::read_dir(self.0.join("var/lib/apus/tune")).into_iter().flatten().flatten();
        all.filter_map(|entry| fs::read(entry.path()).ok()).any(|text| String::from_utf8_lossy(&text).contains(word))
    }
    /// Changes a file as somebody else would, in one step.
    fn set(&self, path: &Path, text: &str) {
        let new = self.0.join("var/new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

#[test]
fn settings_that_cannot_be_restored_end_the_run_with_an_error() {
    let _turn = turn();
    let root = with_idle_states("left");
    let idle = Idle { duration: Nanos::from_millis(400), ..Idle::new(cpu(), None) };
    let file = root.0.join(format!("sys/devices/system/cpu/cpu{}/cpuidle/state1/disable", cpu()));
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // While another state is measured, after all were set.
            wait_for(&file, |text| text == "1" && root.journal_says("kept"));
            root.set(&file, "2\n");
        });
        run(&idle, &root).unwrap_err()
    });
    let text = error.to_string();
    assert!(matches!(error, Error::NotRestored { .. }) && error.lacks(), "{text}");
    assert!(text.contains("idle state 1 of CPU") && text.ends_with("fix: apus tune rollback"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "2\n", "no further state is measured");
    assert_eq!(root.left_in_journal(), 1);
}

#[test]
fn a_frequency_that_somebody_else_sets_ends_the_requests_and_stays() {
    let _turn = turn();
    let root = with_frequencies("theirs", "performance powersave");
    let file = root.0.join(format!("sys/devices/system/cpu/cpufreq/policy{}/scaling_max_freq", cpu()));
    let ended = AtomicBool::new(false);
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The journal shows each request only for a moment. There are so many that this thread sees at least one.
            while !ended.load(Ordering::Relaxed) {
                if root.journal_says(r#""max":"800000""#) {
                    root.set(&file, "2000000\n");
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let frequency = Frequency { changes: 40, period: Nanos::from_millis(100), ..quick(Via::Auto) };
        let measured = run(&frequency, &root);
        ended.store(true, Ordering::Relaxed);
        measured.unwrap()
    });
    let said = |mark: &Mark| mark.text.contains("something else set the frequency to max=2000000");
    assert!(measured.marks.iter().any(said), "{:?}", measured.marks);
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), root.left_in_journal()), ("2000000\n", 0));
}

#[test]
fn a_machine_without_says_what_is_missing() {
    let root = Root::new("without");
    root.put("proc/cpuinfo", BARE_METAL);
    root.put("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    let error = run(&Idle::new(cpu(), None), &root).unwrap_err();
    assert!(error.lacks() && error.to_string().contains("the cpuidle driver is none"), "{error}");
    for via in Via::ALL {
        let error = run(&Frequency { via, ..Frequency::new(cpu()) }, &root).unwrap_err();
        assert!(error.lacks() && error.to_string().contains("has no policy of this CPU"), "{via}: {error}");
    }
}

/// A machine with a frequency policy.
fn with_frequencies(name: &str, governors: &str) -> Root {
    let root = Root::new(name);
    root.put("proc/cpuinfo", BARE_METAL);
    let policy = format!("sys/devices/system/cpu/cpufreq/policy{}", cpu());
    for (leaf, text) in [
        ("related_cpus", cpu().to_string().as_str()),
        ("scaling_governor", "powersave"),
        ("scaling_setspeed", "<unsupported>"),
        ("scaling_available_governors", governors),
        ("scaling_min_freq", "800000"),
        ("scaling_max_freq", "3500000"),
        ("cpuinfo_min_freq", "800000"),
        ("cpuinfo_max_freq", "3500000"),
    ] {
        root.put(&format!("{policy}/{leaf}"), &format!("{text}\n"));
    }
    root
}

fn quick(via: Via) -> Frequency {
    let (work, period) = (Nanos::from_micros(20), Nanos::from_millis(20));
    // Above whatever else runs here, where that is allowed: it is the units of work that are counted.
    let priority = rustix::process::geteuid().is_root().then_some(50);
    Frequency { via, work, period, priority, changes: 4, ..Frequency::new(cpu()) }
}

#[test]
fn frequencies_are_asked_for_in_turn_and_put_back() {
    let _turn = turn();
    for (name, governors, via) in [
        ("governor", "performance powersave userspace", "userspace governor"),
        ("limits", "performance powersave", "limits of the policy"),
    ] {
        let root = with_frequencies(name, governors);
        let before = root.snapshot();
        let measured = run(&quick(Via::Auto), &root).unwrap();
        let Detail::Frequency(detail) = &measured.detail else { panic!("not the detail of frequency") };
        assert_eq!((detail.via.as_str(), &detail.levels_hz[..]), (via, &[800_000_000, 3_500_000_000][..]));
        let asked: Vec<u64> = detail.changes.iter().map(|change| change.to_hz).collect();
        assert_eq!(asked, [3_500_000_000, 800_000_000, 3_500_000_000, 800_000_000]);
        assert!(detail.units > 500 && !detail.batches_ns.is_empty(), "{} units", detail.units);
        // A folder makes nothing faster: an effect that is seen is this machine's unrest, and rare.
        let without = detail.changes.iter().filter(|change| change.effect_ns.is_none()).count() as u64;
        assert_eq!(detail.without_effect, without);
        assert_eq!(root.snapshot(), before, "{name}");
        assert_eq!(root.left_in_journal(), 0);
    }
}

/// What is killed: this very test program, told to by the environment where and how to measure.
const CHILD: &str = "APUS_PROBE_FREQUENCY_CHILD";

#[test]
fn child_that_changes_frequencies() {
    let Ok(root) = std::env::var(CHILD) else { return };
    let via = std::env::var("VIA").unwrap().parse().unwrap();
    let levels = vec![Hertz::new(800_000_000), Hertz::new(2_100_000_000), Hertz::new(3_500_000_000)];
    let mut control = Control::new(None);
    control.root = root.into();
    Frequency { levels, changes: 500, ..quick(via) }.run(&control).unwrap();
}

/// Whichever level a killed measurement leaves, whoever starts next restores what was there before.
#[test]
fn a_killed_measurement_of_frequencies_is_rolled_back() {
    let _turn = turn();
    let policy = format!("sys/devices/system/cpu/cpufreq/policy{}", cpu());
    for (via, file, levels) in [
        (Via::Governor, format!("{policy}/scaling_setspeed"), ["800000", "2100000", "3500000"]),
        (Via::Limits, format!("{policy}/scaling_max_freq"), ["800000", "2100000", "3500000"]),
        (Via::Hwp, "msr/0x774".into(), ["0x80000808", "0x80001515", "0x80002323"]),
    ] {
        let root = match via {
            Via::Hwp => with_hwp("killed-hwp"),
            _ => with_frequencies(&format!("killed-{via}"), "performance powersave userspace"),
        };
        let before = root.snapshot();
        for level in levels {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "power::child_that_changes_frequencies", "--nocapture"])
                .env(CHILD, &root.0)
                .env("VIA", via.to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let mut child = Killed(child);
            // A change to each level: the first of the run is one of several.
            let (last, first) = (levels[2], levels[0]);
            wait_for(&root.0.join(&file), |text| text.ends_with(first));
            if level != first {
                wait_for(&root.0.join(&file), |text| text.ends_with(level));
            } else {
                wait_for(&root.0.join(&file), |text| text.ends_with(last));
                wait_for(&root.0.join(&file), |text| text.ends_with(first));
            }
            child.kill();
            assert_ne!(root.snapshot(), before, "{via}: the kill left a level");
            let access = host::knob::Access::below(&root.0).unwrap();
            host::transaction::take_back_abandoned(&access, "a test").unwrap();
            assert_eq!(root.snapshot(), before, "{via}, killed at {level}");
            assert_eq!(root.left_in_journal(), 0);
            root.put(&format!("{policy}/scaling_setspeed"), "<unsupported>\n");
        }
    }
}

/// A child that is killed, at the latest when its test ends.
struct Killed(std::process::Child);

impl Killed {
    fn kill(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn one_frequency_or_none_known_is_a_lack() {
    let root = with_frequencies("one", "performance powersave");
    let policy = format!("sys/devices/system/cpu/cpufreq/policy{}", cpu());
    root.put(&format!("{policy}/cpuinfo_max_freq"), "800000\n");
    let error = run(&quick(Via::Limits), &root).unwrap_err();
    assert!(error.lacks() && error.to_string().contains("only one frequency, 800 MHz"), "{error}");
    fs::remove_file(root.0.join(format!("{policy}/cpuinfo_max_freq"))).unwrap();
    let error = run(&quick(Via::Limits), &root).unwrap_err();
    assert!(error.lacks() && error.to_string().contains("--levels"), "{error}");
}

/// A machine without a frequency policy, whose HWP request is 800 MHz to 3.5 GHz.
fn with_hwp(name: &str) -> Root {
    let root = Root::new(name);
    root.put("proc/cpuinfo", BARE_METAL);
    root.put("msr/0x770", &format!("{} 0x1\n", cpu()));
    root.put("msr/0x771", &format!("{} 0x8081523\n", cpu()));
    root.put("msr/0x774", &format!("{} 0x80002308\n", cpu()));
    root
}

#[test]
fn the_hwp_register_is_written_and_put_back() {
    let _turn = turn();
    let root = with_hwp("hwp");
    let before = root.snapshot();
    // No policy tells the limits: without levels there is nothing to choose from.
    assert!(run(&quick(Via::Hwp), &root).unwrap_err().lacks());
    let levels = vec![Hertz::new(800_000_000), Hertz::new(2_100_000_000)];
    let measured = run(&Frequency { levels, ..quick(Via::Hwp) }, &root).unwrap();
    let Detail::Frequency(detail) = &measured.detail else { panic!("not the detail of frequency") };
    assert_eq!((detail.via.as_str(), detail.changes.len()), ("HWP request (MSR 0x774)", 4));
    assert_eq!(root.snapshot(), before);
    let odd = vec![Hertz::new(850_000_000), Hertz::new(2_100_000_000)];
    assert!(matches!(run(&Frequency { levels: odd, ..quick(Via::Hwp) }, &root), Err(Error::Invalid { .. })));
    assert_eq!(root.snapshot(), before);
}

#[test]
fn recorded_hosts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/hosts");
    if !folder.is_dir() {
        testkit::skip(format!("{} is not there", folder.display()));
        return;
    }
    let _turn = turn();
    for host in ["icx2s0", "clx2s0", "skld0", "bdwde0", "spr1", "rome0", "genoa0"] {
        let root = Root::new(host);
        let archive = folder.join(format!("{host}.tar.gz"));
        let status = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&root.0).status().unwrap();
        assert!(status.success());
        let mine = format!("sys/devices/system/cpu/cpu{}", cpu());
        let snapshot = || root.snapshot_of(&["msr", "sys/devices/system/cpu/cpufreq", &mine]);
        let before = snapshot();
        // A recorded host without /proc/cpuinfo is not known to be bare metal, but idle states it has.
        let idle = Idle { duration: Nanos::from_millis(10), ..Idle::new(cpu(), None) };
        let measured = run(&idle, &root).unwrap_or_else(|error| panic!("{host}: {error}"));
        let Detail::Idle(detail) = &measured.detail else { panic!("not the detail of idle") };
        for state in &detail.states {
            let file = format!("sys/devices/system/cpu/cpu{}/cpuidle/state{}/latency", cpu(), state.number);
            let latency: u64 = fs::read_to_string(root.0.join(file)).unwrap().trim().parse().unwrap();
            assert_eq!(state.claimed_exit_ns, Some(latency * 1_000), "{host} {}", state.name);
        }
        assert!(detail.states.len() >= 2 && measured.terms.len() == detail.states.len(), "{host}");
        assert_eq!(snapshot(), before, "{host}: idle");
        let frequency = Frequency { changes: 2, ..quick(Via::Auto) };
        match run(&frequency, &root) {
            Ok(measured) => {
                let Detail::Frequency(detail) = &measured.detail else { panic!("not the detail of frequency") };
                println!("{host}: {} states, {} {:?}", measured.terms.len(), detail.via, detail.levels_hz);
            }
            Err(error) => {
                assert!(error.lacks(), "{host}: {error}");
                println!("{host}: {error}");
            }
        }
        assert_eq!(snapshot(), before, "{host}: frequency");
    }
}
