//! Sentences that the text, the page and the JSON document of a report share.

use audit::{Gain, spaced};

/// Explains the sizes of the delays that are compared with a goal.
pub(super) const SIZES: &str = "the worst case that this host reports, or else a typical value; \
                                do not add them up, as several may have the same cause";

/// Says why an action is worthwhile: the worst finding that it fixes.
pub(super) fn gain(gain: &Gain<'_>) -> String {
    let judgement = &gain.finding.judgement;
    let more = gain.alike - 1;
    let subject = match more {
        0 => judgement.subject.to_string(),
        _ => format!("{} and {more} more", judgement.subject),
    };
    let found = match &judgement.subject {
        audit::Subject::Host => capital(&judgement.found),
        audit::Subject::Parameter(name) if judgement.found.contains(name) => judgement.found.clone(),
        audit::Subject::Parameter(_) => format!("{subject}: {}", judgement.found),
        _ if judgement.found.contains(&subject) => capital(&judgement.found),
        _ => format!("{}: {}", capital(&subject), judgement.found),
    };
    match (gain.effect, gain.of_this_host) {
        (Some(effect), true) => format!("{found}. Delay: up to {} on this host.", spaced(effect)),
        (Some(effect), false) => format!("{found}. Typical delay: {}; not measured on this host.", spaced(effect)),
        (None, _) if gain.finding.slower => {
            format!("{found}. No packet waits because of this, but each takes longer to process.")
        }
        (None, _) => format!("{found}."),
    }
}

/// Says why the fixes of a number of rules are not advised yet: apus does not know what the host is for.
pub(super) fn withheld(rules: usize) -> String {
    let (what, them) = match rules {
        1 => ("The fix trades", "it"),
        _ => ("The fixes for this and some other findings trade", "them"),
    };
    format!(
        "{what} power, safety or a feature for lower latency, so apus recommends {them} only if it knows that latency \
         matters on this host."
    )
}

/// Formats a line of an action as an instruction. `nothing: ...` means that the running host cannot be changed.
pub(super) fn instruction(line: &str) -> String {
    match line.strip_prefix("nothing: ") {
        Some(reason) => format!("at run time, nothing: {reason}"),
        None => line.to_owned(),
    }
}

/// Says how much delay a mechanism adds: this host's own number if known, then typical sizes with their source.
pub(super) fn delay(own: Option<units::Nanos>, text: &str, source: &str) -> String {
    let own = own.map(|own| format!("up to {} on this host; in general: ", spaced(own))).unwrap_or_default();
    format!("{own}{text} [{source}]")
}

/// Joins strings into one paragraph in which each sentence occurs once.
pub(super) fn once(texts: &[impl AsRef<str>]) -> String {
    let mut sentences: Vec<&str> = Vec::new();
    for sentence in texts.iter().flat_map(|text| text.as_ref().split_inclusive(". ")).map(str::trim_end) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences.join(" ")
}

/// Names the rules that still have findings after the recommended steps. Each item of `findings` is a rule and whether
/// a step fixes the finding. `None` if a step fixes every finding.
pub(super) fn without_step<'a>(findings: impl Iterator<Item = (&'a str, bool)>) -> Option<String> {
    let mut rules: Vec<(&str, [bool; 2])> = Vec::new();
    for (rule, is_fixed) in findings {
        let at = rules.iter().position(|(known, _)| *known == rule).unwrap_or_else(|| {
            rules.push((rule, [false; 2]));
            rules.len() - 1
        });
        rules[at].1[usize::from(is_fixed)] = true;
    }
    let open = rules.into_iter().filter(|(_, [is_open, _])| *is_open);
    let names: Vec<String> =
        open.map(|(rule, [_, is_fixed])| format!("{rule}{}", if is_fixed { " (in part)" } else { "" })).collect();
    let see = if names.len() == 1 { "See its finding below" } else { "See their findings below" };
    (!names.is_empty()).then(|| format!("Not fixed by these steps: {}. {see}.", names.join(", ")))
}

/// Capitalizes the first letter of a sentence, unless it starts with an identifier or the name of a program or
/// driver.
pub(super) fn capital(text: &str) -> String {
    /// Programs and drivers whose names may start a finding.
    const NAMES: [&str; 12] = [
        "irdma",
        "irqbalance",
        "tuned",
        "chronyd",
        "ntpd",
        "kubelet",
        "mlockall",
        "rcuo",
        "khugepaged",
        "ksmd",
        "resctrl",
        "bpf",
    ];
    let first = text.split_whitespace().next().unwrap_or_default();
    let word = first.trim_end_matches([',', ':', ';']);
    let is_plain = word.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '\''));
    if !is_plain || NAMES.contains(&word) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recording icx2s0: the costs of two settings of the same CPUs are partly equal.
    #[test]
    fn a_sentence_stands_once_in_a_paragraph() {
        let costs = ["More power. Also changes CPUs 6-7.", "Less is saved. Also changes CPUs 6-7."];
        assert_eq!(once(&costs), "More power. Also changes CPUs 6-7. Less is saved.");
    }

    /// The recording emr0 has a sixth action, and a firmware setting whose cause a step fixes in another way.
    #[test]
    fn every_finding_without_a_step_is_named() {
        let findings = [("cpu.epp", true), ("cmd.hugepages", false), ("idle.states", true), ("idle.states", false)];
        assert_eq!(
            without_step(findings.into_iter()).as_deref(),
            Some("Not fixed by these steps: cmd.hugepages, idle.states (in part). See their findings below.")
        );
        let one = [("cmd.hugepages", false), ("cmd.hugepages", false), ("cpu.epp", true)];
        assert_eq!(
            without_step(one.into_iter()).as_deref(),
            Some("Not fixed by these steps: cmd.hugepages. See its finding below.")
        );
        assert_eq!(without_step([("cpu.epp", true)].into_iter()), None);
    }

    #[test]
    fn identifiers_keep_their_case() {
        for kept in ["skew_tick=1 is given twice", "irqbalance runs", "idle=poll: no", "0 of 3"] {
            assert_eq!(capital(kept), kept);
        }
        assert_eq!(capital("the governor is powersave"), "The governor is powersave");
        assert_eq!(capital("uncore package_00_die_00: low"), "Uncore package_00_die_00: low");
    }
}
