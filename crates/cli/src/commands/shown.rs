//! Formats rates, times and leftover files for `apus top` and the `status` of commands that control settings.

use std::path::Path;

use units::{Nanos, PacketRate};

use crate::Failure;
use crate::documents::top::Leftover;
use crate::terminal::line;

/// Shown for a value that is unknown or has too few samples.
pub(super) const UNKNOWN: &str = "–";

/// Formats a packet rate in packets per second, with a fraction below 10.
pub(super) fn pps(rate: f64) -> String {
    match rate {
        r if r > 0.0 && r < 10.0 => format!("{r:.1}pps"),
        r => PacketRate::new(r.round() as u64).to_string(),
    }
}

pub(super) fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{rate:.0}/s"))
}

/// Formats a time with about three digits: `1.23us`, `12.3us`, `123us`.
pub(super) fn span(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return UNKNOWN.to_owned() };
    let digits = ns.checked_ilog10().map_or(1, |log| log + 1);
    let cut = 10u64.pow(digits.saturating_sub(3));
    Nanos::from_nanos(ns / cut * cut).to_string()
}

/// Fails if a folder other than the default one does not exist: its name may be mistyped. `option` is the option that
/// names it. The default folder exists only once an instance has run.
pub(super) fn check_folder(option: &str, folder: &Path, default: &str) -> Result<(), Failure> {
    if folder == Path::new(default) || folder.exists() {
        return Ok(());
    }
    Err(Failure::wrong(
        format!("{option} {}", folder.display()),
        "there is no such folder",
        format!("omit {option} to look in {default}, where instances publish their state"),
    ))
}

/// A file that belongs to no running instance.
pub(super) fn leftover(leftover: &Leftover) -> String {
    format!("leftover file {}: {}", line(&leftover.path), line(&leftover.why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_three_digits() {
        let shown = [7, 1_234, 12_345, 123_456, 1_234_567, 0].map(|ns| span(Some(ns)));
        assert_eq!(shown, ["7ns", "1.23us", "12.3us", "123us", "1.23ms", "0ns"]);
        assert_eq!(span(None), "–");
    }
}
