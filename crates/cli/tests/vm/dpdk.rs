//! `apus run` on a NIC that the kernel has given up: an 82574, driven by DPDK through vfio-pci or uio_pci_generic. Its
//! interrupts are counted in QEMU.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use vmlab::harness::{Alone, ok};
use vmlab::{Guest, Interrupts, Nic, Vm};

pub(crate) const ALONE: [Alone; 1] = [("dpdk::receive_interrupts_of_a_nic_end_every_sleep", interrupts)];

/// A frame whose interrupt is missed waits until the longest block ends (`live::worker::HEALTH_INTERVAL`, 100 ms), which
/// began a little earlier.
const LATE: Duration = Duration::from_millis(90);

/// The time between interrupts that DPDK's driver sets in the card (register ITR: 65,535 x 256 ns). With it, answers would
/// take about as long.
const MODERATED: Duration = Duration::from_millis(10);

/// With APUS_LONG_TESTS=1 no frame at all may be late; else so few as a host that stops the guest can make late.
fn long() -> bool {
    std::env::var("APUS_LONG_TESTS").is_ok_and(|value| value == "1")
}

/// Where Debian keeps DPDK's drivers.
const DRIVERS: &str = "/usr/lib/x86_64-linux-gnu";

/// Returns the path of `apus-dpdk`, which `make test-vm` builds, or `None` if it is missing.
fn program() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_apus")).with_file_name("apus-dpdk");
    program.is_file().then_some(program)
}

/// Returns the drivers that a DPDK program loads in the guest, or `None` if one is missing: that of the card, and that of
/// DPDK's mempools, because without it no mempool can be created.
pub(crate) fn drivers() -> Option<[PathBuf; 2]> {
    Some([driver("librte_net_e1000.so.")?, driver("librte_mempool_ring.so.")?])
}

/// The arguments for the EAL that load these drivers.
pub(crate) fn loading(drivers: &[PathBuf; 2]) -> String {
    drivers.each_ref().map(|driver| format!("-d /usr/bin/{}", name(driver))).join(" ")
}

/// An emulated machine with the card, for DPDK programs that load these drivers.
pub(crate) fn machine(drivers: &[PathBuf; 2]) -> Vm {
    let vm = ok(Vm::new()).cpus(2).nic(Nic::E1000e).iommu();
    let vm = ["vfio_pci", "vfio_iommu_type1", "uio_pci_generic"].into_iter().fold(vm, Vm::module);
    // With `iommu=pt`, DMA of a device that is bound to uio reaches memory, too.
    let vm = vm.kernel_argument("iommu=pt vfio_iommu_type1.allow_unsafe_interrupts=1 hugepages=96");
    drivers.iter().fold(vm, Vm::program)
}

/// The driver under the name by which others load it: with the number of its ABI.
fn driver(prefix: &str) -> Option<PathBuf> {
    let mut paths = std::fs::read_dir(DRIVERS).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| name(path).strip_prefix(prefix).is_some_and(|abi| !abi.contains('.')))
}

fn interrupts() {
    let (Some(program), Some(drivers)) = (program(), drivers()) else {
        testkit::skip("VM lab: no apus-dpdk or no DPDK driver net_e1000; make dpdk PROFILE=dev");
        return;
    };
    let begun = Instant::now();
    let guest = ok(machine(&drivers).program(&program).boot());
    println!("booted after {:.1} s", begun.elapsed().as_secs_f32());
    let card = Card { guest: &guest, pci: pci(&guest), drivers: loading(&drivers) };
    let (sleeps, few) = if long() { (100_000, 2_000) } else { (2_000, 100) };

    bind(&guest, &card.pci, "vfio-pci");
    // The vector that the driver assigns is not that of a received frame (shim/e1000.c of live-dpdk).
    let refused = card.run("poll", "", 1);
    assert_eq!(refused.result["ports"][0]["wakes"], false, "{:?}", refused.result["ports"]);
    let msi = "--vfio-intr=msi";
    let poll = card.run("poll", msi, few);
    assert_eq!((poll.blocks(), poll.seen.msi), (0, 0), "polling needs no interrupt");
    let run = card.run("interrupt", msi, sleeps);
    run.woken(sleeps, run.seen.msi);
    for mode in ["hybrid300", "adaptive --goal p99=20ms", "backoff --sleep-max 100us"] {
        card.run(mode, msi, few).none_left_waiting();
    }
    let line = card.run("interrupt", "--vfio-intr=legacy", few);
    line.woken(few, line.seen.line);
    bind(&guest, &card.pci, "uio_pci_generic");
    let uio = card.run("interrupt", "--iova-mode=pa", few);
    uio.woken(few, uio.seen.line);
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The card's address.
pub(crate) fn pci(guest: &Guest) -> String {
    let address = ok(guest.run("basename $(readlink /sys/class/net/eth0/device)"));
    assert!(address.starts_with("0000:"), "{address}");
    address
}

/// Gives the card to another driver of the guest's kernel.
pub(crate) fn bind(guest: &Guest, pci: &str, driver: &str) {
    let said = ok(guest.run(&format!(
        "cd /sys/bus/pci/devices/{pci} && echo {pci} >driver/unbind && echo {driver} >driver_override && \
         echo {pci} >/sys/bus/pci/drivers_probe && basename $(readlink driver)"
    )));
    assert_eq!(said, driver);
}

struct Card<'a> {
    guest: &'a Guest,
    pci: String,
    drivers: String,
}

