//! The table of causes. Each submodule contains a group of causes, and the judges that rate them.

mod application;
mod hardware;
mod path;
mod receive;
mod transmit;

use super::{End, PossibleCause};

/// All causes. Causes with the same likelihood are ranked in this order.
pub const CAUSES: &[&[PossibleCause]] =
    &[path::CAUSES, application::CAUSES, receive::CAUSES, transmit::CAUSES, hardware::CAUSES];

/// The longest round trip, in us, that needs no explanation between two hosts on one switch, with interrupts without
/// moderation and idle states up to C1E. In the documents on which Apus is based, such a round trip takes 14 to 120 us.
const LAN_US: f64 = 500.0;

/// Formats a factor for `apus experiment` that changes `setting` of the end's interface. `None` for an end that was not
/// watched, such as a recording of FreeBSD.
fn factor(what: &str, end: &End, setting: &str) -> Option<String> {
    let text = || format!("summary = \"{what} {0}\"\n[factor.network.\"{0}\"]\n{setting}", end.interface);
    (end.length_s > 0.0).then(text)
}

/// Formats a rate, given in bit/s, such as `1.2 Mbit/s`.
fn bits(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1} Mbit/s", rate / 1e6),
        rate => format!("{:.0} kbit/s", rate / 1e3),
    }
}

/// Formats a time, given in us, such as `120 us` or `3.4 ms`.
fn time(us: f64) -> String {
    if us >= 10_000.0 { format!("{:.1} ms", us / 1e3) } else { format!("{us:.0} us") }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        share if share < 1.0 => format!("{share:.2} %"),
        share if share < 10.0 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    }
}

/// Formats a size, given in bytes, such as `4096 bytes` or `212 KiB`.
fn bytes(n: f64) -> String {
    if n < 10_240.0 { format!("{n:.0} bytes") } else { format!("{:.0} KiB", n / 1024.0) }
}
