//! `apus tune` and `apus power` in a guest.

use serde_json::Value as Json;
use vmlab::{Guest, Output};

use vmlab::harness::ok;

/// What a command that changes settings came to.
#[derive(Debug)]
pub(crate) struct Outcome(Output);

impl Outcome {
    /// Every setting was changed, and is as wanted.
    pub(crate) fn assert_changed(&self) {
        let items = self.items();
        assert!(!items.is_empty() && self.0.status == 0, "{:?}", self.0);
        assert!(items.iter().all(|item| item["became"] == "changed"), "{items:#?}");
    }

    /// It was not called a success; all that it said.
    pub(crate) fn assert_refused(&self) -> String {
        assert!(self.0.status != 0, "this was to be refused: {:?}", self.0);
        format!("{}{}", self.0.stdout, self.0.stderr)
    }

    /// What became of each setting.
    pub(crate) fn items(&self) -> Vec<Json> {
        let document: Json = serde_json::from_str(&self.0.stdout).unwrap_or_else(|e| panic!("{e}: {:?}", self.0));
        document["items"].as_array().unwrap().clone()
    }
}

/// Applies a profile of these keys in the guest.
pub(crate) fn apply(guest: &Guest, keys: &str) -> Outcome {
    apply_with(guest, keys, "")
}

/// The same, with further options.
pub(crate) fn apply_with(guest: &Guest, keys: &str, options: &str) -> Outcome {
    std::fs::write(guest.share().join("test.toml"), format!("summary = \"test\"\n{keys}")).unwrap();
    Outcome(ok(guest.output(&format!("apus tune apply /share/test.toml --yes --json {options}"))))
}

/// `apus power set` with these options.
pub(crate) fn power_set(guest: &Guest, options: &str) -> Outcome {
    Outcome(ok(guest.output(&format!("apus power set --json {options}"))))
}

/// Takes back everything, and nothing is left.
pub(crate) fn roll_back(guest: &Guest) {
    let document: Json = serde_json::from_str(&ok(guest.run("apus tune rollback --json"))).unwrap();
    let transactions = document["transactions"].as_array().unwrap();
    assert!(!transactions.is_empty() && transactions.iter().all(|one| one["closed"] == true), "{document:#}");
    let status: Json = serde_json::from_str(&ok(guest.run("apus tune status --json"))).unwrap();
    assert_eq!(status["transactions"].as_array().unwrap().len(), 0, "{status:#}");
}
