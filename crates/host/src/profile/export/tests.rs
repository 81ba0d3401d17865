use super::*;
use crate::profile::{Profile, Purpose, file::Layer};
use crate::testing::Folder;

const TEXT: &str = r#"
summary = "a test"
[sysctl]
"kernel.nmi_watchdog" = 0
[sysfs]
"/sys/kernel/mm/ksm/run" = 2
[power]
latency = "10us"
[network.eth0]
coalesce = { adaptive-rx = 0, rx-usecs = 5, rx-max-frames = 1 }
features = { rx-gro = false }
private_flags = { link-down-on-close = true }
[[memory.huge_pages]]
size = "1GB"
count = 4
node = 1
[cpus.isolated]
resume_latency = "0us"
[interrupts]
all = "housekeeping"
[kernel]
arguments = ["nohz_full={isolated}", "nosoftlockup"]
"#;

fn export(format: Format) -> Export {
    exported(format, "t", "a test")
}

fn exported(format: Format, name: &str, summary: &str) -> Export {
    let folder = Folder::new(&[
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/cpu/isolated", "2\n"),
        ("sys/class/net/eth0/device/vendor", "0x8086\n"),
        ("proc/irq/24/smp_affinity_list", "0-3\n"),
        ("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", "0\n"),
    ]);
    let layers = vec![Layer::parse("t.toml", None, TEXT).unwrap()];
    let profile = Profile { name: name.into(), summary: summary.into(), layers, notes: Vec::new() };
    let resolved = profile.resolve(&folder.access(), &Purpose::default()).unwrap();
    resolved.export(&folder.access(), &profile.summary, format).unwrap()
}

fn text(export: &Export, file: usize) -> &str {
    &export.files[file].text
}

#[test]
fn every_setting_is_exported_or_named() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
        let export = export(format);
        assert!(!export.files.is_empty(), "{format}");
        if matches!(format, Format::Cmdline) {
            continue;
        }
        let all: String = export
            .files
            .iter()
            .map(|file| file.text.as_str())
            .chain(export.left_out.iter().map(String::as_str))
            .collect();
        for part in ["nmi_watchdog", "ksm/run", "eth0", "nosoftlockup", "pm_qos_resume_latency_us", "latency"] {
            let of_the_cluster = matches!(format, Format::Openshift) && part == "pm_qos_resume_latency_us";
            assert!(of_the_cluster || all.contains(part), "{format} says nothing of {part}:\n{all}");
        }
    }
}

#[test]
fn tuned_gets_its_plugins() {
    let export = export(Format::Tuned);
    let conf = text(&export, 0);
    for line in [
        "[sysctl]\nkernel.nmi_watchdog=0\n",
        "/sys/kernel/mm/ksm/run=2\n",
        "/sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us=n/a\n",
        "force_latency=10\n",
        "cmdline_apus=+nohz_full=2 nosoftlockup\n",
        "devices=eth0\n",
        "coalesce=adaptive-rx off rx-frames 1 rx-usecs 5\n",
        "features=gro off\n",
    ] {
        assert!(conf.contains(line), "{line:?} is not in\n{conf}");
    }
    let script = text(&export, 1);
    assert!(script.contains("[ ! -e /sys/class/net/eth0 ] || ethtool --set-priv-flags eth0 link-down-on-close on\n"));
    // tuned's plugin sysfs ignores files that are not below /sys.
    assert!(!conf.contains("/proc/"), "{conf}");
    assert!(script.contains("save_set_sys apus_0 /proc/irq/24/smp_affinity_list 0-1,3\n"), "{script}");
    assert!(export.left_out.is_empty(), "{:?}", export.left_out);
}

#[test]
fn systemd_gets_two_files() {
    let export = export(Format::Systemd);
    assert_eq!(export.files[0].place, "/etc/sysctl.d/90-apus-t.conf");
    assert!(text(&export, 0).ends_with("kernel.nmi_watchdog = 0\n"));
    let unit = text(&export, 1);
    assert!(unit.contains("then printf '%%s\\\\n' 2 >/sys/kernel/mm/ksm/run ||"), "{unit}");
    assert!(unit.contains("then ethtool -C eth0 adaptive-rx off rx-frames 1 rx-usecs 5 ||"), "{unit}");
    assert_eq!(export.left_out.len(), 2, "the arguments and the held request: {:?}", export.left_out);
}

#[test]
fn the_others_get_theirs() {
    assert_eq!(text(&export(Format::Cmdline), 0), "nohz_full=2 nosoftlockup\n");
    let openshift = export(Format::Openshift);
    let yaml = text(&openshift, 0);
    for line in [
        "kind: PerformanceProfile\n",
        "    isolated: \"2\"\n    reserved: \"0-1,3\"\n",
        "\n    balanceIsolated: false\n",
        "size: \"1G\"\n        count: 4\n        node: 1\n",
        "    - \"nosoftlockup\"\n",
    ] {
        assert!(yaml.contains(line), "{line:?} is not in\n{yaml}");
    }
    assert!(!yaml.contains("nohz_full"), "the operator sets it itself");
    let ansible = export(Format::Ansible);
    let yaml = text(&ansible, 0);
    assert!(yaml.contains("content: !unsafe \"kernel.nmi_watchdog = 0\\n\""), "{yaml}");
    assert!(yaml.contains("ethtool -K eth0 rx-gro off || exit 1"), "{yaml}");
    let object = export(Format::OpenshiftTuned);
    let yaml = text(&object, 0);
    assert!(
        yaml.contains("kind: Tuned\n") && yaml.contains("\n      [sysctl]\n      kernel.nmi_watchdog=0\n"),
        "{yaml}"
    );
    assert!(object.left_out.iter().any(|left| left.contains("interrupt 24")), "{:?}", object.left_out);
}

/// No summary, hostile or careless, may begin a new line, section, template, specifier or comment.
#[test]
fn a_summary_is_text_in_every_format() {
    for format in Format::ALL {
        let bad =
            "a \"b\" 'c' %n {{ lookup('pipe', 'id') }} ${f:exec:id} # d\n[sysctl]\nvm.swappiness=1\u{1b}[2J\u{2028}e\\";
        let export = exported(format, "t/ü x", bad);
        for file in &export.files {
            assert!(!file.text.lines().any(|line| line.trim() == "vm.swappiness=1"), "{format}:\n{}", file.text);
            assert!(!file.text.contains(['\u{1b}', '\u{2028}']), "{format}");
            let ends = |line: &str| line.ends_with('\\') && line.contains("swappiness");
            assert!(!file.text.lines().any(ends), "{format}: a line is continued");
            assert!(file.name.is_ascii() && !file.name.contains(' '), "{}", file.name);
        }
    }
}
