//! The results of the probe that are not distributions.

use std::fs;
use std::path::Path;

use host::knob::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::document::Name;
use tester::host::Reading;
use units::Nanos;

use super::{Done, How, Source, name};

/// Results of the probe `idle` that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleDetail {
    /// How each idle state was entered.
    pub how: Name<How>,
    /// Idle states of the CPU, the shallowest first; empty in a guest that halts.
    pub states: Vec<IdleFacts>,
    /// The cases. Each has a term with its name.
    pub cases: Vec<IdleCase>,
    /// Whether the guest itself polls before it halts, and for how long.
    pub guest_halt_polling: Reading<HaltPolling>,
}

/// An idle state as its driver describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleFacts {
    /// Number of the state.
    pub number: u32,
    /// Name of the state.
    pub name: String,
    /// Exit latency according to the driver; null if it gives none.
    pub claimed_exit_ns: Option<u64>,
    /// Whether the state was disabled before the measurement; null if that is not readable.
    pub was_disabled: Option<bool>,
}

/// One combination of idle state, idle time and source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleCase {
    /// Name of its term.
    pub term: String,
    /// Number of the state; null if the CPU halted.
    pub state: Option<u32>,
    /// What ended the sleep: `timer`, `cpu` or `frame`.
    pub source: Name<Source>,
    /// Approximate time that the CPU was idle.
    pub sleep_ns: u64,
    /// Number of wake-ups.
    pub wakeups: u64,
    /// How often the kernel requested the state meanwhile; if far fewer than wake-ups, the figures do not describe
    /// this state.
    pub entered: Reading<u64>,
    /// The cost of the state itself: this case's median minus that of the first measured state with the same source.
    /// The two are compared after the same sleep, if that state was measured with it. In a guest that shows no idle
    /// states: minus the median after the first sleep with the same source. 0 if it would be negative; null if there
    /// are no samples.
    pub median_above_first_ns: Option<u64>,
    /// `median_above_first_ns` minus the exit latency that the driver states for the state; negative if it is lower.
    /// Null if the driver states none.
    pub median_above_claim_ns: Option<i64>,
}

/// Parameters of the guest's own halt polling (kernel documentation, virt/guest-halt-polling).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaltPolling {
    /// Longest time that a CPU polls before it halts.
    pub guest_halt_poll_ns: u64,
}

impl HaltPolling {
    /// Reads the parameters below `root`. They exist as soon as the module is loaded, but take effect only under the
    /// idle driver of the same name.
    pub fn read(root: &Path) -> Reading<Self> {
        let driver = fs::read_to_string(root.join("sys/devices/system/cpu/cpuidle/current_driver"));
        let driver = driver.map_or_else(|error| error.to_string(), |driver| driver.trim().to_owned());
        if driver != "haltpoll" {
            return Reading::unknown(format!("the idle driver is not haltpoll: {driver}"));
        }
        let path = root.join("sys/module/haltpoll/parameters/guest_halt_poll_ns");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()));
        let number = text.and_then(|text| text.trim().parse().map_err(|_| format!("{text:?} is no number")));
        number.map(|guest_halt_poll_ns| Self { guest_halt_poll_ns }).into()
    }
}

