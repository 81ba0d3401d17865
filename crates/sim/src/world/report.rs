//! Makes an [`Outcome`] from the counts of the world's parts.

use super::core::Core;
use super::kernel::Kernel;
use super::port::Port;
use super::tally::Tally;
use super::user::User;
use crate::At;
use crate::hw::cstate::{CState, Count};
use crate::outcome::{CoreOutcome, GoalOutcome, Moderated, Outcome, Package, QueueOutcome, Recorder};
use crate::scenario::Scenario;

/// The results of a core that ran a worker in user space.
pub fn of_user(user: User, end: At) -> CoreOutcome {
    let counts = user.counts;
    CoreOutcome {
        polls: counts.polls,
        empty_polls: counts.empty_polls,
        reasons: counts.reasons,
        waits: std::array::from_fn(|kind| (counts.waits[kind], counts.waited[kind])),
        frequency_reasons: counts.frequency_reasons,
        idle_limit_changes: counts.idle_limit_changes,
        ..of_core(user.core, end)
    }
}

/// The results of a core that the kernel drove.
pub fn of_kernel(kernel: Kernel, end: At) -> CoreOutcome {
    let counts = kernel.counts;
    CoreOutcome {
        polls: counts.polls,
        empty_polls: counts.empty_polls,
        frequency_reasons: counts.frequency_reasons,
        moderation_reasons: counts.moderation_reasons,
        ..of_core(kernel.core, end)
    }
}

/// The part of a core's results that is the same for all workers.
fn of_core(mut core: Core, end: At) -> CoreOutcome {
    core.close(end);
    let (wakeups, frequency_changes, frequency_requests) =
        (core.wakeups, core.frequency_changes, core.frequency_requests);
    let (book, idle) = core.into_record();
    CoreOutcome {
        polls: 0,
        empty_polls: 0,
        reasons: Default::default(),
        waits: Default::default(),
        frequency_reasons: Default::default(),
        moderation_reasons: Default::default(),
        wakeups,
        frequency_changes,
        frequency_requests,
        idle_limit_changes: 0,
        book,
        idle: named(&idle),
    }
}

fn named(idle: &CState) -> Vec<(String, Count)> {
    idle.model().states.iter().map(|state| state.name.clone()).zip(idle.counts().iter().copied()).collect()
}

/// Makes the whole outcome, except [`Outcome::steps`], which the caller sets.
pub fn outcome(
    scenario: &Scenario,
    seed: u64,
    tally: Tally,
    port: &Port,
    cores: Vec<CoreOutcome>,
    moderated: Vec<Moderated>,
) -> Outcome {
    let mut moderated = moderated.into_iter().peekable();
    let queues: Vec<QueueOutcome> = tally
        .queues
        .iter()
        .enumerate()
        .map(|(number, queue)| QueueOutcome {
            offered: queue.offered,
            departed: queue.departed,
            dropped: queue.dropped,
            in_flight: queue.in_flight,
            interrupts: port.queues[number].interrupts,
            moderation: moderated.next_if(|moderated| moderated.queue == number),
            shared: port.queues[number].shared.cycles,
        })
        .collect();
    let departed = queues.iter().map(|queue| queue.departed).sum();
    let lost = queues.iter().flat_map(|queue| queue.dropped).sum();
    Outcome {
        seed,
        duration: scenario.duration,
        octets: tally.octets,
        latency: tally.latency.finish(),
        waiting: tally.waiting.finish(),
        terms: tally.terms.into_iter().map(Recorder::finish).collect(),
        goal: scenario
            .goal
            .map(|plan| GoalOutcome::new(plan.latency, plan.loss_ppm, (departed, tally.late), lost, tally.overdue)),
        package: package(scenario, &cores),
        queues,
        cores,
        unsound: tally.unsound,
        steps: 0,
    }
}

fn package(scenario: &Scenario, cores: &[CoreOutcome]) -> Package {
    let host = &scenario.host;
    let power = &host.processor.power;
    let simulated: u128 = cores.iter().map(|core| core.book.femtojoules()).sum();
    let time = u128::from(scenario.duration.as_nanos());
    let alike = u128::from(scenario.worker.alike());
    let idle = &host.processor.cstates;
    let resting = power.idle(idle.states[idle.deepest].gate, host.processor.pstates.lowest);
    let busy = cores.len() as u64 + u64::from(scenario.worker.alike());
    let packages = scenario.packages();
    let others = u128::from((packages * u64::from(power.cores)).saturating_sub(busy));
    Package {
        simulated,
        alike: simulated * alike / (cores.len() as u128).max(1),
        others: u128::from(resting.as_microwatts()) * time * others,
        uncore: u128::from(power.uncore(host.uncore).as_microwatts()) * time * u128::from(packages),
    }
}
