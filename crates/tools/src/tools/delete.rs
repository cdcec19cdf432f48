//! Delete: deletes a file, a link or an empty directory, for toolsets without commands.
//!
//! Never deletes a directory with entries: rules match paths, and a rule about a file would not see
//! that its directory is deleted.

use crate::ToolOutcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::hint::{Hint, with_hint};
use glovebox_proto::{Code, Fault, FileKind, Reply, Request, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delete {
    /// The file, link or empty directory, absolute or relative to the workspace.
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    path: String,
}

impl Tool for Delete {
    const NAME: &'static str = "Delete";
    const ALIASES: &'static [&'static str] = &["delete_file", "remove", "remove_file", "rm"];
    const DESCRIPTION: &'static str = "Deletes a file, a link or an empty directory; of a link, never what it \
        leads to.";
    const EFFECT: Effect = Effect::Writes;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let path = ByteBuf::from(self.path.as_bytes());
        let reply = call.ask(Request::Stat {
            path: path.clone(),
            follow: false,
        })?;
        let Reply::Stat(stat) = reply else {
            return Err(unexpected(&reply));
        };
        match call.ask(Request::Remove {
            path,
            recursive: false,
        }) {
            Ok(Reply::Done) => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(fault) if fault.code == Code::NotEmpty => return Err(not_empty(fault, call)),
            Err(fault) => return Err(fault),
        }
        let (kind, size) = match stat.kind {
            FileKind::File => ("file", format!(" of {} bytes", stat.size)),
            FileKind::Directory => ("empty directory", String::new()),
            FileKind::Symlink => ("link", String::new()),
            _ => ("special file", String::new()),
        };
        let path = visible::line_of_text(&self.path);
        Ok(ToolOutcome::ok(
            format!("[{path} deleted: {kind}{size}]"),
            json!({ "path": self.path, "kind": kind }),
        ))
    }
}

fn not_empty(fault: Fault, call: &Call<'_>) -> Fault {
    let hint = call.hint([
        Hint::new(
            &["Bash"],
            "delete what is in it first, or use `rm -r` through Bash",
        ),
        Hint::new(
            &["List"],
            "see what is in it with List and delete that first",
        ),
        Hint::new(&[], "delete what is in it first"),
    ]);
    with_hint(fault, hint)
}
