use super::*;
use crate::journal::{Durable, Intent, Journal, Record};
use crate::knob::{
    BootFragment, CgroupController, CgroupFile, CgroupFolder, CpuMask, IrqAffinity, IrqbalanceBans, Sysctl,
    UncoreLimits,
};
use crate::vault::Vault;

/// Writes an intact journal which claims that `setting` was changed and had the value `before`.
fn forged(folder: &Folder, setting: AnySetting, before: Value) {
    let vault = Vault::create(&folder.access()).unwrap();
    let begin = crate::journal::Begin { boot: Some("boot-1".into()), ..crate::testing::begin("forged") };
    let mut journal = Journal::create(&vault, begin).unwrap();
    let wanted = Value::text("wanted");
    let intent = Intent { number: 0, setting, identity: None, before, wanted, along: None };
    for record in [Record::Intent(intent), Record::Kept] {
        journal.append(&vault, &record, Durable::Now).unwrap();
    }
}

/// Tests every kind of setting whose name contains a path or a part of one, with invalid values too.
#[test]
fn nothing_is_written_outside_of_what_a_knob_may_write() {
    let text = Value::text;
    let cases: Vec<(AnySetting, Value)> = vec![
        (File::new("/etc/passwd").into(), text("x")),
        (File::new("/sys/../etc/passwd").into(), text("x")),
        (File::new("/proc/sysrq-trigger").into(), text("b")),
        (File::new("/proc/1/mem").into(), text("x")),
        (File::new("/sys/a").into(), text("1\n2")),
        (CpuMask::new("/etc/mask").into(), text("f")),
        (CpuMask::new("/sys/devices/virtual/workqueue/../../../../etc/mask").into(), text("f")),
        (CpuMask::new("/sys/kernel/queues/x/rps_cpus").into(), text("f")),
        (CgroupFolder { path: "/etc/empty".into() }.into(), text("absent")),
        (CgroupFolder { path: "/etc/new".into() }.into(), text("present")),
        (CgroupFile { path: "/sys/fs/cgroup/x/cgroup.procs".into() }.into(), text("1")),
        (CgroupFile { path: "/etc/cpuset.cpus".into() }.into(), text("1")),
        (CgroupController { path: "/etc".into(), controller: "cpuset".into() }.into(), text("on")),
        (CgroupController { path: "/sys/fs/cgroup".into(), controller: "cpuset\n+memory".into() }.into(), text("on")),
        (UncoreLimits { domain: "../../../../../etc".into() }.into(), Value::fields([("max", 1)])),
        (Sysctl::new("kernel.//.//.//.etc.passwd").into(), text("x")),
        (IrqAffinity::new(24).into(), text("")),
        (IrqbalanceBans {}.into(), text("$(touch /tmp/x)")),
        (BootFragment {}.into(), text("quiet\"; touch /tmp/x; \"")),
    ];
    let files = [
        ("etc/passwd", "root\n"),
        ("etc/mask", "0\n"),
        ("etc/empty/x", ""),
        ("etc/cpuset.cpus", "0\n"),
        ("etc/cgroup.controllers", "cpuset\n"),
        ("etc/cgroup.subtree_control", "\n"),
        ("etc/min_freq_khz", "7\n"),
        ("etc/max_freq_khz", "7\n"),
        ("etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=wanted\n"),
        ("etc/default/grub.d/60-apus.cfg", &BootFragment::content("wanted")),
        ("proc/sysrq-trigger", "\n"),
        ("proc/1/mem", "\n"),
        ("proc/irq/24/smp_affinity_list", "0-3\n"),
        ("proc/sys/kernel/random/boot_id", "boot-1\n"),
        ("sys/a", "wanted\n"),
        ("sys/kernel/queues/x/rps_cpus", "0\n"),
        ("sys/fs/cgroup/x/cgroup.procs", "0\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n"),
        ("sys/fs/cgroup/cgroup.subtree_control", "\n"),
    ];
    for (setting, before) in cases {
        let folder = Folder::new(&files);
        std::fs::remove_file(folder.path("etc/empty/x")).unwrap();
        forged(&folder, setting.clone(), before.clone());
        let rolled_back = take_back(&folder, Which::All, Theirs::Overwrite).unwrap();
        let outcome = &rolled_back[0].entries[0].1;
        assert!(
            !rolled_back[0].closed && matches!(outcome, Outcome::Failed(_) | Outcome::Gone),
            "{setting:?}: {outcome}"
        );
        for (path, text) in files.iter().filter(|(path, _)| *path != "etc/empty/x") {
            assert_eq!(folder.read(path), *text, "{setting:?} wrote {path}");
        }
        assert!(folder.path("etc/empty").is_dir() && !folder.path("etc/new").exists(), "{setting:?}");
    }
}

#[test]
fn someone_elses_journal_is_neither_rolled_back_nor_in_the_way() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    // An unfinished transaction, which the next command would roll back.
    let lines = folder.read(JOURNAL);
    folder.put(JOURNAL, &lines[..=lines.trim_end().rfind('\n').unwrap()]);
    std::fs::set_permissions(folder.path(JOURNAL), std::fs::Permissions::from_mode(0o666)).unwrap();
    let error = take_back(&folder, Which::All, Theirs::Keep).unwrap_err();
    assert!(error.to_string().contains("mode 666"), "{error}");
    assert_eq!(take_back_abandoned(&folder.access(), "x").unwrap(), []);
    let other = Plan::new("q").with(File::new("/sys/a"), Value::text("100"));
    assert_eq!(apply(&folder.access(), &other, &options()).unwrap().id, Some(2));
    assert_eq!(state(&folder), ["100\n", "20\n", "x [y]\n"]);
}

/// The changed port has another name now, and another port has its old name.
#[test]
fn a_renamed_port_gets_its_settings_back_and_its_namesake_does_not() {
    let file = |name: &str| format!("sys/class/net/{name}/queues/rx-0/rps_cpus");
    let flush = |name: &str| format!("sys/class/net/{name}/gro_flush_timeout");
    let folder = folder();
    for (name, index) in [("eth0", 2), ("eth1", 3)] {
        folder.put(&format!("sys/class/net/{name}/ifindex"), &format!("{index}\n"));
        folder.put(&file(name), "0\n");
        folder.put(&flush(name), "0\n");
    }
    let wanted = Plan::new("p")
        .with(CpuMask::new(format!("/{}", file("eth0"))), Value::text("3"))
        .with(File::new(format!("/{}", flush("eth0"))), Value::text("20000"));
    apply(&folder.access(), &wanted, &options()).unwrap();
    let net = |name: &str| folder.path(&format!("sys/class/net/{name}"));
    std::fs::rename(net("eth0"), net("lan0")).unwrap();
    std::fs::rename(net("eth1"), net("eth0")).unwrap();
    folder.put(&file("eth0"), "3\n");
    folder.put(&flush("eth0"), "20000\n");
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored; 2]);
    assert_eq!([file("lan0"), flush("lan0")].map(|path| folder.read(&path)), ["0\n", "0\n"]);
    assert_eq!([file("eth0"), flush("eth0")].map(|path| folder.read(&path)), ["3\n", "20000\n"], "another port's own");
}
