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
    /// Sets cores, the uncore or both to a fixed frequency; `apus tune rollback` undoes the change.
    ///
    /// Exit status 1 if the frequency is not in force as requested, for example because the driver or the firmware
    /// refused it; then all changes are rolled back.
    Set(set::PowerSet),
    /// Runs each core at the lowest frequency that meets a goal, and adapts it as the load changes.
    ///
    /// Meant for processes that poll (instances of Apus, and others), because their CPU time does not show how busy
    /// they are. If Apus cannot tell how busy a core is, it requests the highest frequency and reports why. Runs until
    /// Ctrl-C, or until --duration has passed, and then restores the original settings. If the command is killed, `apus
    /// tune rollback --abandoned` or the next `apus power steer` restores them. Exit status 1 if a goal was missed, if
    /// a frequency was refused at the end, or if Apus had to stop controlling a frequency or the idle states of a CPU; 3
    /// if frequencies cannot be controlled on this host.
    Steer(Box<steer::PowerSteer>),
    /// Records the branch counts of a CPU on which a program polls. Run it twice: without traffic, and under load.
    ///
    /// With both records in FILE, `apus power steer --branches FILE` can tell from the branch counters alone whether
    /// the program has work. Needs a processor with branch counters, and root or CAP_PERFMON. Exit status 1 if the
    /// counts with and without traffic are too similar to tell apart.
    Learn(learn::Learn),
    /// Shows power, frequencies and idle states, and what limits them.
    ///
    /// Reads the power meters of this machine (RAPL, ACPI, hwmon), and states which components each meter covers. If
    /// Apus finds no meter, it lists where it looked and why each meter is missing. Changes nothing. Works without
    /// root, but some meters can be read only by root.
    Watch(watch::Watch),
    /// Lets virtual machines request frequencies, latency goals and idle-state limits for the cores of their vCPUs.
    ///
    /// Runs on the host. Each guest has a manifest, a file that states what the guest may request; docs/guests.md has
    /// examples. Guests send requests with DPDK's librte_power or with `apus power request`. Runs until Ctrl-C, or
    /// until --duration has passed, and then restores the original settings. If the command is killed, `apus tune
    /// rollback --abandoned` or the next `apus power serve` restores them. Exit status 1 if it could not listen on a
    /// socket, could not write a line of --log, or could not restore a setting.
    Serve(serve::Serve),
    /// In a virtual machine: asks the host for a frequency, a latency goal or an idle-state limit for one vCPU.
    ///
    /// The host must run `apus power serve`. Exit status 1 if the host does not grant the request.
    Request(request::Request),
    /// Measures by how much a change of frequency delays the frames that a core forwards, and the CPU time and power at
    /// each frequency.
    ///
    /// First forwards frames while the frequency of the forwarding core changes, and then for the same time at an
    /// unchanged frequency, and shows the longest latency of each phase. Then forwards frames at each fixed frequency,
    /// and measures CPU time and, if the machine has an energy meter, power. Creates a lab of two network namespaces
    /// for this, and removes it afterwards. Restores the frequency limits at the end, also after Ctrl-C; after a kill,
    /// `apus tune rollback --abandoned` restores them. Needs root, two CPUs and a cpufreq driver. Exit status 1 after
    /// Ctrl-C.
    Sweep(Box<sweep::Sweep>),
}
