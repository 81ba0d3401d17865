//! The loop on a DPDK port, as a library: swaps MAC addresses for some seconds, and prints the rate.
//!
//! `cargo run --release -p live-dpdk --features dpdk --example macswap -- net_null0 2 1 huge` (device, seconds, CPU; with
//! `huge`, all memory is in huge pages).

use std::sync::Arc;
use std::time::Duration;

use live::app::AppConfig;
use live::device::afxdp::SocketConfig;
use live::instance::{Instance, InstanceConfig};
use live::os::{Scheduling, Signals};
use live::port::Wrappers;
use live_dpdk::{DpdkPort, FRAME_SIZE};
use policy::wait::Mode;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("usage: macswap DEVICE [SECONDS [CPU [huge]]]")?;
    let seconds = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let cpu = arguments.next().map(|text| text.parse()).transpose()?;
    let huge_pages = arguments.next().is_some_and(|text| text == "huge");
    let mut port = DpdkPort::new(device);
    port.huge_pages |= huge_pages;
    port.huge_slots = huge_pages;
    // Before any thread is started: they inherit the mask.
    let signals = Signals::hold()?;
    let config = InstanceConfig {
        name: format!("macswap-{}", std::process::id()),
        ports: vec![Arc::new(port)],
        sockets: SocketConfig::default(),
        app: AppConfig::MacSwap,
        mode: Mode::Poll,
        costs: None,
        peak_rate: None,
        // As benches/throughput.py places testpmd.
        workers: vec![Scheduling { cpu, fifo: cpu.map(|_| 50) }],
        pool_frames: None,
        frame_size: FRAME_SIZE,
        huge_pages,
        lock_memory: false,
        longest_hold_off: None,
        idle_limits: Vec::new(),
        telemetry_root: std::env::temp_dir().join(format!("apus-example-{}", std::process::id())),
        record: None,
        wrappers: Wrappers::default(),
    };
    let telemetry = config.telemetry_root.clone();
    let instance = Instance::start(&config)?;
    println!("running: {:?}", instance.ports());
    let outcome = instance.run(&signals, Some(Duration::try_from_secs_f64(seconds)?), |_| {});
    let _ = std::fs::remove_dir_all(telemetry);
    for worker in outcome.workers {
        worker.result?;
        let counts = worker.counts.ok_or("no counters")?;
        let (frames, span) = (counts.counts.sent_frames, counts.updated.since(counts.started).ok_or("no time")?);
        println!("{frames} frames, {:.3} Mpps", frames as f64 * 1e3 / span.as_nanos() as f64);
    }
    Ok(())
}
