//! What a judge returns.

use std::fmt;

use host::facts::{CpuSet, Fact, Source, Why};
use units::Nanos;

use crate::{Cause, Effect, Verdict};

/// What a judge returns: a judgement of each subject, or why there is none.
pub type Judged = Result<Vec<Judgement>, Skip>;

/// Why a judge says nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Skip {
    /// It cannot be told.
    Unknown {
        /// Why.
        reason: Box<str>,
        /// What would have to be read.
        source: Option<Source>,
    },
    /// The question makes no sense here.
    NotApplicable(Box<str>),
}

impl Skip {
    /// It cannot be told.
    pub fn unknown(reason: impl Into<Box<str>>) -> Self {
        Self::Unknown { reason: reason.into(), source: None }
    }

    /// The question makes no sense here.
    pub fn not_applicable(reason: impl Into<Box<str>>) -> Self {
        Self::NotApplicable(reason.into())
    }

    /// A fact that is not there: absent makes the question senseless, everything else makes it open.
    pub fn of<T>(fact: &Fact<T>) -> Self {
        let source = fact.source();
        match fact.why() {
            Some(Why::Absent) => Self::not_applicable(format!("the host has no {source}")),
            Some(why) => Self::Unknown { reason: format!("{source}: {why}").into(), source: Some(source.clone()) },
            None => Self::unknown(format!("{source} is known, but not what was asked of it")),
        }
    }
}

/// The value of a fact that a judge cannot do without: `let policy = known(&facts.pci.aspm_policy)?;`. What the host
/// does not have makes the rule not applicable; what is not known makes it unknown.
pub fn known<T>(fact: &Fact<T>) -> Result<&T, Skip> {
    fact.value().ok_or_else(|| Skip::of(fact))
}

/// The value of a fact whose absence is an answer: `Ok(None)` where the host does not have it.
pub fn settled<T>(fact: &Fact<T>) -> Result<Option<&T>, Skip> {
    fact.settled().ok_or_else(|| Skip::of(fact))
}

/// A judge's word on one subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// On what.
    pub subject: Subject,
    /// Its word.
    pub verdict: Verdict,
    /// What was found, in one sentence without a full stop, with the numbers that matter.
    pub found: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What tells more, with concrete values; empty takes the rule's.
    pub look: Vec<String>,
    /// What mends it now, with concrete values; empty takes the rule's.
    pub now: Vec<String>,
    /// What mends it for good, with concrete values; empty takes the rule's.
    pub for_good: Vec<String>,
    /// What it does to one packet here; `None` takes what the rule says.
    pub effect: Option<Effect>,
    /// Its root cause, where it is another than the rule's.
    pub cause: Option<Cause>,
    /// What the fix costs here; `None` takes what the rule says.
    pub cost: Option<String>,
    /// What it does on this host beside what the rule says ([`crate::Rule::magnitude`]), and who says so.
    pub also: Option<(&'static str, &'static str)>,
    /// Who asks for the opposite on this host, and not on every one ([`crate::Rule::conflicts`]).
    pub against: Option<&'static str>,
}

impl Judgement {
    /// It is as it should be.
    pub fn pass(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, subject, found)
    }

    /// It costs something, or it might.
    pub fn warn(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Warn, subject, found)
    }

    /// It costs much, or what was intended does not happen.
    pub fn fail(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, subject, found)
    }

    /// Good sources recommend opposite things, and the host follows one of them.
    pub fn disagree(subject: impl Into<Subject>, found: impl Into<String>) -> Self {
        Self::new(Verdict::SourcesDisagree, subject, found)
    }

    /// It cannot be told of this subject (others may be known).
    pub fn unknown<T>(subject: impl Into<Subject>, fact: &Fact<T>) -> Self {
        let verdict = match Skip::of(fact) {
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

    /// Adds a fact that it rests on, value and source; one that is not there says so.
    pub fn see<T: fmt::Display>(self, fact: &Fact<T>) -> Self {
        self.see_as(fact.to_string(), fact.source())
    }

    /// Adds a fact, where there is one.
    pub fn see_if<T: fmt::Display>(self, fact: Option<&Fact<T>>) -> Self {
        match fact {
            Some(fact) => self.see(fact),
            None => self,
        }
    }

    /// Adds a fact that is true or false, in words.
    pub fn see_whether(self, fact: &Fact<bool>, yes: &str, no: &str) -> Self {
        let value = match fact.value() {
            Some(true) => yes.to_owned(),
            Some(false) => no.to_owned(),
            None => fact.to_string(),
        };
        self.see_as(value, fact.source())
    }

    /// Adds evidence that is derived, or whose fact does not print itself.
    pub fn see_as(mut self, value: impl Into<String>, source: impl fmt::Display) -> Self {
        self.evidence.push(Evidence { value: value.into(), source: source.to_string() });
        self
    }

    /// Adds a command that tells more.
    pub fn look(mut self, command: impl Into<String>) -> Self {
        self.look.push(command.into());
        self
    }

    /// Adds what mends it on the running host.
    pub fn now(mut self, command: impl Into<String>) -> Self {
        self.now.push(command.into());
        self
    }

    /// Adds what mends it for good.
    pub fn for_good(mut self, setting: impl Into<String>) -> Self {
        self.for_good.push(setting.into());
        self
    }

    /// One packet waits this long here.
    pub fn takes(mut self, lateness: Nanos) -> Self {
        self.effect = Some(Effect::Late(lateness));
        self
    }

    /// What it does to one packet here.
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Its root cause is another than the rule's.
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// The fix costs something else here than the rule says.
    pub fn costs(mut self, cost: impl Into<String>) -> Self {
        self.cost = Some(cost.into());
        self
    }

    /// What it does on this host beside what the rule says, and who says so.
    pub fn also(mut self, text: &'static str, source: &'static str) -> Self {
        self.also = Some((text, source));
        self
    }

    /// Who asks for the opposite on this host.
    pub fn against(mut self, source: &'static str) -> Self {
        self.against = Some(source);
        self
    }

    /// The only one of its rule.
    pub fn alone(self) -> Judged {
        Ok(vec![self])
    }
}

/// One thing that a judgement rests on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// The value as it was found, or as it was derived.
    pub value: String,
    /// Where it was found: `/proc/cmdline`, `ethtool -c ens1f0`, `MSR 0x774 of CPU 3, bits 31:24`.
    pub source: String,
}

units::named! {
    /// What is judged.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Subject {
        /// The host as a whole.
        Host = "host",
        /// One CPU or several that are alike.
        Cpus(CpuSet) = "cpus",
        /// An interface, by its name.
        Link(String) = "link",
        /// An interrupt: its number and its name.
        Irq(u32, String) = "irq",
        /// A PCI device, by its address.
        Device(String) = "device",
        /// A kernel parameter.
        Parameter(String) = "parameter",
        /// Anything else, as people call it: `uncore package_00_die_00`, `guest 4711`, `thread ovs-vswitchd (812)`.
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
    /// A CPU.
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
