//! The live view on a terminal.

use std::path::{Path, PathBuf};

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::super::shown::{per_second, pps};
use super::table::{Controlled, choice, controlled, drops, lateness, megabits, mode, parts, percent, state, time, why};
use crate::documents::top::{Document, Instance, Rate, Worker};

/// Whether the view uses colors. The marks of the time bar differ without colors too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Palette {
    Colours,
    /// No colors, as requested by the environment variable NO_COLOR.
    Plain,
}

/// The scroll position of the view.
pub struct Screen {
    palette: Palette,
    filter: Option<String>,
    root: PathBuf,
    first: usize,
}

/// Lines per worker, including borders.
const PANEL: u16 = 10;
/// Lines of a panel's borders.
const BORDERS: usize = 2;

impl Screen {
    pub fn new(palette: Palette, filter: Option<&str>, root: &Path) -> Self {
        Self { palette, filter: filter.map(str::to_owned), root: root.to_owned(), first: 0 }
    }

    /// Handles a key: scrolls by one worker at a time.
    pub fn key(&mut self, code: KeyCode, document: &Document) {
        let last = workers(document).count().saturating_sub(1);
        self.first = match code {
            KeyCode::Down | KeyCode::Char('j') | KeyCode::PageDown => self.first + 1,
            KeyCode::Up | KeyCode::Char('k') | KeyCode::PageUp => self.first.saturating_sub(1),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.first,
        }
        .min(last);
    }

    pub fn draw(&mut self, frame: &mut Frame, document: &Document) {
        self.draw_as_it_is(frame, document);
        harmless(frame.buffer_mut());
    }

