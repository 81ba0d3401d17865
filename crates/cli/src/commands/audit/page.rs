//! Writes a report as one self-contained HTML file.

use std::fmt::Write as _;

use audit::spaced;
use tester::document::Name;

use super::wording::{SIZES, capital, delay, instruction, once, withheld, without_step};
use crate::documents::audit::{Document, Finding};

/// Content Security Policy of the page: nothing is loaded and no script runs; the style sheet is embedded.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Renders the HTML page. All text that comes from the host is escaped.
pub(super) fn of(document: &Document) -> String {
    // Writing to a String cannot fail.
    let mut page = String::new();
    let host = &document.host;
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Audit of {name}</title><style>{css}</style></head>\n<body><h1>Audit of {name}</h1>\n",
        name = escaped(&host.name),
        css = include_str!("page.css"),
    );
    facts(&mut page, document);
    first(&mut page, document);
    causes(&mut page, document);
    budget(&mut page, document);
    type IsOf = fn(&Finding) -> bool;
    let parts: [(&str, IsOf); 5] = [
        ("Accepted by the baseline", |finding| finding.accepted),
        ("Choices on which good sources disagree", |finding| {
            !finding.accepted && finding.verdict == "sources-disagree"
        }),
        ("Unknown", |finding| finding.verdict == "unknown"),
        ("Passed", |finding| finding.verdict == "pass"),
        ("Not applicable", |finding| finding.verdict == "not-applicable"),
    ];
    for (title, is_of) in parts {
        let findings: Vec<&Finding> = document.findings.iter().filter(|finding| is_of(finding)).collect();
        if findings.is_empty() {
            continue;
        }
        let _ = writeln!(page, "<details><summary>{title}: {}</summary>", findings.len());
        findings.into_iter().for_each(|finding| one(&mut page, finding, &finding.subject));
        page.push_str("</details>\n");
    }
    groups(&mut page, document);
    let _ = writeln!(page, "<p class=\"quiet\">apus {}</p></body></html>", escaped(&document.apus));
    page
}

/// Renders the actions to do first.
fn first(page: &mut String, document: &Document) {
    if !document.do_first.is_empty() {
        page.push_str("<h2>Do these first</h2>\n<ol class=\"first\">\n");
    }
    for action in &document.do_first {
        let lines: Vec<String> = action.lines.iter().map(|line| instruction(line)).collect();
        let _ = write!(page, "<li><h3>{}</h3><pre>{}</pre>", escaped(&action.title), escaped(&lines.join("\n")));
        if !action.changes.is_empty() {
            let _ = write!(page, "<p>Changes: <code>{}</code></p>", escaped(&action.changes.join("  ")));
        }
        let risks = capital(&risks(&action.risks));
        let costs = once(&action.costs);
        if action.kind == "ask" {
            let why = format!("{} {}", action.gain.text, withheld(action.findings.len()));
            let _ = writeln!(page, "<dl><dt>Why</dt><dd>{}</dd></dl></li>", escaped(&why));
            continue;
        }
        let _ = writeln!(
            page,
            "<dl><dt>Why</dt><dd>{}</dd><dt>Risk and cost</dt><dd>{}{}{}</dd></dl></li>",
            escaped(&action.gain.text),
            escaped(&risks),
            if risks.is_empty() { "" } else { ". " },
            escaped(&costs)
        );
    }
    if !document.do_first.is_empty() {
        page.push_str("</ol>\n");
    }
    let is_fixed = |key: &String| document.do_first.iter().any(|action| action.findings.contains(key));
    let said = document.causes.iter().flat_map(|cause| &cause.said);
    let findings = said.flat_map(|said| said.findings.iter().map(|key| (said.id.as_str(), is_fixed(key))));
    if let Some(text) = without_step(findings).filter(|_| !document.do_first.is_empty()) {
        let _ = writeln!(page, "<p>{}</p>", escaped(&text));
    }
    if document.do_first.iter().any(|action| action.kind == "set") {
        page.push_str(
            "<p class=\"quiet\">To apply all settings together, run on the audited host <code>apus audit --fix \
             FILE.toml</code>, then <code>apus tune apply FILE.toml</code>; <code>apus tune rollback</code> undoes them.</p>\n",
        );
    }
    let ways: Vec<String> =
        document.unlocks.iter().map(|one| format!("{} {} ({} more rules)", one.option, one.value, one.rules)).collect();
    if !ways.is_empty() {
        let _ = writeln!(page, "<p>More could be checked with {}.</p>", escaped(&ways.join(", ")));
    }
}

