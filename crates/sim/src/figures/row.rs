//! One number of a figure: the document's value, the simulator's value, and their comparison.

/// One number of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The case, for example `2nd Generation` or `64 octets`.
    pub case: String,
    /// The quantity, for example `average latency`.
    pub quantity: &'static str,
    /// The unit, for example `us`.
    pub unit: &'static str,
    /// How closely the two values should agree.
    pub kind: Kind,
    /// The value in the document.
    pub theirs: Theirs,
    /// The value from the simulator. `None` if the simulator gives none; the explanation says why.
    pub modelled: Option<f64>,
    /// The null model's value for this row. `None` if the null model gives none.
    pub null: Option<f64>,
    /// How the number was obtained.
    pub role: Role,
    /// Why the values differ or why one is missing. `None` if no explanation is needed.
    pub explanation: Option<String>,
}

units::named! {
    /// How closely the simulator's value should agree with the document's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Kind {
        /// An average, a median, a rate or a power: within 15 %.
        Typical = "typical",
        /// A minimum or a maximum: within a factor of 2.
        Extreme = "extreme",
    }
}

/// A document's statement about a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Theirs {
    /// The number itself.
    Value(f64),
    /// A lower bound. Any smaller number differs.
    AtLeast(f64),
    /// An upper bound. Any larger number differs.
    AtMost(f64),
    /// A range. A number outside it differs.
    Between(f64, f64),
    /// The document shows no number.
    Nothing,
}

units::named! {
    /// How a number was obtained.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Role {
        /// The number was simulated, and no parameter was fitted to it: a prediction.
        Simulated = "simulated",
        /// The number follows from the inputs by one line of arithmetic; nothing was simulated.
        Arithmetic = "arithmetic",
        /// The number depends on a value that was chosen because the document does not state it.
        Assumption = "assumption",
        /// A parameter was fitted to the document's number, so the numbers agree by construction.
        Calibrated = "calibrated",
    }
}

units::named! {
    /// The result of a comparison.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// The values agree as closely as the row's [`Kind`] demands.
        Agrees = "agrees",
        /// The values differ by more than the row's [`Kind`] allows. The explanation says why.
        Differs = "differs",
        /// A parameter was fitted to this number.
        Calibrated = "calibrated",
        /// One of the two values is missing.
        NotCompared = "not_compared",
    }
}

/// Typical values agree within this many percent.
pub const TYPICAL_PERCENT: f64 = 15.0;
/// Extremes agree within this factor.
pub const EXTREME_FACTOR: f64 = 2.0;

impl Theirs {
    /// The deviation of `modelled`, as a share of the document's value. 0 if it is within the document's range or
    /// bound. `None` if the document has no number.
    pub fn deviation(self, modelled: f64) -> Option<f64> {
        let off = |theirs: f64| (theirs != 0.0).then(|| (modelled - theirs) / theirs);
        match self {
            Self::Value(theirs) => off(theirs),
            Self::AtLeast(least) | Self::Between(least, _) if modelled < least => off(least),
            Self::AtMost(most) | Self::Between(_, most) if modelled > most => off(most),
            Self::AtLeast(_) | Self::AtMost(_) | Self::Between(..) => Some(0.0),
            Self::Nothing => None,
        }
    }

    /// Whether `modelled` is as close to the document's value as `kind` demands. A bound has no tolerance. `None` if
    /// the document has no number.
    fn agrees(self, kind: Kind, modelled: f64) -> Option<bool> {
        let percent = self.deviation(modelled)? * 100.0;
        Some(match (self, kind) {
            (Self::Value(_), Kind::Typical) => percent.abs() <= TYPICAL_PERCENT,
            (Self::Value(_), Kind::Extreme) => {
                (1.0 / EXTREME_FACTOR..=EXTREME_FACTOR).contains(&(1.0 + percent / 100.0))
            }
            _ => percent == 0.0,
        })
    }
}

