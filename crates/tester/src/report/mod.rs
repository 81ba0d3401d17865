//! Reports: results as one self-contained HTML file.
//!
//! A [`Report`] is plain data. [`render`] turns it into the text of the HTML file; [`write()`] writes the file. The
//! HTML file needs no other file: figures are inline SVG. It loads nothing and runs no script; its
//! Content-Security-Policy forbids both. The same data always give the same bytes.
//!
//! The element `apus-data` contains the whole report, with the results from which it was made, as JSON, so that a
//! report can be read back and drawn again. Numbers that are not finite are `null` there, because JSON cannot represent
//! them. For a distribution, the element contains only the points that are drawn. Histograms, the largest part of a
//! result, are only in the documents that the commands write (`--json`, `-o`): see [`without_histograms`].
//!
//! Where to start: [`model`] defines the content of a report. `scatter.rs`, `distribution.rs`, `trace.rs` and `bars.rs`
//! each draw one kind of figure. They use `plot.rs` (panels, axes, key), `scale.rs` (ticks, numbers), `labels.rs`
//! (places for labels) and `svg.rs` (escaping).

pub mod model;

mod bars;
mod distribution;
pub(crate) mod energy;
mod labels;
mod plot;
mod results;
mod scale;
mod scatter;
mod style;
mod svg;
mod table;
mod trace;

use std::path::Path;

use live::Error;
use serde::Serialize;

pub use distribution::tail;
use model::{Fact, Known, Report, Section};
pub use results::of_results;
use style::Styles;
use svg::Markup;

/// Content Security Policy of the page: the browser loads nothing and runs no script. It only accepts the embedded
/// style sheet.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The data embedded in the page.
#[derive(Serialize)]
struct Embedded<'a> {
    apus: &'static str,
    schema: &'static str,
    report: &'a Report,
}

/// Renders the report as HTML text.
pub fn render(report: &Report) -> String {
    let styles = Styles::of(report);
    let mut markup = Markup::default();
    markup.whole("<!DOCTYPE html>\n");
    markup.element("html", &[("lang", "en")], |m| {
        m.element("head", &[], |m| head(m, report));
        m.newline();
        m.element("body", &[], |m| {
            m.element("main", &[], |m| {
                preamble(m, report);
                for section in &report.sections {
                    figure(m, section, &styles);
                }
                let text = format!(
                    "Apus {}. The numbers behind every figure are embedded in this file as JSON, in the element “apus-data”.",
                    env!("CARGO_PKG_VERSION")
                );
                m.leaf("footer", &[], &text);
            });
            m.newline();
            m.element("script", &[("type", "application/json"), ("id", "apus-data")], |m| m.whole(&embedded(report)));
        });
    });
    markup.newline();
    markup.into_string()
}

/// The JSON of results without their histograms (objects under the key `histogram`), for [`Report::results`].
///
/// A histogram has a pair of numbers for every bucket. A report that included the histograms was 6 MB large, four
/// fifths of it histograms.
pub fn without_histograms(mut results: serde_json::Value) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.retain(|name, field| !(name == "histogram" && field.is_object()));
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut results);
    results
}

/// Writes the report to `path`.
pub fn write(report: &Report, path: &Path) -> Result<(), Error> {
    crate::replace::write(path, render(report).as_bytes()).map_err(|error| Error::Lacking {
        what: format!("write the report to {}", path.display()),
        why: error.to_string(),
        fix: "choose another file with -o".into(),
    })
}

fn head(m: &mut Markup, report: &Report) {
    m.empty("meta", &[("charset", "utf-8")]);
    m.empty("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
    m.empty("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    m.leaf("title", &[], &report.title);
    m.element("style", &[], |m| m.whole(include_str!("page.css")));
}

fn preamble(m: &mut Markup, report: &Report) {
    m.leaf("h1", &[], &report.title);
    if !report.lead.is_empty() {
        m.leaf("p", &[("class", "lead")], &report.lead);
    }
    m.newline();
    m.element("div", &[("class", "facts")], |m| {
        facts(m, "Host", &report.host);
        facts(m, "Conditions", &report.conditions);
    });
    m.newline();
    if !report.notes.is_empty() {
        m.element("ul", &[("class", "notes")], |m| report.notes.iter().for_each(|note| m.leaf("li", &[], note)));
        m.newline();
    }
}

fn facts(m: &mut Markup, title: &str, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    m.element("section", &[], |m| {
        m.leaf("h2", &[], title);
        m.element("dl", &[], |m| {
            for fact in facts {
                m.leaf("dt", &[], &fact.name);
                match &fact.value {
                    Known::Value(value) => m.leaf("dd", &[], value),
                    Known::Unknown(why) => m.leaf("dd", &[("class", "unknown")], &format!("unknown: {why}")),
                }
            }
        });
    });
}

fn figure(m: &mut Markup, section: &Section, styles: &Styles) {
    let (title, caption) = match section {
        Section::Scatter(f) => (&f.title, &f.caption),
        Section::Distribution(f) => (&f.title, &f.caption),
        Section::Trace(f) => (&f.title, &f.caption),
        Section::Bars(f) => (&f.title, &f.caption),
        Section::Table(f) => (&f.title, &f.caption),
    };
    m.element("figure", &[], |m| {
        m.leaf("h2", &[], title);
        if !caption.is_empty() {
            m.leaf("p", &[("class", "caption")], caption);
        }
        m.newline();
        match section {
            Section::Scatter(f) => scatter::draw(m, f, styles),
            Section::Distribution(f) => distribution::draw(m, f, styles),
            Section::Trace(f) => trace::draw(m, f, styles),
            Section::Bars(f) => bars::draw(m, f, styles),
            Section::Table(f) => table::draw(m, f),
        }
    });
    m.newline();
}

/// The report as JSON, escaped so that an HTML parser finds neither an end tag nor a comment in it. The escaped
/// characters occur only inside JSON strings, where `\u003c` means `<` (RFC 8259, 7).
fn embedded(report: &Report) -> String {
    let whole = Embedded { apus: env!("CARGO_PKG_VERSION"), schema: "apus.report/1", report };
    let json = serde_json::to_string(&whole).expect("plain data with text keys always has a JSON form");
    let escaped = |c: char| matches!(c, '<' | '>' | '&') || units::acts(c);
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match escaped(c) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests;
