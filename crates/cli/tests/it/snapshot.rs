use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, bare, text};

#[test]
fn a_snapshot_of_this_host_can_be_read_again() {
    let root = Root::new();
    let file = root.0.join("host.tar.zst").display().to_string();
    let output = bare(&["snapshot", "-o", &file, "--for", "50ms", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!((&document["complete"], &document["masked"]), (&true.into(), &true.into()));
    let facts = host::facts::Facts::read(&host::facts::Root::open(&file).unwrap());
    assert!(facts.interval.is_known() && facts.cpus.online.is_known());

    let again = root.0.join("again.tar").display().to_string();
    let output = bare(&["snapshot", "--from", &file, "-o", &again]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("masked"), "{}", text(&output.stdout));
}

#[test]
fn wrong_use_is_said_before_anything_is_done() {
    let root = Root::new();
    let file = |name: &str| root.0.join(name).display().to_string();
    for (words, says) in [
        (vec!["snapshot".to_owned(), "-o".into(), file("host.zip")], ".tar.zst"),
        (vec!["snapshot".into(), "-o".into(), file("a.tar"), "--for".into(), "3600s".into()], "600s"),
        (vec!["snapshot".into(), "-o".into(), file("a.tar"), "--from".into(), "/nowhere".into()], "/nowhere"),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = bare(&words);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    let output = bare(&["snapshot", "--for", "10ms", "-o", "/nowhere/host.tar"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}
