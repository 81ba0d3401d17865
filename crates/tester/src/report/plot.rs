//! Functions that all kinds of figures use to draw panels with axes, labels, and the key.

use super::labels::{self, FAR, Placed, Scene, Wanted};
use super::model::{Axis, Goal};
use super::scale::{Mapped, Tick, number};
use super::style::{Look, MARK};
use super::svg::{Anchor, At, Markup, Rect, px};

/// Width of every drawing in pixels; the page scales it.
pub(super) const WIDTH: f64 = 1080.0;

/// Items that do not fit into a drawing, and are listed below it.
#[derive(Default)]
pub(super) struct Leftover {
    /// Series without space for a label.
    pub key: Vec<(Look, String)>,
    /// Goals without space for a label.
    pub goals: Vec<String>,
    /// Values that cannot be drawn.
    pub missing: Vec<String>,
}

impl Leftover {
    /// Adds an item to the list "No data: …" below the drawing, unless it is already there.
    pub fn missing(&mut self, what: String) {
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }

    pub fn key(&mut self, look: Look, series: &str) {
        if !self.key.iter().any(|(known, _)| *known == look) {
            self.key.push((look, series.into()));
        }
    }

    pub fn goal(&mut self, goal: &Goal, unit: &str) {
        let text = format!("{} (at {} {unit})", goal.label, number(goal.value));
        if !self.goals.contains(&text) {
            self.goals.push(text);
        }
    }
}

/// Panels side by side in rows, all of the same size, with space for axes.
pub(super) struct Grid {
    columns: usize,
    panel: (f64, f64),
    left: f64,
}

const GAP: f64 = 26.0;
const ABOVE: f64 = 44.0;
const BELOW: f64 = 50.0;

impl Grid {
    /// A grid with `columns` panels per row, each `height` high, and `left` pixels for the vertical axis.
    pub fn new(columns: usize, height: f64, left: f64) -> Self {
        let columns = columns.max(1);
        let width = (WIDTH - left - 12.0 - GAP * (columns - 1) as f64) / columns as f64;
        Self { columns, panel: (width, height), left }
    }

    pub fn area(&self, i: usize) -> Rect {
        let (column, row) = (i % self.columns, i / self.columns);
        let (w, h) = self.panel;
        Rect { x: self.left + column as f64 * (w + GAP), y: ABOVE + row as f64 * (h + ABOVE + BELOW), w, h }
    }

    pub fn is_first_column(&self, i: usize) -> bool {
        i.is_multiple_of(self.columns)
    }

    pub fn height(&self, panels: usize) -> f64 {
        panels.max(1).div_ceil(self.columns) as f64 * (self.panel.1 + ABOVE + BELOW)
    }
}

/// Writes an SVG drawing, with a name for screen readers.
pub(super) fn drawing(markup: &mut Markup, name: &str, height: f64, inside: impl FnOnce(&mut Markup)) {
    let view = format!("0 0 {} {}", px(WIDTH), px(height));
    markup.element("div", &[("class", "scroll")], |m| {
        m.element("svg", &[("viewBox", &view), ("role", "img"), ("aria-label", name)], inside);
    });
    markup.newline();
}

/// Draws a figure: the panels with the titles `panels`, and below the panels the key and the list of missing values.
/// `draw` draws the panel with the given index, and returns false if there is nothing to draw.
pub(super) fn panels(
    markup: &mut Markup,
    (title, x): (&str, &Axis),
    grid: &Grid,
    panels: &[&str],
    mut draw: impl FnMut(&mut Markup, usize, &mut Leftover) -> bool,
) {
    let mut leftover = Leftover::default();
    drawing(markup, title, grid.height(panels.len()), |m| {
        for (i, name) in panels.iter().enumerate() {
            titles(m, grid.area(i), name, x);
            if !draw(m, i, &mut leftover) {
                no_data(m, grid.area(i));
                leftover.missing((*name).to_owned());
            }
        }
        if panels.is_empty() {
            no_data(m, grid.area(0));
            leftover.missing(title.to_owned());
        }
    });
    write_leftover(markup, &leftover);
}

/// Draws the title of a panel and the name of its horizontal axis.
pub(super) fn titles(markup: &mut Markup, area: Rect, title: &str, x: &Axis) {
    markup.label("panel", At { x: area.x, y: area.y - 23.0 }, Anchor::Start, title);
    let at = At { x: area.x + area.w / 2.0, y: area.bottom() + 38.0 };
    markup.label("axis", at, Anchor::Middle, &axis_name(x));
}

/// Draws the name of the vertical axis, rotated.
pub(super) fn left_title(markup: &mut Markup, area: Rect, text: &str) {
    let (x, y) = (px(14.0), px(area.y + area.h / 2.0));
    let turn = format!("rotate(-90 {x} {y})");
    let place = [("class", "axis"), ("x", &x), ("y", &y), ("text-anchor", "middle"), ("transform", &turn)];
    markup.leaf("text", &place, text);
}

/// Name of an axis with its unit and scale, such as "p99 latency, us, log scale".
pub(super) fn axis_name(axis: &Axis) -> String {
    let unit = if axis.unit.is_empty() { String::new() } else { format!(", {}", axis.unit) };
    let log = if axis.scale == super::model::Scale::Log { ", log scale" } else { "" };
    format!("{}{unit}{log}", axis.quantity)
}

