//! Draws a figure of latency distributions: the share of samples above each value. Both axes are logarithmic, so that
//! the tail, where the goals lie, gets as much space as the rest.

use super::labels::{self, Scene, between};
use super::model::{Distribution, DistributionPanel, Goal, Scale, TailPoint};
use super::plot::{self, Grid, Leftover, Named};
use super::scale::{Mapped, Tick, drawable, number};
use super::style::{Look, MARK, Styles};
use super::svg::{Anchor, At, Markup, Rect, px};
use crate::histogram::HistogramDocument;

/// Quantiles that are marked on each curve: the share of samples above them, and their name.
const MARKED: [(f64, &str); 6] =
    [(0.5, "p50"), (0.1, "p90"), (0.01, "p99"), (0.001, "p99.9"), (1e-4, "p99.99"), (1e-5, "p99.999")];

pub(super) fn draw(markup: &mut Markup, figure: &Distribution, styles: &Styles) {
    let grid = Grid::new(1, 330.0, 138.0);
    let first = grid.area(0);
    let points = || {
        let lines = figure.panels.iter().flat_map(|p| &p.lines);
        lines.flat_map(|l| l.all.iter().chain(&l.clean)).filter(|p| is_drawable(figure, p))
    };
    let goals = figure.panels.iter().flat_map(|p| &p.goals).map(|g| g.value);
    let x = Mapped::new(&figure.x, points().map(|p| p.value).chain(goals), (first.x, first.right()));
    // The axis reaches down to p99 at least, and to a share of 10^-12 at most, for which no run has enough samples.
    let least = points().map(|p| p.above).fold(0.01, f64::min).max(1e-12);
    let y = Mapped::exactly(Scale::Log, (least / 1.5, 1.0), (first.bottom(), first.y));
    let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    plot::panels(markup, (&figure.title, &figure.x), &grid, &titles, |m, i, leftover| {
        let (area, panel) = (grid.area(i), &figure.panels[i]);
        plot::left_title(m, area, "samples above, log scale");
        let any = panel.lines.iter().any(|l| l.all.iter().chain(&l.clean).any(|p| is_drawable(figure, p)));
        let Some(x) = x.as_ref().filter(|_| any) else { return false };
        let y = y.onto((area.bottom(), area.y));
        draw_panel(m, figure, panel, &Axes { area, x, y }, styles, leftover);
        true
    });
}

/// Smallest ratio between two points of a line: 1.01 between their values, or 1.03 between their shares. A point is
/// kept if it exceeds either ratio. Both ratios are about a pixel in the figures, where five decades of values are 930
/// pixels wide and five decades of shares are 330 pixels high.
const APART: (f64, f64) = (1.01, 1.03);

/// For each value that has samples, the share of samples above it. Leaves out points that a figure could not show
/// separately. Samples in the overflow count as above every value. Values are in microseconds; shares have six digits.
pub fn tail(histogram: &HistogramDocument) -> Vec<TailPoint> {
    let n = histogram.counts.iter().map(|(_, count)| count).sum::<u64>() + histogram.overflow;
    let (mut points, mut above) = (Vec::<TailPoint>::new(), n);
    for (i, (value, count)) in histogram.counts.iter().enumerate() {
        above -= count;
        let point = TailPoint { value: *value as f64 / 1e3, above: six_digits(above as f64 / n as f64) };
        let last = i + 1 == histogram.counts.len();
        let apart = points.last().is_none_or(|l| point.value > l.value * APART.0 || l.above > point.above * APART.1);
        // The last point is always kept: no sample lies above it, so it marks the end of the line, though 0 cannot be
        // drawn on a logarithmic axis.
        if apart || last {
            points.push(point);
        }
    }
    points
}

fn six_digits(share: f64) -> f64 {
    // A formatted finite number can always be parsed.
    format!("{share:.5e}").parse().unwrap_or(share)
}

struct Axes<'a> {
    area: Rect,
    x: &'a Mapped,
    y: Mapped,
}

