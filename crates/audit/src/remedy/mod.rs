//! The fixes of findings as data, from which both the text for people and the profile of `apus audit --fix` are
//! generated.
//!
//! Rules write their fixes as commands and kernel parameters with `{placeholders}`. The private module `fill` replaces
//! the placeholders by this host's values. A [`Step`] is one line of a fix: settings that `apus tune` can apply and
//! roll back, words of the kernel command line, or an instruction for people.

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
pub(crate) use fill::{Values, base, steady};
pub(crate) use needs::{name_boot_cpu, name_needs};
pub use operator::Operator;
pub use risk::Risk;
pub(crate) use setting::{BAN_ISOLATED, quoted, words};
pub use setting::{Bound, OfCpus, OfInterrupts, OfMemory, OfNetwork, OfWorkqueues, Place, Setting, commands};

/// The fix of a finding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remedy {
    /// Commands that show more details. They change nothing, and `apus audit --fix` leaves them out.
    pub look: Vec<String>,
    /// Steps that fix the running host. Their effect lasts until the next boot.
    pub runtime: Vec<Step>,
    /// Steps that fix the problem permanently.
    pub persistent: Vec<Step>,
    /// Whether the steps in `persistent` take effect only at the next boot.
    pub reboot: bool,
}

/// One line of a fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What the step does.
    pub action: Action,
    /// A remark on the step, shown as a comment after the line. Usually empty.
    pub note: String,
    /// What the step puts at risk.
    pub risks: BTreeSet<Risk>,
}

units::named! {
    /// What a step does, and who or what can carry it out.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Action {
        /// Settings that `apus tune` can apply and roll back. Never empty.
        Set(Vec<Setting>) = "set",
        /// A change to the kernel command line.
        Arguments {
            /// Parameters to add. Each one replaces the parameters on the command line that have the same name.
            add: Vec<Parameter>,
            /// Parameters to remove. One without a value removes the parameter, whatever its current value is.
            remove: Vec<Parameter>,
        } = "arguments",
        /// A command that a person must run, because `apus tune` could not roll it back, or because it needs a
        /// decision.
        Run(String) = "run",
        /// An instruction that is not a command, such as to change firmware settings, the slot of a card, or a
        /// configuration file.
        Advise(String) = "advise",
        /// The step is not known yet, because a value is missing. The string names the option of `apus audit` that
        /// supplies it.
        Rerun(&'static str) = "rerun",
    }
}

impl Remedy {
    /// Builds the fix for a judgement from the judgement's own lines or, if it has none, from those of the rule.
    pub(crate) fn new(rule: &Rule, judgement: &Judgement, values: &Values<'_>) -> Self {
        let fix = &rule.fix;
        // `apus tune` supports only Linux.
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
            // If two lines lack the same value, this is said only once.
            steps.dedup();
            let is_set = |step: &Step| matches!(step.action, Action::Set(_));
            // Do not apply half of a fix.
            if !steps.iter().all(is_set) {
                steps.iter_mut().filter(|step| is_set(step)).for_each(Step::leave);
            }
            steps
        };
        let look = lines(&judgement.look, fix.look);
        let persistent = steps(lines(&judgement.for_good, fix.persistent), fix.reboot);
        // A line whose value is not known takes effect when the rule's line does.
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

    /// All steps: first those for the running host, then the permanent ones.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.runtime.iter().chain(&self.persistent)
    }

    /// What the steps of the fix put at risk.
    pub fn risks(&self) -> BTreeSet<Risk> {
        self.steps().flat_map(|step| step.risks.iter().copied()).collect()
    }

    /// The settings in the steps, which `apus tune` can apply.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.runtime.iter().flat_map(|step| match &step.action {
            Action::Set(settings) => settings.as_slice(),
            _ => &[],
        })
    }

    /// The parameters that the fix adds to the kernel command line.
    pub fn adds(&self) -> impl Iterator<Item = &Parameter> {
        self.persistent.iter().flat_map(|step| match &step.action {
            Action::Arguments { add, .. } => add.as_slice(),
            _ => &[],
        })
    }

    /// The parameters that the fix removes from the kernel command line.
    pub fn removes(&self) -> impl Iterator<Item = &Parameter> {
        self.persistent.iter().flat_map(|step| match &step.action {
            Action::Arguments { remove, .. } => remove.as_slice(),
            _ => &[],
        })
    }
}

impl Step {
    /// Parses a line of a fix. `Err` names the option that supplies a missing value. `decision` is true if a person
    /// must decide about the step.
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
    /// Whether nothing needs to be done for this step on this host.
    pub fn is_nothing(&self) -> bool {
        matches!(&self.action, Action::Advise(text) if text.starts_with("nothing"))
    }

    /// Creates an instruction that by itself puts nothing at risk.
    fn advice(text: impl Into<String>) -> Self {
        Self { action: Action::Advise(text.into()), note: String::new(), risks: BTreeSet::new() }
    }

    /// Turns the step into a command that a person must run, even if `apus tune` could apply it.
    fn leave(&mut self) {
        self.action = Action::Run(Self { note: String::new(), ..self.clone() }.to_string());
    }
}

impl fmt::Display for Step {
    /// Writes the command or the instruction. If there is a note, appends it as a comment.
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

/// Parses words that are all known parameters, such as `nohz_full=2-7 rcu_nocbs=2-7`, or `remove idle=poll`.
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

/// Names of the commands with which a line of a fix can begin.
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

/// Whether the line is a command for a shell: it begins with one of [`COMMANDS`] and is not prose.
pub(crate) fn is_command(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let line = line.split(" # ").next().unwrap_or_default();
    // "command, and another" is prose, which a shell would take for arguments.
    let is_prose = [", ", " (", ": "].iter().any(|mark| line.contains(mark));
    COMMANDS.contains(&first) && !is_prose
}
