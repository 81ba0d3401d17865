//! Draws a figure of one quantity over another, usually time, as lines through many points. Vertical lines show events.

use super::model::{Trace, TracePanel};
use super::plot::{self, Grid, Leftover};
use super::scale::{Mapped, drawable};
use super::style::Styles;
use super::svg::{At, Markup, Rect, px};

pub(super) fn draw(markup: &mut Markup, figure: &Trace, styles: &Styles) {
    let grid = Grid::new(1, 300.0, 74.0);
    let first = grid.area(0);
    let points = || {
        let lines = figure.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        lines.filter(|(x, y)| drawable(&figure.x, *x) && drawable(&figure.y, *y))
    };
    let x = Mapped::new(&figure.x, points().map(|(x, _)| *x), (first.x, first.right()));
    let y = Mapped::new(&figure.y, points().map(|(_, y)| *y), (first.bottom(), first.y));
    let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    plot::panels(markup, (&figure.title, &figure.x), &grid, &titles, |m, i, leftover| {
        let (area, panel) = (grid.area(i), &figure.panels[i]);
        plot::left_title(m, area, &plot::axis_name(&figure.y));
        let (Some(x), Some(y)) = (&x, &y) else { return false };
        let (x, y) = (x.onto((area.x, area.right())), y.onto((area.bottom(), area.y)));
        draw_panel(m, figure, panel, (area, &x, &y), styles, leftover);
        true
    });
}

fn draw_panel(
    m: &mut Markup,
    figure: &Trace,
    panel: &TracePanel,
    (area, x, y): (Rect, &Mapped, &Mapped),
    styles: &Styles,
    leftover: &mut Leftover,
) {
    plot::x_ticks(m, area, &x.ticks(12), x);
    plot::y_ticks(m, area, &y.ticks(9), y, true);
    plot::edges(m, area);
    for event in panel.events.iter().filter(|event| drawable(&figure.x, event.x)) {
        let at = x.at(event.x);
        m.element("g", &[], |m| {
            m.line("goal-line", At { x: at, y: area.y }, At { x: at, y: area.bottom() });
            m.leaf("title", &[], &event.label);
        });
    }
    for line in &panel.lines {
        let look = styles.of_series(&line.series);
        let there = line.points.iter().filter(|(at, value)| drawable(&figure.x, *at) && drawable(&figure.y, *value));
        let path: String = there
            .enumerate()
            .map(|(i, (at, value))| format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, px(x.at(*at)), px(y.at(*value))))
            .collect();
        if path.is_empty() {
            leftover.missing(format!("{} in “{}”", line.series, panel.title));
            continue;
        }
        let class = format!("curve thin {}", look.colour());
        m.element("path", &[("class", &class), ("d", &path)], |m| m.leaf("title", &[], &line.series));
        leftover.key(look, &line.series);
    }
}
