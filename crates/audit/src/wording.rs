//! Corrects the grammar of sentences with a number: one CPU is, two CPUs are.

/// Formats a duration with a space before the unit, such as `210 us`.
pub fn spaced(time: units::Nanos) -> String {
    let text = time.to_string();
    match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => format!("{} {}", &text[..at], &text[at..]),
        None => text,
    }
}

/// Countable nouns, in the plural and in the singular.
const THINGS: &[(&str, &str)] = &[
    ("CPUs", "CPU"),
    ("connections", "connection"),
    ("cores", "core"),
    ("entries", "entry"),
    ("groups", "group"),
    ("interrupts", "interrupt"),
    ("messages", "message"),
    ("nodes", "node"),
    ("packets", "packet"),
    ("parameters", "parameter"),
    ("processes", "process"),
    ("profilers", "profiler"),
    ("queues", "queue"),
    ("readers", "reader"),
    ("services", "service"),
    ("softirqs", "softirq"),
    ("threads", "thread"),
    ("times", "time"),
    ("units", "unit"),
    ("vulnerabilities", "vulnerability"),
];

/// Verbs that follow a countable noun, in the plural and in the singular.
const DEEDS: &[(&str, &str)] = &[
    ("are", "is"),
    ("were", "was"),
    ("have", "has"),
    ("go", "goes"),
    ("run", "runs"),
    ("keep", "keeps"),
    ("set", "sets"),
    ("share", "shares"),
    ("tick", "ticks"),
];

/// Maximum number of words between a number and its noun.
const BETWEEN: usize = 3;

/// Changes the plural to the singular if the number is one: `1 interrupts go` becomes `1 interrupt goes`, `CPUs 7 are`
/// becomes `CPU 7 is`.
pub(crate) fn singular(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for at in 0..words.len() {
        let one = |word: &str| replaced(word, THINGS);
        let next = |n: usize| words.get(n).map_or("", String::as_str);
        let thing = match words[at].as_str() {
            // "1 of 5 interrupts" stays in the plural.
            "1" if at == 0 || words[at - 1] != "of" => (at + 1..=at + 1 + BETWEEN)
                .find(|n| one(next(*n)).is_some())
                .filter(|thing| (at + 1..*thing).all(|n| is_plain(next(n)))),
            "CPUs" if is_number(next(at + 1)) => Some(at),
            _ => None,
        };
        let Some(thing) = thing else { continue };
        // The verb follows: after the CPU's number, after the thing that is counted, or after "which".
        let deed = match next(thing + 1).ends_with(',') && next(thing + 2) == "which" {
            true => Some(thing + 3),
            false => (thing + 1..=thing + 3)
                .take_while(|n| !next(n - 1).ends_with([',', ';', ':']))
                .find(|n| replaced(next(*n), DEEDS).is_some()),
        };
        if let Some(one) = one(&words[thing]) {
            words[thing] = one;
        }
        let Some(deed) = deed else { continue };
        if let Some(one) = words.get(deed).and_then(|word| replaced(word, DEEDS)) {
            words[deed] = one;
            if let Some(their) = words.get_mut(deed + 1).filter(|word| *word == "their") {
                *their = "its".to_owned();
                let owned = words.get(deed + 2).and_then(|word| replaced(word, &[("cores", "core")]));
                if let Some(owned) = owned {
                    words[deed + 2] = owned;
                }
            }
            // "while they are busy" refers to the same thing.
            if let Some(they) = (deed + 1..words.len().saturating_sub(1)).find(|n| words[*n] == "they")
                && let Some(one) = replaced(&words[they + 1], DEEDS)
            {
                (words[they], words[they + 1]) = ("it".to_owned(), one);
            }
        }
    }
    words.join(" ")
}

/// The singular of a word, according to the table. A punctuation mark after the word is kept. `None` if the table does
/// not contain the word.
fn replaced(word: &str, table: &[(&str, &str)]) -> Option<String> {
    let plain = word.trim_end_matches([',', ';', ':']);
    let (_, one) = table.iter().find(|(many, _)| *many == plain)?;
    Some(format!("{one}{}", &word[plain.len()..]))
}

/// Whether the word can stand between a number and its noun. Units and prepositions cannot.
fn is_plain(word: &str) -> bool {
    !["s", "ms", "us", "ns", "of", "to", "and", "or", "in", "from"].contains(&word)
        && word.bytes().all(|c| c.is_ascii_alphabetic())
}

/// Whether the word is a single number, not a list.
fn is_number(word: &str) -> bool {
    let plain = word.trim_end_matches([',', ';', ':']);
    !plain.is_empty() && plain.bytes().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_and_several_are() {
        for (many, one) in [
            ("1 known readers of registers run", "1 known reader of registers runs"),
            ("1 such services run", "1 such service runs"),
            ("1 vulnerabilities are open, 3 are mitigated", "1 vulnerability is open, 3 are mitigated"),
            ("CPUs 1 are out of the scheduler's domains", "CPU 1 is out of the scheduler's domains"),
            (
                "new interrupts may go to CPUs 7, which are the application's",
                "new interrupts may go to CPU 7, which is the application's",
            ),
            ("CPUs 7 keep their tick while they are busy", "CPU 7 keeps its tick while it is busy"),
            (
                "CPUs 5 share their cores with CPUs 4, which are not isolated",
                "CPU 5 shares its core with CPU 4, which is not isolated",
            ),
            ("which leaves CPUs 5 to housekeeping", "which leaves CPU 5 to housekeeping"),
            ("1 queues are alike", "1 queue is alike"),
        ] {
            assert_eq!(singular(many), one);
        }
        for kept in [
            "CPUs 2-7 are out",
            "CPUs 1,3 keep",
            "11 queues are alike",
            "3 of 5 interrupts go",
            "1 us for C1",
            "0 of 1 nodes",
            "1 of 5 interrupts go",
            "1 us of 3 interrupts",
        ] {
            assert_eq!(singular(kept), kept);
        }
    }
}
