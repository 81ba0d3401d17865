//! The figures of the documents that Apus follows, beside what the models say.
//!
//! A [`Figure`] is plain data: what the document shows, what the models give for the same, which
//! parameters went in, and why a number differs where it does. What it may claim:
//!
//! - **Inputs** are parameters of hardware and method, each with its source. **Predictions** come out of
//!   the models and were fitted to nothing in their figure.
//! - **Calibrated** numbers are those that a parameter was set by; they agree by construction, say
//!   nothing, and are marked. The other rows are then the prediction.
//! - Averages, medians, rates and powers are meant to agree within 15 %; extremes to be of the right
//!   order, a factor of 2. Whatever is further off has an explanation.

mod forwarding;
mod interrupt_mode;
mod ixl;
mod microbenchmark;
mod polled;
mod power;
mod ring;
mod sleeper;
mod summary;
mod tcp_rr;
mod throughput;
mod transition;

use crate::machine::{Machine, MachineError};

pub use summary::Summary;

/// A table or plot of a document, and the same from the models.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// A short name: `s0.4`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The document and section.
    pub document: &'static str,
    /// How the models were run, and what had to be assumed for that.
    pub method: String,
    /// The parameters that matter.
    pub inputs: Vec<Input>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Points, where the document has a plot.
    pub plots: Vec<Plot>,
}

/// A parameter that went in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// What it is: `processor.pstates.block of xeon-platinum-8260l`.
    pub name: String,
    /// Its value, with the unit.
    pub value: String,
    /// Where it is from.
    pub source: String,
}

/// One number of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The case: `2nd Generation`, `64 octets, native`.
    pub case: String,
    /// What is counted: `average latency`.
    pub quantity: &'static str,
    /// The unit: `us`.
    pub unit: &'static str,
    /// How closely it is meant to agree.
    pub kind: Kind,
    /// What the document says.
    pub theirs: Theirs,
    /// What the models say; `None` where they say nothing, and the explanation says why.
    pub modelled: Option<f64>,
    /// What the number may claim.
    pub role: Role,
    /// Why it differs, or is absent.
    pub explanation: Option<String>,
}

/// How closely a number is meant to agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An average, a median, a rate, a power: within 15 %.
    Typical,
    /// A minimum or a maximum: within a factor of 2.
    Extreme,
}

/// What a document says of a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Theirs {
    /// So much.
    Value(f64),
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
    /// From so much to so much.
    Between(f64, f64),
    /// It shows no number.
    Nothing,
}

/// What a modelled number may claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It came out of the models, and nothing was fitted to it.
    Prediction,
    /// A parameter was set by it: it agrees by construction.
    Calibrated,
}

/// How a number turned out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As closely as it was meant to.
    Agrees,
    /// Further off: the explanation says why.
    Differs,
    /// Set by this number.
    Calibrated,
    /// One of the two numbers is absent.
    NotCompared,
}

/// Points to be drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis: quantity and unit.
    pub x: (&'static str, &'static str),
    /// The vertical axis.
    pub y: (&'static str, &'static str),
    /// The points: horizontal, vertical.
    pub points: Vec<(f64, f64)>,
    /// Lines across: what the document says, and where.
    pub lines: Vec<(String, f64)>,
}

/// Makes a figure from a seed.
type Make = fn(u64) -> Result<Figure, MachineError>;

/// All figures, in the documents' order.
const FIGURES: [(&str, Make); 11] = [
    ("s0.4", transition::figure),
    ("s0.5", microbenchmark::figure),
    ("s0.6", forwarding::figure),
    ("s0.7", power::figure),
    ("s1-idle", interrupt_mode::idle_states),
    ("s1-latency", interrupt_mode::optimisation),
    ("s2.4", tcp_rr::figure),
    ("s3.5-native", throughput::native),
    ("s3.5-vm", throughput::virtualised),
    ("s4.1", ixl::figure),
    ("s4.3", ring::figure),
];

/// All figures, in the documents' order. The same seed gives the same figures.
pub fn all(seed: u64) -> Result<Vec<Figure>, MachineError> {
    FIGURES.iter().map(|(_, make)| make(seed)).collect()
}

/// The figure called `id`; `None` if there is none.
pub fn named(id: &str, seed: u64) -> Option<Result<Figure, MachineError>> {
    FIGURES.iter().find(|(known, _)| *known == id).map(|(_, make)| make(seed))
}

/// The identifiers of all figures, in their order.
pub fn ids() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(id, _)| *id)
}

/// Averages agree within this many percent.
pub const TYPICAL_PERCENT: f64 = 15.0;
/// Extremes agree within this factor.
pub const EXTREME_FACTOR: f64 = 2.0;

impl Theirs {
    /// How far `modelled` is off, as a share of what the document says; 0 within its range.
    pub fn deviation(self, modelled: f64) -> Option<f64> {
        let off = |theirs: f64| (theirs != 0.0).then(|| (modelled - theirs) / theirs);
        match self {
            Self::Value(theirs) => off(theirs),
            Self::AtLeast(least) if modelled < least => off(least),
            Self::AtMost(most) if modelled > most => off(most),
            Self::Between(least, _) if modelled < least => off(least),
            Self::Between(_, most) if modelled > most => off(most),
            Self::AtLeast(_) | Self::AtMost(_) | Self::Between(..) => Some(0.0),
            Self::Nothing => None,
        }
    }
}

impl Row {
    /// A prediction.
    fn predicted(case: impl Into<String>, quantity: &'static str, unit: &'static str, kind: Kind) -> Self {
        Self {
            case: case.into(),
            quantity,
            unit,
            kind,
            theirs: Theirs::Nothing,
            modelled: None,
            role: Role::Prediction,
            explanation: None,
        }
    }

