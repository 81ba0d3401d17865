//! `apus audit --json`, `apus audit diff --json`, `apus audit cmdline --json`.

use schemars::JsonSchema;
use serde::Serialize;

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
    /// `poll`, `interrupt`, `rt`, `kvm-host`, `guest`.
    pub workloads: Vec<String>,
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
    /// `set` (`apus tune` makes it and rolls it back), `boot` (a changed kernel command line), `people` (somebody does
    /// it by hand), `ask` (say first what the host is for).
    pub kind: String,
    /// The root causes that it mends, by name.
    pub causes: Vec<String>,
    /// The commands, or the whole kernel command line afterwards, or the advice.
    pub lines: Vec<String>,
    /// What changes on the kernel's command line: `+word`, `-word`; empty for other actions.
    pub changes: Vec<String>,
    /// What it gains.
    pub gain: Gain,
    /// What it puts at risk, as in a fix.
    pub risks: Vec<String>,
    /// What it costs, of each rule once.
    pub costs: Vec<String>,
    /// The keys of the findings that it mends, the worst first.
    pub findings: Vec<String>,
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
    pub cause: String,
    /// What is the matter.
    pub problem: String,
    /// The worst verdict of its findings.
    pub verdict: String,
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
    pub verdict: String,
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
    pub group: String,
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
    pub group: String,
    /// Its root cause.
    pub cause: String,
    /// What the rule asks for.
    pub title: String,
    /// `pass`, `warn`, `fail`, `unknown`, `not-applicable`, `sources-disagree`.
    pub verdict: String,
    /// Why nothing was judged; `null` if something was.
    pub reason: Option<String>,
    /// What was judged: `host`, `cpus`, `link`, `irq`, `device`, `parameter`, `named`.
    pub subject_kind: String,
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
    /// What it does to a packet: `late` (it waits, for `effect_ns`), `slower` (the work on it takes longer), or `null`
    /// if neither has a known size.
    pub effect: Option<String>,
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
    /// What the steps put at risk: `reboot` (they act after one only), `network` (they interrupt an interface's
    /// traffic), `security` (they weaken a protection).
    pub risks: Vec<String>,
}

/// One line of a fix.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The command, the kernel parameters, or the advice.
    pub text: String,
    /// `set` (`apus tune` makes it and rolls it back; `apus audit --fix` writes it), `arguments` (of the kernel's
    /// command line), `run` (a command for people), `advise` (no command), `rerun` (an option of `apus audit` makes a
    /// missing value known).
    pub action: String,
    /// What it puts at risk, as for the whole fix.
    pub risks: Vec<String>,
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
    /// `worse`, `changed`, `unclear`, `better`.
    pub kind: String,
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
    /// `unknown-value`, `contradiction`, `sets-differ`, `not-mainline`, `missing`, `overridden`, `duplicate`,
    /// `unknown-name`.
    pub kind: String,
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
