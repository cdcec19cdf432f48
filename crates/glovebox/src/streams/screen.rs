//! Output of commands for a terminal that must not obey it.
//!
//! In: bytes of a log, in pieces of any length. Out: on a terminal, text in which only colours have
//! an effect. Any other sequence, which could move the cursor, set a title or make the terminal
//! answer (and so type into the user's shell), is displayed in escaped form, as `diff` does. If the
//! output is no terminal, or with `--raw`, the bytes are unchanged.

use super::output::{OutputSink, Passthrough};
use glovebox_proto::visible;
use std::io::{self, IsTerminal as _};

/// Length of the longest colour sequence that is passed on, in bytes.
const MAX_COLOR_BYTES: usize = 64;
const ESCAPE: u8 = 0x1b;
const RESET_COLOR: &str = "\x1b[0m";

/// Sink that writes to standard output and error of this process, escaped on a terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    stdout: Option<Escaper>,
    stderr: Option<Escaper>,
    below: Passthrough,
}

impl Screen {
    /// Creates the sink. With `is_raw` it passes everything; without `has_color` it drops colours.
    pub(crate) fn new(is_raw: bool, has_color: bool) -> Self {
        let escaper = |is_terminal: bool| (is_terminal && !is_raw).then(|| Escaper::new(has_color));
        Self {
            stdout: escaper(io::stdout().is_terminal()),
            stderr: escaper(io::stderr().is_terminal()),
            below: Passthrough::default(),
        }
    }

    /// Writes incomplete sequences that were held back, and resets a colour that is still on.
    ///
    /// # Errors
    /// The reader of standard output or error has closed it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for (is_stderr, escaper) in [(false, &mut self.stdout), (true, &mut self.stderr)] {
            if let Some(escaper) = escaper {
                self.below.data(is_stderr, escaper.finish().as_bytes())?;
            }
        }
        Ok(())
    }
}

impl OutputSink for Screen {
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
        let escaper = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        match escaper {
            Some(escaper) => self.below.data(is_stderr, escaper.push(bytes).as_bytes()),
            None => self.below.data(is_stderr, bytes),
        }
    }
}

/// Escaper of one stream.
#[derive(Debug)]
struct Escaper {
    has_color: bool,
    /// Start of a character, line end or colour whose rest has not arrived yet.
    held: Vec<u8>,
    is_color_on: bool,
}

/// Sequence that an escape byte begins.
#[derive(Debug, PartialEq, Eq)]
enum Sequence {
    /// A colour with this length in bytes.
    Color(usize),
    /// The start of a possible colour.
    Unfinished,
    /// Any other sequence.
    Other,
}

impl Escaper {
    const fn new(has_color: bool) -> Self {
        Self {
            has_color,
            held: Vec::new(),
            is_color_on: false,
        }
    }

    /// Returns the escaped form of the bytes held back and `bytes`, without an incomplete end.
    fn push(&mut self, bytes: &[u8]) -> String {
        self.take(bytes, false)
    }

    /// Returns the escaped rest, and the sequence that resets a colour.
    fn finish(&mut self) -> String {
        let mut safe = self.take(&[], true);
        if std::mem::take(&mut self.is_color_on) {
            safe.push_str(RESET_COLOR);
        }
        safe
    }

    fn take(&mut self, bytes: &[u8], is_end: bool) -> String {
        let mut input = std::mem::take(&mut self.held);
        input.extend_from_slice(bytes);
        let mut safe = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        while let Some(at) = rest.iter().position(|&byte| byte == ESCAPE) {
            visible::push_lines(&mut safe, &rest[..at]);
            rest = &rest[at..];
            match sequence(rest) {
                Sequence::Color(length) => {
                    if self.has_color
                        && let Ok(color) = std::str::from_utf8(&rest[..length])
                    {
                        safe.push_str(color);
                        self.is_color_on = color != RESET_COLOR && color != "\x1b[m";
                    }
                    rest = &rest[length..];
                }
                Sequence::Unfinished if !is_end => {
                    self.held = rest.to_vec();
                    return safe;
                }
                Sequence::Unfinished | Sequence::Other => {
                    visible::push_lines(&mut safe, &rest[..1]);
                    rest = &rest[1..];
                }
            }
        }
        let shown = if is_end { rest.len() } else { whole(rest) };
        visible::push_lines(&mut safe, &rest[..shown]);
        self.held = rest[shown..].to_vec();
        safe
    }
}

