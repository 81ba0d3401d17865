//! libapus: a C library with which the poll loops of other programs use the wait policies of Apus.
//!
//! **Law:** the library uses no clock and starts no thread unless the caller asks for it. The low level ([`decide`])
//! reads no clock, makes no system call and allocates no memory after its creation. The high level ([`waiter`]) reads
//! the clock and waits, in the thread that calls it. A panic never leaves the library.
//!
//! `include/apus.h` is written by hand, because its comments are the reference for C users. The tests compare it with
//! [`types`] (sizes, offsets, constants), with the functions in `ffi.rs` (names and signatures) and with the list in
//! `abi/`.
//!
//! `unsafe` code handles C pointers in `ffi.rs`, [`config`], [`handle`] and [`sys`].
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod config;
pub mod decide;
pub mod error;
pub mod ffi;
pub mod handle;
pub mod sys;
pub mod types;
pub mod waiter;
