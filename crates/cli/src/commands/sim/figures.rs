//! `apus sim figures`: as a table, a document, a report.

use std::io::{self, Write};

use anyhow::Context as _;
use sim::figures::{EXTREME_FACTOR, Figure, Kind, Role, Row, TYPICAL_PERCENT, Theirs, Verdict};
use sim::machine::MachineError;
use tester::report::model::{
    Axis, Cell, Column, Estimate, Fact, Goal, Report, Scale, Scatter, ScatterPanel, ScatterPoint, Section, Table,
};

use crate::args::sim::Figures as Typed;
use crate::commands::print_json;
use crate::documents::figures::{Document, Summary};
use crate::terminal::{Clean, Style};
use crate::{Failure, Status, terminal};

/// Makes the figures, and says them.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let figures = make(typed).map_err(|error| {
        Failure::wrong("read a machine that is built in", error.to_string(), "report this: the program is at fault")
    })?;
    if let Some(path) = &typed.output {
        tester::report::write(&report(typed.seed, &figures)?, path)?;
    }
    if typed.json {
        print_json(&Document::new(typed.seed, &figures))?;
        return Ok(Status::Good);
    }
    let mut out = terminal::out();
    render(&mut out, &figures, typed.inputs)?;
    if let Some(path) = &typed.output {
        writeln!(out, "report: {}", path.display())?;
    }
    out.flush().context("write the table")?;
    Ok(Status::Good)
}

fn make(typed: &Typed) -> Result<Vec<Figure>, MachineError> {
    if typed.figures.is_empty() {
        return sim::figures::all(typed.seed);
    }
    // In the documents' order, and each once, however they were typed.
    let wanted = sim::figures::ids().filter(|id| typed.figures.contains(id));
    wanted.filter_map(|id| sim::figures::named(id, typed.seed)).collect()
}

const HEADINGS: [&str; 6] = ["CASE", "QUANTITY", "DOCUMENT", "MODEL", "DEVIATION", ""];

/// All of it as text: a table a figure, what has to be explained below it.
fn render(out: &mut Clean<impl Write>, figures: &[Figure], inputs: bool) -> io::Result<()> {
    for figure in figures {
        out.styled(Style::Bold, &format!("{}  {}", figure.id, figure.title))?;
        writeln!(out)?;
        out.styled(Style::Dim, figure.document)?;
        writeln!(out)?;
        let mut notes: Vec<&str> = Vec::new();
        let mut lines = vec![HEADINGS.map(str::to_owned)];
        for row in &figure.rows {
            let note = row.explanation.as_deref().map(|why| {
                let known = notes.iter().position(|known| *known == why);
                known.unwrap_or_else(|| {
                    notes.push(why);
                    notes.len() - 1
                })
            });
            lines.push(line(row, note));
        }
        let verdicts = figure.rows.iter().map(Row::verdict);
        for (line, verdict) in aligned(&lines).into_iter().zip(std::iter::once(None).chain(verdicts.map(Some))) {
            let style = match verdict {
                Some(Verdict::Differs) => Style::Yellow,
                Some(Verdict::Calibrated | Verdict::NotCompared) => Style::Dim,
                Some(Verdict::Agrees) => Style::Plain,
                None => Style::Underlined,
            };
            write!(out, "  ")?;
            out.styled(style, &line)?;
            writeln!(out)?;
        }
        for (number, why) in notes.iter().enumerate() {
            writeln!(out, "{}", wrapped(&format!("[{}] {why}", number + 1), 4))?;
        }
        writeln!(out, "{}", wrapped(&figure.method, 2))?;
        if inputs {
            for input in &figure.inputs {
                writeln!(out, "{}", wrapped(&format!("{} = {}: {}", input.name, input.value, input.source), 4))?;
            }
        }
        writeln!(out)?;
    }
    let inputs_hint = if inputs { "" } else { " The inputs, each with its source: --inputs, --json, -o FILE." };
    writeln!(out, "{}", wrapped(&format!("{}{inputs_hint}", told(Summary::of(figures))), 0))
}

