//! Prints a report for people at a terminal.

use std::io::{self, Write};
use std::path::Path;

use audit::{Advice, Advised, ByRule, Caused, Finding, Group, Level, Report, Rule, Tally, Unlock, Verdict, spaced};
use host::Facts;
use tester::layout;

use super::document::{from, show};
use super::wording::{SIZES, capital, delay, gain, instruction, once, withheld, without_step};
use crate::terminal::{Clean, Style};

/// Width of the text in columns.
const WIDTH: usize = 100;
/// Maximum number of commands shown per action or rule; the JSON document has all.
const LINES: usize = 4;
/// Maximum number of different findings shown per rule.
const SAID: usize = 5;

/// How the user called the command, for the commands that the report suggests.
pub(super) struct Typed<'a> {
    /// The recording; `None` if this host was audited.
    pub from: Option<&'a Path>,
    /// The options that decide which findings there are, each with a space before it.
    pub options: String,
}

/// Prints what to do first, then the findings by root cause, then the counts.
pub(super) fn report(
    out: &mut Clean<impl Write>,
    facts: &Facts,
    report: &Report,
    advice: &Advice<'_>,
    (unlocks, level, unused): (&[Unlock], Level, &[String]),
    typed: &Typed<'_>,
) -> io::Result<()> {
    head(out, facts, report)?;
    first(out, advice, report, typed)?;
    unlocked(out, unlocks)?;
    for caused in &advice.causes {
        writeln!(out)?;
        cause(out, caused)?;
    }
    budget(out, report)?;
    counts(out, report)?;
    let total = report.tally(None);
    if level > Level::Choice && total.sources_disagree > 0 {
        writeln!(out, "good sources disagree on some settings: --min-level choice shows them")?;
    }
    if level > Level::Unknown && total.unknown > 0 {
        writeln!(out, "{}", hint(facts, rustix::process::geteuid().is_root()))?;
    }
    for key in unused {
        writeln!(out, "the baseline lists a finding that no longer occurs: {key}")?;
    }
    Ok(())
}

fn head(out: &mut Clean<impl Write>, facts: &Facts, report: &Report) -> io::Result<()> {
    let host = super::document::host(facts);
    let release = host.release.map(|release| format!(", {release}")).unwrap_or_default();
    let model = host.cpu_model.map(|model| format!(", {model}")).unwrap_or_default();
    let cpus = host.cpus.map(|cpus| format!(", {cpus} CPUs")).unwrap_or_default();
    wrapped(out, "", "  ", &format!("{}{release}{model}{cpus}", host.name))?;
    let context = &report.context;
    let mut line = |name: &str, value: String, how: Option<String>| {
        let (value, how) = match how {
            Some(how) if how == "given" => {
                let option =
                    [("isolated CPUs", "--isolated"), ("interfaces", "--nic")].into_iter().find(|of| of.0 == name);
                (value, format!(" (given with {})", option.map_or("--workload", |of| of.1)))
            }
            Some(how) if how.is_empty() => (value, String::new()),
            Some(how) if name == "workload" => (value, format!(" (inferred: {how})")),
            Some(how) => (value, format!(" (inferred from {how})")),
            None if name == "workload" => ("not known".to_owned(), String::new()),
            None => (value, " found".to_owned()),
        };
        wrapped(out, &format!("  {name:<13}  "), "                 ", &format!("{value}{how}"))
    };
    let names = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    line("isolated CPUs", context.isolated.value.to_string(), from(&context.isolated))?;
    line("interfaces", names(context.nics.value.clone()), from(&context.nics))?;
    let uses = context.workloads.value.iter().map(ToString::to_string).collect();
    line("workload", names(uses), from(&context.workloads))?;
    if let Some(goal) = context.goal {
        line("goal", show(goal), Some(String::new()))?;
    }
    for note in facts.origin.notes.iter().chain(&context.notes) {
        line("note", note.clone(), Some(String::new()))?;
    }
    writeln!(out)
}

