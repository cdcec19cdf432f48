//! Move: moves a file or a link, for toolsets without commands.
//!
//! Never moves a directory: rules match paths, and a rule about a file would not see that its
//! directory is moved.

use crate::ToolOutcome;
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::hint::{Hint, with_hint};
use glovebox_proto::{Code, Fault, FileKind, Reply, Request, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;

/// Permissions of created parent directories, before the umask.
const DIRECTORY_PERMISSIONS: u32 = 0o755;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Move {
    /// The file or link, absolute or relative to the workspace.
    #[serde(alias = "source", alias = "path", alias = "old_path")]
    from: String,
    /// Its new path, with its name. Missing directories are made.
    #[serde(alias = "destination", alias = "target", alias = "new_path")]
    to: String,
    /// Replace what is there.
    #[serde(default)]
    overwrite: bool,
}

impl Tool for Move {
    const NAME: &'static str = "Move";
    const ALIASES: &'static [&'static str] = &["move_file", "rename", "rename_file", "mv"];
    const DESCRIPTION: &'static str = "Gives a file or a link another path, in one step. What is there \
        already stays unless `overwrite` is true.";
    const EFFECT: Effect = Effect::Writes;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let from = ByteBuf::from(self.from.as_bytes());
        let to = ByteBuf::from(self.to.as_bytes());
        let reply = call.ask(Request::Stat {
            path: from.clone(),
            follow: false,
        })?;
        let Reply::Stat(stat) = reply else {
            return Err(unexpected(&reply));
        };
        let kind = match stat.kind {
            FileKind::Directory => return Err(self.is_directory(call)),
            FileKind::File => "file",
            FileKind::Symlink => "link",
            _ => "special file",
        };
        if let Some((parent, _)) = self.to.rsplit_once('/')
            && !parent.is_empty()
        {
            call.ask(Request::Mkdir {
                path: ByteBuf::from(parent.as_bytes()),
                permissions: DIRECTORY_PERMISSIONS,
                make_parents: true,
            })?;
        }
        match call.ask(Request::Rename {
            from,
            to,
            replace: self.overwrite,
        }) {
            Ok(Reply::Done) => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(fault) if fault.code == Code::AlreadyExists => return Err(exists(fault)),
            Err(fault) => return Err(fault),
        }
        // The content is unchanged, so a conversation that has seen it may overwrite it under its
        // new name.
        if let Some(digest) = call.session.ledger.seen(&self.from) {
            call.session.ledger.note(&self.to, digest);
        }
        let (from, to) = (
            visible::line_of_text(&self.from),
            visible::line_of_text(&self.to),
        );
        Ok(ToolOutcome::ok(
            format!("[{kind} {from} moved to {to}]"),
            json!({ "from": self.from, "to": self.to, "kind": kind }),
        ))
    }
}

impl Move {
    fn is_directory(&self, call: &Call<'_>) -> Fault {
        let hint = call.hint([
            Hint::new(
                &["Bash"],
                "move its files one by one, or use `mv` through Bash",
            ),
            Hint::new(&[], "move its files one by one"),
        ]);
        let path = visible::line_of_text(&self.from);
        let fault = Fault::refused(Code::IsDirectory, format!("{path} is a directory"));
        with_hint(fault, hint)
    }
}

fn exists(fault: Fault) -> Fault {
    let hint = "choose another name, or set `overwrite` to true";
    with_hint(fault, Some(hint))
}