fn line(row: &Row, note: Option<usize>) -> [String; 6] {
    let quantity =
        if row.unit.is_empty() { row.quantity.to_owned() } else { format!("{}, {}", row.quantity, row.unit) };
    let deviation = match row.role {
        Role::Calibrated => "calibrated".to_owned(),
        Role::Prediction => {
            row.deviation_percent().map_or_else(|| "–".to_owned(), |percent| format!("{percent:+.1} %"))
        }
    };
    let mark = if row.verdict() == Verdict::Differs { "differs " } else { "" };
    let note = note.map_or_else(String::new, |number| format!("[{}]", number + 1));
    [
        row.case.clone(),
        quantity,
        theirs(row.theirs),
        row.modelled.map_or_else(|| "–".to_owned(), number),
        deviation,
        format!("{mark}{note}").trim_end().to_owned(),
    ]
}

fn theirs(theirs: Theirs) -> String {
    match theirs {
        Theirs::Value(value) => number(value),
        Theirs::AtLeast(least) => format!("≥ {}", number(least)),
        Theirs::AtMost(most) => format!("≤ {}", number(most)),
        Theirs::Between(least, most) => format!("{} to {}", number(least), number(most)),
        Theirs::Nothing => "–".to_owned(),
    }
}

/// Three digits or so; whole numbers from 1000 on.
fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

/// Columns as wide as their widest cell: text to the left, numbers to the right.
fn aligned(lines: &[[String; 6]]) -> Vec<String> {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let cell = |(column, text): (usize, &String)| {
        let width = widths[column];
        if (2..5).contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
    };
    lines
        .iter()
        .map(|line| line.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned())
        .collect()
}

