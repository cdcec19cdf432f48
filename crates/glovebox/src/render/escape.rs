//! Making foreign text safe to show.
//!
//! Control characters can move the cursor, rewrite what was printed, or set the terminal's title;
//! bidirectional overrides can make a path read as another. All of them are shown, none acted upon.

use std::fmt::Write;

/// Bytes from a sandbox, a project or a file system as one line that a terminal only displays.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&escape_text(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Text as one line that a terminal only displays.
pub(crate) fn escape_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let _ = match c {
            '\n' => write!(safe, "\\n"),
            '\t' => write!(safe, "\\t"),
            '\r' => write!(safe, "\\r"),
            c if c.is_ascii_control() => write!(safe, "\\x{:02x}", c as u32),
            c if c.is_control() || is_invisible(c) => write!(safe, "\\u{{{:x}}}", c as u32),
            c => write!(safe, "{c}"),
        };
    }
    safe
}

/// Marks that change the order or the look of their neighbours (Unicode bidirectional algorithm,
/// zero-width characters, line and paragraph separators, tags).
const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{61c}' | '\u{180e}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        assert_eq!(escape(b"a\x1b[2Jb\x07\x7f\n"), "a\\x1b[2Jb\\x07\\x7f\\n");
        assert_eq!(
            escape("\u{9b}31m \u{202e}txt.exe".as_bytes()),
            "\\u{9b}31m \\u{202e}txt.exe"
        );
        assert_eq!(escape(b"ok \xff\xfe"), "ok \\xff\\xfe");
        assert_eq!(escape("größe 漢字".as_bytes()), "größe 漢字");
    }
}
