//! `apus tune … --json`, `apus power set --json`.

use std::collections::BTreeMap;

use host::knob::{AnySetting, BootFragment, Error as KnobError, Setting as _, Value as Set, Verdict};
use host::profile::{Recommendation, Resolved};
use host::transaction::{
    Along, Applied, Became, Meets, Outcome, Preview, Recovered, RolledBack, Stands, Transaction, Whereabouts,
};
use schemars::JsonSchema;
use serde::Serialize;
use tester::document::Name;

use super::VERSION;

/// The name of the plan's schema.
pub const PLAN: &str = "apus.tune-plan/1";
/// The name of the schema of what was applied.
pub const APPLY: &str = "apus.tune-apply/1";
/// The name of the schema of what was taken back.
pub const ROLLBACK: &str = "apus.tune-rollback/1";
/// The name of the schema of what is applied.
pub const STATUS: &str = "apus.tune-status/1";

/// The name of the schema of a recommendation.
pub const RECOMMEND: &str = "apus.tune-recommend/1";

/// Which profile fits the machine.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Recommend {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.tune-recommend/1`
    #[schemars(extend("const" = RECOMMEND))]
    pub schema: String,
    /// The profile's name.
    pub profile: String,
    /// The CPUs that it would take for isolated.
    pub isolated: String,
    /// What speaks for it.
    pub reasons: Vec<String>,
    /// What speaks against the others, by their name.
    pub others: BTreeMap<String, String>,
}

impl Recommend {
    /// The document.
    pub fn of(found: &Recommendation) -> Self {
        Self {
            apus: VERSION.into(),
            schema: RECOMMEND.into(),
            profile: found.profile.into(),
            isolated: found.isolated.to_string(),
            reasons: found.reasons.clone(),
            others: found.others.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect(),
        }
    }
}

/// What a setting is, or is to be.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(untagged)]
pub enum Value {
    /// One text.
    Text(String),
    /// Fields that belong together.
    Fields(BTreeMap<String, String>),
}

/// What a profile would change.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.tune-plan/1`
    #[schemars(extend("const" = PLAN))]
    pub schema: String,
    /// The profile's name.
    pub name: String,
    /// The CPUs for the application.
    pub isolated: String,
    /// The CPUs for everything else.
    pub housekeeping: String,
    /// The arguments for the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// What of the profile means nothing on this machine, and why.
    pub notes: Vec<String>,
    /// The settings, in the order in which they would be changed.
    pub items: Vec<PlanItem>,
}

/// A setting of a plan.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct PlanItem {
    /// Which.
    pub setting: String,
    /// What it is to be.
    pub wanted: Value,
    /// What it meets on the machine.
    pub meets: Name<Meets>,
    /// What it is; `null` if it is not there, or cannot be read.
    pub now: Option<Value>,
    /// Why it would be refused.
    pub reason: Option<String>,
    /// Where it was asked for: a file with its line.
    pub from: Option<String>,
}

/// What was applied.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.tune-apply/1`
    #[schemars(extend("const" = APPLY))]
    pub schema: String,
    /// What it is called.
    pub name: String,
    /// The transaction's number; `null` if nothing had to be changed.
    pub transaction: Option<u32>,
    /// Unfinished transactions that were taken back first.
    pub recovered: Vec<u32>,
    /// Transactions of earlier boots, of which the reboot undid something.
    pub past: Vec<PastTransaction>,
    /// What became of each setting.
    pub items: Vec<AppliedItem>,
    /// Settings that nobody asked for and that changed with others; a rollback restores them.
    pub along: Vec<AlongItem>,
    /// What changes besides what was asked for, or means nothing here, and why.
    pub notes: Vec<String>,
}

/// A transaction of an earlier boot.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct PastTransaction {
    /// Its number.
    pub transaction: u32,
    /// How many of its settings the reboot undid.
    pub undone: usize,
    /// How many last across reboots, and stay until it is rolled back.
    pub stays: usize,
}

