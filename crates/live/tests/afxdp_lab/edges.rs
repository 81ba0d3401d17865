//! Failures of an AF_XDP port: full rings, missing queues and interfaces, and how lost frames are counted.

use std::process::Command;
use std::time::{Duration, Instant as Wall};

use live::Error;
use live::app::{App, Verdict};
use live::cpu::LinuxCpu;
use live::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, SocketConfig, XdpMode};
use live::device::link::Link;
use live::device::{Device, Health};
use live::pool::{Frame, PoolConfig, slot_for};
use live::port::{Backend, Opening};
use live::telemetry::{Identity, Reader, Telemetry};
use live::worker::{Stop, Worker};
use policy::wait::Mode;

use crate::afxdp_lab::{End, Lab, inside, is_root, numbered, sh, sockets};

/// Lets the kernel empty the ring of a veth, which holds 256 frames, once per second.
fn slow_down(namespace: &str, interface: &str) {
    sh(&format!(
        "ip netns exec {namespace} sh -c 'echo 100 > /sys/class/net/{interface}/napi_defer_hard_irqs
         echo 1000000000 > /sys/class/net/{interface}/gro_flush_timeout'"
    ));
}

/// A port that can send more frames at once than a veth's ring holds.
fn with_large_rings(namespace: &str, interface: &str) -> End {
    let mut end = End::empty(PoolConfig { frames: 8192, ..PoolConfig::default() });
    let interface = inside(namespace, || Interface::attach(&InterfaceConfig::new(interface))).unwrap();
    let End { pool, context, devices } = &mut end;
    let open = || AfXdpDevice::open(&interface, &[0], &SocketConfig::default(), context, pool);
    devices.push(inside(namespace, open).unwrap());
    end
}

/// Regression test: if the driver refused the first frame, the others stayed in the TX ring.
#[test]
fn refused_frames_do_not_stay_in_the_ring_uncounted() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut a = with_large_rings(&lab.a, "va");
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    slow_down(&lab.b, "vb");
    a.send(0, 0, &[numbered(0, 64)]);
    assert_eq!(b.receive(0, 0, 1).len(), 1);
    let mut sent = 1;
    for batch in 0..2 {
        let mut frames: Vec<Frame> = (0..200)
            .map(|i| {
                let data = numbered(1 + batch * 200 + i, 64);
                let mut frame = a.pool.take().unwrap();
                assert!(a.pool.set_len(&mut frame, data.len()));
                a.pool.bytes_mut(&mut frame).copy_from_slice(&data);
                frame
            })
            .collect();
        sent += a.devices[0].tx(0, &mut a.pool, &mut frames);
        frames.into_iter().for_each(|frame| a.pool.give(frame));
    }
    // Before it blocks, a worker sends what is left.
    a.devices[0].arm(0).unwrap();
    let (left, lost) = (a.devices[0].occupancy(0).tx, a.statistics().tx_dropped);
    let got = 1 + b.receive_patiently(0, 0, usize::MAX, Duration::from_millis(1_500)).len();
    println!("{sent} sent, {got} received, {lost} refused, {left} left in the ring");
    assert!(lost > 1, "no frame was refused");
    assert_eq!((got + lost as usize, left), (sent, 0));
}

/// Sends frames back, and asks its worker to stop at the last of them.
struct Echo {
    left: u32,
    stop: Stop,
}

impl App for Echo {
    fn handle(&mut self, port: usize, _frame: &mut [u8]) -> Verdict {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.stop.request();
        }
        Verdict::Send(port)
    }
}

