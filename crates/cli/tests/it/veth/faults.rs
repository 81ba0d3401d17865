use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use live::device::{Health, Statistics};
use live::telemetry::{Counts, DropReason, State};
use rustix::process::Signal;
use tester::lab::{End, Lab};

use super::inject::{EXPERIMENTAL, Injector, Random};
use super::run::{Apus, napis, public_copy};
use super::{Bed, sys, wait_for};

/// On a CPU of its own, but in the normal class: what is tested here is no latency.
pub(super) const PLACE: [&str; 2] = ["--cpu", "1"];

pub(super) fn pair(name: &str) -> Lab {
    Lab::pair(name).address("tx", "tx0", [10, 78, 0, 1], 24)
}

fn echo(bed: &Bed, name: &str) -> Apus {
    Apus::start(bed, "dut", name, &[&["udp-echo", "dut0", "--address", "10.78.0.2"], &PLACE[..]].concat())
}

#[test]
fn a_link_goes_down_and_up_again() {
    let Some(bed) = Bed::new(&["ping"], Lab::wire) else { return };
    let words = [&["l2fwd", "dutl", "dutr", "--mode", "interrupt"], &PLACE[..]].concat();
    let mut apus = Apus::start(&bed, "dut", "wire", &words);
    bed.pings("left", "10.77.0.2");
    let mut link_down = 0;
    // Without a carrier, as a pulled cable; and switched off on our side.
    for (role, end) in [("right", "right0"), ("dut", "dutr")] {
        bed.good(role, &format!("ip link set {end} down"));
        apus.until(State::LinkDown);
        // The neighbours are known; should they be asked for, that is a frame to be dropped too.
        let said = bed.sh("left", "ping -q -c 20 -i 0.01 -W 0.2 10.77.0.2");
        assert!(String::from_utf8_lossy(&said.stdout).contains(" 100% packet loss"));
        let counts = apus.settled();
        let dropped = counts.dropped(DropReason::LinkDown);
        println!("{end} down: {dropped} frames dropped as link_down, {:?}", counts.ports);
        assert!(dropped > link_down, "{:?}", counts.dropped);
        assert_eq!(dropped, counts.dropped.iter().sum::<u64>());
        assert_eq!((counts.ports[0].health, counts.ports[1].health), (Some(Health::Up), Some(Health::Down)));
        link_down = dropped;
        bed.good(role, &format!("ip link set {end} up"));
        apus.until(State::Running);
        bed.pings("left", "10.77.0.2");
    }
    let counts = apus.settled();
    assert_eq!(counts.dropped(DropReason::LinkDown), link_down, "nothing was dropped since");
    apus.stop();
}

/// A port without native XDP was only said to use generic XDP, without the reason.
#[test]
fn generic_xdp_in_place_of_native_is_explained() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    bed.good("dut", "ip link set lo up");
    for (options, told) in [(&[][..], true), (&["--xdp", "generic"], false)] {
        let ended = Apus::start(&bed, "dut", "generic", &[&["drop", "lo"], options].concat()).stop();
        for said in [&ended.stderr, &ended.stdout] {
            let warned = said.contains("lo uses generic XDP") && said.contains("not supported");
            assert_eq!(warned, told, "{said}");
        }
    }
}

/// Nothing said why no frame came.
#[test]
fn a_link_that_is_down_is_told() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    bed.good("tx", "ip link set tx0 down");
    let mut apus = Apus::launch(&bed, "dut", "down", &["macswap", "dut0"]);
    apus.until(State::LinkDown);
    let said = apus.stop().stdout;
    assert!(said.contains("the link of dut0 is down") && said.contains("ip link set dev dut0 up"), "{said}");
}