/// Text in lines of at most 110 characters, the first `indent` from the edge.
fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 110;
    let margin = " ".repeat(indent);
    let mut lines = vec![margin.clone()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always one");
        if last.chars().count() + 1 + word.chars().count() > WIDTH && last.trim() != "" {
            lines.push(format!("{margin}{word}"));
        } else {
            if last.len() > margin.len() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}

fn told(summary: Summary) -> String {
    let Summary { compared, agree, differ, calibrated, not_compared } = summary;
    format!(
        "{compared} predictions beside a number of a document: {agree} agree (within {TYPICAL_PERCENT:.0} %; minima and \
         maxima within a factor of {EXTREME_FACTOR:.0}), {differ} differ and are explained. {calibrated} numbers were \
         calibrated on, {not_compared} stand alone."
    )
}

/// The report: for each figure its plots, its numbers, its inputs.
fn report(seed: u64, figures: &[Figure]) -> anyhow::Result<Report> {
    let mut sections = Vec::new();
    for figure in figures {
        if !figure.plots.is_empty() {
            sections.push(Section::Scatter(scatter(figure)));
        }
        sections.push(Section::Table(numbers(figure)));
        sections.push(Section::Table(inputs(figure)));
    }
    Ok(Report {
        title: "Apus: the figures of the source documents, and what the models say".into(),
        lead: told(Summary::of(figures)),
        host: Vec::new(),
        conditions: vec![Fact::new("Seed", seed.to_string()), Fact::new("Figures", figures.len().to_string())],
        notes: vec![
            "Everything here is modelled: nothing was measured for this report.".into(),
            "Inputs are parameters of hardware and method, each with its source; “recalled” means that the document was \
             cited from memory and not read again, “estimate” that no document was found."
                .into(),
            "A calibrated number agrees by construction and says nothing; the other rows are the prediction.".into(),
        ],
        sections,
        results: serde_json::to_value(Document::new(seed, figures)).context("write the document")?,
    })
}

fn scatter(figure: &Figure) -> Scatter {
    let axis =
        |(quantity, unit): (&str, &str)| Axis { quantity: quantity.into(), unit: unit.into(), scale: Scale::Linear };
    let panels = figure.plots.iter().map(|plot| ScatterPanel {
        title: plot.title.clone(),
        points: plot
            .points
            .iter()
            .map(|&(x, y)| ScatterPoint { series: "modelled".into(), x: Estimate::exact(x), y: Estimate::exact(y) })
            .collect(),
        goals: plot.lines.iter().map(|(label, value)| Goal { label: label.clone(), value: *value }).collect(),
    });
    Scatter {
        title: format!("{}: {}", figure.id, figure.title),
        caption: figure.method.clone(),
        x: axis(figure.plots[0].x),
        y: axis(figure.plots[0].y),
        panels: panels.collect(),
    }
}

fn numbers(figure: &Figure) -> Table {
    let columns = [
        ("case", ""),
        ("quantity", ""),
        ("unit", ""),
        ("document", ""),
        ("model", ""),
        ("deviation", "%"),
        ("remarks", ""),
    ];
    let text = |text: &str| Cell::Text(text.to_owned());
    let rows = figure.rows.iter().map(|row| {
        let exact = |value| Cell::Number(Estimate::exact(value));
        let document = match row.theirs {
            Theirs::Value(value) => exact(value),
            Theirs::Nothing => Cell::Unknown("the document shows no number".into()),
            range => text(&theirs(range)),
        };
        let role = match (row.role, row.verdict(), row.kind) {
            (Role::Calibrated, ..) => "calibrated on this row. ",
            (_, Verdict::Differs, Kind::Typical) => "differs. ",
            (_, Verdict::Differs, Kind::Extreme) => "differs by more than a factor of 2. ",
            _ => "",
        };
        vec![
            text(&row.case),
            text(row.quantity),
            text(row.unit),
            document,
            row.modelled.map_or_else(|| Cell::Unknown("not modelled".into()), exact),
            row.deviation_percent().map_or_else(|| Cell::Unknown("nothing to compare".into()), exact),
            text(&format!("{role}{}", row.explanation.as_deref().unwrap_or_default())),
        ]
    });
    let caption = if figure.plots.is_empty() {
        format!("{} {}.", figure.method, figure.document)
    } else {
        figure.document.into()
    };
    Table {
        title: format!("{}: {}", figure.id, figure.title),
        caption,
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    }
}

fn inputs(figure: &Figure) -> Table {
    let cells = |i: &sim::figures::Input| [&i.name, &i.value, &i.source].map(|text| Cell::Text(text.clone())).to_vec();
    Table {
        title: format!("{}: inputs", figure.id),
        caption: String::new(),
        columns: ["parameter", "value", "source"].map(|name| Column::new(name, "")).into(),
        rows: figure.inputs.iter().map(cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        sim::figures::named("s0.7", 1).unwrap().unwrap()
    }

    #[test]
    fn the_table_has_a_line_a_row_and_no_colours_unless_asked() {
        let figure = figure();
        let rendered = |inputs, colours| {
            let mut out = Clean::new(Vec::new(), colours);
            render(&mut out, std::slice::from_ref(&figure), inputs).unwrap();
            String::from_utf8(out.into_inner()).unwrap()
        };
        let plain = rendered(false, false);
        assert!(!plain.contains('\u{1b}'));
        let line = plain.lines().find(|line| line.contains("30 cores at 800 MHz")).unwrap();
        assert!(line.contains("123") && line.contains('%'), "{line}");
        assert!(plain.lines().all(|line| line.chars().count() <= 130), "{plain}");
        assert!(plain.contains("[1]") && plain.contains("predictions"));
        assert!(rendered(true, true).contains("\u{1b}[1m"));
    }

    #[test]
    fn numbers_are_short_and_text_is_wrapped() {
        let shown = [14_851_255.0, 530.0, 12.04, 7.592, 0.0, 0.3].map(number);
        assert_eq!(shown, ["14851255", "530", "12.0", "7.59", "0", "0.30"]);
        assert_eq!(wrapped("a b", 2), "  a b");
        assert!(wrapped(&"word ".repeat(60), 4).lines().all(|line| line.starts_with("    word") && line.len() <= 110));
    }
}
