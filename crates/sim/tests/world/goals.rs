use std::sync::{Arc, Mutex, PoisonError};

use sim::goals::{Case, Grid, Plan, Setting};

/// Simulates a plan on all cores, and judges.
fn judged(plan: &Plan) -> Vec<Case> {
    let settings: Vec<Arc<Setting>> = plan.settings().unwrap().into_iter().map(Arc::new).collect();
    let (left, done) = (Mutex::new(settings.iter()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(setting) = next else { return };
                    let cases = setting.judge(&plan.files, None).unwrap();
                    done.lock().unwrap_or_else(PoisonError::into_inner).extend(cases);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn assert_not_beaten(cases: &[Case]) {
    let beaten = cases.iter().filter(|case| case.verdict().is_beaten()).map(|case| {
        let (rival, bound) = (case.rival().unwrap(), case.goal.latency);
        format!(
            "{}, {}: {}; ours {:.2} W, {} late; {} {:.2} W, {} late",
            case.setting.name(),
            case.goal,
            case.verdict().name(),
            case.ours.power(1) / 1e6,
            case.ours.late(bound),
            rival.way,
            rival.power(1) / 1e6,
            rival.late(bound)
        )
    });
    let beaten: Vec<String> = beaten.collect();
    assert!(beaten.is_empty(), "{} of {} goals are lost:\n{}", beaten.len(), cases.len(), beaten.join("\n"));
}

/// One machine without and one with a long stall at a change of frequency, at the loads that take little time to
/// simulate.
#[test]
fn adaptive_holds_what_any_holds_with_the_least_power() {
    let all = Grid::Classic.plan();
    let machines = all.machines.iter().filter(|(name, _)| name.ends_with("8260l") || name.ends_with("6338n"));
    let duration = units::Nanos::from_millis(600);
    let plan = Plan {
        machines: machines.cloned().collect(),
        loads_ppm: vec![10_000, 100_000],
        duration: (duration, duration),
        ..all.clone()
    };
    let cases = judged(&plan);
    assert_eq!(cases.len(), 2 * 2 * 3);
    assert_not_beaten(&cases);
}

/// Where the lowest frequency bears the load at 90 %: others poll there, and a single rise within the time that counts
/// costs more than all sleeps save. Counted from when `apus sim goals` counts: both have come down by then.
#[test]
fn adaptive_stays_at_the_lowest_frequency_that_bears_half_the_load() {
    let all = Grid::Classic.plan();
    let duration = units::Nanos::from_millis(600);
    let plan = Plan {
        machines: all.machines.iter().filter(|(name, _)| name.contains("2699v3")).cloned().collect(),
        loads_ppm: vec![500_000],
        duration: (duration, duration),
        ..all.clone()
    };
    let cases = judged(&plan);
    assert_eq!(cases.len(), 3);
    assert_not_beaten(&cases);
}

/// All of it, as `apus sim goals --grid classic` has it.
#[test]
#[ignore = "minutes, and in release: cargo test --release -p sim --test world -- --ignored every_goal"]
fn every_goal_on_every_machine_at_every_load() {
    let cases = judged(&Grid::Classic.plan());
    assert_eq!(cases.len(), 4 * 4 * 3);
    assert_not_beaten(&cases);
}
