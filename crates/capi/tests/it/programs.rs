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

#[test]
fn the_static_library_links_alone() {
    let to = scratch("static");
    let program = to.join("static");
    let mut cc = Command::new("gcc");
    cc.args(["-std=c11", "-I"])
        .arg(folder().join("include"))
        .arg(folder().join("tests/c/random.c"))
        .arg("-o")
        .arg(&program);
    // What pkg-config --static says.
    run(cc.arg(library().join("libapus.a")).args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]));
    println!("{}", run(Command::new(program).args(["200", "3"])));
}
