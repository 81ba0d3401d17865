//! `apus audit --json`, `apus audit diff --json`, `apus audit cmdline --json`.

use audit::{DifferenceKind, Risk, Subject, Verdict, Workload};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// Name and version of the schema of an audit.
pub const SCHEMA: &str = "apus.audit/1";
/// Name and version of the schema of a comparison of two audits.
pub const DIFF_SCHEMA: &str = "apus.audit-diff/1";
/// Name and version of the schema of a judged or suggested command line.
pub const CMDLINE_SCHEMA: &str = "apus.cmdline/1";

/// The result of an audit.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.audit/1`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The judged host.
    pub host: Host,
    /// What the host was assumed to be used for.
    pub intent: Intent,
    /// What to do first: at most five actions, the most useful first.
    pub do_first: Vec<Action>,
    /// Number of further actions.
    pub do_later: u64,
    /// Options that would let more rules be checked on this host.
    pub unlocks: Vec<Unlock>,
    /// Warnings and failures by root cause, the most important first.
    pub causes: Vec<Cause>,
    /// All findings, the most important first.
    pub findings: Vec<Finding>,
    /// Number of each verdict, by group.
    pub groups: Vec<Group>,
    /// Entries of the baseline that no longer match a finding.
    pub baseline_unused: Vec<String>,
}

/// The judged host.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Host {
    /// `this host`, or the name of the recording.
    pub name: String,
    /// Release of the host's kernel (Linux) or system (FreeBSD); `null` if unknown.
    pub release: Option<String>,
    /// CPU model name, for display; `null` if unknown.
    pub cpu_model: Option<String>,
    /// Number of online CPUs; `null` if unknown.
    pub cpus: Option<u64>,
    /// When the snapshot was taken; `null` for a live host or if unknown.
    pub taken: Option<String>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// What the host was assumed to be used for. Each field with the suffix `_from` is `given` if the user gave the value;
/// otherwise it says what the value was inferred from.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Intent {
    /// List of CPUs reserved for the application; `null` if there are none.
    pub isolated: Option<String>,
    /// `given` by the user, or what the isolated CPUs were inferred from; `null` if there are none.
    pub isolated_from: Option<String>,
    /// Network interfaces that carry the application's packets.
    pub nics: Vec<String>,
    /// `given` by the user, or what the interfaces were inferred from; `null` if there are none.
    pub nics_from: Option<String>,
    /// The workloads that the host is used for.
    pub workloads: Vec<Name<Workload>>,
    /// `given` by the user, or what the workloads were inferred from; `null` if there are none.
    pub workloads_from: Option<String>,
    /// The latency goal, such as `p99.9=50us`; `null` if none was given.
    pub goal: Option<String>,
}

/// One action and its benefit.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Action {
    /// The action as an instruction.
    pub title: String,
    /// Kind of the action: who or what carries it out.
    pub kind: Name<ActionKind>,
    /// Names of the root causes that the action fixes.
    pub causes: Vec<Name<audit::Cause>>,
    /// The commands, the complete new kernel command line, or the advice.
    pub lines: Vec<String>,
    /// Changes of the kernel command line as `+word` and `-word`; empty for other actions.
    pub changes: Vec<String>,
    /// The benefit of the action.
    pub gain: Gain,
    /// What the action puts at risk.
    pub risks: Vec<Name<Risk>>,
    /// What the action costs: one string per rule that it fixes.
    pub costs: Vec<String>,
    /// Keys of the findings that the action fixes, the worst first.
    pub findings: Vec<String>,
}

units::named! {
    /// Kind of an action: who or what carries it out.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ActionKind {
        /// Settings that `apus tune` makes and rolls back.
        Set = "set",
        /// A change of the kernel command line, which takes effect at the next boot.
        Boot = "boot",
        /// Work that must be done by hand.
        People = "people",
        /// A question to the user: what the host is used for.
        Ask = "ask",
    }
}

units::named! {
    /// How a finding affects a packet.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EffectKind {
        /// The packet waits. `effect_ns` says for how long.
        Late = "late",
        /// The packet does not wait, but the work on it takes longer.
        Slower = "slower",
    }
}

impl EffectKind {
    /// The kind of the finding's effect. `None` if the size of the effect is unknown.
    pub fn of(finding: &audit::Finding) -> Option<Self> {
        let slower = finding.slower.then_some(Self::Slower);
        finding.effect.map(|_| Self::Late).or(slower)
    }
}

/// The benefit of an action.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Gain {
    /// The benefit in words.
    pub text: String,
    /// The largest delay among the findings that the action fixes, in ns; `null` if none has a known delay.
    pub effect_ns: Option<u64>,
    /// Whether `effect_ns` was computed for this host; otherwise it is a typical value from the rule's source.
    pub of_this_host: bool,
    /// Key of the finding with the delay `effect_ns`.
    pub finding: String,
}

/// An option of `apus audit` that would let it check more rules on this host.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Unlock {
    /// Name of the option: `--isolated`, `--nic` or `--workload`.
    pub option: String,
    /// Value to give to the option.
    pub value: String,
    /// Number of further rules that could then be checked.
    pub rules: u64,
}

/// The findings of one root cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Cause {
    /// Name of the root cause, as in the findings.
    pub cause: Name<audit::Cause>,
    /// The problem in one sentence.
    pub problem: String,
    /// The worst verdict of the cause's findings.
    pub verdict: Name<Verdict>,
    /// What the rules of this cause found. The same finding on several subjects is listed once.
    pub said: Vec<Said>,
}

