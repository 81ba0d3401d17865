use super::*;
use crate::knob::{Access, Act, Gate, Governor, Setting as _, Sysctl};

/// Imitates mm/page-writeback.c in a folder: when one value of a pair is written, the other one becomes 0.
struct Pairs(std::path::PathBuf);

const PAIRS: [[&str; 2]; 2] = [["dirty_ratio", "dirty_bytes"], ["dirty_background_ratio", "dirty_background_bytes"]];

impl Gate for Pairs {
    fn before(&self, act: &Act) {
        // In a folder, a written file takes its place by `rename`.
        for [a, b] in PAIRS.into_iter().flat_map(|[a, b]| [[a, b], [b, a]]) {
            if act.operation == "rename" && act.object.ends_with(&format!("/vm/{a}")) {
                std::fs::write(self.0.join("proc/sys/vm").join(b), "0\n").unwrap();
            }
        }
    }
}

fn machine(values: [&str; 4]) -> (Folder, Access) {
    let folder = folder();
    for (name, value) in PAIRS.into_iter().flatten().zip(values) {
        folder.put(&format!("proc/sys/vm/{name}"), &format!("{value}\n"));
    }
    let access = folder.access().with_gate(Arc::new(Pairs(folder.path(""))));
    (folder, access)
}

fn values(folder: &Folder) -> [String; 4] {
    let names: Vec<&str> = PAIRS.into_iter().flatten().collect();
    [0, 1, 2, 3].map(|place| folder.read(&format!("proc/sys/vm/{}", names[place])).trim().to_owned())
}

fn back(access: &Access, theirs: Theirs) -> Vec<RolledBack> {
    let mut options = RollbackOptions {
        command: "a test".into(),
        patience: Duration::ZERO,
        damaged: false,
        forget: false,
        theirs,
        ask: None,
    };
    rollback(access, Which::All, &mut options).unwrap()
}

#[test]
fn a_pair_comes_back_whichever_of_it_was_set() {
    for before in [["0", "1000000", "0", "500000"], ["20", "0", "10", "0"], ["0", "1000000", "10", "0"]] {
        for wanted in [["dirty_ratio", "dirty_background_ratio"], ["dirty_bytes", "dirty_background_bytes"]] {
            let (folder, access) = machine(before);
            let plan = wanted
                .into_iter()
                .fold(Plan::new("p"), |plan, name| plan.with(Sysctl::new(format!("vm.{name}")), Value::text(7)));
            let applied = apply(&access, &plan, &options()).unwrap();
            assert!(applied.items.iter().all(|(_, became)| became.is_good()), "{applied:?}");
            let moved = before.iter().zip(values(&folder)).filter(|(_, now)| now != "7");
            let moved = moved.filter(|(before, now)| *before != now).count();
            assert_eq!(applied.along.len(), moved, "what went along is told: {:?}", applied.along);
            let rolled_back = back(&access, Theirs::Keep);
            assert!(rolled_back[0].closed, "{rolled_back:?}");
            assert_eq!(values(&folder), before, "{wanted:?}");
        }
    }
}

#[test]
fn someone_elses_value_of_a_pair_stays() {
    let (folder, access) = machine(["0", "1000000", "0", "500000"]);
    let plan = Plan::new("p").with(Sysctl::new("vm.dirty_ratio"), Value::text(7));
    apply(&access, &plan, &options()).unwrap();
    // The kernel would set the other value to 0.
    folder.put("proc/sys/vm/dirty_bytes", "4096\n");
    folder.put("proc/sys/vm/dirty_ratio", "0\n");
    let rolled_back = back(&access, Theirs::Keep);
    assert!(!rolled_back[0].closed, "{rolled_back:?}");
    assert_eq!(values(&folder), ["0", "4096", "0", "500000"]);
    assert!(back(&access, Theirs::Overwrite)[0].closed);
    assert_eq!(values(&folder), ["0", "1000000", "0", "500000"]);
}

