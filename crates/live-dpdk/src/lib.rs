//! Ports of DPDK drivers, as a backend of the crate `live`: `apus run macswap dpdk:net_af_xdp0,iface=eth0`.
//!
//! **Law:** only the module `sys` calls DPDK, through the C shim (`shim/`), and only `sys` contains `unsafe` code. The
//! crate needs the feature `dpdk` and libdpdk. Without the feature it is empty.
//!
//! ```text
//!   DpdkPort ──open──► Opened: a configured port ──device, per worker──► DpdkDevice: one queue
//!      Eal: DPDK's main thread, which keeps    │                            │
//!      the privileges that closing a port needs            RawPool: the worker's pool as DPDK's mempool
//! ```
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod sys;

#[cfg(feature = "dpdk")]
pub use device::{DpdkDevice, LONGEST_BURST};
#[cfg(feature = "dpdk")]
pub use eal::is_virtual;
#[cfg(feature = "dpdk")]
pub use port::{DpdkPort, FRAME_SIZE};