/// Prints the actions to do first.
fn first(out: &mut Clean<impl Write>, advice: &Advice<'_>, report: &Report, typed: &Typed<'_>) -> io::Result<()> {
    let tally = report.tally(None);
    if tally.says_nothing() {
        let fix = match typed.from {
            Some(_) => "the recording lacks what they need; record the host again, as root (apus snapshot)",
            None => "--min-level unknown says what they need",
        };
        let text = format!(
            "Almost nothing could be judged: {} of {} checks are unknown. So this report does not say whether the host \
             has problems: {fix}.",
            tally.unknown,
            tally.unknown + tally.judged()
        );
        wrapped(out, "", "", &text)?;
    }
    if advice.actions.is_empty() {
        return match advice.causes.is_empty() {
            true if tally.says_nothing() => Ok(()),
            true => writeln!(out, "Nothing to do: no problem was found in what could be checked."),
            false => writeln!(out, "No setting, kernel parameter or other step is known to fix the findings below."),
        };
    }
    out.styled(Style::Bold, "Do these first")?;
    writeln!(out)?;
    for (n, action) in advice.actions.iter().enumerate() {
        out.styled(Style::Bold, &format!("{}. {}", n + 1, action.title()))?;
        writeln!(out)?;
        one_action(out, action)?;
        // The commands of this step are for the CPUs that are isolated now. An earlier step may change these CPUs.
        let earlier = advice.actions[..n].iter().position(Advised::changes_isolated);
        if let Some(at) = earlier.filter(|_| action.is_line() || !action.changes().is_empty()) {
            let then = format!(
                "do step {0}, then run this audit again: step {0} changes which CPUs are isolated, and so this step too",
                at + 1
            );
            wrapped(out, "   first ", "         ", &then)?;
        }
    }
    let is_fixed = |finding: &Finding| {
        advice.actions.iter().flat_map(|action| &action.from).any(|fixed| std::ptr::eq(*fixed, finding))
    };
    let findings = advice.causes.iter().flat_map(Caused::findings).filter(|finding| finding.level() >= Level::Warn);
    if let Some(text) = without_step(findings.map(|finding| (finding.rule.id, is_fixed(finding)))) {
        wrapped(out, "", "", &text)?;
    }
    if advice.actions.iter().any(Advised::is_rolled_back) {
        wrapped(out, "", "", &together(typed, &super::isolated(report)))?;
    }
    Ok(())
}

/// How to apply all settings at once. The settings of a recording belong on the host that was recorded, not on this one.
/// `isolated` is the option for `apus tune`.
fn together(typed: &Typed<'_>, isolated: &str) -> String {
    let options = &typed.options;
    let apply = format!(
        "apus tune plan FILE.toml{isolated}; apus tune apply FILE.toml{isolated}. To undo them, run: apus tune rollback"
    );
    match typed.from {
        None => format!("To apply all settings together, run: apus audit{options} --fix FILE.toml; {apply}."),
        Some(path) => format!(
            "To apply all settings together, run here: apus audit --from {}{options} --fix FILE.toml. Copy FILE.toml to \
             the recorded host, and run there: {apply}.",
            audit::shell_word(&path.display().to_string())
        ),
    }
}

