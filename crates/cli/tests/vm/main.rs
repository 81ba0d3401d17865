//! Tests of what `apus` does to a machine, in a guest of the VM lab: each setting is changed in the guest, and its
//! effect is seen from outside.

/// What a change takes along: limits in pairs, tunables, affinities.
mod along;
/// Interrupt moderation and affinity, refusals, an isolated partition, registers.
mod devices;
/// Ports of DPDK drivers: receive interrupts of a NIC that is bound to vfio-pci or uio.
mod dpdk;
/// What `apus audit --fix` writes: applied to the guest it was written for, and rolled back without a trace.
mod fixes;
/// A guest that forwards, measured from outside.
mod forward;
/// Frequencies: governors, limits, and a firmware that has the last word.
mod frequency;
/// Guests that ask for frequencies: a DPDK program in one guest, P-states in another.
mod guests;
/// Idle states and latency requests.
mod idle;
/// `apus moderate`: each decision in the card's register, refusals, what is restored.
mod moderate;
/// The waiting modes in a virtual machine, and what they cost its host.
mod modes;
/// Watts: the ACPI power meter, driven from outside.
mod power;
/// `apus power steer`: a latency goal at lower frequencies, a firmware limit, and a kill before each operation.
mod power_steer;
/// What waking up costs: idle states, a frequency that slows the CPU, timers in virtual time.
mod probe;
/// The threads that emulate a guest's CPUs, and P-states that slow one down.
mod processor;
/// The built-in profiles: applied, and taken back without a trace.
mod profiles;
/// The kernel's command line, over a reboot.
mod reboot;
/// rte_power's `scale` and libapus-dpdk in the same forwarder.
mod scaling;
mod tune;

use std::process::ExitCode;

use vmlab::harness::{self, ok};
use vmlab::{CSTATES, Nic, PSTATES, Vm};

fn main() -> ExitCode {
    if let Some(step) = std::env::var_os(power_steer::KILL_BEFORE) {
        return power_steer::killed_before(&step);
    }
    let on_shared = [
        &frequency::TESTS[..],
        &idle::TESTS,
        &devices::TESTS,
        &profiles::TESTS,
        &fixes::TESTS,
        &power::TESTS,
        &probe::TESTS,
        &along::TESTS,
        &moderate::TESTS,
    ]
    .concat();
    // Figures of a machine that does nothing else, and minutes long.
    let long = std::env::var_os("APUS_LONG_TESTS").is_some();
    let figures = if long {
        [&modes::ALONE[..], &dpdk::ALONE, &scaling::FIGURES, &power_steer::FIGURES].concat()
    } else {
        Vec::new()
    };
    let alone = [
        &reboot::TESTS[..],
        &probe::ALONE,
        &moderate::ALONE,
        &guests::ALONE,
        &power_steer::ALONE,
        &forward::ALONE,
        &figures,
    ]
    .concat();
    harness::run(vm, &on_shared, &alone)
}

/// Two CPUs with everything, and `apus`.
fn vm() -> Vm {
    ok(Vm::new())
        .cpus(2)
        .pstates(&PSTATES)
        .cstates(&CSTATES)
        .firmware()
        .nic(Nic::E1000e)
        .nic(Nic::Virtio)
        .module("msr")
        .kernel_argument("msr.allow_writes=on")
        .program(env!("CARGO_BIN_EXE_apus"))
        .program("ethtool")
}
