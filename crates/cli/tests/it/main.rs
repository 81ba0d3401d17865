//! All tests of the `apus` binary: one program, so that it is linked once.

/// `apus audit` and `apus irqs`.
mod audit;
/// `apus demo`: as root, a short one, and one that is interrupted.
mod demo;
/// `apus diagnose` in a lab, with one cause and with none; recordings, wrong names.
mod diagnose;
/// `apus dim replay`: the kernel's recorded calls, wrong use.
mod dim;
/// `apus experiment` in a lab, on what is known to help, to do nothing, and to help only together; as root only.
mod experiment;
/// `benches/frontier.py --from`: what it judges and writes.
mod frontier;
/// `apus power serve` and `apus power request`: guests of a machine in a folder.
mod guests;
/// A host, an archive and inputs that try to act on the terminal, for every command.
mod hostile;
/// Every command with `--json`: its document is as its schema says.
mod json;
/// `apus run` and `apus bench` on real interfaces in a lab; as root only.
mod lab;
/// What the crates may depend on and contain.
mod laws;
/// `apus metrics`: HTTP, its limits, and a real Prometheus server.
mod metrics;
/// `apus moderate`: applications on the kernel's stack in a lab, kills, other hands on the settings; as root only.
mod moderate;
/// `apus moderate` as a service: its file, what it publishes, the unit; status, top and metrics.
mod moderate_service;
/// `apus` alone, `--help`, and the completions and manual pages made of the same definitions.
mod overview;
/// `apus power steer` on machines in folders.
mod power_steer;
/// A running `apus power steer`, as its `status`, `apus top` and `apus metrics` show it.
mod power_steer_status;
/// `apus power sweep`: a lab, and frequencies in a generated tree.
mod power_sweep;
mod power_through_host;
/// `apus power watch`: generated meters, this machine, the unit; energy in results.
mod power_watch;
/// `apus probe`: documents, tables, wrong use, files of other tools.
mod probe;
/// `apus replay` and `apus report`: what they read.
mod replay;
/// `apus bench rfc2544`, `mlr` and `compare` on a forwarder between two ports; as root only.
mod rfc2544;
/// `apus run` without privilege: memory and pcap ports, wrong use.
mod run;
/// The schemas in `schemas/` are those of the code.
mod schemas;
/// `apus sim`: the figures.
mod sim;
/// `apus sim goals`: documents, own machines and traffic, draws, wrong use.
mod sim_goals;
/// `apus snapshot`: the document, what is written, wrong use.
mod snapshot;
/// What the tests share: a worker that pretends, and the binary.
mod support;
/// `apus top`: the document, the table, wrong use.
mod top;
/// `apus tune` and `apus power`: recorded hosts, guardians, and every profile on the running kernel.
mod tune;
/// `apus run` on veth pairs, as root: real clients, and every fault of the machine.
mod veth;
/// docs/which-mode.md: the commands on that page print what it shows.
mod which_mode;