fn one_action(out: &mut Clean<impl Write>, action: &Advised<'_>) -> io::Result<()> {
    let changes = action.changes();
    let instructions: Vec<String> = action.lines().iter().map(|line| instruction(line)).collect();
    lines(out, if action.is_line() { "   line  " } else { "   do    " }, &instructions)?;
    if !changes.is_empty() {
        wrapped(out, "   diff  ", "         ", &changes.join("  "))?;
    }
    let rules = rules(action);
    let mut why = gain(&action.gain());
    if action.is_ask() {
        why = format!("{why} {}", withheld(rules.len()));
    }
    wrapped(out, "   why   ", "         ", &why)?;
    let risks = action.risks().into_iter().map(|risk| format!("{}.", capital(risk.text())));
    // Shows only the first costs; the others are printed with their findings.
    const COSTS: usize = 5;
    let costs = action.costs().into_iter().filter(|cost| !cost.starts_with("None")).take(COSTS).map(str::to_owned);
    let risks = once(&risks.chain(costs).collect::<Vec<_>>());
    if !risks.is_empty() {
        wrapped(out, "   risk  ", "         ", &risks)?;
    }
    // An action that asks for the host's use fixes nothing. The next audit decides about the findings.
    let (label, then) = match action.is_ask() {
        true => ("   then  ", "the new report says which of these findings to fix, and how: "),
        false => ("   fixes ", ""),
    };
    wrapped(out, label, "         ", &format!("{then}{}", rules.join(", ")))
}

/// The rules whose findings the action fixes, each once, the worst first.
fn rules<'a>(action: &Advised<'a>) -> Vec<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    action.from.iter().map(|finding| finding.rule.id).filter(|id| seen.insert(*id)).collect()
}

/// Prints lines to be copied; these are not wrapped.
fn lines(out: &mut Clean<impl Write>, label: &str, lines: &[String]) -> io::Result<()> {
    let shown = if lines.len() > LINES { LINES - 1 } else { lines.len() };
    let mut label = label.to_owned();
    for line in &lines[..shown] {
        // Removes newlines, so that a value from the host cannot begin a new line of output.
        writeln!(out, "{label}{}", line.replace('\n', " "))?;
        label = " ".repeat(label.len());
    }
    match lines.len() - shown {
        0 => Ok(()),
        more => writeln!(out, "{label}# and {more} more lines: --json has them all"),
    }
}

fn unlocked(out: &mut Clean<impl Write>, unlocks: &[Unlock]) -> io::Result<()> {
    if unlocks.is_empty() {
        return Ok(());
    }
    let rules = |n: usize| if n == 1 { "1 more rule".to_owned() } else { format!("{n} more rules") };
    let ways = unlocks.iter().map(|one| format!("{} {} ({})", one.option, one.value, rules(one.rules)));
    wrapped(out, "", "", &format!("More could be checked with {}.", ways.collect::<Vec<_>>().join(", ")))
}

/// Prints the findings of one root cause.
fn cause(out: &mut Clean<impl Write>, caused: &Caused<'_>) -> io::Result<()> {
    let count = caused.findings().count();
    out.styled(Style::Underlined, caused.cause.problem())?;
    writeln!(out, "{}", if count > 1 { format!(" ({count} findings)") } else { String::new() })?;
    caused.rules.iter().try_for_each(|by_rule| of_rule(out, by_rule, SAID))
}

