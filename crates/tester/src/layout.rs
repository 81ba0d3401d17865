//! Formats plain text: aligned columns, and lines of limited width.

/// Aligns the cells of `rows` in columns. Each column is as wide as its widest cell, and two spaces separate columns.
/// Columns for which `left` is true are aligned left (text), the others right (numbers). No line ends with spaces.
pub fn aligned(rows: &[impl AsRef<[String]>], left: impl Fn(usize) -> bool) -> Vec<String> {
    let rows = || rows.iter().map(AsRef::as_ref);
    let columns = rows().map(<[String]>::len).max().unwrap_or(0);
    let width = |column: usize| rows().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if left(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows().map(line).collect()
}

/// Breaks `text` at spaces into lines of at most `width` columns. A word longer than a line is not broken. The first
/// line begins with `first`, all others with `rest`.
pub fn wrapped(first: &str, rest: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut empty) = (first.to_owned(), true);
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_to_the_left_and_numbers_to_the_right() {
        let rows = [vec!["NAME", "N"], vec!["a", "10", "said"], vec!["–", ""]];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(aligned(&rows, |column| column != 1), ["NAME   N", "a     10  said", "–"]);
    }

    #[test]
    fn lines_have_their_width_and_lose_no_word() {
        assert_eq!(wrapped("- ", "  ", "one two three", 9), ["- one two", "  three"]);
        assert_eq!(wrapped("", "", "longer than it", 4), ["longer", "than", "it"]);
        assert_eq!(wrapped("x ", "", "", 4), ["x "]);
    }
}
