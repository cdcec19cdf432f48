//! Truncation of long output. The omitted part is known to the byte and can be fetched.
//!
//! Whole lines of the beginning and of the end are kept. After a failure most of the room goes to
//! the end, where the error message usually is. A long line keeps its own beginning and end. All
//! counts and offsets refer to the bytes as they were written, not to their displayed form.

pub(crate) use glovebox_proto::visible::lines as readable;
use std::fmt::Write as _;

/// Room for the output of one call, in bytes of text.
pub const OUTPUT_BYTES: usize = 30_000;
/// Maximum length of a line that is shown whole, in bytes.
const LINE_BYTES: usize = 2000;
/// Shown bytes at the beginning of a longer line.
const LINE_HEAD_BYTES: usize = 1500;
/// Shown bytes at the end of a longer line.
const LINE_TAIL_BYTES: usize = 500;

/// Output whose middle may be unavailable.
#[derive(Debug, Clone, Copy)]
pub struct CutSource<'a> {
    /// Bytes from the first one on.
    pub head: &'a [u8],
    /// Number of bytes between `head` and `tail` that are unavailable.
    pub gap: u64,
    /// Bytes up to the last one. Empty if `head` is all there is.
    pub tail: &'a [u8],
}

/// Distribution of the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutBias {
    /// Half to the beginning, half to the end.
    Even,
    /// A fifth to the beginning, the rest to the end.
    End,
}

/// Text of which parts may be omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutText {
    /// Shown text, with a mark at each omission.
    pub text: String,
    /// Number of omitted bytes.
    pub left_out: u64,
    /// Offset of the first omitted byte. `None` if the text is complete.
    pub first_left_out: Option<u64>,
}

/// Line with its line feed, if it has one, and the parts of it that are shown.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    first: &'a [u8],
    hidden: u64,
    last: &'a [u8],
    /// True if part of the line is unavailable and may contain more lines.
    is_torn: bool,
}

impl<'a> Line<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        // A progress bar that was redrawn many times is long as bytes and short as text.
        if bytes.len() > LINE_BYTES && command_output(bytes).len() > LINE_BYTES {
            return Self::of(bytes, 0, bytes);
        }
        Self {
            first: bytes,
            hidden: 0,
            last: &[],
            is_torn: false,
        }
    }

    /// Returns the line that begins with `before`, goes on with `gap` unavailable bytes, and ends
    /// with `after`.
    fn torn(before: &'a [u8], gap: u64, after: &'a [u8]) -> Self {
        let line = Self::of(before, gap, after);
        let is_torn = true;
        let hidden =
            gap + (before.len() - line.first.len()) as u64 + (after.len() - line.last.len()) as u64;
        Self {
            hidden,
            is_torn,
            ..line
        }
    }

    fn of(before: &'a [u8], gap: u64, after: &'a [u8]) -> Self {
        let first = &before[..floor(before, LINE_HEAD_BYTES)];
        let last = &after[ceil(after, after.len().saturating_sub(LINE_TAIL_BYTES))..];
        Self {
            hidden: gap + before.len().saturating_sub(first.len() + last.len()) as u64,
            first,
            last,
            is_torn: false,
        }
    }

    fn bytes(&self) -> u64 {
        (self.first.len() + self.last.len()) as u64 + self.hidden
    }

    fn shown_bytes(&self) -> usize {
        command_output(self.first).len() + command_output(self.last).len()
    }
}

/// Part of a source. Every byte of the source is in exactly one piece, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    Shown(&'a [u8]),
    Hidden {
        bytes: u64,
        /// Number of whole lines. `None` if unknown.
        lines: Option<usize>,
        /// True if the piece is the middle of a line.
        is_inside: bool,
    },
}

