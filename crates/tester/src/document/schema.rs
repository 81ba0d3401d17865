//! The schema of a document.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The JSON Schema (2020-12) of a document as Apus writes it. The schema refuses unknown keys, both in the document
/// itself and in each named type.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let generator = SchemaSettings::draft2020_12().for_serialize().with_transform(OneEnum).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let root = schema.ensure_object();
    if let Some(Value::Object(types)) = root.get_mut("$defs") {
        types.values_mut().filter_map(Value::as_object_mut).for_each(close);
    }
    close(root);
    schema
}

/// Adds `"additionalProperties": false`, which refuses unknown keys. The entry goes right after the properties, where
/// schemars puts it for serde's `deny_unknown_fields`.
fn close(object: &mut Map<String, Value>) {
    if !object.contains_key("properties") {
        return;
    }
    for (key, value) in std::mem::take(object) {
        let properties = key == "properties";
        object.insert(key, value);
        if properties {
            object.insert("additionalProperties".into(), false.into());
        }
    }
}

/// Schema transform that writes a choice between constants as one `enum`, as [`Name`](super::Name) does. Without it,
/// schemars writes a serde enum as a list of alternatives, one for each documented value.
#[derive(Clone, Debug)]
pub struct OneEnum;

impl Transform for OneEnum {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(Value::Array(alternatives)) = schema.get("oneOf") else { return };
        let Some(all) = alternatives.iter().map(constants).collect::<Option<Vec<_>>>() else { return };
        let all: Vec<(String, Option<String>)> = all.into_iter().flatten().collect();
        let said = all.iter().filter_map(|(name, meaning)| Some(format!("`{name}`: {}", meaning.as_ref()?)));
        let of_all = schema.get("description").and_then(Value::as_str).map(str::to_owned);
        let lines: Vec<String> = of_all.into_iter().chain(said).collect();
        let names: Vec<Value> = all.iter().map(|(name, _)| name.as_str().into()).collect();
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), names.into());
        if !lines.is_empty() {
            schema.insert("description".into(), lines.join("\n").into());
        }
    }
}

/// The constant strings that an alternative allows, each with its description if it has one; `None` if the alternative
/// is not made of constant strings.
fn constants(alternative: &Value) -> Option<Vec<(String, Option<String>)>> {
    let alternative: &Map<String, Value> = alternative.as_object()?;
    if alternative.get("type")? != "string" {
        return None;
    }
    let meaning = alternative.get("description").and_then(Value::as_str).map(str::to_owned);
    if let Some(only) = alternative.get("const") {
        return Some(vec![(only.as_str()?.to_owned(), meaning)]);
    }
    let names = alternative.get("enum")?.as_array()?;
    names.iter().map(|name| Some((name.as_str()?.to_owned(), None))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set.
    #[derive(JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code)]
    enum Set {
        /// The first.
        FirstOne,
        Second,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code)]
    enum Holding {
        /// A number.
        Number(u32),
        /// Nothing.
        Nothing,
    }

    #[test]
    fn a_closed_set_is_an_enum_and_a_choice_of_forms_stays() {
        let schema = schema_of::<Set>();
        assert_eq!(schema.get("enum").unwrap(), &serde_json::json!(["second", "first_one"]));
        assert_eq!(schema.get("description").unwrap(), "The set.\n`first_one`: The first.");
        assert!(schema.get("oneOf").is_none());
        assert!(schema_of::<Holding>().get("oneOf").is_some());
    }

    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct Outer {
        inner: Option<Inner>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct Inner {
        value: u32,
    }

    #[test]
    fn no_type_has_a_key_that_its_schema_does_not_name() {
        let schema = schema_of::<Outer>();
        let closed = [schema.get("additionalProperties"), schema.pointer("/$defs/Inner/additionalProperties")];
        assert_eq!(closed, [Some(&Value::Bool(false)); 2]);
    }
}