    fn draw_as_it_is(&mut self, frame: &mut Frame, document: &Document) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
        let count = workers(document).count();
        let tables = controlled(document);
        let wanted: Vec<usize> = tables.iter().map(|table| table.lines.len() + BORDERS).collect();
        // At most half of the screen, if there are workers too.
        let heights = heights(&wanted, body.height / if count == 0 { 1 } else { 2 });
        let below = Constraint::Length(heights.iter().sum());
        let [body, mut below] = Layout::vertical([Constraint::Min(0), below]).areas(body);
        let is_alone = tables.is_empty();
        for (table, height) in tables.into_iter().zip(heights) {
            let [area, rest] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(below);
            frame.render_widget(self.controlled(table, area.height), area);
            below = rest;
        }
        let fitting = usize::from(body.height / PANEL).max(1);
        self.first = self.first.min(count.saturating_sub(fitting));
        frame.render_widget(self.head(document, count, fitting), head);
        if count == 0 {
            if is_alone {
                frame.render_widget(self.nobody(document), body);
            }
            return;
        }
        let panels = (0..fitting).map(|n| Rect {
            y: body.y + n as u16 * PANEL,
            height: PANEL.min(body.height - n as u16 * PANEL),
            ..body
        });
        for ((instance, worker), area) in workers(document).skip(self.first).zip(panels) {
            frame.render_widget(self.panel(instance, worker, area.width), area);
        }
    }

    fn colour(&self, colour: Color) -> Style {
        match self.palette {
            Palette::Colours => Style::new().fg(colour),
            Palette::Plain => Style::new(),
        }
    }

    fn head(&self, document: &Document, count: usize, fitting: usize) -> Line<'static> {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let instances = document.instances.len();
        let mut text = format!(" {instances} instance{}, {count} worker{}", plural(instances), plural(count));
        if count > fitting {
            let last = (self.first + fitting).min(count);
            text.push_str(&format!(", {}–{last} shown (up, down)", self.first + 1));
        }
        if !document.leftovers.is_empty() {
            let n = document.leftovers.len();
            text.push_str(&format!(", {n} leftover file{} (apus top --once lists them)", plural(n)));
        }
        Line::from(vec![
            Span::styled("apus top", Style::new().add_modifier(Modifier::BOLD)),
            Span::raw("  q quits "),
            Span::raw(text),
        ])
    }

    fn nobody(&self, document: &Document) -> Paragraph<'static> {
        let mut lines = vec![String::new()];
        match &self.filter {
            Some(name) => {
                lines.push(format!("  No instance named {name:?} is running. It appears here as soon as it starts."))
            }
            None => lines.push("  No instance of Apus is running. One appears here as soon as it starts.".to_owned()),
        }
        lines.push(String::new());
        lines.push("  Start one:   apus run --help".to_owned());
        lines.push("  Try it out:  apus demo".to_owned());
        lines.push(String::new());
        lines.push(format!("  Looking in {}", self.root.display()));
        lines.extend(document.leftovers.iter().map(|l| format!("  Leftover:    {}: {}", l.path, l.why)));
        Paragraph::new(Text::from_iter(lines.into_iter().map(Line::from))).wrap(Wrap { trim: false })
    }

    /// Renders what a command controls, in at most `height` lines.
    fn controlled(&self, table: Controlled, height: u16) -> Paragraph<'static> {
        let Controlled { command, mut lines } = table;
        let fitting = usize::from(height).saturating_sub(BORDERS);
        if lines.len() > fitting {
            let more = lines.len() - fitting.saturating_sub(1);
            lines.truncate(fitting.saturating_sub(1));
            lines.push(format!("… {more} more lines ({command} status shows them)"));
        }
        let style = self.colour(Color::Cyan).add_modifier(Modifier::BOLD);
        let title = Span::styled(format!(" {command} "), style);
        Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()).block(Block::bordered().title(title))
    }

    fn panel(&self, instance: &Instance, worker: &Worker, width: u16) -> Paragraph<'static> {
        let title = Line::from(vec![
            Span::raw(" "),
            Span::styled(
                format!("{}/{}", instance.instance, worker.worker),
                self.colour(Color::Cyan).add_modifier(Modifier::BOLD),
            ),
            Span::raw(format!("  {}  {}  ", worker.app, mode(worker))),
            Span::styled(state(worker).to_owned(), self.state_style(worker)),
            Span::raw(format!("  {} ", place(worker))),
        ]);
        let lines = match &worker.rate {
            Some(rate) => self.lines(worker, rate, usize::from(width.saturating_sub(2))),
            None => vec![Line::from("counting...")],
        };
        Paragraph::new(lines).block(Block::bordered().title(title))
    }

    fn lines(&self, worker: &Worker, rate: &Rate, width: usize) -> Vec<Line<'static>> {
        let flow = |name: &str, frames: f64, bits: f64| format!("{name} {:<9} {:<14}", pps(frames), megabits(bits));
        let ports: Vec<String> = worker
            .ports
            .iter()
            .map(|port| format!("{} {}", port.name, port.health.as_deref().unwrap_or("unknown")))
            .collect();
        let gaps = format!("host gaps {:.0}/s, {}", rate.gaps_per_second, percent(Some(rate.gap_ratio)));
        let dropping = !rate.dropped_pps.is_empty() || rate.device_lost_pps > 0.0;
        let mut lines = vec![
            Line::from(format!(
                "{} {} {}",
                flow("rx", rate.received_pps, rate.received_bps),
                flow("tx", rate.sent_pps, rate.sent_bps),
                ports.join(", ")
            )),
            Line::from(format!("late {}", lateness(&rate.pickup_lateness))),
            Line::from(format!(
                "cpu  {:<9} wake-ups {:<9} {gaps}",
                percent(rate.cpu_ratio),
                per_second(rate.wakeups_per_second)
            )),
            self.bar(rate, width),
            Line::from(format!("why  {}", why(rate))),
            Line::styled(
                format!("drop {}", drops(rate)),
                if dropping { self.colour(Color::Red) } else { Style::new() },
            ),
        ];
        if let Some((chose, by)) = worker.choice.as_ref().map(choice) {
            lines.extend([Line::from(chose), Line::from(format!("     {by}"))]);
        }
        lines
    }

    /// The time bar: `time ███zzzzzz··· busy 25.0 %, sleep 50.0 %, rest 25.0 %`.
    fn bar(&self, rate: &Rate, width: usize) -> Line<'static> {
        const COLOURS: [Color; 6] =
            [Color::Green, Color::Yellow, Color::LightYellow, Color::Blue, Color::Magenta, Color::DarkGray];
        let legend = time(rate);
        let cells = width.saturating_sub("time ".len() + 1 + legend.chars().count()).clamp(10, 40);
        let mut spans = vec![Span::raw("time ")];
        let (mut sum, mut drawn) = (0.0, 0);
        for ((_, share, mark), colour) in parts(&rate.time).into_iter().zip(COLOURS) {
            // Rounds the running sum, so that the bar always has the same length.
            sum += share;
            let end = ((sum * cells as f64).round() as usize).min(cells);
            spans.push(Span::styled(mark.to_string().repeat(end - drawn), self.colour(colour)));
            drawn = end;
        }
        spans.push(Span::raw(format!(" {legend}")));
        Line::from(spans)
    }

    fn state_style(&self, worker: &Worker) -> Style {
        match worker.state.as_deref() {
            Some("running") => self.colour(Color::Green),
            Some("failed" | "link_down") => self.colour(Color::Red).add_modifier(Modifier::BOLD),
            _ => self.colour(Color::Yellow),
        }
    }
}

