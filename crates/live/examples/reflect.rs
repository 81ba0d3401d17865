//! `macswap` in `poll` mode, for benches/throughput.py: the reflector that is compared.
//!
//! ```text
//! reflect port INTERFACE CPU        reflects on an interface until a line comes on standard input
//! reflect memory CPU SECONDS        runs the worker on a memory device; prints its rate as JSON
//! ```
//! Both run in SCHED_FIFO 50 on CPU.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use live::Error;
use live::app::AppConfig;
use live::app::macswap::MacSwap;
use live::cpu::LinuxCpu;
use live::device::afxdp::{InterfaceConfig, SocketConfig};
use live::device::memory::MemoryDevice;
use live::instance::{Instance, InstanceConfig};
use live::mode::Mode;
use live::os::{Scheduling, place_this_thread};
use live::pool::{Pool, PoolConfig};
use live::telemetry::{Identity, Reader, Telemetry};
use live::worker::{Stop, Worker};

/// As DPDK's net_null makes them by default: 64 octets.
const MEMORY_FRAME: u32 = 64;
/// Before the measurement.
const WARM_UP: Duration = Duration::from_millis(300);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["port", interface, cpu] => cpu.parse().map(|cpu| port(interface, cpu)),
        ["memory", cpu, seconds] => {
            cpu.parse().map(|cpu| memory(cpu, Duration::from_secs_f64(seconds.parse().unwrap_or(1.0))))
        }
        _ => {
            eprintln!("usage: reflect port INTERFACE CPU | reflect memory CPU SECONDS");
            std::process::exit(2);
        }
    };
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ! {
    eprintln!("{error}");
    std::process::exit(1);
}

fn root() -> PathBuf {
    PathBuf::from(format!("/dev/shm/apus-throughput-{}", std::process::id()))
}

fn port(interface: &str, cpu: usize) -> Result<(), Error> {
    let instance = Instance::start(&InstanceConfig {
        name: "reflect".into(),
        ports: vec![InterfaceConfig::new(interface)],
        sockets: SocketConfig::default(),
        app: AppConfig::MacSwap,
        mode: Mode::Poll,
        peak_rate: None,
        workers: vec![Scheduling { cpu: Some(cpu), fifo: Some(50) }],
        pool_frames: None,
        frame_size: 2048,
        huge_pages: false,
        lock_memory: true,
        telemetry_root: root(),
        record: None,
    })?;
    println!("ready");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    let outcome = instance.finish();
    let _ = std::fs::remove_dir_all(root());
    for worker in outcome.workers {
        worker.result?;
        if let Some(counts) = worker.counts.map(|snapshot| snapshot.counts) {
            eprintln!("{counts:?}");
        }
    }
    Ok(())
}

fn memory(cpu: usize, span: Duration) -> Result<(), Error> {
    let id = Identity {
        instance: "reflect".into(),
        worker: 0,
        app: "macswap".into(),
        mode: "poll".into(),
        goal: None,
        ports: vec!["memory".into()],
        cpu: Some(cpu as u32),
    };
    let telemetry = Telemetry::create(&root(), &id)?;
    let path = telemetry.path().to_owned();
    let stop = Stop::default();
    let asked = stop.clone();
    let worker = std::thread::spawn(move || -> Result<(), Error> {
        place_this_thread(Scheduling { cpu: Some(cpu), fifo: Some(50) })?;
        telemetry.runs_here()?;
        // Ethernet: destination, source, EtherType 0x88b5 (local experimental, IEEE 802-2014 table 9-1).
        let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        let device = MemoryDevice::source("memory", &header, MEMORY_FRAME)?;
        let pool = Pool::new(PoolConfig::default())?;
        let policy = Mode::Poll.policy();
        Worker::new(vec![Box::new(device)], pool, MacSwap, policy, LinuxCpu, telemetry, asked)?.run().map(|_| ())
    });
    let measured = rate(&path, span);
    stop.request();
    let ended = worker.join();
    let _ = std::fs::remove_dir_all(root());
    ended.unwrap_or(Ok(()))?;
    let (frames, seconds) = measured?;
    println!("{{\"frames\": {frames}, \"seconds\": {seconds:.6}, \"pps\": {:.0}}}", frames as f64 / seconds);
    Ok(())
}

/// Frames that the worker sent, and the time between its own two clock readings.
fn rate(path: &Path, span: Duration) -> Result<(u64, f64), Error> {
    let what = "read telemetry".to_owned();
    let reader = Reader::open(path).map_err(|e| Error::System { what, source: std::io::Error::other(e.to_string()) })?;
    std::thread::sleep(WARM_UP);
    let (began, before) = (std::time::Instant::now(), reader.snapshot().counts.sent_frames);
    std::thread::sleep(span);
    let (ended, after) = (std::time::Instant::now(), reader.snapshot().counts.sent_frames);
    Ok((after - before, (ended - began).as_secs_f64()))
}
