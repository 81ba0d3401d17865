//! Durations and repetitions of a procedure, and the deviations from RFC 2544 that follow from them.

use units::Nanos;

use crate::search::SearchConfig;

units::named! {
    /// A test of RFC 2544, or of an RFC that builds on it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Test {
        /// Highest rate without loss (RFC 2544, 26.1). Always run, because the other tests start from it.
        Throughput = "throughput",
        /// Latency at the throughput found (RFC 2544, 26.2), typical and worst-case latency (RFC 8219, 7.2), and packet
        /// delay variation (RFC 8219, 7.3.1).
        Latency = "latency",
        /// Frame loss rate at 100 %, 90 %, … of the maximum rate (RFC 2544, 26.3).
        Loss = "loss",
        /// Longest burst without loss, and the buffer time that it implies (RFC 2544, 26.4; RFC 9004).
        BackToBack = "back-to-back",
        /// Time from the end of an overload to the last lost frame (RFC 2544, 26.5).
        Recovery = "recovery",
        /// Time without forwarding because of a reset (RFC 2544, 26.6; RFC 6201).
        Reset = "reset",
    }
}

/// Durations and repetitions of a procedure. The comment of each field gives the value that RFC 2544 requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Duration of a trial for throughput and for loss. RFC 2544, 24: 60 s.
    pub trial: Nanos,
    /// Pause after the learning frames. RFC 2544, 23 b: 2 s.
    pub after_learning: Nanos,
    /// Wait after a trial for frames still under way. RFC 2544, 23 d: 2 s.
    pub residue: Nanos,
    /// Pause between trials. RFC 2544, 23 e: 5 s.
    pub between: Nanos,
    /// Resolution of the throughput search, in ppm of the rate. RFC 2544 states none.
    pub width_ppm: u32,
    /// Number of failed trials after which a rate counts as failed. RFC 2544, 26.1: 1.
    pub failures_needed: u32,
    /// Share of the due frames that the tester may fail to send, in ppm. RFC 2544: 0.
    pub unsent_tolerance_ppm: u32,
    /// Number of throughput searches per frame size. RFC 2544 requires one; a comparison needs several.
    pub searches: u32,
    /// Duration of a latency stream. RFC 2544, 26.2: 120 s.
    pub stream: Nanos,
    /// Number of latency streams. RFC 2544, 26.2: 20.
    pub streams: u32,
    /// Step of the loss curve, in ppm of the maximum rate. RFC 2544, 26.3: at most 10 %.
    pub loss_step_ppm: u32,
    /// Duration of the longest burst, sent at the maximum rate. RFC 9004, 5.3: up to 30 s.
    pub longest_burst: Nanos,
    /// Number of burst searches. RFC 2544, 26.4: 50.
    pub bursts: u32,
    /// Duration of an overload. RFC 2544, 26.5: 60 s. After the overload, half the throughput is sent for the same
    /// duration.
    pub overload: Nanos,
    /// Number of overloads. RFC 2544, 26.5 requires several.
    pub overloads: u32,
    /// Duration of a reset trial. It must be longer than the device takes to reset.
    pub reset_trial: Nanos,
    /// Whether the durations and repetitions are meant to conform to RFC 2544, rather than to give a quick result.
    pub full: bool,
}

impl Effort {
    /// The durations and repetitions that RFC 2544 requires.
    pub const FULL: Self = Self {
        trial: Nanos::from_secs(60),
        after_learning: Nanos::from_secs(2),
        residue: Nanos::from_secs(2),
        between: Nanos::from_secs(5),
        width_ppm: 5_000,
        failures_needed: 1,
        unsent_tolerance_ppm: 0,
        searches: 1,
        stream: Nanos::from_secs(120),
        streams: 20,
        loss_step_ppm: 100_000,
        longest_burst: Nanos::from_secs(30),
        bursts: 50,
        overload: Nanos::from_secs(60),
        overloads: 20,
        reset_trial: Nanos::from_secs(120),
        full: true,
    };

    /// Short durations and few repetitions, which take seconds instead of hours, to check that a setup works. They do
    /// not conform to RFC 2544.
    pub const QUICK: Self = Self {
        trial: Nanos::from_millis(200),
        after_learning: Nanos::from_millis(20),
        residue: Nanos::from_millis(50),
        between: Nanos::from_millis(20),
        width_ppm: 50_000,
        failures_needed: 2,
        unsent_tolerance_ppm: 100_000,
        searches: 1,
        stream: Nanos::from_millis(500),
        streams: 3,
        loss_step_ppm: 250_000,
        longest_burst: Nanos::from_millis(50),
        bursts: 3,
        overload: Nanos::from_millis(300),
        overloads: 3,
        reset_trial: Nanos::from_secs(5),
        full: false,
    };

