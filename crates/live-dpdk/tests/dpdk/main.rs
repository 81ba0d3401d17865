//! Ports of DPDK's virtual drivers, with the loop as it runs elsewhere: what a `Device` promises holds for them too.

/// A port as a device alone: slots, other pools' frames, other devices' frames.
mod device;
/// Whole instances: accounting, faults, stop, errors.
mod instance;
/// Ports over kernel interfaces, in network namespaces: receive interrupts, a port that is lost.
mod kernel;
