//! Reads results of other tools, so that they can be shown next to results of Apus: JSON of cyclictest and oslat
//! (rt-tests), and histograms of `rtla timerlat hist` and `rtla osnoise hist`.
//!
//! The files of these tools contain less than a measurement of Apus. Values that are not in a file are unknown. Samples
//! that the tool *lost* are reported: cyclictest leaves samples above its histogram out of its JSON without saying so,
//! and oslat counts them in the last bucket. This module counts lost samples as overflow. No quantile is given if it or
//! its confidence interval reaches the lost samples: an interval without its upper end would make the quantile look
//! more certain than it is.

mod rt_tests;
mod rtla;

use std::collections::BTreeMap;

use tester::document::Distribution;
use tester::histogram::HIGHEST_NS;
use tester::host::{HostState, Reading};
use tester::quantile::{QuantileEstimate, minimum_samples};
use units::Nanos;

use crate::Error;
use crate::conditions::Conditions;
use crate::detail::Detail;
use crate::detail::import::ImportDetail;
use crate::mark::Mark;
use crate::measured::{Counter, Measured, Name, Term};
use crate::record::Recorder;

/// An imported result, and what its file says about the host.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// State of the host; values that are not in the file are unknown.
    pub host: HostState,
    /// The result of the measurement.
    pub measured: Measured,
}

/// Parses `text`, the content of a result file of another tool. `name` is the name of the file, for error messages.
pub fn read(name: &str, text: &str) -> Result<Imported, Error> {
    let begins = text.trim_start();
    if begins.starts_with('{') {
        rt_tests::read(name, text)
    } else if text.lines().any(rtla::is_heading) {
        rtla::read(name, text)
    } else {
        Err(Error::invalid(
            name,
            "it is neither JSON of cyclictest or oslat (--json) nor output of rtla timerlat hist or rtla osnoise hist",
        ))
    }
}

/// Makes the variants of several results differ: a tool that has more than one is named with the file of each.
pub fn tell_apart(all: &mut [Measured]) {
    let variants: Vec<String> = all.iter().map(|of| of.variant.clone()).collect();
    for of in all {
        if variants.iter().filter(|variant| **variant == of.variant).count() > 1 {
            of.variant = format!("{}, {}", of.variant, of.settings.get("file").map_or("?", String::as_str));
        }
    }
}

/// One series of a file: values in buckets, and the number of values above the buckets.
#[derive(Clone, Debug, Default)]
struct Column {
    name: String,
    /// The lowest value of each bucket in nanoseconds, and the bucket's count.
    buckets: Vec<(u64, u64)>,
    /// Number of samples above the buckets.
    above: u64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    mean_ns: Option<u64>,
}

impl Column {
    fn term(&self) -> Term {
        let mut recorder = Recorder::new();
        for (value, count) in &self.buckets {
            recorder.record_n(Nanos::from_nanos(*value), *count);
        }
        // The values of these samples are not known. They are counted above the histogram's range, so they give no
        // quantile.
        recorder.record_n(Nanos::from_nanos(HIGHEST_NS + 1), self.above);
        let mut series = recorder.series(None);
        series.quantiles.iter_mut().for_each(|quantile| self.say_what_was_lost(quantile, recorder.len()));
        let known = (series.count > 0).then_some(());
        let or =
            |stated: Option<u64>, ours: Option<u64>| known.and_then(|()| stated.or(ours.filter(|_| self.above == 0)));
        let series = Distribution {
            min_ns: or(self.min_ns, series.min_ns),
            max_ns: or(self.max_ns, series.max_ns),
            mean_ns: or(self.mean_ns, series.mean_ns),
            ..series
        };
        Term::new(self.name.clone(), series, None, None)
    }

    /// Corrects the reason why `quantile` is missing, if it is missing because the file lacks values, not because there
    /// are too few samples.
    fn say_what_was_lost(&self, quantile: &mut QuantileEstimate, n: u64) {
        let enough = quantile.quantile.parse().is_ok_and(|q| n >= minimum_samples(q));
        if self.above > 0 && enough && quantile.refused_because.is_some() {
            let why = format!(
                "{} or its confidence interval lies among the {} largest of {n} samples, which the file does not contain",
                quantile.quantile, self.above
            );
            quantile.refused_because = Some(why);
        }
    }
}

