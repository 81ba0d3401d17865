//! Values with their sources, as in a machine's file.

use serde::Deserialize;
use units::{Cycles, Nanos};

use crate::hw::ModelError;
use crate::hw::spread::Spread;
use crate::units_text::Text;

/// A value and its source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sourced<T> {
    pub value: T,
    #[serde(rename = "source")]
    _source: String,
}

/// A quantity with a unit.
pub(super) type Quantity<T> = Sourced<Text<T>>;

impl<T: Copy> Sourced<Text<T>> {
    pub fn get(&self) -> T {
        self.value.0
    }
}

/// A number of CPU cycles, written as a bare integer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcedCycles {
    cycles: u32,
    #[serde(rename = "source")]
    _source: String,
}

impl SourcedCycles {
    pub fn get(&self) -> Cycles {
        Cycles::new(u64::from(self.cycles))
    }
}

/// A span that varies: `value` plus an exponentially distributed excess with the mean `excess`, limited to `most`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourcedSpread {
    value: Text<Nanos>,
    excess: Option<Text<Nanos>>,
    most: Option<Text<Nanos>>,
    #[serde(rename = "source")]
    _source: String,
}

impl SourcedSpread {
    pub fn get(&self) -> Result<Spread, ModelError> {
        match (&self.excess, &self.most) {
            (None, None) => Ok(Spread::exactly(self.value.0)),
            (Some(excess), Some(most)) => Spread::new(self.value.0, excess.0, most.0),
            _ => Err(ModelError {
                part: "a span that varies",
                what: "excess and most belong together: give both or neither".into(),
            }),
        }
    }
}
