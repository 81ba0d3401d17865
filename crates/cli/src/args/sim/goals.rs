//! `apus sim goals`.

use std::path::PathBuf;

use clap::Args;
use policy::Goal;
use sim::goals::{Grid, MOST_SEEDS, Pattern, Peak, Way};
use units::{Nanos, Quantile};

use crate::args::values::one_of;

/// Arguments of `apus sim goals`.
#[derive(Args, Debug)]
pub struct Goals {
    /// Named set of cases to compare.
    #[arg(long, value_parser = one_of::<Grid>(), default_value_t = Grid::Quick)]
    pub grid: Grid,
    /// Number of cases to draw at random from the grid; only these are simulated [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: Option<u32>,
    /// Random seed of --sample: the same seed draws the same cases.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sample")]
    pub sample_seed: u64,
    /// Machine: a name that `apus sim machines` lists, or a FILE.toml. If it has no network controller, add that of
    /// another machine after a +, such as xeon-gold-6338n+x540. May be given several times [default: the machines of
    /// the grid].
    #[arg(long, value_name = "NAME[+NIC]", value_parser = machine)]
    pub machine: Vec<Machine>,
    /// Kinds of traffic (comma-separated): poisson, constant, on-off, self-similar, slots (a burst in each 500 us slot
    /// of a 5G cell), step, replay (a built-in recording), FILE.toml (only the `[[traffic]]` tables of a scenario),
    /// FILE.pcap or FILE.csv (your own recording). Traffic from a file keeps its own rate and ignores --load. Its peak
    /// rate is not known, so it needs --peak [default: the kinds of the grid].
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub traffic: Vec<Pattern>,
    /// Loads (comma-separated), in percent of the highest packet rate that one core can forward at its base frequency,
    /// such as 0.01,1,50 [default: the loads of the grid].
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = load)]
    pub load: Vec<u32>,
    /// Latency goals (comma-separated), such as p99=20us,p99.99=1ms. A duration alone, such as 20us, is a goal for
    /// p99.9 [default: the goals of the grid].
    #[arg(long, value_name = "GOAL", value_delimiter = ',', value_parser = goal)]
    pub goal: Vec<Goal>,
    /// Deepest idle states allowed (comma-separated), such as C1,C6. For each state, machines that lack it are left out
    /// [default: the states of the grid].
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub idle: Vec<String>,
    /// What `adaptive` is told about the peak packet rate (comma-separated): `told` (the true peak rate; not for
    /// traffic from a file), `untold` (nothing, so it assumes the line rate), or a rate, such as 1Mpps. In a scenario,
    /// this is the key goal.peak [default: that of the grid].
    #[arg(long, value_name = "PEAK", value_delimiter = ',', value_parser = peak)]
    pub peak: Vec<Peak>,
    /// Rivals (comma-separated): poll, hybrid300, l3fwd-power (hybrid300 with DPDK's own frequency scaling), interrupt,
    /// interrupt=50us (the NIC delays interrupts by 50 us) or backoff=50us (sleeps of at most 50 us). Add @1GHz to run
    /// a rival other than l3fwd-power at this fixed frequency [default: the rivals of the grid; no NIC delays interrupts
    /// there without --hold-off].
    #[arg(long, value_name = "MODE", value_delimiter = ',')]
    pub rival: Vec<Way>,
    /// Also run each rival at N fixed frequencies below the base frequency, evenly spaced from the lowest one up.
    /// l3fwd-power is excluded, because it changes the frequency itself [default: as many as in the grid; 0 with
    /// --rival].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=16))]
    pub frequencies: Option<u32>,
    /// Let `adaptive` choose how long the NIC delays interrupts. To be fair, rivals with delayed interrupts join: one for
    /// each backoff rival, with that time as the delay. --rival replaces them, too.
    #[arg(long)]
    pub hold_off: bool,
    /// Do not let `adaptive` choose how deep its core may idle. By default it does, by limiting the exit latency of the
    /// idle states (`pm_qos_resume_latency_us` of a CPU on Linux). Rivals always idle as deep as --idle allows.
    #[arg(long)]
    pub no_idle_limit: bool,
    /// Simulated time before the measured window [default: 2s, or longer if l3fwd-power needs more time to reach the
    /// lowest frequency of a machine].
    #[arg(long, value_name = "TIME")]
    pub warm_up: Option<Nanos>,
    /// Simulated length of the measured window [default: long enough to measure the goal's quantile at the packet rate,
    /// but at least 500ms and at most 1s (10s with --grid full); always 1s with --grid classic].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// First random seed of the simulations. The same seed gives byte-identical output.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    pub seed: u64,
    /// Number of seeds per case: the first seed and the next N - 1 [default: 5; 1 with --grid classic].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    pub seeds: Option<u64>,
    /// Number of cases to simulate at the same time [default: the number of CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// List all cases, not only those that `adaptive` loses.
    #[arg(long)]
    pub all: bool,
    /// List all cases, each with the result of every mode, frequency and sleep length.
    #[arg(long)]
    pub ways: bool,
    /// Write the scenario of each run into FOLDER, for `apus sim run`.
    #[arg(long, value_name = "FOLDER")]
    pub scenarios: Option<PathBuf>,
    /// Write one row per case to FILE.csv.
    #[arg(long, value_name = "FILE.csv", value_parser = super::csv_file)]
    pub csv: Option<PathBuf>,
    /// Print one JSON document (schema apus.sim.goals/2).
    #[arg(long)]
    pub json: bool,
    /// Write a report with tables and plots, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The largest seed of a scenario, the largest integer in TOML.