/// Regression test: frames that waited in the TX ring when the worker ended counted as sent, but were lost.
#[test]
fn a_worker_that_ends_sends_what_it_has_or_counts_it() {
    if !is_root() {
        return;
    }
    let frames = 500;
    let lab = Lab::new("");
    let mut a = End::new().open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = with_large_rings(&lab.b, "vb");
    // The kernel announces the carrier up to a second later (net/core/link_watch.c).
    let deadline = Wall::now() + Duration::from_secs(5);
    while b.devices[0].health().unwrap() != Health::Up {
        assert!(Wall::now() < deadline, "the link never comes up");
        std::thread::sleep(Duration::from_millis(5));
    }
    slow_down(&lab.a, "va");
    let id = Identity {
        instance: format!("ends-{}", std::process::id()),
        worker: 0,
        app: "echo".into(),
        mode: "poll".into(),
        goal: None,
        ports: vec!["vb".into()],
        cpu: None,
    };
    let telemetry = Telemetry::create(env!("CARGO_TARGET_TMPDIR").as_ref(), &id).unwrap();
    let reader = Reader::open(telemetry.path()).unwrap();
    let stop = Stop::default();
    let echo = Echo { left: frames, stop: stop.clone() };
    let devices = b.devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect();
    let mut worker =
        Worker::new(devices, b.pool, echo, Mode::Poll.policy(), LinuxCpu, telemetry, stop.clone()).unwrap();
    let mut got = 0;
    std::thread::scope(|threads| {
        let running = threads.spawn(|| worker.run().unwrap());
        a.send(0, 0, &(0..frames).map(|i| numbered(i, 64)).collect::<Vec<_>>());
        let deadline = Wall::now() + Duration::from_secs(10);
        while !running.is_finished() && Wall::now() < deadline {
            got += a.receive_patiently(0, 0, usize::MAX, Duration::from_micros(100)).len();
        }
        stop.request();
        running.join().unwrap();
    });
    let counts = reader.snapshot().counts;
    drop(worker);
    got += a.receive_patiently(0, 0, usize::MAX, Duration::from_millis(1_500)).len();
    let lost = counts.ports[0].statistics.tx_dropped;
    println!("{} sent, {got} received, {lost} refused", counts.sent_frames);
    assert!(lost > 1, "no frame was refused");
    assert_eq!(got as u64 + lost, counts.sent_frames);
}

/// Regression test: the kernel's headroom is 4 bytes larger than Apus assumed, so a frame of 1789 to 1792 bytes was
/// lost in the slot that was chosen for it.
#[test]
fn the_longest_frame_fits_the_slot_that_is_chosen_for_it() {
    if !is_root() {
        return;
    }
    for longest in [1_786, 1_788, 1_789, 1_792, 3_836, 3_837, 3_840] {
        let lab = Lab::new(&format!("mtu {}", longest - 18));
        let pool = PoolConfig { frames: 1024, frame_size: slot_for(longest), huge_pages: false };
        let mut a = End::empty(pool).open(&lab.a, &InterfaceConfig::new("va")).unwrap();
        let mut b = End::empty(pool).open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
        let data = numbered(longest, longest as usize);
        a.send(0, 0, std::slice::from_ref(&data));
        let got = b.receive(0, 0, 1);
        assert!(got.len() == 1 && got[0].data == data, "{longest} bytes: {:?} {:?}", a.statistics(), b.statistics());
    }
}

/// Regression test: jumbo frames for which the fill ring had too few slots were counted as invalid.
#[test]
fn jumbo_frames_without_room_are_no_invalid_frames() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("mtu 9000");
    let pool = PoolConfig { frames: 2048, frame_size: 16_384, huge_pages: false };
    let mut a = End::empty(pool).open(&lab.a, &InterfaceConfig::new("va")).unwrap();
    let mut b = End::empty(pool).open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    let sent = 400;
    for number in 0..sent / 10 {
        a.send(0, 0, &(0..10).map(|i| numbered(number * 10 + i, 9_014)).collect::<Vec<_>>());
    }
    let got = b.receive(0, 0, usize::MAX).len() as u64;
    let (at_a, at_b) = (a.statistics(), b.statistics());
    println!("sent {sent}, got {got}, sender {at_a:?}, receiver {at_b:?}");
    assert!(got < 200 && at_b.rx_ring_full > 100, "the worker was late");
    assert_eq!((at_b.rx_invalid, at_b.rx_no_buffer), (0, 0));
    assert_eq!(got + at_b.rx_ring_full + at_a.tx_dropped, u64::from(sent));
}

/// Regression test: a worker whose queue cannot send dropped all frames, and nothing said why.
#[test]
fn a_worker_that_could_never_send_is_refused() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("numrxqueues 2 numtxqueues 1");
    let config = InterfaceConfig { queues: vec![0, 1], ..InterfaceConfig::new("vb") };
    let sockets = sockets();
    let open = |workers| {
        let opening = Opening { number: 0, workers, sockets: &sockets, peak_rate: None };
        inside(&lab.b, || config.open(&opening).map(drop))
    };
    open(1).expect("one worker sends on queue 0");
    let error = open(2).unwrap_err();
    println!("{error}");
    let said = error.to_string();
    assert!(!error.lacks() && said.contains("1 transmit queue") && said.contains("ethtool -L vb"), "{said}");
}

