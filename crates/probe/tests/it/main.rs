//! Tests of the probes on this machine: one program, so that one runs at a time.

/// Injected causes are named.
mod causes;
/// Handing over between threads, delivery of frames.
mod delivery;
/// A stopped process, and what the probes cost themselves.
mod honesty;
/// Idle states and frequencies.
mod power;
/// What the tests share.
mod support;
/// A group of software events.
mod sys;