/// Returns output of a command as a terminal would show it in the end: without colours, and with
/// the last state of a line that was overwritten. Other control characters are shown as escapes.
fn command_output(bytes: &[u8]) -> String {
    if !bytes.iter().any(|byte| matches!(byte, b'\r' | b'\x1b')) {
        return readable(bytes);
    }
    let mut text = String::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let (line, end) = match line.strip_suffix(b"\n") {
            Some(line) => (line.strip_suffix(b"\r").unwrap_or(line), "\n"),
            None => (line, ""),
        };
        let line = without_styles(line);
        let is_blank = |state: &&[u8]| state.iter().all(u8::is_ascii_whitespace);
        let mut states = line.rsplit(|byte| *byte == b'\r');
        let last = states.find(|state| !is_blank(state)).unwrap_or_default();
        text.push_str(&readable(last));
        text.push_str(end);
    }
    text
}

/// Removes colours and other styles (`CSI ... m`), line erasure (`CSI ... K`), and hiding and
/// showing of the cursor.
fn without_styles(mut line: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(line.len());
    while let Some(at) = memchr::memchr(b'\x1b', line) {
        kept.extend_from_slice(&line[..at]);
        let rest = &line[at..];
        let length = style_length(rest).unwrap_or_else(|| {
            kept.push(b'\x1b');
            1
        });
        line = &rest[length..];
    }
    kept.extend_from_slice(line);
    kept
}

/// Returns the length of the removable sequence at the start of `bytes`, or `None`.
fn style_length(bytes: &[u8]) -> Option<usize> {
    for cursor in [b"\x1b[?25l", b"\x1b[?25h"] {
        if bytes.starts_with(cursor) {
            return Some(cursor.len());
        }
    }
    let parameters = bytes.strip_prefix(b"\x1b[")?;
    let is_parameter = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let end = parameters.iter().position(|byte| !is_parameter(byte))?;
    matches!(parameters[end], b'm' | b'K').then_some(end + 3)
}

/// Truncates `source` to `room` bytes of text. The marks at omissions do not count.
pub fn cut(source: CutSource<'_>, room: usize, lean: CutBias) -> CutText {
    let mut text = String::new();
    let (mut left_out, mut first_left_out, mut offset) = (0, None, 0);
    for piece in pieces(source, room, lean) {
        match piece {
            Piece::Shown(bytes) => {
                text.push_str(&command_output(bytes));
                offset += bytes.len() as u64;
            }
            Piece::Hidden {
                bytes,
                lines,
                is_inside,
            } => {
                // Writing to a `String` cannot fail.
                let _ = match (is_inside, lines) {
                    (true, Some(_)) => {
                        write!(text, "[... {bytes} bytes of this line left out ...]")
                    }
                    (true, None) => write!(text, "[... {bytes} bytes left out ...]"),
                    (false, Some(lines)) => {
                        writeln!(text, "[... {lines} lines, {bytes} bytes left out ...]")
                    }
                    (false, None) => writeln!(text, "[... {bytes} bytes left out ...]"),
                };
                first_left_out.get_or_insert(offset);
                left_out += bytes;
                offset += bytes;
            }
        }
    }
    CutText {
        text,
        left_out,
        first_left_out,
    }
}

fn pieces(source: CutSource<'_>, room: usize, lean: CutBias) -> Vec<Piece<'_>> {
    let lines = lines(source);
    let (from, to) = split(&lines, room, lean);
    let mut pieces = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index == from && from < to {
            let hidden = &lines[from..to];
            pieces.push(Piece::Hidden {
                bytes: hidden.iter().map(Line::bytes).sum(),
                lines: (!hidden.iter().any(|line| line.is_torn)).then_some(hidden.len()),
                is_inside: false,
            });
        }
        if (from..to).contains(&index) {
            continue;
        }
        pieces.push(Piece::Shown(line.first));
        if line.hidden > 0 {
            pieces.push(Piece::Hidden {
                bytes: line.hidden,
                lines: (!line.is_torn).then_some(0),
                is_inside: true,
            });
        }
        pieces.push(Piece::Shown(line.last));
    }
    pieces
}

