use super::*;
use crate::testing::Folder;

const A: &str = "/sys/a";

fn knob() -> Knob<AnySetting> {
    Knob(File::new(A).into())
}

#[test]
fn every_kind_survives_json() {
    let kinds: Vec<AnySetting> = vec![
        File::new(A).into(),
        Sysctl::new("kernel.nmi_watchdog").into(),
        IrqAffinity::new(24).into(),
        IrqEffective::new(24).into(),
        IrqDefaultAffinity {}.into(),
        CpuMask::workqueues().into(),
        CpuLatency::new(1).into(),
        IdleState::new(1, 2).into(),
        Governor::new(0).into(),
        Limits::new(0).into(),
        Epp::new(0).into(),
        Turbo {}.into(),
        HwpRequest::new(21).into(),
        UncoreLimits::new("uncore00").into(),
        UncoreMsr::new(0).into(),
        Coalesce::new("eth0").into(),
        CoalesceQueue::new("eth0", 1).into(),
        Napi::new("eth0", 1).into(),
        HugePages::new(2048, None).into(),
        CgroupFile::new("/sys/fs/cgroup/a", "cpuset.cpus").into(),
        DmaLatency {}.into(),
        IrqbalanceBans {}.into(),
        BootFragment {}.into(),
    ];
    for kind in kinds {
        let text = serde_json::to_string(&kind).unwrap();
        assert_eq!(serde_json::from_str::<AnySetting>(&text).unwrap(), kind, "{text}");
        let strange = text.replace('}', ",\"strange\":1}").replace("{,", "{");
        assert!(serde_json::from_str::<AnySetting>(&strange).is_err(), "{strange} was taken");
    }
}

#[test]
fn a_write_without_effect_is_told_apart_from_a_rounded_one() {
    let folder = Folder::new(&[(A, "5\n")]);
    let verify = |before: &str| knob().verify(&folder.access(), &Value::text("9"), Some(&Value::text(before))).unwrap();
    assert!(matches!(verify("5"), Verdict::Unmoved { .. }));
    assert!(matches!(verify("4"), Verdict::Otherwise { .. }));
}

#[test]
fn only_what_is_still_ours_is_taken_back() {
    let folder = Folder::new(&[(A, "theirs\n")]);
    let (before, ours) = (Value::text("before"), Value::text("ours"));
    let restore = |ours, theirs| knob().restore(&folder.access(), &before, ours, theirs).unwrap();
    assert_eq!(restore(Some(&ours), Theirs::Keep), Restored::Theirs { now: Value::text("theirs") });
    assert_eq!(folder.read(A), "theirs\n");
    assert_eq!(restore(Some(&ours), Theirs::Overwrite), Restored::Restored);
    assert_eq!(folder.read(A), "before\n");
    assert_eq!(restore(Some(&ours), Theirs::Keep), Restored::Already);
    folder.put(A, "ours\n");
    assert_eq!(restore(Some(&ours), Theirs::Keep), Restored::Restored);
    folder.put(A, "half\n");
    assert_eq!(restore(None, Theirs::Keep), Restored::Restored, "killed around the change: ours, as far as is known");
    std::fs::remove_file(folder.path(A)).unwrap();
    assert_eq!(restore(Some(&ours), Theirs::Keep), Restored::Gone);
}

#[test]
fn fields_are_taken_back_one_by_one() {
    let file = |name: &str| format!("sys/devices/system/cpu/cpufreq/policy0/{name}");
    let folder = Folder::new(&[(&file("scaling_min_freq"), "800000\n"), (&file("scaling_max_freq"), "2000000\n")]);
    let access = folder.access();
    let knob = Knob(Limits::new(0));
    let change = knob.set(&access, &Value::fields([("min", 1_000_000), ("max", 1_500_000)])).unwrap();
    folder.put(&file("scaling_max_freq"), "1800000\n");
    let restored = knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
    assert!(matches!(restored, Restored::Theirs { .. }));
    assert_eq!(folder.read(&file("scaling_min_freq")), "800000\n");
    assert_eq!(folder.read(&file("scaling_max_freq")), "1800000\n", "the field that someone else changed");
}
