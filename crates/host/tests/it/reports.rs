//! Reports that others' tools make: of sos, of must-gather, packed in each of the ways.

use std::fs;

use host::facts::{Facts, Kind, Root, RootError};

use crate::support::{Scratch, gzip, tar};

#[test]
fn a_report_of_sos() {
    let place = Scratch::new();
    let files: &[(&str, &[u8])] = &[
        ("sosreport-host-2026/proc/cmdline", b"quiet isolcpus=2-3\n"),
        ("sosreport-host-2026/sos_commands/kernel/sysctl_-a", b"kernel.nmi_watchdog = 1\nvm.swappiness = 60\n"),
        ("sosreport-host-2026/sos_commands/kernel/dmesg", b"[1.0] clocksource: Switched to clocksource tsc\n"),
        (
            "sosreport-host-2026/sos_commands/networking/ethtool_-g_ens1f0",
            b"Ring parameters for ens1f0:\nPre-set maximums:\nRX:\t4096\nCurrent hardware settings:\nRX:\t512\n",
        ),
        ("sosreport-host-2026/sos_commands/networking/ethtool_-i_ens1f0", b"driver: ice\nbus-info: 0000:3b:00.0\n"),
        (
            "sosreport-host-2026/sos_commands/systemd/systemctl_list-units",
            b"  irqbalance.service loaded active running x\n",
        ),
        (
            "sosreport-host-2026/sos_commands/pci/lspci_-nnvv",
            b"3b:00.0 Ethernet controller [0200]: X [8086:1592]\n\t\tLnkSta: Speed 16GT/s, Width x8\n",
        ),
        ("sosreport-host-2026/sos_commands/logs/journalctl", b"not kept"),
    ];
    let path = place.write("sosreport.tar.gz", gzip(&tar(files)));
    let facts = Facts::read(&Root::open(&path).unwrap());
    assert_eq!(facts.origin.kind, Kind::SosReport);
    assert_eq!(facts.sysctl("kernel.nmi_watchdog").get(), Some("1"));
    assert_eq!(facts.sysctl("vm.swappiness").source().as_str(), "sysctl vm.swappiness");
    assert_eq!(facts.kernel.messages.value().unwrap().len(), 1);
    let link = facts.link("ens1f0").unwrap();
    assert_eq!((link.rings.get().unwrap().rx, link.rings.get().unwrap().rx_max), (Some(512), Some(4096)));
    assert!(facts.services.running.value().unwrap().contains("irqbalance.service"));
    assert_eq!(facts.pci.device("0000:3b:00.0").unwrap().speed_mts.get(), Some(16_000));
    assert!(facts.idle.driver.is_unknown());
}

#[test]
fn a_must_gather_of_one_node_and_of_two() {
    let place = Scratch::new();
    let sysinfo = gzip(&tar(&[("proc/cmdline", b"one\n"), ("sys/devices/system/cpu/cpu0/online", b"1\n")]));
    place.write("must-gather/quay/nodes/worker1/sysinfo.tgz", &sysinfo);
    place.write("must-gather/quay/nodes/worker1/kubelet.log", "x");
    place.write("must-gather/event-filter.html", "x");
    place.write("must-gather/version/x", "x");
    let facts = Facts::read(&Root::open(place.join("must-gather")).unwrap());
    assert_eq!(facts.cmdline.value().unwrap().raw, "one");
    place.write("must-gather/quay/nodes/worker2/sysinfo.tgz", &sysinfo);
    let error = Root::open(place.join("must-gather")).unwrap_err();
    assert!(matches!(error, RootError::NotAHost { .. }));
    assert!(error.to_string().contains("worker1") && error.to_string().contains("worker2"), "{error}");
}

#[test]
fn packed_in_each_of_the_ways() {
    let place = Scratch::new();
    let archive = tar(&[("./proc/cmdline", b"quiet\n")]);
    let zstd = ruzstd::encoding::compress_to_vec(archive.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    for (name, octets) in
        [("a.tar", archive.clone()), ("a.tar.gz", gzip(&archive)), ("a.tar.zst", zstd), ("a.tar.xz", xz(&archive))]
    {
        let path = place.write(name, octets);
        let facts = Facts::read(&Root::open(&path).unwrap_or_else(|error| panic!("{name}: {error}")));
        assert_eq!(facts.cmdline.value().unwrap().raw, "quiet", "{name}");
    }
}

/// Packed by the tool itself: the crate that unpacks is built without its other half.
fn xz(octets: &[u8]) -> Vec<u8> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("xz").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("xz");
    child.stdin.take().unwrap().write_all(octets).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_folder_with_the_host_below_it() {
    let place = Scratch::new();
    place.write("unpacked/host/proc/cmdline", "quiet\n");
    let facts = Facts::read(&Root::open(place.path()).unwrap());
    assert_eq!(facts.cmdline.value().unwrap().raw, "quiet");
    assert_eq!(Root::open("/").unwrap().kind(), Kind::Live);
    fs::create_dir(place.join("empty")).unwrap();
    let error = Root::open(place.join("empty")).unwrap_err().to_string();
    assert!(error.contains("proc and sys"), "{error}");
}
