//! The fixes of findings as data. The text that people read and the profile of `apus audit --fix` are both written from
//! it.
//!
//! Rules write their fixes as commands and kernel parameters with `{placeholders}`. [`fill`] puts this host's values
//! into these. [`Step`] says what a line is: settings that `apus tune` makes and rolls back, words of the kernel's
//! command line, or something for people. The commands that are shown are generated from this data.

mod agree;
mod fill;
mod needs;
mod offered;
mod operator;
mod parse;
mod risk;
mod setting;

use std::collections::BTreeSet;
use std::fmt;

use host::facts::{CommandLine, Os, Parameter};

use crate::cmdline::table;
use crate::{Judgement, Rule};

pub(crate) use agree::agree;
#[cfg(test)]
pub(crate) use fill::HOLES;
pub(crate) use fill::{Values, steady};
pub(crate) use needs::{name_boot_cpu, name_needs};
pub use operator::Operator;
pub use risk::Risk;
pub use setting::{Bound, OfCpus, OfInterrupts, OfMemory, OfNetwork, OfWorkqueues, Place, Setting, commands};
pub(crate) use setting::{quoted, words};

/// What mends a finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remedy {
    /// Commands that tell more before anything is changed. They mend nothing, and `apus audit --fix` leaves them out.
    pub look: Vec<String>,
    /// For the running host.
    pub runtime: Vec<Step>,
    /// For good.
    pub persistent: Vec<Step>,
    /// Do the persistent ones act from the next boot only?
    pub reboot: bool,
}

/// One line of a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is to be done.
    pub action: Action,
    /// What else is to be said of it; empty for most.
    pub note: String,
    /// What the step puts at risk.
    pub risks: BTreeSet<Risk>,
}

units::named! {
    /// What is to be done, and who can do it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Action {
        /// `apus tune` makes these settings, and rolls them back. At least one.
        Set(Vec<Setting>) = "set",
        /// The kernel's command line changes.
        Arguments {
            /// Words to add. They replace words with the same name.
            add: Vec<Parameter>,
            /// Words to remove: with this value, or with any if there is none.
            remove: Vec<Parameter>,
        } = "arguments",
        /// Somebody runs this command: `apus tune` could not roll it back, or it needs a decision.
        Run(String) = "run",
        /// Somebody does this, which is no command: firmware settings, another slot, a configuration file.
        Advise(String) = "advise",
        /// A value is not known; the text says which option of `apus audit` makes it known.
        Rerun(&'static str) = "rerun",
    }
}

impl Remedy {
    /// The remedy of a judgement: its own lines, or else the rule's.
    pub(crate) fn new(rule: &Rule, judgement: &Judgement, values: &Values<'_>) -> Self {
        let fix = &rule.fix;
        // apus tune knows Linux alone.
        let decision = fix.decision || rule.applies.os != Os::Linux;
        let lines = |own: &[String], general: Option<&str>| -> Vec<Result<String, &'static str>> {
            match own {
                [] => general.into_iter().flat_map(str::lines).flat_map(|line| values.lines(line)).collect(),
                own => own.iter().flat_map(|line| values.lines(line)).collect(),
            }
        };
        let steps = |lines: Vec<Result<String, &'static str>>, reboot: bool| {
            let mut steps: Vec<Step> = lines.into_iter().map(|line| Step::new(line, reboot, decision)).collect();
            steps.iter_mut().for_each(|step| offered::keep(step, values.facts));
            steps.iter_mut().for_each(|step| operator::keep(step, values.facts));
            // Two lines that lack the same value say so once.
            steps.dedup();
            let is_set = |step: &Step| matches!(step.action, Action::Set(_));
            // Half of a fix is none.
            if !steps.iter().all(is_set) {
                steps.iter_mut().filter(|step| is_set(step)).for_each(Step::leave);
            }
            steps
        };
        let look = lines(&judgement.look, fix.look);
        let persistent = steps(lines(&judgement.for_good, fix.persistent), fix.reboot);
        // A value that is not known boots with the rule's line.
        let boots = |step: &Step| match step.action {
            Action::Rerun(_) => fix.reboot,
            _ => step.risks.contains(&Risk::Reboot),
        };
        let reboot = persistent.iter().any(boots);
        Self {
            look: look.into_iter().map(|line| line.unwrap_or_else(str::to_owned)).collect(),
            runtime: steps(lines(&judgement.now, fix.runtime), false),
            persistent,
            reboot,
        }
    }

    /// All steps: those for the running host first.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.runtime.iter().chain(&self.persistent)
    }

    /// What the steps of the fix put at risk.
    pub fn risks(&self) -> BTreeSet<Risk> {
        self.steps().flat_map(|step| step.risks.iter().copied()).collect()
    }

    /// The settings that `apus tune` makes.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.runtime.iter().flat_map(|step| match &step.action {
            Action::Set(settings) => settings.as_slice(),
            _ => &[],
        })
    }

    /// The words that the remedy adds to the kernel command line.
    pub fn adds(&self) -> impl Iterator<Item = &Parameter> {
        self.persistent.iter().flat_map(|step| match &step.action {
            Action::Arguments { add, .. } => add.as_slice(),
            _ => &[],
        })
    }

    /// The words that the remedy removes from the kernel command line.
    pub fn removes(&self) -> impl Iterator<Item = &Parameter> {
        self.persistent.iter().flat_map(|step| match &step.action {
            Action::Arguments { remove, .. } => remove.as_slice(),
            _ => &[],
        })
    }
}

