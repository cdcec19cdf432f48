//! Parameters and reports of `Edit`, `Glob` and `Grep`.

use crate::limits::{MAX_PATTERN_BYTES, MAX_SEARCH_HITS, MAX_SEARCH_MS};
use crate::{Code, Fault, JobId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Replacement of one text by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Text to replace.
    pub old: ByteBuf,
    /// New text.
    pub new: ByteBuf,
    /// True to replace every occurrence. Otherwise the old text must occur exactly once.
    pub all: bool,
}

/// Closeness of the match between an old text and the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchKind {
    /// Equal byte for byte.
    Exact,
    /// Equal except for line endings.
    LineEndings,
    /// Equal except for white space at the ends of lines.
    TrailingSpace,
    /// Equal except for the indentation. The new text is written with the file's indentation.
    Indentation,
}

/// Outcome of one replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacementReport {
    /// Closeness of the match.
    pub how: MatchKind,
    /// Number of places that were replaced.
    pub places: u32,
}

/// Result of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditReport {
    /// Outcome of each requested replacement, in order.
    pub made: Vec<ReplacementReport>,
    /// Unified diff of the change, without header, cut to [`crate::limits::MAX_DIFF_BYTES`].
    pub diff: ByteBuf,
    /// True if the diff was cut.
    pub is_diff_cut: bool,
    /// Size of the file after the edit, in bytes.
    pub size: u64,
    /// BLAKE3 digest of the content before the edit.
    pub before: [u8; 32],
    /// BLAKE3 digest of the content after the edit.
    pub after: [u8; 32],
}

/// Search for files by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glob {
    /// Directory to search.
    pub path: ByteBuf,
    /// Shell pattern for paths below the directory. A pattern without a slash matches names at any
    /// depth.
    pub pattern: String,
    /// True to skip paths that the ignore files of the tree name (`.gitignore` and similar).
    pub use_ignore: bool,
    /// Most hits to return.
    pub max_hits: u32,
    /// Time limit in milliseconds. The reply then holds the hits so far.
    pub deadline_ms: u64,
}

/// File found by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Path relative to the searched directory.
    pub path: ByteBuf,
    /// Time of last modification in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Size in bytes.
    pub size: u64,
}

/// Reason for which a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchEnd {
    /// The search covered everything.
    Complete,
    /// The time limit was reached.
    Deadline,
}

/// Files found by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobReport {
    /// Hits, newest first, chosen from all that matched.
    pub hits: Vec<FoundFile>,
    /// Number of files that matched.
    pub total: u64,
    /// Directories that could not be read.
    pub unreadable: u64,
    /// Completeness of the search.
    pub end: SearchEnd,
}

/// Search for lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grep {
    /// Directory, file or log to search.
    pub target: GrepTarget,
    /// Regular expression, in the syntax of Rust's `regex` crate.
    pub pattern: String,
    /// True if the pattern is plain text.
    pub is_literal: bool,
    /// Comparison of letters.
    pub case: Case,
    /// True if a match may span lines.
    pub is_multiline: bool,
    /// Shell patterns of paths. A file is searched only if its path matches one of them; a leading
    /// `!` excludes. Empty for all files.
    pub globs: Vec<String>,
    /// File types as in `rg --type`. Only files of these types are searched. Empty for all types.
    pub types: Vec<String>,
    /// True to skip paths that the ignore files of the tree name.
    pub use_ignore: bool,
    /// Amount of detail to return for each file.
    pub mode: GrepMode,
    /// Context lines to return before a match.
    pub before: u16,
    /// Context lines to return after a match.
    pub after: u16,
    /// Hits to skip: lines for [`GrepMode::Lines`], files otherwise.
    pub offset: u32,
    /// Most hits to return.
    pub max_hits: u32,
    /// Time limit in milliseconds. The reply then holds the hits so far.
    pub deadline_ms: u64,
}

/// Text that [`Grep`] searches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepTarget {
    /// Directory or file.
    Path(ByteBuf),
    /// Output of a job so far, as one text. A [`crate::log_gap`] line stands for bytes that are not
    /// kept. `globs` and `types` are ignored.
    Log(JobId),
}

/// Comparison of letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Case {
    /// Upper and lower case differ.
    Sensitive,
    /// Upper and lower case are equal.
    Insensitive,
}

/// Detail returned for each file with a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepMode {
    /// Matching lines.
    Lines,
    /// Path only.
    Files,
    /// Number of matching lines.
    Count,
}

/// Line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Line number, counted from 1.
    pub number: u64,
    /// True for a match, false for a context line.
    pub is_match: bool,
    /// Bytes of the line without its line feed, cut to [`crate::limits::MAX_LINE_BYTES`]. Of a long
    /// line only the surroundings of the first match are returned.
    pub text: ByteBuf,
    /// True if the line continues after the text.
    pub is_cut: bool,
    /// Number of bytes of the line before the text.
    pub start: u64,
    /// Column of the first match, in bytes, counted from 1, if only a part of the line is returned;
    /// else 0.
    pub column: u64,
}

/// File with matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHits {
    /// Path relative to the searched directory; empty if the target was a file.
    pub path: ByteBuf,
    /// Time of last modification in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Number of matching lines.
    pub matches: u64,
    /// Lines for [`GrepMode::Lines`]; empty for the other modes.
    pub lines: Vec<Line>,
}

/// Result of a search for lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepReport {
    /// Files with matches, newest first, chosen from all that matched.
    pub files: Vec<FileHits>,
    /// Number of files that match.
    pub total_files: u64,
    /// Number of lines that match.
    pub total_matches: u64,
    /// Number of files skipped because they are binary.
    pub binary: u64,
    /// Number of files and directories that could not be read.
    pub unreadable: u64,
    /// Completeness of the search.
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
