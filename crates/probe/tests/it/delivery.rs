//! Handing over, and delivery of frames: as real as a veth pair can be.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, SocketConfig, XskContext};
use live::os;
use live::pool::{Pool, PoolConfig};
use probe::clock::Clock;
use probe::detail::Detail;
use probe::interrupt::{Bed, Interrupt, Wait};
use probe::mark::MarkKind;
use probe::measured::Measured;
use probe::place::{self, Place};
use probe::switch::{Switch, Via};
use probe::{Control, Error, Probe};
use tester::clock::MonotonicClock;
use tester::frame::{Encapsulation, FrameSize, LOCAL_EXPERIMENTAL, Layout};
use tester::gaps::Recovery;
use tester::lab::{Lab, in_namespace};
use tester::quantile::estimate;
use tester::statistics::median;
use tester::trial::{TrialConfig, run as trial};
use units::{Nanos, Quantile};

use crate::support::{AtEnd, turn, two_cpus};

fn run(probe: &(impl Probe + Sync)) -> Result<Measured, Error> {
    std::thread::scope(|scope| scope.spawn(|| probe.run(&Control::new(None))).join().unwrap())
}

#[test]
fn threads_hand_over_in_every_way() {
    let _turn = turn();
    let cpus = place::allowed().unwrap();
    let last = *cpus.last().unwrap();
    for via in Via::ALL {
        for peer in [last, cpus[0]] {
            // Above whatever else runs here, where that is allowed.
            let priority = rustix::process::geteuid().is_root().then_some(50);
            let switch = Switch { priority, duration: Nanos::from_millis(100), ..Switch::new(last, peer, via) };
            // A machine that others share gives a thread no CPU at all in some tenths of a second.
            let mut runs = std::iter::repeat_with(|| run(&switch).unwrap()).take(50);
            let measured = runs.find(|measured| measured.terms[0].raw.count > 100).expect("a hundred samples");
            let term = &measured.terms[0];
            // Both clock readings and the waking call lie within every sample.
            let least: u64 = measured.overhead.iter().map(|of| of.median_ns).sum();
            assert!(term.raw.p50_ns.unwrap() > least / 2, "{}: {:?}", measured.variant, term.raw.p50_ns);
            let Detail::Switch(detail) = measured.detail else { panic!("not the detail of switch") };
            assert_eq!(detail.same_cpu, peer == last);
        }
    }
}

#[test]
fn clocks_agree() {
    let _turn = turn();
    let clock = Clock { duration: Nanos::from_millis(200), ..Clock::new(place::allowed().unwrap()) };
    let measured = run(&clock).unwrap();
    let Detail::Clock(detail) = &measured.detail else { panic!("not the detail of clock") };
    for pair in &detail.tsc_pairs {
        // Where the kernel itself trusts the counter, no reading is in the wrong order.
        if measured.conditions.clocksource.value.as_deref() == Some("tsc") {
            assert_eq!(pair.warps, 0, "{pair:?}");
            let (ahead, bound) = (pair.ahead_ns.value.unwrap(), pair.bound_ns.value.unwrap());
            assert!(ahead.abs() <= bound + 100.0, "{pair:?}");
        }
    }
    assert!(measured.terms.iter().any(|term| term.name == "reading CLOCK_MONOTONIC" && term.raw.p50_ns > Some(0)));
}

fn parts(measured: &Measured) -> Vec<(&str, u64)> {
    measured.terms.iter().map(|term| (term.name.as_str(), term.raw.p50_ns.unwrap())).collect()
}

/// Of each frame the parts add up to its round trip. Of their distributions follows, however busy the machine: the means
/// add up too, and no part's median exceeds that of the whole. (The sum of the medians need not be near the median of the
/// sum.) A hundredth is the histograms' resolution.
#[track_caller]
fn assert_parts_of_a_whole(measured: &Measured) {
    let (whole, parts) = measured.terms.split_last().expect("terms");
    let (sum, mean) = (parts.iter().map(|part| part.raw.mean_ns.unwrap()).sum::<u64>(), whole.raw.mean_ns.unwrap());
    assert!(sum.abs_diff(mean) <= mean / 100 + 10, "{parts:?} {whole:?}");
    for part in parts {
        let most = whole.raw.p50_ns.map(|median| median + median / 100 + 1);
        assert!(part.raw.p50_ns <= most, "{}: {:?} of {:?}", part.name, part.raw, whole.raw);
    }
}

#[test]
fn every_way_of_waiting_is_measured() {
    let Some((cpu, other)) = two_cpus() else { return };
    let _turn = turn();
    let of = |wait, sender| {
        let priority = Some(50);
        let interrupt = Interrupt { priority, duration: Nanos::from_millis(500), ..Interrupt::new(wait, cpu, sender) };
        run(&interrupt).unwrap()
    };
    for wait in Wait::ALL {
        let measured = of(wait, other);
        let Detail::Interrupt(detail) = &measured.detail else { panic!("not the detail of interrupt") };
        assert!(detail.received * 10 > detail.sent * 9, "{wait}: {detail:?}");
        assert_eq!((measured.terms.len(), detail.unusable), (6, 0), "{wait}");
        println!("{wait}: {:?}, sum of medians {:?}", parts(&measured), detail.sum_of_medians_ns);
        assert_parts_of_a_whole(&measured);
        assert!(detail.sum_of_medians_ns > Some(0));
        if matches!(wait, Wait::Busy | Wait::Suspend) {
            assert_eq!(detail.polls_driver.value, Some(true), "{wait}: {:?}", measured.marks);
        }
    }
    assert_eq!(of(Wait::Block, cpu).variant, "block, right CPU");
    let alone = Interrupt::new(Wait::Spin, cpu, cpu);
    assert!(matches!(run(&alone), Err(Error::Invalid { .. })));
}

