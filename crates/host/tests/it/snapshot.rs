//! Snapshots: by the program and by the script, read again, and compared with the host.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::facts::{Facts, Kind, Root, Why};
use host::snapshot::{Plan, Snapshot};
use units::Nanos;

use crate::support::Scratch;

const LIST: &str = include_str!("../../src/snapshot/paths.txt");
const KEPT: &str = include_str!("../../src/snapshot/kept.txt");

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/apus-snapshot.sh")
}

/// What does not change while the test runs, of the host and of a snapshot of it.
fn agree(host: &Facts, taken: &Facts) {
    assert_eq!(taken.origin.kind, Kind::Snapshot);
    assert_eq!(host.cpus.online, taken.cpus.online);
    assert_eq!(host.cpus.flags, taken.cpus.flags);
    assert_eq!(host.cpus.list.len(), taken.cpus.list.len());
    for (ours, theirs) in host.cpus.list.iter().zip(&taken.cpus.list) {
        assert_eq!((&ours.siblings, &ours.l3, &ours.online), (&theirs.siblings, &theirs.l3, &theirs.online));
        assert_eq!(ours.idle_states.is_absent(), theirs.idle_states.is_absent());
        assert_eq!(ours.frequency.governor, theirs.frequency.governor);
    }
    assert_eq!(host.kernel.version, taken.kernel.version);
    // Switches and numbers are kept.
    if let (Some(ours), Some(theirs)) = (host.kernel.config.value(), taken.kernel.config.value()) {
        assert_eq!(ours.options.len(), theirs.options.len());
        for (name, value) in &ours.options {
            let kept = &theirs.options[name];
            assert!(kept == value || kept == "MASKED" && value.len() > 1, "{name}: {value} and {kept}");
        }
    }
    assert_eq!(host.kernel.config.is_known(), taken.kernel.config.is_known());
    assert_eq!(host.kernel.clocksources, taken.kernel.clocksources);
    assert_eq!(host.kernel.parameters, taken.kernel.parameters);
    for (name, value) in &host.kernel.sysctls {
        let theirs = &taken.kernel.sysctls[name];
        assert!(value == theirs || name.contains("conntrack_count"), "{name}: {value:?} and {theirs:?}");
    }
    assert_eq!(host.idle, taken.idle);
    assert_eq!(host.scaling, taken.scaling);
    assert_eq!(host.uncore, taken.uncore);
    assert_eq!(host.workqueues, taken.workqueues);
    assert_eq!(host.dmi, taken.dmi);
    assert_eq!(host.irqs.default_affinity, taken.irqs.default_affinity);
    assert_eq!(host.irqs.list, taken.irqs.list);
    assert_eq!(host.virtualisation.guest, taken.virtualisation.guest);
    assert_eq!(host.virtualisation.virtio, taken.virtualisation.virtio);
    assert_eq!(host.memory.thp_enabled, taken.memory.thp_enabled);
    assert_eq!(host.memory.swaps, taken.memory.swaps);
    let cgroups = |facts: &Facts| -> BTreeSet<String> {
        facts.cgroups.groups.value().into_iter().flatten().map(|group| group.path.clone()).collect()
    };
    assert!(!cgroups(taken).is_empty() && cgroups(taken).is_subset(&cgroups(host)));
    let pci = |facts: &Facts| -> Vec<_> {
        let devices = facts
            .pci
            .iter()
            .map(|d| (d.address.clone(), d.vendor.get(), d.driver.value().cloned(), d.upstream.clone()));
        devices.collect()
    };
    assert_eq!(pci(host), pci(taken));
    let interval = taken.interval.value().expect("two readings");
    assert!(interval.length >= Nanos::from_millis(150), "{:?}", interval.length);
    assert!(interval.change.interrupts.is_known() && interval.change.softnet.is_known());
    // The script reads first one file of all threads and then the other: of those that end meanwhile it has one only.
    let known = taken.tasks().filter(|task| task.affinity.is_known()).count();
    assert!(known > 5 && known * 10 >= taken.tasks().count() * 9, "{known} of {}", taken.tasks().count());
    let text = format!("{taken:?}");
    assert!(!text.contains("Malformed"), "{}", &text[text.find("Malformed").unwrap()..][..300]);
}

/// Nothing of a host that a stranger must not see.
fn is_discreet(root: &Path) {
    let mut secrets: Vec<String> = Vec::new();
    for link in fs::read_dir("/sys/class/net").unwrap().flatten() {
        let address = fs::read_to_string(link.path().join("address")).unwrap_or_default();
        secrets.extend(Some(address.trim().to_owned()).filter(|mac| mac.len() == 17 && mac != "00:00:00:00:00:00"));
    }
    secrets.extend(fs::read_to_string("/sys/class/dmi/id/product_uuid").ok().map(|uuid| uuid.trim().to_owned()));
    let octets = fs::read(root).unwrap();
    let text = String::from_utf8_lossy(&octets);
    for secret in secrets.iter().filter(|secret| secret.len() > 8) {
        assert!(!text.contains(secret.as_str()), "{secret} is in {}", root.display());
    }
    assert!(!text.contains("etc/shadow"));
}

