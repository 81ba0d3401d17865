//! `apus sim figures`: shows published figures and the simulated values, as a table, a document or a report.

use std::io::{self, Write};

use anyhow::Context as _;
use sim::figures::{
    EXTREME_FACTOR, Figure, FigureError, Kind, Role, Row, Sensitivity, Share, Shift, TYPICAL_PERCENT, Tally, Theirs,
    Verdict,
};
use tester::layout::{self, aligned};
use tester::report::model::{
    Axis, Cell, Column, Estimate, Fact, Goal, Report, Scale, Scatter, ScatterPanel, ScatterPoint, Section, Table,
};

use crate::args::sim::Figures as Typed;
use crate::documents::figures::Document;
use crate::terminal::print_json;
use crate::terminal::{Clean, Style};
use crate::{Failure, Status, terminal};

/// Runs `apus sim figures`.
pub fn run(typed: &Typed) -> anyhow::Result<Status> {
    let figures = make(typed).map_err(|error| {
        Failure::wrong("cannot compute the figures", error, "this is a bug in Apus, please report it")
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
    out.flush().context("cannot write the table")?;
    Ok(Status::Good)
}

/// Computes the figures, each on its own thread.
fn make(typed: &Typed) -> Result<Vec<Figure>, FigureError> {
    // In the order of the documents, each once, whatever the order on the command line.
    let wanted = sim::figures::ids().filter(|id| typed.figures.is_empty() || typed.figures.contains(id));
    std::thread::scope(|scope| {
        let started: Vec<_> = wanted.map(|id| scope.spawn(move || sim::figures::named(id, typed.seed))).collect();
        let joined = started.into_iter().map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        joined.flatten().collect()
    })
}

const HEADINGS: [&str; 8] = ["CASE", "QUANTITY", "DOCUMENT", "APUS", "DEVIATION", "NULL MODEL", "FROM", ""];
const SENSITIVITY: [&str; 8] =
    ["PARAMETER", "VALUE", "CHANGED BY", "MOVES", "AGREE", "", "STANDING", "MOST-CHANGED ROW"];

/// Renders all figures as text: one table per figure, with explanations below it.
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
        for (line, verdict) in aligned(&lines, is_text).into_iter().zip(std::iter::once(None).chain(verdicts.map(Some)))
        {
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
        if let Some(agreement) = agreement(figure) {
            writeln!(out, "{}", wrapped(&agreement, 2))?;
        }
        if !figure.sensitivity.is_empty() {
            let mut lines = vec![SENSITIVITY.map(str::to_owned)];
            lines.extend(figure.sensitivity.iter().flat_map(turned));
            for (number, line) in aligned(&lines, is_text).into_iter().enumerate() {
                write!(out, "  ")?;
                out.styled(if number == 0 { Style::Underlined } else { Style::Dim }, &line)?;
                writeln!(out)?;
            }
        }
        if inputs {
            for input in &figure.inputs {
                writeln!(out, "{}", wrapped(&format!("{} = {}: {}", input.name, input.value, input.source), 4))?;
            }
        }
        writeln!(out)?;
    }
    let inputs_hint =
        if inputs { "" } else { " For the inputs, each with its source, use --inputs, --json or -o FILE." };
    writeln!(out, "{}", wrapped(&format!("{}{inputs_hint}", told(Tally::of(figures))), 0))
}

fn line(row: &Row, note: Option<usize>) -> [String; 8] {
    let quantity =
        if row.unit.is_empty() { row.quantity.to_owned() } else { format!("{}, {}", row.quantity, row.unit) };
    let deviation = match row.role {
        Role::Calibrated => None,
        _ => row.deviation_percent().map(|percent| format!("{percent:+.1} %")),
    };
    let mark = if row.verdict() == Verdict::Differs { "differs " } else { "" };
    let note = note.map_or_else(String::new, |number| format!("[{}]", number + 1));
    let none = || "–".to_owned();
    [
        row.case.clone(),
        quantity,
        theirs(row.theirs),
        row.modelled.map_or_else(none, number),
        deviation.unwrap_or_else(none),
        row.null.map_or_else(none, |value| {
            format!("{}{}", number(value), if row.null_agrees() == Some(false) { " differs" } else { "" })
        }),
        row.role.name().to_owned(),
        format!("{mark}{note}").trim_end().to_owned(),
    ]
}

/// Says how many simulated numbers of a figure agree with the published ones, and how many predictions of the null
/// model. `None` if there is nothing to compare.
fn agreement(figure: &Figure) -> Option<String> {
    let Tally { simulated, null, .. } = Tally::of([figure]);
    let rule = figure.null_model.filter(|_| simulated.compared > 0)?;
    Some(format!("Simulated: {} agree. Null model ({rule}): {}.", share(simulated), share(null)))
}

fn share(Share { agree, compared }: Share) -> String {
    format!("{agree} of {compared}")
}

/// Two lines of the sensitivity table: one with the parameter lowered, one with the parameter raised.
fn turned(said: &Sensitivity) -> [[String; 8]; 2] {
    let line = |sign: char, shift: &Shift| {
        [
            said.knob.parameter.to_owned(),
            short(&said.value),
            format!("{sign}{} %", said.knob.percent),
            format!("{:+.1} %", shift.percent),
            share(shift.agreement),
            String::new(),
            said.knob.standing.name().to_owned(),
            shift.row.clone(),
        ]
    };
    let mut up = line('+', &said.up);
    up[0].clear();
    up[1].clear();
    [line('−', &said.down), up]
}

/// The part of `value` before `, of`.
fn short(value: &str) -> String {
    value.split(", of").next().unwrap_or(value).to_owned()
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

/// Formats a number with about three digits; whole numbers from 1000.
fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

/// Whether a column holds text; the others hold numbers.
fn is_text(column: usize) -> bool {
    !(2..6).contains(&column)
}

/// Indents each line of the text by `indent` columns.
fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 110;
    let margin = " ".repeat(indent);
    layout::wrapped(&margin, &margin, text, WIDTH).join("\n")
}

fn told(tally: Tally) -> String {
    let Tally { simulated, null, arithmetic, assumption, calibrated, not_compared } = tally;
    format!(
        "Simulated: {} agree with the document (averages, rates and powers within {TYPICAL_PERCENT:.0} %, minima and maxima \
         within a factor of {EXTREME_FACTOR:.0}, bounds as stated). The null models, one-line rules, predict {} of the \
         same numbers. Arithmetic: {} agree. Assumption: {}. Not counted: {calibrated} calibrated, {not_compared} without \
         a number in the document or in Apus.",
        share(simulated),
        share(null),
        share(arithmetic),
        share(assumption)
    )
}

/// Builds the report: plots, numbers and inputs of each figure.
fn report(seed: u64, figures: &[Figure]) -> anyhow::Result<Report> {
    let mut sections = Vec::new();
    for figure in figures {
        if !figure.plots.is_empty() {
            sections.push(Section::Scatter(scatter(figure)));
        }
        sections.push(Section::Table(numbers(figure)));
        if !figure.sensitivity.is_empty() {
            sections.push(Section::Table(sensitivity(figure)));
        }
        sections.push(Section::Table(inputs(figure)));
    }
    Ok(Report {
        title: "Apus: published figures compared with the simulator".into(),
        lead: told(Tally::of(figures)),
        host: Vec::new(),
        conditions: vec![Fact::new("Seed", seed.to_string()), Fact::new("Figures", figures.len().to_string())],
        notes: vec![
            "All numbers are simulated; nothing was measured for this report.".into(),
            "Inputs are parameters of the hardware and of the method, each with its source. “Recalled” means that the document was cited from memory; “estimate” means that no document was found."
                .into(),
            "Simulated numbers are predictions. Arithmetic follows from the inputs in one line. An assumption was chosen because the document states no value. A calibrated number agrees by construction, so it proves nothing."
                .into(),
        ],
        sections,
        results: serde_json::to_value(Document::new(seed, figures)).context("cannot write the document")?,
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
        ("Apus", ""),
        ("deviation", "%"),
        ("null model", ""),
        ("from", ""),
        ("remarks", ""),
    ];
    let text = |text: &str| Cell::Text(text.to_owned());
    let rows = figure.rows.iter().map(|row| {
        let exact = |value| Cell::Number(Estimate::exact(value));
        let document = match row.theirs {
            Theirs::Value(value) => exact(value),
            Theirs::Nothing => Cell::Unknown("the document has no number".into()),
            range => text(&theirs(range)),
        };
        let mark = match (row.verdict(), row.theirs, row.kind) {
            (Verdict::Differs, Theirs::Value(_), Kind::Extreme) => "differs by more than a factor of 2. ",
            (Verdict::Differs, ..) => "differs. ",
            _ => "",
        };
        vec![
            text(&row.case),
            text(row.quantity),
            text(row.unit),
            document,
            row.modelled.map_or_else(|| Cell::Unknown("not modelled".into()), exact),
            row.deviation_percent().map_or_else(|| Cell::Unknown("nothing to compare".into()), exact),
            row.null.map_or_else(|| Cell::Unknown("the null model has no prediction".into()), exact),
            text(row.role.name()),
            text(&format!("{mark}{}", row.explanation.as_deref().unwrap_or_default())),
        ]
    });
    let caption = if figure.plots.is_empty() {
        format!("{} {}. {}", figure.method, figure.document, agreement(figure).unwrap_or_default())
    } else {
        format!("{}. {}", figure.document, agreement(figure).unwrap_or_default())
    };
    Table {
        title: format!("{}: {}", figure.id, figure.title),
        caption,
        columns: columns.map(|(quantity, unit)| Column::new(quantity, unit)).into(),
        rows: rows.collect(),
    }
}

fn sensitivity(figure: &Figure) -> Table {
    let shown = |line: [String; 8]| line.into_iter().enumerate().filter(|(column, _)| *column != 5);
    let rows = figure.sensitivity.iter().flat_map(turned);
    Table {
        title: format!("{}: sensitivity", figure.id),
        caption:
            "How the rows change if one parameter changes: the row that changes most, and how many rows then agree, including calibrated ones."
                .into(),
        columns: ["parameter", "value", "changed by", "moves", "agree", "standing", "most-changed row"]
            .map(|name| Column::new(name, ""))
            .into(),
        rows: rows.map(|line| shown(line).map(|(_, text)| Cell::Text(text)).collect()).collect(),
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
        let line = |needle: &str| plain.lines().find(|line| line.contains(needle)).unwrap_or_else(|| panic!("{plain}"));
        assert!(line("30 cores at 800 MHz").contains("123") && line("30 cores at 800 MHz").contains("calibrated"));
        assert!(line("30 cores at 2.2 GHz").contains("185") && line("30 cores at 2.2 GHz").contains("simulated"));
        assert!(line("saving a core").contains("arithmetic"), "{plain}");
        assert!(line("processor.power.curve.2").contains("fitted"), "{plain}");
        assert!(plain.contains("Simulated: 1 of 1 agree. Null model (at the base frequency"), "{plain}");
        assert!(plain.lines().all(|line| line.chars().count() <= 150), "{plain}");
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