#[test]
fn a_port_that_brings_its_frames_back() {
    let Some((cpu, other)) = two_cpus() else { return };
    let _turn = turn();
    let guard = Lab::pair(&format!("port{}", std::process::id())).up().unwrap();
    let (opened, mac) = mpsc::channel();
    let stop = Control::new(None);
    std::thread::scope(|scope| {
        let far = guard.namespace("dut");
        let (stop_far, opened) = (&stop, opened);
        scope.spawn(move || Interrupt::new(Wait::Block, other, cpu).reflect(stop_far, &far, &opened).unwrap());
        let _stops = AtEnd(|| stop.stop());
        let destination = mac.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
        let namespace = Some(guard.namespace("tx"));
        let bed = Bed::Port { interface: "tx0".into(), queue: 0, namespace, destination };
        let interrupt = Interrupt { bed, duration: Nanos::from_millis(300), ..Interrupt::new(Wait::Block, cpu, cpu) };
        let measured = run(&interrupt).unwrap();
        // The reflector is ours, so it stamps the frames as the lab's far end does.
        assert!(
            measured.terms.iter().any(|term| term.name == "round trip" && term.raw.count > 0),
            "{:?}",
            measured.marks
        );
        let suspend = run(&Interrupt { wait: Wait::Suspend, ..interrupt });
        assert!(suspend.unwrap_err().lacks());
    });
}

/// The round trip as `apus bench` sees it: open loop, from the intended time, against the same far end.
fn the_testers_median(cpu: usize, other: usize, number: u32) -> Option<u64> {
    let guard = Lab::pair(&format!("rtt{}n{number}", std::process::id())).up().unwrap();
    let (opened, mac) = mpsc::channel();
    let stop = Control::new(None);
    std::thread::scope(|scope| {
        let far = guard.namespace("dut");
        let (stop_far, opened) = (&stop, opened);
        let reflector = Interrupt { priority: Some(50), ..Interrupt::new(Wait::Block, cpu, other) };
        scope.spawn(move || reflector.reflect(stop_far, &far, &opened).unwrap());
        let _stops = AtEnd(|| stop.stop());
        let destination = mac.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
        let p50 = in_namespace(&guard.namespace("tx"), || {
            let filter = Filter::EtherTypes(vec![LOCAL_EXPERIMENTAL]);
            let interface = Interface::attach(&InterfaceConfig { filter, ..InterfaceConfig::new("tx0") }).unwrap();
            let source = os::interface_facts("tx0").unwrap().mac;
            let sockets = SocketConfig::default();
            let frames = sockets.slots_per_queue() + 1024;
            let mut pool = Pool::new(PoolConfig { frames, ..PoolConfig::default() }).unwrap();
            let mut context = XskContext::new(&pool);
            let mut device = AfXdpDevice::open(&interface, &[0], &sockets, &mut context, &mut pool).unwrap();
            let encapsulation = Encapsulation::Ethernet { ethertype: LOCAL_EXPERIMENTAL };
            let layout = Layout { destination, source, encapsulation, size: FrameSize::SMALLEST };
            let config = TrialConfig {
                duration: Nanos::from_millis(350),
                ..TrialConfig::new(layout, "constant:350us".parse().unwrap())
            };
            Place { cpu: other, priority: Some(50), slack: Nanos::from_nanos(1) }.take("tester").unwrap();
            let trial = trial(&config, &mut device, 0, &mut pool, &MonotonicClock, &AtomicBool::new(false)).unwrap();
            estimate(&trial.split(&[], Recovery::default()).clean, Quantile::P50).latency_ns
        });
        p50.unwrap()
    })
}

#[test]
fn the_probe_and_the_tester_see_the_same_round_trip() {
    let Some((cpu, other)) = two_cpus() else { return };
    let _turn = turn();
    let probe = || {
        let duration = Nanos::from_millis(300);
        let interrupt = Interrupt { priority: Some(50), duration, ..Interrupt::new(Wait::Block, cpu, other) };
        let measured = run(&interrupt).unwrap();
        assert!(!measured.marks.iter().any(|mark| mark.kind == MarkKind::Suspect), "{:?}", measured.marks);
        assert_parts_of_a_whole(&measured);
        let (_, round_trip) = *parts(&measured).last().expect("terms");
        round_trip as f64
    };
    let tester = |number| the_testers_median(cpu, other, number).expect("a median of thousands of frames") as f64;
    // In many short pairs, A B B A: what drifts over seconds (the host's own idle behaviour does) meets both alike.
    let pairs: Vec<(f64, f64)> = (0..24)
        .map(|number| {
            if number % 2 == 0 {
                let sum = probe();
                (sum, tester(number))
            } else {
                let seen = tester(number);
                (probe(), seen)
            }
        })
        .collect();
    let mut ratios: Vec<f64> = pairs.iter().map(|(probe, tester)| probe / tester).collect();
    ratios.sort_by(f64::total_cmp);
    println!("(the probe, the tester) in ns: {pairs:?}; median of the ratios {:.3}", median(&ratios).unwrap());
    // How busy the machine is makes the ratios scatter. Of 24, the 7th and the 18th bound their median with a confidence of
    // 97.7 % (binomial): both say the same unless that range lies beyond a tenth.
    let (least, most) = (ratios[6], ratios[17]);
    assert!(least <= 1.1 && most >= 0.9, "{least:.3} to {most:.3}: {pairs:?}");
}