impl Row {
    /// A row without values.
    pub(super) fn new(
        role: Role,
        case: impl Into<String>,
        quantity: &'static str,
        unit: &'static str,
        kind: Kind,
    ) -> Self {
        let (theirs, modelled, null, explanation) = (Theirs::Nothing, None, None, None);
        Self { case: case.into(), quantity, unit, kind, theirs, modelled, null, role, explanation }
    }

    pub(super) fn theirs(self, theirs: Theirs) -> Self {
        Self { theirs, ..self }
    }
    pub(super) fn modelled(self, modelled: f64) -> Self {
        Self { modelled: Some(modelled), ..self }
    }
    pub(super) fn null(self, null: f64) -> Self {
        Self { null: Some(null), ..self }
    }
    pub(super) fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }
    pub(super) fn because(self, explanation: impl Into<String>) -> Self {
        Self { explanation: Some(explanation.into()), ..self }
    }

    /// The deviation of the simulator's value, in percent of the document's value. `None` if either is missing.
    pub fn deviation_percent(&self) -> Option<f64> {
        self.theirs.deviation(self.modelled?).map(|share| share * 100.0)
    }

    /// The result of the comparison.
    pub fn verdict(&self) -> Verdict {
        match self.modelled.and_then(|modelled| self.theirs.agrees(self.kind, modelled)) {
            None => Verdict::NotCompared,
            Some(_) if self.role == Role::Calibrated => Verdict::Calibrated,
            Some(true) => Verdict::Agrees,
            Some(false) => Verdict::Differs,
        }
    }

    /// Whether the null model's value is as close to the document's as the row's [`Kind`] demands. `None` if either is
    /// missing.
    pub fn null_agrees(&self) -> Option<bool> {
        self.null.and_then(|null| self.theirs.agrees(self.kind, null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, theirs: Theirs, modelled: f64) -> Row {
        Row::new(Role::Simulated, "x", "y", "us", kind).theirs(theirs).modelled(modelled)
    }

    #[test]
    fn verdicts() {
        use Verdict::{Agrees, Differs};
        let typical = |modelled| row(Kind::Typical, Theirs::Value(100.0), modelled).verdict();
        assert_eq!([115.0, 116.0, 85.0, 84.0].map(typical), [Agrees, Differs, Agrees, Differs]);
        let extreme = |modelled| row(Kind::Extreme, Theirs::Value(100.0), modelled).verdict();
        assert_eq!([200.0, 201.0, 50.0, 49.0].map(extreme), [Agrees, Differs, Agrees, Differs]);
        assert_eq!(row(Kind::Extreme, Theirs::AtMost(9.0), 3.0).deviation_percent(), Some(0.0));
        assert_eq!(row(Kind::Typical, Theirs::Between(10.0, 12.0), 15.0).deviation_percent(), Some(25.0));
        assert_eq!(row(Kind::Typical, Theirs::Nothing, 1.0).verdict(), Verdict::NotCompared);
        assert_eq!(row(Kind::Typical, Theirs::Value(1.0), 9.0).role(Role::Calibrated).verdict(), Verdict::Calibrated);
        assert_eq!(row(Kind::Typical, Theirs::Value(10.0), 99.0).null(11.0).null_agrees(), Some(true));
    }

    /// "All above 22 us" is missed by 21.9 us: a bound has no tolerance.
    #[test]
    fn a_bound_is_judged_as_it_is_stated() {
        assert_eq!(row(Kind::Extreme, Theirs::AtLeast(22.0), 21.9).verdict(), Verdict::Differs);
        assert_eq!(row(Kind::Extreme, Theirs::AtLeast(22.0), 22.0).verdict(), Verdict::Agrees);
        assert_eq!(row(Kind::Extreme, Theirs::AtMost(9.0), 9.1).verdict(), Verdict::Differs);
        assert_eq!(row(Kind::Typical, Theirs::Between(10.0, 12.0), 12.1).verdict(), Verdict::Differs);
    }
}