/// Classifies the sequence that `bytes` starts with: `ESC [ 1 ; 31 m` is a colour (ECMA-48, SGR).
fn sequence(bytes: &[u8]) -> Sequence {
    let bytes = &bytes[..bytes.len().min(MAX_COLOR_BYTES)];
    match bytes.get(1) {
        None => return Sequence::Unfinished,
        Some(b'[') => {}
        Some(_) => return Sequence::Other,
    }
    let is_parameter = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b';' | b':');
    match bytes[2..].iter().position(|byte| !is_parameter(byte)) {
        Some(end) if bytes[2 + end] == b'm' => Sequence::Color(end + 3),
        None if bytes.len() < MAX_COLOR_BYTES => Sequence::Unfinished,
        _ => Sequence::Other,
    }
}

/// Returns the length of `bytes` without an incomplete character or line end at its end.
fn whole(bytes: &[u8]) -> usize {
    if bytes.last() == Some(&b'\r') {
        return bytes.len() - 1;
    }
    let tail = bytes.len().saturating_sub(3);
    match std::str::from_utf8(&bytes[tail..]) {
        // Hold back only bytes that can still become a character.
        Err(error) if error.error_len().is_none() => tail + error.valid_up_to(),
        Err(error) => {
            // The tail may begin in the middle of a character.
            let after = tail + error.valid_up_to() + error.error_len().unwrap_or(1);
            if after >= bytes.len() {
                return bytes.len();
            }
            after + whole(&bytes[after..])
        }
        Ok(_) => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> String {
        let mut escaper = Escaper::new(true);
        let mut text: String = pieces.iter().map(|piece| escaper.push(piece)).collect();
        text.push_str(&escaper.finish());
        text
    }

    #[test]
    fn only_colours_act() {
        assert_eq!(
            shown(&[b"\x1b[1;38:5:9mred\x1b[0m \x1b[6n\x1b]0;t\x07\x1b[>4;1m\x1b[?25lx\x08"]),
            "\x1b[1;38:5:9mred\x1b[0m \\x1b[6n\\x1b]0;t\\x07\\x1b[>4;1m\\x1b[?25lx\\x08"
        );
        assert_eq!(shown(&[b"\x1b[31mopen"]), "\x1b[31mopen\x1b[0m");
        let mut plain = Escaper::new(false);
        assert_eq!(plain.push(b"\x1b[31mred\x1b[0m\x1b[2J"), "red\\x1b[2J");
    }

    #[test]
    fn where_pieces_end_makes_no_difference() {
        let text = "a\tä漢\r\nb\x1b[31mc\x1b[0m\x1b[6nd\x1b\x1b[31\re\u{9b}5n\r".as_bytes();
        let mut bytes = text.to_vec();
        bytes.extend_from_slice(b"\xff\xc3");
        let whole = shown(&[&bytes]);
        assert!(whole.ends_with("\\r\\xff\\xc3"), "{whole}");
        assert!(
            !whole.contains("\x1b[6n") && whole.contains("a\tä漢\nb\x1b[31mc"),
            "{whole}"
        );
        for at in 0..=bytes.len() {
            assert_eq!(shown(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(shown(&single), whole);
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        let mut escaper = Escaper::new(true);
        let long = [b"\x1b[".as_slice(), &[b'1'; 100]].concat();
        assert!(escaper.push(&long).starts_with("\\x1b[111"));
        assert!(escaper.held.is_empty());
    }
}
