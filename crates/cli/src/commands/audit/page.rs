//! A report as one HTML file that needs nothing else.

use std::fmt::Write as _;

use crate::documents::audit::{Document, Finding};

/// Nothing may be loaded and nothing may run; the style sheet stands in the file.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The file's text. Everything that comes from the host is escaped.
pub(super) fn of(document: &Document) -> String {
    // What is written to a String arrives.
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
    budget(&mut page, document);
    groups(&mut page, document);
    let parts = [
        ("Findings", &["fail", "warn"][..], true),
        ("Choices on which sources disagree", &["sources-disagree"], true),
        ("Unknown", &["unknown"], false),
        ("Passed", &["pass"], false),
        ("Not applicable", &["not-applicable"], false),
    ];
    for (title, verdicts, open) in parts {
        let findings: Vec<&Finding> =
            document.findings.iter().filter(|finding| verdicts.contains(&finding.verdict.as_str())).collect();
        if findings.is_empty() {
            continue;
        }
        let open = if open { " open" } else { "" };
        let _ = writeln!(page, "<details{open}><summary>{title}: {}</summary>", findings.len());
        findings.into_iter().for_each(|finding| one(&mut page, finding));
        page.push_str("</details>\n");
    }
    let _ = writeln!(page, "<p class=\"quiet\">apus {}</p></body></html>", escaped(&document.apus));
    page
}

fn facts(page: &mut String, document: &Document) {
    let (host, intent) = (&document.host, &document.intent);
    let with = |value: &str, from: &Option<String>| match from.as_deref() {
        Some("given") => value.to_owned(),
        Some(from) => format!("{value} (inferred from {from})"),
        None => format!("{value} (nothing shows it)"),
    };
    let list = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let cpus = host.cpus.map(|cpus| cpus.to_string());
    let rows = [
        ("Release", host.release.clone()),
        ("CPUs", host.cpu_model.clone().or(cpus)),
        ("Taken", host.taken.clone()),
        ("Isolated CPUs", Some(with(intent.isolated.as_deref().unwrap_or("none"), &intent.isolated_from))),
        ("Interfaces", Some(with(&list(&intent.nics), &intent.nics_from))),
        ("Used as", Some(with(&list(&intent.workloads), &intent.workloads_from))),
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

/// What late packets lose, the largest first, where there is a goal.
fn budget(page: &mut String, document: &Document) {
    let Some(goal) = &document.intent.goal else { return };
    // Of several subjects of one rule a packet meets one: the first, for the findings are in this order.
    let mut takes: Vec<(&str, u64)> = Vec::new();
    for finding in document.findings.iter().filter(|f| !f.accepted && matches!(f.verdict.as_str(), "fail" | "warn")) {
        if let Some(effect) = finding.effect_ns.filter(|_| takes.iter().all(|(id, _)| *id != finding.id)) {
            takes.push((&finding.id, effect));
        }
    }
    takes.sort_by_key(|(_, effect)| std::cmp::Reverse(*effect));
    let Some((_, most)) = takes.first().copied() else { return };
    let _ = writeln!(page, "<h2>What late packets lose of {}</h2>", escaped(goal));
    page.push_str(
        "<p class=\"quiet\">Each at its worst. Several can name one mechanism: this is no sum.</p>\n<table>\n",
    );
    for (id, effect) in takes {
        // Between a nanosecond and a second: the bar is logarithmic, and says so by its numbers.
        let share = 100.0 * (effect.max(1) as f64).log10() / (most.max(2) as f64).log10();
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td><div class=\"bar\" style=\"width:{:.0}px\"></div></td></tr>",
            escaped(id),
            units::Nanos::from_nanos(effect),
            share * 2.0
        );
    }
    page.push_str("</table>\n<p class=\"quiet\">The bars are logarithmic.</p>\n");
}

fn groups(page: &mut String, document: &Document) {
    page.push_str("<h2>Groups</h2>\n<div class=\"wide\"><table><tr><th>Group</th>");
    for name in ["fail", "warn", "choice", "unknown", "pass", "not applicable", "accepted"] {
        let _ = write!(page, "<th class=\"n\">{name}</th>");
    }
    page.push_str("</tr>\n");
    for group in &document.groups {
        let title = audit::Group::ALL.into_iter().find(|one| one.name() == group.group).map_or("", audit::Group::title);
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

fn one(page: &mut String, finding: &Finding) {
    let accepted = if finding.accepted { " · accepted" } else { "" };
    // Also as a word: not everybody sees colours.
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
        escaped(&finding.subject),
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
    let _ = writeln!(
        page,
        "<p>{}</p><dl><dt>Takes</dt><dd>{}{} <span class=\"quiet\">{}</span></dd>",
        escaped(&finding.why),
        finding.effect_ns.map(|ns| format!("{} of a late packet: ", units::Nanos::from_nanos(ns))).unwrap_or_default(),
        escaped(&finding.magnitude),
        escaped(&finding.magnitude_source)
    );
    let fix = &finding.fix;
    let boot = if fix.reboot { "For good, from the next boot" } else { "For good" };
    for (name, lines) in [("Look", &fix.look), ("Now", &fix.runtime), (boot, &fix.persistent)] {
        if !lines.is_empty() {
            let _ = writeln!(page, "<dt>{name}</dt><dd><pre>{}</pre></dd>", escaped(&lines.join("\n")));
        }
    }
    let risks = audit::Risk::ALL.into_iter().filter(|risk| fix.risks.iter().any(|name| name == risk.name()));
    let risks: Vec<&str> = risks.map(audit::Risk::text).collect();
    if !risks.is_empty() {
        let _ = writeln!(page, "<dt>Risk</dt><dd>{}</dd>", escaped(&risks.join("; ")));
    }
    let _ = writeln!(
        page,
        "<dt>Costs</dt><dd>{}</dd><dt>References</dt><dd>{}</dd></dl></article>",
        escaped(&finding.cost),
        escaped(&finding.references.join("; "))
    );
}

/// Text in HTML, also within quotes.
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
