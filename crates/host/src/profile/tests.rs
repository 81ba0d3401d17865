use super::*;
use crate::facts::CpuSet;
use crate::knob::{AnySetting, Setting as _};
use crate::testing::Folder;
use crate::transaction::Meets;

fn layer(text: &str) -> Result<Layer, Error> {
    Layer::parse("p.toml", None, text)
}

fn profile(text: &str) -> Profile {
    Profile { name: "p".into(), summary: "".into(), layers: vec![layer(text).unwrap()], notes: Vec::new() }
}

fn machine() -> Folder {
    let policy = "sys/devices/system/cpu/cpufreq/policy2";
    Folder::new(&[
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/isolated", "2-3\n"),
        (&format!("{policy}/related_cpus"), "2 3\n"),
        (&format!("{policy}/scaling_governor"), "powersave\n"),
        (&format!("{policy}/scaling_min_freq"), "800000\n"),
        (&format!("{policy}/scaling_max_freq"), "3500000\n"),
        (&format!("{policy}/cpuinfo_min_freq"), "800000\n"),
        (&format!("{policy}/cpuinfo_max_freq"), "3500000\n"),
        ("sys/devices/system/cpu/cpu2/cpuidle/state0/latency", "0\n"),
        ("sys/devices/system/cpu/cpu2/cpuidle/state1/latency", "2\n"),
        ("sys/devices/system/cpu/cpu2/cpuidle/state2/latency", "170\n"),
        ("sys/devices/system/cpu/cpu2/cpuidle/state2/disable", "0\n"),
        ("proc/irq/24/smp_affinity_list", "0-3\n"),
        ("etc/default/grub.d/50-other.cfg", ""),
    ])
}

fn items(resolved: &Resolved) -> Vec<String> {
    resolved.plan.items.iter().map(|item| format!("{} = {}", item.setting.label(), item.wanted)).collect()
}

#[test]
fn the_profiles_that_come_with_it_are_right() {
    let machine = machine();
    for (name, summary) in Profile::builtin() {
        assert!(!summary.is_empty(), "{name}");
        let resolved = Profile::load(name).unwrap().resolve(&machine.access(), &Purpose::default()).unwrap();
        for preview in resolved.plan.preview(&machine.access()) {
            let wrong = matches!(&preview.meets, Meets::Refused(crate::knob::Error::Invalid { .. }));
            assert!(!wrong, "{name}: {:?}", preview.meets);
        }
    }
}

#[test]
fn errors_have_file_and_line() {
    for (text, place, part) in [
        ("summary = \"x\"\n[sysctl]\nx = 1\n", "p.toml:3", "net.core.busy_poll"),
        ("summary = \"x\"\n\n[cpus.isolated]\ngovenor = \"performance\"\n", "p.toml:4", "govenor"),
        ("summary = \"x\"\n[cpus.isolated]\nidle_latency = \"10\"\n", "p.toml:3", "expected a duration"),
        ("summary = \"x\"\n[cpus.isolated]\nmin_frequency = \"fast\"\n", "p.toml:3", "expected min, max, base"),
        ("summary = \"x\"\n[interrupts]\ndefault = \"some\"\n", "p.toml:3", "housekeeping"),
        ("summary = \"x\"\n[network.eth0]\ncoalesce = { rx-usec = 1 }\n", "p.toml:3", "rx-usecs"),
        ("summary = \"x\"\n[kernel]\narguments = [\n \"a b\" ]\n", "p.toml:4", "one argument"),
        ("summary = \"x\"\n[sysfs]\n\"/etc/passwd\" = 1\n", "p.toml:3", "below /sys"),
        ("summary = \"x\"\n[power]\nturbo = 1\n", "p.toml:3", "boolean"),
        ("[power]\n", "p.toml:1", "summary"),
        ("summary = \n", "p.toml:1", ""),
    ] {
        let error = layer(text).and_then(|layer| {
            let profile = Profile { name: "p".into(), summary: "".into(), layers: vec![layer], notes: Vec::new() };
            profile.resolve(&machine().access(), &Purpose::default())
        });
        let error = error.expect_err(text);
        assert_eq!(error.place, place, "{error}\n{text}");
        assert!(error.why.contains(part), "{error}");
    }
}

