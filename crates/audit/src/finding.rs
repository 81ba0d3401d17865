//! A finding: a judgement with its rule, and its fix with concrete values.

use units::Nanos;

use crate::{Context, Judgement, Rule, Subject, Verdict};

/// A judgement with its rule, and its fix with concrete values.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// What was judged, how, and on what grounds.
    pub judgement: Judgement,
    /// What mends it, with values and paths filled in; empty for what needs no mending.
    pub fix: Remedy,
    /// What it takes from one late packet, where that is known.
    pub effect: Option<Nanos>,
    /// Is it a known one that a baseline accepts?
    pub accepted: bool,
}

/// What mends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remedy {
    /// Commands for the running host.
    pub runtime: Vec<String>,
    /// Settings for good.
    pub persistent: Vec<String>,
    /// Do the settings act from the next boot only?
    pub reboot: bool,
}

impl Finding {
    /// Completes a judgement.
    pub(crate) fn new(
        rule: &'static Rule,
        judgement: Judgement,
        context: &Context,
        housekeeping: &host::CpuSet,
    ) -> Self {
        let wrong = judgement.verdict.weight() >= Verdict::SourcesDisagree.weight();
        let fill = |text: &str| filled(text, &judgement.subject, context, housekeeping);
        let lines = |own: &[String], general: Option<&str>| -> Vec<String> {
            match own {
                [] => general.into_iter().flat_map(str::lines).map(fill).collect(),
                own => own.to_vec(),
            }
        };
        let fix = match wrong {
            true => Remedy {
                runtime: lines(&judgement.now, rule.fix.runtime),
                persistent: lines(&judgement.for_good, rule.fix.persistent),
                reboot: rule.fix.reboot,
            },
            false => Remedy::default(),
        };
        let effect = if wrong { judgement.effect.or(rule.magnitude.typical) } else { None };
        Self { rule, judgement, fix, effect, accepted: false }
    }

    /// What names it from one audit to the next: rule and subject.
    pub fn key(&self) -> String {
        format!("{} {}", self.rule.id, self.judgement.subject)
    }
}

/// A template with its values; a value that is not known stays a word in braces, for people.
fn filled(text: &str, subject: &Subject, context: &Context, housekeeping: &host::CpuSet) -> String {
    let mut text = text.to_owned();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value
            && text.contains(name)
        {
            text = text.replace(name, &value);
        }
    };
    let list = |set: &host::CpuSet| (!set.is_empty()).then(|| set.to_string());
    let mask = |set: &host::CpuSet| (!set.is_empty()).then(|| set.to_mask());
    put("{isolated}", list(&context.isolated.value));
    put("{housekeeping}", list(housekeeping));
    put("{isolated-mask}", mask(&context.isolated.value));
    put("{housekeeping-mask}", mask(housekeeping));
    put(
        "{nic}",
        match subject {
            Subject::Link(name) => Some(name.clone()),
            _ => context.nics.value.first().cloned(),
        },
    );
    put(
        "{cpu}",
        match subject {
            Subject::Cpus(cpus) => list(cpus),
            _ => list(&context.isolated.value),
        },
    );
    put(
        "{irq}",
        match subject {
            Subject::Irq(number, _) => Some(number.to_string()),
            _ => None,
        },
    );
    put(
        "{device}",
        match subject {
            Subject::Device(address) => Some(address.clone()),
            _ => None,
        },
    );
    text
}
