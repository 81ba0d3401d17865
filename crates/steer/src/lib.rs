//! Control loops: they keep a setting of the machine where a policy wants it, while programs that know nothing of Apus
//! run on it.
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
//! [`moderation`]: how long may a queue's packets gather before the kernel looks at them? [`frequency`]: how fast must each
//! core run? [`guests`] carries out what virtual machines ask for.
#![forbid(unsafe_code)]

pub mod frequency;
pub mod guests;
mod machine;
pub mod moderation;
mod seam;

pub use machine::{Machine, Poll, Step, run};
pub use seam::{Acted, Actuator, Away, Blind, Controller, Decision, Lost, Reading, Sensor, Standing};
