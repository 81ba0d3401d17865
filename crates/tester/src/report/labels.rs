//! Where labels go: beside what they name, upon nothing, and never upon each other.

use super::svg::{Anchor, At, Rect};

/// The height of a label's line, in pixels; `page.css` sets the text at 12 px.
pub(super) const LINE: f64 = 14.0;

/// The width that `text` takes at most, in pixels at 12 px: fonts differ, so this is generous.
pub(super) fn width(text: &str) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' | '(' | ')' => 4.6,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 11.0,
        c if c.is_ascii_uppercase() => 8.8,
        c if (c as u32) < 0x2E80 => 7.2,
        _ => 12.5, // CJK and the like are square.
    };
    text.chars().map(of).sum()
}

/// A label that wants a place.
pub(super) struct Wanted<'a> {
    pub text: &'a str,
    /// What it may stand beside, best first.
    pub beside: Vec<At>,
}

/// A label that has one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Placed {
    /// Where the text's baseline begins, or ends.
    pub at: At,
    pub anchor: Anchor,
    pub bounds: Rect,
    /// The point that it stands beside; far ones want a line between.
    pub of: At,
    pub far: bool,
}

/// What labels keep away from.
pub(super) struct Scene {
    /// The room that there is.
    pub room: Rect,
    /// What must not be covered.
    pub blocked: Vec<Rect>,
    /// What had better not be covered: points of lines.
    pub lines: Vec<At>,
}

/// Finds a place for each label, or `None` where there is no free one. Labels improve their places
/// in turns, each given the others', a fixed number of times: same input, same places.
pub(super) fn place(scene: &Scene, wanted: &[Wanted<'_>]) -> Vec<Option<Placed>> {
    // Sorted, those within a label's width are found quickly.
    let mut lines = scene.lines.clone();
    lines.sort_by(|a, b| a.x.total_cmp(&b.x));
    let candidates: Vec<Vec<(f64, Placed)>> = wanted.iter().map(|w| candidates(scene, &lines, w)).collect();
    let mut placed: Vec<Option<Placed>> = vec![None; wanted.len()];
    // Those with the least choice go first.
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| candidates[*i].len());
    for _round in 0..6 {
        for &i in &order {
            let free = |p: &Placed| {
                let others = placed.iter().enumerate().filter(|(j, _)| *j != i).filter_map(|(_, other)| other.as_ref());
                others.into_iter().all(|other| !other.bounds.overlaps(&p.bounds))
            };
            placed[i] = candidates[i].iter().find(|(_, p)| free(p)).map(|(_, p)| *p);
        }
    }
    placed
}

/// All places for one label that cover nothing blocked, the best first.
fn candidates(scene: &Scene, lines: &[At], wanted: &Wanted<'_>) -> Vec<(f64, Placed)> {
    let (w, h) = (width(wanted.text), LINE);
    let mut all = Vec::new();
    for (rank, of) in wanted.beside.iter().enumerate() {
        for (ring, gap) in [9.0, 20.0, 34.0, 50.0, 70.0].into_iter().enumerate() {
            for (turn, (dx, dy)) in DIRECTIONS.into_iter().enumerate() {
                let (x, y) = (of.x + dx * gap, of.y + dy * gap);
                let anchor = if dx > 0.3 {
                    Anchor::Start
                } else if dx < -0.3 {
                    Anchor::End
                } else {
                    Anchor::Middle
                };
                let left = match anchor {
                    Anchor::Start => x,
                    Anchor::Middle => x - w / 2.0,
                    Anchor::End => x - w,
                };
                let bounds = Rect { x: left, y: y - h / 2.0, w, h };
                if !scene.room.holds(&bounds) || scene.blocked.iter().any(|b| b.overlaps(&bounds)) {
                    continue;
                }
                let from = lines.partition_point(|at| at.x < bounds.x);
                let within = lines[from..].iter().take_while(|at| at.x <= bounds.right());
                let crossed = within.filter(|at| bounds.contains(**at)).count();
                let cost = crossed as f64 * 8.0 + rank as f64 * 2.0 + ring as f64 * 10.0 + turn as f64 * 0.5;
                // The baseline lies a third of the height below the middle.
                let placed = Placed { at: At { x, y: y + h * 0.3 }, anchor, bounds, of: *of, far: ring > 0 };
                all.push((cost, placed));
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// Right, left, above, below, then the corners.
const DIRECTIONS: [(f64, f64); 8] =
    [(1.0, 0.0), (-1.0, 0.0), (0.0, -1.4), (0.0, 1.4), (0.8, -1.0), (0.8, 1.0), (-0.8, -1.0), (-0.8, 1.0)];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: Rect = Rect { x: 0.0, y: 0.0, w: 300.0, h: 200.0 };

    #[test]
    fn a_crowd_is_spread_out_and_the_rest_is_left_to_the_key() {
        let scene = Scene { room: ROOM, blocked: vec![], lines: vec![] };
        let crowd = |n| {
            (0..n).map(|_| Wanted { text: "adaptive", beside: vec![At { x: 150.0, y: 100.0 }] }).collect::<Vec<_>>()
        };
        assert!(place(&scene, &crowd(6)).iter().all(Option::is_some));
        assert!(place(&scene, &crowd(60)).iter().any(Option::is_none));
    }

    proptest! {
        #[test]
        fn labels_cover_nothing(points in prop::collection::vec((0.0..300.0, 0.0..200.0), 1..12)) {
            let marks: Vec<At> = points.iter().map(|&(x, y)| At { x, y }).collect();
            let blocked: Vec<Rect> = marks.iter().map(|a| Rect { x: a.x - 5.0, y: a.y - 5.0, w: 10.0, h: 10.0 }).collect();
            let wanted: Vec<Wanted> = marks.iter().map(|a| Wanted { text: "hybrid300", beside: vec![*a] }).collect();
            let scene = Scene { room: ROOM, blocked, lines: vec![] };
            let placed: Vec<Placed> = place(&scene, &wanted).into_iter().flatten().collect();
            for (i, p) in placed.iter().enumerate() {
                prop_assert!(ROOM.holds(&p.bounds));
                prop_assert!(scene.blocked.iter().all(|b| !b.overlaps(&p.bounds)));
                prop_assert!(placed[..i].iter().all(|other| !other.bounds.overlaps(&p.bounds)));
            }
        }
    }
}