#[test]
fn of_this_host_by_the_program() {
    let _stays = testkit::settings_stay();
    let place = Scratch::new();
    let snapshot = Snapshot::take(Plan { interval: Nanos::from_millis(200), ..Plan::default() });
    assert!(snapshot.is_complete() && snapshot.size() < 64 << 20, "{} octets", snapshot.size());
    let host = Facts::read(&Root::live());
    for name in ["host.tar", "host.tar.gz", "host.tar.zst"] {
        let size = snapshot.write(&place.join(name)).unwrap();
        println!("{name}: {size} octets");
        let root = Root::open(place.join(name)).unwrap();
        assert_eq!(root.notes(), &[] as &[String]);
        let taken = Facts::read(&root);
        agree(&host, &taken);
        links_agree(&host, &taken);
        assert!(taken.origin.taken.is_some());
        assert_eq!(taken.msrs.of(0x34, 0).why(), Some(&Why::NotRecorded));
    }
    is_discreet(&place.join("host.tar"));
}

/// What a snapshot with `watch` saw of a connection is what the connection did; without, nothing is recorded.
#[test]
fn what_was_seen_between_the_readings() {
    let _stays = testkit::settings_stay();
    let place = Scratch::new();
    let plan = Plan { interval: Nanos::from_millis(200), watch: true, ..Plan::default() };
    Snapshot::take(plan).write(&place.join("host.tar")).unwrap();
    let facts = Facts::read(&Root::open(place.join("host.tar")).unwrap());
    let seen = facts.observed.value().unwrap_or_else(|| panic!("{:?}", facts.observed));
    assert!(seen.samples >= 2 && seen.length_ns >= 200_000_000, "{seen:?}");
    assert!(seen.sockets_unknown.is_none(), "{seen:?}");
    // A masked copy of the recording keeps it.
    let again = Snapshot::of(&Root::open(place.join("host.tar")).unwrap(), Plan::default());
    again.write(&place.join("again.tar")).unwrap();
    assert_eq!(Facts::read(&Root::open(place.join("again.tar")).unwrap()).observed.value(), Some(seen));
    assert!(Facts::read(&Root::live()).observed.is_unknown());
}

fn links_agree(host: &Facts, taken: &Facts) {
    for (ours, theirs) in host.links.value().unwrap().iter().zip(taken.links.value().unwrap()) {
        assert_eq!(
            (&ours.name, ours.mtu.get(), ours.pci.value()),
            (&theirs.name, theirs.mtu.get(), theirs.pci.value())
        );
        assert_eq!(ours.features.value(), theirs.features.value(), "{}", ours.name);
        assert_eq!(ours.coalesce.is_known(), theirs.coalesce.is_known());
        assert_eq!((ours.driver.value(), ours.qdisc.value()), (theirs.driver.value(), theirs.qdisc.value()));
        assert_eq!(ours.rx_queues, theirs.rx_queues);
    }
}

