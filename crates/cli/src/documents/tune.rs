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

/// Name and version of the schema of a plan.
pub const PLAN: &str = "apus.tune-plan/1";
/// Name and version of the schema of an applied profile.
pub const APPLY: &str = "apus.tune-apply/1";
/// Name and version of the schema of a rollback.
pub const ROLLBACK: &str = "apus.tune-rollback/1";
/// Name and version of the schema of the status.
pub const STATUS: &str = "apus.tune-status/1";

/// Name and version of the schema of a recommendation.
pub const RECOMMEND: &str = "apus.tune-recommend/1";

/// The profile that `apus tune recommend` recommends for the host.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Recommend {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.tune-recommend/1`.
    #[schemars(extend("const" = RECOMMEND))]
    pub schema: String,
    /// Name of the recommended profile.
    pub profile: String,
    /// The CPUs that the profile would isolate, as a list.
    pub isolated: String,
    /// Reasons for recommending the profile.
    pub reasons: Vec<String>,
    /// Reasons against the other profiles, by profile name.
    pub others: BTreeMap<String, String>,
}

impl Recommend {
    /// Builds the document of a recommendation.
    pub fn of(found: &Recommendation) -> Self {
        Self {
            apus: VERSION.into(),
            schema: RECOMMEND.into(),
            profile: found.profile.into(),
            isolated: found.isolated.to_list(),
            reasons: found.reasons.clone(),
            others: found.others.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect(),
        }
    }
}

/// A value of a setting.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(untagged)]
pub enum Value {
    /// A single string.
    Text(String),
    /// Several fields that belong together, by name.
    Fields(BTreeMap<String, String>),
}

/// What a profile would change.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Plan {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.tune-plan/1`.
    #[schemars(extend("const" = PLAN))]
    pub schema: String,
    /// Name of the profile.
    pub name: String,
    /// CPUs for the application, as a list.
    pub isolated: String,
    /// CPUs for everything else, as a list.
    pub housekeeping: String,
    /// Kernel parameters that the profile wants.
    pub kernel_arguments: Vec<String>,
    /// Parts of the profile that do not apply to this host, and why.
    pub notes: Vec<String>,
    /// The settings, in the order in which they would be changed.
    pub items: Vec<PlanItem>,
}

/// One setting of a plan.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct PlanItem {
    /// Name of the setting.
    pub setting: String,
    /// The value that the profile wants.
    pub wanted: Value,
    /// Whether the setting would be changed, already has the wanted value, is missing, or would be refused.
    pub meets: Name<Meets>,
    /// The current value; `null` if it does not exist or is not readable.
    pub now: Option<Value>,
    /// Why the setting would be refused; `null` if it would not be.
    pub reason: Option<String>,
    /// Profile file and line that contain the setting.
    pub from: Option<String>,
}

/// What was applied.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Apply {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.tune-apply/1`.
    #[schemars(extend("const" = APPLY))]
    pub schema: String,
    /// Name of the applied profile or command.
    pub name: String,
    /// Number of the transaction; `null` if nothing had to be changed.
    pub transaction: Option<u32>,
    /// Numbers of unfinished transactions that were rolled back first.
    pub recovered: Vec<u32>,
    /// Transactions from before a reboot. The reboot reset some of their settings.
    pub past: Vec<PastTransaction>,
    /// The outcome of each setting.
    pub items: Vec<AppliedItem>,
    /// Settings that changed as a side effect of a requested one. A rollback restores them too.
    pub along: Vec<AlongItem>,
    /// Side effects of the changes, and parts of the profile that do not apply to this host, with the reason.
    pub notes: Vec<String>,
}

/// A transaction from before the last reboot.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct PastTransaction {
    /// Number of the transaction.
    pub transaction: u32,
    /// Number of the transaction's settings that the reboot reset.
    pub undone: usize,
    /// Number of the transaction's settings that survived the reboot. They stay until the transaction is rolled back.
    pub stays: usize,
}

/// A setting that changed as a side effect of another.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct AlongItem {
    /// Name of the setting.
    pub setting: String,
    /// Name of the requested setting that caused the change.
    pub with: String,
    /// Value before the change; `null` if it is not readable.
    pub before: Option<Value>,
    /// Value after the change; `null` if the setting no longer exists.
    pub now: Option<Value>,
    /// Why the setting cannot be read and therefore cannot be restored; `null` if it can be read.
    pub reason: Option<String>,
}

