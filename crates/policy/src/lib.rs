//! Decides; never acts: an observation goes in, an action comes out.
//!
//! **Law:** no operating system, no clock, no allocation, no floating point. Time is an argument,
//! so the same observations give the same actions, bit for bit, in the live loop, in the simulator
//! and in a replay of a recorded file.
//!
//! [`wait`] answers, after each poll: what shall the core do until the next one? [`moderation`]: how
//! long may a NIC gather packets before it interrupts? [`frequency`]: how fast must the core be?
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod frequency;
pub mod goal;
pub mod moderation;
pub mod wait;

pub use goal::{Goal, LossBound};
