use crate::support::{bare, text};

#[test]
fn apus_alone_shows_the_commands_and_is_wrong_use() {
    let alone = bare(&[]);
    assert_eq!((alone.status.code(), text(&alone.stdout)), (Some(2), ""));
    let said = text(&alone.stderr);
    for line in ["Begin with:", "  apus audit  ", "Measure latency, loss and CPU time:", "  audit       ", "Options:"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let asked = bare(&["--help"]);
    assert_eq!((asked.status.code(), text(&asked.stderr)), (Some(0), ""));
    assert!(text(&asked.stdout).contains("Exit status: 0"), "the long help says more");
    let groups =
        |said: &str| said.split_once("\nBegin with:").unwrap().1.split_once("\nOptions:").unwrap().0.to_owned();
    assert_eq!(groups(text(&asked.stdout)), groups(said));
    for same in [&["-h"][..], &["help"]] {
        assert_eq!(groups(text(&bare(same).stdout)), groups(said), "{same:?}");
    }
}

#[test]
fn what_packages_install_is_generated() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("man-{}", std::process::id()));
    let made = bare(&["generate", "man", folder.to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let page = std::fs::read_to_string(folder.join("apus-run.1")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(page.contains(".TH apus-run 1"), "{page}");
    let bash = bare(&["generate", "completions", "bash"]);
    assert!(bash.status.success() && text(&bash.stdout).contains("complete -F _apus"), "{}", text(&bash.stderr));
    for (words, remedy) in [
        (&["generate"][..], "completions"),
        (&["generate", "completions", "csh"], "fish"),
        (&["generate", "man"], "<FOLDER>"),
    ] {
        let wrong = bare(words);
        assert_eq!(wrong.status.code(), Some(2), "{words:?}");
        assert!(text(&wrong.stderr).contains(remedy), "{}", text(&wrong.stderr));
    }
    let lacking = bare(&["generate", "man", "/dev/null/man"]);
    assert_eq!(lacking.status.code(), Some(3));
    assert!(text(&lacking.stderr).contains("/dev/null/man"), "{}", text(&lacking.stderr));
}
