//! The AF_XDP backend on real veth pairs. Needs root; says so and passes without it.

mod afxdp_lab;
/// Counts calls of the allocator.
#[path = "worker/sys.rs"]
mod allocator;
/// What goes wrong at a port, and what is counted then.
#[path = "afxdp_lab/edges.rs"]
mod edges;

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant as Wall};

use afxdp_lab::{End, Lab, inside, is_root, now, numbered, sh, sockets};
use live::Error;
use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, SocketConfig, XdpMode, ZeroCopy};
use live::device::{Device, Health};
use live::pool::PoolConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use units::Nanos;

#[test]
fn frames_arrive_whole_in_order_and_stamped() {
    if !is_root() {
        return;
    }
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let lab = Lab::new("");
        let config = |name| InterfaceConfig { mode, ..InterfaceConfig::new(name) };
        let mut a = End::new().open(&lab.a, &config("va")).unwrap();
        let mut b = End::new().open(&lab.b, &config("vb")).unwrap();
        assert_eq!(b.devices[0].interface().mode(), mode);
        let mut worst = Nanos::ZERO;
        for batch in 0..40u32 {
            let data: Vec<_> = (0..50).map(|i| numbered(batch * 50 + i, 60 + i as usize * 29)).collect();
            let sent = now();
            a.send(0, 0, &data);
            let got = b.receive(0, 0, data.len());
            assert_eq!(got.len(), data.len(), "{mode:?}: frames lost: {:?}", b.statistics());
            for (got, data) in got.iter().zip(&data) {
                assert_eq!(&got.data, data);
                let arrived = got.arrived.expect("a stamp");
                assert!(sent <= arrived && arrived <= got.picked_up, "{sent:?} {arrived:?} {:?}", got.picked_up);
                worst = worst.max(got.picked_up.since(arrived).unwrap());
            }
        }
        let counts = b.devices[0].interface().counts().unwrap();
        println!("{mode:?}: 2000 frames, at worst picked up {worst} after arrival; {counts:?}");
        assert_eq!((counts.redirected, counts.unstamped), (2000, 0));
        a.receive(0, 0, 0);
        a.devices[0].tx(0, &mut a.pool, &mut Vec::new()); // takes the last completions
        for end in [&mut a, &mut b] {
            end.assert_no_slot_lost();
        }
    }
}

#[test]
fn swapped_frames_go_back() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    for number in 0..3000 {
        a.send(0, 0, &[numbered(number, 64)]);
        let mut frames = Vec::new();
        let end = Wall::now() + Duration::from_secs(1);
        while b.devices[0].rx(0, &mut b.pool, &mut frames, 64) == 0 {
            assert!(Wall::now() < end, "frame {number} did not come");
        }
        for frame in &mut frames {
            let data = b.pool.bytes_mut(frame);
            let (to, from) = data.split_at_mut(6);
            to.swap_with_slice(&mut from[..6]);
        }
        assert_eq!(b.devices[0].tx(0, &mut b.pool, &mut frames), 1);
        let back = a.receive(0, 0, 1);
        let sent = numbered(number, 64);
        let swapped = [&sent[6..12], &sent[..6], &sent[12..]].concat();
        assert_eq!(back[0].data, swapped);
    }
    a.assert_no_slot_lost();
    b.assert_no_slot_lost();
    // Closing gives every slot back, in whatever ring it was.
    for mut end in [a, b] {
        let device = end.devices.pop().unwrap();
        assert_eq!(device.close(&mut end.pool), 0);
        assert_eq!(end.pool.free(), end.pool.frames() as usize);
    }
}

