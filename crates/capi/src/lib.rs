//! libapus: a C library that gives the poll loops of other programs the wait policies of Apus.
//!
//! **Law:** the library starts no thread. The low level ([`decide`]) reads no clock; once a policy is created, it makes
//! no system call and allocates no memory. The high level ([`waiter`]) reads the clock and waits in the calling thread.
//! A panic never leaves the library.
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
mod publish;
pub mod sys;
pub mod types;
pub mod waiter;
