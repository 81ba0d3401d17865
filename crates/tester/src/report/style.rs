//! The look of a series: a color, a mark and a line dash. So a reader need not rely on color alone.

use std::collections::HashMap;

use super::model::{Report, Section};
use super::svg::{At, Markup, px};

/// Number of colors. `page.css` defines them as classes `c0` to `c7` after Okabe & Ito, "Color Universal Design"
/// (2008): people with any common form of color blindness can tell them apart.
const COLOURS: usize = 8;

/// Line dashes, solid first.
const DASHES: [&str; 4] = ["none", "9 3", "2.5 2.5", "9 3 2.5 3"];

/// Half the size of a mark, in pixels.
pub(super) const MARK: f64 = 5.0;

/// Assigns a look to each series of a report, in the order in which the series first occur.
pub(super) struct Styles(HashMap<String, usize>);

impl Styles {
    pub fn of(report: &Report) -> Self {
        let mut places = HashMap::new();
        for series in report.sections.iter().flat_map(series_of) {
            let next = places.len();
            places.entry(series.to_owned()).or_insert(next);
        }
        Self(places)
    }

    pub fn of_series(&self, series: &str) -> Look {
        Look(self.0.get(series).copied().unwrap_or_default())
    }
}

fn series_of(section: &Section) -> Vec<&str> {
    match section {
        Section::Scatter(f) => f.panels.iter().flat_map(|p| &p.points).map(|p| p.series.as_str()).collect(),
        Section::Distribution(f) => f.panels.iter().flat_map(|p| &p.lines).map(|l| l.series.as_str()).collect(),
        Section::Trace(f) => f.panels.iter().flat_map(|p| &p.lines).map(|l| l.series.as_str()).collect(),
        Section::Bars(f) => f.bars.iter().map(|b| b.series.as_str()).collect(),
        Section::Table(_) => Vec::new(),
    }
}

/// The look of one series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look(usize);

impl Look {
    /// CSS class of the series' color. After eight series, the colors repeat, with different marks.
    pub fn colour(self) -> String {
        format!("c{}", self.0 % COLOURS)
    }

    pub fn dash(self) -> &'static str {
        DASHES[(self.0 + self.0 / COLOURS) % DASHES.len()]
    }

    /// Draws the series' mark at `at`. Hovering over the mark shows `hover`.
    pub fn mark(self, markup: &mut Markup, at: At, size: f64, hover: &str) {
        let class = format!("mark {}", self.colour());
        markup.element("path", &[("class", &class), ("d", &self.outline(at, size))], |m| m.leaf("title", &[], hover));
    }

    pub fn outline(self, at: At, size: f64) -> String {
        let s = size;
        let polygon = |corners: &[(f64, f64)]| {
            let mut path = String::new();
            for (i, (dx, dy)) in corners.iter().enumerate() {
                let letter = if i == 0 { 'M' } else { 'L' };
                path += &format!("{letter}{} {}", px(at.x + dx * s), px(at.y + dy * s));
            }
            path + "Z"
        };
        match (self.0 + self.0 / COLOURS) % 8 {
            0 => {
                let (r, d) = (px(s), px(2.0 * s));
                format!("M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", px(at.x - s), px(at.y))
            }
            1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => polygon(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
            3 => polygon(&[(0.0, -1.3), (1.15, 0.0), (0.0, 1.3), (-1.15, 0.0)]),
            4 => polygon(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
            5 => polygon(&cross(0.0)),
            6 => polygon(&cross(std::f64::consts::FRAC_PI_4)),
            _ => polygon(&[(-0.6, -1.15), (0.6, -1.15), (1.2, 0.0), (0.6, 1.15), (-0.6, 1.15), (-1.2, 0.0)]),
        }
    }
}

/// The outline of a plus sign, rotated by `angle`.
fn cross(angle: f64) -> [(f64, f64); 12] {
    let (long, thin) = (1.2, 0.42);
    let plus = [
        (-thin, -long),
        (thin, -long),
        (thin, -thin),
        (long, -thin),
        (long, thin),
        (thin, thin),
        (thin, long),
        (-thin, long),
        (-thin, thin),
        (-long, thin),
        (-long, -thin),
        (-thin, -thin),
    ];
    let (sin, cos) = angle.sin_cos();
    plus.map(|(x, y)| (x * cos - y * sin, x * sin + y * cos))
}
