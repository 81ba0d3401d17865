//! Prints plans, changes and the current state as text.

use std::io::{self, Write};

use host::knob::{Access, Setting as _};
use host::profile::{Recommendation, Resolved};
use host::transaction::{Applied, Became, Entry, Meets, Outcome, Preview, Recovered, RolledBack};

use crate::documents::tune::{OpenItem, OpenTransaction, Status, Value, waits_for};
use crate::terminal::line;

/// Prints what a profile would change.
pub fn plan(resolved: &Resolved, previews: &[Preview], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{}: isolated CPUs {}, housekeeping {}",
        resolved.plan.name, resolved.isolated, resolved.housekeeping
    )?;
    let (mut same, mut absent) = (0, Vec::new());
    for preview in previews {
        let (label, wanted) = (line(&preview.item.setting.label()), &preview.item.wanted);
        let from = preview.item.from.as_ref().map_or(String::new(), |from| format!("  [{from}]"));
        match &preview.meets {
            Meets::Other { now } => {
                writeln!(out, "  change     {label}: {} -> {wanted}{from}", shorten(&now.to_string()))?
            }
            Meets::Refused(error) => {
                writeln!(
                    out,
                    "  refused    {label}: {wanted}{from}\n             {}",
                    error.to_string().replace('\n', "\n             ")
                )?;
            }
            Meets::AsWanted { .. } => same += 1,
            Meets::NotThere => absent.push(label),
        }
    }
    writeln!(out, "  {same} settings already have the wanted value")?;
    if !absent.is_empty() {
        writeln!(out, "  not on this host: {}", list(&absent))?;
    }
    if !resolved.arguments.is_empty() {
        writeln!(out, "  kernel command line: {}", resolved.arguments.join(" "))?;
    }
    for note in &resolved.notes {
        writeln!(out, "  note: {note}")?;
    }
    out.flush()
}

/// Prints what was applied.
pub fn applied(access: &Access, applied: &Applied, notes: &[String], out: &mut impl Write) -> io::Result<()> {
    for one in &applied.recovered {
        writeln!(out, "{}", recovered(one))?;
    }
    let (mut changed, mut same, mut absent) = (0, 0, Vec::new());
    for (item, became) in &applied.items {
        let label = line(&item.setting.label());
        match became {
            Became::Changed { before, now } => {
                changed += 1;
                writeln!(
                    out,
                    "  changed    {label}: {} -> {}",
                    shorten(&before.to_string()),
                    shorten(&now.to_string())
                )?;
            }
            Became::Otherwise { before, now, why } => {
                let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                writeln!(out, "  OTHERWISE  {label}: wanted {}, {before} -> {now}{why}", item.wanted)?;
            }
            Became::Refused(error) => {
                writeln!(out, "  REFUSED    {label}: {}", error.to_string().replace('\n', "\n             "))?;
            }
            Became::Already { .. } => same += 1,
            Became::NotThere => absent.push(label),
        }
    }
    for one in &applied.along {
        let (label, with) = (line(&one.setting.label()), line(&one.with.label()));
        let now = one.now.as_ref().map_or("gone".into(), |now| shorten(&now.to_string()));
        match &one.before {
            Ok(before) => {
                let before = shorten(&before.to_string());
                writeln!(out, "  along      {label}: {before} -> {now} (with {with}; a rollback restores it)")?;
            }
            Err(error) => {
                let error = error.to_string().replace('\n', "\n             ");
                writeln!(out, "  along      {label}: may change with {with}, and cannot be restored: {error}")?;
            }
        }
    }
    writeln!(out, "{changed} settings changed and verified, {same} already had the wanted value")?;
    if !absent.is_empty() {
        writeln!(out, "not on this host: {}", list(&absent))?;
    }
    for (item, became) in &applied.items {
        if let Some(what) = waits_for(access, &item.setting, &item.wanted).filter(|_| became.is_good()) {
            writeln!(out, "{} takes effect after {what}", line(&item.setting.label()))?;
        }
    }
    for note in notes {
        writeln!(out, "note: {note}")?;
    }
    if let Some(id) = applied.id {
        writeln!(out, "to undo: apus tune rollback {id}")?;
    }
    out.flush()
}

/// Says what was done about an unfinished transaction of an earlier command.
pub fn recovered(one: &Recovered) -> String {
    match one {
        Recovered::TakenBack { id } => {
            format!("transaction {id} was rolled back first, because it was unfinished or its process had ended")
        }
        Recovered::Past { id, undone, stays: 0 } => {
            format!("transaction {id} is closed: a reboot reset its {undone} settings")
        }
        Recovered::Past { id, undone, stays } => format!(
            "transaction {id}: a reboot reset {undone} settings; {stays} survive reboots: apus tune rollback {id} \
             removes them"
        ),
    }
}