    /// Configuration of the throughput search between `min_pps` and `max_pps`.
    pub(super) fn search(&self, min_pps: u64, max_pps: u64) -> SearchConfig {
        SearchConfig {
            width_ppm: self.width_ppm,
            trial: self.trial,
            confirm_trial: self.trial,
            confirmations: u32::from(!self.full),
            unsent_tolerance_ppm: self.unsent_tolerance_ppm,
            failures_needed: self.failures_needed,
            ..SearchConfig::rfc2544(min_pps, max_pps)
        }
    }

    /// Number of frames in the longest burst.
    pub(super) fn longest_frames(&self, max_pps: u64) -> u64 {
        let frames = max_pps as f64 * self.longest_burst.as_nanos() as f64 / 1e9;
        (frames as u64).max(1)
    }

    /// Length of the longest trial of these tests.
    pub fn longest_trial(&self, tests: &[Test]) -> Nanos {
        let of = |test: &Test| match test {
            Test::Throughput | Test::Loss => self.trial,
            Test::Latency => self.stream,
            Test::BackToBack => self.longest_burst,
            Test::Recovery => self.overload * 2,
            Test::Reset => self.reset_trial,
        };
        tests.iter().map(of).fold(self.trial, Nanos::max)
    }

    /// How these durations and repetitions deviate from RFC 2544: one sentence for each deviation, with the section of
    /// the RFC.
    pub fn deviations(&self, tests: &[Test]) -> Vec<String> {
        let full = Self::FULL;
        let mut found = Vec::new();
        let mut short = |is: bool, text: String| {
            if is {
                found.push(text);
            }
        };
        let has = |test| tests.contains(&test);
        short(self.trial < full.trial, format!("trials of {} instead of 60s (RFC 2544, 24)", self.trial));
        short(
            self.after_learning < full.after_learning || self.residue < full.residue || self.between < full.between,
            format!(
                "pauses of {}, {} and {} instead of 2s, 2s and 5s (RFC 2544, 23)",
                self.after_learning, self.residue, self.between
            ),
        );
        short(
            self.failures_needed > 1,
            format!("a rate fails only after {} trials with loss, instead of 1 (RFC 2544, 26.1)", self.failures_needed),
        );
        short(
            self.unsent_tolerance_ppm > 0,
            format!(
                "up to {} % of the frames may stay unsent by the tester, instead of none (RFC 2544, 26.1)",
                f64::from(self.unsent_tolerance_ppm) / 1e4
            ),
        );
        if has(Test::Latency) {
            short(
                self.stream < full.stream || self.streams < full.streams,
                format!("{} streams of {} instead of 20 of 120s (RFC 2544, 26.2)", self.streams, self.stream),
            );
        }
        if has(Test::Loss) {
            short(
                self.loss_step_ppm > full.loss_step_ppm,
                format!("steps of {} % instead of at most 10 % (RFC 2544, 26.3)", f64::from(self.loss_step_ppm) / 1e4),
            );
        }
        if has(Test::BackToBack) {
            short(self.bursts < full.bursts, format!("{} burst searches instead of 50 (RFC 2544, 26.4)", self.bursts));
            short(
                self.longest_burst < Nanos::from_secs(2),
                format!("bursts of at most {} instead of 2s or more (RFC 2544, 26.4)", self.longest_burst),
            );
        }
        if has(Test::Recovery) {
            short(
                self.overload < full.overload,
                format!("an overload of {} instead of 60s (RFC 2544, 26.5)", self.overload),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_effort_has_no_deviation_and_the_quick_one_names_its_own() {
        assert_eq!(Effort::FULL.deviations(&Test::ALL), Vec::<String>::new());
        let quick = Effort::QUICK.deviations(&Test::ALL).join("\n");
        for section in ["24)", "23)", "26.1)", "26.2)", "26.3)", "26.4)", "26.5)"] {
            assert!(quick.contains(section), "{section}: {quick}");
        }
        let changed = Effort { bursts: 49, ..Effort::FULL };
        assert_eq!(changed.deviations(&[Test::Throughput]), Vec::<String>::new());
        assert_eq!(changed.deviations(&[Test::BackToBack]).len(), 1);
    }
}
