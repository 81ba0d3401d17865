//! A report for people at a terminal.

use std::io::{self, IsTerminal as _, Write};

use audit::{Finding, Group, Level, Report, Rule, Step, Tally, Verdict};
use host::Facts;

use super::document::{from, show};
use crate::commands::no_color;

/// Columns of the text.
const WIDTH: usize = 100;

/// Groups with one line each, then the findings from a level on.
pub(super) fn report(
    out: &mut impl Write,
    facts: &Facts,
    report: &Report,
    level: Level,
    unused: &[String],
) -> io::Result<()> {
    let paint = Paint::new();
    head(out, facts, report)?;
    for group in Group::ALL {
        let tally = report.tally(Some(group));
        if tally != Tally::default() {
            writeln!(out, "{} {:<38} {}", paint.mark(&tally), group.title(), sum(&tally))?;
        }
    }
    for finding in report.at_least(level) {
        writeln!(out)?;
        one(out, &paint, finding)?;
    }
    budget(out, report)?;
    let total = report.tally(None);
    writeln!(out, "\n{}", sum(&total))?;
    if level > Level::Choice && total.sources_disagree > 0 {
        let text = "on some questions good sources disagree, and the choice is yours: --min-level choice shows them";
        writeln!(out, "{text}")?;
    }
    if level > Level::Unknown && total.unknown > 0 {
        writeln!(out, "{}", hint(facts, rustix::process::geteuid().is_root()))?;
    }
    for key in unused {
        writeln!(out, "the baseline names what is no finding any more: {key}")?;
    }
    Ok(())
}

fn head(out: &mut impl Write, facts: &Facts, report: &Report) -> io::Result<()> {
    let host = super::document::host(facts);
    let release = host.release.map(|release| format!(", {release}")).unwrap_or_default();
    let model = host.cpu_model.map(|model| format!(", {model}")).unwrap_or_default();
    let cpus = host.cpus.map(|cpus| format!(", {cpus} CPUs")).unwrap_or_default();
    writeln!(out, "{}{release}{model}{cpus}", host.name)?;
    let context = &report.context;
    let line = |value: String, how: Option<String>| match how {
        Some(how) if how == "given" => value,
        Some(how) => format!("{value} (inferred from {how})"),
        None => format!("{value} (nothing shows it)"),
    };
    let names = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    writeln!(out, "  isolated CPUs  {}", line(context.isolated.value.to_string(), from(&context.isolated)))?;
    writeln!(out, "  interfaces     {}", line(names(context.nics.value.clone()), from(&context.nics)))?;
    let uses = context.workloads.value.iter().map(ToString::to_string).collect();
    writeln!(out, "  used as        {}", line(names(uses), from(&context.workloads)))?;
    if let Some(goal) = context.goal {
        writeln!(out, "  goal           {}", show(goal))?;
    }
    for note in &facts.origin.notes {
        writeln!(out, "  note           {note}")?;
    }
    writeln!(out)
}

fn one(out: &mut impl Write, paint: &Paint, finding: &Finding) -> io::Result<()> {
    let (rule, judgement) = (finding.rule, &finding.judgement);
    let subject = match judgement.subject {
        audit::Subject::Host => String::new(),
        _ => format!(" · {}", judgement.subject),
    };
    writeln!(out, "{} {}{subject}", paint.verdict(&judgement.verdict), paint.bold(rule.id))?;
    let found = match judgement.verdict.reason() {
        Some(reason) => reason,
        None => &judgement.found,
    };
    wrapped(out, "    ", "", found)?;
    for evidence in &judgement.evidence {
        wrapped(out, "    seen  ", "          ", &format!("{} ({})", evidence.value, evidence.source))?;
    }
    if finding.level() < Level::Choice {
        return Ok(());
    }
    wrapped(out, "    why   ", "          ", rule.why)?;
    let effect = finding.effect.map(|effect| format!("{effect} of a late packet: ")).unwrap_or_default();
    wrapped(out, "    takes ", "          ", &format!("{effect}{} ({})", rule.magnitude.text, rule.magnitude.source))?;
    let fix = &finding.fix;
    let texts = |steps: &[Step]| steps.iter().map(ToString::to_string).collect::<Vec<_>>();
    let keep = if fix.reboot { "boot" } else { "keep" };
    for (label, lines) in [("look", fix.look.clone()), ("now", texts(&fix.runtime)), (keep, texts(&fix.persistent))] {
        for (n, line) in lines.iter().enumerate() {
            // Commands are not wrapped: they are there to be copied.
            writeln!(out, "    {:<6}{line}", if n == 0 { label } else { "" })?;
        }
    }
    let risks: Vec<&str> = fix.risks().into_iter().map(audit::Risk::text).collect();
    if !risks.is_empty() {
        wrapped(out, "    risk  ", "          ", &risks.join("; "))?;
    }
    wrapped(out, "    costs ", "          ", rule.cost)
}

