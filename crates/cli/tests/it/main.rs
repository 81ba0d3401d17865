//! All tests of the `apus` binary: one program, so that it is linked once.

/// `apus demo`: as root, a short one, and one that is interrupted.
mod demo;
/// `apus run` and `apus bench` on real interfaces in a lab; as root only.
mod lab;
/// What the crates may depend on and contain.
mod laws;
/// `apus metrics`: HTTP, its limits, and a real Prometheus server.
mod metrics;
/// `apus replay` and `apus report`: what they read.
mod replay;
/// `apus run` without privilege: memory and pcap ports, wrong use.
mod run;
/// The schemas in `schemas/` are those of the code.
mod schemas;
/// What the tests share: a worker that pretends, and the binary.
mod support;
/// `apus top`: the document, the table, wrong use.
mod top;
/// `apus run` on veth pairs, as root: real clients, and every fault of the machine.
mod veth;
