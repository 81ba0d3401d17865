//! What a controller changes: a setting, or some of its fields.

use crate::knob::{AnySetting, Setting as _, Value};

/// A setting that a controller changes repeatedly, or some fields of such a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The setting.
    pub setting: AnySetting,
    /// The fields that the controller changes. Changes of other fields are neither noticed nor restored. If empty, the
    /// controller changes the whole setting.
    pub fields: Vec<String>,
}

impl Target {
    /// Makes a target for only some fields of a setting.
    pub fn fields(setting: impl Into<AnySetting>, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { setting: setting.into(), fields: fields.into_iter().map(Into::into).collect() }
    }

    /// The part of the setting's value that the controller changes. A field that is missing keeps its present value.
    pub(in crate::transaction) fn part(&self, value: Value) -> Value {
        match value {
            Value::Fields(mut fields) if !self.fields.is_empty() => {
                fields.retain(|field, _| self.fields.contains(field));
                let unshown = |field: &String| Some((field.clone(), self.setting.unshown(field)?.to_owned()));
                let missing: Vec<_> =
                    self.fields.iter().filter(|field| !fields.contains_key(*field)).filter_map(unshown).collect();
                fields.extend(missing);
                Value::Fields(fields)
            }
            value => value,
        }
    }

    /// Whether a value contains only fields that the controller changes.
    pub(super) fn takes(&self, wanted: &Value) -> bool {
        match wanted {
            Value::Fields(wanted) => self.fields.is_empty() || wanted.keys().all(|field| self.fields.contains(field)),
            Value::Text(_) => true,
        }
    }
}

impl<S: Into<AnySetting>> From<S> for Target {
    fn from(setting: S) -> Self {
        Self { setting: setting.into(), fields: Vec::new() }
    }
}
