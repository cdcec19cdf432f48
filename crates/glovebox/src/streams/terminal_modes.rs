//! Changes that the programs of a sandbox made to the user's terminal, and the way to undo them.
//!
//! In: all output to the terminal while a command has it. Out: the control sequences that undo the
//! remaining changes when the user leaves: alternate screen, mouse, bracketed paste, hidden cursor,
//! colours. An unchanged terminal gets no output. The sequences are those of xterm(1) and ECMA-48;
//! any other is ignored.

use std::fmt::Write as _;

/// Private modes (DECSET) that are undone, with true for each that is on by default.
const PRIVATE_MODES: [(u16, bool); 20] = [
    // Mouse modes come first: until they are off, mouse events type into the next reader.
    (9, false),
    (1000, false),
    (1001, false),
    (1002, false),
    (1003, false),
    (1004, false),
    (1005, false),
    (1006, false),
    (1015, false),
    (1016, false),
    (2004, false),
    (2026, false),
    (1, false),
    (5, false),
    (6, false),
    (7, true),
    (25, true),
    (47, false),
    (1047, false),
    (1049, false),
];
/// Longest parameters of a control sequence that are parsed, in bytes.
const MAX_PARAMETER_BYTES: usize = 48;

/// State of the parser after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Outside any sequence.
    Text,
    /// After an escape byte.
    Escape,
    /// After an escape byte and the byte that designates character set G0.
    Charset,
    /// In the parameters of a control sequence.
    Parameters,
    /// In a string that ends with `ESC \` or BEL: a title, a colour, an answer.
    String,
}

/// State of the terminal as a command has changed it.
#[derive(Debug)]
pub(super) struct TerminalModes {
    position: Position,
    parameters: [u8; MAX_PARAMETER_BYTES],
    length: usize,
    is_private_changed: [bool; PRIVATE_MODES.len()],
    is_inserting: bool,
    is_line_feed_new_line: bool,
    is_keypad_application: bool,
    is_charset_changed: bool,
    is_shifted_out: bool,
    is_styled: bool,
    has_scroll_region: bool,
    has_cursor_style: bool,
    has_key_modifiers: bool,
    keyboard_levels: u8,
}

impl TerminalModes {
    /// Creates the state of an unchanged terminal.
    pub(super) const fn new() -> Self {
        Self {
            position: Position::Text,
            parameters: [0; MAX_PARAMETER_BYTES],
            length: 0,
            is_private_changed: [false; PRIVATE_MODES.len()],
            is_inserting: false,
            is_line_feed_new_line: false,
            is_keypad_application: false,
            is_charset_changed: false,
            is_shifted_out: false,
            is_styled: false,
            has_scroll_region: false,
            has_cursor_style: false,
            has_key_modifiers: false,
            keyboard_levels: 0,
        }
    }