/// Imitates a governor whose tunables disappear with it, and are created again when it comes back.
struct Tunables(std::path::PathBuf);

const GOVERNOR: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
const TUNABLE: &str = "sys/devices/system/cpu/cpufreq/schedutil/rate_limit_us";

impl Gate for Tunables {
    fn before(&self, act: &Act) {
        if act.operation == "rename" && act.object.ends_with("/scaling_governor") {
            let tunable = self.0.join(TUNABLE);
            let governor = std::fs::read_to_string(self.0.join(GOVERNOR)).unwrap();
            // The governor that is about to be replaced.
            if governor.starts_with("schedutil") {
                std::fs::remove_file(tunable).unwrap();
            } else {
                std::fs::write(tunable, "10000\n").unwrap();
            }
        }
    }
}

fn governed() -> (Folder, Access) {
    let folder = folder();
    folder.put(GOVERNOR, "schedutil\n");
    folder.put(TUNABLE, "500\n");
    let access = folder.access().with_gate(Arc::new(Tunables(folder.path(""))));
    (folder, access)
}

#[test]
fn tunables_come_back_with_their_governor() {
    let (folder, access) = governed();
    let plan = Plan::new("p").with(Governor::new(0), Value::text("performance"));
    let applied = apply(&access, &plan, &options()).unwrap();
    assert!(!folder.path(TUNABLE).exists());
    assert_eq!((applied.along.len(), &applied.along[0].now), (1, &None), "{applied:?}");
    let open = transactions(&access).unwrap();
    assert_eq!((open[0].open_entries().count(), open[0].wanted_entries().count()), (2, 1));
    assert!(back(&access, Theirs::Keep)[0].closed);
    assert_eq!((folder.read(GOVERNOR).trim(), folder.read(TUNABLE).trim()), ("schedutil", "500"));
    // If the plan is refused in the end, the rollback happens at once.
    let refused = plan.with(File::new("/sys/c"), Value::text("z"));
    apply(&access, &refused, &options()).unwrap_err();
    assert_eq!((folder.read(GOVERNOR).trim(), folder.read(TUNABLE).trim()), ("schedutil", "500"));
    assert!(transactions(&access).unwrap().is_empty());
}

/// The process is killed between the restoration of the governor and of its tunables, before or after the journal
/// recorded the first one.
#[test]
fn tunables_come_back_after_a_kill_in_between() {
    for noted in [false, true] {
        let (folder, access) = governed();
        let plan = Plan::new("p").with(Governor::new(0), Value::text("performance"));
        apply(&access, &plan, &options()).unwrap();
        let vault = crate::vault::Vault::create(&access).unwrap();
        let (mut journal, _) = crate::journal::Journal::open(&vault, 1).unwrap();
        let append = |journal: &mut crate::journal::Journal, record| {
            journal.append(&vault, &record, crate::journal::Durable::Now).unwrap();
        };
        append(&mut journal, crate::journal::Record::InDoubt { number: 0 });
        Governor::new(0).write(&access, &Value::text("schedutil")).unwrap();
        if noted {
            append(&mut journal, crate::journal::Record::Undone { number: 1 });
        }
        assert_eq!(folder.read(TUNABLE).trim(), "10000", "the kernel's default");
        assert!(back(&access, Theirs::Keep)[0].closed);
        assert_eq!(folder.read(TUNABLE).trim(), "500", "{noted}");
    }
}

