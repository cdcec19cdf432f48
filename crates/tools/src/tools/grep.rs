//! Grep: finds lines by a pattern.

use super::glob::DEADLINE_MS;
use super::rooted::rooted;
use super::{incomplete, log};
use crate::ToolOutcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, readable};
use glovebox_proto::limits::MAX_SEARCH_HITS;
use glovebox_proto::{
    Case, Code, Fault, GrepMode, GrepReport, GrepTarget, Line, Reply, Request, SearchEnd, visible,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Default maximum number of hits.
const USUAL_HITS: u32 = 200;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grep {
    /// Regular expression (Rust syntax; like ripgrep).
    pattern: String,
    /// Directory or file to look in, or `job:ID` for the output of a job; the workspace unless given.
    #[serde(default)]
    path: Option<String>,
    /// Only files whose path fits this shell pattern, such as `*.rs` or `!tests/**`.
    #[serde(default, alias = "include")]
    glob: Option<String>,
    /// Only files of this type, as ripgrep knows them: rust, py, js, ...
    #[serde(default, rename = "type")]
    file_type: Option<String>,
    /// `lines` shows matching lines (unless given), `files` the names of files, `count` how many
    /// lines match in each.
    #[serde(default, alias = "output_mode")]
    mode: Mode,
    /// Lines shown before and after each match.
    #[serde(default, alias = "-C")]
    context: u16,
    /// Large and small letters are the same.
    #[serde(default, alias = "-i", alias = "ignore_case")]
    case_insensitive: bool,
    /// The pattern may span lines.
    #[serde(default)]
    multiline: bool,
    /// The pattern is plain text.
    #[serde(default, alias = "fixed_strings")]
    literal: bool,
    /// Most hits wanted (200 unless given).
    #[serde(default, alias = "head_limit")]
    limit: Option<u32>,
    /// Hits to pass over, for the next part of a long answer.
    #[serde(default)]
    offset: u32,
    /// Also files that `.gitignore` and its like name.
    #[serde(default)]
    no_ignore: bool,
    /// What stands before the name of a file.
    #[serde(skip)]
    prefix: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    #[serde(alias = "content")]
    Lines,
    #[serde(alias = "files_with_matches")]
    Files,
    Count,
}

impl Tool for Grep {
    const NAME: &'static str = "Grep";
    const ALIASES: &'static [&'static str] = &["grep", "ripgrep", "rg", "search"];
    const DESCRIPTION: &'static str = "Finds lines in files, or in what a job has written, by regular expression, newest files first. \
        Binary files and what `.gitignore` names are left out. An invalid pattern is an error, never an \
        empty answer.";
    const EFFECT: Effect = Effect::Reads;

    fn normalize(&mut self) -> Result<(), Fault> {
        let is_log = matches!(self.path.as_deref().map(log::job_of), Some(Ok(Some(_))));
        if is_log && (self.glob.is_some() || self.file_type.is_some()) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                "`glob` and `type` choose files, and the output of a job has none",
            )
            .remedy("leave them out"));
        }
        // A pattern of exclusion (`!...`) stays relative to the start of the search.
        if let Some(glob) = self.glob.as_deref().filter(|glob| !glob.starts_with('!')) {
            let rooted = rooted(glob, self.path.as_deref())?;
            (self.path, self.glob, self.prefix) =
                (rooted.path, Some(rooted.pattern), rooted.prefix);
        }
        Ok(())
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let path = self.path.unwrap_or_else(|| ".".to_owned());
        let limit = self.limit.unwrap_or(USUAL_HITS).clamp(1, MAX_SEARCH_HITS);
        let reply = call.ask(Request::Grep(glovebox_proto::Grep {
            target: match log::job_of(&path)? {
                Some(job) => GrepTarget::Log(job),
                None => GrepTarget::Path(ByteBuf::from(path.as_bytes())),
            },
            pattern: self.pattern,
            is_literal: self.literal,
            case: if self.case_insensitive {
                Case::Insensitive
            } else {
                Case::Sensitive
            },
            is_multiline: self.multiline,
            globs: self.glob.into_iter().collect(),
            types: self.file_type.into_iter().collect(),
            use_ignore: !self.no_ignore,
            mode: match self.mode {
                Mode::Lines => GrepMode::Lines,
                Mode::Files => GrepMode::Files,
                Mode::Count => GrepMode::Count,
            },
            before: self.context,
            after: self.context,
            offset: self.offset,
            max_hits: limit,
            deadline_ms: DEADLINE_MS,
        }))?;
        let Reply::Grepped(found) = reply else {
            return Err(unexpected(&reply));
        };
        let all = match self.mode {
            Mode::Lines => found.total_matches,
            Mode::Files | Mode::Count => found.total_files,
        };
        let (mut text, shown) = render(&found, self.mode, &path, &self.prefix);
        if all == 0 {
            text.push_str("[nothing found]\n");
        } else if shown + u64::from(self.offset) < all {
            let _ = writeln!(
                text,
                "[{shown} of {all} hits; the next ones with offset {}]",
                u64::from(self.offset) + shown
            );
        }
        if found.binary > 0 {
            let _ = writeln!(text, "[{} binary files left out]", found.binary);
        }
        text.push_str(&incomplete(found.end, found.unreadable));
        Ok(ToolOutcome::ok(
            text,
            json!({
                "path": path,
                "files": found.total_files,
                "matches": found.total_matches,
                "shown": shown,
                "next": (shown > 0 && u64::from(self.offset) + shown < all).then(|| u64::from(self.offset) + shown),
                "complete": found.end == SearchEnd::Complete,
            }),
        ))
    }
}

