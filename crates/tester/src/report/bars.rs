//! Draws a figure of one quantity, with a horizontal bar for each series. Horizontal bars leave room for the names.

use super::labels;
use super::model::{Axis, Bars};
use super::plot::{self, Grid, Leftover, WIDTH};
use super::scale::{Mapped, number};
use super::scatter::{bar, ends, extent, told};
use super::style::Styles;
use super::svg::{Anchor, At, Markup, Rect};

const ROW: f64 = 30.0;

pub(super) fn draw(markup: &mut Markup, figure: &Bars, styles: &Styles) {
    let mut leftover = Leftover::default();
    let axis = Axis::linear(figure.quantity.as_str(), figure.unit.as_str());
    let longest = figure.bars.iter().map(|b| labels::width(&b.series)).fold(60.0, f64::max);
    let left = (longest + 20.0).min(WIDTH / 3.0);
    let grid = Grid::new(1, ROW * figure.bars.len().max(2) as f64 + 8.0, left);
    let area = grid.area(0);
    // Leaves room for the number at the end of each bar.
    let onto = (area.x, area.right() - 80.0);
    let x = Mapped::new(&axis, figure.bars.iter().flat_map(|b| extent(b.value)), onto);
    plot::drawing(markup, &figure.title, grid.height(1), |m| {
        plot::titles(m, area, "", &axis);
        let Some(x) = &x else {
            plot::no_data(m, area);
            leftover.missing(figure.title.clone());
            return;
        };
        plot::x_ticks(m, area, &x.ticks(9), x);
        plot::edges(m, area);
        for (i, row) in figure.bars.iter().enumerate() {
            let middle = area.y + 4.0 + ROW * (i as f64 + 0.5);
            let look = styles.of_series(&row.series);
            m.label("name", At { x: area.x - 10.0, y: middle + 4.0 }, Anchor::End, &row.series);
            if !row.value.value.is_finite() {
                m.label("empty", At { x: area.x + 10.0, y: middle + 4.0 }, Anchor::Start, "no data");
                leftover.missing(row.series.clone());
                continue;
            }
            let (zero, end) = (x.at(0.0), x.at(row.value.value));
            let body = Rect { x: zero.min(end), y: middle - 9.0, w: (end - zero).abs(), h: 18.0 };
            let hover = format!("{}\n{}", row.series, told(&axis, row.value));
            m.element("g", &[], |m| {
                m.leaf("title", &[], &hover);
                m.rect(&format!("bar {}", look.colour()), body);
            });
            let mut text_at = body.right();
            if let Some((low, high)) = ends(row.value) {
                let (from, to) = (At { x: x.at(low), y: middle }, At { x: x.at(high), y: middle });
                // The interval gets a rim in the background colour, so that it is visible on a dark bar.
                bar(m, "rim", from, to, At { x: 0.0, y: 4.0 });
                bar(m, "interval", from, to, At { x: 0.0, y: 4.0 });
                text_at = text_at.max(to.x);
            }
            let at = At { x: text_at + 8.0, y: middle + 4.0 };
            m.label("name", at, Anchor::Start, &number(row.value.value));
        }
    });
    plot::write_leftover(markup, &leftover);
}
