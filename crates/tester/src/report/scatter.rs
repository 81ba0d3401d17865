//! Draws a figure of one quantity against another: each series has a mark with its confidence intervals. All panels
//! have the same axes.

use super::labels::{Scene, between};
use super::model::{Axis, Estimate, Scatter, ScatterPanel, ScatterPoint};
use super::plot::{self, Grid, Leftover, Named};
use super::scale::{Mapped, drawable, number};
use super::style::{MARK, Styles};
use super::svg::{At, Markup, Rect};

/// If a series has more marks than this in a panel, only the key names it.
const MANY: usize = 8;

pub(super) fn draw(markup: &mut Markup, figure: &Scatter, styles: &Styles) {
    let columns = figure.panels.len().clamp(1, 3);
    let grid = Grid::new(columns, [430.0, 400.0, 380.0][columns - 1], 74.0);
    let first = grid.area(0);
    let points = || figure.panels.iter().flat_map(|p| &p.points).filter(|p| is_drawable(figure, p));
    let goals = figure.panels.iter().flat_map(|p| &p.goals).map(|g| g.value);
    let x = Mapped::new(&figure.x, points().flat_map(|p| extent(p.x)), (first.x, first.right()));
    let y = Mapped::new(&figure.y, points().flat_map(|p| extent(p.y)).chain(goals), (first.bottom(), first.y));
    let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    plot::panels(markup, (&figure.title, &figure.x), &grid, &titles, |m, i, leftover| {
        let (area, panel) = (grid.area(i), &figure.panels[i]);
        if grid.is_first_column(i) {
            plot::left_title(m, area, &plot::axis_name(&figure.y));
        }
        let any = panel.points.iter().any(|p| is_drawable(figure, p));
        let (Some(x), Some(y), true) = (&x, &y, any) else { return false };
        let (x, y) = (x.onto((area.x, area.right())), y.onto((area.bottom(), area.y)));
        draw_panel(m, figure, panel, &Axes { area, x, y, labelled: grid.is_first_column(i) }, styles, leftover);
        true
    });
}

struct Axes {
    area: Rect,
    x: Mapped,
    y: Mapped,
    labelled: bool,
}

fn draw_panel(
    m: &mut Markup,
    figure: &Scatter,
    panel: &ScatterPanel,
    axes: &Axes,
    styles: &Styles,
    leftover: &mut Leftover,
) {
    let Axes { area, x, y, labelled } = axes;
    plot::x_ticks(m, *area, &x.ticks(if area.w > 500.0 { 10 } else { 6 }), x);
    plot::y_ticks(m, *area, &y.ticks(9), y, *labelled);
    plot::edges(m, *area);
    let mut scene = Scene { room: *area, marks: Vec::new(), lines: Vec::new() };
    let mut wanted = Vec::new();

    for point in &panel.points {
        if !is_drawable(figure, point) {
            leftover.missing(format!("{} in “{}”", point.series, panel.title));
            continue;
        }
        let look = styles.of_series(&point.series);
        let at = At { x: x.at(point.x.value), y: y.at(point.y.value) };
        let class = format!("interval {}", look.colour());
        if let Some((low, high)) = ends(point.x) {
            let (from, to) = (At { x: x.at(low), y: at.y }, At { x: x.at(high), y: at.y });
            bar(m, &class, from, to, At { x: 0.0, y: 4.0 });
            scene.lines.extend(between(from, to, 6.0).map(|at| (at, None)));
        }
        if let Some((low, high)) = ends(point.y) {
            let (from, to) = (At { x: at.x, y: y.at(low) }, At { x: at.x, y: y.at(high) });
            bar(m, &class, from, to, At { x: 4.0, y: 0.0 });
            scene.lines.extend(between(from, to, 6.0).map(|at| (at, None)));
        }
        scene.marks.push(at);
        if panel.points.iter().filter(|other| other.series == point.series).take(MANY + 1).count() > MANY {
            leftover.key(look, &point.series);
        } else {
            wanted.push((Named::Mark(look, &point.series), vec![at]));
        }
    }
    for goal in &panel.goals {
        if !drawable(&figure.y, goal.value) {
            leftover.missing(format!("goal {} in “{}”", goal.label, panel.title));
            continue;
        }
        let at = y.at(goal.value);
        let (from, to) = (At { x: area.x, y: at }, At { x: area.right(), y: at });
        m.line("goal-line", from, to);
        scene.lines.extend(between(from, to, 6.0).map(|at| (at, None)));
        // Tries places for the goal's label along the line, from right to left.
        let beside = (1..=12).map(|i| At { x: area.right() - area.w * f64::from(i) / 13.0, y: at }).collect();
        wanted.push((Named::Goal(goal, &figure.y.unit), beside));
    }
    plot::write_labels(m, &scene, wanted, leftover);
    // Marks are drawn last, so that nothing covers them.
    for point in panel.points.iter().filter(|p| is_drawable(figure, p)) {
        let at = At { x: x.at(point.x.value), y: y.at(point.y.value) };
        let hover = format!("{}\n{}\n{}", point.series, told(&figure.x, point.x), told(&figure.y, point.y));
        styles.of_series(&point.series).mark(m, at, MARK, &hover);
    }
}

fn is_drawable(figure: &Scatter, point: &ScatterPoint) -> bool {
    drawable(&figure.x, point.x.value) && drawable(&figure.y, point.y.value)
}

/// The values of an estimate that the axis must cover: the estimate itself and the ends of its interval.
pub(super) fn extent(estimate: Estimate) -> impl Iterator<Item = f64> {
    [Some(estimate.value), ends(estimate).map(|e| e.0), ends(estimate).map(|e| e.1)].into_iter().flatten()
}

/// The confidence interval, if both its ends are finite.
pub(super) fn ends(estimate: Estimate) -> Option<(f64, f64)> {
    estimate.interval.filter(|(low, high)| low.is_finite() && high.is_finite())
}

/// The text shown on hovering, such as "p99 latency: 31.2 us (29.8 to 33.1)".
pub(super) fn told(axis: &Axis, estimate: Estimate) -> String {
    let interval = ends(estimate).map(|(low, high)| format!(" ({} to {})", number(low), number(high)));
    format!("{}: {} {}{}", axis.quantity, number(estimate.value), axis.unit, interval.unwrap_or_default())
}

/// Draws an interval with a short stroke across each end.
pub(super) fn bar(m: &mut Markup, class: &str, from: At, to: At, across: At) {
    m.line(class, from, to);
    for end in [from, to] {
        m.line(class, At { x: end.x - across.x, y: end.y - across.y }, At { x: end.x + across.x, y: end.y + across.y });
    }
}
