use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who may depend on whom. A new edge is a decision on the design: it goes into ARCHITECTURE.md first.
const EDGES: [(&str, &[&str]); 15] = [
    ("units", &[]),
    ("pcap", &["units"]),
    ("policy", &["units"]),
    ("sim", &["units", "pcap", "policy"]),
    ("host", &["units"]),
    ("audit", &["units", "host"]),
    ("live", &["units", "pcap", "policy"]),
    ("live-dpdk", &["units", "live"]),
    ("tester", &["units", "pcap", "live"]),
    ("steer", &["units", "policy", "host"]),
    ("capi", &["units", "policy", "live"]),
    ("testkit", &[]),
    ("vmlab", &["units", "testkit"]),
    ("probe", &["units", "host", "live", "tester"]),
    ("cli", &["units", "policy", "sim", "host", "steer", "audit", "live", "live-dpdk", "tester", "probe"]),
];
/// The same for tests, benchmarks and examples alone.
const DEV_EDGES: [(&str, &[&str]); 11] = [
    ("policy", &["testkit"]),
    ("sim", &["testkit"]),
    ("host", &["testkit"]),
    ("audit", &["testkit"]),
    ("live", &["testkit"]),
    ("live-dpdk", &["policy", "testkit"]),
    ("tester", &["policy", "testkit"]),
    ("probe", &["testkit"]),
    ("steer", &["testkit"]),
    ("cli", &["testkit", "vmlab"]),
    ("capi", &["testkit"]),
];
/// Crates in which `unsafe` can stand nowhere at all, and the one that has files for it.
const FORBID_UNSAFE: [&str; 10] =
    ["testkit", "vmlab", "units", "pcap", "policy", "sim", "audit", "steer", "tester", "cli"];
const DENY_UNSAFE: [&str; 4] = ["host", "live", "live-dpdk", "probe"];
/// Crates that run without an operating system.
const NO_STD: [&str; 2] = ["units", "policy"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn written(edges: &[(&str, &[&str])]) -> BTreeSet<String> {
    edges.iter().flat_map(|(from, to)| to.iter().map(move |to| format!("{from} -> {to}"))).collect()
}

#[test]
fn dependencies_between_crates_are_the_written_ones() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    assert_eq!(names, EDGES.iter().map(|(name, _)| *name).collect(), "crates of the workspace");
    let edges = |dev: bool| -> BTreeSet<String> {
        let all = packages.iter().flat_map(|package| {
            let from = package["name"].as_str().unwrap();
            package["dependencies"].as_array().unwrap().iter().map(move |dependency| (from, dependency))
        });
        all.filter(|(_, to)| to["path"].is_string() && (to["kind"] == "dev") == dev)
            .map(|(from, to)| format!("{from} -> {}", to["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(edges(false), written(&EDGES));
    assert_eq!(edges(true), written(&DEV_EDGES));
}

#[test]
fn unsafe_stands_only_in_files_named_sys_and_where_c_calls() {
    let mut looked_at = 0;
    for file in rust_files(&root().join("crates")) {
        looked_at += 1;
        let text = fs::read_to_string(&file).unwrap();
        // Every file of `capi` may hold a pointer of C.
        let is_sys =
            file.file_name().is_some_and(|name| name == "sys.rs") || file.starts_with(root().join("crates/capi"));
        if let Some(line) = text.lines().position(uses_unsafe)
            && !is_sys
        {
            panic!("{}:{}: unsafe code belongs into a file named sys.rs", file.display(), line + 1);
        }
    }
    assert!(looked_at > 100, "only {looked_at} files: are these the sources?");
}

/// Text for people goes through `terminal`, where control characters of a host or a file's name become visible. The
/// lints in clippy.toml and lib.rs keep the streams; this keeps the files, and escape sequences out of texts.
#[test]
fn text_leaves_by_the_terminal_module_alone() {
    let sources = rust_files(&root().join("crates/cli/src"));
    for file in sources.iter().filter(|file| !file.ends_with("terminal/mod.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for around in ["fs::write(", "\\x1b", "\\u{1b}", "print!(", "println!("] {
            assert!(!code.contains(around), "{}: {around} goes around crates/cli/src/terminal/mod.rs", file.display());
        }
    }
    assert!(sources.len() > 40, "only {} files: are these the sources?", sources.len());
}

/// A drawing that was wrapped like text is no drawing any more.
#[test]
fn the_fences_of_doc_comments_stand_alone() {
    for file in rust_files(&root().join("crates")) {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let comment = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
            let Some((before, language)) = comment.and_then(|text| text.split_once("```")) else { continue };
            let alone =
                before.trim().is_empty() && language.chars().all(|c| c.is_ascii_alphanumeric() || "_,".contains(c));
            assert!(alone, "{}:{}: {line}", file.display(), number + 1);
        }
    }
}

/// A bench that a plain kill ends would otherwise leave its namespaces and programs.
#[test]
fn benches_clean_up_after_a_plain_kill() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("benches")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if path.extension().is_some_and(|end| end == "py") && text.contains("\ndef main():") {
            assert!(text.contains("signal.signal(signal.SIGTERM, "), "{} ignores SIGTERM", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} benches");
}

/// Who speaks netlink, or the ioctl of ethtool. `live` cannot use `host`, and asks for an interface's speed and queues.
#[test]
fn network_interfaces_are_asked_by_host_nic_alone() {
    const ASK: [&str; 7] = [
        "crates/cli/tests/it/laws.rs",
        "crates/host/src/nic/message.rs",
        "crates/host/src/nic/socket.rs",
        "crates/host/src/nic/sys.rs",
        "crates/host/src/nic/tests.rs",
        "crates/live/src/device/afxdp/sys.rs",
        "crates/live/src/os/sys.rs",
    ];
    let asks = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        ["use netlink_", "netlink_socket", "AddressFamily::NETLINK", "AF_NETLINK", "SIOCETHTOOL"]
            .iter()
            .any(|word| text.contains(word))
    };
    let mut found: Vec<PathBuf> = rust_files(&root().join("crates")).into_iter().filter(asks).collect();
    found.sort();
    assert_eq!(found, ASK.map(|file| root().join(file)));
}

/// The keyword, outside comments, texts and the names of lints.
fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let outside_texts: String = code.split('"').step_by(2).collect();
    outside_texts.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

#[test]
fn the_search_for_unsafe_finds_it() {
    for code in ["unsafe { f() }", "    unsafe impl Send for A {}", "pub unsafe fn f()", "x = unsafe{ 1 };"] {
        assert!(uses_unsafe(code), "{code}");
    }
    for code in ["#![forbid(unsafe_code)]", "// unsafe", "let a = \"unsafe\";", "fn unsafe_stands() {"] {
        assert!(!uses_unsafe(code), "{code}");
    }
}

#[test]
fn every_crate_says_its_law_and_keeps_it() {
    for (name, _) in EDGES {
        let text = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        let has = |attribute: &str| text.lines().any(|line| line == attribute);
        assert!(text.starts_with("//! ") && text.contains("//! **Law:**"), "{name}: its law is missing");
        assert_eq!(has("#![forbid(unsafe_code)]"), FORBID_UNSAFE.contains(&name), "{name}: forbid(unsafe_code)");
        assert_eq!(has("#![deny(unsafe_code)]"), DENY_UNSAFE.contains(&name), "{name}: deny(unsafe_code)");
        assert_eq!(has("#![no_std]"), NO_STD.contains(&name), "{name}: no_std");
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}: does not take the workspace's lints");
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
