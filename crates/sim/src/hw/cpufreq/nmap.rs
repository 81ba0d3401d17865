//! NMAP: requests the highest frequency when NAPI has polled many packets in a row, and otherwise follows ondemand.
//!
//! ```text
//!   by utilisation (ondemand) ── more than ni_threshold packets polled since the interrupt ──► network-intensive
//!            ▲                                                                                (highest frequency)
//!            └───── within a period, polled / interrupt packets below cu_threshold ◄─────────────────┘
//! ```
//! Source: K.-D. Kang, G. Park, H. Kim, M. Alian, N. S. Kim, D. Kim, "NMAP: Power Management Based on Network Packet
//! Processing Mode Transition for Latency-Critical Workloads", MICRO 2021, pp. 143-154, doi 10.1145/3466752.3480098:
//! the mode transition monitor and the decision engine (section 4; cited from memory).

use policy::frequency::PStates;
use units::{Hertz, Nanos};

use super::Load;
use super::dbs::{Ondemand, OndemandModel};
use crate::At;

/// Parameters of NMAP. The paper finds both thresholds by profiling each workload in advance, so there are no default
/// values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NmapModel {
    /// NI_TH: if NAPI polls more packets than this after an interrupt, the core is network-intensive.
    pub ni_threshold: u32,
    /// CU_TH, in thousandths: if polled packets divided by interrupt packets fall below this, the core is no longer
    /// network-intensive.
    pub cu_threshold_thousandths: u32,
    /// How often the ratio of polled to interrupt packets is checked.
    pub period: Nanos,
    /// The governor for a core that is not network-intensive.
    pub otherwise: OndemandModel,
}

impl NmapModel {
    /// The period of the paper's decision engine, 10 ms (section 4; cited from memory).
    pub const TIMER: Nanos = Nanos::from_millis(10);
}

/// The state of NMAP on one core.
#[derive(Clone, Debug)]
pub struct Nmap {
    model: NmapModel,
    ondemand: Ondemand,
    /// When the current period began, and the counts of polled and interrupt packets at that time. `None` while the
    /// core is not network-intensive.
    intensive: Option<(At, u64, u64)>,
}

impl Nmap {
    pub fn new(model: NmapModel) -> Self {
        Self { model, ondemand: Ondemand::new(model.otherwise), intensive: None }
    }

    pub fn decide(&mut self, now: At, load: &Load, range: &PStates, requested: Hertz) -> Option<Hertz> {
        if load.polled_in_a_row > u64::from(self.model.ni_threshold) && self.intensive.is_none() {
            self.intensive = Some((now, load.polled_packets, load.interrupt_packets));
            return Some(range.highest());
        }
        let Some((since, polled, interrupt)) = self.intensive else {
            return self.ondemand.decide(now, load, range, requested);
        };
        if now.since(since).is_none_or(|span| span < self.model.period) {
            return None;
        }
        let (polled, interrupt) = (load.polled_packets - polled, load.interrupt_packets - interrupt);
        if polled * 1_000 < interrupt * u64::from(self.model.cu_threshold_thousandths) || polled + interrupt == 0 {
            self.intensive = None;
            return self.ondemand.decide(now, load, range, requested);
        }
        self.intensive = Some((now, load.polled_packets, load.interrupt_packets));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{mhz, range};
    use super::super::{Governor, GovernorModel};
    use super::*;

    const MODEL: NmapModel = NmapModel {
        ni_threshold: 64,
        cu_threshold_thousandths: 500,
        period: Nanos::from_millis(10),
        otherwise: OndemandModel { sampling: Nanos::from_millis(10), up_threshold: 95, sampling_down_factor: 1 },
    };

    #[test]
    fn polling_raises_the_frequency_at_once_and_interrupts_give_it_back() {
        let mut governor = Governor::new(GovernorModel::Nmap(MODEL), range(), false);
        let mut ask = |us: u64, load: Load| {
            // Idle half of the time.
            let load = Load { idle: Nanos::from_micros(us / 2), ..load };
            governor.decide(At::from_nanos(us * 1_000), mhz(2_200), &load)
        };
        let quiet = |interrupt_packets| Load { interrupt_packets, ..Load::default() };
        assert_eq!(ask(10_000, quiet(100)), Some(mhz(1_500)), "ondemand");
        // 100 us later, 65 packets have been polled since the interrupt. NMAP does not wait for a sampling period.
        let busy = Load { interrupt_packets: 164, polled_packets: 65, polled_in_a_row: 65, ..Load::default() };
        assert_eq!(ask(10_100, busy), Some(mhz(2_200)));
        // As many packets were polled as taken by interrupts, so the frequency stays.
        let still = Load { interrupt_packets: 264, polled_packets: 165, ..Load::default() };
        assert_eq!(ask(20_200, still), None);
        // Few packets were polled: NMAP returns to ondemand, whose sample is due.
        let few = Load { interrupt_packets: 364, polled_packets: 200, ..Load::default() };
        assert_eq!(ask(30_300, few), Some(mhz(1_500)));
    }
}