#[test]
fn two_ports_forward_within_one_pool() {
    if !is_root() {
        return;
    }
    // va | vb, wb | wa: the middle namespace (b of both pairs' ends) holds vb and wb.
    let (left, right) = (Lab::new(""), Lab::new(""));
    sh(&format!("ip -n {} link set vb netns {} name wb; ip -n {} link set wb up", right.b, left.b, left.b));
    let mut a = End::new().open(&left.a, &InterfaceConfig::new("va")).unwrap();
    let mut c = End::new().open(&right.a, &InterfaceConfig::new("va")).unwrap();
    let mut middle = End::new().open(&left.b, &InterfaceConfig::new("vb")).unwrap();
    middle = middle.open(&left.b, &InterfaceConfig::new("wb")).unwrap();
    for batch in 0..50u32 {
        let there: Vec<_> = (0..20).map(|i| numbered(batch * 20 + i, 64)).collect();
        let back: Vec<_> = (0..20).map(|i| numbered(1_000_000 + batch * 20 + i, 300)).collect();
        a.send(0, 0, &there);
        c.send(0, 0, &back);
        let End { pool, devices, .. } = &mut middle;
        let [v, w] = devices.as_mut_slice() else { unreachable!() };
        let (mut frames, mut forwarded, end) = (Vec::new(), 0, Wall::now() + Duration::from_secs(2));
        while forwarded < 40 {
            v.rx(0, pool, &mut frames, 32);
            forwarded += w.tx(0, pool, &mut frames);
            w.rx(0, pool, &mut frames, 32);
            forwarded += v.tx(0, pool, &mut frames);
            assert!(Wall::now() < end, "{forwarded} of 40 forwarded");
        }
        let (at_c, at_a) = (c.receive(0, 0, 20), a.receive(0, 0, 20));
        assert!(at_c.iter().map(|g| &g.data).eq(&there), "there");
        assert!(at_a.iter().map(|g| &g.data).eq(&back), "back");
    }
    middle.assert_no_slot_lost();
    // One port gone, the other, which may have bound first or second, goes on; and it comes again.
    let v = middle.devices.remove(0);
    assert_eq!(v.close(&mut middle.pool), 0);
    c.send(0, 0, &[numbered(7, 64)]);
    assert_eq!(middle.receive(0, 0, 1).len(), 1);
    let mut middle = middle.open(&left.b, &InterfaceConfig::new("vb")).unwrap();
    a.send(0, 0, &[numbered(8, 64)]);
    assert_eq!(middle.receive(1, 0, 1).len(), 1);
    middle.assert_no_slot_lost();
}

