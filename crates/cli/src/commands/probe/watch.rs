//! Follows a running probe: handles signals, and shows a growing histogram on a terminal.

use crate::terminal;
use std::io::Write as _;
use std::time::{Duration, Instant};

use live::os::Signals;
use probe::mark::{Mark, MarkKind};
use probe::{Control, Measured, Probe};
use tester::histogram::Histogram;
use units::Nanos;

/// Time between two redraws.
const DRAW: Duration = Duration::from_millis(250);
/// Time between two checks whether the probe has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Length of the longest bar, in characters.
const WIDTH: u64 = 48;

/// Runs `probes` one after another, each on a separate thread. `display` draws the progress if standard error is a
/// terminal. If some probes cannot run here, the results of the others carry a note; if none can run, this is an error.
pub fn run(
    probes: &[&(dyn Probe + Sync)],
    fail_over: Option<Nanos>,
    signals: &Signals,
    display: bool,
) -> anyhow::Result<Vec<Measured>> {
    let (mut all, mut lacking): (Vec<Measured>, Vec<probe::Error>) = (Vec::new(), Vec::new());
    for probe in probes {
        let measured = match follow(Control::new(fail_over), signals, display, |control| Ok(probe.run(control)))? {
            Ok(measured) => measured,
            Err(error) if error.lacks() && !matches!(error, probe::Error::NotRestored { .. }) => {
                lacking.push(error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let ends = measured.interrupted || measured.exceeded.is_some();
        all.push(measured);
        if ends {
            break;
        }
    }
    match all.last_mut() {
        Some(last) => {
            let text = |error: &probe::Error| error.to_string().replace('\n', "; ");
            last.marks.extend(lacking.iter().map(|error| Mark::new(MarkKind::NotAvailable, text(error))));
            Ok(all)
        }
        None => lacking.into_iter().next().map_or(Ok(all), |error| Err(error.into())),
    }
}

/// Runs `work` on a separate thread, and stops it if a signal arrives.
pub fn follow<T: Send>(
    control: Control,
    signals: &Signals,
    display: bool,
    work: impl FnOnce(&Control) -> Result<T, probe::Error> + Send,
) -> anyhow::Result<T> {
    let mut display = Display::new(display);
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| work(&control));
        while !thread.is_finished() {
            if signals.wait(LOOK).is_some() {
                control.stop();
            }
            display.follow(&control);
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    display.clear();
    Ok(result?)
}

/// A growing histogram on standard error; shown only on a terminal.
pub struct Display {
    terminal: bool,
    began: Instant,
    drawn: Option<Instant>,
    lines: usize,
    news: String,
    histogram: Histogram,
}

impl Display {
    /// Creates a display, which stays empty unless `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self {
            terminal: wanted && terminal::err_is_terminal(),
            began: Instant::now(),
            drawn: None,
            lines: 0,
            news: String::new(),
            histogram: Histogram::new(),
        }
    }

    /// Takes a snapshot from the probe, and redraws from time to time.
    pub fn follow(&mut self, control: &Control) {
        // Takes the samples even without a terminal, so that they do not pile up.
        let histogram = &mut self.histogram;
        control.seen(|sample| histogram.record(sample.as_nanos()));
        if let Some(news) = control.news() {
            self.news = news;
            self.histogram = Histogram::new();
        }
        if self.terminal && self.drawn.is_none_or(|at| at.elapsed() >= DRAW) {
            self.drawn = Some(Instant::now());
            let text = picture(&self.histogram, &self.news, self.began.elapsed());
            self.replace(&text);
        }
    }

    /// Removes the display from the screen.
    pub fn clear(&mut self) {
        if self.terminal {
            self.replace("");
        }
    }

    fn replace(&mut self, text: &str) {
        let mut out = terminal::err();
        // A failure to draw is ignored.
        let _ = out.erase_lines(self.lines).and_then(|()| write!(out, "{text}")).and_then(|()| out.flush());
        self.lines = text.lines().count();
    }
}

/// Renders one line of numbers, and one bar per power of two.
fn picture(histogram: &Histogram, news: &str, elapsed: Duration) -> String {
    let n = histogram.len();
    let rank = |share: u64| (n * share).div_ceil(100).max(1);
    let [p50, p99] = histogram.at_ranks([rank(50), rank(99)]);
    let show = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}us", ns as f64 / 1e3));
    let mut text = format!(
        "{news}{}{:.0} s   n {n}   p50 {}   p99 {}   max {}\n",
        if news.is_empty() { "" } else { "   " },
        elapsed.as_secs_f64(),
        show(p50),
        show(p99),
        show(histogram.max_ns())
    );
    let mut bins: Vec<(u32, u64)> = Vec::new();
    for (value, count) in histogram.to_document().counts {
        let bin = u64::BITS - value.leading_zeros();
        match bins.last_mut() {
            Some((last, sum)) if *last == bin => *sum += count,
            _ => bins.push((bin, count)),
        }
    }
    let most = bins.iter().map(|(_, count)| *count).max().unwrap_or(1);
    for (bin, count) in bins {
        let bar = "#".repeat((count * WIDTH).div_ceil(most) as usize);
        let below = Nanos::from_nanos((1u64 << bin) - 1);
        text.push_str(&format!("{:>12} {bar:<48} {count}\n", format!("<= {}", rounded(below))));
    }
    text
}

/// Formats nanoseconds in the unit that needs the fewest digits: `8.2us`.
fn rounded(span: Nanos) -> String {
    match span.as_nanos() {
        ns @ 0..1_000 => format!("{ns}ns"),
        ns @ 1_000..1_000_000 => format!("{:.1}us", ns as f64 / 1e3),
        ns @ 1_000_000..1_000_000_000 => format!("{:.1}ms", ns as f64 / 1e6),
        ns => format!("{:.1}s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_bar_for_each_power_of_two() {
        let mut histogram = Histogram::new();
        (0..100).for_each(|_| histogram.record(3_000));
        histogram.record(70_000);
        let text = picture(&histogram, "timer", Duration::from_secs(2));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("timer   2 s   n 101   p50 3.0us   p99 3.0us   max 70.0us"), "{text}");
        assert!(lines[1].contains(&"#".repeat(48)) && lines[1].ends_with(" 100"), "{text}");
        assert!(lines[2].contains(" # ") && lines[2].contains("<= 131.1us"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_without_samples() {
        assert_eq!(picture(&Histogram::new(), "", Duration::ZERO).lines().count(), 1);
    }
}
