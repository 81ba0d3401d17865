//! Causes in the processor, the bus and the hypervisor.

use super::super::{Case, End, Experiment, Hit, PossibleCause, Reference, grade};
use super::{percent, time};

pub(super) const CAUSES: &[PossibleCause] = &[
    PossibleCause {
        id: "cpu-full",
        why: "A CPU that processes packets is busy nearly all the time. Packets wait for it, and it cannot process more.",
        reference: "Documentation/networking/scaling.rst",
        judge: cpu_full,
    },
    PossibleCause {
        id: "steal",
        why: "The hypervisor gives the CPU time of this guest to other virtual machines or to the host. Meanwhile nothing in this guest runs.",
        reference: "proc_stat(5), steal",
        judge: steal,
    },
    PossibleCause {
        id: "idle-states",
        why: "A packet that finds its CPU in a deep idle state waits until the CPU has left it.",
        reference: "Documentation/admin-guide/pm/cpuidle.rst",
        judge: idle_states,
    },
    PossibleCause {
        id: "frequency",
        why: "If a busy CPU does not run at its highest frequency, each packet takes longer.",
        reference: "Documentation/admin-guide/pm/cpufreq.rst",
        judge: frequency,
    },
    PossibleCause {
        id: "pcie",
        why: "The PCI Express link of the NIC uses fewer lanes or a lower speed than the NIC supports, which limits its throughput.",
        reference: "PCI Express Base Specification, 7.5.3.8",
        judge: pcie,
    },
    PossibleCause {
        id: "throttling",
        why: "A processor that becomes too hot lowers its frequency, so each packet takes longer.",
        reference: "Documentation/admin-guide/thermal",
        judge: throttling,
    },
];

fn cpu_full(case: &Case) -> Option<Hit> {
    // CPU time shows which of the kernel's own threads poll or serve softirqs.
    case.worst(|end, _| {
        let thread = end.loads.iter().find(|load| load.name.starts_with("napi/") || load.name.starts_with("ksoftirqd/"))?;
        Some(
            Hit::new(
                85.0 * grade(thread.share, 0.75, 0.97),
                Some(end),
                format!("{} uses {} of a CPU: the CPU that serves the queue is full", thread.name, percent(thread.share)),
                Experiment::text("spread the flows over more queues and CPUs; or lower the load by 10 %, and check whether the latency and the drops disappear"),
            )
            .see(format!("{}: {} of a CPU", thread.name, percent(thread.share)), "/proc/PID/stat"),
        )
    })
}

fn steal(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let (cpu, share) = end.steal.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        Some(
            Hit::new(
                88.0 * grade(*share, 0.1, 0.4),
                Some(end),
                format!("The hypervisor takes {} of CPU {cpu}", percent(*share)),
                Experiment::text(
                    "on the host, pin the vCPUs of this guest to dedicated cores (`virsh vcpupin`), and measure again",
                ),
            )
            .see(format!("steal on CPU {cpu}: {}", percent(*share)), "/proc/stat"),
        )
    })
}

/// Reduces the likelihood of a cause that affects the whole host, if the expected figures are from the same host. Such
/// a cause does not explain a difference between two of the host's NICs.
fn shared(case: &Case, likelihood: f64) -> f64 {
    if case.symptom.reference == Reference::SameHost { likelihood * 0.6 } else { likelihood }
}

fn idle_states(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let (exit, state, rate) = end.idle_exit.clone()?;
        let late = case.symptom.excess_us();
        let share = late.map_or(0.8, |late| grade(exit / late.max(1.0), 0.1, 0.8));
        let likelihood = if case.symptom.is_late() { 80.0 } else { 40.0 } * grade(exit, 15.0, 60.0) * (0.4 + 0.6 * share);
        let mut hit = Hit::new(
            shared(case, likelihood),
            Some(end),
            format!("CPUs enter {state}, which takes up to {} to wake up", time(exit)),
            Experiment::text("disable deep idle states during a measurement (hold /dev/cpu_dma_latency at 2 us; FreeBSD: `sysctl hw.acpi.cpu.cx_lowest=C1`), and compare"),
        );
        hit = match rate > 0.0 {
            true => hit.see(format!("{state} is entered {rate:.0} times per second"), "cpuidle, usage"),
            false => hit.see(format!("{state} is allowed; waking up from such states takes about {}", time(exit)), "hw.acpi.cpu.cx_lowest; interrupt-mode DPDK slides (2017)"),
        };
        if case.symptom.reference == Reference::SameHost {
            hit = hit.see("against it: another NIC in the same host reaches the expected figures with the same idle states", "the symptom");
        }
        Some(hit)
    })
}

fn frequency(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let share = end.frequency_share?;
        Some(
            Hit::new(
                shared(case, 75.0 * grade(share, 0.85, 0.5)),
                Some(end),
                format!("A busy CPU runs at {} of its highest frequency", percent(share)),
                Experiment::text("fix the frequency during a measurement (`apus power set`), and compare"),
            )
            .see(format!("current frequency: {} of the maximum", percent(share)), "cpufreq, scaling_cur_freq"),
        )
    })
}

fn pcie(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let share = end.pcie_share?;
        let likelihood = 80.0 * grade(share, 0.9, 0.5);
        Some(
            Hit::new(
                if case.symptom.is_slow() { likelihood } else { likelihood * 0.3 },
                Some(end),
                format!(
                    "The PCI Express link of the NIC has only {} of the bandwidth that the NIC supports",
                    percent(share)
                ),
                Experiment::text(
                    "move the NIC to a slot with all lanes, and compare `lspci -vv` (LnkSta) and the throughput",
                ),
            )
            .see(format!("lanes x speed: {} of the maximum", percent(share)), "current_link_width, current_link_speed"),
        )
    })
}

fn throttling(case: &Case) -> Option<Hit> {
    case.worst(|end: &End, _| {
        let events = end.throttles.filter(|events| *events > 0.0)?;
        Some(
            Hit::new(
                70.0 * grade(events, 0.0, 10.0),
                Some(end),
                format!(
                    "The processor was throttled {events:.0} times in {:.1} s because it was too hot",
                    end.length_s
                ),
                Experiment::text("check fans and air flow; lower the load, and check whether the throttling stops"),
            )
            .see(format!("{events:.0} throttling events"), "thermal_throttle"),
        )
    })
}