#[test]
fn a_deleted_interface_ends_it_and_the_others_are_cleaned_up() {
    for mode in ["poll", "interrupt", "adaptive"] {
        let Some(bed) = Bed::new(&[], Lab::wire) else { return };
        let before = napis(&bed, "dut", "dutr");
        let words = [&["l2fwd", "dutl", "dutr", "--mode", mode], DEFERRAL, &PLACE].concat();
        let mut apus = Apus::start(&bed, "dut", "wire", &words);
        assert!(bed.link("dut", "dutr").has_program);
        wait_for("deferred interrupts", Duration::from_secs(20), || {
            (napis(&bed, "dut", "dutr") == deferred(&before)).then_some(())
        });
        bed.good("dut", "ip link delete dutl");
        let ended = apus.ended(Duration::from_secs(2));
        println!("{mode}: status {:?}: {}", ended.status, ended.stderr.trim());
        assert_eq!(ended.status, Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("dutl") && ended.stderr.contains("deleted"), "{}", ended.stderr);
        assert!(!bed.link("dut", "dutr").has_program, "a program is left on the other port");
        assert_eq!(napis(&bed, "dut", "dutr"), before, "the other port's NAPI");
        assert!(!bed.root.0.join("wire").exists(), "telemetry is left");
    }
}

#[test]
fn a_second_instance_on_the_same_queue_is_refused_and_the_first_goes_on() {
    let Some(bed) = Bed::new(&["ping"], pair) else { return };
    let first = echo(&bed, "first");
    bed.pings("tx", "10.78.0.2");
    let pid = format!("(pid {})", first.pid());
    for mode in ["poll", "adaptive"] {
        Apus::launch(&bed, "dut", "second", &["macswap", "dut0", "--mode", mode]).lacks(&["dut0", &pid]);
        assert!(!bed.root.0.join("second").exists(), "its telemetry is left");
        bed.pings("tx", "10.78.0.2");
    }
    // Of the same name, too.
    Apus::launch(&bed, "dut", "first", &["macswap", "dut0"]).lacks(&["dut0", &pid]);
    bed.pings("tx", "10.78.0.2");
    let counts = first.settled();
    assert_eq!(counts.received_frames, counts.sent_frames);
    first.stop();
    echo(&bed, "second").stop();
}