pub(super) fn detail(
    how: How,
    states: &[State],
    cases: Vec<Done>,
    guest_halt_polling: Reading<HaltPolling>,
) -> IdleDetail {
    let median = |of: &Done| of.samples.median().map(Nanos::as_nanos);
    // After the same sleep, where the first state had one as long: a longer one costs more in every state.
    let first = |of: &Done| {
        let shallowest = cases.iter().find(|other| other.source == of.source)?.state;
        let mut alike = cases.iter().filter(|other| other.source == of.source && other.state == shallowest);
        let same = alike.clone().find(|other| !states.is_empty() && other.sleep == of.sleep);
        same.or_else(|| alike.next()).and_then(median)
    };
    let claimed = |number: Option<u32>| {
        let state = states.iter().find(|state| Some(state.number) == number)?;
        state.latency.map(Nanos::as_nanos)
    };
    let done = cases.iter().map(|of| {
        let above_first = median(of).zip(first(of)).map(|(median, first)| median.saturating_sub(first));
        IdleCase {
            term: of.name.clone(),
            state: of.state,
            source: of.source.into(),
            sleep_ns: of.sleep.as_nanos(),
            wakeups: of.samples.len(),
            entered: of.entered.clone(),
            median_above_first_ns: above_first,
            median_above_claim_ns: above_first.zip(claimed(of.state)).map(|(above, claim)| above as i64 - claim as i64),
        }
    });
    IdleDetail {
        how: how.into(),
        states: states
            .iter()
            .map(|state| IdleFacts {
                number: state.number,
                name: name(state),
                claimed_exit_ns: state.latency.map(Nanos::as_nanos),
                was_disabled: state.disabled,
            })
            .collect(),
        cases: done.collect(),
        guest_halt_polling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    fn done(state: u32, source: Source, micros: u64) -> Done {
        let mut samples = Recorder::new();
        samples.record_n(Nanos::from_micros(micros), 11);
        let (name, sleep) = (format!("{state}"), Nanos::from_millis(1));
        Done { name, state: Some(state), sleep, source, samples, entered: Reading::known(11) }
    }
    fn state(number: u32, micros: u64) -> State {
        let latency = Some(Nanos::from_micros(micros));
        State { number, name: Some(format!("C{number}")), latency, usage: None, time: None, disabled: Some(false) }
    }

    #[test]
    fn a_state_costs_what_it_adds_to_the_shallowest() {
        let states = [state(0, 0), state(6, 133)];
        let cases = vec![
            done(0, Source::Timer, 5),
            done(0, Source::Cpu, 9),
            done(6, Source::Timer, 23),
            done(6, Source::Cpu, 97),
        ];
        let detail = detail(How::Alone, &states, cases, Reading::unknown("x"));
        let above: Vec<u64> = detail.cases.iter().map(|case| case.median_above_first_ns.unwrap()).collect();
        // The timer knew, the other CPU did not. To the nanosecond: no median lies beyond equal samples.
        assert_eq!(above, [0, 0, 18_000, 88_000]);
        let claims: Vec<i64> = detail.cases.iter().map(|case| case.median_above_claim_ns.unwrap()).collect();
        assert_eq!(claims, [0, 0, -115_000, -45_000]);
    }

    #[test]
    fn a_state_is_compared_after_the_same_sleep() {
        let states = [state(0, 0), state(1, 1)];
        let after = |millis: u64, done: Done| Done { sleep: Nanos::from_millis(millis), ..done };
        let cases = vec![
            after(1, done(0, Source::Timer, 5)),
            after(10, done(0, Source::Timer, 30)),
            after(1, done(1, Source::Timer, 8)),
            after(10, done(1, Source::Timer, 37)),
            after(20, done(1, Source::Timer, 9)),
        ];
        let detail = detail(How::Alone, &states, cases, Reading::unknown("x"));
        let above: Vec<_> = detail.cases.iter().map(|case| case.median_above_first_ns).collect();
        assert_eq!(above, [0, 0, 3_000, 7_000, 4_000].map(Some));
    }

    #[test]
    fn without_states_the_first_sleep_is_compared_with() {
        let halt = |millis: u64, micros| Done {
            state: None,
            sleep: Nanos::from_millis(millis),
            ..done(0, Source::Timer, micros)
        };
        let detail = detail(How::Alone, &[], vec![halt(1, 3), halt(10, 11)], Reading::unknown("x"));
        let above: Vec<_> = detail.cases.iter().map(|case| case.median_above_first_ns).collect();
        assert_eq!(above, [0, 8_000].map(Some));
    }

    #[test]
    fn the_guests_polling_is_read_or_unknown() {
        assert!(HaltPolling::read(Path::new("/nonexistent")).unknown_because.is_some());
        let root = std::env::temp_dir().join(format!("apus-haltpoll-{}", std::process::id()));
        let folder = root.join("sys/module/haltpoll/parameters");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("guest_halt_poll_ns"), "200000\n").unwrap();
        assert!(HaltPolling::read(&root).unknown_because.is_some(), "no driver");
        fs::create_dir_all(root.join("sys/devices/system/cpu/cpuidle")).unwrap();
        fs::write(root.join("sys/devices/system/cpu/cpuidle/current_driver"), "haltpoll\n").unwrap();
        assert_eq!(HaltPolling::read(&root).value, Some(HaltPolling { guest_halt_poll_ns: 200_000 }));
        fs::remove_dir_all(root).unwrap();
    }
}
