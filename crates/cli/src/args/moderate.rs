//! Arguments of `apus moderate`.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use policy::Goal;
use policy::moderation::Profile;
use units::{Nanos, PacketRate};

use super::Moderation;
use super::values::{is_interface_name, rate, span_with_hours};

/// The configuration file of the service.
pub const CONFIG: &str = "/etc/apus/moderate.toml";
/// The folder in which running instances publish their state.
pub const ROOT: &str = "/run/apus/moderate";
/// The default of `--goal`.
pub const GOAL: &str = "p99=100us";

/// Arguments of `apus moderate`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Moderate {
    /// A subcommand that does something other than adjust queues.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Network interfaces whose receive queues Apus adjusts. If an interface has the name of a subcommand, put `--`
    /// before it.
    #[arg(required_unless_present = "config", value_name = "INTERFACE", value_parser = interface)]
    pub interfaces: Vec<String>,
    /// Adjust the interfaces listed in the configuration file FILE, each with its own goals [default FILE:
    /// /etc/apus/moderate.toml].
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = CONFIG,
        conflicts_with_all = ["interfaces", "goal", "queue_goals", "policy", "place", "peak_rate"]
    )]
    pub config: Option<PathBuf>,
    /// Latency goal: p99=100us means that the application reads 99 % of the packets within 100 us of their arrival.
    #[arg(long, default_value = GOAL)]
    pub goal: Goal,
    /// Latency goal for queue number QUEUE of each INTERFACE, which replaces --goal, such as 3:p99=50us; may be
    /// given several times. Needs --policy goal.
    #[arg(long = "queue-goal", value_name = "QUEUE:GOAL", value_parser = queue_goal)]
    pub queue_goals: Vec<(u32, Goal)>,
    /// How to choose the timer (how long an interrupt is delayed after a packet arrives): goal (the longest
    /// time that meets --goal), net-dim (the time that Linux's dynamic interrupt moderation would choose), or
    /// static:TIME (always the same, such as static:50us).
    #[arg(long, default_value = "goal", value_parser = policy)]
    pub policy: Policy,
    /// Which setting to use as the timer. If several queues share one timer, Apus sets it to the shortest time that any
    /// of these queues needs.
    #[arg(long, value_enum, default_value = "napi")]
    pub place: Place,
    /// With --policy goal: highest packet rate to expect on one queue. The timer never exceeds half the time that the
    /// receive ring takes to fill at this rate [default: the rate of 64-byte frames at the line rate; no limit if the
    /// driver does not report its ring size or its line rate].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub peak_rate: Option<PacketRate>,
    /// End after DURATION, such as 90s, 10m or 2h [default: run until Ctrl-C].
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// With --policy net-dim: record the input and the result of each call of DIM (Linux's dynamic interrupt
    /// moderation) in DIR/INTERFACE-QUEUE.csv, for `apus dim replay`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Change nothing: only watch the queues, and print the settings that the policy would choose. Settings that a killed
    /// command left behind are named, and stay as they are.
    #[arg(long)]
    pub dry_run: bool,
    /// Print only one JSON document, at the end (schema apus.moderate/1).
    #[arg(long)]
    pub json: bool,
}

/// What `apus moderate` does instead of adjusting queues.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Checks a configuration file, and prints its interfaces, queues and goals. Exit status 2 if the file is invalid.
    ///
    /// Changes nothing and needs no privilege. Also reports interfaces in the file that this host does not have at
    /// present.
    Check(Check),
    /// Shows the queues that are being adjusted by running instances of `apus moderate`.
    ///
    /// Exit status 1 if a queue has missed its goal (with the policy `goal`), if Apus had to stop adjusting a queue, or
    /// if it does not adjust an interface of the configuration file.
    Status(Show),
}

/// Arguments of `apus moderate check`.
#[derive(Args, Debug)]
pub struct Check {
    /// Configuration file to check.
    #[arg(default_value = CONFIG)]
    pub file: PathBuf,
}

/// Arguments of `apus moderate status`.
#[derive(Args, Debug)]
pub struct Show {
    /// Print one JSON document (schema apus.moderate-status/1).
    #[arg(long)]
    pub json: bool,
    /// Which running instances to read.
    #[command(flatten)]
    pub moderation: Moderation,
}

/// How to choose the timer, the time by which an interrupt is delayed after a packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The longest time that meets the goal.
    Goal,
    /// The time that Linux's dynamic interrupt moderation, net_dim, chooses.
    NetDim,
    /// Always the time of this profile.
    Static(Profile),
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goal => f.write_str("goal"),
            Self::NetDim => f.write_str("net-dim"),
            Self::Static(profile) => write!(f, "static:{}us", profile.usecs),
        }
    }
}