#[test]
fn the_filter_takes_what_is_ours_and_the_kernel_the_rest() {
    if !is_root() {
        return;
    }
    let eth = |ethertype: u16, payload: &[u8]| {
        let mut data = numbered(0, 12 + 2 + 46);
        data.truncate(12);
        data.extend(ethertype.to_be_bytes());
        data.extend(payload);
        data.resize(data.len().max(60), 0);
        data
    };
    let tagged =
        |ethertype: u16, payload: &[u8]| eth(0x8100, &[&[0, 5], &ethertype.to_be_bytes()[..], payload].concat());
    let udp = |port: u16| [&4000u16.to_be_bytes()[..], &port.to_be_bytes(), &[0, 8, 0, 0]].concat();
    let ipv4 = |protocol: u8, fragment: u16, payload: &[u8]| {
        let head = [0x45, 0, 0, 28, 0, 0, (fragment >> 8) as u8, fragment as u8, 64, protocol, 0, 0];
        [&head[..], &[10, 9, 0, 1, 10, 9, 0, 2], payload].concat()
    };
    let ipv6 = |next: u8, payload: &[u8]| [&[0x60, 0, 0, 0, 0, 8, next, 64], &[0; 32][..], payload].concat();
    let port_filter = Filter::UdpPorts { first: 4000, last: 4001 };
    let cases = [
        (
            Filter::EtherTypes(vec![0x88b5, 0x88b6]),
            vec![
                (eth(0x88b5, &[]), true),
                (eth(0x88b6, &[]), true),
                (eth(0x88b7, &[]), false),
                (eth(0x0000, &[]), false), // an unused place in the list is no EtherType
                (tagged(0x88b5, &[]), true),
            ],
        ),
        (
            port_filter.clone(),
            vec![
                (eth(0x0800, &ipv4(17, 0, &udp(4000))), true),
                (eth(0x0800, &ipv4(17, 0, &udp(4001))), true),
                (eth(0x0800, &ipv4(17, 0, &udp(3999))), false),
                (eth(0x0800, &ipv4(17, 0, &udp(4002))), false),
                (eth(0x0800, &ipv4(17, 0x4000, &udp(4000))), true), // don't fragment
                (eth(0x0800, &ipv4(17, 0x2000, &udp(4000))), false), // more fragments
                (eth(0x0800, &ipv4(17, 0x0007, &udp(4000))), false), // a later fragment
                (eth(0x0800, &ipv4(6, 0, &udp(4000))), false),
                (tagged(0x0800, &ipv4(17, 0, &udp(4000))), true),
                (eth(0x86dd, &ipv6(17, &udp(4000))), true),
                (eth(0x86dd, &ipv6(17, &udp(4002))), false),
                (eth(0x86dd, &ipv6(44, &udp(4000))), false), // a fragment header
                (eth(0x88b5, &ipv4(17, 0, &udp(4000))), false),
            ],
        ),
    ];
    for (filter, frames) in cases {
        let lab = Lab::new("");
        let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
        let config = InterfaceConfig { filter: filter.clone(), ..InterfaceConfig::new("vb") };
        let mut b = End::new().open(&lab.b, &config).unwrap();
        let all: Vec<_> = frames.iter().map(|(data, _)| data.clone()).collect();
        a.send(0, 0, &all);
        let got: Vec<_> = b.receive(0, 0, usize::MAX).into_iter().map(|g| g.data).collect();
        let ours: Vec<_> = frames.into_iter().filter(|(_, ours)| *ours).map(|(data, _)| data).collect();
        assert_eq!(got, ours, "{filter:?}");
        let counts = b.devices[0].interface().counts().unwrap();
        assert_eq!(counts.passed as usize, all.len() - ours.len());
    }

    // And the kernel's own users of the port notice nothing.
    let lab = Lab::new("");
    let config = InterfaceConfig { filter: port_filter, ..InterfaceConfig::new("vb") };
    let mut b = End::new().open(&lab.b, &config).unwrap();
    sh(&format!("ip netns exec {} ping -c 3 -i 0.01 -W 1 -q 10.9.0.2", lab.a));
    let kernel = inside(&lab.b, || UdpSocket::bind("10.9.0.2:5000").unwrap());
    kernel.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let client = inside(&lab.a, || UdpSocket::bind("10.9.0.1:0").unwrap());
    client.send_to(b"kernel", "10.9.0.2:5000").unwrap();
    client.send_to(b"apus", "10.9.0.2:4000").unwrap();
    let mut buffer = [0; 16];
    let len = kernel.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"kernel");
    let got = b.receive(0, 0, 1);
    assert_eq!(&got[0].data[42..46], b"apus");
}

#[test]
fn jumbo_frames_arrive_in_one_piece() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("mtu 9000");
    let pool = PoolConfig { frames: 1024, frame_size: 16384, huge_pages: false };
    let mut a = End::empty(pool).open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::empty(pool).open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    for (number, len) in [9014, 64, 3836, 3837, 7932, 7933, 9014, 60].into_iter().cycle().take(800).enumerate() {
        let data = numbered(number as u32, len);
        a.send(0, 0, std::slice::from_ref(&data));
        let got = b.receive(0, 0, 1);
        assert_eq!(got.len(), 1, "{len} octets: {:?} {:?}", a.statistics(), b.statistics());
        assert!(got[0].data == data, "{len} octets came as {}", got[0].data.len());
        assert!(got[0].arrived.is_some());
    }
    a.devices[0].tx(0, &mut a.pool, &mut Vec::new());
    a.assert_no_slot_lost();
    b.assert_no_slot_lost();
    // With slots that are too short, a long frame is lost, counted, and harms no other.
    drop(b);
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    a.send(0, 0, &[numbered(1, 9014), numbered(2, 64)]);
    let got = b.receive(0, 0, 2);
    assert_eq!(got.len(), 1);
    assert_eq!(b.statistics().rx_invalid, 1);
}

