//! The details of a measurement: each case compared with the first case, and the halt polling of the guest's kernel.

use std::fs;
use std::path::Path;

use host::knob::State;
use tester::host::Reading;
use units::Nanos;

use super::{Done, name};
use crate::detail::idle::{HaltPolling, How, IdleCase, IdleDetail, IdleFacts};

impl HaltPolling {
    /// Reads the parameters of the module haltpoll from /sys below `root`. Unknown if another idle driver is in use,
    /// because the parameters then have no effect.
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
    // Compares with the same idle time if the first state was measured with it: waking after a longer idle time costs
    // more in every state.
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
    use crate::detail::idle::Source;
    use crate::record::Recorder;

    fn done(state: u32, source: Source, micros: u64) -> Done {
        let mut samples = Recorder::new();
        samples.record_n(Nanos::from_micros(micros), 11);
        let (name, sleep) = (format!("{state}"), Nanos::from_millis(1));
        Done { name, state: Some(state), sleep, source, samples, entered: Reading::known(11) }
    }
    fn state(number: u32, micros: u64) -> State {
        let latency = Some(Nanos::from_micros(micros));
        State {
            number,
            name: Some(format!("C{number}")),
            latency,
            residency: None,
            usage: None,
            time: None,
            disabled: Some(false),
        }
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
        // The processor knew the time of the timer, but not of the other CPU's wake-up. The medians are exact to the
        // nanosecond, because the samples are equal.
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
