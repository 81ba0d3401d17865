//! `apus audit --json`, `apus audit diff --json`, `apus audit cmdline --json`.

use audit::{DifferenceKind, Risk, Subject, Verdict, Workload};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

/// The schema's name.
pub const SCHEMA: &str = "apus.audit/1";
/// The schema's name of a comparison.
pub const DIFF_SCHEMA: &str = "apus.audit-diff/1";
/// The schema's name of a judged command line.
pub const CMDLINE_SCHEMA: &str = "apus.cmdline/1";

/// What an audit found.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.audit/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// What was judged.
    pub host: Host,
    /// What the host was taken to be for.
    pub intent: Intent,
    /// What to do first: at most five actions, the most rewarding first.
    pub do_first: Vec<Action>,
    /// How many more actions there would be.
    pub do_later: u64,
    /// Options that would let more rules be judged on this host.
    pub unlocks: Vec<Unlock>,
    /// The warnings and failures by root cause, those that matter most first.
    pub causes: Vec<Cause>,
    /// The findings, what matters most first.
    pub findings: Vec<Finding>,
    /// How many of each verdict, by group.
    pub groups: Vec<Group>,
    /// Entries of the baseline that no finding has any more.
    pub baseline_unused: Vec<String>,
}

/// What was judged.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// `this host`, or the recording's name.
    pub name: String,
    /// Its kernel's or system's release.
    pub release: Option<String>,
    /// Its CPUs, for people.
    pub cpu_model: Option<String>,
    /// How many CPUs are online.
    pub cpus: Option<u64>,
    /// When a snapshot was taken.
    pub taken: Option<String>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// What the host was taken to be for. `*_from` says how that is known: `given`, or from what it was inferred.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    /// CPUs that are kept for the application, as a list; `null` if none are.
    pub isolated: Option<String>,
    /// How the isolated CPUs are known.
    pub isolated_from: Option<String>,
    /// The interfaces that matter.
    pub nics: Vec<String>,
    /// How the interfaces are known.
    pub nics_from: Option<String>,
    /// What it is used as.
    pub workloads: Vec<Name<Workload>>,
    /// How the uses are known.
    pub workloads_from: Option<String>,
    /// The goal, such as `p99.9=50us`.
    pub goal: Option<String>,
}

/// One action, and what it is good for.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// What is done, as an instruction.
    pub title: String,
    /// What is done, and by whom.
    pub kind: Name<ActionKind>,
    /// The root causes that it mends, by name.
    pub causes: Vec<Name<audit::Cause>>,
    /// The commands, or the whole kernel command line afterwards, or the advice.
    pub lines: Vec<String>,
    /// What changes on the kernel's command line: `+word`, `-word`; empty for other actions.
    pub changes: Vec<String>,
    /// What it gains.
    pub gain: Gain,
    /// What it puts at risk, as in a fix.
    pub risks: Vec<Name<Risk>>,
    /// What it costs, of each rule once.
    pub costs: Vec<String>,
    /// The keys of the findings that it mends, the worst first.
    pub findings: Vec<String>,
}

units::named! {
    /// What is done, and by whom.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ActionKind {
        /// `apus tune` makes it and rolls it back.
        Set = "set",
        /// A changed kernel command line.
        Boot = "boot",
        /// Somebody does it by hand.
        People = "people",
        /// Say first what the host is for.
        Ask = "ask",
    }
}

units::named! {
    /// What a finding does to a packet.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum EffectKind {
        /// It waits, for `effect_ns`.
        Late = "late",
        /// The work on it takes longer.
        Slower = "slower",
    }
}

impl EffectKind {
    /// `None` if the effect has no known size.
    pub fn of(finding: &audit::Finding) -> Option<Self> {
        let slower = finding.slower.then_some(Self::Slower);
        finding.effect.map(|_| Self::Late).or(slower)
    }
}

/// What an action gains.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// In words.
    pub text: String,
    /// The largest delay that one of its findings adds; `null` if none has a size in time.
    pub effect_ns: Option<u64>,
    /// Is `effect_ns` this host's own number? Otherwise it is a typical one of the rule's source.
    pub of_this_host: bool,
    /// The key of the finding that says so.
    pub finding: String,
}

/// An option of `apus audit` that would let it judge more.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Unlock {
    /// `--isolated`, `--nic`, `--workload`.
    pub option: String,
    /// What to write behind it.
    pub value: String,
    /// How many rules could then be judged that now cannot.
    pub rules: u64,
}

/// Findings of one root cause.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name, as in the findings.
    pub cause: Name<audit::Cause>,
    /// What is the matter.
    pub problem: String,
    /// The worst verdict of its findings.
    pub verdict: Name<Verdict>,
    /// What its rules say; the same of several subjects is one entry.
    pub said: Vec<Said>,
}

