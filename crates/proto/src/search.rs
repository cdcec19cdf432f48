//! Finding things in files and changing them in place: the words of `Edit`, `Glob` and `Grep`.

use crate::limits::{MAX_PATTERN_BYTES, MAX_SEARCH_HITS, MAX_SEARCH_MS};
use crate::{Code, Fault, JobId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// One text that takes the place of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// What is there.
    pub old: ByteBuf,
    /// What shall be there.
    pub new: ByteBuf,
    /// Wherever it stands, instead of in exactly one place.
    pub all: bool,
}

/// How an old text was found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchKind {
    /// Byte for byte.
    Exact,
    /// With the file's line endings.
    LineEndings,
    /// With other white space at the ends of lines.
    TrailingSpace,
    /// With another indentation; the new text has the file's.
    Indentation,
}

/// A replacement that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacementReport {
    /// How the old text was found.
    pub how: MatchKind,
    /// In how many places.
    pub places: u32,
}

/// A file was changed in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditReport {
    /// One for each replacement asked for.
    pub made: Vec<ReplacementReport>,
    /// The change as a unified diff without header, cut to [`crate::limits::MAX_DIFF_BYTES`].
    pub diff: ByteBuf,
    /// Whether the diff was cut.
    pub is_diff_cut: bool,
    /// Size of the file now.
    pub size: u64,
    /// BLAKE3 of its content before.
    pub before: [u8; 32],
    /// BLAKE3 of its content now.
    pub after: [u8; 32],
}

/// Names to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glob {
    /// Directory to look in.
    pub path: ByteBuf,
    /// Shell pattern for paths below it; without a slash it is for names at any depth.
    pub pattern: String,
    /// Leave out what the ignore files of the tree name (`.gitignore` and its like).
    pub use_ignore: bool,
    /// Most hits wanted.
    pub max_hits: u32,
    /// How long to look; what was found until then is answered.
    pub deadline_ms: u64,
}

/// One file found by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Relative to where was looked.
    pub path: ByteBuf,
    /// Time of last modification in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Size in bytes.
    pub size: u64,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchEnd {
    /// Everything was looked at.
    Complete,
    /// The deadline passed.
    Deadline,
}

/// Files found by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobReport {
    /// The newest ones first, over all that were found.
    pub hits: Vec<FoundFile>,
    /// How many were found.
    pub total: u64,
    /// Directories that could not be read.
    pub unreadable: u64,
    /// Whether that is all.
    pub end: SearchEnd,
}

/// Lines to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grep {
    /// Where to look.
    pub target: GrepTarget,
    /// Regular expression, in the syntax of Rust's `regex` crate.
    pub pattern: String,
    /// The pattern is plain text.
    pub is_literal: bool,
    /// How letters compare.
    pub case: Case,
    /// Matches may span lines.
    pub is_multiline: bool,
    /// Only files whose path fits one of these shell patterns (`!` in front excludes).
    pub globs: Vec<String>,
    /// Only files of these types, as `rg --type` knows them.
    pub types: Vec<String>,
    /// Leave out what the ignore files of the tree name.
    pub use_ignore: bool,
    /// What is wanted of each file.
    pub mode: GrepMode,
    /// Lines shown before a match.
    pub before: u16,
    /// Lines shown after a match.
    pub after: u16,
    /// Hits to pass over: lines for [`GrepMode::Lines`], files otherwise.
    pub offset: u32,
    /// Most hits wanted.
    pub max_hits: u32,
    /// How long to look; what was found until then is answered.
    pub deadline_ms: u64,
}

/// What [`Grep`] looks through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepTarget {
    /// A directory or a file.
    Path(ByteBuf),
    /// What a job has written so far, as one text. A line of [`crate::log_gap`] stands for bytes that
    /// are not kept; patterns for files and types mean nothing here.
    Log(JobId),
}

/// How letters compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Case {
    /// As they are.
    Sensitive,
    /// Large and small ones are the same.
    Insensitive,
}

/// What is wanted of each file with a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepMode {
    /// Its matching lines.
    Lines,
    /// Its name.
    Files,
    /// How many lines match.
    Count,
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Counted from 1.
    pub number: u64,
    /// Whether it matches, or only stands beside one that does.
    pub is_match: bool,
    /// Its bytes without the line feed, cut to [`crate::limits::MAX_LINE_BYTES`]; of a long line what stands around the
    /// first match.
    pub text: ByteBuf,
    /// True if the line goes on behind the text.
    pub is_cut: bool,
    /// Bytes of the line before the text.
    pub start: u64,
    /// Column of the first match in a line of which a part is shown, in bytes, counted from 1; else 0.
    pub column: u64,
}

/// One file with matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHits {
    /// Relative to where was looked; empty when that was a file.
    pub path: ByteBuf,
    /// Time of last modification in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Lines that match.
    pub matches: u64,
    /// Lines, for [`GrepMode::Lines`].
    pub lines: Vec<Line>,
}

/// Lines found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepReport {
    /// The newest files first, over all that match.
    pub files: Vec<FileHits>,
    /// How many files match.
    pub total_files: u64,
    /// How many lines match.
    pub total_matches: u64,
    /// Files left out because they are binary.
    pub binary: u64,
    /// Files and directories that could not be read.
    pub unreadable: u64,
    /// Whether that is all.
    pub end: SearchEnd,
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::failed(Code::InvalidArgument, message)
}

fn check_pattern(pattern: &str, what: &str) -> Result<(), Fault> {
    if pattern.is_empty() {
        return Err(invalid(format!("the {what} is empty")));
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(Fault::failed(
            Code::TooLarge,
            format!(
                "the {what} has {} bytes; at most {MAX_PATTERN_BYTES} are taken",
                pattern.len()
            ),
        ));
    }
    Ok(())
}

fn check_bounds(max_hits: u32, deadline_ms: u64) -> Result<(), Fault> {
    if max_hits == 0 || max_hits > MAX_SEARCH_HITS {
        return Err(invalid(format!(
            "{max_hits} hits were asked for; between 1 and {MAX_SEARCH_HITS} can be"
        )));
    }
    if deadline_ms == 0 || deadline_ms > MAX_SEARCH_MS {
        return Err(invalid(format!(
            "a search of {deadline_ms} ms was asked for; between 1 and {MAX_SEARCH_MS} can be"
        )));
    }
    Ok(())
}

impl Glob {
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        check_pattern(&self.pattern, "pattern")?;
        check_bounds(self.max_hits, self.deadline_ms)
    }
}

impl Grep {
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        check_pattern(&self.pattern, "pattern")?;
        for glob in &self.globs {
            check_pattern(glob, "file pattern")?;
        }
        if self.globs.len() + self.types.len() > 256 {
            return Err(invalid("more than 256 file patterns and types were given"));
        }
        check_bounds(self.max_hits, self.deadline_ms)
    }
}
