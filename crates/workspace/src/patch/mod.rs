//! A change set as text: a patch that `git apply` takes, the same for a screen, and a table of counts.
//!
//! In: a change set with its contents ([`CollectedChanges`]). Out: bytes on a writer. A patch
//! reproduces regular files, symbolic links, deletions, renames and the executable bit exactly;
//! directories that hold nothing cannot be said in it, as in git.
//!
//! Memory is bounded: what is too large for a line by line comparison is streamed as a binary part.
//! What the sandbox says about a file is compared with what it delivers (`digest-mismatch`).

mod binary;
mod content;
mod hidden;
mod hunks;
pub(crate) mod name;
mod part;
mod select;
mod stat;

pub use hidden::{HiddenReport, HiddenSearch, find_hidden};
pub use select::{Hunks, Selection, write_change};
pub use stat::{FileStat, Totals, stat, write_stat};

use crate::CollectedChanges;
use glovebox_proto::{Fault, visible};
use std::io::{self, Write};

/// Who reads the text.
#[derive(Debug, Clone, Copy)]
pub enum Style {
    /// A program: every byte as it is.
    Exact,
    /// A person at a terminal.
    Screen {
        /// Whether additions and deletions are also told by colour.
        has_color: bool,
    },
    /// The search for characters that hide: lines as they are, without the content of binary files.
    Search,
}

/// Why no patch was written.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A version cannot be read, or is not what was collected.
    #[error("{0}")]
    Content(Fault),
    /// The text cannot be written.
    #[error("cannot write the patch: {0}")]
    Write(#[from] io::Error),
}

/// Writes a change set as a patch, in the order of its paths.
///
/// # Errors
/// [`PatchError`]; what was written until then is no complete patch.
pub fn write(
    collected: &CollectedChanges,
    style: Style,
    out: &mut dyn Write,
) -> Result<(), PatchError> {
    for change in &collected.set.changes {
        write_change(collected, change, style, out)?;
    }
    Ok(())
}

impl From<Fault> for PatchError {
    fn from(fault: Fault) -> Self {
        Self::Content(fault)
    }
}

impl Style {
    /// One line of the patch. `line` has no line break.
    fn line(self, out: &mut dyn Write, kind: Line, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Exact => {
                out.write_all(line)?;
                out.write_all(b"\n")
            }
            Self::Search => {
                let is_content = matches!(kind, Line::Same | Line::Removed | Line::Added);
                // The mark is no neighbour of what stands at the beginning of a line.
                out.write_all(if is_content { &line[1..] } else { line })?;
                out.write_all(b"\n")
            }
            Self::Screen { has_color } => {
                // TRUST: names and content were chosen in the sandbox.
                let text = match kind {
                    Line::Header | Line::Range => visible::line(line),
                    Line::Same | Line::Removed | Line::Added => {
                        let (mark, content) = line.split_at(1);
                        // An unchanged line end of Windows is no news.
                        let content = match content.strip_suffix(b"\r") {
                            Some(content) if kind == Line::Same => content,
                            _ => content,
                        };
                        visible::line(mark) + &visible::review_line(content, has_color)
                    }
                };
                match kind.color().filter(|_| has_color) {
                    Some(color) => writeln!(out, "\u{1b}[{color}m{text}\u{1b}[0m"),
                    None => writeln!(out, "{text}"),
                }
            }
        }
    }
}

/// What a line of a patch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Header,
    Range,
    Same,
    Removed,
    Added,
}

impl Line {
    const fn color(self) -> Option<&'static str> {
        match self {
            Self::Header => Some("1"),
            Self::Range => Some("36"),
            Self::Same => None,
            Self::Removed => Some("31"),
            Self::Added => Some("32"),
        }
    }
}

#[cfg(test)]
mod tests;
