//! The results of a judge. A judge is the function of a rule that checks the facts of a host.

use std::fmt;

use host::facts::{CpuSet, Fact, Source, Why};
use units::Nanos;

use crate::{Cause, Effect, Verdict};

/// What a judge (the function of a rule that checks a host) returns: one judgement per subject, or the reason why there
/// is none.
pub type Judged = Result<Vec<Judgement>, Skip>;

/// Why a judge gives no verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Skip {
    /// The answer cannot be known.
    Unknown {
        /// Why the answer cannot be known.
        reason: Box<str>,
        /// The source to read in order to know the answer. `None` if no source would help.
        source: Option<Source>,
    },
    /// The question does not apply to this host, for this reason.
    NotApplicable(Box<str>),
}

impl Skip {
    /// Creates [`Skip::Unknown`] with this reason and no source.
    pub fn unknown(reason: impl Into<Box<str>>) -> Self {
        Self::Unknown { reason: reason.into(), source: None }
    }

    /// Creates [`Skip::NotApplicable`] with this reason.
    pub fn not_applicable(reason: impl Into<Box<str>>) -> Self {
        Self::NotApplicable(reason.into())
    }

    /// Creates the result for a fact without a value: [`Skip::NotApplicable`] if the host lacks what the fact
    /// describes, [`Skip::Unknown`] if the value is not known.
    pub fn of<T>(fact: &Fact<T>) -> Self {
        let source = fact.source();
        match fact.why() {
            Some(Why::Absent) => Self::not_applicable(format!("the host has no {source}")),
            Some(why) => Self::Unknown { reason: format!("{source}: {why}").into(), source: Some(source.clone()) },
            None => Self::unknown(format!("{source} is known, but lacks the value that the rule needs")),
        }
    }
}

/// Returns the value of a fact that a judge needs: `let policy = known(&facts.pci.aspm_policy)?;`. The error is
/// [`Skip::NotApplicable`] if the host lacks what the fact describes, and [`Skip::Unknown`] if the value is not known.
pub fn known<T>(fact: &Fact<T>) -> Result<&T, Skip> {
    fact.value().ok_or_else(|| Skip::of(fact))
}

/// Like [`known`], but returns `Ok(None)` if the host lacks what the fact describes. The error is [`Skip::Unknown`] if
/// the value is not known.
pub fn settled<T>(fact: &Fact<T>) -> Result<Option<&T>, Skip> {
    fact.settled().ok_or_else(|| Skip::of(fact))
}

/// A judge's verdict on one subject, with the evidence and, where needed, a fix for this subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// The subject of the verdict.
    pub subject: Subject,
    /// The result: pass, warn, fail, or another [`Verdict`].
    pub verdict: Verdict,
    /// What was found, in one sentence without a full stop, with the numbers that matter.
    pub found: String,
    /// The facts on which the verdict is based.
    pub evidence: Vec<Evidence>,
    /// Commands that show more details, with concrete values. If empty, those of the rule apply.
    pub look: Vec<String>,
    /// Commands that fix the problem until the next boot, with concrete values. If empty, those of the rule apply.
    pub now: Vec<String>,
    /// Settings that fix the problem permanently, with concrete values. If empty, those of the rule apply.
    pub for_good: Vec<String>,
    /// The effect on one packet on this host. `None` if the effect stated by the rule applies.
    pub effect: Option<Effect>,
    /// The root cause. `None` if the rule's root cause applies.
    pub cause: Option<Cause>,
    /// The cost of the fix on this host. `None` if the cost stated by the rule applies.
    pub cost: Option<String>,
    /// An effect on this host besides [`crate::Rule::magnitude`]: its description and its source.
    pub also: Option<(&'static str, &'static str)>,
    /// A source that recommends the opposite for this host. For all hosts, see [`crate::Fix::conflicts`].
    pub against: Option<&'static str>,
}

impl Judgement {
    /// Creates a pass for the host as a whole. If the judge judges CPUs or interfaces separately, the audit later sets
    /// the CPU or interface as the subject. The same applies to [`Self::warn`], [`Self::fail`] and [`Self::disagree`].
    pub fn pass(found: impl Into<String>) -> Self {
        Self::pass_for(Subject::Host, found)
    }

    /// Creates a warning for the host as a whole: something adds latency, or may add latency.
    pub fn warn(found: impl Into<String>) -> Self {
        Self::warn_for(Subject::Host, found)
    }

    /// Creates a failure for the host as a whole: something adds a lot of latency, or does not do what was intended.
    pub fn fail(found: impl Into<String>) -> Self {
        Self::fail_for(Subject::Host, found)
    }

    /// Creates a choice for the host as a whole: good sources give opposite advice, and the host follows one side.
    pub fn disagree(found: impl Into<String>) -> Self {
        Self::disagree_for(Subject::Host, found)
    }

