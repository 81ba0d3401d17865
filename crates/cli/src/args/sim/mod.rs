//! `apus sim`.

mod goals;

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use sim::strict::Override;

pub use goals::Goals;

/// What to simulate.
#[derive(Subcommand, Debug)]
pub enum Sim {
    /// Simulates a scenario: latency and its parts, loss, interrupts, CPU time and energy.
    ///
    /// Exit status 1 if the scenario has a goal and misses it, or has too few packets to judge it.
    Run(Run),
    /// Simulates several scenarios and compares them side by side.
    ///
    /// Exit status 1 if any scenario misses its goal, or has too few packets to judge it.
    Compare(Compare),
    /// Simulates a scenario with each combination of values, in parallel on all CPUs of this host.
    ///
    /// Prints one CSV row per case. A case is one combination with one seed. With -o, writes the rows to a file
    /// instead; if the file exists, the command simulates only the cases that the file lacks. An empty cell means that
    /// the value is unknown. The exit status is 0 even if cases miss their goal, and 1 if Ctrl-C stops the sweep early.
    ///
    /// With --seeds above 1, the sweep also computes statistics over the seeds of each combination: the mean and the
    /// median, each with its 95 % confidence interval. The mean's interval uses Student's t and needs at least 2 seeds;
    /// the median's uses order statistics and needs at least 6. With -o FILE.csv, these statistics are written to
    /// FILE.seeds.csv. Without -o, they are printed instead of the rows of the cases. The plots of --report show them
    /// too.
    Sweep(Sweep),
    /// Simulates the set-ups of papers, vendor guides and slides, and compares the results with the published figures.
    ///
    /// Each result is marked as simulated, arithmetic (it follows from the inputs in one line), assumption (it depends
    /// on a value that the document does not state) or calibrated (a parameter was fitted to the published number). A
    /// result agrees with a published average if it is within 15 % of it, and with a published minimum or maximum if it
    /// is within a factor of 2. A published bound counts as confirmed if the result stays within it. Every disagreement
    /// is explained. For comparison, the command shows what a one-line rule of thumb (the null model) predicts. Below
    /// each table, it shows how the rows change if a parameter changes by 20 % (a voltage: by 15 %).
    Figures(Figures),
    /// Lists the machines that a scenario can name, or shows one with the source of each value.
    ///
    /// With FILE.toml, the command checks your own machine file. For each mistake it prints the line, the key and the
    /// allowed values, and exits with status 2.
    Machines(Machines),
    /// Compares the waiting mode `adaptive` with the others: which one meets a latency goal with the least power?
    ///
    /// Simulates `adaptive` and its rivals, the other waiting modes, on the same frames. A case is one combination of
    /// machine, traffic, load, deepest idle state and goal, with or without telling `adaptive` the peak rate.
    ///
    /// Three of the rivals, `poll`, `backoff` and `interrupt`, run at the base frequency; `l3fwd-power` uses DPDK's own
    /// frequency scaling. `poll`, `backoff` and `interrupt` also run tuned, that is, at lower fixed frequencies
    /// (--frequencies); with --grid classic they do not. Of all tuned rivals, only the best one counts in each case.
    ///
    /// `adaptive` loses a case if it misses a goal that a rival meets, or if a rival meets the goal with over 1 % less
    /// power (over 5 % for a tuned rival). The command lists these cases. At the end, it counts wins, ties and losses.
    /// Exit status 1 if `adaptive` loses a case, or after Ctrl-C.
    ///
    /// --grid selects the cases: quick (72 cases, a few minutes), classic (48 cases, Poisson traffic only, a few
    /// minutes) or full (9,240 cases, days; use --sample to draw some of them). The other options replace parts of the
    /// grid.
    Goals(Box<Goals>),
}

