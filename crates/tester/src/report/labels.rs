//! Places labels next to the points that they name, so that they cover neither marks nor other labels.

use super::style::MARK;
use super::svg::{Anchor, At, Rect};

/// Height of a label's line in pixels; `page.css` sets the text at 12 px.
pub(super) const LINE: f64 = 14.0;

/// Width of `text` in pixels at a font size of 12 px. It is an upper estimate, because fonts differ.
pub(super) fn width(text: &str) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' | '(' | ')' => 4.8,
        'f' | 'r' | 't' => 5.2,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 12.2,
        '=' | '+' | '<' | '>' | '~' | '\u{2264}' | '\u{2265}' => 10.2,
        c if c.is_ascii_uppercase() => 9.0,
        c if (c as u32) < 0x2E80 => 7.8,
        _ => 12.5, // CJK characters and similar ones are square.
    };
    text.chars().map(of).sum()
}

/// A label to be placed.
pub(super) struct Wanted<'a> {
    pub text: &'a str,
    /// Points next to which the label may be placed, the best first.
    pub beside: Vec<At>,
    /// Maximum distance of the label from its point, in steps of [`RINGS`]. 1 allows only positions next to the point.
    /// [`FAR`] allows all distances; a line then joins a distant label and its point.
    pub rings: usize,
}

/// Possible distances between a label and its point, in pixels.
const RINGS: [f64; 6] = [9.0, 20.0, 34.0, 50.0, 70.0, 95.0];

/// The largest value of [`Wanted::rings`]: all distances are allowed.
pub(super) const FAR: usize = RINGS.len();

/// A placed label.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Placed {
    /// Position of the text's baseline; `anchor` says whether the position is the start, middle or end of the text.
    pub at: At,
    pub anchor: Anchor,
    pub bounds: Rect,
    /// The point that the label names. If the label is `far` from it, a line joins the two.
    pub of: At,
    pub far: bool,
}

/// What the labels must keep clear of, and where they may be placed.
pub(super) struct Scene {
    /// The area in which labels may be placed.
    pub room: Rect,
    /// Positions of all marks. A label must not cover a mark, nor be so close to the mark of another point that it
    /// seems to name it.
    pub marks: Vec<At>,
    /// Points along the drawn lines, each with the index of the line's label; `None` for lines without a label.
    pub lines: Vec<(At, Option<usize>)>,
}

/// Distance in pixels within which a label seems to name a mark or a line.
const NEAR: f64 = 8.0;

/// Places each label; `None` for a label for which no position is free. In each of a fixed number of rounds, every
/// label moves to the best free position. So the same input always gives the same positions.
pub(super) fn place(scene: &Scene, wanted: &[Wanted<'_>]) -> Vec<Option<Placed>> {
    // Sorted by x, so that the points within a label's width are found quickly.
    let mut lines = scene.lines.clone();
    lines.sort_by(|a, b| a.0.x.total_cmp(&b.0.x));
    let candidates: Vec<Vec<(f64, Placed)>> =
        wanted.iter().enumerate().map(|(i, w)| candidates(scene, &lines, w, i)).collect();
    let mut placed: Vec<Option<Placed>> = vec![None; wanted.len()];
    // Labels with the fewest possible places are placed first.
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| candidates[*i].len());
    for _round in 0..6 {
        for &i in &order {
            let others = || placed.iter().enumerate().filter(|(j, _)| *j != i).filter_map(|(_, other)| other.as_ref());
            let free = |p: &Placed| others().all(|other| !p.collides(other));
            let found = candidates[i].iter().find(|(_, p)| free(p)).map(|(_, p)| *p);
            placed[i] = found;
        }
    }
    placed
}

impl Placed {
    /// Whether two labels, or the lines to them, overlap.
    fn collides(&self, other: &Self) -> bool {
        let crosses = |a: &Self, b: &Self| {
            a.leader().is_some_and(|(from, to)| between(from, to, 4.0).any(|at| b.bounds.contains(at)))
        };
        self.bounds.overlaps(&other.bounds) || crosses(self, other) || crosses(other, self)
    }

    /// The line from the point to the edge of the label; `None` if the label is next to its point.
    pub fn leader(&self) -> Option<(At, At)> {
        let b = self.bounds;
        let to = At { x: self.of.x.clamp(b.x, b.right()), y: self.of.y.clamp(b.y, b.bottom()) };
        self.far.then_some((self.of, to))
    }
}

/// Points along a line, at most `step` pixels apart.
pub(super) fn between(from: At, to: At, step: f64) -> impl Iterator<Item = At> {
    let steps = ((to.x - from.x).hypot(to.y - from.y) / step).ceil().clamp(1.0, 400.0) as u32;
    (0..=steps).map(move |i| {
        let share = f64::from(i) / f64::from(steps);
        At { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share }
    })
}