impl Card<'_> {
    /// Runs `apus run macswap` in this mode while `count` frames are sent, each a little after the answer to the last.
    fn run(&self, mode: &str, eal: &str, count: u64) -> Run {
        let Self { guest, pci, drivers } = self;
        let begun = Instant::now();
        ok(guest.run(&format!(
            "rm -f /tmp/status; (apus-dpdk run macswap dpdk:{pci} --huge-pages --eal '{drivers} {eal}' --mode {mode} --json \
             >/tmp/result 2>/tmp/said; echo $? >/tmp/status) >/dev/null 2>&1 &"
        )));
        let mut sender = Sender { guest, asked: 0, random: 1 };
        let deadline = Instant::now() + Duration::from_secs(60);
        while sender.ask(Duration::from_millis(200)).is_none() {
            let ended = ok(guest.output("cat /tmp/status /tmp/said"));
            assert!(ended.status != 0 && Instant::now() < deadline, "{mode} {eal}: {}", ended.stdout);
        }
        ok(guest.wire(0).interrupts());
        let first = sender.asked;
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(sender.ask(Duration::from_secs(20)).unwrap_or_else(|| panic!("{mode}: no answer")));
            sender.pause();
        }
        times.sort();
        let seen = ok(guest.wire(0).interrupts());
        ok(guest.run("kill -TERM $(pidof apus-dpdk)"));
        ok(guest.wait_until("[ -s /tmp/status ]", 600));
        assert_eq!(ok(guest.run("cat /tmp/status")), "0", "{}", ok(guest.run("cat /tmp/said")));
        let result = serde_json::from_str(&ok(guest.run("cat /tmp/result"))).unwrap();
        let run = Run { result, asked: sender.asked - first, times, seen };
        println!("{mode} {eal}: {} ({:.1} s)", run.told(), begun.elapsed().as_secs_f32());
        run
    }
}

/// Sends frames one at a time.
struct Sender<'a> {
    guest: &'a Guest,
    asked: u64,
    random: u64,
}

impl Sender<'_> {
    /// Sends one frame, and returns the time until it came back.
    fn ask(&mut self, within: Duration) -> Option<Duration> {
        let wire = self.guest.wire(0);
        self.asked += 1;
        let mut frame = wire.silent_frame();
        frame[14..22].copy_from_slice(&self.asked.to_be_bytes());
        let began = Instant::now();
        ok(wire.send(&frame));
        while let Some(answer) = ok(wire.receive(within.saturating_sub(began.elapsed()).max(Duration::from_millis(1))))
        {
            if answer.get(14..22) == frame.get(14..22) {
                assert_eq!((&answer[..6], &answer[6..12]), (&frame[6..12], &frame[..6]));
                return Some(began.elapsed());
            }
        }
        None
    }

    /// Waits 0 to 500 us, so that frames arrive before, while and after the worker prepares to block. A wait on the clock
    /// of this host, without sleep: timers are too late for that.
    fn pause(&mut self) {
        // A linear congruential generator (Knuth, The Art of Computer Programming, volume 2, 3.3.4: MMIX).
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let until = Instant::now() + Duration::from_nanos((self.random >> 33) % 500_000);
        while Instant::now() < until {
            thread::yield_now();
        }
    }
}

/// What a run showed.
struct Run {
    result: Value,
    asked: u64,
    /// From each frame to its answer, sorted.
    times: Vec<Duration>,
    seen: Interrupts,
}

impl Run {
    fn blocks(&self) -> u64 {
        self.result["workers"][0]["counts"]["total"]["waits"]["block"]["count"].as_u64().unwrap()
    }

    fn late(&self) -> usize {
        self.times.iter().filter(|time| **time >= LATE).count()
    }

    fn told(&self) -> String {
        let Self { asked, times, seen, .. } = self;
        format!(
            "{asked} frames, {} blocks, {} MSI, line rose {} times; answers after {:?} (p50), {:?} (max), {} late",
            self.blocks(),
            seen.msi,
            seen.line,
            times[times.len() / 2],
            times[times.len() - 1],
            self.late()
        )
    }

    fn none_left_waiting(&self) {
        assert_eq!(self.result["accounted"], true, "{}", self.told());
        let stopped = if long() { 0 } else { 1 + self.times.len() / 1_000 };
        assert!(self.late() <= stopped, "{}", self.told());
    }

    /// Checks that the worker slept until interrupts, of which QEMU saw `raised`.
    fn woken(&self, sleeps: u64, raised: u64) {
        assert_eq!(self.result["ports"][0]["wakes"], true);
        self.none_left_waiting();
        assert!(self.blocks() >= sleeps * 9 / 10 && raised >= sleeps * 9 / 10, "{}", self.told());
        // An interrupt that no frame caused would wake it in vain.
        assert!(self.times[self.times.len() / 2] < MODERATED, "{}", self.told());
        assert!(self.blocks() <= 2 * self.asked + 100 && raised <= 2 * self.asked + 100, "{}", self.told());
    }
}
