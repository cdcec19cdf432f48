//! Glob: finds files by name.

use super::incomplete;
use super::rooted::rooted;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::OUTPUT_BYTES;
use crate::{OutcomeView, ToolOutcome};
use glovebox_proto::limits::MAX_SEARCH_HITS;
use glovebox_proto::{Fault, Reply, Request, SearchEnd, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Default maximum number of hits.
const USUAL_HITS: u32 = 200;
/// Time limit of a search in the guest, in milliseconds.
pub(super) const DEADLINE_MS: u64 = 20_000;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Glob {
    /// Shell pattern such as `*.rs` (any depth), `src/*.rs`, `**/test/*.{js,ts}` or `/workspace/src/*.rs`.
    pattern: String,
    /// Directory to look in; the workspace unless given.
    #[serde(default, alias = "dir", alias = "directory")]
    path: Option<String>,
    /// Most files wanted (200 unless given).
    #[serde(default)]
    limit: Option<u32>,
    /// Files to pass over, for the next part of a long answer.
    #[serde(default)]
    offset: u32,
    /// Also files that `.gitignore` and its like name.
    #[serde(default)]
    no_ignore: bool,
    /// What stands before the name of a hit.
    #[serde(skip)]
    prefix: String,
}

impl Tool for Glob {
    const NAME: &'static str = "Glob";
    const ALIASES: &'static [&'static str] = &["glob", "find", "find_files"];
    const DESCRIPTION: &'static str = "Finds files by name, newest first. What `.gitignore` names is left \
        out unless `no_ignore` is true.";
    const EFFECT: Effect = Effect::Reads;

    fn normalize(&mut self) -> Result<(), Fault> {
        let rooted = rooted(&self.pattern, self.path.as_deref())?;
        (self.path, self.pattern, self.prefix) = (rooted.path, rooted.pattern, rooted.prefix);
        Ok(())
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let limit = self.limit.unwrap_or(USUAL_HITS).max(1);
        let path = self.path.unwrap_or_else(|| ".".to_owned());
        let reply = call.ask(Request::Glob(glovebox_proto::Glob {
            path: ByteBuf::from(path.as_bytes()),
            pattern: self.pattern,
            use_ignore: !self.no_ignore,
            max_hits: limit.saturating_add(self.offset).clamp(1, MAX_SEARCH_HITS),
            deadline_ms: DEADLINE_MS,
        }))?;
        let Reply::Globbed(found) = reply else {
            return Err(unexpected(&reply));
        };
        let mut text = String::new();
        let mut rows = Vec::new();
        for hit in found.hits.iter().skip(self.offset as usize) {
            let name = visible::line(&[self.prefix.as_bytes(), &hit.path].concat());
            if text.len() + name.len() >= OUTPUT_BYTES {
                break;
            }
            let _ = writeln!(text, "{name}");
            rows.push(vec![name, hit.size.to_string()]);
        }
        let (shown, next) = (
            rows.len() as u64,
            u64::from(self.offset) + rows.len() as u64,
        );
        if found.total == 0 {
            text.push_str("[no file fits]\n");
        } else if next < found.total {
            let _ = writeln!(
                text,
                "[{shown} of {} files, newest first; the next ones with offset {next}]",
                found.total
            );
        }
        text.push_str(&incomplete(found.end, found.unreadable));
        Ok(ToolOutcome::ok(
            text,
            json!({
                "path": path,
                "shown": shown,
                "total": found.total,
                "next": (shown > 0 && next < found.total).then_some(next),
                "complete": found.end == SearchEnd::Complete,
            }),
        )
        .with_view(OutcomeView::Table {
            columns: vec!["name", "bytes"],
            rows,
        }))
    }
}
