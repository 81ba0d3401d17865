//! `apus power`: one file for each of its commands.

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
    /// Runs each core at the lowest frequency that holds a goal, and keeps adapting it.
    ///
    /// Serves loops that poll, whose CPU time says nothing about their load: instances of Apus, and any other polling
    /// process. Where it is not sure how busy a core is, it requests the highest frequency and says so. Restores the original
    /// settings at the end, also after a crash. Runs until Ctrl-C, or until --duration has passed. Exit status 1 if a
    /// goal was missed or a CPU is no longer steered; 3 if the host has no frequencies to steer.
    Steer(Box<steer::PowerSteer>),
    /// Learns how the branch counters of a CPU look while a program polls on it, idle and with load.
    ///
    /// `apus power steer --branches FILE` then tells from the counters alone whether the program has work. Needs a processor
    /// with branch counters, and root or CAP_PERFMON. Exit status 1 if the two phases look alike.
    Learn(learn::Learn),
    /// Shows watts, frequencies and idle states, and who limits them.
    ///
    /// Reads the meters that this machine has (RAPL, ACPI, hwmon), and says what each includes. Where there is none, it says
    /// where it looked and why nothing is there. Changes nothing, and needs no root but for meters that the kernel shows
    /// to root alone.
    Watch(watch::Watch),
    /// Serves virtual machines that ask for frequencies and idle depth of their vCPUs' cores.
    ///
    /// Each guest has a manifest, which says what it may ask for; docs/guests.md has examples. Guests ask by DPDK's
    /// librte_power or by `apus power request`. Restores the original settings at the end, also after a crash. Runs until
    /// Ctrl-C, or until --duration has passed.
    Serve(serve::Serve),
    /// In a virtual machine: asks the host for a frequency, a latency goal or a limit of idle states for a vCPU.
    ///
    /// The host runs `apus power serve`. Exit status 1 if the host does not grant it.
    Request(request::Request),
    /// Forwards frames while the frequency of the forwarder's core changes, and at each frequency.
    ///
    /// Shows what a change of frequency costs a packet (the longest latency of each second, with and without changes), and
    /// the power or CPU time of each frequency. Makes a lab of two network namespaces, and restores the frequency limits at
    /// the end, also after Ctrl-C or a kill. Needs root, two CPUs and a cpufreq driver.
    Sweep(Box<sweep::Sweep>),
}
