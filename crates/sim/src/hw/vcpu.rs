//! A virtual CPU: the cost of a guest's sleep and of an interrupt for the guest.

use units::{Cycles, Hertz, Nanos};

use super::governor::{HaltPoll, HaltPollModel};
use crate::At;

/// Estimated number of VM exits per tick of the guest: one each for the host's timer, the guest's write to its deadline
/// timer, and the end of interrupt.
pub const TICK_EXITS: u64 = 3;

/// The costs of virtualisation. Software costs are in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VcpuModel {
    /// Cost from guest to host: a VM exit and the host's dispatch.
    pub exit: Cycles,
    /// Cost from host to guest: a VM entry.
    pub entry: Cycles,
    /// Cost of the host's interrupt handler that finds the vCPU and wakes its thread (irqfd, `kvm_vcpu_wake_up`). The
    /// context switch to the thread is not included.
    pub kick: Cycles,
    /// Cost of the virtual interrupt: injection, the guest's handler, and the acknowledgement.
    pub injection: Cycles,
    /// Cost from the guest's handler to the application: the handler signals the eventfd, and the guest's scheduler
    /// switches to the application.
    pub signal: Cycles,
    /// How long the host polls before it gives up the core.
    pub halt_poll: HaltPollModel,
    /// Whether the application runs as soon as the host has woken the vCPU: "DPDK app starts to run once the vCPU is
    /// woken up by the host ISR: no need to inject virtual interrupts, no need to signal eventfd inside the VM"
    /// (Towards Low Latency Interrupt Mode DPDK, 2017).
    pub direct: bool,
}

/// The state of one virtual CPU.
///
/// ```text
///   Running ── halt: exit ──► Polling (the host's core stays) ── span over ──► Blocked (host schedules, idles)
///      ▲                         │ wake: entry                                  │ wake: kick, [host's wake-up], entry
///      └── [injection, signal] ◄─┴──────────────────────────────────────────────┘
/// ```
#[derive(Clone, Debug)]
pub struct Vcpu {
    model: VcpuModel,
    halted: Option<At>,
    poll: HaltPoll,
    polled: u64,
    blocked: u64,
}

/// How a virtual CPU was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Woken {
    /// Whether the host was still polling. If not, the caller adds the times of the host's core and scheduler between
    /// `kick` and `resume`.
    pub polled: bool,
    /// Time that the host takes to wake the vCPU's thread, before its scheduler runs. Zero if the host was polling.
    pub kick: Nanos,
    /// Time from when the host runs the vCPU's thread until the guest's application runs.
    pub resume: Nanos,
}

impl Vcpu {
    /// Starts with the virtual CPU running.
    pub const fn new(model: VcpuModel) -> Self {
        Self { model, halted: None, poll: HaltPoll::new(model.halt_poll), polled: 0, blocked: 0 }
    }

    /// Lets the guest execute `hlt`. Returns when the host gives up the core, unless the guest is woken before.
    pub fn halt(&mut self, now: At, frequency: Hertz) -> At {
        let out = now + self.model.exit / frequency;
        self.halted = Some(out);
        out + self.poll.span()
    }

    /// Wakes the vCPU for an interrupt of the guest. `None` if the vCPU was running.
    pub fn wake(&mut self, now: At, frequency: Hertz) -> Option<Woken> {
        let halted = self.halted.take()?;
        let waited = now.since(halted).unwrap_or(Nanos::ZERO);
        let polled = waited <= self.poll.span() && self.poll.span() > Nanos::ZERO;
        self.poll.observe(waited);
        if polled {
            self.polled += 1;
        } else {
            self.blocked += 1;
        }
        let VcpuModel { entry, kick, injection, signal, direct, .. } = self.model;
        let inside = if direct { Nanos::ZERO } else { injection / frequency + signal / frequency };
        let kick = if polled { Nanos::ZERO } else { kick / frequency };
        Some(Woken { polled, kick, resume: entry / frequency + inside })
    }

    /// Time that an interrupt or an intercepted instruction takes from a running guest.
    pub fn interrupt(&self, frequency: Hertz) -> Nanos {
        self.model.exit / frequency + self.model.entry / frequency
    }

    /// Time that a tick of the guest takes in addition to the host's own tick: its VM exits and the injected interrupt.
    pub fn tick(&self, frequency: Hertz) -> Nanos {
        self.interrupt(frequency) * TICK_EXITS + self.model.injection / frequency
    }

    /// Number of wake-ups during the host's polling.
    pub const fn polled(&self) -> u64 {
        self.polled
    }
    /// Number of wake-ups after the host had given up the core.
    pub const fn blocked(&self) -> u64 {
        self.blocked
    }
    /// The parameters of the model.
    pub const fn model(&self) -> &VcpuModel {
        &self.model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: VcpuModel = VcpuModel {
        exit: Cycles::new(2_000),
        entry: Cycles::new(1_000),
        kick: Cycles::new(3_000),
        injection: Cycles::new(4_000),
        signal: Cycles::new(6_000),
        halt_poll: HaltPollModel::OFF,
        direct: false,
    };
    const CLOCK: Hertz = Hertz::new(2_000_000_000);

    fn us(n: u64) -> At {
        At::from_nanos(n * 1_000)
    }

    #[test]
    fn a_direct_wake_leaves_out_injection_and_signal() {
        for (direct, resume) in [(false, 5_500), (true, 500)] {
            let mut vcpu = Vcpu::new(VcpuModel { direct, ..MODEL });
            assert_eq!(vcpu.halt(us(0), CLOCK), us(1));
            let woken = vcpu.wake(us(50), CLOCK).unwrap();
            assert_eq!((woken.polled, woken.kick, woken.resume.as_nanos()), (false, Nanos::from_nanos(1_500), resume));
            assert_eq!(vcpu.wake(us(60), CLOCK), None);
        }
        assert_eq!(Vcpu::new(MODEL).interrupt(CLOCK), Nanos::from_nanos(1_500));
        assert_eq!(Vcpu::new(MODEL).tick(CLOCK), Nanos::from_nanos(3 * 1_500 + 2_000));
    }

    #[test]
    fn halt_polling_learns_short_waits() {
        let mut vcpu = Vcpu::new(VcpuModel { halt_poll: HaltPollModel::HOST, ..MODEL });
        let mut now = us(0);
        let polled: Vec<bool> = (0..5)
            .map(|_| {
                vcpu.halt(now, CLOCK);
                now = now + Nanos::from_micros(51);
                vcpu.wake(now, CLOCK).unwrap().polled
            })
            .collect();
        assert_eq!(polled, [false, false, false, false, true]);
        assert_eq!((vcpu.polled(), vcpu.blocked()), (1, 4));
    }
}