/// Names what a fix puts at risk.
fn risks(names: &[Name<audit::Risk>]) -> String {
    let known = audit::Risk::ALL.into_iter().filter(|risk| names.contains(&risk.into()));
    known.map(audit::Risk::text).collect::<Vec<_>>().join("; ")
}

/// Renders warnings and failures by root cause; findings that differ only in their subject are merged.
fn causes(page: &mut String, document: &Document) {
    for cause in &document.causes {
        let count: usize = cause.said.iter().map(|said| said.findings.len()).sum();
        let count = if count > 1 { format!(" <span class=\"quiet\">{count} findings</span>") } else { String::new() };
        let _ = writeln!(page, "<h2>{}{count}</h2>", escaped(&cause.problem));
        for said in &cause.said {
            let key = said.findings.first();
            if let Some(finding) = document.findings.iter().find(|finding| Some(&finding.key) == key) {
                one(page, finding, &said.subject);
            }
        }
    }
}

fn facts(page: &mut String, document: &Document) {
    let (host, intent) = (&document.host, &document.intent);
    let with = |value: &str, from: &Option<String>| match from.as_deref() {
        Some("given") => value.to_owned(),
        Some(from) => format!("{value} (inferred from {from})"),
        None => format!("{value} found"),
    };
    let list = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let workloads: Vec<String> = intent.workloads.iter().map(ToString::to_string).collect();
    let cpus = host.cpus.map(|cpus| cpus.to_string());
    let uses = match &intent.workloads_from {
        None => "not known".to_owned(),
        Some(from) if from != "given" => format!("{} (inferred: {from})", list(&workloads)),
        from => with(&list(&workloads), from),
    };
    let rows = [
        ("Release", host.release.clone()),
        ("CPUs", host.cpu_model.clone().or(cpus)),
        ("Taken", host.taken.clone()),
        ("Isolated CPUs", Some(with(intent.isolated.as_deref().unwrap_or("none"), &intent.isolated_from))),
        ("Interfaces", Some(with(&list(&intent.nics), &intent.nics_from))),
        ("Used as", Some(uses)),
        ("Goal", intent.goal.clone()),
    ];
    page.push_str("<table>\n");
    for (name, value) in rows {
        if let Some(value) = value {
            let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value));
        }
    }
    page.push_str("</table>\n");
    for note in &host.notes {
        let _ = writeln!(page, "<p class=\"quiet\">{}</p>", escaped(note));
    }
}

/// Renders the delays compared with the goal, the largest first; nothing without a goal.
fn budget(page: &mut String, document: &Document) {
    let Some(goal) = &document.intent.goal else { return };
    // A packet meets only one of several subjects of a rule. The first one counts, because the findings are sorted that
    // way.
    let mut takes: Vec<(&str, u64)> = Vec::new();
    for finding in document.findings.iter().filter(|f| !f.accepted && matches!(f.verdict.as_str(), "fail" | "warn")) {
        if let Some(effect) = finding.effect_ns.filter(|_| takes.iter().all(|(id, _)| *id != finding.id)) {
            takes.push((&finding.id, effect));
        }
    }
    takes.sort_by_key(|(_, effect)| std::cmp::Reverse(*effect));
    let Some((_, most)) = takes.first().copied() else { return };
    let _ = writeln!(page, "<h2>Delays compared with the goal {}</h2>", escaped(goal));
    let _ = writeln!(page, "<p class=\"quiet\">{}.</p>\n<table>", capital(SIZES));
    for (id, effect) in takes {
        // Delays range from nanoseconds to a second, so the bars are logarithmic. The numbers beside the bars show
        // this.
        let share = 100.0 * (effect.max(1) as f64).log10() / (most.max(2) as f64).log10();
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td><div class=\"bar\" style=\"width:{:.0}px\"></div></td></tr>",
            escaped(id),
            spaced(units::Nanos::from_nanos(effect)),
            share * 2.0
        );
    }
    page.push_str("</table>\n<p class=\"quiet\">The bars are logarithmic.</p>\n");
}

