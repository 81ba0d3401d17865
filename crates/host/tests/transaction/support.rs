use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use host::journal::Lease;
use host::knob::{
    Access, BootFragment, CgroupFile, CgroupFolder, File, Governor, HwpRequest, IrqAffinity, IrqbalanceBans, Limits,
    Sysctl, Theirs, UncoreMsr, Value,
};
use host::transaction::{ApplyOptions, Error, Plan, RollbackOptions, RolledBack, Which, rollback};

/// A folder of a test's own, removed on drop.
pub struct Root(pub PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A machine as a folder, with settings of many kinds.
pub fn machine(name: &str) -> Root {
    let root = Root(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())));
    let _ = std::fs::remove_dir_all(&root.0);
    let policy = "sys/devices/system/cpu/cpufreq/policy0";
    for (path, text) in [
        ("proc/sys/kernel/nmi_watchdog", "1\n".to_owned()),
        ("proc/sys/kernel/random/boot_id", "the-boot\n".into()),
        ("proc/irq/24/smp_affinity_list", "0-3\n".into()),
        ("proc/cpuinfo", "processor: 0\nphysical id: 0\n\nprocessor: 1\nphysical id: 0\n".into()),
        ("sys/devices/system/cpu/online", "0-1\n".into()),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n".into()),
        (&format!("{policy}/scaling_governor"), "powersave\n".into()),
        (&format!("{policy}/scaling_setspeed"), "<unsupported>\n".into()),
        (&format!("{policy}/scaling_min_freq"), "800000\n".into()),
        (&format!("{policy}/scaling_max_freq"), "3500000\n".into()),
        ("msr/0x774", "0 0x80002308\n1 0x80002308\n".into()),
        ("msr/0x620", "0 0x818\n1 0x818\n".into()),
        ("sys/fs/cgroup/cgroup.procs", "".into()),
        ("etc/default/irqbalance", "# bans\nX=1".into()),
        ("etc/default/grub.d/50-other.cfg", "Y=1\n".into()),
    ] {
        let path = root.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

/// Changes one setting of each kind that [`machine`] has.
pub fn plan() -> Plan {
    Plan::new("everything")
        .with(Sysctl::new("kernel.nmi_watchdog"), Value::text(0))
        .with(IrqAffinity::new(24), Value::text("0"))
        .with(File::new("/sys/kernel/mm/transparent_hugepage/enabled"), Value::text("never"))
        .with(Governor::new(0), Value::text("performance"))
        .with(Limits::new(0), Value::fields([("min", 1_000_000), ("max", 1_200_000)]))
        .with(HwpRequest::new(1), HwpRequest::fixed(8))
        .with(UncoreMsr::new(0), Value::fields([("min", 0x15), ("max", 0x15)]))
        .with(CgroupFolder { path: "/sys/fs/cgroup/apus".into() }, Value::text("present"))
        .with(IrqbalanceBans {}, Value::text("2-3"))
        .with(BootFragment {}, Value::text("nohz_full=2-3"))
}

/// The same, and then one that is refused: everything is taken back.
pub fn refused_plan() -> Plan {
    plan().with(CgroupFile::new("/sys/fs/cgroup", "cgroup.procs"), Value::text("a\nb"))
}

pub fn options() -> ApplyOptions {
    ApplyOptions {
        command: "a test".into(),
        version: "0".into(),
        patience: Duration::from_secs(10),
        lease: Lease::Open,
        keep_going: false,
    }
}

pub fn take_back(access: &Access, which: Which) -> Result<Vec<RolledBack>, Error> {
    let mut options = RollbackOptions {
        command: "a test".into(),
        patience: Duration::from_secs(10),
        damaged: false,
        forget: false,
        theirs: Theirs::Keep,
        ask: None,
    };
    rollback(access, which, &mut options)
}

/// Every file and folder below `root` with its mode and its octets, but for our own journal.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(root).unwrap().to_owned();
            if relative.starts_with("var") {
                continue;
            }
            let mode = path.metadata().unwrap().permissions().mode();
            if path.is_dir() {
                found.insert(relative, (mode, None));
                folders.push(path);
            } else {
                found.insert(relative, (mode, Some(std::fs::read(&path).unwrap())));
            }
        }
    }
    found
}

/// Whether this is root, as which alone namespaces and mounts can be made; says so if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testkit::skip("needs root");
    }
    root
}

/// Runs a program of the system.
pub fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs the ignored test `name` of this binary in a process of its own, in a private network namespace, with an empty
/// folder at /var/lib. All of that ends with the process, however it ends: nothing reaches the machine's own journal.
pub fn in_a_world_of_its_own(name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("world-{}", std::process::id()));
    let folder = Root(folder);
    std::fs::create_dir_all(&folder.0).unwrap();
    let enter = "mount --bind \"$0\" /var/lib && mount -t sysfs sysfs /sys && exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "--", "sh", "-c", enter])
        .arg(&folder.0)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .status()
        .unwrap();
    assert!(status.success(), "{name}: {status}");
    assert!(folder.0.join("apus/tune").is_dir(), "it kept its journal in its own folder");
}
