//! List: what is in a directory.

use crate::catalog::Tool;
use crate::cut::readable;
use crate::hands::unexpected;
use crate::{Hands, Outcome};
use glovebox_proto::{Fault, FileKind, Reply, Request};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

/// Entries in one answer unless told otherwise.
pub(super) const USUAL_ENTRIES: u32 = 500;

/// Arguments.
#[derive(Debug, Deserialize, JsonSchema)]
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
    const IS_READ_ONLY: bool = true;

    fn run(self, hands: &Hands, _: &AtomicBool) -> Result<Outcome, Fault> {
        let limit = self.limit.unwrap_or(USUAL_ENTRIES).max(1);
        list(hands, self.path.as_deref().unwrap_or("."), limit)
    }
}

/// The entries of a directory.
pub(super) fn list(hands: &Hands, path: &str, limit: u32) -> Result<Outcome, Fault> {
    let reply = hands.ask(Request::List {
        path: ByteBuf::from(path.as_bytes()),
        max_entries: limit,
    })?;
    let Reply::List { entries, more } = reply else {
        return Err(unexpected(&reply));
    };
    let mut text = String::new();
    for entry in &entries {
        let name = readable(&entry.name).replace('\n', "\\n");
        match entry.stat.kind {
            FileKind::Directory => {
                let _ = writeln!(text, "{name}/");
            }
            FileKind::File => {
                let _ = writeln!(text, "{name}  {} bytes", entry.stat.size);
            }
            FileKind::Symlink => {
                let _ = writeln!(text, "{name}  -> link");
            }
            kind => {
                let _ = writeln!(text, "{name}  {kind:?}");
            }
        }
    }
    if entries.is_empty() {
        text.push_str("[the directory is empty]");
    }
    if more > 0 {
        let _ = write!(
            text,
            "[{more} more entries; ask with a larger limit, or use Glob]"
        );
    }
    Ok(Outcome::ok(
        text,
        json!({ "path": path, "entries": entries.len(), "more": more }),
    ))
}