/// Arguments of `apus sim run`.
#[derive(Args, Debug)]
pub struct Run {
    /// TOML file with the scenario.
    pub scenario: PathBuf,
    /// Values that replace those of the scenario.
    #[command(flatten)]
    pub instead: Instead,
    /// Print one JSON document (schema apus.sim.run/2).
    #[arg(long)]
    pub json: bool,
    /// Write a report with tables and plots, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Values that replace those of a scenario.
#[derive(Args, Clone, Debug)]
pub struct Instead {
    /// Random seed, instead of the scenario's. The same seed gives byte-identical output.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Replace a value of the scenario, such as goal.latency=p99=20us or traffic.rate=1Mpps. May be given several
    /// times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<Override>,
}

/// Arguments of `apus sim compare`.
#[derive(Args, Debug)]
pub struct Compare {
    /// TOML files with the scenarios, at least two.
    #[arg(required = true, num_args = 2..)]
    pub scenarios: Vec<PathBuf>,
    /// Values that replace those of every scenario.
    #[command(flatten)]
    pub instead: Instead,
    /// Print one JSON document (schema apus.sim.compare/2).
    #[arg(long)]
    pub json: bool,
    /// Write a report with tables and plots, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `apus sim sweep`.
#[derive(Args, Debug)]
pub struct Sweep {
    /// TOML file with the scenario.
    pub scenario: PathBuf,
    /// Key of the scenario and the values to try, such as traffic.rate=1kpps,10kpps. If --vary is given several times,
    /// all combinations are simulated. With --seeds, --vary is optional. The key cannot be `seed`: use --seeds.
    #[arg(long, required_unless_present = "seeds", value_name = "KEY=A,B,C")]
    pub vary: Vec<Vary>,
    /// Values that replace those of the scenario.
    #[command(flatten)]
    pub instead: Instead,
    /// Number of seeds per combination: the scenario's seed and the next N - 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// Number of cases to simulate at the same time [default: the number of CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Print one JSON document (schema apus.sim.sweep/2) instead of CSV.
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
    /// Write the finished cases to this CSV file, and skip those already in it.
    #[arg(short, long, value_name = "FILE.csv", value_parser = csv_file)]
    pub output: Option<PathBuf>,
    /// Write a report with plots and error bars over the seeds, one self-contained HTML file, to FILE.html.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// Arguments of `apus sim machines`.
#[derive(Args, Debug)]
pub struct Machines {
    /// Machine to show: a name from the list, or your own FILE.toml [default: list all].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print the machine as a TOML file, as a starting point for your own.
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub toml: bool,
    /// Print one JSON document (schema apus.sim.machines/1).
    #[arg(long)]
    pub json: bool,
}

/// A scenario key and the values to try for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vary {
    /// The key, written as in [`Override`].
    pub key: String,
    /// The values, at least one, none of them empty.
    pub values: Vec<String>,
}

impl FromStr for Vary {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        const ERROR: &str = "expected KEY=A,B,C, such as traffic.rate=1kpps,10kpps";
        // The same rules as for one value.
        let Override { key, value } = text.parse().map_err(|_| ERROR)?;
        let values: Vec<String> = value.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) { Err(ERROR.into()) } else { Ok(Self { key, values }) }
    }
}

/// Accepts only a file name that ends in `.csv`, the only format written.
fn csv_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Ok(path),
        _ => Err("expected a CSV file name, such as out.csv; no other format is supported".into()),
    }
}

/// Arguments of `apus sim figures`.
#[derive(Args, Debug)]
pub struct Figures {
    /// Figures to compare [default: all]. In their names, s0 to s4 stand for five documents, and the rest for a figure
    /// or table in that document. docs/models.md explains the results.
    #[arg(value_name = "FIGURE", value_parser = figure())]
    pub figures: Vec<&'static str>,
    /// Random seed. The same seed gives byte-identical output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also list the input parameters, each with its source.
    #[arg(long)]
    pub inputs: bool,
    /// Print one JSON document (schema apus.sim.figures/2).
    #[arg(long)]
    pub json: bool,
    /// Write a report with tables and plots, one self-contained HTML file, to FILE.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Parses the identifier of a figure; the help lists each with its title.
fn figure() -> impl TypedValueParser<Value = &'static str> {
    let known = sim::figures::titles().map(|(id, title)| PossibleValue::new(id).help(title));
    PossibleValuesParser::new(known)
        .try_map(|text| sim::figures::ids().find(|id| *id == text).ok_or("there is no such figure"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_key_varies_over_values() {
        let vary: Vary = "goal.latency=p99=20us, p99=50us".parse().unwrap();
        assert_eq!((vary.key.as_str(), vary.values), ("goal.latency", vec!["p99=20us".into(), "p99=50us".into()]));
        for text in ["", "seed", "seed=", "seed=1,,2", "=1"] {
            assert!(text.parse::<Vary>().is_err(), "{text}");
        }
        assert!(csv_file("out.csv").is_ok());
        assert!(csv_file("out.parquet").unwrap_err().contains("CSV"));
    }

    #[test]
    fn a_wrong_figure_is_told_the_right_ones() {
        let figures = |id| crate::args::Args::try_parse_from(["apus", "sim", "figures", id]).map(|_| ());
        assert!(figures("s0.4").is_ok());
        assert!(figures("s0.9").unwrap_err().to_string().contains("s3.5-native"));
    }
}
