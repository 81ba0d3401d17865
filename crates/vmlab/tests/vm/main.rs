//! Tests of the VM lab itself: what it promises to those who write tests with it.

/// How guests end: a panic, silence, a reset, the end of the test.
mod ends;
/// What a guest with everything shows: kernel, P-states, C-states, cards, registers, channels.
mod everything;
/// One CPU in virtual time.
mod virtual_time;

use std::process::ExitCode;

use vmlab::harness;

fn main() -> ExitCode {
    if ends::is_child() {
        ends::child();
    }
    let alone = [&virtual_time::TESTS[..], &ends::TESTS].concat();
    harness::run(everything::vm, &everything::TESTS, &alone)
}