/// A setting that changed with another.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct AlongItem {
    /// Which.
    pub setting: String,
    /// With which.
    pub with: String,
    /// What it was; `null` if it cannot be read.
    pub before: Option<Value>,
    /// What it is; `null` if it went away.
    pub now: Option<Value>,
    /// Why it cannot be read, and so cannot be restored.
    pub reason: Option<String>,
}

/// What became of a setting.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct AppliedItem {
    /// Which.
    pub setting: String,
    /// What it was to be.
    pub wanted: Value,
    /// What became of it.
    pub became: Name<Became>,
    /// What it was.
    pub before: Option<Value>,
    /// What it is.
    pub now: Option<Value>,
    /// Why it is not as wanted.
    pub reason: Option<String>,
}

/// What was taken back.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.tune-rollback/1`
    #[schemars(extend("const" = ROLLBACK))]
    pub schema: String,
    /// The transactions, the youngest first.
    pub transactions: Vec<RolledBackTransaction>,
}

/// A transaction that was taken back, as far as possible.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct RolledBackTransaction {
    /// Its number.
    pub transaction: u32,
    /// What it was called.
    pub name: Option<String>,
    /// Whether nothing is left of it.
    pub closed: bool,
    /// Whether its journal ended in a torn record.
    pub torn: bool,
    /// Why none of it was touched; null if it was.
    pub left_alone: Option<String>,
    /// What became of each change, the last first.
    pub items: Vec<RolledBackItem>,
}

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct RolledBackItem {
    /// Which setting.
    pub setting: String,
    /// What it was before.
    pub before: Value,
    /// What became of it.
    pub outcome: Name<Outcome>,
    /// Whether nobody asked for it: it changed with another.
    pub along: bool,
    /// What someone else set it to.
    pub theirs: Option<Value>,
    /// Why it failed.
    pub reason: Option<String>,
}

/// What is applied, and how it stands.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.tune-status/1`
    #[schemars(extend("const" = STATUS))]
    pub schema: String,
    /// The command that applies a profile at each boot; `null` if none is enabled, or nobody looked.
    pub at_boot: Option<String>,
    /// The transactions, the oldest first.
    pub transactions: Vec<OpenTransaction>,
}

/// A transaction that is not taken back.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct OpenTransaction {
    /// Its number.
    pub transaction: u32,
    /// What it is called; `null` if its journal does not say.
    pub name: Option<String>,
    /// What was typed.
    pub command: Option<String>,
    /// When it began, in seconds since 1970-01-01 UTC.
    pub at_unix_s: Option<u64>,
    /// Whether it was completed.
    pub kept: bool,
    /// Whether nothing rolls it back automatically though something should: unfinished, or its process has ended.
    pub abandoned: bool,
    /// Whether it is of an earlier boot.
    pub past: bool,
    /// Which network namespace it is of, if that is not the one that was looked at from.
    pub network_namespace: Option<String>,
    /// Whether that namespace exists no more; what it changed of the whole machine can be taken back from anywhere.
    pub namespace_gone: bool,
    /// What is wrong with its journal; `null` if nothing is.
    pub damage: Option<String>,
    /// Its changes, and what already was as wanted.
    pub items: Vec<OpenItem>,
}

/// A setting of a transaction.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct OpenItem {
    /// Which.
    pub setting: String,
    /// What it was before; `null` if it was not changed.
    pub before: Option<Value>,
    /// What was wanted.
    pub wanted: Value,
    /// What it is; `null` if it is gone or cannot be read.
    pub now: Option<Value>,
    /// How it stands on the machine now.
    pub stands: Name<Standing>,
    /// Whether it is as wanted; `null` if it cannot be read.
    pub as_wanted: Option<bool>,
    /// Why it is not as wanted, where the machine says it.
    pub reason: Option<String>,
    /// What has to happen before it is in force, though it is as wanted: a reboot; `null` if nothing has to.
    pub waits_for: Option<String>,
    /// Whether its effect was seen; `null` if nobody looked, or it has none that can be seen.
    pub effect: Option<Effect>,
}