/// Renders the hits that fit into one answer. Returns the text and the number of hits in it.
fn render(found: &GrepReport, mode: Mode, path: &str, prefix: &str) -> (String, u64) {
    let mut text = String::new();
    let mut shown = 0;
    for file in &found.files {
        let name = if file.path.is_empty() {
            visible::line_of_text(path)
        } else {
            visible::line(&[prefix.as_bytes(), &file.path].concat())
        };
        let head = match mode {
            Mode::Files | Mode::Lines => format!("{name}\n"),
            Mode::Count => format!("{name}: {}\n", file.matches),
        };
        let mut block = Block::new(head, OUTPUT_BYTES.saturating_sub(text.len()));
        if mode == Mode::Lines {
            for line in &file.lines {
                if !block.add(line) {
                    break;
                }
            }
        }
        if block.room < block.text.len() || (mode == Mode::Lines && block.shown == 0) {
            break;
        }
        text.push_str(&block.text);
        shown += if mode == Mode::Lines { block.shown } else { 1 };
        if block.is_full {
            break;
        }
    }
    (text, shown)
}

/// Lines of one file. Context after the last match that fits is kept; context before the next match
/// is dropped together with that match.
struct Block {
    text: String,
    /// Lines since the last one that fitted, until it is known that they fit too.
    pending: String,
    room: usize,
    before: Option<u64>,
    shown: u64,
    is_full: bool,
}

impl Block {
    fn new(head: String, room: usize) -> Self {
        Self {
            text: head,
            pending: String::new(),
            room,
            before: None,
            shown: 0,
            is_full: false,
        }
    }

    fn add(&mut self, line: &Line) -> bool {
        if self.before.is_some_and(|before| before + 1 < line.number) {
            self.pending.push_str("  --\n");
        }
        self.before = Some(line.number);
        let mark = if line.is_match { ':' } else { '-' };
        let before = match (line.column, line.start) {
            (0, _) => String::new(),
            (column, 0) => format!("[column {column}] "),
            (column, _) => format!("[column {column}] [...]"),
        };
        let rest = if line.is_cut { "[...]" } else { "" };
        let _ = writeln!(
            self.pending,
            "{:>6}{mark} {before}{}{rest}",
            line.number,
            readable(&line.text)
        );
        if self.text.len() + self.pending.len() > self.room {
            self.is_full = true;
            return false;
        }
        if line.is_match {
            self.shown += 1;
        }
        self.text.push_str(&self.pending);
        self.pending.clear();
        true
    }
}
