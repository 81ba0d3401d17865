//! Archives and folders that are broken, or meant to do harm: a clear error, or what is left, within bounds.

use std::fs;
use std::os::unix::fs::symlink;

use host::facts::{Facts, Root, Why};

use crate::support::{Scratch, gzip, tar};

fn cmdline(root: &Root) -> Option<String> {
    Facts::read(root).cmdline.value().map(|line| line.raw.clone())
}

/// A tar archive of one entry with a header that nobody checks.
fn raw_entry(path: &str, kind: tar::EntryType, link: &str, contents: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(contents.len() as u64);
    header.set_cksum();
    let mut entry = header.as_bytes().to_vec();
    entry.extend(contents);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

#[test]
fn a_truncated_archive_gives_what_came_before() {
    let place = Scratch::new();
    let whole = tar(&[("proc/cmdline", b"quiet\n"), ("proc/version", &[b'x'; 5000])]);
    for (name, octets) in [("a.tar", whole[..3000].to_vec()), ("a.tar.gz", gzip(&whole)[..].to_vec())] {
        let cut = if name.ends_with("gz") { octets.len() - 20 } else { octets.len() };
        let root = Root::open(place.write(name, &octets[..cut])).unwrap();
        assert_eq!(cmdline(&root).as_deref(), Some("quiet"), "{name}");
        assert!(root.notes()[0].contains("is truncated"), "{:?}", root.notes());
    }
    let opened = |octets: &[u8]| Root::open(place.write("b.tar", octets)).unwrap_err().to_string();
    for octets in [&whole[..300], b"just a text", &gzip(b"just a text"), &[b'x'; 9000]] {
        assert!(opened(octets).contains("it is not an archive"), "{}", opened(octets));
    }
    assert!(opened(b"").contains("neither proc nor sys"), "{}", opened(b""));
    // The end came before any file of a host, in the archive or in the first compressed block.
    let early = tar(&[("etc/hostname", &[b'x'; 5000])]);
    for octets in [&early[..3000], &gzip(&whole)[..15], &gzip(&early)[..40]] {
        assert!(opened(octets).contains("the archive is truncated"), "{}", opened(octets));
    }
}

#[test]
fn a_truncated_snapshot_no_longer_says_that_anything_is_absent() {
    let place = Scratch::new();
    let manifest = b"apus-snapshot 1\nlooked: proc/swaps\n".as_slice();
    let whole = tar(&[("apus-snapshot", manifest), ("proc/cmdline", b"quiet\n"), ("proc/version", &[b'x'; 5000])]);
    let facts = Facts::read(&Root::open(place.write("a.tar", &whole)).unwrap());
    assert!(facts.memory.swaps.is_absent());
    let facts = Facts::read(&Root::open(place.write("b.tar", &whole[..3500])).unwrap());
    assert_eq!(facts.memory.swaps.why(), Some(&Why::NotRecorded));
    assert_eq!(facts.origin.notes.len(), 1);
}

#[test]
fn paths_that_lead_outside_are_left_out() {
    let place = Scratch::new();
    let file = tar::EntryType::Regular;
    let octets = archive(&[
        raw_entry("../../proc/version", file, "", b"evil"),
        raw_entry("sys/../../x", file, "", b"evil"),
        raw_entry("/proc/cmdline", file, "", b"quiet\n"),
        raw_entry("proc/meminfo", tar::EntryType::Symlink, "/etc/shadow", b""),
        raw_entry("proc/swaps", tar::EntryType::Symlink, "../../../../../../etc/passwd", b""),
        raw_entry("proc/mounts", tar::EntryType::Link, "proc/cmdline", b""),
        raw_entry("proc/modules", tar::EntryType::Fifo, "", b""),
        raw_entry("proc/stat", tar::EntryType::Symlink, "uptime", b""),
        raw_entry("proc/uptime", tar::EntryType::Symlink, "stat", b""),
    ]);
    let root = Root::open(place.write("a.tar", octets)).unwrap();
    assert_eq!(root.notes().len(), 2, "{:?}", root.notes());
    let facts = Facts::read(&root);
    assert_eq!(facts.cmdline.value().unwrap().raw, "quiet");
    assert_eq!(facts.memory.meminfo.why(), Some(&Why::NotRecorded), "the link stays inside, where nothing is");
    assert_eq!(facts.memory.swaps.why(), Some(&Why::NotRecorded));
    assert_eq!(facts.memory.mounts.value().map(Vec::len), Some(0), "a hard link is the file it names");
    assert!(facts.kernel.modules.is_unknown());
    assert!(matches!(facts.counters.cpu_times.why(), Some(Why::Unsupported(why)) if why.contains("symbolic links")));
}

#[test]
fn links_in_a_folder_stay_inside_and_loops_end() {
    let place = Scratch::new();
    place.write("host/proc/cmdline", "quiet\n");
    let outside = place.write("secret", "MemTotal: 1 kB\n");
    symlink(&outside, place.join("host/proc/meminfo")).unwrap();
    symlink("../../secret", place.join("host/proc/swaps")).unwrap();
    symlink("loop", place.join("host/proc/loop")).unwrap();
    symlink("loop", place.join("host/proc/modules")).unwrap();
    symlink("/", place.join("host/sys")).unwrap();
    let facts = Facts::read(&Root::open(place.join("host")).unwrap());
    assert_eq!(facts.cmdline.value().unwrap().raw, "quiet");
    assert_eq!(facts.memory.meminfo.why(), Some(&Why::NotRecorded));
    assert_eq!(facts.memory.swaps.why(), Some(&Why::NotRecorded));
    assert!(matches!(facts.kernel.modules.why(), Some(Why::Unsupported(why)) if why.contains("symbolic links")));
}

#[test]
fn a_pipe_in_a_folder_does_not_hang_the_reader() {
    let place = Scratch::new();
    place.write("proc/cmdline", "quiet\n");
    let pipe = place.join("proc/interrupts");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let facts = Facts::read(&Root::open(place.path()).unwrap());
    assert!(matches!(facts.counters.interrupts.why(), Some(Why::Unsupported(why)) if why.contains("regular")));
}

#[test]
fn a_file_of_100_megabytes_is_not_read() {
    let place = Scratch::new();
    place.write("host/proc/cmdline", "quiet\n");
    let file = fs::File::create(place.join("host/proc/interrupts")).unwrap();
    file.set_len(100 << 20).unwrap();
    let facts = Facts::read(&Root::open(place.join("host")).unwrap());
    assert!(matches!(facts.counters.interrupts.why(), Some(Why::Unsupported(why)) if why.contains("longer")));
}

#[test]
fn names_that_are_too_long_end_the_archive() {
    let place = Scratch::new();
    let long = "x".repeat(9000);
    let octets = archive(&[
        raw_entry("proc/cmdline", tar::EntryType::Regular, "", b"quiet\n"),
        raw_entry("././@LongLink", tar::EntryType::GNULongName, "", long.as_bytes()),
    ]);
    let root = Root::open(place.write("a.tar", octets)).unwrap();
    assert!(root.notes()[0].contains("name is longer"), "{:?}", root.notes());
    assert_eq!(cmdline(&root).as_deref(), Some("quiet"));
}

#[test]
fn text_that_is_not_utf8_and_tables_that_are_none() {
    let root = Root::given([
        ("proc/cmdline", b"quiet caf\xe9=1\n".as_slice()),
        ("proc/interrupts", b"\xff\xfe\x00\x00"),
        ("proc/irq/5/smp_affinity_list", b"0-4000000000\n"),
        ("sys/devices/system/cpu/online", b"\x80\n"),
        ("sys/devices/system/cpu/cpu0/online", b"maybe\n"),
        ("proc/irq/default_smp_affinity", b""),
        ("msr/0x34", b"0 0xzz\n"),
        ("proc/cpuinfo", b"processor : 99999999\n"),
    ]);
    let facts = Facts::read(&root);
    assert!(facts.cmdline.value().unwrap().raw.starts_with("quiet caf\u{fffd}"));
    let malformed = |why: Option<&Why>| matches!(why, Some(Why::Malformed(_)));
    assert!(malformed(facts.counters.interrupts.why()));
    assert!(malformed(facts.irqs.irq(5).unwrap().affinity.why()));
    assert!(malformed(facts.cpus.online.why()) && malformed(facts.cpus.cpu(0).unwrap().online.why()));
    assert!(malformed(facts.irqs.default_affinity.why()) && malformed(facts.cpus.vendor.why()));
    assert!(malformed(facts.msrs.of(0x34, 0).why()));
}

#[test]
fn an_unreadable_directory_is_not_an_empty_one() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        // Root reads everything: a snapshot's list of what was refused says the same.
        let root = Root::given([("apus-snapshot", "apus-snapshot 1\nlooked: proc/irq\n"), ("denied", "/proc/irq\n")]);
        assert_eq!(Facts::read(&root).irqs.list.why(), Some(&Why::NotPermitted));
        return;
    }
    let place = Scratch::new();
    place.write("proc/irq/5/node", "0\n");
    fs::set_permissions(place.join("proc/irq"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(Facts::read(&Root::open(place.path()).unwrap()).irqs.list.why(), Some(&Why::NotPermitted));
    fs::set_permissions(place.join("proc/irq"), fs::Permissions::from_mode(0o755)).unwrap();
}