#[test]
fn two_workers_share_an_interface() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("numtxqueues 2 numrxqueues 2");
    let config = |name| InterfaceConfig { queues: vec![0, 1], ..InterfaceConfig::new(name) };
    let mut a = End::new().open(&lab.a, &config("va")).unwrap();
    let interface = inside(&lab.b, || Interface::attach(&config("vb"))).unwrap();
    let mut workers: Vec<_> = [0, 1]
        .into_iter()
        .map(|queue| {
            let mut end = End::new();
            let End { pool, context, devices } = &mut end;
            devices
                .push(inside(&lab.b, || AfXdpDevice::open(&interface, &[queue], &sockets(), context, pool)).unwrap());
            end
        })
        .collect();
    drop(interface); // the devices keep it
    let frames = |queue: usize| (0..[30, 70][queue]).map(|i| numbered(i, 64 + queue)).collect::<Vec<_>>();
    a.send(0, 0, &frames(0));
    a.send(0, 1, &frames(1));
    std::thread::scope(|threads| {
        for (queue, worker) in workers.iter_mut().enumerate() {
            threads.spawn(move || {
                let got: Vec<_> = worker.receive(0, 0, usize::MAX).into_iter().map(|g| g.data).collect();
                assert_eq!(got, frames(queue), "worker {queue}");
                worker.assert_no_slot_lost();
            });
        }
    });
}

#[test]
fn overload_loses_frames_but_counts_each() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    let sent = 5000;
    for number in 0..sent / 50 {
        a.send(0, 0, &(0..50).map(|i| numbered(number * 50 + i, 64)).collect::<Vec<_>>());
    }
    let got = b.receive(0, 0, usize::MAX).len() as u64;
    let (at_a, at_b) = (a.statistics(), b.statistics());
    println!("sent {sent}, got {got}, sender {at_a:?}, receiver {at_b:?}");
    assert!(at_b.rx_ring_full > 4000 && at_b.rx_no_buffer == 0, "the worker was late; the pool was not empty");
    assert_eq!(got + at_b.rx_ring_full + at_b.rx_no_buffer + at_b.rx_invalid + at_a.tx_dropped, u64::from(sent));
    // And with the pool empty, it is the pool's fault.
    let mut hoard = Vec::new();
    while let Some(frame) = b.pool.take() {
        hoard.push(frame);
    }
    for number in 0..10 {
        a.send(0, 0, &(0..50).map(|i| numbered(number * 50 + i, 64)).collect::<Vec<_>>());
        let mut frames = Vec::new();
        b.devices[0].rx(0, &mut b.pool, &mut frames, 64);
        hoard.append(&mut frames);
    }
    let then = b.statistics();
    println!("and with an empty pool {then:?}");
    assert!(then.rx_no_buffer > 200 && then.rx_ring_full == at_b.rx_ring_full);
    hoard.into_iter().for_each(|frame| b.pool.give(frame));
    a.assert_no_slot_lost();
    b.assert_no_slot_lost();
    // A frame too short to be one is refused here, and its slot comes back.
    a.send(0, 0, &[vec![0; 13]]);
    assert_eq!((a.statistics().tx_invalid, a.devices[0].occupancy(0).tx), (1, 0));
    a.assert_no_slot_lost();
}

#[test]
fn a_frame_ends_a_block() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    let blocks = |end: &mut End, ms: i64| {
        end.devices[0].arm(0).unwrap();
        let handle = end.devices[0].wait_handle(0).unwrap();
        let time = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&time)).unwrap() == 0
    };
    assert!(blocks(&mut b, 20), "nothing came, yet it was readable");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            a.send(0, 0, &[numbered(1, 64)]);
        });
        assert!(!blocks(&mut b, 900), "a frame did not end the block");
    });
    assert_eq!((b.devices[0].backlog(0), b.receive(0, 0, 1).len(), b.devices[0].backlog(0)), (1, 1, 0));
}

#[test]
fn busy_polling_says_whether_it_has_an_effect() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::new();
    let interface = inside(&lab.b, || Interface::attach(&InterfaceConfig::new("vb"))).unwrap();
    let config = SocketConfig { busy_poll: Some(64), ..sockets() };
    let End { pool, context, devices } = &mut b;
    devices.push(inside(&lab.b, || AfXdpDevice::open(&interface, &[0], &config, context, pool)).unwrap());
    assert_eq!(b.devices[0].capabilities().busy_poll, None, "not known before a frame came");
    a.send(0, 0, &(0..40).map(|i| numbered(i, 64)).collect::<Vec<_>>());
    assert_eq!(b.receive(0, 0, 40).len(), 40);
    let capabilities = b.devices[0].capabilities();
    println!("after 40 frames: {capabilities:?}");
    assert!(capabilities.busy_poll.is_some(), "still not known after 40 frames");
    assert!(!capabilities.zero_copy, "veth has none");
}

