//! Audits of whole hosts.

/// What findings claim on every recorded host.
mod claims;
/// The fixes of every rule on every recorded host.
mod fixes;
/// A FreeBSD host with a slow 40G card.
mod freebsd;
/// A host of 4 sockets.
mod large;
/// Masked snapshots.
mod masked;
/// Recorded hosts, with the findings that each must have.
mod recorded;
/// This machine.
mod this_host;
