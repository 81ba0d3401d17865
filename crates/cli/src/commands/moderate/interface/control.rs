//! What decides the timer of a queue: its policy with the goal and the limits.

use host::knob::{Access, Rings, Setting as _};
use policy::moderation::{
    Direction, GoalModeration, GoalModerationConfig, Limits, Moderation, NetDim, PeriodMode, Profile, Static,
};
use policy::{Goal, LossBound};
use steer::moderation::Moderate as Controller;
use units::{BitRate, Monotonic};

use super::super::config::InterfaceConfig;
use super::super::note;
use super::super::record::Recorder;
use super::Options;
use crate::args::moderate::{Place as TypedPlace, Policy};

/// DIM starts with the second of its five profiles, as the drivers do (Linux, drivers' `dim_init`; lib/dim/net_dim.c).
pub(in super::super) const DIM_BEGINS: u8 = 1;
/// Maximum NAPI deferral timer in microseconds: 2^31 - 1 ns (Documentation/netlink/specs/netdev.yaml).
const LONGEST_USECS: u32 = i32::MAX as u32 / 1_000;

fn goal_of(config: &InterfaceConfig, queue: u32) -> Goal {
    config.queues.iter().find(|(number, _)| *number == queue).map_or(config.goal, |(_, goal)| *goal)
}

/// The file in which to record the calls of DIM. `None` if they are not recorded.
pub(super) fn recorder(options: Options<'_>, config: &InterfaceConfig, queue: u32) -> anyhow::Result<Option<Recorder>> {
    match (options.record, config.policy) {
        (Some(folder), Policy::NetDim) => Ok(Some(Recorder::new(folder, &config.name, queue)?)),
        _ => Ok(None),
    }
}

pub(super) fn controller(
    config: &InterfaceConfig,
    queue: u32,
    loss: Option<LossBound>,
    is_shared: bool,
    in_force: Profile,
) -> Controller<Monotonic> {
    let goal = goal_of(config, queue);
    let policy = match config.policy {
        Policy::Static(profile) => Moderation::Static(Static::new(profile)),
        Policy::NetDim => {
            let dim = NetDim::new(Direction::Rx, PeriodMode::Eqe, DIM_BEGINS);
            Moderation::NetDim(dim.expect("DIM has five profiles"))
        }
        Policy::Goal => Moderation::Goal(GoalModeration::new(GoalModerationConfig {
            goal: Some(goal),
            direction: Direction::Rx,
            loss,
            limits: Limits { usecs: LONGEST_USECS, usecs_step: 1, frames: 0 },
            ends_empty: ends_empty(config.place),
            remaining: None,
        })),
    };
    let controller = Controller::new(policy, goal, in_force, is_shared);
    if ends_empty(config.place) { controller.ending_empty() } else { controller }
}

/// Whether each timer ends with an empty poll, as with NAPI deferral.
fn ends_empty(place: TypedPlace) -> bool {
    match place {
        TypedPlace::Napi | TypedPlace::Epoll => true,
        TypedPlace::Nic => false,
    }
}

/// The limit of the interrupt delay at which the receive ring does not overflow, from the size of the ring and the
/// highest packet rate. `None` for policies other than `goal`. Also `None`, with a note to the user, if the size or the
/// rate is unknown.
pub(super) fn loss_bound(access: &Access, config: &InterfaceConfig) -> anyhow::Result<Option<LossBound>> {
    /// Size of the shortest Ethernet frame in bytes, with its check sequence (IEEE 802.3-2018, 3.2.7).
    const SHORTEST_FRAME: u64 = 64;
    let interface = &config.name;
    if config.policy != Policy::Goal {
        return Ok(None);
    }
    let ring = Rings::new(interface).read(access)?;
    let descriptors = ring.as_ref().and_then(|ring| ring.field("rx")?.parse().ok());
    // A driver that does not know the speed reports an error or -1.
    let speed = access.number(&format!("/sys/class/net/{interface}/speed")).ok().flatten();
    let line = speed
        .filter(|megabits| *megabits > 0)
        .map(|megabits| BitRate::new(megabits * 1_000_000).frames_of(SHORTEST_FRAME));
    let why = match (descriptors, config.peak_rate.or(line)) {
        (Some(descriptors), Some(peak)) => return Ok(Some(LossBound { descriptors, peak })),
        (None, _) => "its driver does not report the ring size",
        (_, None) => "its driver does not report a line rate; state --peak-rate",
    };
    note(&format!("{interface}: only the goal limits the timer, not the size of the receive ring: {why}"));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::moderation::Delays;
    use steer::moderation::{QueueSeen, Reason};
    use steer::{Acted, Controller as _, Reading};
    use units::{Instant, Nanos};

    /// Each decision in 3 s of 5,000 packets per second, which arrive alone.
    fn decisions(place: TypedPlace) -> Vec<(u32, Reason)> {
        let goal: Goal = "p99=100us".parse().unwrap();
        let policy = Policy::Goal;
        let config = InterfaceConfig { name: "x".into(), goal, policy, place, peak_rate: None, queues: Vec::new() };
        let mut one = controller(&config, 0, None, false, Profile::IMMEDIATE);
        let mut decisions = Vec::new();
        for reading in 1..600u64 {
            let now = Instant::<Monotonic>::from_nanos(reading * 5_000_000);
            let (shortest, longest) = (Nanos::from_micros(5), Nanos::from_micros(10));
            let seen = QueueSeen {
                packets: Some(25 * reading),
                bytes: Some(2_500 * reading),
                polls: Some(25 * reading),
                full_polls: Some(0),
                after: Some(vec![Delays { packets: 25, shortest, longest }]),
                beside: Some(Nanos::ZERO),
            };
            let decision = one.decide(now, &Reading { taken: now, seen });
            if let Some(wish) = decision.apply {
                decisions.push((wish.profile.usecs, decision.reason));
                one.acted(now, &wish, &Acted::InForce);
            }
        }
        decisions
    }

    /// Regression test: with `--place epoll`, the policy did not know that each timer ends with an empty poll, and set
    /// timers that cost more polls than they save.
    #[test]
    fn the_two_deferrals_decide_alike() {
        assert_eq!(decisions(TypedPlace::Epoll), decisions(TypedPlace::Napi));
        assert_ne!(decisions(TypedPlace::Nic), decisions(TypedPlace::Napi));
    }
}
