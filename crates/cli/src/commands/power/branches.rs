//! Files of branch counts, as `apus power learn` writes them: one time span per line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use host::counters::BranchCounters;
use policy::frequency::outside::branches::{Branches, Phase, Signature};
use serde::{Deserialize, Serialize};
use steer::frequency::counters::CounterSensor;
use units::Nanos;

use super::regular_file;
use crate::Failure;

/// Maximum size of a file in bytes: some ten hours of time spans.
const LARGEST: u64 = 512 << 20;

/// A line of the file: the counts of one time span.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    phase: String,
    branches: u64,
    misses: u64,
    cycles: Option<u64>,
    enabled_ns: u64,
    counted_ns: u64,
}

/// Reads all time spans of a file, in order.
pub(super) fn spans(path: &Path) -> Result<Vec<(Phase, Branches)>, Failure> {
    let what = || format!("cannot read the branch counts {}", path.display());
    let fix = "make the file with apus power learn";
    let file = regular_file(path).map_err(|error| Failure::wrong(what(), error, fix))?;
    if file.metadata().is_ok_and(|of| of.len() > LARGEST) {
        return Err(Failure::wrong(what(), format!("it is larger than {} MiB", LARGEST >> 20), fix));
    }
    let mut spans = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let wrong = |why: String| Failure::wrong(what(), format!("line {}: {why}", number + 1), fix);
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let line: Line = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        let phase = line.phase.parse().map_err(|_| wrong(format!("{:?} is no phase", line.phase)))?;
        let (enabled, counted) = (Nanos::from_nanos(line.enabled_ns), Nanos::from_nanos(line.counted_ns));
        let Line { branches, misses, cycles, .. } = line;
        spans.push((phase, Branches { branches, misses, cycles, enabled, counted }));
    }
    Ok(spans)
}

/// Appends time spans of a phase to a file, and creates the file if it does not exist.
pub(super) fn add(path: &Path, phase: Phase, spans: &[Branches]) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let fix = "name a file in a folder that you may write to";
        Failure::lacking(format!("cannot write the branch counts {}", path.display()), error.to_string(), fix)
    };
    let mut text = String::new();
    for span in spans {
        let line = Line {
            phase: phase.name().to_owned(),
            branches: span.branches,
            misses: span.misses,
            cycles: span.cycles,
            enabled_ns: span.enabled.as_nanos(),
            counted_ns: span.counted.as_nanos(),
        };
        text += &serde_json::to_string(&line).map_err(|error| failed(&error))?;
        text.push('\n');
    }
    let file = std::fs::File::options().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed(&error))
}

/// A sensor that returns the time spans of a file one after the other.
pub(super) fn recorded(path: &Path) -> Result<CounterSensor, Failure> {
    Ok(CounterSensor::recorded(spans(path)?.into_iter().map(|(_, span)| span).collect()))
}

/// Computes the signature of a program from these time spans.
pub(super) fn signature(spans: &[(Phase, Branches)]) -> Signature {
    let mut signature = Signature::default();
    for (phase, span) in spans {
        signature.learn(*phase, span);
    }
    signature
}

/// Opens the branch counters of a CPU.
pub(super) fn counters(cpu: u32) -> Result<CounterSensor, Failure> {
    let counters = BranchCounters::open(cpu).map_err(|error| {
        let fix = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run it as root, or with CAP_PERFMON",
            _ => "run it on a machine whose processor has counters; most virtual machines have none",
        };
        Failure::lacking(format!("cannot count the branches of CPU {cpu}"), error, fix)
    })?;
    Ok(CounterSensor::new(counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("apus-test-branches-{}", std::process::id()));
        let span = |branches, cycles| Branches {
            branches,
            misses: 3,
            cycles,
            enabled: Nanos::from_millis(10),
            counted: Nanos::from_millis(9),
        };
        add(&path, Phase::Idle, &[span(1, Some(5))]).unwrap();
        add(&path, Phase::Load, &[span(2, None)]).unwrap();
        assert_eq!(spans(&path).unwrap(), [(Phase::Idle, span(1, Some(5))), (Phase::Load, span(2, None))]);
        for bad in [
            "",
            "{}",
            "nothing",
            r#"{"phase":"x","branches":1,"misses":1,"cycles":null,"enabled_ns":1,"counted_ns":1}"#,
        ] {
            std::fs::write(&path, format!("{bad}\n")).unwrap();
            assert!(spans(&path).unwrap_err().to_string().contains("line 1"), "{bad}");
        }
        std::fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(spans(&path).unwrap_err().to_string().contains("larger than 512 MiB"));
        std::fs::remove_file(&path).unwrap();
        assert!(spans(&path).is_err());
    }
}
