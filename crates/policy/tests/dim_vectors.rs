//! DIM against calls of the kernel's own `net_dim()`, recorded with the state after each. They are not
//! part of this repository; where they are not, the test says so.

use std::fs;
use std::path::Path;

use policy::moderation::dim::{DimSample, NetDim};
use policy::moderation::{Direction, PeriodMode};
use units::{Instant, Simulated};

/// The columns: `run,apply,time_ns,restart_time_ns,events,packets,bytes`, then the six of the state.
const COLUMNS: usize = 13;

#[test]
fn every_state_field_is_the_kernels_after_every_call() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/net_dim.csv"));
    let Ok(text) = fs::read_to_string(path) else {
        testkit::skip(format!("no recorded calls of the kernel at {}", path.display()));
        return;
    };
    let mut dim: Option<NetDim<Simulated>> = None;
    let mut calls = 0;
    for (line, row) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(cells.len(), COLUMNS, "line {}", line + 1);
        let number = |column: usize| cells[column].parse::<u64>().unwrap();
        if cells[1] == "reset" {
            dim = NetDim::new(Direction::Rx, PeriodMode::Eqe, number(9) as u8);
            continue;
        }
        let dim = dim.as_mut().expect("a row that starts an instance comes first");
        if number(1) == 1 {
            dim.finish_applying();
        }
        let end = DimSample {
            time: Instant::from_nanos(number(2)),
            packets: number(5) as u32,
            bytes: number(6) as u32,
            events: number(4) as u16,
            completions: 0,
        };
        dim.step(&end, Instant::from_nanos(number(3)));
        let now = dim.snapshot();
        let now = [now.state as u8, now.tune_state as u8, now.profile_ix, now.steps_right, now.steps_left, now.tired];
        let theirs: Vec<u8> = (7..COLUMNS).map(|column| number(column) as u8).collect();
        assert_eq!(now[..], theirs, "line {}: {row}", line + 1);
        calls += 1;
    }
    assert!(calls > 1_000, "only {calls} calls in {}", path.display());
}