    /// Creates a pass for this subject.
    pub fn pass_for(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, subject, found)
    }

    /// Creates a warning for this subject: something adds latency, or may add latency.
    pub fn warn_for(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Warn, subject, found)
    }

    /// Creates a failure for this subject: something adds a lot of latency, or does not do what was intended.
    pub fn fail_for(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, subject, found)
    }

    /// Creates a choice for this subject: good sources give opposite advice, and the subject follows one side.
    pub fn disagree_for(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::SourcesDisagree, subject, found)
    }

    /// Creates a judgement for a subject whose fact has no value: unknown or not applicable, with the reason. Use it if
    /// the judge has verdicts on other subjects.
    pub fn unknown<T>(subject: impl Into<Subject>, fact: &Fact<T>) -> Self {
        Self::skipped(subject, Skip::of(fact))
    }

    /// Creates a judgement without a verdict on this subject, for the reason `skip`.
    pub fn skipped(subject: impl Into<Subject>, skip: Skip) -> Self {
        let verdict = match skip {
            Skip::Unknown { reason, .. } => Verdict::Unknown(reason),
            Skip::NotApplicable(reason) => Verdict::NotApplicable(reason),
        };
        Self::new(verdict, subject, "")
    }

    fn new(verdict: Verdict, subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            verdict,
            found: found.into(),
            evidence: Vec::new(),
            look: Vec::new(),
            now: Vec::new(),
            for_good: Vec::new(),
            effect: None,
            cause: None,
            cost: None,
            also: None,
            against: None,
        }
    }

    /// Adds a fact as evidence, with its value and source. If the fact has no value, the evidence says so.
    pub fn see<T: fmt::Display>(self, fact: &Fact<T>) -> Self {
        self.see_as(fact.to_string(), fact.source())
    }

    /// Adds a fact as evidence. Does nothing for `None`.
    pub fn see_if<T: fmt::Display>(self, fact: Option<&Fact<T>>) -> Self {
        match fact {
            Some(fact) => self.see(fact),
            None => self,
        }
    }

    /// Adds a boolean fact as evidence, worded as `yes` if it is true and as `no` if it is false. If the fact has no
    /// value, the evidence says so.
    pub fn see_whether(self, fact: &Fact<bool>, yes: &str, no: &str) -> Self {
        let value = match fact.value() {
            Some(true) => yes.to_owned(),
            Some(false) => no.to_owned(),
            None => fact.to_string(),
        };
        self.see_as(value, fact.source())
    }

    /// Adds evidence as text, for derived values and for facts that cannot be printed directly.
    pub fn see_as(mut self, value: impl Into<String>, source: impl fmt::Display) -> Self {
        self.evidence.push(Evidence { value: value.into(), source: source.to_string() });
        self
    }

    /// Adds a command that shows more details.
    pub fn look(mut self, command: impl Into<String>) -> Self {
        self.look.push(command.into());
        self
    }

    /// Adds a command that fixes the problem on the running host.
    pub fn now(mut self, command: impl Into<String>) -> Self {
        self.now.push(command.into());
        self
    }

    /// Adds a setting that fixes the problem permanently.
    pub fn for_good(mut self, setting: impl Into<String>) -> Self {
        self.for_good.push(setting.into());
        self
    }

    /// Sets how long one packet waits on this host.
    pub fn takes(mut self, lateness: Nanos) -> Self {
        self.effect = Some(Effect::Late(lateness));
        self
    }

    /// Sets the effect on one packet on this host.
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Sets a root cause that replaces the rule's.
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Sets a cost of the fix that replaces the rule's.
    pub fn costs(mut self, cost: impl Into<String>) -> Self {
        self.cost = Some(cost.into());
        self
    }

    /// Adds an effect on this host to the one that the rule states, with its source.
    pub fn also(mut self, text: &'static str, source: &'static str) -> Self {
        self.also = Some((text, source));
        self
    }

    /// Sets a source that recommends the opposite on this host.
    pub fn against(mut self, source: &'static str) -> Self {
        self.against = Some(source);
        self
    }

    /// Returns this judgement as the only result of a judge.
    pub fn alone(self) -> Judged {
        Ok(vec![self])
    }
}

/// One piece of evidence for a judgement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// The value as it was found or derived.
    pub value: String,
    /// Where the value was found, for example `/proc/cmdline`, `ethtool -c ens1f0` or `MSR 0x774 of CPU 3, bits 31:24`.
    pub source: String,
}

units::named! {
    /// The part of the host that a judgement is about.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Subject {
        /// The host as a whole.
        Host = "host",
        /// One or more CPUs with the same result.
        Cpus(CpuSet) = "cpus",
        /// An interface, by its name.
        Link(String) = "link",
        /// An interrupt, by its number and name.
        Irq(u32, String) = "irq",
        /// A PCI device, by its address.
        Device(String) = "device",
        /// A kernel parameter, by its name.
        Parameter(String) = "parameter",
        /// Anything else, by its usual name: `uncore package_00_die_00`, `guest 4711`, `thread ovs-vswitchd (812)`.
        Named(String) = "named",
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Cpus(cpus) if cpus.len() == 1 => write!(f, "CPU {cpus}"),
            Self::Cpus(cpus) => write!(f, "CPUs {cpus}"),
            Self::Irq(number, name) => write!(f, "IRQ {number} ({name})"),
            Self::Link(name) | Self::Device(name) | Self::Parameter(name) | Self::Named(name) => f.write_str(name),
        }
    }
}

impl From<u32> for Subject {
    /// Makes this CPU the subject.
    fn from(cpu: u32) -> Self {
        Self::Cpus(CpuSet::from([cpu]))
    }
}

impl From<CpuSet> for Subject {
    fn from(cpus: CpuSet) -> Self {
        Self::Cpus(cpus)
    }
}

impl From<&CpuSet> for Subject {
    fn from(cpus: &CpuSet) -> Self {
        Self::Cpus(cpus.clone())
    }
}
