//! Makes decisions but never acts on them: a policy takes an observation and returns an action.
//!
//! **Law:** no operating system, no clock, no allocation, no floating point. Time is an argument. So the same
//! observations always give exactly the same actions: in the live loop, in the simulator, and when a recorded file is
//! replayed.
//!
//! [`wait`] answers after each poll: what should the core do until the next one? [`moderation`] answers: how long may a
//! NIC collect packets before it raises an interrupt? [`frequency`] answers: how fast must the core run?
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod frequency;
pub mod goal;
pub mod moderation;
pub mod wait;

pub use goal::{Goal, LossBound};
