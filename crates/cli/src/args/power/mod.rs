//! `apus power`: one module for each of its commands.

pub mod learn;
pub mod request;
pub mod serve;
pub mod set;
pub mod steer;
pub mod sweep;
pub mod watch;

use clap::Subcommand;

/// What to do with frequencies and power.
#[derive(Subcommand, Debug)]
pub enum Power {
    /// Fixes the frequency of cores and of the uncore; `apus tune rollback` undoes the change.
    Set(set::PowerSet),
    /// Runs each core at the lowest frequency that meets a goal, and adapts it as the load changes.
    ///
    /// For polling processes, whose CPU time does not show their load: instances of Apus, and others. If Apus cannot
    /// tell how busy a core is, it requests the highest frequency and reports why. Restores the original settings at
    /// the end, even after a crash. Runs until Ctrl-C, or until --duration has passed. Exit status 1 if a goal was
    /// missed, or if Apus had to stop controlling the frequency or idle states of a CPU; 3 if the host offers no
    /// control of frequencies.
    Steer(Box<steer::PowerSteer>),
    /// Records the branch counts of a CPU on which a program polls. Run it twice: without traffic, and under load.
    ///
    /// With this record, `apus power steer --branches FILE` tells from the counters alone whether the program has work.
    /// Needs a processor with branch counters, and root or CAP_PERFMON. Exit status 1 if the two phases look alike.
    Learn(learn::Learn),
    /// Shows power, frequencies and idle states, and what limits them.
    ///
    /// Reads the power meters of this machine (RAPL, ACPI, hwmon), and states which components each meter covers. If it
    /// finds no meter, it lists where it looked, and why each meter is missing. Changes nothing. Needs root only for
    /// meters that only root may read.
    Watch(watch::Watch),
    /// Lets virtual machines request frequencies, latency goals and idle-state limits for the cores of their vCPUs.
    ///
    /// Runs on the host. Each guest has a manifest, which states what it may request; docs/guests.md has examples.
    /// Guests send requests with DPDK's librte_power or with `apus power request`. Restores the original settings at
    /// the end, even after a crash. Runs until Ctrl-C, or until --duration has passed.
    Serve(serve::Serve),
    /// In a virtual machine: asks the host for a frequency, a latency goal or an idle-state limit for one vCPU.
    ///
    /// The host must run `apus power serve`. Exit status 1 if the host does not grant the request.
    Request(request::Request),
    /// Measures what a frequency change costs a forwarding core, and the CPU time and power at each frequency.
    ///
    /// First forwards frames with and then without frequency changes, and compares the two by the longest latency in
    /// each second. Then forwards frames at each fixed frequency, and measures CPU time and, with an energy meter,
    /// power. Creates a lab of two network namespaces for this. Restores the frequency limits at the end, even after
    /// Ctrl-C or a kill. Needs root, two CPUs and a cpufreq driver.
    Sweep(Box<sweep::Sweep>),
}
