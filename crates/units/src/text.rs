//! Characters that do something instead of being shown: the one list for all that writes text.

/// Does a character act on a terminal, or on the order in which a text is shown? All of Unicode's Cc (C0, DEL, C1) but
/// line feed and tab, the separators of lines and paragraphs, and what has the property Bidi_Control (UAX #9, 2).
///
/// Text of a host, an archive or a file name may hold them; whoever writes it out replaces them.
pub const fn acts(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_cc_and_bidi_and_nothing_that_is_read() {
        let controls = (0..0x11_0000).filter_map(char::from_u32).filter(|c| c.is_control());
        assert!(controls.filter(|c| !matches!(c, '\n' | '\t')).all(acts));
        assert!("\u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}".chars().all(acts));
        assert!(!"\n\tazµß→─█·±≥“”…日本\u{a0}\u{200b}".chars().any(acts));
    }
}
