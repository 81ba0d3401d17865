//! C programs that use the library, under checkers too.

use super::*;

pub const CHECKED: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// The number of random calls: a million by `APUS_RANDOM_CALLS=1000000 cargo test -p capi random`.
fn calls(usual: u64) -> String {
    std::env::var("APUS_RANDOM_CALLS").unwrap_or_else(|_| usual.to_string())
}

#[test]
fn random_calls_end_in_defined_results() {
    let program = compiled("gcc", &folder().join("tests/c/random.c"), "random", &[]);
    let seed = std::process::id().to_string();
    println!("seed {seed}\n{}", run(with_library(program).args([&calls(20_000), &seed]).arg(scratch("random-seen"))));
}

#[test]
fn random_calls_under_asan_and_ubsan() {
    let program = compiled("gcc", &folder().join("tests/c/random.c"), "random-asan", &CHECKED);
    println!("{}", run(with_library(program).args(["5000", "7"]).arg(scratch("random-asan-seen"))));
}

#[test]
fn random_calls_under_valgrind() {
    if !has("valgrind") {
        testkit::skip("valgrind: install it with tools/setup.sh test");
        return;
    }
    let program = compiled("gcc", &folder().join("tests/c/random.c"), "random-valgrind", &[]);
    let mut valgrind = with_library("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,indirect"]);
    println!(
        "{}",
        run(valgrind
            .args(["--errors-for-leak-kinds=definite,indirect"])
            .arg(program)
            .args(["500", "7"])
            .arg(scratch("random-valgrind-seen")))
    );
}

/// Regression test: the documented command once linked libapus.so, and failed with `-static`.
#[test]
fn the_static_library_links_as_documented() {
    if !has("pkg-config") {
        testkit::skip("pkg-config: install it with tools/setup.sh test");
        return;
    }
    let to = scratch("static");
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    run(Command::new(folder().join("../../tools/libapus.sh")).arg(&to).env("BUILT", deps));
    let said = |words: &[&str]| {
        let mut command = Command::new("pkg-config");
        let said = run(command.args(words).arg("apus").env("PKG_CONFIG_PATH", to.join("lib/pkgconfig")));
        said.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            testkit::skip(format!("{compiler}: install it with tools/setup.sh test"));
            continue;
        }
        // With the system's shared libraries, and without any.
        let forms = [
            ("shared", None, said(&["--variable=static_libs"])),
            ("none", Some("-static"), said(&["--static", "--libs"])),
        ];
        for (name, flag, libraries) in forms {
            let program = to.join(format!("{compiler}-{name}"));
            let mut cc = Command::new(compiler);
            cc.arg("-std=c11").args(flag).args(said(&["--cflags"])).arg(folder().join("tests/c/random.c"));
            run(cc.arg("-o").arg(&program).args(libraries));
            let needed = run(Command::new("readelf").arg("-d").arg(&program));
            assert!(!needed.contains("libapus") && needed.contains("NEEDED") == flag.is_none(), "{needed}");
            run(Command::new(program).args(["200", "3"]));
        }
    }
}
