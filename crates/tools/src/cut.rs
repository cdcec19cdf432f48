//! Cutting long output, exactly once, so that what was cut is known and can be fetched.
//!
//! The beginning and the end stay, whole lines each; after a failure most of the room goes to the
//! end, which is where a failure says what it is.

use std::fmt::Write as _;

/// Room for the output of one call, in bytes.
pub(crate) const OUTPUT_BYTES: usize = 30_000;
/// Longest line shown, in characters.
const LINE_CHARS: usize = 2000;

/// Text of which the middle may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) text: String,
    /// Bytes that are not in the text.
    pub(crate) missing_bytes: usize,
}

/// Bytes as text that neither a terminal nor a model mistakes for something else: what is not UTF-8
/// is replaced, escape sequences and other control characters are shown instead of sent.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => safe.push(c),
            // Line ends of terminals and of other systems.
            '\r' => {}
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

/// `text` within `max_bytes`; `is_failure` says where the room goes.
pub(crate) fn middle(text: &str, max_bytes: usize, is_failure: bool) -> Cut {
    let text = shorten_lines(text);
    if text.len() <= max_bytes {
        return Cut {
            text,
            missing_bytes: 0,
        };
    }
    let head_room = if is_failure {
        max_bytes / 5
    } else {
        max_bytes / 2
    };
    let head = &text[..floor(&text, head_room)];
    let head = head.rfind('\n').map_or(head, |end| &head[..=end]);
    let tail_room = max_bytes - head.len();
    let tail = &text[ceil(&text, text.len() - tail_room)..];
    let tail = tail.find('\n').map_or(tail, |start| &tail[start + 1..]);
    let missing_bytes = text.len() - head.len() - tail.len();
    let missing_lines = text[head.len()..text.len() - tail.len()]
        .matches('\n')
        .count();
    Cut {
        text: format!(
            "{head}[... {missing_lines} lines, {missing_bytes} bytes left out ...]\n{tail}"
        ),
        missing_bytes,
    }
}

fn shorten_lines(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.char_indices().nth(LINE_CHARS) {
            Some((at, _)) if at + 1 < line.len() => {
                short.push_str(&line[..at]);
                let rest = line[at..].trim_end_matches('\n');
                let _ = write!(short, "[... {} bytes of this line left out]", rest.len());
                if line.ends_with('\n') {
                    short.push('\n');
                }
            }
            _ => short.push_str(line),
        }
    }
    short
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_is_left_alone() {
        let cut = middle("a\nb\n", 100, false);
        assert_eq!((&cut.text[..], cut.missing_bytes), ("a\nb\n", 0));
    }

    #[test]
    fn both_ends_stay_and_more_of_the_end_after_a_failure() {
        let lines: Vec<String> = (0..1000).map(|n| format!("line {n}\n")).collect();
        let text = lines.concat();
        let cut = middle(&text, 1000, false);
        assert!(cut.text.starts_with("line 0\n") && cut.text.ends_with("line 999\n"));
        let failed = middle(&text, 1000, true);
        let head = |cut: &Cut| cut.text.find("[...").unwrap();
        assert!(head(&failed) < head(&cut));
        assert_eq!(
            failed.missing_bytes + failed.text.len(),
            text.len()
                + failed
                    .text
                    .lines()
                    .find(|line| line.starts_with("[..."))
                    .unwrap()
                    .len()
                + 1
        );
    }

    #[test]
    fn one_endless_line_is_cut_and_counted() {
        let cut = middle(&"x".repeat(1 << 20), 5000, false);
        assert!(cut.text.len() < 2100, "{}", cut.text.len());
        assert!(
            cut.text.contains("1046576 bytes of this line left out"),
            "{}",
            &cut.text[1990..]
        );
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_gets_through() {
        assert_eq!(
            readable(b"a\x1b[2J\x07\tb\r\n\xff"),
            "a\\u{1b}[2J\\u{7}\tb\n\u{fffd}"
        );
    }

    proptest! {
        #[test]
        fn the_bound_holds_for_any_text(text in ".{0,400}(\n.{0,50}){0,40}", max in 50_usize..600, is_failure: bool) {
            let cut = middle(&text, max, is_failure);
            prop_assert!(cut.text.len() <= max + 80);
        }
    }
}
