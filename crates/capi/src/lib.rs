//! libapus: the policies of Apus in other people's loops, in C's words.
//!
//! **Law:** no clock and no thread that the caller did not ask for. The low level ([`decide`]) reads no clock, makes no
//! system call and allocates nothing after its creation. The high level ([`waiter`]) reads the clock and waits, in the
//! thread that calls it. A panic never leaves the library.
//!
//! `include/apus.h` is written by hand, because its comments are the reference of C's users. The tests compare it with
//! [`types`] (sizes, offsets, constants), with the functions in `ffi.rs` (names and signatures) and with the list in
//! `abi/`.
//!
//! `unsafe` is everywhere here that C's pointers are: in `ffi.rs`, [`config`], [`handle`] and [`sys`].
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod config;
pub mod decide;
pub mod error;
pub mod ffi;
pub mod handle;
pub mod sys;
pub mod types;
pub mod waiter;
