//! Exit statuses, and how errors are reported.

use crate::terminal;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The exit status of `apus`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// 0: success, without findings.
    Good,
    /// 1: the command ran, but there are findings or a missed goal.
    Findings,
    /// 2: wrong usage or invalid input.
    Wrong,
    /// 3: the host lacks something that the command needs, such as a permission, an interface or another device.
    Lacking,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// An error with a suggested remedy, printed on three lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The exit status: [`Status::Wrong`] or [`Status::Lacking`]; [`Status::Findings`] after an interruption.
    pub status: Status,
    /// What failed, such as "cannot read the plan x.toml".
    pub what: String,
    /// The reason for the failure.
    pub why: String,
    /// What the user can do next.
    pub fix: String,
}

impl Failure {
    /// An error because of wrong usage or invalid input (exit status 2).
    pub fn wrong(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> Self {
        Self { status: Status::Wrong, what: what.into(), why: why.to_string(), fix: fix.into() }
    }

    /// An interruption before there was a result (exit status 1).
    pub fn interrupted(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> Self {
        Self { status: Status::Findings, what: what.into(), why: why.to_string(), fix: fix.into() }
    }

    /// An error because the host lacks a permission, a file or a device (exit status 3).
    pub fn lacking(what: impl Into<String>, why: impl ToString, fix: impl Into<String>) -> Self {
        Self { status: Status::Lacking, what: what.into(), why: why.to_string(), fix: fix.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [what, why, fix] = [&self.what, &self.why, &self.fix].map(|text| indented(text));
        write!(f, "error: {what}\n  why: {why}\n  fix: {fix}")
    }
}

impl std::error::Error for Failure {}

/// A transaction failed whose settings are the purpose of the command. If one of them was refused, the exit status is 1,
/// as for every setting that is not in force as requested.
#[derive(Debug)]
pub struct NotSet(pub host::transaction::Error);

impl fmt::Display for NotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotSet {}

/// Indents all lines after the first, so that a file name with a line break cannot imitate a message.
fn indented(text: &str) -> Cow<'_, str> {
    match text.contains('\n') {
        true => Cow::Owned(text.replace('\n', "\n       ")),
        false => Cow::Borrowed(text),
    }
}

/// Prints an error to standard error, and returns the exit status.
///
/// A closed pipe counts as success, because the reader may stop early, as in `apus top --once | head -1`.
pub fn report(error: &anyhow::Error) -> Status {
    if is_broken_pipe(error) {
        return Status::Good;
    }
    let (text, status) = describe(error);
    let _ = writeln!(terminal::err(), "{text}");
    status
}

/// Whether the error is a broken pipe: the reader of the output has closed the pipe.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause
            .downcast_ref::<io::Error>()
            .map(io::Error::kind)
            .or_else(|| cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind));
        kind == Some(io::ErrorKind::BrokenPipe)
    })
}

/// The message for the user, and the exit status.
pub fn describe(error: &anyhow::Error) -> (String, Status) {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return (failure.to_string(), failure.status);
    }
    if let Some(error) = error.downcast_ref::<live::Error>() {
        let status = if error.lacks() { Status::Lacking } else { Status::Wrong };
        return (describe_live(error), status);
    }
    if let Some(error) = error.downcast_ref::<tester::Error>() {
        let status = if error.lacks() { Status::Lacking } else { Status::Wrong };
        let text = match error {
            tester::Error::Device(error) => describe_live(error),
            tester::Error::Capture(error) => {
                format!("error: cannot use the capture\n  why: {error}\n  fix: give a pcap file that you can read")
            }
            other => format!("error: {other}"),
        };
        return (text, status);
    }
    if let Some(error) = error.downcast_ref::<probe::Error>() {
        let status = if error.lacks() { Status::Lacking } else { Status::Wrong };
        return (describe_probe(error), status);
    }
    if let Some(NotSet(error)) = error.downcast_ref::<NotSet>() {
        let is_refusal = error.is_refusal();
        let (text, status) = describe(&error.clone().into());
        return (text, if is_refusal { Status::Findings } else { status });
    }
    if let Some((text, lacks)) = describe_host(error) {
        return (text, if lacks { Status::Lacking } else { Status::Wrong });
    }
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("\n  why: {cause}"));
    }
    (text, Status::Lacking)
}

fn describe_probe(error: &probe::Error) -> String {
    match error {
        probe::Error::Lacking { what, why, fix } => format!("error: cannot {what}\n  why: {why}\n  fix: {fix}"),
        probe::Error::NotRestored { what, why } => {
            format!("error: cannot restore {what}\n  why: {why}\n  fix: apus tune rollback")
        }
        probe::Error::Invalid { what, why } => format!("error: {what}\n  why: {why}"),
        probe::Error::Live(error) => describe_live(error),
        probe::Error::Tester(tester::Error::Device(error)) => describe_live(error),
        probe::Error::Tester(error) => format!("error: {error}"),
    }
}

/// The message for an error of the crate `host`, and whether the environment lacks something.
fn describe_host(error: &anyhow::Error) -> Option<(String, bool)> {
    use host::transaction::Error as Transaction;
    let knob = |error: &host::knob::Error| error.to_string().replace('\n', "\n  ");
    if let Some(error) = error.downcast_ref::<host::knob::Error>() {
        return Some((format!("error: {}", knob(error)), error.lacks()));
    }
    if let Some(error) = error.downcast_ref::<Transaction>() {
        let text = match error {
            Transaction::Knob(error) => knob(error),
            other => other.to_string().replace('\n', "\n  "),
        };
        return Some((format!("error: {text}"), error.lacks()));
    }
    error.downcast_ref::<host::profile::Error>().map(|error| (format!("error: {error}"), false))
}

fn describe_live(error: &live::Error) -> String {
    match error {
        live::Error::Lacking { what, why, fix } => format!("error: cannot {what}\n  why: {why}\n  fix: {fix}"),
        live::Error::Invalid { what, why } => format!("error: {what}\n  why: {why}"),
        live::Error::PortLost { port, why } => format!("error: port {port} was lost\n  why: {why}"),
        live::Error::System { what, source } => format!("error: cannot {what}\n  why: {source}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn statuses_are_those_of_the_design() {
        let numbers = [Status::Good, Status::Findings, Status::Wrong, Status::Lacking].map(|status| status as u8);
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn every_kind_of_error_says_why() {
        let lacking = live::Error::Lacking { what: "a".into(), why: "b".into(), fix: "c".into() };
        assert_eq!(describe(&lacking.into()), ("error: cannot a\n  why: b\n  fix: c".to_owned(), Status::Lacking));
        let invalid = live::Error::Invalid { what: "a".into(), why: "b".into() };
        assert_eq!(describe(&invalid.into()), ("error: a\n  why: b".to_owned(), Status::Wrong));
        let wrong = Failure::wrong("a", "b", "c");
        assert_eq!(describe(&wrong.into()).1, Status::Wrong);
        let other = Err::<(), _>(io::Error::other("b")).context("a").unwrap_err();
        assert_eq!(describe(&other), ("error: a\n  why: b".to_owned(), Status::Lacking));
    }

    #[test]
    fn a_reader_that_has_enough_is_no_error() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("write the table");
        assert_eq!(report(&closed), Status::Good);
    }
}