/// Prints the findings of one rule, with the rule's explanation once.
fn of_rule(out: &mut Clean<impl Write>, by_rule: &ByRule<'_>, most: usize) -> io::Result<()> {
    let rule = by_rule.rule;
    for said in by_rule.said.iter().take(most) {
        let (finding, judgement) = (said.first(), &said.first().judgement);
        let subject = match judgement.subject {
            audit::Subject::Host => String::new(),
            _ => format!(" · {}", said.subject()),
        };
        mark(out, &judgement.verdict)?;
        write!(out, " ")?;
        out.styled(Style::Bold, rule.id)?;
        let accepted = if finding.accepted { " (accepted by the baseline)" } else { "" };
        writeln!(out, "{}{accepted}", subject.replace('\n', " "))?;
        wrapped(out, "    ", "", judgement.verdict.reason().unwrap_or(&judgement.found))?;
        for evidence in said.evidence() {
            let seen = match evidence.value.as_str() {
                "not recorded" => format!("nothing: {} is not in the recording", evidence.source),
                "" => format!("nothing: {} is empty", evidence.source),
                value => format!("{value} ({})", evidence.source),
            };
            wrapped(out, "    seen  ", "          ", &seen)?;
        }
    }
    if by_rule.said.len() > most {
        let more = by_rule.said.len() - most;
        writeln!(out, "    and {more} more with other evidence: apus audit --explain {}", rule.id)?;
    }
    let wrong: Vec<&Finding> = by_rule.findings().filter(|finding| finding.level() >= Level::Choice).collect();
    let Some(first) = wrong.first() else { return Ok(()) };
    wrapped(out, "    why   ", "          ", rule.why)?;
    let (magnitude, source) = first.magnitude();
    wrapped(out, "    delay ", "          ", &delay(first.own_delay(), &magnitude, &source))?;
    let keep = if first.fix.reboot { "    boot  " } else { "    perm. " };
    let all = |of: fn(&Finding) -> Vec<String>| {
        let mut all: Vec<String> = Vec::new();
        for line in wrong.iter().flat_map(|finding| of(finding)) {
            if !all.contains(&line) {
                all.push(line);
            }
        }
        all
    };
    lines(out, "    look  ", &all(|finding| finding.fix.look.clone()))?;
    lines(out, "    now   ", &all(|finding| finding.fix.runtime.iter().map(ToString::to_string).collect()))?;
    lines(out, keep, &all(|finding| finding.fix.persistent.iter().map(ToString::to_string).collect()))?;
    let risks = risks(first);
    if !risks.is_empty() {
        wrapped(out, "    risk  ", "          ", &risks)?;
    }
    let mut costs: Vec<&str> = Vec::new();
    wrong.iter().map(|finding| finding.cost()).for_each(|cost| {
        if !cost.is_empty() && !costs.contains(&cost) {
            costs.push(cost);
        }
    });
    if !costs.is_empty() {
        wrapped(out, "    cost  ", "          ", &once(&costs))?;
    }
    match first.judgement.against {
        Some(against) => wrapped(out, "    but   ", "          ", against),
        None => Ok(()),
    }
}

/// Names what the finding's fix puts at risk. If only one of the alternatives, now or from boot, has a risk, says which.
fn risks(finding: &Finding) -> String {
    let fix = &finding.fix;
    let of = |steps: &[audit::Step]| -> Vec<&str> {
        let all: std::collections::BTreeSet<audit::Risk> = steps.iter().flat_map(|s| s.risks.iter().copied()).collect();
        all.into_iter().map(audit::Risk::text).collect()
    };
    let (now, later) = (of(&fix.runtime), of(&fix.persistent));
    if now == later || fix.runtime.iter().all(audit::Step::is_nothing) || fix.persistent.is_empty() {
        return fix.risks().into_iter().map(audit::Risk::text).collect::<Vec<_>>().join("; ");
    }
    let boot = if fix.reboot { "boot" } else { "perm." };
    let parts = [("now", now), (boot, later)].into_iter().filter(|(_, risks)| !risks.is_empty());
    parts.map(|(label, risks)| format!("{label}: {}", risks.join(", "))).collect::<Vec<_>>().join("; ")
}

/// Prints the known delays compared with the goal, the largest first; nothing without a goal.
fn budget(out: &mut Clean<impl Write>, report: &Report) -> io::Result<()> {
    let Some(goal) = report.context.goal else { return Ok(()) };
    let adds = report.budget();
    if adds.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nDelays compared with the goal of {} ({SIZES}):", spaced(goal.latency))?;
    let mut seen: Vec<&str> = Vec::new();
    for (finding, effect) in adds {
        // A packet meets only one of several subjects of a rule. The worst one counts.
        if seen.contains(&finding.rule.id) {
            continue;
        }
        seen.push(finding.rule.id);
        let alone = if effect > goal.latency { "  exceeds the goal by itself" } else { "" };
        writeln!(out, "  {:>12}  {:<28}{alone}", spaced(effect), finding.rule.id)?;
    }
    Ok(())
}

