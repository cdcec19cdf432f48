//! Split of text into plain runs and characters to escape, decided by the character and its
//! neighbours.

use super::table::{HAN, MARKS, MAX_MARKS, MONGOLIAN, NAMES, SignClass, find_class, is_in};

/// Most names in a warning.
const MAX_NAMES: usize = 8;

/// Part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Run of printable ASCII.
    Plain(&'a str),
    /// Single character. It is escaped if it has a class. A carriage return without a class stands
    /// before a line feed.
    Char(char, Option<SignClass>),
    /// Byte that is not UTF-8.
    Byte(u8),
}

/// Calls `take` with each piece of a text. `is_line` states that a line feed follows the last byte.
pub(super) fn scan<'a>(bytes: &'a [u8], is_line: bool, mut take: impl FnMut(Piece<'a>)) {
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        let is_last = chunks.peek().is_none() && chunk.invalid().is_empty();
        scan_text(chunk.valid(), is_line && is_last, &mut take);
        for byte in chunk.invalid() {
            take(Piece::Byte(*byte));
        }
    }
}

fn scan_text<'a>(text: &'a str, is_line: bool, take: &mut impl FnMut(Piece<'a>)) {
    let mut rest = text;
    let mut before = Before::default();
    while let Some(c) = rest.chars().next() {
        // Most text is plain, so whole runs are passed on at once.
        let plain = rest
            .bytes()
            .position(|byte| !(b' '..=b'~').contains(&byte))
            .unwrap_or(rest.len());
        if plain > 0 {
            take(Piece::Plain(&rest[..plain]));
            before = Before {
                last: rest[..plain].chars().next_back(),
                ..Before::default()
            };
            rest = &rest[plain..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        let next = rest.chars().next().or(is_line.then_some('\n'));
        let class = before.classify(c, next);
        before.push(c);
        take(Piece::Char(c, class));
    }
}

/// Context before a character.
#[derive(Default)]
struct Before {
    last: Option<char>,
    last_but_one: Option<char>,
    /// Number of combining marks in a row.
    marks: u32,
}

impl Before {
    fn push(&mut self, c: char) {
        self.last_but_one = self.last.replace(c);
        let code = u32::from(c);
        self.marks = match find_class(code) {
            _ if is_in(MARKS, code) => self.marks.saturating_add(1),
            // A variation selector between two marks does not start a new count: selectors could
            // otherwise hide a pile of any height.
            Some(SignClass::Warn) => self.marks,
            _ => 0,
        };
    }

    fn classify(&self, c: char, next: Option<char>) -> Option<SignClass> {
        let code = u32::from(c);
        if c == '\r' && next == Some('\n') {
            return None;
        }
        if self.marks >= MAX_MARKS && is_in(MARKS, code) {
            return Some(SignClass::Warn);
        }
        let class = find_class(code)?;
        (class == SignClass::Note || !self.is_ordinary(code, next)).then_some(class)
    }

    /// Returns true if its neighbours show that a selector or joiner belongs to a script or an
    /// emoji.
    fn is_ordinary(&self, code: u32, next: Option<char>) -> bool {
        let last = self.last.map(u32::from);
        match code {
            0x200c | 0x200d => {
                // An emoji may end with one variation selector before the joiner.
                let base = if self.last == Some('\u{fe0f}') {
                    self.last_but_one
                } else {
                    self.last
                };
                base.is_some_and(is_plain_letter) && next.is_some_and(is_plain_letter)
            }
            0xfe00..=0xfe0f => last.is_some_and(|code| find_class(code).is_none()),
            0x180b..=0x180d | 0x180f => {
                last.is_some_and(|code| (MONGOLIAN.0..=MONGOLIAN.1).contains(&code))
            }
            0xe0100..=0xe01ef => last.is_some_and(|code| is_in(HAN, code)),
            _ => false,
        }
    }
}

/// Returns true for a character above U+007F without a class.
fn is_plain_letter(c: char) -> bool {
    u32::from(c) > 0x7f && find_class(u32::from(c)).is_none()
}

/// Counter of characters that hide, act or reorder text, for a person who reviews the text.
///
/// Displayed as `3 hidden characters: RLO, ESC`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenCharacters {
    count: u64,
    names: Vec<String>,
    has_more_names: bool,
}

impl HiddenCharacters {
    /// Counts the hidden characters of one text.
    pub fn of(text: &str) -> Self {
        let mut hidden = Self::default();
        hidden.add(text.as_bytes());
        hidden
    }

    /// Adds the hidden characters of a text.
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_pieces(bytes, false);
    }

    /// Adds the hidden characters of a line without its line feed.
    pub fn add_line(&mut self, line: &[u8]) {
        self.add_pieces(line, true);
    }

    /// Returns true if no hidden character was counted.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add_pieces(&mut self, bytes: &[u8], is_line: bool) {
        scan(bytes, is_line, |piece| match piece {
            Piece::Char(c, Some(SignClass::Warn)) => self.add_name(|| name_sign(c)),
            Piece::Byte(byte) => self.add_name(|| format!("0x{byte:02X}")),
            _ => {}
        });
    }

    fn add_name(&mut self, name: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        if self.has_more_names {
            return;
        }
        let name = name();
        if self.names.contains(&name) {
            return;
        }
        if self.names.len() == MAX_NAMES {
            self.has_more_names = true;
        } else {
            self.names.push(name);
        }
    }
}

impl std::fmt::Display for HiddenCharacters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.count == 1 {
            "character"
        } else {
            "characters"
        };
        write!(f, "{} hidden {word}: {}", self.count, self.names.join(", "))?;
        if self.has_more_names {
            f.write_str(", ...")?;
        }
        Ok(())
    }
}

/// Returns the short name of a character, such as `RLO`, else its code point as in `U+202E`.
fn name_sign(c: char) -> String {
    let code = u32::from(c);
    let named = NAMES.iter().find(|(named, _)| *named == code);
    named.map_or_else(|| format!("U+{code:04X}"), |(_, name)| (*name).to_owned())
}