#[test]
fn a_flood_loses_frames_and_each_is_counted() {
    let Some(bed) = Bed::new(&["ping"], pair) else { return };
    let words = [&["macswap", "dut0", "--mode", "adaptive"], &PLACE[..]].concat();
    let apus = Apus::start(&bed, "dut", "flood", &words);
    let mut injector = Injector::new(&bed, "tx", "tx0");
    let (mut random, mut expected, mut lost) = (Random(3), 0, 0);
    for (pause, count) in [(false, 150_000), (true, 20_000), (false, 50_000), (true, 20_000)] {
        if pause {
            apus.signal(Signal::STOP); // a generator that is faster than a worker that stands still
        }
        injector.send(count, |data| {
            data[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            data[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
            60 + random.below(1400)
        });
        if pause {
            apus.signal(Signal::CONT);
        }
        let counts = apus.settled();
        let (there, here, port) = (bed.link("tx", "tx0"), bed.link("dut", "dut0"), counts.ports[0].statistics);
        println!("sent {there:?}, received {} and {port:?}, returned {here:?}", counts.received_frames);
        expected += u64::from(count);
        // From the generator to its ring, over the wire, to the worker, and back out.
        assert_eq!(there.tx + there.tx_dropped, expected, "what the generator's end took or dropped");
        let lost_now = port.rx_ring_full + port.rx_no_buffer;
        assert_eq!(there.tx, counts.received_frames + lost_now, "sent = received + lost for a full ring");
        assert_eq!(counts.sent_frames, here.tx + port.tx_dropped, "returned = on the wire + dropped by the driver");
        assert_eq!((port.rx_no_buffer, port.rx_invalid, port.tx_invalid), (0, 0, 0), "no slot leaks");
        assert_eq!(counts.dropped(DropReason::TxFull), counts.dropped.iter().sum::<u64>());
        if pause {
            // The rings held what they can hold: had slots been lost before, it would be less.
            assert!(lost_now > lost, "20,000 frames fit into a worker that stands still");
        }
        lost = lost_now;
    }
    apus.stop();
}

/// An Ethernet, IPv4 and UDP frame whose header checksum is right, to be mutilated.
fn datagram(destination: [u8; 6], from: [u8; 4], to: [u8; 4], payload: usize) -> Vec<u8> {
    let mut data = destination.to_vec();
    data.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0]);
    data.extend((28 + payload as u16).to_be_bytes());
    data.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    data.extend(from);
    data.extend(to);
    data.extend([0x10, 0x00, 0, 7]);
    data.extend((8 + payload as u16).to_be_bytes());
    data.extend([0, 0]);
    data.resize(42 + payload, 0x5a);
    let sum: u32 = data[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    data[24..26].copy_from_slice(&sum.to_be_bytes());
    data
}

/// Sends frames that are wrong in any way: noise behind any EtherType, and good frames with some
/// octets changed or cut off.
fn send_garbage(injector: &mut Injector, good: &[Vec<u8>], count: u32, seed: u64) {
    let mut random = Random(seed);
    injector.send(count, |data| match random.below(4) {
        0 => {
            let len = 14 + random.below(1501);
            random.fill(&mut data[..len]);
            len
        }
        1 => {
            let len = 14 + random.below(120);
            random.fill(&mut data[..len]);
            let base = &good[random.below(good.len())];
            data[..6].copy_from_slice(&base[..6]);
            let types = [0x0800u16, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x0000, 0xffff];
            data[12..14].copy_from_slice(&types[random.below(types.len())].to_be_bytes());
            len
        }
        kind => {
            let base = &good[random.below(good.len())];
            data[..base.len()].copy_from_slice(base);
            let cut = if kind == 2 { 14 + random.below(base.len() - 13) } else { base.len() };
            for _ in 0..random.below(4) {
                data[12 + random.below(base.len() - 12)] = random.next() as u8;
            }
            cut
        }
    });
}

#[test]
fn malformed_frames_are_dropped_and_counted() {
    const COUNT: u32 = 30_000;
    if let Some(bed) = Bed::new(&["ping"], pair) {
        let apus = echo(&bed, "echo");
        let mac = bed.guard.lab().mac(&End::new("dut", "dut0")).unwrap();
        let mut arp =
            [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]].concat();
        arp.extend([10, 78, 0, 1, 0, 0, 0, 0, 0, 0, 10, 78, 0, 2]);
        arp.resize(60, 0);
        let good = [datagram(mac, [10, 78, 0, 1], [10, 78, 0, 2], 100), arp];
        survives(&bed, apus, &good, "tx", "tx0", COUNT);
        // The injector is gone, and its program with it.
    }
    if let Some(bed) = Bed::new(&["ping"], Lab::routed) {
        let mac = |role: &str, end: &str| bed.guard.lab().mac(&End::new(role, end)).unwrap();
        let text = |mac: [u8; 6]| mac.map(|octet| format!("{octet:02x}")).join(":");
        let routes = bed.root.0.join("routes.toml");
        let route = |prefix: &str, port: &str, to| {
            format!("[[route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nmac = \"{}\"\n", text(to))
        };
        let all = [
            route("10.77.1.0/24", "dutl", mac("left", "left0")),
            route("10.77.2.0/24", "dutr", mac("right", "right0")),
            route("fd77:1::/64", "dutl", mac("left", "left0")),
            route("fd77:2::/64", "dutr", mac("right", "right0")),
        ];
        std::fs::write(&routes, all.concat()).unwrap();
        let words = [&["l3fwd", "dutl", "dutr", "--routes", routes.to_str().unwrap()], &PLACE[..]].concat();
        let apus = Apus::start(&bed, "dut", "router", &words);
        let good = [datagram(mac("dut", "dutl"), [10, 77, 1, 1], [10, 77, 2, 1], 100)];
        survives(&bed, apus, &good, "left", "left0", COUNT);
    }
}