/// Prints the number of each verdict: one line per group in which something was judged, one for all other groups, and
/// the total.
fn counts(out: &mut Clean<impl Write>, report: &Report) -> io::Result<()> {
    writeln!(out)?;
    for (title, tally) in rows(report) {
        mark(out, &worst(&tally))?;
        writeln!(out, " {title:<38} {}", sum(&tally))?;
    }
    writeln!(out, "in total: {}", sum(&report.tally(None)))
}

/// The lines of [`counts`]. Their numbers add up to the total.
fn rows(report: &Report) -> Vec<(&'static str, Tally)> {
    let groups = Group::ALL.into_iter().map(|group| (group.title(), report.tally(Some(group))));
    let (mut rows, others): (Vec<_>, Vec<_>) = groups.partition(|(_, tally)| tally.judged() > 0);
    let mut other = Tally::default();
    for (_, tally) in others {
        other.unknown += tally.unknown;
        other.not_applicable += tally.not_applicable;
    }
    if other.unknown + other.not_applicable > 0 {
        rows.push(("All other areas (nothing was judged)", other));
    }
    rows
}

/// Says how to find out what is unknown.
fn hint(facts: &Facts, is_root: bool) -> String {
    match facts.origin.kind {
        host::facts::Kind::Live => {
            // A guest has no registers that would answer the question.
            let ways = [
                (!is_root, "as root"),
                (
                    facts.virtualisation.guest.get() != Some(true),
                    "with --msr, which reads registers (each read interrupts the CPU that it reads)",
                ),
                (!facts.interval.is_known(), "with --interval 5s, which measures rates"),
            ];
            let ways: Vec<&str> = ways.iter().filter(|(helps, _)| *helps).map(|(_, way)| *way).collect();
            match ways.is_empty() {
                true => "--min-level unknown lists the rules that could not be judged".to_owned(),
                false => format!(
                    "to judge more of the unknown rules, run {}; --min-level unknown lists them",
                    ways.join(", ")
                ),
            }
        }
        _ => "unknown: the recording lacks what these rules need; --min-level unknown lists them".to_owned(),
    }
}

