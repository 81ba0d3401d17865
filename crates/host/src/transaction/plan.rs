//! Plans: the settings to change, with a preview of the changes on this machine.

use serde::{Deserialize, Serialize};

use crate::knob::{Access, AnySetting, Error, Knob, Setting as _, Value};

/// Settings and their wanted values, in the order in which they are changed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the transaction.
    pub name: String,
    /// The settings.
    pub items: Vec<Item>,
}

/// One setting and its wanted value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The setting to change.
    pub setting: AnySetting,
    /// The value to set.
    pub wanted: Value,
    /// What to do if the machine refuses the change.
    pub on_refusal: OnRefusal,
    /// Origin of the request, for messages: a file with its line, or an option of a command. `None` if not known.
    pub from: Option<String>,
}

/// What to do if the machine refuses a setting or sets another value.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, Debug)]
#[serde(rename_all = "snake_case")]
pub enum OnRefusal {
    /// The whole transaction is rolled back.
    #[default]
    RollBack,
    /// The refusal is reported, and the transaction continues. This is meant for settings that many machines refuse,
    /// such as the affinity of managed interrupts.
    Report,
}

/// The effect that an item of a plan would have on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preview {
    /// The item.
    pub item: Item,
    /// State of the setting on the machine, compared with the wanted value.
    pub meets: Meets,
}

units::named! {
    /// State of a setting on the machine, compared with the value that an item of the plan requests.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Meets {
        /// The setting would be changed.
        Other {
            /// The current value.
            now: Value,
        } = "change",
        /// The setting already has the wanted value.
        AsWanted {
            /// The current value.
            now: Value,
        } = "as_wanted",
        /// The machine has no such setting.
        NotThere = "not_there",
        /// The setting cannot be read, or the value cannot be set.
        Refused(Error) = "refused",
    }
}

impl Plan {
    /// A plan without settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), items: Vec::new() }
    }

    /// Adds a setting at the end. If the plan already contains the setting, replaces its value and keeps its position.
    #[must_use]
    pub fn with(mut self, setting: impl Into<AnySetting>, wanted: Value) -> Self {
        self.push(Item { setting: setting.into(), wanted, on_refusal: OnRefusal::RollBack, from: None });
        self
    }

    /// Adds an item at the end, or replaces the item for the same setting. If both values consist of fields, the fields
    /// are merged.
    pub fn push(&mut self, item: Item) {
        match self.items.iter_mut().find(|known| known.setting == item.setting) {
            Some(known) => {
                known.wanted = match (&known.wanted, item.wanted) {
                    (Value::Fields(earlier), Value::Fields(later)) => {
                        Value::Fields(earlier.clone().into_iter().chain(later).collect())
                    }
                    (_, later) => later,
                };
                known.on_refusal = item.on_refusal;
                known.from = item.from;
            }
            None => self.items.push(item),
        }
    }

    /// The changes that the plan would make on this machine. Changes nothing.
    pub fn preview(&self, access: &Access) -> Vec<Preview> {
        let meets = |item: &Item| {
            let knob = Knob(&item.setting);
            match item.setting.read(access) {
                Ok(None) => Meets::NotThere,
                Ok(Some(now)) if knob.holds(&now, &item.wanted) => match knob.vain(access, &item.wanted, &now) {
                    Ok(None) => Meets::AsWanted { now },
                    Ok(Some(error)) | Err(error) => Meets::Refused(error),
                },
                Ok(Some(now)) => match item.setting.check(access, &item.wanted) {
                    Ok(()) => Meets::Other { now },
                    Err(error) => Meets::Refused(error),
                },
                Err(error) => Meets::Refused(error),
            }
        };
        self.items.iter().map(|item| Preview { item: item.clone(), meets: meets(item) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{File, Limits, Sysctl};
    use crate::testing::Folder;

    #[test]
    fn a_later_wish_replaces_an_earlier_one() {
        let plan = Plan::new("p")
            .with(Limits::new(0), Value::fields([("min", 1), ("max", 2)]))
            .with(Sysctl::new("a.b"), Value::text(1))
            .with(Limits::new(0), Value::fields([("max", 3)]))
            .with(Sysctl::new("a.b"), Value::text(2));
        let wanted: Vec<String> = plan.items.iter().map(|item| item.wanted.to_string()).collect();
        assert_eq!(wanted, ["max=3 min=1", "2"]);
    }

    #[test]
    fn a_preview_tells_what_is_there() {
        let folder = Folder::new(&[("sys/a", "1\n"), ("sys/b", "2\n"), ("sys/c", "[x] y\n")]);
        let mut plan = Plan::new("p");
        for (path, wanted) in [("/sys/a", "1"), ("/sys/b", "1"), ("/sys/c", "z"), ("/sys/d", "1")] {
            plan = plan.with(File::new(path), Value::text(wanted));
        }
        let meets: Vec<Meets> = plan.preview(&folder.access()).into_iter().map(|preview| preview.meets).collect();
        assert_eq!(meets[..2], [Meets::AsWanted { now: Value::text("1") }, Meets::Other { now: Value::text("2") }]);
        assert!(matches!(meets[2], Meets::Refused(Error::Invalid { .. })));
        assert_eq!(meets[3], Meets::NotThere);
    }
}
