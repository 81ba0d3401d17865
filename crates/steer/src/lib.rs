//! Control loops that adapt the machine's settings by a policy, for programs that do not use Apus.
//!
//! ```text
//!              ┌──────────────── Machine: poll(now), poll_at() ────────────────┐
//!   host ──►  Sensor ── Reading: what was seen, its age ──► Controller         │
//!              │                                              │ Decision       │
//!   host ◄──  Actuator ◄── setting ───────────────────────────┘                │
//!              └────────── Acted: in force, rounded, refused, late, lost ──────┘
//! ```
//! A [`Machine`] has no thread and no clock of its own: its caller passes the time. Tests run it in virtual time;
//! [`run`] runs any number of machines on one thread, in real or virtual time.
//!
//! **Law:** this crate opens no file and no socket. The crate `host` does all reading and writing, and every setting is
//! a [`host::transaction::Steered`]: its original value is recorded before the first change and restored at the end,
//! even after a crash.
//!
//! [`moderation`] chooses how long the interrupt of a receive queue is delayed. [`frequency`] chooses the frequency of
//! each core. [`guests`] carries out requests of virtual machines.
#![forbid(unsafe_code)]

pub mod frequency;
pub mod guests;
mod machine;
pub mod moderation;
mod seam;
#[cfg(test)]
mod testing;

pub use machine::{Machine, Poll, Step, run};
pub use seam::{Acted, Actuator, Away, Blind, Controller, Decision, Lost, Reading, Sensor, Standing};
