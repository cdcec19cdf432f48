//! Arguments of a call, displayed before the user allows it: complete on request, with a sign for
//! each hidden or control character.

use crate::render::{say, say_warning};
use crate::streams::terminal_size;
use glovebox_proto::visible::{HiddenCharacters, review_line};
use serde_json::Value;

/// Rows of the terminal that are used before the user asks for all.
const MAX_ROWS: usize = 60;
/// Columns of indentation before each line.
const INDENT: usize = 4;
/// Length of the longest sign for one character, `\u{10ffff}`.
const MAX_SIGN_CHARS: usize = 10;

/// Lines of a call's arguments.
pub(super) struct ShownCall {
    lines: Vec<String>,
    hidden: HiddenCharacters,
}

impl ShownCall {
    /// Formats the arguments. `clean` removes secrets from a text.
    pub(super) fn new(arguments: &Value, clean: impl Fn(String) -> String) -> Self {
        let mut call = Self {
            lines: Vec::new(),
            hidden: HiddenCharacters::default(),
        };
        let Value::Object(fields) = arguments else {
            call.push("", &text_of(arguments, &clean));
            return call;
        };
        for (name, value) in fields {
            call.push(&format!("{name}: "), &text_of(value, &clean));
        }
        call
    }

    fn push(&mut self, label: &str, text: &str) {
        self.hidden.add(label.as_bytes());
        self.hidden.add(text.as_bytes());
        let mut label = label;
        for line in text.split('\n') {
            self.lines.push(format!("{label}{line}"));
            label = "  ";
        }
    }

    /// Displays the lines that fit. Returns false if some are missing.
    pub(super) fn show_beginning(&self, has_marks: bool) -> bool {
        let columns = usize::from(terminal_size().cols).saturating_sub(INDENT);
        let columns = columns.max(20);
        let mut rows = MAX_ROWS;
        for (at, line) in self.lines.iter().enumerate() {
            let needed = count_rows(line, columns);
            if needed <= rows {
                show_line(line, has_marks);
                rows -= needed;
                continue;
            }
            // Signs are longer than their characters, so display only as many characters as
            // certainly fit.
            let fits = rows * columns / MAX_SIGN_CHARS;
            let end = line
                .char_indices()
                .nth(fits)
                .map_or(line.len(), |(end, _)| end);
            if fits > 0 {
                show_line(&line[..end], has_marks);
            }
            let more_chars = line[end..].chars().count();
            let more_lines = self.lines.len() - at - 1;
            say(format_args!(
                "    ... NOT SHOWN: {more_chars} more characters of this line, {more_lines} more lines"
            ));
            return false;
        }
        true
    }

    /// Displays all lines.
    pub(super) fn show_all(&self, has_marks: bool) {
        for line in &self.lines {
            show_line(line, has_marks);
        }
    }

    /// Warns of hidden characters, in the displayed part or not.
    pub(super) fn warn(&self) {
        if !self.hidden.is_empty() {
            say_warning(&self.hidden);
        }
    }
}

fn show_line(line: &str, has_marks: bool) {
    say(format_args!(
        "    {}",
        review_line(line.as_bytes(), has_marks)
    ));
}

fn count_rows(line: &str, columns: usize) -> usize {
    let shown = review_line(line.as_bytes(), false);
    // A tab takes up to eight columns, a wide character two.
    let width: usize = shown
        .chars()
        .map(|c| match c {
            '\t' => 8,
            c if c.is_ascii() => 1,
            _ => 2,
        })
        .sum();
    width.div_ceil(columns).max(1)
}

/// Formats one argument. Any value but a string becomes JSON, which escapes only control
/// characters; all others stay, so that each is displayed as a sign of its own.
fn text_of(value: &Value, clean: &impl Fn(String) -> String) -> String {
    match value {
        Value::String(text) => clean(text.clone()),
        other => clean(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_counted_as_the_terminal_wraps_them() {
        assert_eq!(count_rows("", 80), 1);
        assert_eq!(count_rows(&"x".repeat(81), 80), 2);
        assert_eq!(count_rows(&"\u{1b}".repeat(40), 80), 2);
        assert_eq!(count_rows(&"\t".repeat(11), 80), 2);
    }

    #[test]
    fn hidden_characters_of_every_argument_are_counted() {
        let arguments =
            json!({ "command": "rm x\u{1b}]8;;y\u{7}", "more": ["a\u{202e}"], "n\u{200b}": 1 });
        let call = ShownCall::new(&arguments, |text| text);
        assert_eq!(
            call.hidden.to_string(),
            "4 hidden characters: ESC, BEL, RLO, ZWSP"
        );
        let twin =
            json!({ "command": "echo \u{5e9}\u{5dc}\u{5d5}\u{5dd}\t\u{1f468}\u{200d}\u{1f469}" });
        assert!(ShownCall::new(&twin, |text| text).hidden.is_empty());
    }
}
