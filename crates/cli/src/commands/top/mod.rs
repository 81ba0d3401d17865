//! `apus top`: [`sample`] reads telemetry and computes rates, [`table`] and [`screen`] show them.

mod sample;
mod screen;
mod table;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};
use units::Nanos;

use self::sample::Sampler;
use self::screen::{Palette, Screen};
use crate::args::Top;
use crate::documents::top::Document;
use crate::terminal::{no_color, print_json};
use crate::{Failure, Status, terminal};

const ONCE: Nanos = Nanos::from_millis(500);
const LIVE: Nanos = Nanos::from_secs(1);

pub(super) fn run(typed: &Top) -> anyhow::Result<Status> {
    let mut sampler = Sampler::new(typed);
    if typed.json || typed.once {
        let document = two_samples(&mut sampler, typed.interval.unwrap_or(ONCE))?;
        if let (Some(name), true) = (&typed.instance, document.instances.is_empty()) {
            return Err(not_running(name).into());
        }
        if typed.json {
            print_json(&document)?;
        } else {
            let mut out = terminal::out();
            out.write_all(table::render(&document).as_bytes())
                .and_then(|()| out.flush())
                .context("cannot write the table")?;
        }
        return Ok(Status::Good);
    }
    if !terminal::out_is_terminal() {
        return Err(Failure::wrong(
            "cannot show the live view",
            "the output is not a terminal",
            "use apus top --once for a table, or apus top --json for JSON",
        )
        .into());
    }
    live(&mut sampler, typed.interval.unwrap_or(LIVE))?;
    Ok(Status::Good)
}

fn not_running(name: &str) -> Failure {
    Failure::lacking(
        format!("cannot show instance {name:?}"),
        "no running instance has that name",
        "apus top --once lists the running instances",
    )
}

fn two_samples(sampler: &mut Sampler, interval: Nanos) -> Result<Document, live::Error> {
    if sampler.sample()?.instances.is_empty() {
        return sampler.sample();
    }
    std::thread::sleep(duration(interval));
    sampler.sample()
}

/// Runs the live view until `q`, Ctrl-C, SIGTERM or SIGHUP. The terminal is restored on every exit, even on a panic,
/// for which `ratatui::try_init` sets a hook.
fn live(sampler: &mut Sampler, interval: Nanos) -> anyhow::Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot handle signals")?;
    }
    let mut terminal = ratatui::try_init().context("cannot take over the terminal")?;
    let result = live_on(&mut terminal, sampler, duration(interval), &ended);
    ratatui::try_restore().context("cannot restore the terminal")?;
    result
}

fn live_on(
    terminal: &mut ratatui::DefaultTerminal,
    sampler: &mut Sampler,
    interval: Duration,
    ended: &AtomicBool,
) -> anyhow::Result<()> {
    let palette = if no_color() { Palette::Plain } else { Palette::Colours };
    let mut screen = Screen::new(palette, sampler.filter(), sampler.root());
    let mut document = sampler.sample()?;
    let mut due = Instant::now() + interval;
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| screen.draw(frame, &document)).context("cannot draw")?;
        // The waits are short and a signal ends them, so that `ended` is checked soon.
        let wait = due.saturating_duration_since(Instant::now()).min(Duration::from_millis(250));
        if event::poll(wait).context("cannot read the terminal")? {
            match event::read().context("cannot read the terminal")? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    if ends(key) {
                        break;
                    }
                    screen.key(key.code, &document);
                }
                _ => {}
            }
        }
        if Instant::now() >= due {
            document = sampler.sample()?;
            due = Instant::now() + interval;
        }
    }
    Ok(())
}

fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

fn duration(span: Nanos) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

#[cfg(test)]
pub(super) mod tests {
    pub use super::sample::tests::sample;
}