/// Explains a rule and prints its verdict on this host (`--explain`).
pub(super) fn explain(out: &mut Clean<impl Write>, rule: &Rule, report: &Report) -> io::Result<()> {
    out.styled(Style::Bold, rule.id)?;
    writeln!(out, "  {}\n", rule.title)?;
    wrapped(out, "why         ", "            ", rule.why)?;
    wrapped(out, "delay       ", "            ", &format!("{} [{}]", rule.magnitude.text, rule.magnitude.source))?;
    wrapped(out, "applies     ", "            ", &audit::applies(rule))?;
    let boot = if rule.fix.reboot { "from boot" } else { "for good" };
    for (label, lines) in [("look", rule.fix.look), ("now", rule.fix.runtime), (boot, rule.fix.persistent)] {
        for line in lines.into_iter().flat_map(str::lines) {
            writeln!(out, "{label:<12}{line}")?;
        }
    }
    wrapped(out, "cost        ", "            ", rule.cost)?;
    for reference in rule.references {
        wrapped(out, "reference   ", "            ", reference)?;
    }
    for conflict in rule.fix.conflicts {
        wrapped(out, "against it  ", "            ", conflict)?;
    }
    writeln!(out, "\non this host:")?;
    for by_rule in audit::advise(report, Level::All).causes.iter().flat_map(|caused| &caused.rules) {
        of_rule(out, by_rule, usize::MAX)?;
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
    if words.is_empty() { "nothing to check".to_owned() } else { words.join(", ") }
}

/// Prints text wrapped at [`WIDTH`] columns.
fn wrapped(out: &mut Clean<impl Write>, first: &str, rest: &str, text: &str) -> io::Result<()> {
    let rest = if rest.is_empty() { first } else { rest };
    layout::wrapped(first, rest, text, WIDTH).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Prints a verdict as a mark that is readable without colors.
fn mark(out: &mut Clean<impl Write>, verdict: &Verdict) -> io::Result<()> {
    let (style, mark) = match verdict {
        Verdict::Fail => (Style::Red, "[✗]"),
        Verdict::Warn => (Style::Yellow, "[!]"),
        Verdict::SourcesDisagree => (Style::Cyan, "[±]"),
        Verdict::Unknown(_) => (Style::Dim, "[?]"),
        Verdict::Pass => (Style::Green, "[✓]"),
        Verdict::NotApplicable(_) => (Style::Dim, "[-]"),
    };
    out.styled(style, mark)
}

/// The mark of a group: its worst verdict. If more rules are unknown than judged, a group without warnings or failures
/// is marked as unknown, not as passed.
fn worst(tally: &Tally) -> Verdict {
    let judged = tally.pass + tally.accepted + tally.sources_disagree;
    match tally {
        Tally { fail: 1.., .. } => Verdict::Fail,
        Tally { warn: 1.., .. } => Verdict::Warn,
        Tally { unknown, .. } if *unknown > judged => Verdict::Unknown("".into()),
        Tally { pass: 1.., .. } | Tally { accepted: 1.., .. } => Verdict::Pass,
        Tally { sources_disagree: 1.., .. } => Verdict::SourcesDisagree,
        Tally { unknown: 1.., .. } => Verdict::Unknown("".into()),
        _ => Verdict::NotApplicable("".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report on a recording once said to apply its settings on the host that reads it.
    #[test]
    fn settings_of_a_recording_are_applied_on_the_recorded_host() {
        let here = Typed { from: None, options: String::new() };
        assert!(!together(&here, "").contains("--from"));
        let recorded = Typed { from: Some(Path::new("db1.tar.gz")), options: " --workload poll".to_owned() };
        let text = together(&recorded, " --isolated 2-5");
        assert!(text.contains("apus audit --from db1.tar.gz --workload poll --fix FILE.toml."), "{text}");
        assert!(
            text.contains("run there: apus tune plan FILE.toml --isolated 2-5; apus tune apply FILE.toml --iso"),
            "{text}"
        );
    }

    /// The recording adl0 has 27 unknown and 2 passed rules. That must not look like "all is well".
    #[test]
    fn a_tick_stands_where_most_was_judged() {
        let tally = |pass, unknown| Tally { pass, unknown, ..Tally::default() };
        assert_eq!(worst(&tally(2, 27)), Verdict::Unknown("".into()));
        assert_eq!(worst(&tally(27, 2)), Verdict::Pass);
        assert_eq!(worst(&Tally { warn: 1, ..tally(2, 27) }), Verdict::Warn);
    }

    /// On the recording emr0, the lines once added up to 45 unknown, while the total said 163.
    #[test]
    fn the_lines_of_the_counts_add_up_to_the_total() {
        let facts = Facts { cmdline: known_line("quiet isolcpus=2-3 isolcpus=2-3"), ..Facts::default() };
        for facts in [Facts::default(), facts] {
            let report = audit::audit(&facts, &audit::Intent::default());
            let rows = rows(&report);
            let total = report.tally(None);
            let of = |count: fn(&Tally) -> u32| rows.iter().map(|(_, tally)| count(tally)).sum::<u32>();
            assert!(total.unknown > 0, "{total:?}");
            assert_eq!((of(|row| row.unknown), of(|row| row.not_applicable)), (total.unknown, total.not_applicable));
            assert_eq!((of(|row| row.pass), of(|row| row.warn)), (total.pass, total.warn));
            assert!(rows.iter().all(|(title, _)| title.len() <= 38), "{rows:?}");
        }
    }

    fn known_line(text: &str) -> host::Fact<host::facts::CommandLine> {
        host::Fact::known(host::facts::CommandLine::parse(text), "/proc/cmdline")
    }

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