fn groups(page: &mut String, document: &Document) {
    page.push_str("<h2>Counts</h2>\n<div class=\"wide\"><table><tr><th>Group</th>");
    for name in ["fail", "warn", "choice", "unknown", "pass", "not applicable", "accepted"] {
        let _ = write!(page, "<th class=\"n\">{name}</th>");
    }
    page.push_str("</tr>\n");
    for group in &document.groups {
        let title = audit::Group::ALL.into_iter().find(|one| group.group == one.name()).map_or("", audit::Group::title);
        let _ = write!(page, "<tr><td>{}</td>", escaped(title));
        let counts = [
            group.fail,
            group.warn,
            group.sources_disagree,
            group.unknown,
            group.pass,
            group.not_applicable,
            group.accepted,
        ];
        for count in counts {
            let class = if count == 0 { "n quiet" } else { "n" };
            let _ = write!(page, "<td class=\"{class}\">{count}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn one(page: &mut String, finding: &Finding, subject: &str) {
    let accepted = if finding.accepted { " · accepted" } else { "" };
    // Shows the verdict also as a word, because not everybody sees colours.
    let verdict = match finding.verdict.as_str() {
        "sources-disagree" => "choice",
        "not-applicable" => "not applicable",
        verdict => verdict,
    };
    let _ = writeln!(
        page,
        "<article class=\"{}\"><h3><span class=\"verdict\">{}</span> <code>{}</code> · {}{accepted}</h3>\n<p>{}</p>",
        escaped(&finding.verdict),
        escaped(verdict),
        escaped(&finding.id),
        escaped(subject),
        escaped(finding.reason.as_deref().unwrap_or(&finding.found)),
    );
    for evidence in &finding.evidence {
        let _ = writeln!(
            page,
            "<pre>{}  <span class=\"quiet\">{}</span></pre>",
            escaped(&evidence.value),
            escaped(&evidence.source)
        );
    }
    if !matches!(finding.verdict.as_str(), "fail" | "warn" | "sources-disagree") {
        page.push_str("</article>\n");
        return;
    }
    let own = finding.effect_ns.filter(|_| finding.effect_of_this_host);
    let _ = writeln!(
        page,
        "<p>{}</p><dl><dt>Delay</dt><dd>{}</dd>",
        escaped(&finding.why),
        escaped(&delay(own.map(units::Nanos::from_nanos), &finding.magnitude, &finding.magnitude_source))
    );
    let fix = &finding.fix;
    let boot = if fix.reboot { "Permanent, from the next boot" } else { "Permanent" };
    for (name, lines) in [("Look", &fix.look), ("Now", &fix.runtime), (boot, &fix.persistent)] {
        if !lines.is_empty() {
            let _ = writeln!(page, "<dt>{name}</dt><dd><pre>{}</pre></dd>", escaped(&lines.join("\n")));
        }
    }
    let risks = risks(&fix.risks);
    if !risks.is_empty() {
        let _ = writeln!(page, "<dt>Risk</dt><dd>{}</dd>", escaped(&risks));
    }
    if !finding.cost.is_empty() {
        let _ = writeln!(page, "<dt>Cost</dt><dd>{}</dd>", escaped(&finding.cost));
    }
    let references = escaped(&finding.references.join("; "));
    let _ = writeln!(page, "<dt>References</dt><dd>{references}</dd></dl></article>");
}

/// Escapes text for HTML, also inside quotes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_is_never_markup() {
        assert_eq!(escaped("<b a='1'>&\""), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;");
    }
}
