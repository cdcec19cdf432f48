//! Making foreign text safe to show, to a terminal or a model.
//!
//! Control characters can move the cursor, rewrite what was printed, or set the terminal's title;
//! bidirectional overrides can make a path read as another; invisible characters can carry words that
//! only a machine reads. All of them are shown, none acted upon.

use std::fmt::Write;

/// Bytes as one line: line ends and tabs are shown as well, and what is not UTF-8 byte by byte.
pub fn line(bytes: &[u8]) -> String {
    show(bytes, |_| false)
}

/// [`line`] of what is known to be text.
pub fn line_of_text(text: &str) -> String {
    line(text.as_bytes())
}

/// Bytes as text of several lines: line feeds and tabs stay, the carriage return before a line feed
/// is dropped.
pub fn lines(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    push_lines(&mut safe, bytes);
    safe
}

/// [`lines`] added to a text.
pub fn push_lines(safe: &mut String, bytes: &[u8]) {
    // All of it is looked at, and not up to the first that is not plain: that goes many bytes at a time.
    let is_plain = bytes.iter().fold(true, |plain, byte| {
        plain & (matches!(byte, b' '..=b'~') | matches!(byte, b'\n' | b'\t'))
    });
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain => safe.push_str(text),
        _ => push(safe, bytes, |c| matches!(c, '\n' | '\t')),
    }
}

fn show(bytes: &[u8], stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(bytes.len());
    push(&mut safe, bytes, stays);
    safe
}

fn push(safe: &mut String, bytes: &[u8], stays: impl Fn(char) -> bool) {
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(c) = rest.chars().next() {
            // Most text is plain: whole runs of it are taken at once.
            let plain = rest
                .bytes()
                .position(|byte| !(b' '..=b'~').contains(&byte))
                .unwrap_or(rest.len());
            if plain > 0 {
                safe.push_str(&rest[..plain]);
                rest = &rest[plain..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            if stays(c) {
                safe.push(c);
            } else if !(c == '\r' && stays('\n') && rest.starts_with('\n')) {
                push_escaped(safe, c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(safe, "\\x{byte:02x}");
        }
    }
}

fn push_escaped(safe: &mut String, c: char) {
    // Writing into a string cannot fail.
    let _ = match c {
        '\n' => write!(safe, "\\n"),
        '\t' => write!(safe, "\\t"),
        '\r' => write!(safe, "\\r"),
        c if c.is_ascii_control() => write!(safe, "\\x{:02x}", c as u32),
        c if c.is_control() || is_invisible(c) => write!(safe, "\\u{{{:x}}}", c as u32),
        c => write!(safe, "{c}"),
    };
}

/// Marks that change the order or the look of their neighbours, or have no look of their own (Unicode
/// bidirectional algorithm, default ignorable characters, line and paragraph separators, tags).
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
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
    fn lines_stay_lines() {
        assert_eq!(lines(b"a\tb\r\nc\rd\n\x1b"), "a\tb\nc\\rd\n\\x1b");
    }

    proptest! {
        #[test]
        fn what_is_shown_only_shows(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,100}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let is_safe = |c: char| !c.is_control() && !is_invisible(c);
                let (one, several) = (line(bytes), lines(bytes));
                prop_assert!(one.chars().all(is_safe));
                prop_assert!(several.chars().all(|c| is_safe(c) || c == '\n' || c == '\t'));
                // Showing what is shown changes nothing.
                prop_assert_eq!(line(one.as_bytes()), one);
            }
        }
    }
}