/// Divides `room` lines among tables. A table that needs at most an equal share gets what it needs; the other tables
/// share the rest.
fn heights(wanted: &[usize], room: u16) -> Vec<u16> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|table| wanted[*table]);
    let (mut heights, mut room) = (vec![0; wanted.len()], room);
    for (done, table) in order.into_iter().enumerate() {
        let part = usize::from(room) / (wanted.len() - done);
        heights[table] = wanted[table].min(part) as u16;
        room -= heights[table];
    }
    heights
}

/// Where a worker runs: `pid 4242  cpu 1  fifo:50`.
fn place(worker: &Worker) -> String {
    let cpu = worker.cpu.map_or_else(|| "any cpu".to_owned(), |cpu| format!("cpu {cpu}"));
    let class = match worker.priority {
        0 => worker.scheduling.to_string(),
        priority => format!("{}:{priority}", worker.scheduling),
    };
    format!("tid {}  {cpu}  {class}", worker.tid)
}

fn workers(document: &Document) -> impl Iterator<Item = (&Instance, &Worker)> {
    document.instances.iter().flat_map(|instance| instance.workers.iter().map(move |worker| (instance, worker)))
}

/// Replaces control characters, because names of instances, ports and files come from other users.
fn harmless(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().contains(units::acts) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::steer::table::instance;
    use super::super::sample::tests::{document, moderated};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;

    fn draw(document: &Document, palette: Palette, (width, height): (u16, u16)) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut screen = Screen::new(palette, None, Path::new("/dev/shm/apus"));
        terminal.draw(|frame| screen.draw(frame, document)).unwrap();
        terminal.backend().buffer().clone()
    }

    fn text(buffer: &Buffer) -> Vec<String> {
        let width = usize::from(buffer.area.width);
        let symbols: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        symbols.chunks(width).map(|line| line.concat().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_worker_at_work() {
        let shown = text(&draw(&document(), Palette::Plain, (100, 11)));
        let expected = [
            "apus top  q quits  1 instance, 1 worker",
            "┌ edge/0  l2fwd  adaptive p99.9=50us  running  tid 4243  cpu 1  fifo:50 ───────────────────────────┐",
            "│rx 2.00kpps  1.0 Mbit/s     tx 1.80kpps  0.9 Mbit/s     veth0 up, veth1 up                        │",
            "│late p50 2.51us   p99 2.99us   p99.9 –        max 2.99us   of 2000 frames                         │",
            "│cpu  12.0 %    wake-ups 2000/s    host gaps 0/s, 0.0 %                                            │",
            "│time ████zzzzzzzzzzzzzzzzzzzz················ busy 10.0 %, sleep 50.0 %, rest 40.0 %              │",
            "│why  periodic 80.0 %, traffic 20.0 %                                                              │",
            "│drop no_route 200pps                                                                              │",
            "│chose sleep 38us                                                                                  │",
            "│     50us per packet (10.0 % CPU), expected late 0.3 %, owed 1.2 packets                          │",
            "└──────────────────────────────────────────────────────────────────────────────────────────────────┘",
        ];
        assert_eq!(shown, expected, "\n{}", shown.join("\n"));
    }

    #[test]
    fn queues_stand_below_the_workers() {
        let mut document = document();
        document.moderation = vec![moderated()];
        let shown = text(&draw(&document, Palette::Plain, (110, 25)));
        assert!(shown[1].contains("edge/0") && shown[21].contains(" apus moderate "), "{}", shown.join("\n"));
        assert!(shown[23].contains("eth0           3  p99=100us   80us"), "{}", shown.join("\n"));
        document.moderation[0].queues = vec![document.moderation[0].queues[0].clone(); 40];
        let shown = text(&draw(&document, Palette::Plain, (110, 25)));
        assert!(shown[1].contains("edge/0") && shown[13].contains(" apus moderate "), "{}", shown.join("\n"));
        assert!(shown[23].contains("… 32 more lines"), "{}", shown.join("\n"));
        document.instances.clear();
        let shown = text(&draw(&document, Palette::Plain, (110, 60)));
        let (rows, all) = (shown.iter().filter(|line| line.contains("eth0")).count(), shown.join("\n"));
        assert!(rows == 40 && !all.contains("No instance of Apus"), "{all}");
    }

    #[test]
    fn cpus_stand_below_the_queues_and_both_share_the_room() {
        assert_eq!(heights(&[4, 40], 20), [4, 16]);
        assert_eq!(heights(&[40, 4], 20), [16, 4]);
        assert_eq!(heights(&[40, 40], 21), [10, 11]);
        assert_eq!((heights(&[4, 4], 20), heights(&[], 20)), (vec![4, 4], Vec::new()));
        let mut document = document();
        document.steering = vec![instance()];
        let shown = text(&draw(&document, Palette::Plain, (130, 25)));
        assert!(shown[1].contains("edge/0") && shown[20].contains(" apus power steer "), "{}", shown.join("\n"));
        assert!(shown[23].contains("3  edge/3   goal p99=50us  2.6GHz    2.6GHz"), "{}", shown.join("\n"));
        document.moderation = vec![moderated()];
        document.steering = vec![instance(); 20];
        let shown = text(&draw(&document, Palette::Plain, (130, 25)));
        assert!(shown[13].contains(" apus moderate ") && shown[17].contains(" apus power steer "), "{shown:#?}");
        assert!(shown[23].contains("36 more lines (apus power steer status shows them)"), "{shown:#?}");
        document.instances.clear();
        let all = text(&draw(&document, Palette::Plain, (130, 60))).join("\n");
        assert!(all.matches("edge/3").count() == 20 && !all.contains("No instance of Apus"), "{all}");
    }

    #[test]
    fn names_do_nothing_to_the_terminal() {
        let mut hostile = document();
        hostile.moderation = vec![moderated()];
        hostile.moderation[0].queues[0].interface = "e\u{1b}[2J".into();
        hostile.instances[0].instance = "e\u{1b}[2J\u{9b}31m\u{202e}\u{7f}d".into();
        hostile.instances[0].workers[0].app = "\u{1b}]0;x\u{7}".into();
        let shown = text(&draw(&hostile, Palette::Plain, (100, 19))).join("\n");
        assert!(!shown.contains(units::acts) && shown.contains("[2J"), "{shown:?}");
    }

    #[test]
    fn nobody_runs() {
        let mut document = document();
        document.instances.clear();
        let shown = text(&draw(&document, Palette::Plain, (80, 10))).join("\n");
        assert!(shown.contains("No instance of Apus is running") && shown.contains("apus demo"), "{shown}");
    }

    #[test]
    fn colours_only_where_wanted() {
        let coloured = |palette| {
            let buffer = draw(&document(), palette, (100, 9));
            buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(coloured(Palette::Colours) && !coloured(Palette::Plain));
    }

    #[test]
    fn any_size_and_any_number_of_workers() {
        let mut many = document();
        let one = many.instances[0].workers[0].clone();
        many.instances[0].workers = vec![one; 20];
        many.moderation = vec![moderated(); 20];
        many.steering = vec![instance(); 20];
        for size in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100)] {
            draw(&many, Palette::Colours, size);
        }
        many.moderation.clear();
        many.steering.clear();
        let mut screen = Screen::new(Palette::Plain, None, Path::new("/"));
        (0..50).for_each(|_| screen.key(KeyCode::Down, &many));
        assert_eq!(screen.first, 19);
        let mut terminal = Terminal::new(TestBackend::new(100, 31)).unwrap();
        terminal.draw(|frame| screen.draw(frame, &many)).unwrap();
        assert!(text(terminal.backend().buffer())[0].contains("18–20 shown"));
    }
}
