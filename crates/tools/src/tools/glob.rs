//! Glob: files by name.

use super::incomplete;
use crate::Outcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::{OUTPUT_BYTES, middle, readable};
use glovebox_proto::limits::MAX_SEARCH_HITS;
use glovebox_proto::{Fault, Reply, Request, SearchEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Hits in one answer unless told otherwise.
const USUAL_HITS: u32 = 200;
/// How long a search may take, in milliseconds.
pub(super) const DEADLINE_MS: u64 = 20_000;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Glob {
    /// Shell pattern such as `*.rs` (any depth), `src/*.rs` or `**/test/*.{js,ts}`.
    pattern: String,
    /// Directory to look in; the workspace unless given.
    #[serde(default, alias = "dir", alias = "directory")]
    path: Option<String>,
    /// Most files wanted (200 unless given).
    #[serde(default)]
    limit: Option<u32>,
    /// Also files that `.gitignore` and its like name.
    #[serde(default)]
    no_ignore: bool,
}

impl Tool for Glob {
    const NAME: &'static str = "Glob";
    const ALIASES: &'static [&'static str] = &["glob", "find", "find_files"];
    const DESCRIPTION: &'static str = "Finds files by name, newest first. What `.gitignore` names is left \
        out unless `no_ignore` is true.";
    const EFFECT: Effect = Effect::Reads;

    fn run(self, call: &Call<'_>) -> Result<Outcome, Fault> {
        let path = self.path.unwrap_or_else(|| ".".to_owned());
        let reply = call.ask(Request::Glob(glovebox_proto::Glob {
            path: ByteBuf::from(path.as_bytes()),
            pattern: self.pattern,
            use_ignore: !self.no_ignore,
            max_hits: self.limit.unwrap_or(USUAL_HITS).clamp(1, MAX_SEARCH_HITS),
            deadline_ms: DEADLINE_MS,
        }))?;
        let Reply::Globbed(found) = reply else {
            return Err(unexpected(&reply));
        };
        let mut text = String::new();
        for hit in &found.hits {
            text.push_str(&readable(&hit.path).replace('\n', "\\n"));
            text.push('\n');
        }
        let mut text = middle(&text, OUTPUT_BYTES, false).text;
        let shown = found.hits.len() as u64;
        if found.total == 0 {
            text.push_str("[no file fits]\n");
        } else if shown < found.total {
            let _ = writeln!(text, "[the newest {shown} of {}]", found.total);
        }
        text.push_str(&incomplete(found.end, found.unreadable));
        Ok(Outcome::ok(
            text,
            json!({
                "path": path,
                "shown": shown,
                "total": found.total,
                "complete": found.end == SearchEnd::Complete,
            }),
        ))
    }
}