#[test]
fn the_state_of_the_port_is_seen() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    let health = |end: &mut End| end.devices[0].health();
    // The kernel passes a change of the carrier on at most once a second (net/core/link_watch.c).
    let becomes = |end: &mut End, wanted: Health| {
        let deadline = Wall::now() + Duration::from_secs(3);
        while health(end).unwrap() != wanted {
            assert!(Wall::now() < deadline, "it does not become {wanted:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    becomes(&mut b, Health::Up);
    sh(&format!("ip -n {} link set va down", lab.a));
    assert_eq!(health(&mut a).unwrap(), Health::Down, "switched off");
    becomes(&mut b, Health::Down); // no carrier
    b.send(0, 0, &[numbered(0, 64)]);
    assert_eq!(b.statistics().tx_dropped, 1, "what is sent without a carrier is lost, and counted");
    sh(&format!("ip -n {} link set va up", lab.a));
    becomes(&mut a, Health::Up);
    becomes(&mut b, Health::Up);
    a.send(0, 0, &[numbered(1, 64)]);
    assert_eq!(b.receive(0, 0, 1).len(), 1, "traffic after the link came back");
    sh(&format!("ip -n {} link del vb", lab.b));
    for end in [&mut a, &mut b] {
        let lost = health(end).unwrap_err();
        println!("{lost}");
        assert!(matches!(lost, Error::PortLost { .. }), "{lost}");
        assert!(health(end).is_err(), "it stays lost");
        // Nothing panics, and the slots can be had back.
        end.receive(0, 0, 1);
        assert_eq!(end.devices.pop().unwrap().close(&mut end.pool), 0);
        assert_eq!(end.pool.free(), end.pool.frames() as usize);
    }
}

#[test]
fn a_second_instance_is_told_who_is_first() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let first = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    for mode in [XdpMode::Auto, XdpMode::Generic] {
        let config = InterfaceConfig { mode, ..InterfaceConfig::new("vb") };
        let error = End::new().open(&lab.b, &config).err().expect("a second instance was let in");
        println!("{error}");
        let pid = format!("(pid {})", std::process::id());
        assert!(matches!(error, Error::Lacking { .. }));
        assert!(error.to_string().contains(&pid) && error.to_string().contains("ip link set dev vb xdp off"));
    }
    let mut second = End::new();
    let End { pool, context, .. } = &mut second;
    let interface = first.devices[0].interface();
    let error = inside(&lab.b, || AfXdpDevice::open(interface, &[0], &sockets(), context, pool)).unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains("queue 0 of vb is in use by another socket (another instance?)"));
    assert_eq!(pool.free(), pool.frames() as usize, "a failed open keeps no slot");
    drop(first);
    second.open(&lab.b, &InterfaceConfig::new("vb")).expect("the port is free again");
}