#[test]
fn what_goes_along_is_listed_for_each_kind() {
    use crate::knob::{HugePages, Turbo, along::along};
    let cpu = "sys/devices/system/cpu";
    let folder = Folder::new(&[
        (&format!("{cpu}/cpufreq/policy0/related_cpus"), "0 1\n"),
        (&format!("{cpu}/cpufreq/policy0/scaling_governor"), "ondemand\n"),
        (&format!("{cpu}/cpufreq/ondemand/up_threshold"), "95\n"),
        (&format!("{cpu}/intel_pstate/status"), "active\n"),
        (&format!("{cpu}/cpu0/online"), "1\n"),
        ("sys/devices/system/node/node0/x", ""),
        ("sys/devices/system/node/node1/x", ""),
        ("sys/block/sda/queue/iosched/fifo_batch", "16\n"),
        ("proc/irq/24/smp_affinity_list", "0-3\n"),
        ("proc/meminfo", "Hugepagesize:       2048 kB\n"),
        ("proc/sys/net/ipv4/conf/eth0/forwarding", "0\n"),
    ]);
    let of = |setting: AnySetting| -> String {
        let all = along(&folder.access(), &setting).unwrap();
        all.iter().map(AnySetting::label).collect::<Vec<_>>().join("; ")
    };
    for (setting, expected) in [
        (AnySetting::from(Governor::new(0)), &["ondemand/up_threshold", "preference", "HWP request of CPU 1"][..]),
        (File::new(format!("/{cpu}/cpufreq/policy0/scaling_governor")).into(), &["ondemand/up_threshold"]),
        (File::new(format!("/{cpu}/cpu1/cpufreq/scaling_governor")).into(), &["ondemand/up_threshold"]),
        (Turbo {}.into(), &["frequency limits of CPU policy 0", "min_perf_pct"]),
        (File::new(format!("/{cpu}/smt/control")).into(), &["cpu0/online", "governor of CPU policy 0", "interrupt 24"]),
        (File::new(format!("/{cpu}/intel_pstate/status")).into(), &["governor of CPU policy 0", "no_turbo"]),
        (File::new("/sys/kernel/mm/transparent_hugepage/enabled").into(), &["sysctl vm.min_free_kbytes"]),
        (File::new("/proc/sys/vm/dirty_bytes").into(), &["sysctl vm.dirty_ratio"]),
        (Sysctl::new("vm.overcommit_kbytes").into(), &["sysctl vm.overcommit_ratio"]),
        (Sysctl::new("vm.nr_hugepages").into(), &["huge pages of 2048 kB on node 1"]),
        (HugePages::new(1_048_576, None).into(), &["huge pages of 1048576 kB on node 0"]),
        (Sysctl::new("kernel.watchdog").into(), &["sysctl kernel.nmi_watchdog", "sysctl kernel.soft_watchdog"]),
        (Sysctl::new("net.ipv4.ip_forward").into(), &["sysctl net.ipv4.conf.eth0.forwarding"]),
        (Sysctl::new("net.ipv4.tcp_congestion_control").into(), &["tcp_allowed_congestion_control"]),
        (File::new("/sys/block/sda/queue/scheduler").into(), &["iosched/fifo_batch", "nr_requests"]),
        (crate::knob::IrqAffinity::new(24).into(), &["CPU that serves interrupt 24"]),
    ] {
        let label = setting.label();
        let all = of(setting);
        assert!(expected.iter().all(|one| all.contains(one)), "{label}: {all}");
    }
    assert_eq!(of(Sysctl::new("vm.swappiness").into()), "");
}

/// Stops, as SIGKILL would, before the mask of an interrupt is written for the third time.
struct KillAtThird(std::sync::atomic::AtomicU32);

impl Gate for KillAtThird {
    fn before(&self, act: &Act) {
        let is_mask = act.operation == "rename" && act.object.ends_with("/smp_affinity_list");
        let so_far = self.0.fetch_add(u32::from(is_mask), std::sync::atomic::Ordering::Relaxed);
        assert!(!is_mask || so_far < 2, "killed");
    }
}

