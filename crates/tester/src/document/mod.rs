//! Types that the JSON documents of all commands share, so that all write them alike: a [`Name`] from a fixed set, a
//! [`Distribution`] of times, the [`Energy`] of a run. Also generates the schemas from the types.

mod distribution;
mod energy;
mod name;
mod schema;

pub use distribution::Distribution;
pub use energy::{Energy, EnergyMeter, MeasuredEnergy, MeterEnergy, ModelledEnergy, Work};
pub use name::{Name, by_name, meanings};
pub use schema::{OneEnum, schema_of};
