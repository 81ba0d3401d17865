//! docs/which-mode.md: each block is what the command above it prints.

use std::fs;
use std::path::Path;

use crate::support::{bare, text};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/which-mode.md");

/// The page with every command's output as it is now, and how many commands there are.
fn renewed(page: &str) -> (String, usize) {
    let (mut out, mut lines, mut commands) = (String::new(), page.lines(), 0);
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        if line != "```console" {
            continue;
        }
        let typed = lines.next().and_then(|line| line.strip_prefix("$ apus ")).expect("a block begins with a command");
        commands += 1;
        let words: Vec<&str> = typed.split_whitespace().collect();
        let output = bare(&words);
        // 1: a goal was lost, which the page would show.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{typed}: {}", text(&output.stderr));
        out.push_str(&format!("$ apus {typed}\n{}```\n", text(&output.stdout)));
        for old in lines.by_ref() {
            if old == "```" {
                break;
            }
        }
    }
    (out, commands)
}

#[test]
fn every_number_of_the_page_comes_from_its_commands() {
    let page = fs::read_to_string(Path::new(PAGE)).unwrap();
    let (now, commands) = renewed(&page);
    assert!(commands >= 3, "{commands} commands");
    if std::env::var_os("APUS_UPDATE_DOCS").is_some() {
        fs::write(PAGE, &now).unwrap();
        return;
    }
    assert!(
        page == now,
        "docs/which-mode.md is not what its commands print; if the change is meant: APUS_UPDATE_DOCS=1 cargo test -p cli \
         --test it which_mode. Now:\n{now}"
    );
}