units::named! {
    /// How a setting of a transaction stands.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Standing {
        /// As the transaction made it.
        Ours = "ours",
        /// As it was before.
        Before = "before",
        /// Someone else changed it.
        Theirs = "theirs",
        /// It was refused when the transaction was applied.
        Refused = "refused",
        /// It, or what it belonged to, is gone.
        Gone = "gone",
        /// It ended with its thread.
        Ended = "ended",
        /// The reboot undid it.
        Past = "past",
        /// It belongs to another network namespace.
        Elsewhere = "elsewhere",
        /// It ended with its network namespace.
        NamespaceGone = "namespace_gone",
        /// It cannot be read.
        Unknown = "unknown",
    }
}

/// What was seen of a setting's effect.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Whether it is there; `null` if nothing happened by which one could tell.
    pub seen: Option<bool>,
    /// What was seen.
    pub text: String,
}

impl From<&Set> for Value {
    fn from(value: &Set) -> Self {
        match value {
            Set::Text(text) => Self::Text(text.clone()),
            Set::Fields(fields) => Self::Fields(fields.clone()),
        }
    }
}

fn some(value: &Set) -> Option<Value> {
    Some(value.into())
}

fn reason(error: &KnobError) -> Option<String> {
    Some(error.to_string().replace('\n', "; "))
}

impl Plan {
    /// The document.
    pub fn of(resolved: &Resolved, previews: &[Preview]) -> Self {
        let item = |preview: &Preview| {
            let (now, why) = match &preview.meets {
                Meets::Other { now } | Meets::AsWanted { now } => (some(now), None),
                Meets::NotThere => (None, None),
                Meets::Refused(error) => (None, reason(error)),
            };
            PlanItem {
                setting: preview.item.setting.label(),
                wanted: (&preview.item.wanted).into(),
                meets: (&preview.meets).into(),
                now,
                reason: why,
                from: preview.item.from.clone(),
            }
        };
        Self {
            apus: VERSION.into(),
            schema: PLAN.into(),
            name: resolved.plan.name.clone(),
            isolated: resolved.isolated.to_string(),
            housekeeping: resolved.housekeeping.to_string(),
            kernel_arguments: resolved.arguments.clone(),
            notes: resolved.notes.clone(),
            items: previews.iter().map(item).collect(),
        }
    }
}

impl Apply {
    /// The document.
    pub fn of(name: &str, applied: &Applied, notes: &[String]) -> Self {
        let items = applied.items.iter().map(|(item, became)| {
            let (before, now, reason) = match became {
                Became::Changed { before, now } => (some(before), some(now), None),
                Became::Already { now } => (some(now), some(now), None),
                Became::Otherwise { before, now, why } => (some(before), some(now), why.clone()),
                Became::NotThere => (None, None, None),
                Became::Refused(error) => (None, None, reason(error)),
            };
            let (setting, wanted) = (item.setting.label(), (&item.wanted).into());
            AppliedItem { setting, wanted, became: became.into(), before, now, reason }
        });
        Self {
            apus: VERSION.into(),
            schema: APPLY.into(),
            name: name.into(),
            transaction: applied.id,
            recovered: applied.recovered.iter().filter_map(taken_back).collect(),
            past: applied.recovered.iter().filter_map(past).collect(),
            items: items.collect(),
            along: applied.along.iter().map(AlongItem::of).collect(),
            notes: notes.to_vec(),
        }
    }
}

fn taken_back(one: &Recovered) -> Option<u32> {
    match *one {
        Recovered::TakenBack { id } => Some(id),
        Recovered::Past { .. } => None,
    }
}

fn past(one: &Recovered) -> Option<PastTransaction> {
    match *one {
        Recovered::TakenBack { .. } => None,
        Recovered::Past { id, undone, stays } => Some(PastTransaction { transaction: id, undone, stays }),
    }
}

impl AlongItem {
    fn of(along: &Along) -> Self {
        Self {
            setting: along.setting.label(),
            with: along.with.label(),
            before: along.before.as_ref().ok().map(Value::from),
            now: along.now.as_ref().map(Value::from),
            reason: along.before.as_ref().err().and_then(reason),
        }
    }
}

