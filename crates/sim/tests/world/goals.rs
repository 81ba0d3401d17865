use sim::goals::{Case, Measured, Plan, QUANTILE, Way};

/// Carries a plan out on all cores, and judges.
fn judged(plan: &Plan) -> Vec<Case> {
    let runs = plan.runs().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut measured: Vec<(usize, Measured)> = std::thread::scope(|scope| {
        let part = |thread| runs.iter().enumerate().skip(thread).step_by(threads);
        let started: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || part(t).map(|(n, run)| (n, run.carry_out().unwrap())).collect::<Vec<_>>()))
            .collect();
        started.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    measured.sort_by_key(|(number, _)| *number);
    let measured: Vec<Measured> = measured.into_iter().map(|(_, measured)| measured).collect();
    plan.cases(&runs, &measured)
}

fn assert_won(cases: &[Case]) {
    let line =
        |way: &Way, m: &Measured| format!("  {way}: {QUANTILE} {:?}, lost {}, {:?}\n", m.latency, m.lost, m.power);
    let lost = cases.iter().filter(|case| !case.is_won()).map(|case| {
        let others: String = case.others.iter().map(|(way, measured)| line(way, measured)).collect();
        let ours = line(&Way::Adaptive(case.goal.latency), &case.ours);
        format!("{}, {} %, {}:\n{others}{ours}", case.machine, case.load, case.goal)
    });
    let lost: Vec<String> = lost.collect();
    assert!(lost.is_empty(), "{} of {} goals are lost:\n{}", lost.len(), cases.len(), lost.join("\n"));
}

/// One machine without and one with a long stall at a change of frequency, at the loads that take little time to
/// simulate.
#[test]
fn adaptive_holds_what_any_holds_with_the_least_power() {
    let all = Plan::default();
    let machines = all.machines.iter().filter(|(name, _)| name.ends_with("8260l") || name.ends_with("6338n"));
    let plan = Plan {
        machines: machines.cloned().collect(),
        loads: vec![1, 10],
        duration: units::Nanos::from_millis(300),
        ..all.clone()
    };
    let cases = judged(&plan);
    assert_eq!(cases.len(), 2 * 2 * 3);
    assert_won(&cases);
}

/// Where the lowest frequency bears the load at 90 %: others poll there, and a single rise within the time that counts
/// costs more than all sleeps save. Counted from when `apus sim goals` counts: both have come down by then.
#[test]
fn adaptive_stays_at_the_lowest_frequency_that_bears_half_the_load() {
    let all = Plan::default();
    let plan = Plan {
        machines: all.machines.iter().filter(|(name, _)| name.contains("2699v3")).cloned().collect(),
        loads: vec![50],
        duration: units::Nanos::from_millis(300),
        ..all.clone()
    };
    let cases = judged(&plan);
    assert_eq!(cases.len(), 3);
    assert_won(&cases);
}

/// All of it, as `apus sim goals` has it.
#[test]
#[ignore = "minutes, and in release: cargo test --release -p sim --test world -- --ignored every_goal"]
fn every_goal_on_every_machine_at_every_load() {
    let cases = judged(&Plan::default());
    assert_eq!(cases.len(), 4 * 4 * 3);
    assert_won(&cases);
}