#[test]
fn sections_mean_the_settings_of_the_machine() {
    let text = r#"
        summary = "x"
        [cpus.isolated]
        governor = "performance"
        min_frequency = "max"
        idle_latency = "2us"
        [interrupts]
        all = "housekeeping"
        [kernel]
        arguments = ["nohz_full={isolated}", "irqaffinity={housekeeping}"]
    "#;
    let resolved = profile(text).resolve(&machine().access(), &Purpose::default()).unwrap();
    assert_eq!(
        items(&resolved),
        [
            "governor of CPU policy 2 = performance",
            "frequency limits of CPU policy 2, in kHz = min=3500000",
            "idle state 2 of CPU 2 disabled = 1",
            "CPUs of interrupt 24 = 0-1",
            "kernel arguments in /etc/default/grub.d/60-apus.cfg = nohz_full=2-3 irqaffinity=0-1",
        ]
    );
    assert_eq!(resolved.plan.items[0].from.as_deref(), Some("p.toml:4"));
}

#[test]
fn later_layers_override_earlier_ones() {
    let folder = machine();
    folder.put(
        "p/base.toml",
        "summary = \"b\"\n[sysctl]\n\"a.b\" = 1\n\"a.c\" = 1\n[kernel]\narguments = [\"x=1\", \"y\"]\n",
    );
    folder.put(
        "p/top.toml",
        "summary = \"t\"\ninclude = [\"./base.toml\"]\n[sysctl]\n\"a.b\" = 2\n[kernel]\narguments = [\"x=2\"]\n",
    );
    let top = Profile::load(folder.path("p/top.toml").to_str().unwrap()).unwrap();
    assert_eq!((top.name.as_str(), top.summary.as_str(), top.layers.len()), ("top", "t", 2));
    let resolved = top.resolve(&folder.access(), &Purpose::default()).unwrap();
    let items = items(&resolved);
    assert_eq!(items[..2], ["sysctl a.b = 2", "sysctl a.c = 1"]);
    assert_eq!(resolved.arguments, ["y", "x=2"]);
    folder.put("p/loop.toml", "summary = \"l\"\ninclude = [\"./loop.toml\"]\n");
    let error = Profile::load(folder.path("p/loop.toml").to_str().unwrap()).unwrap_err();
    assert!(error.why.contains("cannot include itself") && error.place.ends_with("loop.toml:2"), "{error}");
    assert!(Profile::load("nothing").unwrap_err().why.contains("powersave"));
    assert!(Profile::load("./nothing.toml").unwrap_err().why.contains("cannot read"));
}

/// By their names alone, the order would be the other way round.
#[test]
fn what_is_said_of_few_counts_more_than_what_is_said_of_many() {
    for (sections, wanted) in [
        ("[cpus.all]\ngovernor = \"powersave\"\n[cpus.\"2-3\"]\ngovernor = \"performance\"\n", "performance"),
        ("[cpus.isolated]\ngovernor = \"performance\"\n[cpus.all]\ngovernor = \"powersave\"\n", "performance"),
        ("[cpus.\"2\"]\ngovernor = \"performance\"\n[cpus.isolated]\ngovernor = \"powersave\"\n", "performance"),
    ] {
        let resolved = profile(&format!("summary = \"x\"\n{sections}"));
        let resolved = resolved.resolve(&machine().access(), &Purpose::default()).unwrap();
        assert_eq!(items(&resolved), [format!("governor of CPU policy 2 = {wanted}")], "{sections}");
    }
}

#[test]
fn an_argument_may_be_repeated_in_one_file() {
    let text = "summary = \"x\"\n[kernel]\narguments = [\"hugepagesz=1G\", \"hugepages=4\", \"hugepagesz=2M\", \"hugepages=512\"]\n";
    let resolved = profile(text).resolve(&machine().access(), &Purpose::default()).unwrap();
    assert_eq!(resolved.arguments, ["hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=512"]);
}

#[test]
fn isolated_cpus_that_are_offline_are_left_out() {
    let folder = machine();
    folder.put("sys/devices/system/cpu/isolated", "2-3,6-7\n");
    let text = "summary = \"x\"\n[cpus.isolated]\ngovernor = \"performance\"\n";
    let resolved = profile(text).resolve(&folder.access(), &Purpose::default()).unwrap();
    assert_eq!(resolved.isolated.to_string(), "2-3");
    assert_eq!(resolved.notes, ["the isolated CPUs 6-7 are offline, so nothing is set for them"]);
    let typed = Purpose { isolated: Some("2-3,6-7".parse().unwrap()), ..Purpose::default() };
    assert!(profile(text).resolve(&folder.access(), &typed).unwrap_err().why.contains("not online"));
}