/// All positions of the label `index` in which it is clear which point it names, the best first.
fn candidates(scene: &Scene, lines: &[(At, Option<usize>)], wanted: &Wanted<'_>, index: usize) -> Vec<(f64, Placed)> {
    let (w, h) = (width(wanted.text), LINE);
    let mut all = Vec::new();
    for (rank, of) in wanted.beside.iter().enumerate() {
        for (ring, gap) in RINGS.into_iter().enumerate().take(wanted.rings) {
            for (turn, (dx, dy)) in DIRECTIONS.into_iter().enumerate() {
                let (x, y) = (of.x + dx * gap, of.y + dy * gap);
                let (anchor, left) = match dx {
                    dx if dx > 0.3 => (Anchor::Start, x),
                    dx if dx < -0.3 => (Anchor::End, x - w),
                    _ => (Anchor::Middle, x - w / 2.0),
                };
                let bounds = Rect { x: left, y: y - h / 2.0, w, h };
                let wide = Rect { x: bounds.x - NEAR, y: bounds.y - NEAR, w: w + 2.0 * NEAR, h: h + 2.0 * NEAR };
                if !scene.room.holds(&bounds) {
                    continue;
                }
                let far = ring > 0;
                // A line that passes behind the mark of another point would seem to begin at that mark.
                let to = At { x: of.x.clamp(bounds.x, bounds.right()), y: of.y.clamp(bounds.y, bounds.bottom()) };
                let hidden = |mark: &At| {
                    let apart = |a: At, b: &At| (a.x - b.x).hypot(a.y - b.y);
                    far && between(*of, to, 3.0).any(|at| apart(at, of) > 2.0 * MARK && apart(at, mark) < MARK + 1.0)
                };
                let taken = scene.marks.iter().any(|mark| {
                    let body = Rect {
                        x: mark.x - MARK - 1.0,
                        y: mark.y - MARK - 1.0,
                        w: 2.0 * MARK + 2.0,
                        h: 2.0 * MARK + 2.0,
                    };
                    body.overlaps(&bounds) || (mark != of && (wide.contains(*mark) || hidden(mark)))
                });
                if taken {
                    continue;
                }
                let from = lines.partition_point(|(at, _)| at.x < wide.x);
                let within = lines[from..].iter().take_while(|(at, _)| at.x <= wide.right());
                let (mut crossed, mut mistaken) = (0, false);
                for (at, whose) in within {
                    crossed += u32::from(bounds.contains(*at));
                    mistaken |= whose.is_some_and(|whose| whose != index) && wide.contains(*at);
                }
                if mistaken {
                    continue;
                }
                let cost = f64::from(crossed) * 8.0 + rank as f64 * 2.0 + ring as f64 * 10.0 + turn as f64 * 0.5;
                // The baseline lies a third of the height below the middle.
                let placed = Placed { at: At { x, y: y + h * 0.3 }, anchor, bounds, of: *of, far };
                all.push((cost, placed));
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// Directions from a point to its label, the preferred first: right, left, above, below, then the corners, then the
/// directions in between.
const DIRECTIONS: [(f64, f64); 16] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.4),
    (0.0, 1.4),
    (0.8, -1.0),
    (0.8, 1.0),
    (-0.8, -1.0),
    (-0.8, 1.0),
    (1.0, -0.5),
    (1.0, 0.5),
    (-1.0, -0.5),
    (-1.0, 0.5),
    (0.4, -1.3),
    (0.4, 1.3),
    (-0.4, -1.3),
    (-0.4, 1.3),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: Rect = Rect { x: 0.0, y: 0.0, w: 300.0, h: 200.0 };

    #[test]
    fn a_crowd_is_spread_out_and_the_rest_is_left_to_the_key() {
        let scene = Scene { room: ROOM, marks: vec![], lines: vec![] };
        let crowd = |n| {
            (0..n)
                .map(|_| Wanted { text: "adaptive", beside: vec![At { x: 150.0, y: 100.0 }], rings: FAR })
                .collect::<Vec<_>>()
        };
        assert!(place(&scene, &crowd(4)).iter().all(Option::is_some));
        assert!(place(&scene, &crowd(60)).iter().any(Option::is_none));
    }

    proptest! {
        #[test]
        fn labels_cover_nothing(points in prop::collection::vec((0.0..300.0, 0.0..200.0), 1..12)) {
            let marks: Vec<At> = points.iter().map(|&(x, y)| At { x, y }).collect();
            let wanted: Vec<Wanted> = marks.iter().map(|a| Wanted { text: "hybrid300", beside: vec![*a], rings: FAR }).collect();
            let scene = Scene { room: ROOM, marks: marks.clone(), lines: vec![] };
            let placed: Vec<Placed> = place(&scene, &wanted).into_iter().flatten().collect();
            for (i, p) in placed.iter().enumerate() {
                prop_assert!(ROOM.holds(&p.bounds));
                prop_assert!(marks.iter().all(|mark| !p.bounds.contains(*mark)));
                prop_assert!(placed[..i].iter().all(|other| !other.collides(p)));
            }
        }
    }
}
