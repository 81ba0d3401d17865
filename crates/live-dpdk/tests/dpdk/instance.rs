use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use live::Error;
use live::app::AppConfig;
use live::device::afxdp::SocketConfig;
use live::device::fault::{FaultPlan, FaultRates, Outage};
use live::instance::{Instance, InstanceConfig, Outcome};
use live::os::Scheduling;
use live::port::{PortConfig, PortKind, Wrappers};
use live::telemetry::{Counts, DropReason};
use live_dpdk::{DpdkPort, FRAME_SIZE};
use policy::wait::Mode;

pub fn config(name: &str, ports: Vec<PortConfig>, app: AppConfig, mode: Mode) -> InstanceConfig {
    InstanceConfig {
        name: name.into(),
        ports,
        sockets: SocketConfig::default(),
        app,
        mode,
        costs: None,
        peak_rate: None,
        workers: vec![Scheduling::default()],
        pool_frames: None,
        frame_size: FRAME_SIZE,
        huge_pages: false,
        lock_memory: false,
        longest_hold_off: None,
        idle_limits: Vec::new(),
        telemetry_root: Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk"),
        record: None,
        wrappers: Wrappers::default(),
    }
}

fn dpdk(device: &str) -> PortConfig {
    Arc::new(DpdkPort::new(device))
}