/// Prints what was rolled back.
pub fn rolled_back(rolled_back: &[RolledBack], out: &mut impl Write) -> io::Result<()> {
    if rolled_back.is_empty() {
        writeln!(out, "nothing to roll back")?;
    }
    for one in rolled_back {
        let torn = if one.torn { "; its last journal record is incomplete: that change was never made" } else { "" };
        writeln!(out, "transaction {} ({}){torn}", one.id, line(one.name.as_deref().unwrap_or("unnamed")))?;
        // Side effects that were restored without a problem are not listed.
        let told = |entry: &Entry, outcome: &Outcome| {
            entry.intent.along.is_none() || !matches!(outcome, Outcome::Already | Outcome::Past | Outcome::Ended)
        };
        for (entry, outcome) in one.entries.iter().filter(|(entry, outcome)| told(entry, outcome)) {
            let mark = if outcome.is_settled() { "  " } else { "! " };
            let before = shorten(&entry.intent.before.to_string());
            writeln!(out, "{mark}{}: {before}: {outcome}", line(&entry.intent.setting.label()))?;
        }
        if let Some(why) = &one.left_alone {
            writeln!(out, "! not rolled back: {}", why.replace('\n', "\n  "))?;
        } else if !one.closed {
            let id = one.id;
            writeln!(
                out,
                "some settings could not be rolled back; try again: apus tune rollback {id} [--overwrite | --forget]"
            )?;
        }
    }
    out.flush()
}

/// Prints the open transactions and the current values of their settings.
pub fn status(document: &Status, out: &mut impl Write) -> io::Result<()> {
    if document.transactions.is_empty() {
        writeln!(out, "nothing is applied")?;
    }
    if let Some(command) = &document.at_boot {
        writeln!(out, "applied at each boot: {command} (apus tune disable stops that)")?;
    }
    for one in &document.transactions {
        heading(one, out)?;
        for stands in
            ["ours", "before", "theirs", "refused", "gone", "ended", "past", "elsewhere", "namespace_gone", "unknown"]
        {
            let settings: Vec<String> =
                one.items.iter().filter(|item| item.stands == stands).map(|item| line(&item.setting)).collect();
            if !settings.is_empty() {
                let meaning = match stands {
                    "ours" => "as applied",
                    "before" => "as before",
                    "theirs" => "changed by something else",
                    "refused" => "refused when it was applied",
                    "gone" => "no longer there",
                    "ended" => "ended with their thread",
                    "past" => "reset by a reboot",
                    "elsewhere" => "in another network namespace",
                    "namespace_gone" => "gone with their network namespace",
                    _ => "cannot be read",
                };
                writeln!(out, "  {:>4} {meaning}: {}", settings.len(), list(&settings))?;
            }
        }
        for (item, what) in one.items.iter().filter_map(|item| Some((item, item.waits_for.as_ref()?))) {
            writeln!(out, "  {} takes effect after {what}", line(&item.setting))?;
        }
    }
    out.flush()
}

fn heading(one: &OpenTransaction, out: &mut impl Write) -> io::Result<()> {
    let mut marks = Vec::new();
    if one.past {
        marks.push("from before the last reboot".to_owned());
    } else if one.abandoned {
        marks.push("ABANDONED: roll it back with apus tune rollback --abandoned".to_owned());
    }
    if one.namespace_gone {
        marks.push(format!("its network namespace no longer exists: apus tune rollback {} closes it", one.transaction));
    }
    marks.extend(one.damage.clone());
    let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join("; ")) };
    let name = line(one.name.as_deref().unwrap_or("unnamed"));
    writeln!(out, "transaction {} {name}{marks}\n  {}", one.transaction, line(one.command.as_deref().unwrap_or("")))
}