/// Where to set the timer.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Place {
    /// NAPI deferral (gro-flush-timeout and defer-hard-irqs). Works with every driver. Before Linux 6.13, all queues of
    /// an interface share one timer.
    Napi,
    /// As napi, and also sets irq-suspend-timeout to the same time. An application that busy-polls with epoll then gets
    /// no interrupts while it is busy, and no packet waits longer than this time. Needs Linux 6.13.
    Epoll,
    /// The NIC's interrupt coalescing (rx-usecs). Needs a driver that offers rx-usecs. If the driver cannot set it for
    /// each queue, all queues share one timer.
    Nic,
}

impl Place {
    /// The name of the value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Napi => "napi",
            Self::Epoll => "epoll",
            Self::Nic => "nic",
        }
    }
}

/// The longest time that NAPI deferral accepts: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml, "napi").
const LONGEST: Nanos = Nanos::from_millis(2_147);
/// Queue numbers are below this limit (Linux, include/uapi/linux/ethtool.h, `MAX_NUM_QUEUE`).
const MOST_QUEUES: u32 = 4096;

/// Checks the name of a network interface. Returns why it is wrong.
pub fn wrong_interface(name: &str) -> Option<&'static str> {
    if !is_interface_name(name) {
        return Some("an interface name has 1 to 15 characters, without /, : and spaces");
    }
    // Linux allows these characters in a name, but who types them means a pattern.
    name.contains(['*', '?', '[']).then_some("patterns are not supported: name each interface")
}

/// Parses the name of a network interface.
fn interface(text: &str) -> Result<String, String> {
    wrong_interface(text).map_or_else(|| Ok(text.to_owned()), |why| Err(why.to_owned()))
}

/// Parses the goal of one queue: `3:p99=50us`.
fn queue_goal(text: &str) -> Result<(u32, Goal), String> {
    let (queue, goal) = text.split_once(':').ok_or("expected QUEUE:GOAL, such as 3:p99=50us")?;
    Ok((queue_number(queue)?, goal.parse().map_err(|error| format!("{error}"))?))
}

/// Parses the number of a queue. Fails if no queue can have this number.
pub fn queue_number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number: &u32| *number < MOST_QUEUES && number.to_string() == text);
    number.ok_or_else(|| format!("{text:?} is not the number of a queue, 0 to {}", MOST_QUEUES - 1))
}

/// Parses a policy: `goal`, `net-dim` or `static:50us`.
pub fn policy(text: &str) -> Result<Policy, String> {
    match text.split_once(':') {
        None if text == "goal" => Ok(Policy::Goal),
        None if text == "net-dim" => Ok(Policy::NetDim),
        Some(("static", time)) => {
            let time: Nanos = time.parse().map_err(|error| format!("{error}"))?;
            if time > LONGEST || !time.as_nanos().is_multiple_of(1_000) {
                return Err(format!("{time} is not a whole number of microseconds up to {LONGEST}"));
            }
            let usecs = u32::try_from(time.as_micros_floor()).map_err(|_| format!("{time} is too long"))?;
            Ok(Policy::Static(if usecs == 0 { Profile::IMMEDIATE } else { Profile::eqe(usecs, 0) }))
        }
        _ => Err("choose goal, net-dim or static:TIME, such as static:50us".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn goals_of_queues_are_read() {
        assert_eq!(queue_goal("3:p99=50us"), Ok((3, "p99=50us".parse().unwrap())));
        for wrong in ["", "p99=50us", "3", "3:", "03:p99=50us", "-1:p99=50us", "4096:p99=50us", "x:p99=50us", "3:50us"]
        {
            assert!(queue_goal(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_typed_is_what_is_shown() {
        for text in ["goal", "net-dim", "static:50us", "static:0us"] {
            assert_eq!(policy(text).unwrap().to_string(), text);
        }
        for place in Place::value_variants() {
            assert_eq!(Place::from_str(place.name(), false), Ok(*place));
        }
    }

    #[test]
    fn policies_are_read() {
        assert_eq!(policy("goal"), Ok(Policy::Goal));
        assert_eq!(policy("net-dim"), Ok(Policy::NetDim));
        assert_eq!(policy("static:50us"), Ok(Policy::Static(Profile::eqe(50, 0))));
        assert_eq!(policy("static:0us"), Ok(Policy::Static(Profile::IMMEDIATE)));
        for wrong in ["", "dim", "static", "static:", "static:50", "static:1500ns", "static:3s", "goal:1us"] {
            assert!(policy(wrong).is_err(), "{wrong}");
        }
    }
}
