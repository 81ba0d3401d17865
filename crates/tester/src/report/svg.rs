//! A small writer of SVG and HTML. It passes all attributes and all text through [`escape`]. The call that opens an
//! element also closes it.

use std::fmt::Write;

/// Escapes `text` for use in an element or in an attribute in double quotes. Control characters that XML 1.0 (section
/// 2.2) forbids become U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if units::acts(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Formats a length in pixels, to a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".into(),
        Some(whole) => whole.into(),
        None => text,
    }
}

/// A point of a drawing, in pixels. y increases downwards.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct At {
    pub x: f64,
    pub y: f64,
}

/// A rectangle of a drawing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.x + self.w
    }
    pub fn bottom(&self) -> f64 {
        self.y + self.h
    }
    pub fn overlaps(&self, other: &Self) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }
    pub fn holds(&self, other: &Self) -> bool {
        other.x >= self.x && other.right() <= self.right() && other.y >= self.y && other.bottom() <= self.bottom()
    }
    pub fn contains(&self, at: At) -> bool {
        (self.x..=self.right()).contains(&at.x) && (self.y..=self.bottom()).contains(&at.y)
    }
}

/// Which point of a label's text is at the label's position: the start, middle or end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// The text of the markup written so far.
#[derive(Default)]
pub(super) struct Markup(String);

impl Markup {
    pub fn into_string(self) -> String {
        self.0
    }

    /// Writes `<name key="value"…>`, the output of `inside`, and `</name>`.
    pub fn element(&mut self, name: &str, attributes: &[(&str, &str)], inside: impl FnOnce(&mut Self)) {
        self.open(name, attributes);
        self.0.push('>');
        inside(self);
        let _ = write!(self.0, "</{name}>");
    }

    /// Writes `<name key="value"…/>`, for SVG and for void elements of HTML.
    pub fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.open(name, attributes);
        self.0.push_str("/>");
    }

    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let _ = write!(self.0, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.0, " {key}=\"{}\"", escape(value));
        }
    }

    /// Writes escaped text.
    pub fn text(&mut self, text: &str) {
        self.0.push_str(&escape(text));
    }

    /// Writes an element that contains only text.
    pub fn leaf(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.element(name, attributes, |m| m.text(text));
    }

    /// Writes markup that needs no escaping: markup from this module, a constant, or JSON that is already escaped.
    pub fn whole(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Writes a line break, so that the file is readable.
    pub fn newline(&mut self) {
        self.0.push('\n');
    }

    /// Writes `text` with its baseline at `at`.
    pub fn label(&mut self, class: &str, at: At, anchor: Anchor, text: &str) {
        self.leaf(
            "text",
            &[("class", class), ("x", &px(at.x)), ("y", &px(at.y)), ("text-anchor", anchor.word())],
            text,
        );
    }

    /// Writes a straight line.
    pub fn line(&mut self, class: &str, from: At, to: At) {
        let [x1, y1, x2, y2] = [from.x, from.y, to.x, to.y].map(px);
        self.empty("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
    }

    /// Writes a rectangle.
    pub fn rect(&mut self, class: &str, r: Rect) {
        let [x, y, w, h] = [r.x, r.y, r.w, r.h].map(px);
        self.empty("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &w), ("height", &h)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text_or_an_attribute() {
        let mut markup = Markup::default();
        markup.leaf("b", &[("title", "\" onload='x' <\u{0}")], "</b><script>&");
        assert_eq!(
            markup.into_string(),
            "<b title=\"&quot; onload=&#39;x&#39; &lt;\u{fffd}\">&lt;/b&gt;&lt;script&gt;&amp;</b>"
        );
    }

    #[test]
    fn lengths_are_short() {
        assert_eq!([0.0, -0.04, 12.0, 3.13, 2.96].map(px), ["0", "0", "12", "3.1", "3"]);
    }
}