/// The outcome of a setting.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct AppliedItem {
    /// Name of the setting.
    pub setting: String,
    /// The requested value.
    pub wanted: Value,
    /// The outcome of the change.
    pub became: Name<Became>,
    /// Value before the change; `null` if unknown.
    pub before: Option<Value>,
    /// Value after the change; `null` if unknown.
    pub now: Option<Value>,
    /// Why the setting does not have the requested value; `null` if it does.
    pub reason: Option<String>,
}

/// What was rolled back.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Rollback {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.tune-rollback/1`.
    #[schemars(extend("const" = ROLLBACK))]
    pub schema: String,
    /// The transactions, the newest first.
    pub transactions: Vec<RolledBackTransaction>,
}

/// A transaction that was rolled back as far as possible.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct RolledBackTransaction {
    /// Number of the transaction.
    pub transaction: u32,
    /// Name of the transaction; `null` if its journal does not contain one.
    pub name: Option<String>,
    /// Whether nothing of the transaction is left: all its changes were rolled back or forgotten.
    pub closed: bool,
    /// Whether the last record of the transaction's journal was incomplete.
    pub torn: bool,
    /// Why the rollback was not attempted; `null` if it was.
    pub left_alone: Option<String>,
    /// The outcome of rolling back each change, the last change first.
    pub items: Vec<RolledBackItem>,
}

/// The outcome of rolling back one change.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct RolledBackItem {
    /// Name of the setting.
    pub setting: String,
    /// The value before the change, to be restored.
    pub before: Value,
    /// The outcome of the rollback.
    pub outcome: Name<Outcome>,
    /// Whether the setting was not requested, but changed as a side effect of a requested one.
    pub along: bool,
    /// The current value, if someone else changed the setting; otherwise `null`.
    pub theirs: Option<Value>,
    /// Why the rollback of the setting failed; `null` if it did not.
    pub reason: Option<String>,
}

/// The open transactions and the current values of their settings.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Status {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.tune-status/1`.
    #[schemars(extend("const" = STATUS))]
    pub schema: String,
    /// Command that applies a profile at each boot; `null` if none is enabled, or if it was not checked.
    pub at_boot: Option<String>,
    /// The transactions that are not rolled back yet, the oldest first.
    pub transactions: Vec<OpenTransaction>,
}

/// A transaction that is not rolled back yet.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct OpenTransaction {
    /// Number of the transaction.
    pub transaction: u32,
    /// Name of the transaction; `null` if its journal does not contain one.
    pub name: Option<String>,
    /// The command line that made the transaction; `null` if its journal does not contain it.
    pub command: Option<String>,
    /// When the transaction started, in seconds since 1970-01-01 UTC; `null` if its journal does not say.
    pub at_unix_s: Option<u64>,
    /// Whether all changes of the transaction were completed.
    pub kept: bool,
    /// Whether the transaction should be rolled back automatically, but no process is left to do so: it was not
    /// completed, or the process to which it was bound has ended.
    pub abandoned: bool,
    /// Whether the transaction is from before the last reboot.
    pub past: bool,
    /// Network namespace in which the transaction was made; `null` if it is the current one.
    pub network_namespace: Option<String>,
    /// Whether the network namespace of the transaction no longer exists. Its host-wide settings can be rolled back
    /// from any namespace.
    pub namespace_gone: bool,
    /// What is wrong with the transaction's journal; `null` if nothing is wrong.
    pub damage: Option<String>,
    /// The settings that the transaction changed, and those that already had the wanted value.
    pub items: Vec<OpenItem>,
}

/// A setting of a transaction.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct OpenItem {
    /// Name of the setting.
    pub setting: String,
    /// Value before the change; `null` if the setting was not changed.
    pub before: Option<Value>,
    /// The wanted value.
    pub wanted: Value,
    /// Value now; `null` if the setting no longer exists or is not readable.
    pub now: Option<Value>,
    /// Who determined the current value of the setting.
    pub stands: Name<Standing>,
    /// Whether the setting has the wanted value; `null` if it is not readable.
    pub as_wanted: Option<bool>,
    /// Why the setting does not have the wanted value, if the host says so.
    pub reason: Option<String>,
    /// What must happen before the setting takes effect, such as a reboot; `null` if it is in effect.
    pub waits_for: Option<String>,
    /// Whether the setting's effect was observed; `null` if it was not checked, or cannot be observed.
    pub effect: Option<Effect>,
}

