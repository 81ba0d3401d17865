//! Physical quantities as types, so that values of different units cannot be mixed up.
//!
//! **Law:** no operating system, no allocation, no floating point. Only operations with a physical meaning exist. A
//! *span* of time ([`Nanos`]) and a *point* in time ([`Instant`]) are different types. Points of different clocks
//! cannot be compared. The difference of two points is an `Option`: if time runs backwards, it is `None` and not an
//! absolute value.
//!
//! | type | unit | range | made from |
//! | --- | --- | --- | --- |
//! | [`Nanos`] | 1 ns | 0 to 584 years | `"50us"`, `Cycles / Hertz` |
//! | [`Instant`] | 1 ns since the clock's origin | 0 to 584 years | a clock |
//! | [`Hertz`] | 1/s | 0 to 18 EHz | `"2.1GHz"` |
//! | [`Cycles`] | 1 | u64 | a counter's difference |
//! | [`Microwatts`] | 1 uW | 0 to 18 TW | |
//! | [`Nanojoules`] | 1 nJ | 0 to 18 GJ | `Microwatts * Nanos` |
//! | [`PacketRate`] | 1 packet/s | u64 | `"14.88Mpps"` |
//! | [`BitRate`] | 1 bit/s | u64 | `"10Gbps"` |
//! | [`Quantile`] | 1 ppm | 0 to 999,999 ppm | `"p99.9"` |
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod energy;
mod named;
mod parse;
mod quantile;
mod rate;
mod text;
mod time;

pub use energy::{Microwatts, Nanojoules};
pub use named::{Named, UnknownName};
pub use parse::ParseError;
pub use quantile::Quantile;
pub use rate::{BitRate, PacketRate};
pub use text::acts;
pub use time::{Clock, Cycles, Hertz, Instant, Monotonic, Nanos, Simulated};
