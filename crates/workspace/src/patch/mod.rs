//! Writes a change set as text: as a patch for `git apply`, as a patch for display, or as a table
//! of counts.
//!
//! Input: a change set with its contents ([`CollectedChanges`]). Output: bytes to a writer. A patch
//! reproduces regular files, symbolic links, deletions, renames and the executable bit exactly;
//! like git, it cannot represent empty directories.
//!
//! Memory is bounded: a content that is too large for a comparison by lines is streamed as a binary
//! part. The contents that a sandbox delivers are compared with their digests (`digest-mismatch`).

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

/// Intended reader of the text.
#[derive(Debug, Clone, Copy)]
pub enum Style {
    /// A program: all bytes are written unchanged.
    Exact,
    /// A user at a terminal.
    Screen {
        /// True if colors mark additions and deletions.
        has_color: bool,
    },
    /// The search for hidden characters: unchanged lines, without the content of binary files.
    Search,
}

/// Error of writing a patch.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A version cannot be read, or differs from what was collected.
    #[error("{0}")]
    Content(Fault),
    /// The output cannot be written to.
    #[error("cannot write the patch: {0}")]
    Write(#[from] io::Error),
}

/// Writes a change set as a patch, in the order of its paths.
///
/// # Errors
/// [`PatchError`]. The text written so far is not a complete patch.
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
    /// Writes one line of the patch. `line` must have no line break.
    fn line(self, out: &mut dyn Write, kind: Line, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Exact => {
                out.write_all(line)?;
                out.write_all(b"\n")
            }
            Self::Search => {
                let is_content = matches!(kind, Line::Same | Line::Removed | Line::Added);
                // The mark must not be part of the line: characters are judged together with their
                // neighbours.
                out.write_all(if is_content { &line[1..] } else { line })?;
                out.write_all(b"\n")
            }
            Self::Screen { has_color } => {
                // TRUST: the sandbox chose names and content.
                let text = match kind {
                    Line::Header | Line::Range => visible::line(line),
                    Line::Same | Line::Removed | Line::Added => {
                        let (mark, content) = line.split_at(1);
                        // An unchanged Windows line end needs no attention.
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

/// Type of a line of a patch.
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