/// What one rule says, of one subject or of several.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The rule.
    pub id: String,
    /// The verdict.
    pub verdict: Name<Verdict>,
    /// Of what: CPUs together, others by name, the first three of many.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// The keys of the findings.
    pub findings: Vec<String>,
}

/// How many of each verdict in a group.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Group {
    /// The group's name.
    pub group: Name<audit::Group>,
    pub pass: u32,
    pub warn: u32,
    pub fail: u32,
    pub unknown: u32,
    pub not_applicable: u32,
    pub sources_disagree: u32,
    /// Findings that the baseline accepts; they are counted here alone.
    pub accepted: u32,
}

/// One finding.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The rule.
    pub id: String,
    /// Its group.
    pub group: Name<audit::Group>,
    /// Its root cause.
    pub cause: Name<audit::Cause>,
    /// What the rule asks for.
    pub title: String,
    /// What the rule says.
    pub verdict: Name<Verdict>,
    /// Why nothing was judged; `null` if something was.
    pub reason: Option<String>,
    /// What was judged.
    pub subject_kind: Name<Subject>,
    /// Its name.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// What the verdict rests on.
    pub evidence: Vec<Evidence>,
    /// The mechanism.
    pub why: String,
    /// How much it takes, in words.
    pub magnitude: String,
    /// Who says so.
    pub magnitude_source: String,
    /// What it does to a packet; `null` if that has no known size.
    pub effect: Option<Name<EffectKind>>,
    /// How long one packet waits; `null` if none waits, or no size is known.
    pub effect_ns: Option<u64>,
    /// Is `effect_ns` this host's own number? Otherwise it is a typical one of the rule's source.
    pub effect_of_this_host: bool,
    /// What mends it.
    pub fix: Fix,
    /// What the fix costs and risks.
    pub cost: String,
    /// Documents that say so.
    pub references: Vec<String>,
    /// Sources and rules that ask for the opposite.
    pub conflicts: Vec<String>,
    /// Does the baseline accept it?
    pub accepted: bool,
    /// Its name in a baseline.
    pub key: String,
}

/// One thing that a verdict rests on.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The value.
    pub value: String,
    /// Where it was found.
    pub source: String,
}

/// What mends it.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Fix {
    /// Commands that tell more and mend nothing.
    pub look: Vec<String>,
    /// For the running host: commands, or advice.
    pub runtime: Vec<String>,
    /// For good.
    pub persistent: Vec<String>,
    /// Do the persistent ones act from the next boot only?
    pub reboot: bool,
    /// All lines of `runtime` and `persistent`, each with who can do it and what it puts at risk.
    pub steps: Vec<Step>,
    /// What the steps put at risk.
    pub risks: Vec<Name<Risk>>,
}

/// One line of a fix.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The command, the kernel parameters, or the advice.
    pub text: String,
    /// What is to be done, and who can do it.
    pub action: Name<audit::Action>,
    /// What it puts at risk, as for the whole fix.
    pub risks: Vec<Name<Risk>>,
}

/// What two audits say differently.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct DiffDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.audit-diff/1`
    #[schemars(extend("const" = DIFF_SCHEMA))]
    pub schema: String,
    /// The first host.
    pub before: Host,
    /// The second host.
    pub after: Host,
    /// What got worse first.
    pub differences: Vec<Difference>,
}

/// One difference.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// How they differ.
    pub kind: Name<DifferenceKind>,
    /// Rule and subject.
    pub key: String,
    /// What the first says.
    pub before: Option<Finding>,
    /// What the second says.
    pub after: Option<Finding>,
}

/// A kernel command line, judged or suggested.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct CmdlineDocument {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.cmdline/1`
    #[schemars(extend("const" = CMDLINE_SCHEMA))]
    pub schema: String,
    /// The line that was judged, or the suggested one.
    pub line: String,
    /// What is the matter with it, the gravest first.
    pub remarks: Vec<Remark>,
    /// The words of a suggested line.
    pub suggested: Vec<Suggested>,
    /// What to decide or to do beside a suggested line.
    pub notes: Vec<String>,
}

/// Something about one word or several, or about a word that is missing.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Remark {
    /// What kind of remark.
    pub kind: Name<audit::cmdline::Kind>,
    /// The parameters as written; of a missing one, what to add.
    pub parameter: String,
    /// What is to be said.
    pub text: String,
    /// What to write instead, or to add.
    pub instead: Option<String>,
    /// Who says so.
    pub source: String,
}

/// A suggested word, or words that belong together.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Suggested {
    /// As it stands on the line.
    pub parameter: String,
    /// What it is for, and what it costs.
    pub why: String,
}