/// Prints the settings that no longer have the value that was applied.
pub fn verify(document: &Status, out: &mut impl Write) -> io::Result<()> {
    if document.transactions.is_empty() {
        writeln!(out, "nothing is applied, so there is nothing to verify")?;
        return out.flush();
    }
    let (mut good, mut all, mut refused) = (0, 0, 0);
    let ended = document.transactions.iter().flat_map(|one| &one.items).filter(|item| item.stands == "ended").count();
    if ended > 0 {
        writeln!(out, "  ended with their thread: {ended}")?;
    }
    for one in &document.transactions {
        let not_here = one.items.iter().filter(|item| item.is_elsewhere()).count();
        if let Some(name) = one.network_namespace.as_ref().filter(|_| not_here > 0) {
            let id = one.transaction;
            let what = if one.namespace_gone {
                format!("which no longer exists: apus tune rollback {id} closes it")
            } else {
                "and cannot be checked from here".into()
            };
            writeln!(out, "  transaction {id}: {not_here} settings belong to the network namespace {name}, {what}")?;
        }
        if let Some(damage) = &one.damage {
            writeln!(out, "  transaction {}: {damage}", one.transaction)?;
        } else if one.abandoned && one.items.iter().any(OpenItem::is_here) {
            let what = "the command that made it was killed: apus tune rollback --abandoned";
            writeln!(out, "  transaction {}: {what}", one.transaction)?;
        }
    }
    for item in document.transactions.iter().flat_map(|one| &one.items).filter(|item| item.is_here()) {
        all += 1;
        if let Some(effect) = &item.effect {
            let mark = match effect.seen {
                Some(true) => "effect seen   ",
                Some(false) => "NO EFFECT     ",
                None => "effect unknown",
            };
            writeln!(out, "  {mark} {}: {}", line(&item.setting), effect.text)?;
        }
        if let Some(what) = &item.waits_for {
            writeln!(out, "  {} takes effect after {what}", line(&item.setting))?;
            continue;
        }
        if item.as_wanted == Some(true) {
            good += 1;
            continue;
        }
        let now = item.now.as_ref().map_or("cannot be read".to_owned(), |now| shorten(&show(now)));
        let why = item.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        refused += u32::from(item.stands == "refused");
        writeln!(out, "  {}: wanted {}, is {now}{why}", line(&item.setting), show(&item.wanted))?;
    }
    let refused = if refused > 0 { format!("; {refused} refused when applied") } else { String::new() };
    writeln!(out, "{good} of {all} settings have the wanted value{refused}")?;
    out.flush()
}

/// Prints the settings that do not have the value that the profile wants.
pub fn verify_profile(resolved: &Resolved, previews: &[Preview], out: &mut impl Write) -> io::Result<()> {
    let (mut good, mut absent) = (0, Vec::new());
    for Preview { item, meets } in previews {
        let (label, wanted) = (line(&item.setting.label()), &item.wanted);
        match meets {
            Meets::AsWanted { .. } => good += 1,
            Meets::NotThere => absent.push(label),
            Meets::Other { now } => writeln!(out, "  {label}: wanted {wanted}, is {}", shorten(&now.to_string()))?,
            Meets::Refused(error) => {
                writeln!(out, "  {label}: wanted {wanted}: {}", error.to_string().replace('\n', "\n    "))?;
            }
        }
    }
    writeln!(out, "{good} of {} settings have the values of {}", previews.len() - absent.len(), resolved.plan.name)?;
    if !absent.is_empty() {
        writeln!(out, "not on this host: {}", list(&absent))?;
    }
    for note in &resolved.notes {
        writeln!(out, "note: {note}")?;
    }
    out.flush()
}

/// Prints the recommended profile, and the reasons for it.
pub fn recommendation(found: &Recommendation, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", found.profile)?;
    for reason in &found.reasons {
        writeln!(out, "  {reason}")?;
    }
    for (other, why) in &found.others {
        writeln!(out, "not {other}: {why}")?;
    }
    writeln!(out, "to see what it would change: apus tune plan {}", found.profile)?;
    out.flush()
}

/// Prints the changes of the open transactions: each setting with its previous value and the new one.
pub fn diff(document: &Status, out: &mut impl Write) -> io::Result<()> {
    for one in &document.transactions {
        heading(one, out)?;
        for item in &one.items {
            let Some(before) = &item.before else { continue };
            let now = item.now.as_ref().map_or("?".to_owned(), show);
            writeln!(out, "  {}\n    - {}\n    + {now}", line(&item.setting), show(before))?;
        }
    }
    out.flush()
}

fn show(value: &Value) -> String {
    match value {
        Value::Text(text) if text.is_empty() => "(empty)".into(),
        Value::Text(text) => line(text),
        Value::Fields(fields) => {
            line(&fields.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "))
        }
    }
}

/// Shortens a value to one line: the feature list of a network device would fill a screen.
fn shorten(text: &str) -> String {
    const MOST: usize = 100;
    let text = &line(text);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Lists the first few of many names.
fn list(names: &[String]) -> String {
    const MOST: usize = 4;
    match names.len().checked_sub(MOST) {
        Some(more @ 1..) => format!("{} and {more} more", names[..MOST].join(", ")),
        _ => names.join(", "),
    }
}