const MOST_SEED: u64 = i64::MAX as u64;

/// A processor, and optionally a network controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Name of a known machine, or FILE.toml.
    pub processor: String,
    /// Known machine, or FILE.toml, whose network controller to use. `None` to use that of `processor`.
    pub nic: Option<String>,
}

fn machine(text: &str) -> Result<Machine, String> {
    let (processor, nic) = text.split_once('+').map_or((text, None), |(processor, nic)| (processor, Some(nic)));
    let known: Vec<&str> = sim::machine::Machine::names().collect();
    for name in [Some(processor), nic].into_iter().flatten() {
        if !name.ends_with(".toml") && !known.contains(&name) {
            return Err(format!("there is no machine {name:?}; expected one of {}, or FILE.toml", known.join(", ")));
        }
    }
    Ok(Machine { processor: processor.to_owned(), nic: nic.map(str::to_owned) })
}

/// Parses a percentage above 0 into parts per million.
fn load(text: &str) -> Result<u32, String> {
    let percent = format!("{}%", text.trim().trim_end_matches('%'));
    let ppm = percent.parse().map(sim::scenario::Percent::ppm).ok().filter(|ppm| *ppm > 0);
    ppm.ok_or_else(|| "expected a percentage above 0 and up to 100, such as 0.01 or 50".into())
}

/// Parses a goal. A duration alone means a goal for p99.9.
fn goal(text: &str) -> Result<Goal, String> {
    if text.contains('=') {
        return text.parse::<Goal>().map_err(|error| error.to_string());
    }
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("a goal must be longer than 0; even polling takes some microseconds".into()),
        Ok(latency) => Ok(Goal { quantile: Quantile::P99_9, latency }),
        Err(error) => Err(error.to_string()),
    }
}

fn peak(text: &str) -> Result<Peak, String> {
    match text {
        "told" => Ok(Peak::Told),
        "untold" => Ok(Peak::Untold),
        rate => match rate.parse::<units::PacketRate>() {
            Ok(rate) if rate.as_pps() > 0 => Ok(Peak::Is(rate)),
            _ => Err("expected told, untold, or a packet rate, such as 1Mpps".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_refused() {
        assert_eq!(load("0.01"), Ok(100));
        assert_eq!((load("95%"), load("100")), (Ok(950_000), Ok(1_000_000)));
        assert!(["0", "101", "x", "", "-1", "0.00001"].into_iter().all(|text| load(text).is_err()));
        assert_eq!(goal("20us").unwrap().to_string(), "p99.9=20us");
        assert_eq!(goal("p99.99=1ms").unwrap().to_string(), "p99.99=1ms");
        assert!(goal("p99=0us").is_err() && goal("20").is_err() && goal("0us").is_err());
        assert_eq!((peak("told"), peak("1Mpps")), (Ok(Peak::Told), Ok(Peak::Is(units::PacketRate::new(1_000_000)))));
        assert!(peak("0pps").is_err() && peak("much").is_err());
        let pair = machine("xeon-gold-6338n+own.toml").unwrap();
        assert_eq!((pair.processor.as_str(), pair.nic.as_deref()), ("xeon-gold-6338n", Some("own.toml")));
        assert!(machine("xeon").unwrap_err().contains("xeon-e5-2699v3"));
    }
}
