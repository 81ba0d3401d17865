use live::device::{Device, afxdp::*};
use live::instance::*;
use live::mode::Mode;
use live::os::Scheduling;
use live::pool::*;
use live::telemetry::*;
use policy::wait::{Reason, WaitKind};
use std::path::{Path, PathBuf};
use tester::{clock::MonotonicClock, cpu, frame::*, gaps::*, lab, quantile, schedule::Schedule, trial};
use units::*;

fn mode(s: &str) -> Mode {
    if let Some(g) = s.strip_prefix("a:") {
        return Mode::Adaptive { goal: Some(g.parse().unwrap()), loss: None, interrupts: true };
    }
    if let Some(m) = s.strip_prefix("b:") {
        return Mode::Backoff { max: m.parse().unwrap() };
    }
    match s {
        "poll" => Mode::Poll,
        "int" => Mode::Interrupt,
        "h" => Mode::Hybrid300,
        _ => panic!(),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let schedule: Schedule = args[0].parse().unwrap();
    let secs: u64 = args[1].parse().unwrap();
    let reps: usize = args[2].parse().unwrap();
    let guard = lab::Lab::pair(&format!("ab{}", std::process::id())).up().unwrap();
    let root = PathBuf::from("/dev/shm/apus-ab");
    let dut_if = guard.lab().links[0].1.clone();
    let tx_if = guard.lab().links[0].0.clone();
    let _ = (&dut_if, &tx_if);
    let tx_ns = guard.namespace("tx");
    let dut_ns = guard.namespace("dut");
    for rep in 0..reps {
        for m in &args[3..] {
            let md = mode(m);
            let config = InstanceConfig {
                name: "ab".into(),
                ports: vec![InterfaceConfig::new("dut0")],
                sockets: SocketConfig::default(),
                app: live::app::AppConfig::MacSwap,
                mode: md,
                peak_rate: Some("3Mpps".parse().unwrap()),
                workers: vec![Scheduling { cpu: Some(1), fifo: Some(50) }],
                pool_frames: None,
                frame_size: 2048,
                huge_pages: false,
                lock_memory: true,
                telemetry_root: root.clone(),
                record: None,
            };
            let inst = lab_in(&dut_ns, || Instance::start(&config).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(30));
            let reader = Reader::open(&root.join("ab/worker-0")).unwrap();
            let sc = schedule.clone();
            let (t, before, after, cpu) = lab_in(&tx_ns, || {
                live::os::place_this_thread(Scheduling { cpu: Some(0), fifo: Some(50) }).unwrap();
                let itf = Interface::attach(&InterfaceConfig::new("tx0")).unwrap();
                let sk = SocketConfig::default();
                let mut pool =
                    Pool::new(PoolConfig { frames: sk.slots_per_queue() + 1024, ..Default::default() }).unwrap();
                let mut ctx = XskContext::new(&pool);
                let mut dev = AfXdpDevice::open(&itf, &[0], &sk, &mut ctx, &mut pool).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
                let f = live::os::interface_facts("tx0").unwrap();
                let layout = Layout {
                    destination: [2, 0, 0, 0, 0, 2],
                    source: f.mac,
                    encapsulation: Encapsulation::Ethernet { ethertype: 0x88b5 },
                    size: FrameSize::with_fcs(64).unwrap(),
                };
                let mut tc = trial::TrialConfig::new(layout, sc);
                tc.duration = Nanos::from_secs(secs);
                let clock = MonotonicClock::default();
                use tester::clock::TrialClock;
                let pid = std::process::id();
                let tid = reader.snapshot().tid.unwrap();
                let a = cpu::sample(Path::new("/"), pid, &cpu::Threads::These(vec![tid as u32]), clock.now()).unwrap();
                let before = reader.snapshot();
                let stop = std::sync::atomic::AtomicBool::new(false);
                let t = trial::run(&tc, &mut dev as &mut dyn Device, 0, &mut pool, &clock, &stop).unwrap();
                let after = reader.snapshot();
                let b = cpu::sample(Path::new("/"), pid, &cpu::Threads::These(vec![tid as u32]), clock.now()).unwrap();
                (t, before, after, cpu::difference(&a, &b).unwrap())
            });
            let end = t.start + Nanos::from_secs(secs + 2);
            let gaps: Vec<Gap> =
                reader.gaps_between(t.start, end).gaps.iter().map(|g| Gap { start: g.0, end: g.1 }).collect();
            let s = t.split(&gaps, Recovery::default());
            let q = |h: &tester::histogram::Histogram, q: &str| {
                quantile::estimate(h, q.parse().unwrap())
                    .value_ns
                    .map_or("-".into(), |v| format!("{:.1}", v as f64 / 1e3))
            };
            let d = after.counts.since(&before.counts);
            print!(
                "{rep} {m:14} clean p50 {:>6} p90 {:>6} p99 {:>6} p99.9 {:>6} | all p99 {:>7} excl {:.1}% lost {} unsent {} cpu {:.1}% wakes/s {:.0} gaps t{} d{} |",
                q(&s.clean, "p50"),
                q(&s.clean, "p90"),
                q(&s.clean, "p99"),
                q(&s.clean, "p99.9"),
                q(&s.all, "p99"),
                s.share_excluded().unwrap_or(0.) * 100.,
                s.lost,
                s.unsent,
                cpu.share_of_one_cpu().unwrap_or(0.) * 100.,
                cpu.wakeups_per_second().unwrap_or(0.),
                t.gaps.len(),
                gaps.len()
            );
            for r in Reason::ALL {
                let n = d.reason(r);
                if n > 0 && r != Reason::Fixed {
                    print!(" {} {}", r.name(), n);
                }
            }
            println!(
                " | late p50 {:?} p99 {:?} svc p50 {:?} p99 {:?} sleep {:?} block {:?} rx {:.0}",
                d.lateness.quantile(Quantile::P50).map(|x| x.as_nanos()),
                d.lateness.quantile(Quantile::P99).map(|x| x.as_nanos()),
                d.service.quantile(Quantile::P50).map(|x| x.as_nanos()),
                d.service.quantile(Quantile::P99).map(|x| x.as_nanos()),
                d.wait(WaitKind::Sleep).count,
                d.wait(WaitKind::Block).count,
                t.received_pps().unwrap_or(0.)
            );
            inst.finish();
        }
    }
}
fn lab_in<T: Send>(ns: &str, f: impl FnOnce() -> T + Send) -> T {
    lab::in_namespace(ns, f).unwrap()
}
