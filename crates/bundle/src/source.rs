//! Places in the source of a bundle: conversion of byte offsets to lines, columns and snippets.

use oxc_span::Span;

/// Maximum length of a snippet. Minified bundles have lines of many thousands of characters.
const SNIPPET_CHARS: usize = 120;
/// Number of characters of a long line before the place.
const SNIPPET_BEFORE: usize = 40;

/// Text of a bundle, with the offsets of its lines.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    line_starts: Vec<u32>,
}

/// Line of the source around a place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snippet {
    pub text: String,
    pub start: u32,
    pub length: u32,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut line_starts = vec![0];
        let bytes = text.as_bytes();
        for (index, &byte) in bytes.iter().enumerate() {
            let is_end = byte == b'\n' || (byte == b'\r' && bytes.get(index + 1) != Some(&b'\n'));
            if is_end {
                line_starts.push(index as u32 + 1);
            }
        }
        Self { text, line_starts }
    }

    pub(crate) const fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the text of a span; empty if the span is outside of this source.
    pub(crate) fn slice(&self, span: Span) -> &'a str {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }

    /// Returns the line and the column in characters, from 1.
    pub(crate) fn position(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let column = self
            .text
            .get(start as usize..offset as usize)
            .map_or(0, |before| before.chars().count());
        (line as u32, column as u32 + 1)
    }

    /// Returns the offset of a line and a column in bytes, from 1; the end of the text if there is
    /// none.
    pub(crate) fn offset(&self, line: usize, column: usize) -> u32 {
        let start = self.line_starts.get(line.saturating_sub(1));
        let start = start.map_or(self.text.len(), |start| *start as usize);
        let mut offset = (start + column.saturating_sub(1)).min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset as u32
    }

    /// Converts a column in characters, from 1, to UTF-16 units, from 0.
    pub(crate) fn utf16_column(&self, line: u32, column: u32) -> u32 {
        let before = self.line(line).chars().take(column as usize - 1);
        before.map(|c| c.len_utf16() as u32).sum()
    }

    /// Returns the word at a line and a column in UTF-16 units, both from 0, or a single character
    /// if there is no word. `None` if there is no such place.
    pub(crate) fn word_at(&self, line: u32, column: u32) -> Option<Span> {
        let first = *self.line_starts.get(line as usize)?;
        let text = self.line(line + 1);
        let mut units = 0;
        let mut places = text.char_indices();
        let start = places.find_map(|(offset, c)| {
            let is_there = units >= column;
            units += c.len_utf16() as u32;
            is_there.then_some(offset)
        });
        let start = start.unwrap_or(text.len());
        let rest = text.get(start..)?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        // A string includes its quotes.
        let quote = rest
            .chars()
            .next()
            .filter(|c| matches!(c, '"' | '\'' | '`'));
        let quoted = quote.and_then(|quote| rest[1..].find(quote).map(|end| end + 2));
        let length = quoted.or_else(|| rest.find(|c| !is_word(c)));
        let length = length.unwrap_or(rest.len());
        let length = length.max(rest.chars().next().map_or(0, char::len_utf8));
        let start = first + start as u32;
        Some(Span::new(start, start + length as u32))
    }

    /// Returns a line, counted from 1, without its end.
    fn line(&self, line: u32) -> &'a str {
        let start = self.line_starts.get(line as usize - 1).copied();
        let end = self.line_starts.get(line as usize).copied();
        let text = start.and_then(|start| {
            let end = end.map_or(self.text.len(), |end| end as usize);
            self.text.get(start as usize..end)
        });
        text.unwrap_or_default().trim_end_matches(['\n', '\r'])
    }

    /// Returns the line of a span, cut to a window around it, without characters that act on a
    /// terminal.
    pub(crate) fn snippet(&self, span: Span) -> Snippet {
        let (line, column) = self.position(span.start);
        let whole = self.line(line);
        let column = column as usize - 1;
        let skipped = if column > SNIPPET_CHARS - SNIPPET_BEFORE {
            column - SNIPPET_BEFORE
        } else {
            0
        };
        let text: String = whole
            .chars()
            .skip(skipped)
            .take(SNIPPET_CHARS)
            .map(shown)
            .collect();
        let shown_chars = text.chars().count();
        let start = (column - skipped).min(shown_chars);
        let length = self.slice(span).chars().count();
        let length = length.clamp(1, (shown_chars - start).max(1));
        Snippet {
            text,
            start: start as u32,
            length: length as u32,
        }
    }
}

/// Replaces a character that is unsafe to display.
pub(crate) fn shown(character: char) -> char {
    match character {
        '\t' => ' ',
        // Controls, invisible characters, and marks that change the direction of text.
        c if c.is_control() => '\u{fffd}',
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{fffd}',
        c => c,
    }
}

/// Prepares text of a bundle for a message: one line, no control characters, shortened if it is
/// long.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let mut short: String = text
        .chars()
        .map(|c| if c == '\n' { ' ' } else { shown(c) })
        .take(MAX_CHARS)
        .collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_every_way_that_javascript_files_use() {
        let source = Source::new("a\r\nbé c\rd\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(3), (2, 1));
        // After `é`, which is two bytes and one character.
        assert_eq!(source.position(7), (2, 4));
        assert_eq!(source.position(9), (3, 1));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}TARGET{}", "x".repeat(5000), "y".repeat(5000));
        let snippet = Source::new(&text).snippet(Span::new(5000, 5006));
        assert_eq!(snippet.text.chars().count(), SNIPPET_CHARS);
        assert_eq!(
            snippet
                .text
                .get(snippet.start as usize..(snippet.start + snippet.length) as usize),
            Some("TARGET")
        );
    }

    #[test]
    fn what_could_act_on_a_terminal_is_not_in_a_snippet() {
        let snippet = Source::new("a\u{1b}[2J\u{202e}b").snippet(Span::new(0, 1));
        assert_eq!(snippet.text, "a\u{fffd}[2J\u{fffd}b");
    }
}