fn draw_panel(
    m: &mut Markup,
    figure: &Distribution,
    panel: &DistributionPanel,
    axes: &Axes<'_>,
    styles: &Styles,
    leftover: &mut Leftover,
) {
    let Axes { area, x, y } = axes;
    plot::x_ticks(m, *area, &x.ticks(14), x);
    plot::y_ticks(m, *area, &tail_ticks(y), y, true);
    plot::edges(m, *area);
    let mut scene = Scene { room: *area, marks: Vec::new(), lines: Vec::new() };
    let mut wanted = Vec::new();
    let mut marks = Vec::new();

    let mut goals: Vec<&Goal> = panel.goals.iter().collect();
    goals.sort_by(|a, b| a.value.total_cmp(&b.value));
    let mut free_from = f64::NEG_INFINITY;
    for goal in goals {
        if !drawable(&figure.x, goal.value) {
            leftover.missing(format!("goal {} in “{}”", goal.label, panel.title));
            continue;
        }
        let at = x.at(goal.value);
        let (from, to) = (At { x: at, y: area.y }, At { x: at, y: area.bottom() });
        m.line("goal-line", from, to);
        scene.lines.extend(between(from, to, 6.0).map(|at| (at, None)));
        // The name of the goal is above the plot, as the labels of the ticks are below it.
        let half = labels::width(&goal.label) / 2.0;
        let middle = at.clamp(area.x + half, (area.right() - half).max(area.x + half));
        if middle - half < free_from {
            leftover.goal(goal, &figure.x.unit);
            continue;
        }
        m.label("goal", At { x: middle, y: area.y - 5.0 }, Anchor::Middle, &goal.label);
        free_from = middle + half + 6.0;
    }
    for line in &panel.lines {
        let look = styles.of_series(&line.series);
        let place = |points: &[TailPoint]| -> Vec<At> {
            let drawn = points.iter().filter(|p| is_drawable(figure, p));
            drawn.map(|p| At { x: x.at(p.value), y: y.at(p.above) }).collect()
        };
        let (all, clean) = (place(&line.all), place(&line.clean));
        let (main, points) = if clean.is_empty() { (&all, &line.all) } else { (&clean, &line.clean) };
        if main.is_empty() {
            leftover.missing(format!("{} in “{}”", line.series, panel.title));
            continue;
        }
        if !clean.is_empty() && !all.is_empty() {
            curve(m, &all, look, "curve thin", &format!("{}, all samples", line.series));
        }
        curve(m, main, look, "curve", &line.series);
        // Curves run close to each other, so the key names all of them, in addition to the labels.
        leftover.key(look, &line.series);
        let along = |points: &[At]| -> Vec<At> { points.windows(2).flat_map(|w| between(w[0], w[1], 6.0)).collect() };
        scene.lines.extend(along(main).into_iter().map(|at| (at, Some(wanted.len()))));
        scene.lines.extend(along(&all).into_iter().map(|at| (at, None)));
        let mut beside = Vec::new();
        for (above, name) in MARKED {
            let Some(found) = points.iter().find(|p| is_drawable(figure, p) && p.above <= above) else { continue };
            // Marks no quantile before the start of the line.
            if !points.iter().any(|p| p.above >= above) {
                continue;
            }
            let at = At { x: x.at(found.value), y: y.at(above) };
            marks.push((look, at, format!("{}\n{name}: {} {}", line.series, number(found.value), figure.x.unit)));
            scene.marks.push(at);
            beside.insert(0, at);
        }
        // A label may also stand anywhere along the line, preferably near its lower end.
        beside.extend(main.iter().rev().step_by((main.len() / 24).max(1)));
        wanted.push((Named::Curve(look, &line.series), beside));
    }
    plot::write_labels(m, &scene, wanted, leftover);
    for (look, at, hover) in marks {
        look.mark(m, at, MARK * 0.85, &hover);
    }
}

fn is_drawable(figure: &Distribution, point: &TailPoint) -> bool {
    drawable(&figure.x, point.value) && point.above > 0.0 && point.above <= 1.0
}

/// Draws a line through `points`. Leaves out points that are too close to the previous one to be seen separately.
fn curve(m: &mut Markup, points: &[At], look: Look, class: &str, name: &str) {
    let mut path = String::new();
    let mut last: Option<At> = None;
    for (i, at) in points.iter().enumerate() {
        let seen = last.is_none_or(|l| (l.x - at.x).hypot(l.y - at.y) >= 0.7);
        if seen || i + 1 == points.len() {
            path += &format!("{}{} {}", if last.is_none() { 'M' } else { 'L' }, px(at.x), px(at.y));
            last = Some(*at);
        }
    }
    let class = format!("{class} {}", look.colour());
    m.element("path", &[("class", &class), ("d", &path), ("stroke-dasharray", look.dash())], |m| {
        m.leaf("title", &[], name);
    });
}

/// One tick for each named quantile, such as "1 % · p99".
fn tail_ticks(y: &Mapped) -> Vec<Tick> {
    let named = MARKED.into_iter().filter(|(above, _)| y.covers(*above));
    named.map(|(above, name)| Tick { value: above, label: Some(format!("{} % · {name}", percent(above))) }).collect()
}

/// Formats a share in percent: 0.001 as "0.1".
fn percent(share: f64) -> String {
    let decimals = (-(share * 100.0).log10()).ceil().clamp(0.0, 9.0) as usize;
    format!("{:.decimals$}", share * 100.0)
}
