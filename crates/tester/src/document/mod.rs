//! What the documents of all commands share, so that each thing has one form in JSON: a [`Name`] of a closed set, a
//! [`Distribution`] of times, and the schemas generated from the types.

mod distribution;
mod energy;
mod name;
mod schema;

pub use distribution::Distribution;
pub use energy::{Energy, EnergyMeter, MeasuredEnergy, MeterEnergy, ModelledEnergy, Work};
pub use name::{Name, by_name, meanings};
pub use schema::{OneEnum, schema_of};
