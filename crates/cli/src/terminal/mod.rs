//! All text output goes through this module: standard output, standard error, and the text files that commands write.
//!
//! Text from a host, an archive, a profile or a file name can contain escape sequences that move the cursor, rename the
//! window, or type for the user. It can also contain bidirectional overrides, which display text in another order. So
//! all output goes through [`Clean`], which writes such a character as `\u001b`. People can read this form, and parsers
//! of JSON (RFC 8259, 7) and of TOML's basic strings (TOML 1.0) decode it to the original character. Styles and cursor
//! movements are methods of this module, so no text needs escape sequences of its own. Clippy (clippy.toml, lib.rs) and
//! tests/it/laws.rs forbid any other output.

pub(crate) mod aside;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use units::acts;

/// A writer that makes control characters visible.
#[derive(Debug)]
pub(crate) struct Clean<W> {
    to: W,
    colours: bool,
    /// The bytes written so far of an incomplete UTF-8 character.
    begun: Vec<u8>,
}

/// A text style. It has no effect if the terminal does not support it or NO_COLOR is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Underlined,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// Standard output, with control characters made visible.
#[expect(clippy::disallowed_methods, reason = "this is the way out")]
pub(crate) fn out() -> Clean<io::StdoutLock<'static>> {
    let to = io::stdout().lock();
    let colours = to.is_terminal() && !no_color();
    Clean::new(to, colours)
}

/// Standard error, with control characters made visible.
#[expect(clippy::disallowed_methods, reason = "this is the way out")]
pub(crate) fn err() -> Clean<io::StderrLock<'static>> {
    let to = io::stderr().lock();
    let colours = to.is_terminal() && !no_color();
    Clean::new(to, colours)
}

/// Prints `document` as JSON, or calls `say` to print it as text.
pub(crate) fn print(
    json: bool,
    document: &impl Serialize,
    say: impl FnOnce(&mut Clean<io::StdoutLock<'static>>) -> io::Result<()>,
) -> anyhow::Result<()> {
    if json { print_json(document) } else { Ok(say(&mut out())?) }
}

/// Whether standard output is a terminal.
#[expect(clippy::disallowed_methods, reason = "this is the way out")]
pub(crate) fn out_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
#[expect(clippy::disallowed_methods, reason = "this is the way out")]
pub(crate) fn err_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes a text file with control characters made visible, because `cat` and `less -R` would pass them on. An existing
/// file is replaced as a whole.
pub(crate) fn file(path: &Path, text: &str) -> io::Result<()> {
    tester::replace::write(path, clean(text).as_bytes())
}

/// Makes the control characters in a string visible.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => visible.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => visible.push(c),
        }
    }
    Cow::Owned(visible)
}

/// Makes control characters visible, including line breaks and tabs, so that the string stays on one line.
pub(crate) fn line(text: &str) -> String {
    clean(text).replace('\n', "\\u000a").replace('\t', "\\u0009")
}

impl<W: Write> Clean<W> {
    /// Wraps the writer `to`. `colours` says whether styles take effect.
    pub(crate) fn new(to: W, colours: bool) -> Self {
        Self { to, colours, begun: Vec::new() }
    }