/// Waits for something that the workers do, as long as it takes.
#[track_caller]
pub fn until(instance: &Instance, what: &str, done: impl Fn(&Counts) -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !instance.snapshots().iter().all(|snapshot| done(&snapshot.counts)) {
        assert!(
            Instant::now() < end,
            "{what}: {:?}",
            instance.snapshots().iter().map(|s| &s.counts).collect::<Vec<_>>()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Received = sent + dropped, for every worker; returns their counters.
#[track_caller]
pub fn accounted(outcome: &Outcome) -> Vec<Counts> {
    let counts = outcome.workers.iter().map(|worker| worker.counts.as_ref().expect("its counters").counts.clone());
    let counts: Vec<Counts> = counts.collect();
    for one in &counts {
        assert_eq!(one.received_frames, one.sent_frames + one.dropped.iter().sum::<u64>());
    }
    counts
}

#[test]
fn an_endless_port_forwards_until_it_is_stopped() {
    for (number, mode) in [Mode::Poll, Mode::Interrupt, Mode::Hybrid300, Mode::ADAPTIVE].into_iter().enumerate() {
        let name = format!("net_null5{number}");
        let instance = Instance::start(&config(&name, vec![dpdk(&name)], AppConfig::MacSwap, mode)).unwrap();
        let report = &instance.ports()[0];
        assert_eq!((report.kind, report.name.as_str()), (PortKind::Dpdk, name.as_str()));
        let driver = report.driver.as_ref().unwrap();
        assert_eq!((driver.dpdk_driver.as_deref(), driver.wakes), (Some("net_null"), Some(false)));
        until(&instance, "no frames", |counts| counts.sent_frames > 50_000);
        let outcome = instance.finish();
        outcome.workers[0].result.as_ref().unwrap();
        let counts = accounted(&outcome);
        assert_eq!(counts[0].received_frames, counts[0].sent_frames, "net_null takes everything");
    }
}

#[test]
fn frames_that_the_application_drops_are_replaced() {
    let instance = Instance::start(&config("drops", vec![dpdk("net_null60")], AppConfig::Drop, Mode::Poll)).unwrap();
    // Many times the pool.
    until(&instance, "the mempool ran dry", |counts| counts.received_frames > 100_000);
    accounted(&instance.finish());
}

#[test]
fn two_workers_have_a_queue_each() {
    // As many queues as the driver has for that: net_null makes them as it is asked.
    let mut config = config("two", vec![dpdk("net_null70")], AppConfig::MacSwap, Mode::Poll);
    config.workers = vec![Scheduling::default(); 2];
    let instance = Instance::start(&config).unwrap();
    until(&instance, "a worker without frames", |counts| counts.sent_frames > 10_000);
    assert_eq!(accounted(&instance.finish()).len(), 2);
}

/// A capture file, in the format of libpcap (pcap-savefile(5)): microseconds, Ethernet.
fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file: Vec<u8> = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_ne_bytes());
    file.extend([2u16.to_ne_bytes(), 4u16.to_ne_bytes()].concat());
    file.extend([0u32, 0, 65_535, 1].map(u32::to_ne_bytes).concat());
    for frame in frames {
        file.extend([0, 0, frame.len() as u32, frame.len() as u32].map(u32::to_ne_bytes).concat());
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    let (mut at, mut frames) = (24, Vec::new());
    while at < file.len() {
        let len = u32::from_ne_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(file[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

fn numbered(number: u32) -> Vec<u8> {
    let mut data = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    data.extend(number.to_be_bytes());
    data.resize(60 + number as usize * 37 % 1455, number as u8);
    data
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk-files");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

#[test]
fn every_frame_of_a_file_comes_out_swapped_and_in_order() {
    let (input, output) = (scratch("in.pcap"), scratch("out.pcap"));
    let frames: Vec<Vec<u8>> = (0..3000).map(numbered).collect();
    write_pcap(&input, &frames);
    let device = format!("net_pcap80,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let instance = Instance::start(&config("file", vec![dpdk(&device)], AppConfig::MacSwap, Mode::ADAPTIVE)).unwrap();
    until(&instance, "frames are missing", |counts| counts.sent_frames == 3000);
    let counts = accounted(&instance.finish());
    assert_eq!(counts[0].received_bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
    let swapped = frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat());
    assert!(read_pcap(&output).into_iter().eq(swapped));
}

/// A frame that is in two packet buffers, or that the application drops, among those that a worker passes on where the
/// driver has them. Each run starts with a try in place.
#[test]
fn a_burst_with_an_odd_frame_comes_out_in_order() {
    let (input, output) = (scratch("odd-in.pcap"), scratch("odd-out.pcap"));
    // The longest frame that is in one packet buffer has 2304 bytes. The longer one is copied into a slot, but a packet
    // buffer would not have room for it.
    let long = [numbered(5), vec![3; 2500]].concat();
    for (number, (odd, reason)) in [(long.clone(), DropReason::TooLong), (vec![7; 13], DropReason::Malformed)]
        .into_iter()
        .cycle()
        .take(8)
        .enumerate()
    {
        let at = number * 5;
        let mut frames: Vec<Vec<u8>> = (0..100).map(numbered).collect();
        frames.insert(at, odd.clone());
        write_pcap(&input, &frames);
        let device = format!("net_pcap83{number},rx_pcap={},tx_pcap={}", input.display(), output.display());
        let instance = Instance::start(&config("odd", vec![dpdk(&device)], AppConfig::MacSwap, Mode::Poll)).unwrap();
        until(&instance, "frames are missing", |counts| counts.received_frames == 101);
        let counts = accounted(&instance.finish());
        assert_eq!(counts[0].dropped(reason), 1, "{reason:?} at {at}");
        assert_eq!(counts[0].received_bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        let sent = frames.iter().filter(|frame| **frame != odd);
        let swapped = sent.map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat());
        assert!(read_pcap(&output).into_iter().eq(swapped), "{reason:?} at {at}");
    }
}

#[test]
fn faults_are_counted_and_every_frame_accounted_for() {
    let (input, output) = (scratch("faults-in.pcap"), scratch("faults-out.pcap"));
    write_pcap(&input, &(0..5000).map(numbered).collect::<Vec<_>>());
    let device = format!("net_pcap81,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let mut config = config("faults", vec![dpdk(&device)], AppConfig::MacSwap, Mode::ADAPTIVE);
    let rates = FaultRates {
        drop_ppm: 50_000,
        duplicate_ppm: 100_000,
        corrupt_ppm: 20_000,
        truncate_ppm: 20_000,
        delay_ppm: 30_000,
        reorder_ppm: 30_000,
        hold_polls: 3,
    };
    config.wrappers.fault = Some(FaultPlan { seed: 5, rx: rates, tx: rates, fail_after: None });
    let instance = Instance::start(&config).unwrap();
    until(&instance, "frames are missing", |counts| counts.received_frames > 4000 && counts.empty_polls > 1000);
    let outcome = instance.finish();
    outcome.workers[0].result.as_ref().unwrap();
    let counts = accounted(&outcome);
    let meter = outcome.wrappers[0].fault.clone().unwrap();
    let (rx, tx) = (meter.rx(), meter.tx());
    assert_eq!((rx.seen, rx.passed), (5000, counts[0].received_frames));
    assert_eq!(rx.seen + rx.duplicated, rx.passed + rx.dropped, "{rx:?}");
    let injected = counts[0].dropped(DropReason::Injected);
    assert_eq!((tx.seen, tx.lost), (counts[0].sent_frames + injected, 0));
    assert_eq!(tx.dropped, injected, "{tx:?}");
    assert!(rx.duplicated > 300 && rx.truncated > 50 && tx.duplicated > 300, "{rx:?} {tx:?}");
    assert_eq!(read_pcap(&output).len() as u64, tx.passed, "{tx:?}");
}

#[test]
fn a_port_lost_by_a_fault_ends_the_worker_with_its_name() {
    let mut config = config("lost", vec![dpdk("net_null82")], AppConfig::MacSwap, Mode::Poll);
    config.wrappers.fault = Some(FaultPlan { fail_after: Some((10_000, Outage::Lost)), ..FaultPlan::default() });
    let instance = Instance::start(&config).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while instance.snapshots()[0].state != Some(live::telemetry::State::Failed) {
        assert!(Instant::now() < end, "{:?}", instance.snapshots()[0].state);
        std::thread::sleep(Duration::from_millis(2));
    }
    let outcome = instance.finish();
    let error = outcome.workers[0].result.as_ref().unwrap_err();
    assert!(matches!(error, Error::PortLost { port, .. } if port == "net_null82"), "{error}");
    accounted(&outcome);
}

#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let start = |port: DpdkPort, sockets: SocketConfig| {
        let ports: Vec<PortConfig> = vec![Arc::new(port)];
        let config = InstanceConfig { sockets, ..config("never", ports, AppConfig::MacSwap, Mode::Poll) };
        Instance::start(&config).unwrap_err()
    };
    let sockets = SocketConfig::default();
    let error = start(DpdkPort::new("net_nonsense90"), sockets);
    assert!(
        matches!(&error, Error::Lacking { what, fix, .. } if what.contains("net_nonsense90") && fix.contains("name and options")),
        "{error}"
    );
    let error = start(DpdkPort { huge_pages: false, ..DpdkPort::new("0000:ff:1f.7") }, sockets);
    assert!(matches!(&error, Error::Lacking { fix, .. } if fix.contains("dpdk-devbind.py")), "{error}");
    let error = start(DpdkPort { burst: 65, ..DpdkPort::new("net_null91") }, sockets);
    assert!(!error.lacks() && error.to_string().contains("1 to 64"), "{error}");
    let error = start(DpdkPort { eal: vec!["-m".into(), "32".into()], ..DpdkPort::new("net_null92") }, sockets);
    assert!(!error.lacks() && error.to_string().contains("cannot be started again"), "{error}");
    let mut small = config("small", vec![dpdk("net_null93")], AppConfig::MacSwap, Mode::Poll);
    small.frame_size = 2048;
    let error = Instance::start(&small).unwrap_err();
    assert!(!error.lacks() && error.to_string().contains("at least 4096"), "{error}");
    // A refused port is closed again, so its name is free.
    let twice = config("twice", vec![dpdk("net_null93"), dpdk("net_null93")], AppConfig::MacSwap, Mode::Poll);
    let error = Instance::start(&twice).unwrap_err();
    assert!(error.to_string().contains("give each port once"), "{error}");
}