/// Returns the range of lines to omit, so that the lines before and after it fit into `room`.
fn split(lines: &[Line<'_>], room: usize, lean: CutBias) -> (usize, usize) {
    let costs: Vec<usize> = lines.iter().map(Line::shown_bytes).collect();
    if costs.iter().sum::<usize>() <= room {
        return (lines.len(), lines.len());
    }
    let head_room = match lean {
        CutBias::Even => room / 2,
        CutBias::End => room / 5,
    };
    let (mut used, mut from, mut to) = (0, 0, lines.len());
    while from < to && used + costs[from] <= head_room {
        used += costs[from];
        from += 1;
    }
    while to > from && used + costs[to - 1] <= room {
        to -= 1;
        used += costs[to];
    }
    (from, to)
}

fn lines(source: CutSource<'_>) -> Vec<Line<'_>> {
    let split = |bytes| <[u8]>::split_inclusive(bytes, |byte: &u8| *byte == b'\n').map(Line::new);
    if source.gap == 0 && source.tail.is_empty() {
        return split(source.head).collect();
    }
    // The torn line reaches from the last line feed before the gap to the first one after it.
    let before = source.head.iter().rposition(|byte| *byte == b'\n');
    let (head, before) = source.head.split_at(before.map_or(0, |at| at + 1));
    let after = source.tail.iter().position(|byte| *byte == b'\n');
    let (after, tail) = source
        .tail
        .split_at(after.map_or(source.tail.len(), |at| at + 1));
    let torn = Line::torn(before, source.gap, after);
    split(head).chain([torn]).chain(split(tail)).collect()
}

/// Returns the last position at or before `at` that is not inside a UTF-8 character.
pub(crate) fn floor(bytes: &[u8], at: usize) -> usize {
    let at = at.min(bytes.len());
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| is_boundary(bytes, *at))
        .unwrap_or(at)
}

/// Returns the first position at or after `at` that is not inside a UTF-8 character.
fn ceil(bytes: &[u8], at: usize) -> usize {
    (at..=(at + 3).min(bytes.len()))
        .find(|at| is_boundary(bytes, *at))
        .unwrap_or(at)
}

fn is_boundary(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|byte| byte & 0xc0 != 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> CutSource<'_> {
        CutSource {
            head: bytes,
            gap: 0,
            tail: &[],
        }
    }

    fn even(bytes: &[u8], room: usize) -> CutText {
        cut(whole(bytes), room, CutBias::Even)
    }

    #[test]
    fn what_fits_is_left_alone() {
        let cut = even(b"a\nb\n", 100);
        assert_eq!((&cut.text[..], cut.left_out), ("a\nb\n", 0));
        assert_eq!(cut.first_left_out, None);
    }

    #[test]
    fn both_ends_stay_and_more_of_the_end_after_a_failure() {
        let lines: Vec<String> = (0..1000).map(|n| format!("line {n}\n")).collect();
        let text = lines.concat();
        let calm = even(text.as_bytes(), 1000);
        assert!(calm.text.starts_with("line 0\n") && calm.text.ends_with("line 999\n"));
        let failed = cut(whole(text.as_bytes()), 1000, CutBias::End);
        let mark = |cut: &CutText| cut.text.find("[...").unwrap();
        assert!(mark(&failed) < mark(&calm));
        assert_eq!(failed.first_left_out, Some(mark(&failed) as u64));
        let marks: usize = failed
            .text
            .lines()
            .filter(|line| line.starts_with("[..."))
            .map(|line| line.len() + 1)
            .sum();
        assert_eq!(
            failed.left_out as usize + failed.text.len() - marks,
            text.len()
        );
    }

    #[test]
    fn an_endless_line_keeps_both_its_ends() {
        let mut line = vec![b'x'; 1 << 20];
        line.extend(b"end");
        let cut = even(&line, 5000);
        assert_eq!(cut.left_out, (1 << 20) + 3 - 2000);
        assert_eq!(cut.first_left_out, Some(1500));
        assert!(cut.text.ends_with("xxend"), "{}", cut.text);
        assert!(
            cut.text
                .contains("[... 1046579 bytes of this line left out ...]")
        );
    }

    #[test]
    fn what_is_not_at_hand_is_counted_too() {
        let source = CutSource {
            head: b"a\nb\nbegin",
            gap: 1_000_000,
            tail: b"finish\ny\nz\n",
        };
        let cut = cut(source, 1000, CutBias::Even);
        assert_eq!(
            cut.text,
            "a\nb\nbegin[... 1000000 bytes left out ...]finish\ny\nz\n"
        );
        assert_eq!((cut.left_out, cut.first_left_out), (1_000_000, Some(9)));
    }

    #[test]
    fn output_is_shown_as_a_terminal_has_it_in_the_end() {
        for (bytes, shown) in [
            (&b"\x1b[1;31mFAILED\x1b[0m test_x\n"[..], "FAILED test_x\n"),
            (b"\r  1%\r 50%\r100%\n", "100%\n"),
            (b"100%\r\n", "100%\n"),
            (b"one\r\ntwo\r\n", "one\ntwo\n"),
            (b" 10%\r\x1b[K", " 10%"),
            (b"\x1b[?25la\x1b[?25h\n", "a\n"),
            // Sequences that are no style are shown as escapes: a link, a title, a cursor movement.
            (b"\x1b]8;;http://x\x07y", "\\x1b]8;;http://x\\x07y"),
            (b"\x1b[2Ja\x1b[31", "\\x1b[2Ja\\x1b[31"),
            (b"plain\n", "plain\n"),
        ] {
            assert_eq!(command_output(bytes), shown, "{bytes:?}");
        }
        let state = |n: usize| format!("\r{n:>4} [{}]", "=".repeat(50));
        let bar = (0..1000).map(state).collect::<Vec<_>>().concat();
        let source = CutSource {
            head: bar.as_bytes(),
            gap: 0,
            tail: &[],
        };
        let cut = cut(source, OUTPUT_BYTES, CutBias::Even);
        assert_eq!(cut.text, format!(" 999 [{}]", "=".repeat(50)));
        assert_eq!(cut.left_out, 0);
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..60),
            1 => proptest::collection::vec(any::<u8>(), 1990..4100),
        ];
        proptest::collection::vec(line, 0..20).prop_map(|lines| lines.join(&b'\n'))
    }

    proptest! {
        #[test]
        fn every_byte_is_shown_or_counted_once(
            head in any_bytes(), gap in 0_u64..5000, tail in any_bytes(), room in 0_usize..20_000,
            is_end: bool,
        ) {
            let source = CutSource { head: &head, gap, tail: &tail };
            let lean = if is_end { CutBias::End } else { CutBias::Even };
            let total = (head.len() + tail.len()) as u64 + gap;
            // The shown text must be the bytes at its offset.
            let mut offset = 0_u64;
            for piece in pieces(source, room, lean) {
                match piece {
                    Piece::Shown(bytes) => {
                        let end = offset as usize + bytes.len();
                        let place = if end <= head.len() {
                            &head[offset as usize..end]
                        } else {
                            let skipped = head.len() + gap as usize;
                            &tail[offset as usize - skipped..end - skipped]
                        };
                        prop_assert_eq!(bytes, place);
                        offset = end as u64;
                    }
                    Piece::Hidden { bytes, .. } => offset += bytes,
                }
            }
            prop_assert_eq!(offset, total);
            let cut = cut(source, room, lean);
            prop_assert_eq!(cut.left_out == 0, cut.first_left_out.is_none());
            let marks = cut.text.matches("[... ").count() * 60;
            prop_assert!(cut.text.len() <= room + marks);
            if cut.left_out == 0 && gap == 0 {
                let whole = [&head[..], &tail].concat();
                prop_assert!(command_output(&whole).len() <= cut.text.len());
            }
        }
    }
}