    /// Writes text in a style.
    pub(crate) fn styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        if !self.colours || style == Style::Plain {
            return self.write_all(text.as_bytes());
        }
        // Select Graphic Rendition (ECMA-48, 8.3.117).
        write!(self.to, "\x1b[{}m", style.rendition())?;
        self.write_all(text.as_bytes())?;
        self.to.write_all(b"\x1b[0m")
    }

    /// Erases the current line, to write it again (ECMA-48, EL).
    pub(crate) fn erase_line(&mut self) -> io::Result<()> {
        self.to.write_all(b"\r\x1b[K")
    }

    /// Erases the last lines and the current one (ECMA-48, CUU and ED).
    pub(crate) fn erase_lines(&mut self, lines: usize) -> io::Result<()> {
        if lines > 0 {
            write!(self.to, "\x1b[{lines}A")?;
        }
        self.to.write_all(b"\r\x1b[J")
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> W {
        self.to
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.to.write_all(clean(chunk.valid()).as_bytes())?;
            let odd = chunk.invalid();
            if chunks.peek().is_none() && begins_a_character(odd) {
                self.begun = odd.to_vec();
                return Ok(());
            }
            for byte in odd {
                write!(self.to, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether `bytes` end with an incomplete UTF-8 character, without an invalid byte before it.
fn begins_a_character(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut whole = std::mem::take(&mut self.begun);
        match whole.is_empty() {
            true => self.put(bytes)?,
            false => {
                whole.extend_from_slice(bytes);
                self.put(&whole)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Style {
    const fn rendition(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Underlined => 4,
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Cyan => 36,
        }
    }
}

/// Prints `document` to standard output as indented JSON.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print_json_to(&mut out(), document)
}

/// Prints `document` as indented JSON to `out`, for callers that have already locked the output.
pub(crate) fn print_json_to(out: &mut impl Write, document: &impl Serialize) -> anyhow::Result<()> {
    let written = serde_json::to_writer_pretty(&mut *out, document).map_err(io::Error::from);
    written.and_then(|()| writeln!(out)).and_then(|()| out.flush()).context("cannot write the JSON document")
}

/// Whether the user turned colors off: NO_COLOR is set and not empty (no-color.org).
pub(crate) fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&[u8]]) -> String {
        let mut out = Clean::new(Vec::new(), false);
        pieces.iter().for_each(|piece| out.write_all(piece).unwrap());
        String::from_utf8(out.to).unwrap()
    }

    #[test]
    fn what_acts_on_a_terminal_is_shown_and_does_nothing() {
        for (hostile, shown) in [
            ("\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"),
            ("\u{9b}31m\u{7f}\r", "\\u009b31m\\u007f\\u000d"),
            ("a\u{202e}b\u{2066}c\u{200f}d\u{2028}", "a\\u202eb\\u2066c\\u200fd\\u2028"),
            ("tab\tline\nµs ± 3 → ü", "tab\tline\nµs ± 3 → ü"),
        ] {
            assert_eq!(clean(hostile), shown);
            assert_eq!(written(&[hostile.as_bytes()]), shown);
        }
    }

    #[test]
    fn characters_may_come_in_pieces_and_bytes_may_be_none() {
        let text = "→\u{9b}ü".as_bytes();
        for cut in 0..=text.len() {
            assert_eq!(written(&[&text[..cut], &text[cut..]]), "→\\u009bü", "cut at {cut}");
        }
        // A lone C1 byte acts on terminals that are not in UTF-8.
        assert_eq!(written(&[b"a\x9b31mb", b"\xff"]), "a\\x9b31mb\\xff");
    }

    #[test]
    fn documents_stay_the_same_to_their_readers() {
        let hostile = "\u{9b}\u{7f}\u{202e}\x1b\n";
        let json = serde_json::to_string(&[hostile]).unwrap();
        let shown = clean(&json);
        assert!(!shown.contains(acts));
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [hostile]);
        let toml = toml::to_string(&std::collections::BTreeMap::from([("a", "\u{9b}\u{202e}")])).unwrap();
        let read: toml::Table = toml::from_str(&clean(&toml)).unwrap();
        assert_eq!(read["a"].as_str(), Some("\u{9b}\u{202e}"), "{toml}");
    }

    #[test]
    fn styles_come_from_us_alone() {
        let mut out = Clean::new(Vec::new(), true);
        out.styled(Style::Red, "a\x1b[0m").unwrap();
        assert_eq!(out.to, b"\x1b[31ma\\u001b[0m\x1b[0m");
        let mut out = Clean::new(Vec::new(), false);
        out.styled(Style::Red, "a").unwrap();
        assert_eq!(out.to, b"a");
    }
}