    /// Records the changes in output to the terminal.
    pub(super) fn observe(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.position = self.next(byte);
        }
    }

    fn next(&mut self, byte: u8) -> Position {
        match byte {
            // CAN and SUB end every sequence, and an escape byte begins another (ECMA-48).
            0x18 | 0x1a => return Position::Text,
            0x1b => return Position::Escape,
            _ => {}
        }
        match (self.position, byte) {
            (Position::Text, 0x0e | 0x0f) => {
                self.is_shifted_out = byte == 0x0e;
                Position::Text
            }
            (Position::String, 0x07) | (Position::Text, _) => Position::Text,
            (Position::String, _) | (Position::Escape, b']' | b'P' | b'X' | b'^' | b'_') => {
                Position::String
            }
            (Position::Escape, b'[') => {
                self.length = 0;
                Position::Parameters
            }
            (Position::Escape, b'(') => Position::Charset,
            (Position::Escape, _) => {
                match byte {
                    b'=' | b'>' => self.is_keypad_application = byte == b'=',
                    // Full reset (RIS).
                    b'c' => *self = Self::new(),
                    _ => {}
                }
                Position::Text
            }
            (Position::Charset, _) => {
                self.is_charset_changed = byte != b'B';
                Position::Text
            }
            (Position::Parameters, 0x40..=0x7e) => {
                if self.length < MAX_PARAMETER_BYTES {
                    self.control(byte);
                }
                Position::Text
            }
            (Position::Parameters, 0x20..=0x3f) => {
                if self.length < MAX_PARAMETER_BYTES {
                    self.parameters[self.length] = byte;
                    self.length += 1;
                }
                Position::Parameters
            }
            // Other control characters take effect even in the middle of a sequence, which
            // continues after them.
            (Position::Parameters, _) => Position::Parameters,
        }
    }

    /// Handles a complete control sequence with final byte `last`.
    fn control(&mut self, last: u8) {
        let parameters = self.parameters;
        let parameters = &parameters[..self.length];
        let is_plain = parameters
            .iter()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':'));
        match (parameters, last) {
            ([b'?', modes @ ..], b'h' | b'l') => {
                for mode in numbers(modes) {
                    let known = PRIVATE_MODES.iter().position(|(known, _)| *known == mode);
                    if let Some(at) = known {
                        self.is_private_changed[at] = (last == b'h') != PRIVATE_MODES[at].1;
                    }
                }
            }
            (modes, b'h' | b'l') if is_plain => {
                for mode in numbers(modes) {
                    match mode {
                        4 => self.is_inserting = last == b'h',
                        20 => self.is_line_feed_new_line = last == b'h',
                        _ => {}
                    }
                }
            }
            (styles, b'm') if is_plain => {
                self.is_styled = numbers(styles).any(|style| style != 0);
            }
            ([b'>', ..], b'm') => self.has_key_modifiers = true,
            (region, b'r') if is_plain => self.has_scroll_region = !region.is_empty(),
            ([style @ .., b' '], b'q') => {
                self.has_cursor_style = style != b"0" && !style.is_empty();
            }
            ([b'>', ..], b'u') => self.keyboard_levels = self.keyboard_levels.saturating_add(1),
            ([b'<', count @ ..], b'u') => {
                let count = numbers(count).next().unwrap_or(1).max(1);
                let count = u8::try_from(count).unwrap_or(u8::MAX);
                self.keyboard_levels = self.keyboard_levels.saturating_sub(count);
            }
            _ => {}
        }
    }

    /// Returns the sequences that undo the changes; empty if there are none.
    pub(super) fn undo(&self) -> String {
        let mut text = String::new();
        match self.position {
            Position::Text => {}
            Position::String => text.push_str("\x1b\\"),
            Position::Escape | Position::Charset | Position::Parameters => text.push('\x18'),
        }
        for ((mode, is_on), is_changed) in PRIVATE_MODES.iter().zip(self.is_private_changed) {
            if is_changed {
                let _ = write!(text, "\x1b[?{mode}{}", if *is_on { 'h' } else { 'l' });
            }
        }
        if self.keyboard_levels > 0 {
            let _ = write!(text, "\x1b[<{}u", self.keyboard_levels);
        }
        for (is_changed, sequence) in [
            (self.is_inserting, "\x1b[4l"),
            (self.is_line_feed_new_line, "\x1b[20l"),
            (self.is_keypad_application, "\x1b>"),
            (self.is_charset_changed, "\x1b(B"),
            (self.is_shifted_out, "\x0f"),
            (self.has_key_modifiers, "\x1b[>4m"),
            // Resetting the region moves the cursor, so it is saved and restored around it.
            (self.has_scroll_region, "\x1b7\x1b[r\x1b8"),
            (self.has_cursor_style, "\x1b[0 q"),
            (self.is_styled, "\x1b[0m"),
        ] {
            if is_changed {
                text.push_str(sequence);
            }
        }
        text
    }
}

fn numbers(parameters: &[u8]) -> impl Iterator<Item = u16> {
    parameters
        .split(|byte| matches!(byte, b';' | b':'))
        .filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(pieces: &[&[u8]]) -> String {
        let mut modes = TerminalModes::new();
        for piece in pieces {
            modes.observe(piece);
        }
        modes.undo()
    }

    #[test]
    fn what_is_put_back_by_the_program_is_left_alone() {
        assert_eq!(undo(&[b"plain \x1b[2J\x1b[3;4H text\r\n"]), "");
        let editor = b"\x1b[?1049h\x1b[?2004h\x1b[1;24r\x1b[?25l\x1b[31mx\x1b[0m\x1b[?25h\x1b[r\x1b[?2004l\x1b[?1049l";
        assert_eq!(undo(&[editor]), "");
        assert_eq!(undo(&[b"\x1b[?1000;1006h\x1b[?1000l\x1b[?1006l"]), "");
        assert_eq!(undo(&[b"\x1b[?1049h\x1b[31m\x1bc"]), "");
    }

    #[test]
    fn what_is_left_on_is_undone_wherever_pieces_end() {
        let left = b"\x1b[?1049h\x1b[?1000;1006;2004h\x1b[?25l\x1b[?7l\x1b[1;31mred\x1b=\x1b(0\x1b[2;9r\x1b[4h\x1b[>1u\x1b[5 q";
        let want = "\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l\x1b[<1u\x1b[4l\x1b>\x1b(B\
            \x1b7\x1b[r\x1b8\x1b[0 q\x1b[0m";
        assert_eq!(undo(&[left]), want);
        for at in 0..left.len() {
            assert_eq!(undo(&[&left[..at], &left[at..]]), want, "split at {at}");
        }
    }

    #[test]
    fn a_sequence_that_was_cut_off_is_ended() {
        assert_eq!(undo(&[b"\x1b]0;half a tit"]), "\x1b\\");
        assert_eq!(undo(&[b"\x1b[?10"]), "\x18");
        assert_eq!(undo(&[b"\x1b]0;title\x07\x1b]0;other\x1b\\"]), "");
        let long = [b"\x1b[?".as_slice(), &[b'1'; 100], b"h\x1b[?25l"].concat();
        assert_eq!(undo(&[&long]), "\x1b[?25h");
    }
}
