use std::fs;
use std::path::{Path, PathBuf};

use apus::documents::{Published, SCHEMAS, schema_file};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas").join(schema_file(name))
}

/// Panics with every place in which `document` is not as its own `schema` field says.
pub fn validate(document: &Value) {
    let name = document["schema"].as_str().expect("a document names its schema");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path(name)).unwrap()).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(document)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "not {name}:\n{}", errors.join("\n"));
}

#[test]
fn the_committed_schemas_are_those_of_the_code() {
    for Published { name, schema } in SCHEMAS {
        let now = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("APUS_UPDATE_SCHEMAS").is_some() {
            fs::write(path(name), &now).unwrap();
        }
        let committed = fs::read_to_string(path(name)).unwrap_or_default();
        assert!(
            committed == now,
            "{} is not what the code says; if the change is meant (and compatible, else raise the number in its name): \
             APUS_UPDATE_SCHEMAS=1 cargo test -p cli --test it schemas",
            path(name).display()
        );
    }
}

#[test]
fn schemas_take_no_unknown_key() {
    for Published { name, schema } in SCHEMAS {
        let schema = serde_json::to_value(schema()).unwrap();
        assert_eq!(schema["additionalProperties"], Value::Bool(false), "{name}");
        assert_eq!(schema["properties"]["schema"]["const"], *name);
    }
}
