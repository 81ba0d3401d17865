//! `apus power steer`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use host::facts::CpuSet;
use policy::Goal as Latency;
use policy::frequency::outside::{HIGHEST_BUSY_PPM, LOWEST_BUSY_PPM, Slot};
use steer::frequency::place::Way;
use units::{Hertz, Nanos};

use crate::args::values::{cpus, is_interface_name, one_of, span_with_hours};
use crate::args::{Steering, Telemetry};

/// The folder in which running instances publish their state.
pub const ROOT: &str = "/run/apus/steer";

/// Arguments of `apus power steer`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PowerSteer {
    /// A subcommand that does something other than steer.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Control the CPUs of the running instance NAME of Apus. Its telemetry shows how busy its workers are and how late
    /// packets are.
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub instance: Option<String>,
    /// Control the CPUs of a polling process that is not an instance of Apus, according to the packet rate of the
    /// network interface (eth0) or receive queue (eth0:3) that the process polls. Give the option once for each CPU, in
    /// the order of --cpus. If you give it only once, Apus assumes that each CPU receives all the packets. Needs
    /// --cpus.
    #[arg(long, value_name = "INTERFACE[:QUEUE]", requires = "cpus", value_parser = watch)]
    pub watch: Vec<Watch>,
    /// Control the CPUs of a polling process by their branch counters. With FILE, written by `apus power learn`, Apus
    /// compares the counts with those recorded while the process was idle and while it was loaded. With SHARE, such as
    /// 0.03%, a CPU counts as idle while less than this share of its branches is mispredicted, as in DPDK's
    /// vm_power_manager. Needs --cpus.
    #[arg(long, value_name = "FILE|SHARE", requires = "cpus", conflicts_with_all = ["instance", "watch"])]
    pub branches: Option<Branches>,
    /// With --branches: take the branch counts from FILE, which `apus power learn` wrote, instead of from the CPUs'
    /// counters.
    #[arg(long, value_name = "FILE", requires = "branches", conflicts_with_all = ["instance", "watch"])]
    pub counts: Option<PathBuf>,
    /// CPUs to control, such as 2 or 2-5. Needed unless --instance is given [default with --instance: all CPUs to which
    /// the instance's workers are pinned].
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    pub cpus: Option<CpuSet>,
    /// How to choose the frequency: goal (the lowest that meets --goal), two-level (as DPDK's power library does),
    /// l3fwd-power (as DPDK's example program l3fwd-power does), fixed:FREQUENCY (always the same, such as
    /// fixed:2.1GHz), or clock:TIME=FREQUENCY,... (by the time of day in UTC, such as clock:07:00=3GHz,22:00=800MHz).
    #[arg(long, default_value = "goal")]
    pub policy: Policy,
    /// Goal for the policy `goal`: a latency goal, such as p99=50us (needs --instance), or an upper limit on how busy a
    /// core may be, such as busy=80% [default: the strictest goal of the instance's workers; busy=80% if they have
    /// none].
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<Goal>,
    /// Setting that Apus writes to change the frequency [default: setspeed if the driver offers the governor userspace,
    /// else limits].
    #[arg(long, value_parser = one_of::<Way>())]
    pub via: Option<Way>,
    /// In a virtual machine: let the host set the frequencies; the host must run `apus power serve`. PORT is the
    /// connection to the host: a virtio-serial port, or a UNIX socket on which `apus power serve` listens. The number
    /// of a CPU in this machine is also its vCPU number on the host [default PORT: /dev/virtio-ports/apus.power if it
    /// exists, else /dev/virtio-ports/virtio.serial.port.poweragent.N, where N is the lowest controlled CPU].
    #[arg(long, value_name = "PORT", num_args = 0..=1, conflicts_with = "via")]
    pub through_host: Option<Option<PathBuf>>,
    /// While the command runs, limit the CPUs to idle states with an exit latency of at most this time, such as 20us;
    /// 0us disables all idle states [default: do not change idle states].
    #[arg(long, value_name = "DURATION")]
    pub idle_latency: Option<Nanos>,
    /// Also switch off turbo on the whole machine when no controlled CPU has needed more than its nominal frequency for
    /// at least 10s. Within 1s after a controlled CPU needs turbo, Apus switches it on again.
    #[arg(long, conflicts_with = "through_host")]
    pub turbo: bool,
    /// Also lower the frequency of the uncore (memory controller and last-level cache) of all packages to its lowest
    /// value when all controlled CPUs have been idle for at least 10s. Within 1s after a controlled CPU has work, Apus
    /// restores it. While it is low, memory is slower for all CPUs of the machine.
    #[arg(long, conflicts_with = "through_host")]
    pub uncore: bool,
    /// Longest time from a frequency request to the new frequency, at most 1s; `apus probe frequency` measures it.
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_second, default_value = "530us")]
    pub settling: Nanos,
    /// Time for which a core halts at each frequency change, at most 1s; `apus probe frequency` measures it.
    #[arg(long, value_name = "DURATION", value_parser = up_to_a_second, default_value = "12us")]
    pub stall: Nanos,
    /// Change nothing: only print the frequencies that would be requested.
    #[arg(long)]
    pub dry_run: bool,
    /// End after DURATION, such as 90s, 10m or 2h [default: run until Ctrl-C].
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// Folder that holds the host's root file system. `/` is the running host. With any other folder, Apus sets the
    /// frequencies in DIR/sys; instances and interfaces are still those of the running host.
    #[arg(id = "host_root", long = "root", value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print only one JSON document, at the end (schema apus.power-steer/1).
    #[arg(long)]
    pub json: bool,
    /// Which running instances to read.
    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// What `apus power steer` does instead of steering.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Shows the frequencies, load, goals and idle-state limits of the CPUs that running instances of `apus power
    /// steer` control.
    ///
    /// Exit status 1 if a CPU has missed its latency goal, if the machine refuses its frequency, or if Apus had to stop
    /// controlling a frequency or the idle states of a CPU.
    Status(Show),
}

