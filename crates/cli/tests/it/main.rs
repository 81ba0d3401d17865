//! All tests of the `apus` binary: one program, so that it is linked once.

/// `apus run` in namespaces: real clients and faults.
mod lab;
/// `apus metrics`: HTTP, its limits, and a real Prometheus server.
mod metrics;
/// The schemas in `schemas/` are those of the code.
mod schemas;
/// What the tests share: a worker that pretends, and the binary.
mod support;
/// `apus top`: the document, the table, wrong use.
mod top;
