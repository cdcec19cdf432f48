//! Read: a text file by lines, an image, or a directory.

use crate::Outcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, readable};
use crate::tools::list;
use glovebox_proto::{Code, Fault, Reply, Request};
use glovebox_sandbox::Incoming;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

/// Lines in one answer unless told otherwise.
const USUAL_LINES: u64 = 2000;
/// Bytes of a line that are shown.
const LINE_BYTES: usize = 2000;
/// Bytes looked at to tell text from something else.
const SNIFF_BYTES: usize = 8 << 10;
/// Names suggested for one that is not there.
const MAX_SUGGESTIONS: usize = 5;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    /// File or directory, absolute or relative to the workspace.
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    path: String,
    /// First line wanted, counted from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// Most lines wanted (2000 unless given).
    #[serde(default)]
    limit: Option<u64>,
}

impl Tool for Read {
    const NAME: &'static str = "Read";
    const ALIASES: &'static [&'static str] = &["file_read", "read_file", "cat", "view"];
    const DESCRIPTION: &'static str = "Reads a text file with line numbers, or lists a directory. Long \
        files come in parts: the answer says which offset to ask for next. Binary files are named, not \
        shown.";
    const EFFECT: Effect = Effect::Reads;

    fn run(self, call: &Call<'_>) -> Result<Outcome, Fault> {
        let request = Request::FileRead {
            path: ByteBuf::from(self.path.as_bytes()),
            offset: 0,
            max_bytes: None,
        };
        let mut stream = call.sandbox().open(request)?;
        let mut page = Page::new(
            self.offset.unwrap_or(1).max(1),
            self.limit.unwrap_or(USUAL_LINES),
        );
        loop {
            match call.next(&mut stream, Duration::ZERO)? {
                Incoming::Data { bytes, .. } => {
                    page.take(&bytes);
                    if page.is_full() || page.is_binary {
                        // What follows is not wanted; dropping the stream says so.
                        return Ok(page.outcome(call, &self.path, None));
                    }
                }
                Incoming::Reply(Ok(Reply::Read { size, .. })) => {
                    return Ok(page.outcome(call, &self.path, Some(size)));
                }
                Incoming::Reply(Ok(other)) => return Err(unexpected(&other)),
                Incoming::Reply(Err(fault)) if fault.code == Code::IsDirectory => {
                    return list::list(call, &self.path, list::USUAL_ENTRIES);
                }
                Incoming::Reply(Err(fault)) if fault.code == Code::NotFound => {
                    return Err(suggest(call, &self.path, fault));
                }
                Incoming::Reply(Err(fault)) => return Err(fault),
            }
        }
    }
}

/// The wanted lines, gathered while the file goes by.
struct Page {
    first: u64,
    limit: u64,
    /// Number of the line that is being gathered.
    line: u64,
    current: Vec<u8>,
    /// Bytes of the current line that were left out.
    dropped: usize,
    text: String,
    shown: u64,
    /// There is more after what was shown.
    has_more: bool,
    start: Vec<u8>,
    is_binary: bool,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Page {
    fn new(first: u64, limit: u64) -> Self {
        Self {
            first,
            limit,
            line: 1,
            current: Vec::new(),
            dropped: 0,
            text: String::new(),
            shown: 0,
            has_more: false,
            start: Vec::new(),
            is_binary: false,
            hasher: blake3::Hasher::new(),
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.has_more
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        if self.start.len() < SNIFF_BYTES {
            let room = SNIFF_BYTES - self.start.len();
            self.start
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.is_binary |= self.start.contains(&0);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_more {
            let (line, after) = match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&rest[..end], Some(&rest[end + 1..])),
                None => (rest, None),
            };
            if self.line >= self.first {
                // A line begins after the page is full: that is how "more" is known.
                if self.shown >= self.limit || self.text.len() >= OUTPUT_BYTES {
                    self.has_more = true;
                    return;
                }
                let room = LINE_BYTES - self.current.len();
                self.current
                    .extend_from_slice(&line[..line.len().min(room)]);
                self.dropped += line.len().saturating_sub(room);
            }
            match after {
                Some(after) => {
                    self.end_line();
                    rest = after;
                }
                None => return,
            }
        }
    }

    fn end_line(&mut self) {
        if self.line >= self.first {
            let line = readable(&self.current);
            let _ = write!(self.text, "{:>6}\t{line}", self.line);
            if self.dropped > 0 {
                let _ = write!(
                    self.text,
                    "[... {} bytes of this line left out]",
                    self.dropped
                );
            }
            self.text.push('\n');
            self.shown += 1;
        }
        self.current.clear();
        self.dropped = 0;
        self.line += 1;
    }

    fn outcome(mut self, call: &Call<'_>, path: &str, size: Option<u64>) -> Outcome {
        if self.is_binary {
            let what = kind_of(&self.start);
            let size = size
                .map(|size| format!(", {size} bytes"))
                .unwrap_or_default();
            let facts = json!({ "path": path, "kind": what });
            return Outcome::ok(format!("[{path} is not text: {what}{size}]"), facts);
        }
        if !self.current.is_empty() && !self.has_more {
            self.end_line();
        }
        let is_whole = !self.has_more && self.first == 1 && size == Some(self.bytes);
        if is_whole {
            call.hands.ledger.note(path, self.hasher.finalize());
        }
        let next = self.first + self.shown;
        let mut text = self.text;
        if self.has_more {
            let _ = write!(text, "[more follows: offset {next}]");
        } else if self.shown == 0 && self.bytes == 0 {
            text.push_str("[the file is empty]");
        } else if self.shown == 0 {
            let _ = write!(text, "[the file ends at line {}]", self.line - 1);
        }
        let facts = json!({
            "path": path,
            "first_line": self.first,
            "lines": self.shown,
            "next": self.has_more.then_some(next),
            "bytes": size,
        });
        Outcome::ok(text, facts)
    }
}

/// What a file is by its first bytes.
fn kind_of(start: &[u8]) -> &'static str {
    let kinds: [(&[u8], &str); 12] = [
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"\x7fELF", "a program (ELF)"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\x00", "xz data"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"RIFF", "RIFF data (WebP, WAV or AVI)"),
        (b"\x00asm", "a WebAssembly module"),
    ];
    kinds
        .into_iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map_or("binary data", |(_, kind)| kind)
}