pub(super) fn x_ticks(markup: &mut Markup, area: Rect, ticks: &[Tick], x: &Mapped) {
    let mut free_from = f64::NEG_INFINITY;
    for tick in ticks {
        let at = x.at(tick.value);
        let class = if tick.label.is_some() { "grid" } else { "grid minor" };
        markup.line(class, At { x: at, y: area.y }, At { x: at, y: area.bottom() });
        if let Some(label) = &tick.label {
            let half = labels::width(label) / 2.0;
            if at - half > free_from {
                markup.label("tick", At { x: at, y: area.bottom() + 17.0 }, Anchor::Middle, label);
                free_from = at + half + 3.0;
            }
        }
    }
}

pub(super) fn y_ticks(markup: &mut Markup, area: Rect, ticks: &[Tick], y: &Mapped, labelled: bool) {
    for tick in ticks {
        let at = y.at(tick.value);
        let class = if tick.label.is_some() { "grid" } else { "grid minor" };
        markup.line(class, At { x: area.x, y: at }, At { x: area.right(), y: at });
        if let (true, Some(label)) = (labelled, &tick.label) {
            markup.label("tick", At { x: area.x - 8.0, y: at + 4.0 }, Anchor::End, label);
        }
    }
}

/// Draws the left and the bottom edge of a panel.
pub(super) fn edges(markup: &mut Markup, area: Rect) {
    let corner = At { x: area.x, y: area.bottom() };
    markup.line("edge", At { x: area.x, y: area.y }, corner);
    markup.line("edge", corner, At { x: area.right(), y: area.bottom() });
}

/// Marks a panel as empty.
pub(super) fn no_data(markup: &mut Markup, area: Rect) {
    edges(markup, area);
    let at = At { x: area.x + area.w / 2.0, y: area.y + area.h / 2.0 };
    markup.label("empty", at, Anchor::Middle, "no data");
}

/// What a label names.
pub(super) enum Named<'a> {
    /// A mark. If the label is not next to the mark, a line joins the two.
    Mark(Look, &'a str),
    /// A curve. If there is no space for a label next to the curve, only the key names the curve.
    Curve(Look, &'a str),
    /// A goal, and the unit of its value.
    Goal(&'a Goal, &'a str),
}

/// Places and draws the labels. Labels without space go to the key.
pub(super) fn write_labels(
    markup: &mut Markup,
    scene: &Scene,
    wanted: Vec<(Named<'_>, Vec<At>)>,
    leftover: &mut Leftover,
) {
    let texts: Vec<Wanted<'_>> = wanted
        .iter()
        .map(|(named, beside)| {
            let (text, rings) = match named {
                Named::Mark(_, series) => (*series, FAR),
                Named::Curve(_, series) => (*series, 1),
                Named::Goal(goal, _) => (goal.label.as_str(), 1),
            };
            Wanted { text, beside: beside.clone(), rings }
        })
        .collect();
    let places = labels::place(scene, &texts);
    for (((named, _), wanted), place) in wanted.iter().zip(&texts).zip(places) {
        match (named, place) {
            (Named::Mark(look, _) | Named::Curve(look, _), Some(place)) => {
                leader(markup, *look, &place);
                markup.label("name", place.at, place.anchor, wanted.text);
            }
            (Named::Goal(..), Some(place)) => markup.label("goal", place.at, place.anchor, wanted.text),
            (Named::Mark(look, series) | Named::Curve(look, series), None) => leftover.key(*look, series),
            (Named::Goal(goal, unit), None) => leftover.goal(goal, unit),
        }
    }
}

/// Draws a thin line from a mark to its distant label.
fn leader(markup: &mut Markup, look: Look, place: &Placed) {
    let Some((from, to)) = place.leader() else { return };
    let length = (to.x - from.x).hypot(to.y - from.y).max(1.0);
    let (near, far) = ((MARK - 1.0) / length, ((length - 2.0) / length).max(0.0));
    if near < far {
        let along = |share: f64| At { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
        markup.line(&format!("leader {}", look.colour()), along(near), along(far));
    }
}

/// Writes the text below a drawing: the key for series without a label, and the list of missing values.
pub(super) fn write_leftover(markup: &mut Markup, leftover: &Leftover) {
    if !leftover.key.is_empty() || !leftover.goals.is_empty() {
        markup.element("ul", &[("class", "key")], |m| {
            for (look, series) in &leftover.key {
                m.element("li", &[], |m| {
                    swatch(m, *look, series);
                    m.text(series);
                });
            }
            for goal in &leftover.goals {
                m.leaf("li", &[("class", "goal")], goal);
            }
        });
        markup.newline();
    }
    if !leftover.missing.is_empty() {
        let text = format!("No data: {}.", leftover.missing.join("; "));
        markup.leaf("p", &[("class", "missing")], &text);
        markup.newline();
    }
}

fn swatch(markup: &mut Markup, look: Look, series: &str) {
    let place = [("class", "swatch"), ("viewBox", "0 0 34 14"), ("aria-hidden", "true")];
    markup.element("svg", &place, |m| {
        let class = format!("curve {}", look.colour());
        m.empty("path", &[("class", &class), ("d", "M1 7L33 7"), ("stroke-dasharray", look.dash())]);
        look.mark(m, At { x: 17.0, y: 7.0 }, MARK * 0.9, series);
    });
}
