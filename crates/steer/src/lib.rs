//! Control loops that adapt settings of the machine by a policy, for programs that do not use Apus.
//!
//! ```text
//!              ┌──────────────── Machine: poll(now), poll_at() ────────────────┐
//!   host ──►  Sensor ── Reading: what was seen, its age ──► Controller         │
//!              │                                              │ Decision       │
//!   host ◄──  Actuator ◄── setting ───────────────────────────┘                │
//!              └────────── Acted: in force, rounded, refused, late, lost ──────┘
//! ```
//! A [`Machine`] has no thread and no clock. Tests run it in virtual time; [`run`] runs any number of them, live or in
//! virtual time, on one thread.
//!
//! **Law:** this crate opens no file and no socket. All reading and all writing goes through `host`, and every setting
//! is a [`host::transaction::Steered`], so its original value is recorded before the first change and restored at the
//! end, also after a crash.
//!
//! [`moderation`] chooses how long the interrupt of a receive queue is delayed. [`frequency`] chooses the frequency of
//! each core. [`guests`] carries out requests of virtual machines.
#![forbid(unsafe_code)]

pub mod frequency;
pub mod guests;
mod machine;
pub mod moderation;
mod seam;

pub use machine::{Machine, Poll, Step, run};
pub use seam::{Acted, Actuator, Away, Blind, Controller, Decision, Lost, Reading, Sensor, Standing};
