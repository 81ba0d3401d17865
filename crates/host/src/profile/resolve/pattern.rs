//! Patterns for names: `*` stands for any string, and `?` for any character, as in a shell.

/// Whether a string is a pattern and not a name.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether `name` matches `pattern`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The last star, and how much of the name it matches so far. Backtracking only to the last star avoids an
    // exponential search.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("eth*", "eth0", true),
            ("eth*", "veth0", false),
            ("ens?f0", "ens1f0", true),
            ("ens?f0", "ens10f0", false),
            ("irq/*-mlx5*", "irq/33-mlx5_comp", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbxc", false),
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
        let long = "a".repeat(200);
        assert!(!matches(&("*a".repeat(50) + "b"), &long), "and ends soon");
    }
}
