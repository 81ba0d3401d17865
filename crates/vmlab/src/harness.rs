//! A `main` for tests in guests. Tests run one after the other. Most of them share one guest, which boots for the first
//! test that needs it and ends after the last one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Guest, Vm};
use libtest_mimic::{Arguments, Trial};

/// A test that runs on the shared guest: its name and its function.
pub type OnShared = (&'static str, fn(&Guest));

/// A test that boots its own guests: its name and its function.
pub type Alone = (&'static str, fn());

/// Runs the tests. Like tests marked `#[ignore]`, they run only when requested (`--ignored`), because each guest
/// occupies the machine for many seconds.
pub fn run(shared: fn() -> Vm, on_shared: &[OnShared], alone: &[Alone]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let wanted = arguments.ignored || arguments.include_ignored;
    if !wanted {
        println!("VM lab: these boot emulated machines; `make test-vm` runs them");
    }
    if wanted
        && !arguments.list
        && let Err(error) = Vm::new()
    {
        if error.lacks() {
            testkit::skip(format!("VM lab: {error}"));
            return ExitCode::SUCCESS;
        }
        println!("VM lab: {error}");
        return ExitCode::FAILURE;
    }
    let guest = Arc::new(Shared { vm: shared, guest: Mutex::new(None) });
    let on_shared = on_shared.iter().map(|&(name, test)| {
        let guest = Arc::clone(&guest);
        Trial::test(name, move || {
            guest.with(test);
            Ok(())
        })
    });
    let alone = alone.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    let trials = on_shared.chain(alone).map(|trial| trial.with_ignored_flag(true)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(guest);
    conclusion.exit_code()
}

/// The guest that most tests share.
struct Shared {
    vm: fn() -> Vm,
    guest: Mutex<Option<Guest>>,
}

impl Shared {
    fn with(&self, test: fn(&Guest)) {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        if guest.as_ref().is_none_or(|guest| !guest.runs()) {
            *guest = None;
            *guest = Some(ok((self.vm)().boot()));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| test(guest.as_ref().unwrap())));
        if let Err(panic) = outcome {
            // After a failed test, the next test gets a new guest.
            *guest = None;
            resume_unwind(panic);
        }
    }
}

/// Returns the value of `result`. If `result` is an error, panics with the message of the error.
pub fn ok<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
