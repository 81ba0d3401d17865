//! `apus.h`, the Rust side and the list in `abi/` say the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use capi::types::{LAYOUTS, constants};

use super::*;

fn header() -> String {
    fs::read_to_string(folder().join("include/apus.h")).unwrap()
}

/// The header without comments.
fn code() -> String {
    let mut code = String::new();
    for part in header().split("/*") {
        code += part.split_once("*/").map_or(part, |(_, after)| after);
    }
    code
}

/// Prototypes by name, with single spaces.
fn prototypes() -> BTreeMap<String, String> {
    let flat = code().lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ");
    let statements = flat.split([';', '{', '}']).map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    statements
        .filter(|text| text.contains('(') && text.contains("apus_"))
        .map(|text| {
            let name = text.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap().to_owned();
            (name, text)
        })
        .collect()
}

#[test]
fn it_compiles_everywhere_without_a_warning() {
    let to = scratch("header");
    let program = |none: &str| {
        let main = format!("int main(void) {{ apus_config config = {none}; return config.mode != NULL; }}");
        format!("#include <apus.h>\n#include <apus.h>\n{main}\n")
    };
    fs::write(to.join("a.c"), program("{0}")).unwrap();
    fs::write(to.join("a.cc"), program("{}")).unwrap();
    for (compiler, standard, file) in [
        ("gcc", "c11", "a.c"),
        ("gcc", "c99", "a.c"),
        ("clang", "c11", "a.c"),
        ("g++", "c++17", "a.cc"),
        ("clang++", "c++17", "a.cc"),
    ] {
        if !has(compiler) {
            testkit::skip(format!("{compiler}: install it with tools/setup.sh test"));
            continue;
        }
        let mut cc = Command::new(compiler);
        cc.arg(format!("-std={standard}")).args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Wconversion",
            "-Wshadow",
        ]);
        run(cc.args(["-fsyntax-only", "-I"]).arg(folder().join("include")).arg(to.join(file)));
    }
}

/// What the compiler says, and what Rust says, as lines of `abi/`.
fn layouts() -> (String, String) {
    let (mut list, mut ours) = (String::new(), String::new());
    for (name, size, fields) in LAYOUTS {
        writeln!(list, "SIZE({name});").unwrap();
        writeln!(ours, "{name} {size}").unwrap();
        for (field, offset) in fields {
            writeln!(list, "AT({name}, {field});").unwrap();
            writeln!(ours, "{name}.{field} {offset}").unwrap();
        }
    }
    for (name, value) in constants() {
        writeln!(list, "VALUE({name});").unwrap();
        writeln!(ours, "{name} {value}").unwrap();
    }
    let to = scratch("layout");
    fs::write(to.join("list.inc"), list).unwrap();
    let include = format!("-I{}", to.display());
    // Constants that cannot be negative are compared with 0 on purpose.
    let program = compiled("gcc", &folder().join("tests/c/layout.c"), "layout-c", &[&include, "-Wno-type-limits"]);
    (run(&mut with_library(program)), ours)
}

#[test]
fn sizes_offsets_and_constants_are_rusts() {
    let (theirs, ours) = layouts();
    assert_eq!(theirs, ours);
    // And none of the header's is missing in Rust.
    let code = code();
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let known: Vec<String> = constants().into_iter().map(|(name, _)| name).collect();
    for word in words.filter(|word| word.starts_with("APUS_") && *word != "APUS_H") {
        assert!(known.iter().any(|name| name == word), "{word} is in apus.h alone");
    }
    for (name, _, fields) in LAYOUTS {
        let body = code.split(&format!("typedef struct {name} {{")).nth(1).unwrap().split('}').next().unwrap();
        assert_eq!(body.matches(';').count(), fields.len(), "fields of {name}");
    }
}

/// Functions of ffi.rs as C declares them.
fn rusts() -> BTreeMap<String, String> {
    let source = fs::read_to_string(folder().join("src/ffi.rs")).unwrap();
    let source = source.split("#[cfg(test)]").next().unwrap();
    let of = |rust: &str| match rust.trim() {
        "c_int" => "int",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "*const c_char" => "const char *",
        "*const Config" => "const apus_config *",
        "*const QueueIn" => "const apus_queue *",
        "*const EndedIn" => "const apus_ended *",
        "*const u64" => "const volatile uint64_t *",
        "*mut DecisionOut" => "apus_decision *",
        "*mut Done" => "apus_done *",
        "*mut PolicyHandle" => "apus_policy **",
        "*mut WaiterHandle" => "apus_waiter **",
        "PolicyHandle" => "apus_policy *",
        "WaiterHandle" => "apus_waiter *",
        other => panic!("no C type is known for {other}"),
    };
    let joined = |kind: &str, name: &str| match kind.ends_with('*') {
        true => format!("{kind}{name}"),
        false => format!("{kind} {name}"),
    };
    let mut found = BTreeMap::new();
    for text in source.split("extern \"C\" fn ").skip(1) {
        let (name, rest) = text.split_once('(').unwrap();
        let (arguments, rest) = rest.split_once(')').unwrap();
        let result = rest.split('{').next().unwrap().trim().trim_start_matches("->");
        let arguments = arguments.split(',').filter(|one| !one.trim().is_empty()).map(|one| {
            let (name, kind) = one.split_once(':').unwrap();
            joined(of(kind), name.trim())
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let arguments = if arguments.is_empty() { "void" } else { &arguments };
        found.insert(name.to_owned(), format!("{}({arguments})", joined(of(result), name)));
    }
    found
}

#[test]
fn the_functions_are_rusts_and_the_librarys() {
    let (header, rust) = (prototypes(), rusts());
    assert_eq!(header, rust);
    let nm = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libapus.so")));
    let mut exported: Vec<&str> = nm.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    assert_eq!(exported, header.keys().map(String::as_str).collect::<Vec<_>>(), "symbols of the shared library");
    let dynamic = run(Command::new("readelf").arg("-d").arg(library().join("libapus.so")));
    assert!(dynamic.contains("Library soname: [libapus.so.0]"), "{dynamic}");
}

/// What programs were built with may not change under one soname. To add something: `APUS_BLESS=1 cargo test -p capi abi`.
#[test]
fn the_abi_is_the_written_one() {
    let functions: String = prototypes().into_values().map(|text| format!("{text}\n")).collect();
    let now = format!("{functions}{}", layouts().1);
    let file = folder().join("abi/libapus.0.txt");
    if std::env::var_os("APUS_BLESS").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(now, written, "{}: raise APUS_ABI and the soname if a line changed or went", file.display());
}