impl Step {
    /// What a line means; `Err` names the option that makes its values known. `decision`: people decide about it.
    fn new(line: Result<String, &'static str>, reboot: bool, decision: bool) -> Self {
        let line = match line {
            Ok(line) => line,
            Err(option) => return Self { action: Action::Rerun(option), note: String::new(), risks: BTreeSet::new() },
        };
        let (command, note) = match line.split_once(" # ") {
            Some((command, note)) => (command.trim(), note.trim()),
            None => (line.trim(), ""),
        };
        let action = if let Some(advice) = command.strip_prefix("# ") {
            Action::Advise(advice.to_owned())
        } else if let Some((add, remove)) = arguments(command).filter(|_| !decision) {
            Action::Arguments { add, remove }
        } else if let Some(settings) = parse::settings(command).filter(|_| !decision) {
            Action::Set(settings)
        } else if is_command(command) {
            Action::Run(command.to_owned())
        } else {
            Action::Advise(command.to_owned())
        };
        let step = Self { action, note: note.to_owned(), risks: BTreeSet::new() };
        let risks = if step.is_nothing() { BTreeSet::new() } else { risk::of(&step.action, reboot) };
        Self { risks, ..step }
    }
}

impl Step {
    /// Whether there is nothing to do on this host.
    pub fn is_nothing(&self) -> bool {
        matches!(&self.action, Action::Advise(text) if text.starts_with("nothing"))
    }

    /// Advice that risks nothing by itself.
    fn advice(text: impl Into<String>) -> Self {
        Self { action: Action::Advise(text.into()), note: String::new(), risks: BTreeSet::new() }
    }

    /// Leaves it to people, though `apus tune` could do it.
    fn leave(&mut self) {
        self.action = Action::Run(Self { note: String::new(), ..self.clone() }.to_string());
    }
}

impl fmt::Display for Step {
    /// The command, or the advice, with what is to be said of it as its comment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |list: &[Parameter]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match &self.action {
            Action::Set(settings) => f.write_str(&commands(settings).join("; "))?,
            Action::Arguments { add, remove } if add.is_empty() => write!(f, "remove {}", words(remove))?,
            Action::Arguments { add, .. } => f.write_str(&words(add))?,
            Action::Run(text) | Action::Advise(text) => f.write_str(text)?,
            Action::Rerun(option) => f.write_str(option)?,
        }
        if self.note.is_empty() { Ok(()) } else { write!(f, " # {}", self.note) }
    }
}

/// `nohz_full=2-7 rcu_nocbs=2-7`, or `remove idle=poll`: words that are all parameters of the table.
fn arguments(text: &str) -> Option<(Vec<Parameter>, Vec<Parameter>)> {
    let (text, removes) = match text.strip_prefix("remove ") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let parameters = CommandLine::parse(text).parameters;
    let known = |parameter: &Parameter| {
        let plain = parameter.to_string().chars().all(|c| c.is_ascii_alphanumeric() || "_-.,=:/".contains(c));
        plain && table::find(&parameter.name).is_some()
    };
    if parameters.is_empty() || !parameters.iter().all(known) {
        return None;
    }
    Some(if removes { (Vec::new(), parameters) } else { (parameters, Vec::new()) })
}

/// Commands that fixes begin with.
const COMMANDS: &[&str] = &[
    "apus",
    "auditctl",
    "cat",
    "chrt",
    "cpupower",
    "cpuset",
    "dmesg",
    "dpdk-devbind.py",
    "driverctl",
    "echo",
    "ethtool",
    "for",
    "grep",
    "ifconfig",
    "ip",
    "ipmitool",
    "mkdir",
    "mount",
    "nft",
    "ovs-vsctl",
    "pepc",
    "perf",
    "prlimit",
    "rdma",
    "rmmod",
    "rtla",
    "service",
    "setpci",
    "strace",
    "swapoff",
    "sysctl",
    "systemctl",
    "taskset",
    "tc",
    "tuned-adm",
    "turbostat",
    "virsh",
    "wrmsr",
    "x86_energy_perf_policy",
];

/// Is it a line that a shell takes?
pub(crate) fn is_command(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let line = line.split(" # ").next().unwrap_or_default();
    // "command, and another": prose that a shell would take for arguments.
    let is_prose = [", ", " (", ": "].iter().any(|mark| line.contains(mark));
    COMMANDS.contains(&first) && !is_prose
}