/// Arguments of `apus power steer status`.
#[derive(Args, Debug)]
pub struct Show {
    /// Print one JSON document (schema apus.power-steer-status/1).
    #[arg(long)]
    pub json: bool,
    /// Which running instances to read.
    #[command(flatten)]
    pub steering: Steering,
}

/// The interface or queue whose packet rate shows how busy a core is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The network interface.
    pub interface: String,
    /// A receive queue of the interface. `None` for all of its queues.
    pub queue: Option<u32>,
}

/// How branch counters show whether a program has work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Branches {
    /// DPDK's test: the program has work if at least this share of its branches, in millionths, is mispredicted.
    Share(u32),
    /// A record that `apus power learn` wrote.
    Learned(PathBuf),
}

impl FromStr for Branches {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else { return Ok(Self::Learned(text.into())) };
        let percent = percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent < 100.0);
        percent
            .map(|percent| Self::Share((percent * 1e4).round() as u32))
            .ok_or_else(|| "expected a share of the branches such as 0.03%, or a file".to_owned())
    }
}

/// The goal of the policy `goal`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A limit on how late packets may be. Only instances of Apus report their lateness.
    Latency(Latency),
    /// Maximum share of time in which a core does useful work, in ppm.
    Busy(u32),
}

impl FromStr for Goal {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(share) = text.strip_prefix("busy=") else {
            return text.parse().map(Self::Latency).map_err(|error| format!("{error}, or busy=80%"));
        };
        let percent: Option<u32> = share.strip_suffix('%').and_then(|text| text.parse().ok());
        let range = LOWEST_BUSY_PPM / 10_000..=HIGHEST_BUSY_PPM / 10_000;
        match percent.filter(|percent| range.contains(percent)) {
            Some(percent) => Ok(Self::Busy(percent * 10_000)),
            None => Err(format!("expected busy={}% to busy={}%", range.start(), range.end())),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency(goal) => goal.fmt(f),
            Self::Busy(ppm) => write!(f, "busy={}%", ppm / 10_000),
        }
    }
}

/// How to choose the frequency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The lowest frequency that meets the goal.
    Goal,
    /// One of two frequencies, chosen as in DPDK's power library.
    TwoLevel,
    /// A frequency chosen as in DPDK's example l3fwd-power.
    L3fwdPower,
    /// Always this frequency.
    Fixed(Hertz),
    /// A frequency for each time of day, in UTC.
    Clock(Vec<Slot>),
}