/// What one rule found on one or several subjects.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Said {
    /// Identifier of the rule.
    pub id: String,
    /// Verdict: `warn` or `fail`.
    pub verdict: Name<Verdict>,
    /// The subjects: a list of CPUs, or the first three names if there are many.
    pub subject: String,
    /// What the rule found on the subject, in words.
    pub found: String,
    /// Keys of the findings.
    pub findings: Vec<String>,
}

/// Number of each verdict in a group of rules.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[allow(missing_docs)]
pub struct Group {
    /// Name of the group of rules.
    pub group: Name<audit::Group>,
    pub pass: u32,
    pub warn: u32,
    pub fail: u32,
    pub unknown: u32,
    pub not_applicable: u32,
    pub sources_disagree: u32,
    /// Number of findings that the baseline accepts. They are not counted under any other verdict.
    pub accepted: u32,
}

/// One finding: the verdict of a rule on one subject.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Finding {
    /// Identifier of the rule.
    pub id: String,
    /// Group of the rule.
    pub group: Name<audit::Group>,
    /// Root cause of the finding.
    pub cause: Name<audit::Cause>,
    /// What the rule requires.
    pub title: String,
    /// The rule's verdict on the subject.
    pub verdict: Name<Verdict>,
    /// Why the rule could not be judged; `null` if it was judged.
    pub reason: Option<String>,
    /// Kind of the subject, such as a CPU or an interface.
    pub subject_kind: Name<Subject>,
    /// Name of the subject.
    pub subject: String,
    /// What the rule found on the subject, in words.
    pub found: String,
    /// The values on which the verdict rests.
    pub evidence: Vec<Evidence>,
    /// Why the finding's mechanism delays packets.
    pub why: String,
    /// How much delay the finding's mechanism adds, in words.
    pub magnitude: String,
    /// Source of the number in `magnitude`.
    pub magnitude_source: String,
    /// What the finding does to a packet; `null` if the size of the effect is unknown.
    pub effect: Option<Name<EffectKind>>,
    /// How long one packet waits because of the finding, in ns; `null` if it does not wait or the time is unknown.
    pub effect_ns: Option<u64>,
    /// Whether `effect_ns` was computed for this host; otherwise it is a typical value from the rule's source.
    pub effect_of_this_host: bool,
    /// How to fix the finding.
    pub fix: Fix,
    /// What the fix costs and risks.
    pub cost: String,
    /// Documents that support the rule.
    pub references: Vec<String>,
    /// Sources and rules that recommend the opposite of this rule.
    pub conflicts: Vec<String>,
    /// Whether the baseline accepts the finding.
    pub accepted: bool,
    /// Identifier of the finding in a baseline file.
    pub key: String,
}

/// A value on which a verdict rests.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Evidence {
    /// The value as read.
    pub value: String,
    /// File or command that it was read from.
    pub source: String,
}

/// How to fix a finding.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Fix {
    /// Commands that show details and change nothing.
    pub look: Vec<String>,
    /// Commands or advice that fix the running host, until a reboot.
    pub runtime: Vec<String>,
    /// Commands or advice that make the fix permanent.
    pub persistent: Vec<String>,
    /// Whether the permanent fix takes effect only after a reboot.
    pub reboot: bool,
    /// All lines of `runtime` and `persistent`, each with who can do it and what it puts at risk.
    pub steps: Vec<Step>,
    /// What the steps put at risk.
    pub risks: Vec<Name<Risk>>,
}

/// One line of a fix.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Step {
    /// The command, the kernel parameters, or the advice.
    pub text: String,
    /// What the step does, and who can carry it out.
    pub action: Name<audit::Action>,
    /// What the step puts at risk.
    pub risks: Vec<Name<Risk>>,
}

/// The differences between two audits.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct DiffDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.audit-diff/1`.
    #[schemars(extend("const" = DIFF_SCHEMA))]
    pub schema: String,
    /// The first host.
    pub before: Host,
    /// The second host.
    pub after: Host,
    /// The differences; findings that became worse come first.
    pub differences: Vec<Difference>,
}

/// One difference.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Difference {
    /// How the two findings differ.
    pub kind: Name<DifferenceKind>,
    /// Identifier of the two findings: rule and subject.
    pub key: String,
    /// The finding on the first host; `null` if it has none.
    pub before: Option<Finding>,
    /// The finding on the second host; `null` if it has none.
    pub after: Option<Finding>,
}

/// A kernel command line, judged or suggested.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct CmdlineDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.cmdline/1`.
    #[schemars(extend("const" = CMDLINE_SCHEMA))]
    pub schema: String,
    /// The kernel command line that was judged or suggested.
    pub line: String,
    /// Problems of the command line, the most serious first.
    pub remarks: Vec<Remark>,
    /// The parameters of a suggested command line; empty for a judged one.
    pub suggested: Vec<Suggested>,
    /// What else to decide or to do before using a suggested command line.
    pub notes: Vec<String>,
}

/// A problem of one or several parameters, or a missing parameter.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Remark {
    /// Kind of the problem.
    pub kind: Name<audit::cmdline::Kind>,
    /// The parameters as written. If a parameter is missing: the one to add.
    pub parameter: String,
    /// The problem in a sentence.
    pub text: String,
    /// The parameter to write or to add; `null` if there is no single remedy.
    pub instead: Option<String>,
    /// Document or kernel source that supports the statement in `text`.
    pub source: String,
}

/// A suggested kernel parameter, or several that belong together.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Suggested {
    /// The parameter as written on the command line.
    pub parameter: String,
    /// What the parameter is for, and what it costs.
    pub why: String,
}