#[test]
fn a_port_receives_more_frames_as_long_as_it_is_open() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let seen = || {
        let output = Command::new("ip").args(["-n", &lab.b, "-d", "link", "show", "vb"]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        [" promiscuity 1 ", " allmulti 1 "].map(|word| said.contains(word))
    };
    for wanted in [[false, false], [true, false], [false, true], [true, true]] {
        let [promiscuous, all_multicast] = wanted;
        let config = InterfaceConfig { promiscuous, all_multicast, ..InterfaceConfig::new("vb") };
        let interface = inside(&lab.b, || Interface::attach(&config)).unwrap();
        assert_eq!((seen(), interface.available_queues()), (wanted, Some(1)));
        drop(interface);
        // A child that another test starts at this moment holds the socket until it runs its program.
        let deadline = Wall::now() + Duration::from_secs(5);
        while seen() != [false, false] {
            assert!(Wall::now() < deadline, "the port's membership outlived it");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn wrong_use_is_told_apart_from_what_is_lacking() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let attach = |config: InterfaceConfig| inside(&lab.b, || Interface::attach(&config)).unwrap_err();
    let error = attach(InterfaceConfig::new("nosuch0"));
    assert!(error.lacks() && error.to_string().contains("use one of: lo, vb"), "{error}");
    let error = attach(InterfaceConfig { queues: vec![0, 4], ..InterfaceConfig::new("vb") });
    assert!(!error.lacks() && error.to_string().contains("1 receive queue(s)"), "{error}");
    let interface = inside(&lab.b, || Interface::attach(&InterfaceConfig::new("vb"))).unwrap();
    let open = |queue: u32, config: SocketConfig| {
        let End { mut pool, mut context, .. } = End::new();
        inside(&lab.b, || AfXdpDevice::open(&interface, &[queue], &config, &mut context, &mut pool)).unwrap_err()
    };
    let error = open(1, sockets());
    assert!(!error.lacks(), "{error}");
    let error = open(0, SocketConfig { zero_copy: ZeroCopy::Force, ..sockets() });
    assert!(error.lacks() && error.to_string().contains("zero-copy"), "{error}");
    // From another namespace the same number is another interface.
    let End { mut pool, mut context, .. } = End::new();
    let error = inside(&lab.a, || AfXdpDevice::open(&interface, &[0], &sockets(), &mut context, &mut pool));
    assert!(error.unwrap_err().to_string().contains("another network namespace"));
}

/// Not a test: what `no_permission_is_told` runs without capabilities.
#[test]
fn a_child_without_permission() {
    if std::env::var("APUS_TEST_NO_PERMISSION").is_ok() {
        println!("{}", Interface::attach(&InterfaceConfig::new("lo")).unwrap_err());
    }
}

#[test]
fn no_permission_is_told() {
    if !is_root() {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_without_permission", "--nocapture"])
        .env("APUS_TEST_NO_PERMISSION", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(["CAP_NET_ADMIN", "CAP_BPF", "root"].iter().all(|t| text.contains(t)), "{text}");
}

#[test]
fn the_loop_over_sockets_never_calls_the_allocator() {
    use live::app::macswap::MacSwap;
    use live::cpu::LinuxCpu;
    use live::telemetry::{Identity, Reader, Telemetry};
    use live::worker::{Finish, Stop, Worker};
    use policy::wait::Mode;

    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    for (number, mode) in [Mode::Poll, Mode::Interrupt, Mode::ADAPTIVE].into_iter().enumerate() {
        let End { pool, devices, .. } = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
        let id = Identity {
            instance: format!("allocations-{}-{number}", std::process::id()),
            worker: 0,
            app: "macswap".into(),
            mode: mode.name().into(),
            goal: None,
            ports: vec!["vb".into()],
            cpu: None,
        };
        let telemetry = Telemetry::create(env!("CARGO_TARGET_TMPDIR").as_ref(), &id).unwrap();
        let reader = Reader::open(telemetry.path()).unwrap();
        let stop = Stop::default();
        let devices = devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect();
        let worker = Worker::new(devices, pool, MacSwap, mode.policy(), LinuxCpu, telemetry, stop.clone());
        let mut worker = worker.unwrap();
        let (calls, returned) = std::thread::scope(|threads| {
            let running = threads.spawn(move || {
                let before = allocator::calls();
                assert_eq!(worker.run().unwrap(), Finish::Stopped);
                allocator::calls() - before
            });
            // Long enough for some looks at the port's health, which come each 100 ms.
            let began = Wall::now();
            let mut returned = 0;
            while began.elapsed() < Duration::from_millis(350) || returned < 20 {
                assert!(began.elapsed() < Duration::from_secs(60), "only {returned} frames came back");
                a.send(0, 0, &[numbered(1, 64), numbered(2, 1_400)]);
                returned += a.receive(0, 0, 2).len();
            }
            stop.request();
            (running.join().unwrap(), returned)
        });
        let counts = reader.snapshot().counts;
        println!("{mode}: {} frames, {} polls, {returned} came back", counts.received_frames, counts.polls);
        assert_eq!(calls, 0, "{mode}");
    }
}