/// What is known to be taken from the budget, largest first, where there is a goal.
fn budget(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Some(goal) = report.context.goal else { return Ok(()) };
    let takes = report.budget();
    if takes.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nwhat late packets lose of {}, each at its worst (several can name one mechanism: no sum):",
        goal.latency
    )?;
    let mut seen: Vec<&str> = Vec::new();
    for (finding, effect) in takes {
        // Of several subjects of one rule a packet meets one: the worst of them counts.
        if seen.contains(&finding.rule.id) {
            continue;
        }
        seen.push(finding.rule.id);
        let alone = if effect > goal.latency { "  more than the goal alone" } else { "" };
        writeln!(out, "  {:>12}  {:<28}{alone}", effect.to_string(), finding.rule.id)?;
    }
    Ok(())
}

/// What would make the unknown known.
fn hint(facts: &Facts, is_root: bool) -> String {
    match facts.origin.kind {
        host::facts::Kind::Live => {
            // A guest has no registers that would tell.
            let ways = [
                (!is_root, "as root"),
                (
                    facts.virtualisation.guest.get() != Some(true),
                    "with --msr for registers (each reading interrupts its CPU)",
                ),
                (!facts.interval.is_known(), "with --interval 5s for rates"),
            ];
            let ways: Vec<&str> = ways.iter().filter(|(helps, _)| *helps).map(|(_, way)| *way).collect();
            match ways.is_empty() {
                true => "unknown: --min-level unknown says what".to_owned(),
                false => format!("unknown: run {}; --min-level unknown says which", ways.join(", ")),
            }
        }
        _ => "unknown: the recording does not hold it; --min-level unknown says which".to_owned(),
    }
}

/// Explains a rule, and says what it found on this host.
pub(super) fn explain(out: &mut impl Write, rule: &Rule, report: &Report) -> io::Result<()> {
    let paint = Paint::new();
    writeln!(out, "{}  {}\n", paint.bold(rule.id), rule.title)?;
    wrapped(out, "why         ", "            ", rule.why)?;
    wrapped(out, "takes       ", "            ", &format!("{} ({})", rule.magnitude.text, rule.magnitude.source))?;
    wrapped(out, "applies     ", "            ", &audit::applies(rule))?;
    let boot = if rule.fix.reboot { "from boot" } else { "for good" };
    for (label, lines) in [("look", rule.fix.look), ("now", rule.fix.runtime), (boot, rule.fix.persistent)] {
        for line in lines.into_iter().flat_map(str::lines) {
            writeln!(out, "{label:<12}{line}")?;
        }
    }
    wrapped(out, "costs       ", "            ", rule.cost)?;
    for reference in rule.references {
        wrapped(out, "reference   ", "            ", reference)?;
    }
    for conflict in rule.conflicts {
        wrapped(out, "against it  ", "            ", conflict)?;
    }
    writeln!(out, "\non this host:")?;
    for finding in &report.findings {
        one(out, &paint, finding)?;
    }
    Ok(())
}

fn sum(tally: &Tally) -> String {
    let counts = [
        (tally.fail, "fail"),
        (tally.warn, "warn"),
        (tally.sources_disagree, "choice"),
        (tally.accepted, "accepted"),
        (tally.unknown, "unknown"),
        (tally.pass, "pass"),
        (tally.not_applicable, "not applicable"),
    ];
    let words: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    if words.is_empty() { "nothing to judge".to_owned() } else { words.join(", ") }
}

/// Writes text in lines of at most [`WIDTH`] columns.
fn wrapped(out: &mut impl Write, first: &str, rest: &str, text: &str) -> io::Result<()> {
    let rest = if rest.is_empty() { first } else { rest };
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    writeln!(out, "{line}")
}

/// Colours, where there is a terminal that has them and nobody refused them.
struct Paint {
    colours: bool,
}

impl Paint {
    fn new() -> Self {
        Self { colours: io::stdout().is_terminal() && !no_color() }
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn verdict(&self, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Fail => self.with("31", "[✗]"),
            Verdict::Warn => self.with("33", "[!]"),
            Verdict::SourcesDisagree => self.with("36", "[±]"),
            Verdict::Unknown(_) => self.with("2", "[?]"),
            Verdict::Pass => self.with("32", "[✓]"),
            Verdict::NotApplicable(_) => self.with("2", "[-]"),
        }
    }

    fn mark(&self, tally: &Tally) -> String {
        self.verdict(&match tally {
            Tally { fail: 1.., .. } => Verdict::Fail,
            Tally { warn: 1.., .. } => Verdict::Warn,
            Tally { pass: 1.., .. } | Tally { accepted: 1.., .. } => Verdict::Pass,
            Tally { sources_disagree: 1.., .. } => Verdict::SourcesDisagree,
            Tally { unknown: 1.., .. } => Verdict::Unknown("".into()),
            _ => Verdict::NotApplicable("".into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_advised_what_is_done_or_cannot_help() {
        let mut facts = Facts::default();
        facts.origin.kind = host::facts::Kind::Live;
        let nobody = hint(&facts, false);
        assert!(nobody.contains("as root") && nobody.contains("--msr") && nobody.contains("--interval"), "{nobody}");
        facts.virtualisation.guest = host::Fact::known(true, "/proc/cpuinfo");
        let root = hint(&facts, true);
        assert!(!root.contains("as root") && !root.contains("--msr") && root.contains("--interval"), "{root}");
    }
}