#[test]
fn a_machine_without_isolated_cpus_is_told_so() {
    let folder = machine();
    folder.put("sys/devices/system/cpu/isolated", "\n");
    let poll = Profile::load("poll").unwrap();
    let resolved = poll.resolve(&folder.access(), &Purpose::default()).unwrap();
    assert!(
        resolved.notes.iter().any(|note| note.starts_with("poll.toml:") && note.contains("--isolated")),
        "{:?}",
        resolved.notes
    );
    let named = |list: &str| Purpose { isolated: Some(list.parse::<CpuSet>().unwrap()), ..Purpose::default() };
    let resolved = poll.resolve(&folder.access(), &named("2")).unwrap();
    assert!(resolved.plan.items.iter().any(|item| matches!(item.setting, AnySetting::IdleState(_))));
    assert_eq!(resolved.housekeeping.to_string(), "0-1,3");
    assert!(poll.resolve(&folder.access(), &named("0-3")).unwrap_err().why.contains("at least one"));
    assert!(poll.resolve(&folder.access(), &named("9")).unwrap_err().why.contains("not online"));
}

#[test]
fn patterns_mean_the_interfaces_that_are_there() {
    let folder = machine();
    for (name, device) in [("ens1f0", true), ("ens1f1", true), ("eth0", true), ("bond0", false)] {
        folder.put(&format!("sys/class/net/{name}/queues/rx-0/rps_cpus"), "0\n");
        if device {
            let driver = if name == "eth0" { "igb" } else { "ice" };
            std::fs::create_dir_all(folder.path(&format!("sys/class/net/{name}/device"))).unwrap();
            let link = folder.path(&format!("sys/class/net/{name}/device/driver"));
            std::os::unix::fs::symlink(format!("../../../../bus/pci/drivers/{driver}"), link).unwrap();
        }
    }
    let meant = |pattern: &str, named: &[&str]| {
        let text = format!("summary = \"x\"\n[network.\"{pattern}\"]\nrps_cpus = \"0\"\n");
        let interfaces = named.iter().map(|name| (*name).to_owned()).collect();
        let purpose = Purpose { interfaces, ..Purpose::default() };
        let resolved = profile(&text).resolve(&folder.access(), &purpose).unwrap();
        let part = |label: String| label.split('/').nth(4).unwrap().to_owned();
        let names: Vec<String> = resolved.plan.items.iter().map(|item| part(item.setting.label())).collect();
        (names.join(" "), resolved.notes.join(" "))
    };
    for (pattern, named, names) in [
        ("*", &[][..], "ens1f0 ens1f1 eth0"),
        ("*", &["bond0"], "bond0"),
        ("ens*", &[], "ens1f0 ens1f1"),
        ("ens*", &["ens1f1", "eth0"], "ens1f1"),
        ("bond?", &[], "bond0"),
        ("driver:ice", &[], "ens1f0 ens1f1"),
        ("driver:i*", &[], "ens1f0 ens1f1 eth0"),
        ("driver:mlx5_core", &[], ""),
    ] {
        let (found, notes) = meant(pattern, named);
        assert_eq!(found, names, "{pattern} {named:?}");
        assert_eq!(notes.contains(pattern), names.is_empty(), "{notes}");
    }
}

/// Regression test: such a list changed nothing and said nothing, so the profile counted as applied.
#[test]
fn a_list_of_cpus_that_the_host_lacks_is_told() {
    for (list, items_left, note) in [("40-43", 0, "40-43"), ("2,40", 3, "40")] {
        let text = format!(
            "summary = \"x\"\n[cpus.\"{list}\"]\ngovernor = \"performance\"\nidle_latency = \"2us\"\nresume_latency = \"0us\"\n"
        );
        let resolved = profile(&text).resolve(&machine().access(), &Purpose::default()).unwrap();
        assert_eq!(items(&resolved).len(), items_left, "{:?}", items(&resolved));
        let expected = format!("p.toml:3: CPUs {note} are offline or do not exist, so nothing is set for them");
        assert_eq!(resolved.notes[0], expected);
    }
}

/// Regression test: the sysctl was set to an empty text.
#[test]
fn a_value_that_needs_isolated_cpus_is_left_out_without_them() {
    let folder = machine();
    folder.put("sys/devices/system/cpu/isolated", "\n");
    let text = "summary = \"x\"\n[sysctl]\n\"kernel.a\" = \"{isolated}\"\n\"kernel.b\" = \"{housekeeping}\"\n\
                [sysfs]\n\"/sys/c\" = \"{isolated}\"\n[kernel]\narguments = [\"nohz_full={isolated}\"]\n";
    let resolved = profile(text).resolve(&folder.access(), &Purpose::default()).unwrap();
    assert_eq!(items(&resolved), ["sysctl kernel.b = 0-3"]);
    let places: Vec<_> = resolved.notes.iter().filter_map(|note| note.split(": ").next()).collect();
    assert_eq!(places, ["p.toml:3", "p.toml:6", "p.toml:8"], "{:?}", resolved.notes);
    assert!(resolved.notes.iter().all(|note| note.contains("no CPU is isolated")));
}