/// What was found in a file: its columns, and the information around them.
struct Found {
    tool: String,
    command: Option<String>,
    cpus: Vec<usize>,
    counts: &'static str,
    blind_spots: Vec<String>,
    bucket_ns: u64,
    /// `None` if the file does not contain it.
    duration_ns: Option<u64>,
    columns: Vec<Column>,
    kernel: Reading<String>,
    marks: Vec<Mark>,
}

impl Found {
    /// The result, with the name of its file as a setting.
    fn imported(self, name: &str) -> Imported {
        let why = "not in the file";
        let host = HostState {
            cpu_model: Reading::unknown(why),
            cpus_online: Reading::unknown(why),
            kernel: self.kernel,
            virtualised: Reading::unknown(why),
            governors: Reading::unknown(why),
            c_states: Reading::unknown(why),
            isolated_cpus: Reading::unknown(why),
            nohz_full_cpus: Reading::unknown(why),
            microcode: Reading::unknown(why),
            mitigations: Reading::unknown(why),
            irq_affinity: Reading::unknown(why),
            scheduling_class: Reading::unknown(why),
        };
        let conditions = Conditions::unknown(self.cpus, why);
        let mut marks = self.marks;
        marks.extend(conditions.marks());
        let measured = Measured {
            probe: Name::Imported,
            variant: self.tool.clone(),
            settings: BTreeMap::from([("file".to_owned(), name.to_owned())]),
            counter: Counter {
                counts: self.counts.into(),
                resolution_ns: self.bucket_ns,
                highest_ns: self
                    .columns
                    .iter()
                    .flat_map(|of| of.buckets.last())
                    .map(|(value, _)| *value)
                    .max()
                    .unwrap_or(0),
                blind_spots: self.blind_spots,
            },
            overhead: Vec::new(),
            conditions,
            duration_ns: self.duration_ns,
            interrupted: false,
            terms: self.columns.iter().map(Column::term).collect(),
            detail: Detail::Imported(ImportDetail {
                tool: self.tool,
                command: self.command,
                bucket_ns: self.bucket_ns,
            }),
            exceeded: None,
            marks,
        };
        Imported { host, measured }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_else_is_refused_with_what_would_be_right() {
        for text in ["", "hello", "[1]", "{", "{}", "{\"file_version\": 2}", "{\"file_version\": 1, \"thread\": {}}"] {
            let error = read("x.json", text).unwrap_err();
            assert!(!error.lacks() && error.to_string().starts_with("x.json"), "{text:?}: {error}");
        }
    }

    #[test]
    fn results_of_the_same_tool_are_told_apart_by_their_files() {
        let json = r#"{"file_version": 1, "thread": {"0": {"histogram": {"5": 6}, "cycles": 6, "min": 5, "max": 5}}}"#;
        let import = |names: &[&str]| {
            let mut all: Vec<Measured> = names.iter().map(|name| read(name, json).unwrap().measured).collect();
            tell_apart(&mut all);
            all.into_iter().map(|of| of.variant).collect::<Vec<_>>()
        };
        assert_eq!(import(&["a.json"]), ["cyclictest"]);
        assert_eq!(import(&["a.json", "b.json"]), ["cyclictest, a.json", "cyclictest, b.json"]);
        assert_eq!(read("a.json", json).unwrap().measured.settings["file"], "a.json");
    }

    #[test]
    fn what_lies_above_makes_no_quantile() {
        let buckets = vec![(1_000, 900), (2_000, 50)];
        let column = Column { name: "x".into(), buckets, above: 50, max_ns: Some(7_000_000), ..Column::default() };
        let term = column.term();
        assert_eq!((term.raw.count, term.raw.p50_ns, term.raw.p99_ns), (1_000, Some(1_000), None));
        assert_eq!((term.raw.max_ns, term.raw.min_ns), (Some(7_000_000), None));
        assert_eq!(term.raw.histogram.overflow, 50);
        let why = |name: &str| {
            let found = term.raw.quantiles.iter().find(|of| of.quantile == name).unwrap();
            found.refused_because.clone().unwrap()
        };
        assert!(why("p99").contains("among the 50 largest of 1000 samples"), "{}", why("p99"));
        assert_eq!(why("p99.9"), "1000 samples; p99.9 needs 3688");
    }
}