/// It takes the garbage, accounts for each frame, answers ordinary frames afterwards, and ends well.
fn survives(bed: &Bed, apus: Apus, good: &[Vec<u8>], role: &str, end: &str, count: u32) {
    // Hosts answer what is forwarded to them, so that all of their frames count.
    let arrived = || bed.hosts().0;
    // Multicast listener reports that a lab with IPv6 sent before the program was there. Counted while none is on its way.
    let mut tries = 0;
    let earlier = loop {
        let (before, received) = (arrived(), apus.settled().received_frames);
        tries += 1;
        if arrived() == before || tries == 20 {
            break before - received;
        }
    };
    let mut injector = Injector::new(bed, role, end);
    for part in 0..count / 1000 {
        send_garbage(&mut injector, good, 1000, u64::from(part));
    }
    // Hosts may send one more frame between the two looks; then they are taken again.
    let ring_full = |counts: &Counts| counts.ports.iter().map(|port| port.statistics.rx_ring_full).sum::<u64>();
    let mut tries = 0;
    let (counts, arrived) = loop {
        let (counts, arrived) = (apus.settled(), arrived() - earlier);
        tries += 1;
        if arrived == counts.received_frames + ring_full(&counts) || tries == 20 {
            break (counts, arrived);
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let reasons: Vec<_> =
        DropReason::ALL.iter().map(|r| (r.name(), counts.dropped(*r))).filter(|(_, n)| *n > 0).collect();
    println!(
        "{count} bad frames: {} received, {} sent, dropped {reasons:?}, {:?}",
        counts.received_frames, counts.sent_frames, counts.ports[0].statistics
    );
    assert!(arrived > u64::from(count) * 9 / 10, "of {count} only {arrived} left");
    let port: Statistics = counts.ports.iter().map(|port| port.statistics).sum();
    assert_eq!(arrived, counts.received_frames + port.rx_ring_full, "each frame arrives, or the ring was full");
    assert_eq!((port.rx_no_buffer, port.rx_invalid, port.tx_invalid), (0, 0, 0));
    assert!(counts.dropped(DropReason::Malformed) > u64::from(count) / 20, "{reasons:?}");
    drop(injector);
    bed.pings(role, if role == "tx" { "10.78.0.2" } else { "10.77.2.1" });
    if role == "left" {
        bed.pings(role, "fd77:2::1");
    }
    apus.settled();
    apus.stop();
}

#[test]
fn without_privilege_it_says_what_it_needs() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    let directory = std::env::temp_dir().join(format!("apus-it-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let copy = public_copy(&directory);
    let mut command = std::process::Command::new(copy);
    command.args(["run", "udp-echo", "dut0", "--address", "10.78.0.2", "--telemetry"]).arg(directory.join("telemetry"));
    command.uid(65_534).gid(65_534);
    let child = bed.start("dut", &mut command);
    let said = Apus::adopt(child, directory.clone()).lacks(&["root", "CAP_NET_ADMIN", "CAP_BPF"]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    assert!(!bed.link("dut", "dut0").has_program);
}

#[test]
fn a_kernel_without_af_xdp_is_named() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    let words = ["udp-echo", "dut0", "--address", "10.78.0.2"];
    Apus::launch_as(&bed, "dut", "none", &words, sys::without_af_xdp).lacks(&["AF_XDP", "CONFIG_XDP_SOCKETS"]);
    assert!(!bed.link("dut", "dut0").has_program, "the program is left");
    assert!(!bed.root.0.join("none").exists(), "telemetry is left");
}

#[test]
fn killed_it_starts_again_at_once_and_restores_what_was() {
    let Some(bed) = Bed::new(&["ping"], pair) else { return };
    let before = napis(&bed, "dut", "dut0");
    assert_eq!((before.len(), before[0].1, before[0].2), (1, 0, 0));
    let words = [&["udp-echo", "dut0", "--address", "10.78.0.2"], DEFERRAL, &PLACE].concat();
    for round in 0..3 {
        let apus = Apus::start(&bed, "dut", "again", &words);
        wait_for("deferred interrupts", Duration::from_secs(20), || {
            (napis(&bed, "dut", "dut0") == deferred(&before)).then_some(())
        });
        assert!(bed.link("dut", "dut0").has_program);
        bed.pings("tx", "10.78.0.2");
        let pid = apus.pid();
        apus.kill();
        let left = live::telemetry::instances(&bed.root.0).unwrap();
        assert!(left.0.is_empty() && left.1.len() == 1, "round {round}: what lies there is known as dead: {left:?}");
        // The program goes with the process; settings stay until the next start puts them right.
        wait_for("no XDP program", Duration::from_secs(1), || (!bed.link("dut", "dut0").has_program).then_some(()));
        assert_eq!(napis(&bed, "dut", "dut0"), deferred(&before), "killed, it restores nothing (process {pid})");
    }
    // A start without deferral restores as well, and so does a good end.
    let apus = echo(&bed, "again");
    assert_eq!(napis(&bed, "dut", "dut0"), before, "the next start restored what was before the killed ones");
    let (living, left) = live::telemetry::instances(&bed.root.0).unwrap();
    assert_eq!((living.len(), left.len()), (1, 0), "the dead one's telemetry is gone");
    bed.pings("tx", "10.78.0.2");
    apus.stop();
    assert_eq!(napis(&bed, "dut", "dut0"), before);
    assert!(!bed.link("dut", "dut0").has_program);
    assert!(!bed.root.0.join("again").exists());
    let journals =
        || std::fs::read_dir(bed.journal().join("apus/tune")).unwrap().flatten().map(|file| file.file_name());
    let left: Vec<_> = journals().filter(|name| name.to_string_lossy().ends_with(".journal")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn deferral_is_taken_back_at_a_good_end_and_refused_without_a_napi() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    let before = napis(&bed, "dut", "dut0");
    let words = [&["udp-echo", "dut0", "--address", "10.78.0.2"], DEFERRAL, &PLACE].concat();
    let apus = Apus::start(&bed, "dut", "good", &words);
    wait_for("deferred interrupts", Duration::from_secs(20), || {
        (napis(&bed, "dut", "dut0") == deferred(&before)).then_some(())
    });
    apus.stop();
    assert_eq!(napis(&bed, "dut", "dut0"), before);
    // Without GRO a veth has a NAPI only under native XDP.
    bed.good("dut", "ethtool -K dut0 gro off");
    let apus = Apus::launch(&bed, "dut", "none", &[&words[..], &["--xdp", "generic"]].concat());
    apus.lacks(&["it has no NAPI", "use native XDP"]);
    assert!(!bed.link("dut", "dut0").has_program, "the program is left");
}

/// Without GRO, as veths are made, a NAPI instance goes with the XDP program. The deferral was rolled back after that,
/// so the transaction stayed open, and a killed run's too.
#[test]
fn without_gro_the_deferral_is_rolled_back_before_the_program_goes() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    bed.good("dut", "ethtool -K dut0 gro off");
    let open = || {
        let files = std::fs::read_dir(bed.journal().join("apus/tune")).unwrap();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "journal")).count()
    };
    for option in [DEFERRAL, &["--hold-off"]] {
        let words = [&["macswap", "dut0"], option].concat();
        let ended = Apus::start(&bed, "dut", "gro", &words).stop();
        assert!(!ended.stderr.contains("rolled back") && !ended.stdout.contains("rolled back"), "{}", ended.stderr);
        assert_eq!(open(), 0, "{option:?}");
        let apus = Apus::start(&bed, "dut", "gro", &words);
        wait_for("a transaction", Duration::from_secs(20), || (open() == 1).then_some(()));
        apus.kill();
        wait_for("no XDP program", Duration::from_secs(1), || (!bed.link("dut", "dut0").has_program).then_some(()));
        let ended = Apus::start(&bed, "dut", "gro", &["macswap", "dut0"]).stop();
        assert!(ended.stderr.contains("was rolled back first"), "{}", ended.stderr);
        assert_eq!(open(), 0, "{option:?}");
    }
}

/// By default, only queue 0 was served without a word, and a record of more than eight queues was empty.
#[test]
fn queues_that_are_not_served_are_told_and_too_many_are_not_recorded() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    let queues = "numrxqueues 9 numtxqueues 9";
    bed.good("dut", &format!("ip link add q0 {queues} type veth peer name q1 {queues}"));
    bed.good("dut", "ip link set q0 up && ip link set q1 up");
    for (port, told) in [("q0", true), ("q0:0", false)] {
        let ended = Apus::start(&bed, "dut", "queues", &["drop", port]).stop();
        assert!(ended.stderr.contains("q0: queue 0 of 9, "), "{}", ended.stderr);
        for said in [&ended.stderr, &ended.stdout] {
            let warned =
                said.contains("q0 has 9 receive queues, but only queue 0 is served") && said.contains("q0:0-8");
            assert_eq!(warned, told, "{said}");
        }
    }
    let file = bed.root.0.join("record").display().to_string();
    let words = ["drop", "q0:0-8", "--record", &file];
    let ended = Apus::launch(&bed, "dut", "queues", &words).ended(Duration::from_secs(20));
    assert_eq!(ended.status, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("9 queues") && ended.stderr.contains("at most 8"), "{}", ended.stderr);
}

/// Software interrupt moderation, and how the command is told.
pub(super) const DEFERRAL: &[&str] = &["--defer", "2,200us"];

pub(super) fn deferred(before: &[(u32, u32, u64)]) -> Vec<(u32, u32, u64)> {
    before.iter().map(|(id, _, _)| (*id, 2, 200_000)).collect()
}
