//! Arguments of `apus moderate`.

use clap::Args;
use policy::Goal;
use policy::moderation::Profile;
use units::{Nanos, PacketRate};

use super::values::span_with_hours;

/// Arguments of `apus moderate`.
#[derive(Args, Debug)]
pub struct Moderate {
    /// Network interfaces whose receive queues are steered.
    #[arg(required = true, value_name = "INTERFACE")]
    pub interfaces: Vec<String>,
    /// Latency goal from a packet's arrival to the application's read, such as p99=100us or p99.9=1ms.
    #[arg(long, default_value = "p99=100us")]
    pub goal: Goal,
    /// How to choose the time for which packets gather: goal (the longest that holds --goal), net-dim (as Linux's
    /// dynamic interrupt moderation does), or static:TIME for a fixed time, such as static:50us.
    #[arg(long, default_value = "goal", value_parser = policy)]
    pub policy: Policy,
    /// Where the time is set: napi (NAPI deferral; works with every driver, each queue on its own) or nic (the NIC's
    /// coalescing, rx-usecs; one time for all queues, the shortest that a queue needs).
    #[arg(long, value_enum, default_value = "napi")]
    pub place: Place,
    /// Highest packet rate that one queue may receive. No time is longer than half of what the ring takes to fill at
    /// this rate [default: the rate of 64-byte frames at the line rate; no bound if the driver does not report its ring
    /// size or its line rate].
    #[arg(long, value_name = "RATE")]
    pub peak_rate: Option<PacketRate>,
    /// End after this time, from 1s to 24h.
    #[arg(long, value_name = "DURATION", value_parser = span_with_hours)]
    pub duration: Option<Nanos>,
    /// Change nothing: watch the queues, and print the settings that the policy would choose.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON document at the end (schema apus.moderate/1), and no lines before.
    #[arg(long)]
    pub json: bool,
}

/// How the time is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The longest time that holds the goal.
    Goal,
    /// Linux's dynamic interrupt moderation, net_dim.
    NetDim,
    /// Always the same.
    Static(Profile),
}

/// Where the time is set.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Place {
    /// NAPI deferral: gro-flush-timeout and defer-hard-irqs.
    Napi,
    /// The NIC's coalescing: rx-usecs.
    Nic,
}

/// The longest time that NAPI deferral takes: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml, "napi").
const LONGEST: Nanos = Nanos::from_millis(2_147);

fn policy(text: &str) -> Result<Policy, String> {
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