impl Policy {
    /// Whether the policy needs to know the load of the cores.
    pub fn looks(&self) -> bool {
        matches!(self, Self::Goal | Self::TwoLevel | Self::L3fwdPower)
    }
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let hertz = |text: &str| {
            let hertz: Hertz = text.parse().map_err(|error| format!("{error}"))?;
            if hertz.as_hertz() == 0 { Err("0 Hz is no frequency".to_owned()) } else { Ok(hertz) }
        };
        let slot = |text: &str| {
            let wrong = || format!("{text:?}: expected a time and a frequency, such as 07:00=3GHz");
            let (time, frequency) = text.split_once('=').ok_or_else(wrong)?;
            let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str, below: u64| {
                let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
                text.parse::<u64>().ok().filter(|n| digits && *n < below).ok_or_else(wrong)
            };
            let minutes = number(hour, 24)? * 60 + number(minute, 60)?;
            Ok::<_, String>(Slot { from: Nanos::from_secs(minutes * 60), frequency: hertz(frequency)? })
        };
        match text.split_once(':') {
            None if text == "goal" => Ok(Self::Goal),
            None if text == "two-level" => Ok(Self::TwoLevel),
            None if text == "l3fwd-power" => Ok(Self::L3fwdPower),
            Some(("fixed", frequency)) => Ok(Self::Fixed(hertz(frequency)?)),
            Some(("clock", slots)) => {
                let slots: Vec<Slot> = slots.split(',').map(slot).collect::<Result<_, _>>()?;
                let ascends = slots.windows(2).all(|pair| pair[0].from < pair[1].from);
                let most = policy::frequency::outside::TimeOfDay::MOST;
                if !ascends || slots.len() > most {
                    return Err(format!("expected at most {most} times, each later than the one before"));
                }
                Ok(Self::Clock(slots))
            }
            _ => Err("choose goal, two-level, l3fwd-power, fixed:FREQUENCY or clock:TIME=FREQUENCY,...".into()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goal => f.write_str("goal"),
            Self::TwoLevel => f.write_str("two-level"),
            Self::L3fwdPower => f.write_str("l3fwd-power"),
            Self::Fixed(frequency) => write!(f, "fixed:{frequency}"),
            Self::Clock(slots) => {
                f.write_str("clock:")?;
                for (number, Slot { from, frequency }) in slots.iter().enumerate() {
                    let minutes = from.as_nanos() / 60_000_000_000;
                    let comma = if number > 0 { "," } else { "" };
                    write!(f, "{comma}{:02}:{:02}={frequency}", minutes / 60, minutes % 60)?;
                }
                Ok(())
            }
        }
    }
}

/// Parses a time of a frequency change. No processor takes longer than a second.
fn up_to_a_second(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: units::ParseError| error.to_string())?;
    if time <= Nanos::from_secs(1) { Ok(time) } else { Err("expected at most 1s".into()) }
}

/// Parses an interface and an optional queue: `eth0` or `eth0:3`.
fn watch(text: &str) -> Result<Watch, String> {
    let (name, queue) = match text.split_once(':') {
        None => (text, None),
        Some((name, queue)) => (name, Some(crate::args::moderate::queue_number(queue)?)),
    };
    if !is_interface_name(name) {
        return Err(format!("{name:?} is not the name of an interface"));
    }
    Ok(Watch { interface: name.to_owned(), queue })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_what_is_shown() {
        for text in ["goal", "two-level", "l3fwd-power", "fixed:2.1GHz", "clock:07:00=3GHz,22:30=800MHz"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        for text in ["p99=50us", "busy=80%"] {
            assert_eq!(text.parse::<Goal>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in
            ["", "fast", "fixed", "fixed:", "fixed:0Hz", "fixed:3", "clock:", "clock:7:00=3GHz", "clock:24:00=3GHz"]
        {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
        assert!("clock:08:00=3GHz,07:00=1GHz".parse::<Policy>().is_err());
        for text in ["", "busy", "busy=80", "busy=5%", "busy=96%", "busy=x%", "50us", "p99=0us"] {
            assert!(text.parse::<Goal>().is_err(), "{text}");
        }
        for text in ["%", "0%", "100%", "x%"] {
            assert!(text.parse::<Branches>().is_err(), "{text}");
        }
        assert_eq!("0.03%".parse(), Ok(Branches::Share(300)));
        assert!(up_to_a_second("2s").is_err() && up_to_a_second("12us").is_ok());
        assert!(watch("eth0:x").is_err() && watch("").is_err() && watch("a/b").is_err());
        assert_eq!(watch("eth0:3"), Ok(Watch { interface: "eth0".into(), queue: Some(3) }));
    }
}
