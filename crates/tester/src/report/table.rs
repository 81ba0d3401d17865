//! Draws tables of numbers. The heading shows the units; hovering over a number shows all its digits.

use super::model::{Cell, Estimate, Table};
use super::scale::{grouped, number};
use super::scatter::ends;
use super::svg::Markup;

/// Text with more characters than this is wrapped.
const LONG: usize = 48;

pub(super) fn draw(markup: &mut Markup, table: &Table) {
    markup.element("div", &[("class", "scroll")], |m| {
        m.element("table", &[], |m| {
            m.element("thead", &[], |m| m.element("tr", &[], |m| head(m, table)));
            m.newline();
            m.element("tbody", &[], |m| {
                for row in &table.rows {
                    m.element("tr", &[], |m| {
                        row.iter().for_each(|c| cell(m, c));
                        for _absent in row.len()..table.columns.len() {
                            cell(m, &Cell::Unknown("no data".into()));
                        }
                    });
                    m.newline();
                }
            });
        });
    });
    markup.newline();
    if table.rows.is_empty() {
        markup.leaf("p", &[("class", "missing")], "No data.");
    }
}

fn head(m: &mut Markup, table: &Table) {
    for (i, column) in table.columns.iter().enumerate() {
        let numeric =
            table.rows.iter().filter_map(|row| row.get(i)).any(|c| matches!(c, Cell::Count(_) | Cell::Number(_)));
        let class = if numeric { "n" } else { "" };
        m.element("th", &[("scope", "col"), ("class", class)], |m| {
            m.text(&column.quantity);
            if !column.unit.is_empty() {
                m.leaf("small", &[], &column.unit);
            }
        });
    }
}

fn cell(m: &mut Markup, cell: &Cell) {
    match cell {
        Cell::Text(text) if text.chars().count() > LONG => m.leaf("td", &[("class", "long")], text),
        Cell::Text(text) => m.leaf("td", &[], text),
        Cell::Count(n) => m.leaf("td", &[("class", "n")], &grouped(&n.to_string())),
        Cell::Number(n) if !n.value.is_finite() => m.leaf("td", &[("class", "n unknown")], "no data"),
        Cell::Number(n) => m.element("td", &[("class", "n"), ("title", &exact(*n))], |m| {
            m.text(&number(n.value));
            if let Some((low, high)) = ends(*n) {
                m.leaf("small", &[], &format!("{} to {}", number(low), number(high)));
            }
        }),
        Cell::Unknown(why) => m.leaf("td", &[("class", "unknown")], why),
    }
}

fn exact(n: Estimate) -> String {
    match ends(n) {
        Some((low, high)) => format!("{} ({low} to {high})", n.value),
        None => n.value.to_string(),
    }
}