/// Adds names that look like the one that is not there.
fn suggest(call: &Call<'_>, path: &str, fault: Fault) -> Fault {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let parent = if parent.is_empty() { "/" } else { parent };
    let listed = call.ask(Request::List {
        path: ByteBuf::from(parent.as_bytes()),
        max_entries: 1000,
    });
    let Ok(Reply::List { entries, .. }) = listed else {
        return fault.remedy("find it with Glob or List");
    };
    let mut near: Vec<(usize, String)> = entries
        .iter()
        .map(|entry| readable(&entry.name))
        .map(|other| (unlike(name, &other), other))
        .filter(|(distance, other)| *distance * 2 <= name.len().max(other.len()))
        .collect();
    near.sort();
    near.truncate(MAX_SUGGESTIONS);
    if near.is_empty() {
        return fault.remedy("find it with Glob or List");
    }
    let names: Vec<_> = near
        .into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    fault.remedy(format!("beside it there is {}", names.join(", ")))
}

/// Edit distance of two names without regard to case (Wagner and Fischer).
fn unlike(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let best = (diagonal + usize::from(left != *right)).min(row[j].min(row[j + 1]) + 1);
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(content: &[u8], pieces: usize, first: u64, limit: u64) -> Page {
        let mut page = Page::new(first, limit);
        for piece in content.chunks(pieces) {
            if !page.is_full() {
                page.take(piece);
            }
        }
        if !page.current.is_empty() && !page.has_more {
            page.end_line();
        }
        page
    }

    #[test]
    fn lines_are_counted_from_one() {
        let page = page(b"a\nb\nc\n", 100, 2, 1);
        assert_eq!(page.text, "     2\tb\n");
        assert!(page.has_more);
    }

    #[test]
    fn the_last_line_is_not_more() {
        let page = page(b"a\nb\n", 100, 1, 2);
        assert_eq!((page.shown, page.has_more), (2, false));
    }

    #[test]
    fn endless_lines_are_cut() {
        let page = page(&[b'x'; 10_000], 300, 1, 10);
        assert!(page.text.contains("8000 bytes of this line left out"));
    }

    #[test]
    fn distances() {
        assert_eq!(unlike("main.rs", "Main.rs"), 0);
        assert_eq!(unlike("kitten", "sitting"), 3);
        assert_eq!(unlike("", "ab"), 2);
    }

    proptest! {
        #[test]
        fn how_a_file_arrives_does_not_matter(
            content in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..300),
            pieces in 1_usize..50, first in 1_u64..10, limit in 1_u64..10,
        ) {
            let (whole, parts) = (page(&content, 1000, first, limit), page(&content, pieces, first, limit));
            prop_assert_eq!(whole.text, parts.text);
            prop_assert_eq!(whole.has_more, parts.has_more);
        }
    }
}