#[test]
fn of_this_host_by_the_script() {
    let _stays = testkit::settings_stay();
    let place = Scratch::new();
    let file = place.join("host.tar");
    let output = Command::new("sh").arg(script()).args(["-o"]).arg(&file).args(["-t", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = Root::open(&file).unwrap();
    assert_eq!(root.notes(), &[] as &[String]);
    let taken = Facts::read(&root);
    agree(&Facts::read(&Root::live()), &taken);
    for link in taken.links.value().unwrap() {
        assert!(link.mtu.is_known(), "{}", link.name);
    }
    is_discreet(&file);
}

#[test]
fn the_script_takes_what_the_program_takes() {
    let text = fs::read_to_string(script()).unwrap();
    for (word, file, list) in [("LIST", "paths.txt", LIST), ("KEPT", "kept.txt", KEPT)] {
        let (_, rest) = text.split_once(&format!("<<'{word}'\n")).expect("the list");
        let (copy, _) = rest.split_once(&format!("\n{word}\n")).expect("its end");
        assert_eq!(copy, list.trim_end(), "copy crates/host/src/snapshot/{file} into tools/apus-snapshot.sh");
    }
}

#[test]
fn the_script_is_one_for_every_shell() {
    for shell in ["sh", "dash", "bash"] {
        let Ok(output) = Command::new(shell).arg("-n").arg(script()).output() else {
            testkit::skip(format!("there is no {shell}"));
            continue;
        };
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// FreeBSD's tools stand in as scripts that print what a host with an XL710 printed in the thread "ixl 40G bad
/// performance" on freebsd-net; the snapshot script is the real one.
#[test]
fn of_a_freebsd_host_by_the_script() {
    let place = Scratch::new();
    for (tool, does) in [
        (
            "uname",
            "case $1 in -s) echo FreeBSD;; -r) echo 11.0-CURRENT;; *) echo FreeBSD host 11.0-CURRENT amd64;; esac",
        ),
        (
            "sysctl",
            "echo 'hw.ixl.rx_itr: 62'; echo 'hw.ixl.tx_itr: 122'; echo 'hw.acpi.cpu.cx_lowest: C8'; echo 'dev.cpu.0.cx_lowest: C1'; echo 'kern.hostuuid: 1-2-3'",
        ),
        ("vmstat", "echo 'interrupt total rate'; echo 'irq293: ixl1:q2 5551234 4211'"),
        (
            "ifconfig",
            "printf 'ixl1: flags=8843<UP,RUNNING> metric 0 mtu 1500\\n\\toptions=e507bb<RXCSUM,TXCSUM,TSO4,LRO>\\n\\tether 68:05:ca:01:02:03\\n\\tinet 10.0.1.1 netmask 0xffffff00\\n\\tmedia: Ethernet autoselect (40Gbase-CR4 <full-duplex>)\\n'",
        ),
        ("pciconf", "echo 'ixl1@pci0:2:0:1: class=0x020000 chip=0x15838086'"),
        ("top", "echo '   11 root -92 - 0K 1152K CPU2 2 0:19 50.98% intr{irq293: ixl1:q2}'"),
        ("cpuset", "[ $1 = -g ] && echo \"irq $3 mask: 2\""),
        ("netstat", "echo netisr"),
        ("dmesg", "echo 'ixl1: link 68:05:ca:01:02:03 from 10.0.0.1'; echo 'login: somebody'"),
    ] {
        testkit::put_script(&place.join(format!("bin/{tool}")), &format!("#!/bin/sh\n{does}\n"));
    }
    place.write("root/boot/loader.conf", "hw.ixl.max_queues=4\nhw.ixl.ringsz=\"256\"\ngeom_eli_passphrase=\"x\"\n");
    place.write("root/etc/rc.conf", "powerd_flags=\"-a max -b max -n max\"\nhostname=\"secret.example\"\n");
    let file = place.join("host.tar.gz");
    let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .arg(script())
        .args(["-t", "0", "-o"])
        .arg(&file)
        .env("PATH", path)
        .env("APUS_ROOT", place.join("root"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let facts = Facts::read(&Root::open(&file).unwrap());
    assert_eq!((facts.origin.kind, facts.origin.os), (Kind::Snapshot, host::facts::Os::FreeBsd));
    let host = facts.freebsd.value().unwrap();
    assert_eq!(host.release.value().map(String::as_str), Some("11.0-CURRENT"));
    assert_eq!(
        (host.sysctl("hw.ixl.tx_itr").get(), host.sysctl("hw.acpi.cpu.cx_lowest").get()),
        (Some("122"), Some("C8"))
    );
    assert_eq!(
        (host.tunable("hw.ixl.max_queues").get(), host.tunable("hw.ixl.ringsz").get()),
        (Some("4"), Some("256"))
    );
    assert_eq!(host.rc.value().unwrap()["powerd_flags"], "-a max -b max -n max");
    let link = &host.interfaces.value().unwrap()[0];
    assert!(link.options.contains(&"TSO4".to_owned()) && link.media.as_deref().unwrap().contains("40Gbase"));
    assert_eq!(host.interrupts.value().unwrap()[0].rate, 4211);
    assert_eq!(host.threads.value().unwrap()[0].cpu_permyriad, 5098);
    assert_eq!(host.irq_cpus[&293].value(), Some(&"2".parse().unwrap()));
    assert_eq!(host.pci.value().unwrap()["ixl1"], "0x15838086");
    let text = format!("{facts:?}");
    for secret in ["68:05:ca", "10.0", "1-2-3", "passphrase", "secret.example", "somebody"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[test]
fn a_snapshot_of_a_recording_is_the_recording() {
    let Some(folder) = crate::support::recorded_hosts() else {
        testkit::skip("there are no recorded hosts (a folder shared/hosts beside the checkout)");
        return;
    };
    let root = Root::open(folder.join("icx2s0.tar.gz")).unwrap();
    let place = Scratch::new();
    Snapshot::of(&root, Plan::default()).write(&place.join("again.tar.zst")).unwrap();
    let (before, after) = (Facts::read(&root), Facts::read(&Root::open(place.join("again.tar.zst")).unwrap()));
    assert_eq!(before.cpus.list[7].frequency, after.cpus.list[7].frequency);
    assert_eq!(before.cpus.list[7].idle_states, after.cpus.list[7].idle_states);
    assert_eq!(before.counters.idle, after.counters.idle);
    assert_eq!(before.uncore, after.uncore);
}