units::named! {
    /// The state of a setting of a transaction.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Standing {
        /// The setting has the value that the transaction set.
        Ours = "ours",
        /// The setting has the value that it had before the transaction.
        Before = "before",
        /// Someone else changed the setting.
        Theirs = "theirs",
        /// The setting was refused when the transaction was applied.
        Refused = "refused",
        /// The setting, or the device or thread to which it belonged, no longer exists.
        Gone = "gone",
        /// The setting ended when its thread ended.
        Ended = "ended",
        /// A reboot reset the setting.
        Past = "past",
        /// The setting belongs to another network namespace.
        Elsewhere = "elsewhere",
        /// The setting ended when its network namespace was deleted.
        NamespaceGone = "namespace_gone",
        /// The setting cannot be read.
        Unknown = "unknown",
    }
}

/// Whether a setting was observed to have its effect.
#[derive(Clone, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Effect {
    /// Whether the effect was observed; `null` if nothing happened that could show it.
    pub seen: Option<bool>,
    /// What was observed.
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
    /// Builds the document of a plan.
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
            isolated: resolved.isolated.to_list(),
            housekeeping: resolved.housekeeping.to_list(),
            kernel_arguments: resolved.arguments.clone(),
            notes: resolved.notes.clone(),
            items: previews.iter().map(item).collect(),
        }
    }
}

impl Apply {
    /// Builds the document of an applied profile.
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
    /// Builds the document of a rollback.
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
    /// Builds the document of the status.
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
                host::journal::Rest::Torn => {
                    Some("its last journal record is incomplete: that change was never made".into())
                }
                host::journal::Rest::Damaged { line, why, lost } => {
                    Some(format!("line {line} is damaged: {why}; {lost} lines are lost"))
                }
                host::journal::Rest::Untrusted { why } => Some(format!("its journal is not trusted: {why}")),
            },
            items: changed.chain(already).chain(refused).collect(),
        }
    }
}

/// What must happen before the value `wanted` takes effect, such as a reboot. `None` if it is in effect.
pub fn waits_for(access: &host::knob::Access, setting: &AnySetting, wanted: &Set) -> Option<String> {
    let AnySetting::BootFragment(_) = setting else { return None };
    match BootFragment::missing(access, wanted.as_text()?) {
        Ok(Some(missing)) if missing.is_empty() => None,
        Ok(Some(missing)) => Some(format!("update-grub and a reboot; not in effect yet: {}", missing.join(" "))),
        Ok(None) => Some("update-grub and a reboot, unless it already has: /proc/cmdline does not exist".into()),
        Err(error) => Some(format!("update-grub and a reboot, unless it already has: {error}")),
    }
}

impl OpenItem {
    /// Builds an item of a transaction in another network namespace.
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
            reason: Some(format!("it belongs to {place}")),
            waits_for: None,
            effect: None,
        }
    }

    /// Whether the transaction belongs to another network namespace.
    pub fn is_elsewhere(&self) -> bool {
        [Standing::Elsewhere, Standing::NamespaceGone].map(Name::from).contains(&self.stands)
    }

    /// Whether the setting can be checked from here: it does not belong to another network namespace, and it did not
    /// end with its thread.
    pub fn is_here(&self) -> bool {
        !self.is_elsewhere() && self.stands != Name::of(&Standing::Ended)
    }

    fn of(setting: &str, wanted: &Set, stands: Standing, verdict: Result<Verdict, KnobError>) -> Self {
        let (as_wanted, now, reason) = match &verdict {
            Ok(Verdict::AsWanted { now }) => (Some(true), some(now), None),
            Ok(Verdict::Otherwise { now, why } | Verdict::Unmoved { now, why }) => {
                (Some(false), some(now), why.clone())
            }
            Ok(Verdict::Gone) => (Some(false), None, Some("it no longer exists".into())),
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
    /// Adds the observed effects. `effects` is in the order of the items.
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Option<host::knob::effect::Effect>>) -> Self {
        let items = self.transactions.iter_mut().flat_map(|one| &mut one.items);
        for (item, effect) in items.zip(effects) {
            item.effect = effect.map(|effect| Effect { seen: effect.seen(), text: effect.text().to_owned() });
        }
        self
    }
}
