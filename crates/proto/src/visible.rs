//! Escaping of untrusted text for display on a terminal or to a model.
//!
//! Control characters can move the cursor, overwrite earlier output, or set the terminal's title.
//! Bidirectional overrides can make a path read as another. Invisible characters can carry words
//! that only a machine reads. All of them are escaped, so none takes effect.

mod scan;
mod table;

pub use scan::HiddenCharacters;

use scan::{Piece, scan};
use std::fmt::Write;
use table::SignClass;

/// Returns the bytes as one printable line. Line ends and tabs are escaped too, and each byte that
/// is not UTF-8 is escaped as `\xNN`.
pub fn line(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    push(&mut safe, bytes, false);
    safe
}

/// Same as [`line()`], for a string.
pub fn line_of_text(text: &str) -> String {
    line(text.as_bytes())
}

/// Returns the bytes as printable text of several lines. Line feeds and tabs stay, and a carriage
/// return before a line feed is dropped.
pub fn lines(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    push_lines(&mut safe, bytes);
    safe
}

/// Appends the result of [`lines`] to `safe`.
pub fn push_lines(safe: &mut String, bytes: &[u8]) {
    // The loop visits all bytes instead of stopping at the first special one: without an early exit
    // the compiler vectorizes it.
    let is_plain = bytes.iter().fold(true, |plain, byte| {
        plain & (matches!(byte, b' '..=b'~') | matches!(byte, b'\n' | b'\t'))
    });
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain => safe.push_str(text),
        _ => push(safe, bytes, true),
    }
}

/// Returns one line, given without its line feed, for a person who reviews it. Tabs stay; blanks
/// other than the space are escaped too. With `is_marked` the escapes are in reverse video, so that
/// an escape differs from a typed `\x1b`.
pub fn review_line(bytes: &[u8], is_marked: bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    let (begin, end) = if is_marked {
        ("\u{1b}[7m", "\u{1b}[27m")
    } else {
        ("", "")
    };
    scan(bytes, true, |piece| match piece {
        Piece::Plain(text) => shown.push_str(text),
        Piece::Char(c @ '\t', _) => shown.push(c),
        Piece::Char(c, None) if !c.is_control() => shown.push(c),
        Piece::Char(c, _) => {
            shown.push_str(begin);
            push_escaped(&mut shown, c);
            shown.push_str(end);
        }
        Piece::Byte(byte) => {
            let _ = write!(shown, "{begin}\\x{byte:02x}{end}");
        }
    });
    shown
}

fn push(safe: &mut String, bytes: &[u8], is_text: bool) {
    scan(bytes, false, |piece| match piece {
        Piece::Plain(text) => safe.push_str(text),
        Piece::Char(c @ ('\n' | '\t'), _) if is_text => safe.push(c),
        Piece::Char('\r', None) if is_text => {}
        Piece::Char(c, Some(SignClass::Note)) => safe.push(c),
        Piece::Char(c, None) if !c.is_control() => safe.push(c),
        Piece::Char(c, _) => push_escaped(safe, c),
        Piece::Byte(byte) => {
            let _ = write!(safe, "\\x{byte:02x}");
        }
    });
}

fn push_escaped(safe: &mut String, c: char) {
    // Writing into a string cannot fail.
    let _ = match c {
        '\n' => write!(safe, "\\n"),
        '\t' => write!(safe, "\\t"),
        '\r' => write!(safe, "\\r"),
        c if c.is_ascii_control() => write!(safe, "\\x{:02x}", c as u32),
        c => write!(safe, "\\u{{{:x}}}", c as u32),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        assert_eq!(line(b"a\x1b[2Jb\x07\x7f\n"), "a\\x1b[2Jb\\x07\\x7f\\n");
        assert_eq!(
            line("\u{9b}31m \u{202e}txt.exe".as_bytes()),
            "\\u{9b}31m \\u{202e}txt.exe"
        );
        assert_eq!(line(b"ok \xff\xfe"), "ok \\xff\\xfe");
        assert_eq!(line_of_text("größe 漢字"), "größe 漢字");
        assert_eq!(
            line_of_text("a\u{e0041}b\u{e0100}c"),
            "a\\u{e0041}b\\u{e0100}c"
        );
    }

    #[test]
    fn every_range_of_the_table_is_a_sign_and_counted() {
        for (first, last, class) in table::RANGES {
            for c in [*first, *last].into_iter().filter_map(char::from_u32) {
                // After another sign no selector is in its place.
                let (text, code) = (format!("\u{202e}{c}b"), u32::from(c));
                let hidden = HiddenCharacters::of(&text);
                let count = 1 + usize::from(*class == SignClass::Warn);
                assert!(
                    hidden.to_string().starts_with(&format!("{count} hidden")),
                    "{code:x}"
                );
                assert!(!review_line(text.as_bytes(), false).contains(c), "{code:x}");
            }
        }
        let text = "rm -rf build \u{1b}]8;;x\u{7}\u{202e}\u{202e}";
        assert_eq!(
            HiddenCharacters::of(text).to_string(),
            "4 hidden characters: ESC, BEL, RLO"
        );
        let pile = format!("o{}", "\u{301}".repeat(300));
        assert_eq!(
            HiddenCharacters::of(&pile).to_string(),
            "292 hidden characters: U+0301"
        );
        let mut bytes = HiddenCharacters::default();
        bytes.add_line(b"caf\xe9\r");
        assert_eq!(bytes.to_string(), "1 hidden character: 0xE9");
        assert_eq!(
            HiddenCharacters::of("rm x\rls\r\n").to_string(),
            "1 hidden character: CR"
        );
    }

    #[test]
    fn scripts_and_emoji_that_need_joiners_and_selectors_stay_as_they_are() {
        for text in [
            "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
            "\u{1f3f3}\u{fe0f}\u{200d}\u{1f308}",
            "\u{2764}\u{fe0f}",
            "\u{845b}\u{e0100}",
            "\u{5e9}\u{5c1}\u{5b8}\u{5dc}\u{5d5}\u{5b9}\u{5dd}",
            "tab\there",
        ] {
            assert!(HiddenCharacters::of(text).is_empty(), "{text}");
            assert_eq!(review_line(text.as_bytes(), true), text);
            assert_eq!(lines(text.as_bytes()), text);
        }
        let blank = "Bonjour\u{a0}!";
        assert!(HiddenCharacters::of(blank).is_empty());
        assert_eq!(line_of_text(blank), blank);
        assert_eq!(
            review_line(blank.as_bytes(), true),
            "Bonjour\u{1b}[7m\\u{a0}\u{1b}[27m!"
        );
        // Without reverse video an escape looks like text that a person typed.
        assert_eq!(review_line(b"\\x1b", true), "\\x1b");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(lines(b"a\tb\r\nc\rd\n\x1b"), "a\tb\nc\\rd\n\\x1b");
    }

    proptest! {
        #[test]
        fn what_is_shown_only_shows(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,100}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let is_safe = |c: char| !c.is_control();
                let (one, several) = (line(bytes), lines(bytes));
                prop_assert!(one.chars().all(is_safe));
                prop_assert!(several.chars().all(|c| is_safe(c) || c == '\n' || c == '\t'));
                prop_assert!(HiddenCharacters::of(&one).is_empty() && HiddenCharacters::of(&several).is_empty());
                let reviewed = review_line(bytes, false);
                prop_assert!(reviewed.chars().all(|c| is_safe(c) || c == '\t'));
                prop_assert!(HiddenCharacters::of(&reviewed).is_empty());
                // Escaping is idempotent.
                prop_assert_eq!(line(one.as_bytes()), one);
            }
        }
    }
}
