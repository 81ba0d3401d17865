//! `apus power set`.

use std::path::PathBuf;

use clap::Args;
use host::facts::CpuSet;
use host::profile::Via;
use units::Hertz;

use crate::args::tune::Manner;
use crate::args::values::{cpus, one_of};

/// Arguments of `apus power set`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["frequency", "uncore"]))]
pub struct PowerSet {
    /// CPUs to set to --frequency, such as 21 or 2-5.
    #[arg(long, value_name = "CPUS", value_parser = cpus, required_unless_present = "uncore", requires = "frequency")]
    pub cpu: Option<CpuSet>,
    /// Frequency for the CPUs of --cpu, such as 800MHz or 2.1GHz.
    #[arg(long, requires = "cpu", value_name = "FREQUENCY")]
    pub frequency: Option<Hertz>,
    /// Frequency for the uncore (memory controller and last-level cache) of all dies, such as 1.6GHz.
    #[arg(long, value_name = "FREQUENCY")]
    pub uncore: Option<Hertz>,
    /// Where to write the frequency: to the processor's registers or to the kernel's files.
    #[arg(long, value_parser = one_of::<Via>(), default_value_t = Via::Cpufreq)]
    pub via: Via,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, such as an
    /// unpacked snapshot or a host's file system mounted in a container, Apus uses only files below that folder, and
    /// skips settings that are not files (ethtool, netlink, threads).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// How to make the changes.
    #[command(flatten)]
    pub manner: Manner,
    /// Print one JSON document (schema apus.tune-apply/1).
    #[arg(long)]
    pub json: bool,
}
