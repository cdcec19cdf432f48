//! List: lists a directory.

use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::hint::Hint;
use crate::{OutcomeView, ToolOutcome};
use glovebox_proto::{Fault, FileKind, Reply, Request, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Default maximum number of entries.
pub(super) const USUAL_ENTRIES: u32 = 500;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// The directory; the workspace unless given.
    #[serde(default, alias = "dir", alias = "directory")]
    path: Option<String>,
    /// Most entries wanted (500 unless given).
    #[serde(default)]
    limit: Option<u32>,
}

impl Tool for List {
    const NAME: &'static str = "List";
    const ALIASES: &'static [&'static str] = &["ls", "list_files", "list_dir"];
    const DESCRIPTION: &'static str = "Lists a directory, sorted by name: directories end with a slash, \
        links show where they lead, files show their size.";
    const EFFECT: Effect = Effect::Reads;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let limit = self.limit.unwrap_or(USUAL_ENTRIES).max(1);
        list(call, self.path.as_deref().unwrap_or("."), limit)
    }
}

/// Lists a directory.
pub(super) fn list(call: &Call<'_>, path: &str, limit: u32) -> Result<ToolOutcome, Fault> {
    let reply = call.ask(Request::List {
        path: ByteBuf::from(path.as_bytes()),
        max_entries: limit,
    })?;
    let Reply::List { entries, more } = reply else {
        return Err(unexpected(&reply));
    };
    let mut text = String::new();
    let mut rows = Vec::new();
    for entry in &entries {
        let name = visible::line(&entry.name);
        let (name, what) = match entry.stat.kind {
            FileKind::Directory => (format!("{name}/"), String::new()),
            FileKind::File => (name, format!("{} bytes", entry.stat.size)),
            FileKind::Symlink => (name, "-> link".to_owned()),
            kind => (name, format!("{kind:?}")),
        };
        let gap = if what.is_empty() { "" } else { "  " };
        let _ = writeln!(text, "{name}{gap}{what}");
        rows.push(vec![name, what]);
    }
    if entries.is_empty() {
        text.push_str("[the directory is empty]");
    }
    if more > 0 {
        let glob = call.hint([Hint::new(&["Glob"], ", or use Glob")]);
        let _ = write!(
            text,
            "[{more} more entries; ask with a larger limit{}]",
            glob.unwrap_or_default()
        );
    }
    Ok(ToolOutcome::ok(
        text,
        json!({ "path": path, "entries": entries.len(), "more": more }),
    )
    .with_view(OutcomeView::Table {
        columns: vec!["name", "what"],
        rows,
    }))
}
