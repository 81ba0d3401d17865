//! The symptom that the user noticed.

units::named! {
    /// What kind of problem the user noticed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum SymptomKind {
        /// The throughput is too low.
        Slow = "slow",
        /// Packets or responses arrive late.
        Late = "late",
        /// Packets are lost.
        Drops = "drops",
        /// The user did not state a symptom, so all causes are equally relevant.
        Any = "any",
    }
}

units::named! {
    /// Where the expected figures were measured.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reference {
        /// On the same host, with another NIC or path. Properties of the whole host (idle states, frequency) then
        /// cannot explain the difference.
        SameHost = "same-host",
        /// On another host, or the expected figures were not measured at all.
        Elsewhere = "elsewhere",
    }
}

/// The symptom that the user noticed, with the measured and the expected figures if they are known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Symptom {
    /// Kind of the symptom.
    pub kind: SymptomKind,
    /// Measured throughput in bit/s. `None` if not known.
    pub measured_bps: Option<u64>,
    /// Expected throughput in bit/s. `None` if not known.
    pub expected_bps: Option<u64>,
    /// Measured mean round-trip time, in nanoseconds. `None` if not known.
    pub ping_ns: Option<u64>,
    /// Expected mean round-trip time, in nanoseconds. `None` if not known.
    pub expected_ping_ns: Option<u64>,
    /// Where the expected figures were measured.
    pub reference: Reference,
}

impl Default for Symptom {
    /// The symptom of a user who stated none.
    fn default() -> Self {
        Self {
            kind: SymptomKind::Any,
            measured_bps: None,
            expected_bps: None,
            ping_ns: None,
            expected_ping_ns: None,
            reference: Reference::Elsewhere,
        }
    }
}

impl Symptom {
    /// Whether the symptom includes high latency: `late`, `any`, or a measured round-trip time.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.kind, SymptomKind::Late | SymptomKind::Any) || self.ping_ns.is_some()
    }

    /// Whether the symptom includes low throughput: `slow`, `any`, or a measured throughput.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.kind, SymptomKind::Slow | SymptomKind::Any) || self.measured_bps.is_some()
    }

    /// Measured minus expected round-trip time, in microseconds. `None` if one of them is not known.
    pub(super) fn excess_us(&self) -> Option<f64> {
        let excess = self.ping_ns?.checked_sub(self.expected_ping_ns?)?;
        Some(excess as f64 / 1e3)
    }
}