/// Regression test: a port was reported as lost if its interface was renamed while its state was read.
#[test]
fn a_rename_loses_no_port() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    sh(&format!("ip -n {} link add d0 type veth peer name e0", lab.b));
    let output = Command::new("ip").args(["-n", &lab.b, "-o", "link", "show", "d0"]).output().unwrap();
    let index = String::from_utf8(output.stdout).unwrap().split(':').next().unwrap().parse().unwrap();
    let link = inside(&lab.b, || Link::new("d0", index)).unwrap();
    assert_eq!(link.health().unwrap(), Health::Down);
    let names = "link set d0 name d1\nlink set d1 name d0\n".repeat(200);
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("renames-{}", std::process::id()));
    std::fs::write(&file, names).unwrap();
    let mut renaming = Command::new("ip").args(["-n", &lab.b, "-batch"]).arg(&file).spawn().unwrap();
    let (mut checks, mut lost) = (0, None);
    while renaming.try_wait().unwrap().is_none() && lost.is_none() {
        for _ in 0..1_000 {
            checks += 1;
            lost = lost.or(link.health().err());
        }
    }
    assert!(renaming.wait().unwrap().success());
    std::fs::remove_file(&file).unwrap();
    println!("{checks} checks");
    assert!(lost.is_none(), "{}", lost.unwrap());
}

/// Regression test: the XDP program reads the kernel's own clock, from which the clock of a time namespace differs.
#[test]
fn frames_are_stamped_in_a_time_namespace() {
    if !is_root() {
        return;
    }
    if !std::path::Path::new("/proc/self/ns/time").exists() {
        testkit::skip("needs a kernel with time namespaces (CONFIG_TIME_NS)");
        return;
    }
    for offset in ["20", "-20", "500"] {
        let output = Command::new("unshare")
            .args(["--time", "--monotonic", offset])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "frames_arrive_whole_in_order_and_stamped"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{offset}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "{said}");
    }
}

/// An interface that was moved to another namespace is lost, and keeps nothing of Apus.
#[test]
fn a_moved_interface_is_lost_and_left_clean() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    let mut b = End::new().open(&lab.b, &InterfaceConfig::new("vb")).unwrap();
    sh(&format!("ip -n {} link set vb netns {}", lab.b, lab.a));
    let lost = b.devices[0].health().unwrap_err();
    assert!(matches!(&lost, Error::PortLost { port, .. } if port == "vb"), "{lost}");
    b.receive(0, 0, 1);
    assert_eq!(b.devices.pop().unwrap().close(&mut b.pool), 0);
    assert_eq!(b.pool.free(), b.pool.frames() as usize);
    let attached = || {
        let output = Command::new("ip").args(["-n", &lab.a, "link", "show", "vb"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains("xdp")
    };
    // A child that another test starts at this moment holds the program until it runs its own.
    let deadline = Wall::now() + Duration::from_secs(5);
    while attached() {
        assert!(Wall::now() < deadline, "the program is still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Regression test: a queue that does not exist was reported as missing zero copy, or just as an invalid argument.
#[test]
fn a_queue_that_does_not_exist_is_named() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("");
    // The loopback interface does not report its number of queues.
    let config = InterfaceConfig { queues: vec![0, 1], mode: XdpMode::Generic, ..InterfaceConfig::new("lo") };
    sh(&format!("ip -n {} link set lo up", lab.b));
    let native_failure = |mode| {
        let config = InterfaceConfig { mode, ..InterfaceConfig::new("lo") };
        inside(&lab.b, || Interface::attach(&config).unwrap().native_failure().map(str::to_owned))
    };
    assert_eq!(native_failure(XdpMode::Generic), None, "nobody wanted native XDP");
    assert!(native_failure(XdpMode::Auto).is_some_and(|why| why.contains("not supported")));
    for (frame_size, queues) in [(2048, &[0, 1][..]), (2048, &[1]), (16_384, &[1])] {
        let End { mut pool, mut context, .. } = End::empty(PoolConfig { frames: 2048, frame_size, huge_pages: false });
        let error = inside(&lab.b, || {
            let interface = Interface::attach(&config)?;
            AfXdpDevice::open(&interface, queues, &SocketConfig { ..sockets() }, &mut context, &mut pool)
        });
        let said = error.map(drop).unwrap_err().to_string();
        println!("{said}");
        assert!(
            said.contains("queue 1 of lo") && said.contains("may not have") && said.contains("use queue 0"),
            "{said}"
        );
        assert_eq!(pool.free(), pool.frames() as usize);
    }
}
