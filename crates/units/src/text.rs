//! Characters that control a terminal instead of being shown. All code that writes text from outside Apus uses this
//! list.

/// Returns whether a character controls a terminal, or changes the order in which text is shown. Such characters are:
/// Unicode's category Cc (C0, DEL, C1) except line feed and tab; the line and paragraph separators; and the characters
/// with the property Bidi_Control (UAX #9, 2).
///
/// Text from a host, an archive or a file name may contain such characters. Code that writes the text to a terminal
/// must replace them.
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