impl Rollback {
    /// The document.
    pub fn of(rolled_back: &[RolledBack]) -> Self {
        let transaction = |one: &RolledBack| RolledBackTransaction {
            transaction: one.id,
            name: one.name.clone(),
            closed: one.closed,
            torn: one.torn,
            left_alone: one.left_alone.clone(),
            items: one
                .entries
                .iter()
                .map(|(entry, outcome)| {
                    let (theirs, reason) = match outcome {
                        Outcome::Theirs { now } => (some(now), None),
                        Outcome::Stayed { .. } => (None, Some(outcome.to_string())),
                        Outcome::Failed(error) => (None, reason(error)),
                        _ => (None, None),
                    };
                    let (setting, before) = (entry.intent.setting.label(), (&entry.intent.before).into());
                    let along = entry.intent.along.is_some();
                    RolledBackItem { setting, before, outcome: outcome.into(), along, theirs, reason }
                })
                .collect(),
        };
        Self {
            apus: VERSION.into(),
            schema: ROLLBACK.into(),
            transactions: rolled_back.iter().map(transaction).collect(),
        }
    }
}

impl Status {
    /// The document.
    pub fn of(access: &host::knob::Access, transactions: &[Transaction], at_boot: Option<String>) -> Self {
        let transactions = transactions.iter().map(|one| OpenTransaction::of(access, one)).collect();
        Self { apus: VERSION.into(), schema: STATUS.into(), at_boot, transactions }
    }
}

impl OpenTransaction {
    fn of(access: &host::knob::Access, one: &Transaction) -> Self {
        use host::knob::Knob;
        let place = one.whereabouts(access);
        let changed = one.wanted_entries().map(|entry| {
            let intent = &entry.intent;
            let stands = entry.stands(access, one.is_past, &place);
            let (word, now) = match &stands {
                Stands::Ours { now } => (Standing::Ours, some(now)),
                Stands::Before { now } => (Standing::Before, some(now)),
                Stands::Theirs { now } => (Standing::Theirs, some(now)),
                Stands::Gone => (Standing::Gone, None),
                Stands::Ended => (Standing::Ended, None),
                Stands::Past => (Standing::Past, None),
                Stands::Elsewhere | Stands::NamespaceGone => {
                    let mut item = OpenItem::not_here(&intent.setting.label(), &intent.wanted, &place);
                    item.before = some(&intent.before);
                    return item;
                }
                Stands::Unknown(_) => (Standing::Unknown, None),
            };
            let verdict = Knob(&intent.setting).verify(access, &intent.wanted, Some(&intent.before));
            let mut item = OpenItem::of(&intent.setting.label(), &intent.wanted, word, verdict);
            item.before = some(&intent.before);
            item.waits_for = waits_for(access, &intent.setting, &intent.wanted);
            item.now = now.or(item.now);
            item
        });
        let already = one.already.iter().map(|(setting, wanted)| {
            if setting.is_of_network() && place != Whereabouts::Here {
                return OpenItem::not_here(&setting.label(), wanted, &place);
            }
            let verdict = Knob(setting).verify(access, wanted, None);
            let word = match &verdict {
                Ok(verdict) if verdict.is_good() => Standing::Ours,
                Ok(Verdict::Gone) => Standing::Gone,
                Ok(_) => Standing::Theirs,
                Err(_) => Standing::Unknown,
            };
            let mut item = OpenItem::of(&setting.label(), wanted, word, verdict);
            item.waits_for = waits_for(access, setting, wanted);
            item
        });
        let refused = one.refused.iter().map(|(setting, wanted, why)| {
            if setting.is_of_network() && place != Whereabouts::Here {
                return OpenItem::not_here(&setting.label(), wanted, &place);
            }
            let mut item =
                OpenItem::of(&setting.label(), wanted, Standing::Refused, Knob(setting).verify(access, wanted, None));
            if item.as_wanted != Some(true) {
                item.reason = Some(why.replace('\n', "; "));
            }
            item
        });
        let begin = one.begin.as_ref();
        Self {
            transaction: one.id,
            name: begin.map(|begin| begin.name.clone()),
            command: begin.map(|begin| begin.command.clone()),
            at_unix_s: begin.map(|begin| begin.at_unix_s),
            kept: one.kept,
            abandoned: one.is_abandoned(),
            past: one.is_past,
            network_namespace: match &place {
                Whereabouts::Here => None,
                Whereabouts::Elsewhere { name, .. } | Whereabouts::Gone { name } => Some(name.clone()),
            },
            namespace_gone: matches!(place, Whereabouts::Gone { .. }),
            damage: match &one.rest {
                host::journal::Rest::Nothing => None,
                host::journal::Rest::Torn => Some("it ends in a torn record, of a change that was not begun".into()),
                host::journal::Rest::Damaged { line, why, lost } => {
                    Some(format!("line {line} is damaged: {why}; {lost} lines are lost"))
                }
                host::journal::Rest::Untrusted { why } => Some(format!("it is not believed: {why}")),
            },
            items: changed.chain(already).chain(refused).collect(),
        }
    }
}

