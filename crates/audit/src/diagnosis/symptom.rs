//! The symptom that the user noticed.

units::named! {
    /// The kind of a symptom.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum SymptomKind {
        /// The throughput is too low.
        Slow = "slow",
        /// Packets or answers are late.
        Late = "late",
        /// Packets are lost.
        Drops = "drops",
        /// Not stated: all causes are equally relevant.
        Any = "any",
    }
}

units::named! {
    /// Where the expected numbers were measured.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reference {
        /// On the same host, with another NIC or path. Then properties that the whole host shares (idle states,
        /// frequency) do not explain the difference.
        SameHost = "same-host",
        /// Elsewhere, or not measured.
        Elsewhere = "elsewhere",
    }
}

/// The symptom that the user noticed, with the figures that are known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Symptom {
    /// Kind of the symptom.
    pub kind: SymptomKind,
    /// Throughput that was measured, in bit/s.
    pub measured_bps: Option<u64>,
    /// Throughput that was expected, in bit/s.
    pub expected_bps: Option<u64>,
    /// Mean round-trip time that was measured, in ns.
    pub ping_ns: Option<u64>,
    /// Round-trip time that was expected, in ns.
    pub expected_ping_ns: Option<u64>,
    /// Where the expected figures were measured.
    pub reference: Reference,
}

impl Default for Symptom {
    /// Nothing stated.
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
    /// Whether lateness matters for it.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.kind, SymptomKind::Late | SymptomKind::Any) || self.ping_ns.is_some()
    }

    /// Whether throughput matters for it.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.kind, SymptomKind::Slow | SymptomKind::Any) || self.measured_bps.is_some()
    }

    /// By how much the round trip is longer than expected, in microseconds. `None` without both numbers.
    pub(super) fn excess_us(&self) -> Option<f64> {
        let excess = self.ping_ns?.checked_sub(self.expected_ping_ns?)?;
        Some(excess as f64 / 1e3)
    }
}