    fn theirs(self, theirs: Theirs) -> Self {
        Self { theirs, ..self }
    }
    fn modelled(self, modelled: f64) -> Self {
        Self { modelled: Some(modelled), ..self }
    }
    fn calibrated(self) -> Self {
        Self { role: Role::Calibrated, ..self }
    }
    fn because(self, explanation: impl Into<String>) -> Self {
        Self { explanation: Some(explanation.into()), ..self }
    }

    /// How far the modelled number is off, in percent of the document's; `None` without either.
    pub fn deviation_percent(&self) -> Option<f64> {
        self.theirs.deviation(self.modelled?).map(|share| share * 100.0)
    }

    /// How it turned out.
    pub fn verdict(&self) -> Verdict {
        let Some(percent) = self.deviation_percent() else { return Verdict::NotCompared };
        if self.role == Role::Calibrated {
            return Verdict::Calibrated;
        }
        let agrees = match self.kind {
            Kind::Typical => percent.abs() <= TYPICAL_PERCENT,
            Kind::Extreme => {
                let factor = 1.0 + percent / 100.0;
                (1.0 / EXTREME_FACTOR..=EXTREME_FACTOR).contains(&factor)
            }
        };
        if agrees { Verdict::Agrees } else { Verdict::Differs }
    }
}

impl Input {
    fn new(name: &str, value: impl Into<String>, source: &str) -> Self {
        Self { name: name.to_owned(), value: value.into(), source: source.to_owned() }
    }
}

/// The inputs at `paths` of a machine.
fn inputs_of(machine: &Machine, paths: &[&str]) -> Vec<Input> {
    let all = paths.iter().flat_map(|path| {
        let below = format!("{path}.");
        machine.parameters.iter().filter(move |p| p.path == *path || p.path.starts_with(&below))
    });
    let name = &machine.name;
    all.map(|p| Input { name: format!("{name}: {}", p.path), value: p.value.clone(), source: p.source.clone() })
        .collect()
}

/// Nanoseconds as microseconds.
fn us(nanos: f64) -> f64 {
    nanos / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, theirs: Theirs, modelled: f64) -> Row {
        Row::predicted("x", "y", "us", kind).theirs(theirs).modelled(modelled)
    }

    #[test]
    fn verdicts() {
        let typical = |modelled| row(Kind::Typical, Theirs::Value(100.0), modelled).verdict();
        assert_eq!([115.0, 116.0, 85.0, 84.0].map(typical), {
            use Verdict::{Agrees, Differs};
            [Agrees, Differs, Agrees, Differs]
        });
        let extreme = |modelled| row(Kind::Extreme, Theirs::Value(100.0), modelled).verdict();
        assert_eq!([200.0, 201.0, 50.0, 49.0].map(extreme), {
            use Verdict::{Agrees, Differs};
            [Agrees, Differs, Agrees, Differs]
        });
        assert_eq!(row(Kind::Typical, Theirs::AtMost(9.0), 3.0).deviation_percent(), Some(0.0));
        assert_eq!(row(Kind::Typical, Theirs::Between(10.0, 12.0), 15.0).deviation_percent(), Some(25.0));
        assert_eq!(row(Kind::Typical, Theirs::Nothing, 1.0).verdict(), Verdict::NotCompared);
        assert_eq!(row(Kind::Typical, Theirs::Value(1.0), 9.0).calibrated().verdict(), Verdict::Calibrated);
    }

    /// The promise of the module: all are there, all inputs have sources, all that differs is explained,
    /// and the most part agrees.
    #[test]
    fn every_figure_keeps_the_rules() {
        let figures = all(1).unwrap();
        assert_eq!(figures.iter().map(|f| f.id).collect::<Vec<_>>(), ids().collect::<Vec<_>>());
        let (mut agree, mut compared) = (0, 0);
        for figure in &figures {
            assert!(!figure.inputs.is_empty() && !figure.rows.is_empty() && figure.method.len() > 40, "{}", figure.id);
            assert!(figure.inputs.iter().all(|input| input.source.len() > 10), "{}: an input has no source", figure.id);
            for row in &figure.rows {
                let verdict = row.verdict();
                let place = format!("{}: {}, {}: {row:?}", figure.id, row.case, row.quantity);
                assert!(row.modelled.is_none_or(f64::is_finite), "{place}");
                assert!(row.modelled.is_some() || row.explanation.is_some(), "absent without a reason: {place}");
                assert!(verdict != Verdict::Differs || row.explanation.is_some(), "off without a reason: {place}");
                // A choice among a few, as that of an idle state, comes no nearer.
                let off = row.deviation_percent().is_some_and(|percent| percent.abs() > 7.5);
                assert!(verdict != Verdict::Calibrated || !off, "calibrated, but not on this: {place}");
                compared += u32::from(matches!(verdict, Verdict::Agrees | Verdict::Differs));
                agree += u32::from(verdict == Verdict::Agrees);
            }
        }
        assert!(compared >= 80, "only {compared} numbers are compared");
        assert!(agree * 100 >= compared * 90, "{agree} of {compared} agree");
    }

    #[test]
    fn the_same_seed_gives_the_same_figures_and_another_others() {
        for id in ["s0.4", "s0.5", "s2.4", "s4.1"] {
            let make = |seed| named(id, seed).unwrap().unwrap();
            assert_eq!(make(7), make(7), "{id}");
            assert_ne!(make(7).rows, make(8).rows, "{id}");
        }
        assert!(named("s9", 1).is_none());
    }
}