/// What has to happen before `wanted` is in force.
pub fn waits_for(access: &host::knob::Access, setting: &AnySetting, wanted: &Set) -> Option<String> {
    let AnySetting::BootFragment(_) = setting else { return None };
    match BootFragment::missing(access, wanted.as_text()?) {
        Ok(Some(missing)) if missing.is_empty() => None,
        Ok(Some(missing)) => Some(format!("update-grub and a reboot: not in force is {}", missing.join(" "))),
        Ok(None) => Some("update-grub and a reboot, unless it is in force: /proc/cmdline is not there".into()),
        Err(error) => Some(format!("update-grub and a reboot, unless it is in force: {error}")),
    }
}

impl OpenItem {
    /// One of a network namespace that is not the one that was looked at from.
    fn not_here(setting: &str, wanted: &Set, place: &Whereabouts) -> Self {
        Self {
            setting: setting.into(),
            before: None,
            wanted: wanted.into(),
            now: None,
            stands: match place {
                Whereabouts::Gone { .. } => Standing::NamespaceGone,
                _ => Standing::Elsewhere,
            }
            .into(),
            as_wanted: None,
            reason: Some(format!("it is {place}")),
            waits_for: None,
            effect: None,
        }
    }

    /// Whether it is of another network namespace.
    pub fn is_elsewhere(&self) -> bool {
        [Standing::Elsewhere, Standing::NamespaceGone].map(Name::from).contains(&self.stands)
    }

    /// Whether it can be judged from here, and still is to be judged.
    pub fn is_here(&self) -> bool {
        !self.is_elsewhere() && self.stands != Name::of(&Standing::Ended)
    }

    fn of(setting: &str, wanted: &Set, stands: Standing, verdict: Result<Verdict, KnobError>) -> Self {
        let (as_wanted, now, reason) = match &verdict {
            Ok(Verdict::AsWanted { now }) => (Some(true), some(now), None),
            Ok(Verdict::Otherwise { now, why } | Verdict::Unmoved { now, why }) => {
                (Some(false), some(now), why.clone())
            }
            Ok(Verdict::Gone) => (Some(false), None, Some("it is gone".into())),
            Err(error) => (None, None, reason(error)),
        };
        Self {
            setting: setting.into(),
            before: None,
            wanted: wanted.into(),
            now,
            stands: stands.into(),
            as_wanted,
            reason,
            waits_for: None,
            effect: None,
        }
    }
}

impl Status {
    /// Adds what was seen of the effects, in the order of the items.
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Option<host::knob::effect::Effect>>) -> Self {
        let items = self.transactions.iter_mut().flat_map(|one| &mut one.items);
        for (item, effect) in items.zip(effects) {
            item.effect = effect.map(|effect| Effect { seen: effect.seen(), text: effect.text().to_owned() });
        }
        self
    }
}