/// Regression test: the mask stayed at the one CPU to which the interrupt was being moved back, and nothing restored it
/// later.
#[test]
fn a_mask_that_is_narrowed_to_move_an_interrupt_is_widened_again() {
    let folder = folder();
    folder.put("proc/irq/24/smp_affinity_list", "0-1\n");
    folder.put("proc/irq/24/effective_affinity_list", "1\n");
    let plan = Plan::new("p").with(crate::knob::IrqAffinity::new(24), Value::text("0"));
    apply(&folder.access(), &plan, &options()).unwrap();
    folder.put("proc/irq/24/effective_affinity_list", "0\n");
    let killed = folder.access().with_gate(Arc::new(KillAtThird(0.into())));
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| back(&killed, Theirs::Keep))).unwrap_err();
    assert_eq!(folder.read("proc/irq/24/smp_affinity_list").trim(), "1", "killed in between");
    folder.put("proc/irq/24/effective_affinity_list", "1\n");
    let rolled_back = back(&folder.access(), Theirs::Keep);
    assert!(rolled_back[0].closed, "{rolled_back:?}");
    assert_eq!(folder.read("proc/irq/24/smp_affinity_list").trim(), "0-1");
}

const BOOST: &str = "sys/devices/system/cpu/cpufreq/policy0/boost";
const MOST: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";

/// Imitates `cpufreq_update_policy`: when a policy's boost is switched off, a work item lowers its upper limit later.
struct LaterLimit(std::path::PathBuf, std::sync::atomic::AtomicBool);

impl Gate for LaterLimit {
    fn before(&self, act: &Act) {
        if act.operation == "rename"
            && act.object.ends_with("/boost")
            && !self.1.swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            let path = self.0.join(MOST);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                std::fs::write(path, "2000000\n").unwrap();
            });
        }
    }
}

fn boosted() -> (Folder, Access) {
    let folder = folder();
    folder.put(BOOST, "1\n");
    folder.put(MOST, "3000000\n");
    folder.put("sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq", "800000\n");
    let access = folder.access().with_gate(Arc::new(LaterLimit(folder.path(""), false.into())));
    (folder, access)
}

/// Regression test: the limits, which the kernel changes only after the write, stayed in doubt for ever. So a rollback
/// overwrote limits that someone else had set meanwhile.
#[test]
fn someone_elses_limits_stay_though_the_kernel_changed_ours_late() {
    let (folder, access) = boosted();
    let plan = Plan::new("p").with(File::new(format!("/{BOOST}")), Value::text("0"));
    let applied = apply(&access, &plan, &options()).unwrap();
    let now = Value::fields([("min", 800_000), ("max", 2_000_000)]);
    assert_eq!((applied.along.len(), applied.along[0].now.as_ref()), (1, Some(&now)), "the late effect is told");
    let open = transactions(&access).unwrap();
    assert!(open[0].open_entries().all(|entry| matches!(entry.state, State::Ours(_))), "{open:?}");
    folder.put(MOST, "1500000\n");
    let rolled_back = back(&access, Theirs::Keep);
    assert!(!rolled_back[0].closed, "{rolled_back:?}");
    assert_eq!((folder.read(BOOST).trim(), folder.read(MOST).trim()), ("1", "1500000"));
}

/// The same with limits that the transaction sets itself after the change that affects them.
#[test]
fn someone_elses_limits_stay_though_ours_were_set_twice() {
    let plan = Plan::new("p")
        .with(File::new(format!("/{BOOST}")), Value::text("0"))
        .with(crate::knob::Limits::new(0), Value::fields([("min", 800_000), ("max", 1_000_000)]));
    for (theirs, after) in [(Some("1500000"), "1500000"), (None, "3000000")] {
        let (folder, _) = boosted();
        apply(&folder.access(), &plan, &options()).unwrap();
        if let Some(theirs) = theirs {
            folder.put(MOST, &format!("{theirs}\n"));
        }
        let rolled_back = back(&folder.access(), Theirs::Keep);
        assert_eq!(rolled_back[0].closed, theirs.is_none(), "{rolled_back:?}");
        assert_eq!(folder.read(MOST).trim(), after);
    }
}
