//! Write: writes a whole file.

use crate::call::{Call, unexpected};
use crate::catalog::{Advice, Effect, Tool};
use crate::hint::{Hint, with_hint};
use crate::{FileChange, OutcomeView, ToolOutcome};
use glovebox_proto::limits::MAX_OLD_BYTES;
use glovebox_proto::{Code, Fault, OldContent, Reply, WriteMode, WritePrecondition, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    /// The file, absolute or relative to the workspace. Missing directories are made.
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    path: String,
    /// All of its content.
    #[serde(alias = "contents", alias = "text")]
    content: String,
    /// Replace an existing file even if its content was not read before.
    #[serde(default)]
    overwrite: bool,
}

impl Tool for Write {
    const NAME: &'static str = "Write";
    const ALIASES: &'static [&'static str] = &["file_write", "write_file", "create_file"];
    const DESCRIPTION: &'static str = "Writes a whole file, new or in place of an old one, in one step: \
        others see the old content or the new. An existing file must have been read in full as it is \
        now, or `overwrite` be true.";
    const ADVICE: &'static [Advice] = &[Advice {
        tool: "Edit",
        sentence: "For changes in a file use Edit.",
    }];
    const EFFECT: Effect = Effect::Writes;
    const IS_IDEMPOTENT: bool = true;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let content = self.content.as_bytes();
        let known = if self.overwrite {
            WritePrecondition::Anything
        } else {
            let seen = call.session.ledger.seen(&self.path);
            seen.map_or(WritePrecondition::Nothing, |digest| {
                WritePrecondition::Digest(digest.into())
            })
        };
        let mode = WriteMode::ReplaceKnown(known);
        let writing = call.begin_write(&self.path, mode, 0o644, content)?;
        // Hashed here, while the guest writes.
        let digest = blake3::hash(content);
        let (bytes, lines) = (content.len(), count_lines(content));
        let old = match call.written(writing) {
            Ok(Reply::WrittenOver { old, .. }) => old,
            Ok(other) => return Err(unexpected(&other)),
            Err(fault) if fault.code == Code::UnseenContent => return Err(self.unseen(call)),
            Err(fault) => return Err(fault),
        };
        call.session.ledger.note(&self.path, digest);
        let is_new = old == OldContent::Nothing;
        let word = if is_new { "written anew" } else { "replaced" };
        let path = visible::line_of_text(&self.path);
        let outcome = ToolOutcome::ok(
            format!("[{path} {word}: {lines} lines, {bytes} bytes]"),
            json!({ "path": self.path, "is_new": is_new, "bytes": bytes }),
        );
        Ok(match change(old, self.content) {
            Some(change) => outcome.with_view(OutcomeView::Change(change)),
            None => outcome,
        })
    }
}

impl Write {
    fn unseen(&self, call: &Call<'_>) -> Fault {
        let hint = call.hint([
            Hint::new(
                &["Edit"],
                "read it first, or change a part of it with Edit, or set `overwrite` to true",
            ),
            Hint::new(&[], "read it first, or set `overwrite` to true"),
        ]);
        let fault = Fault::refused(
            Code::UnseenContent,
            format!(
                "{} exists with content that was not read in full since it last changed",
                visible::line_of_text(&self.path)
            ),
        );
        with_hint(fault, hint)
    }
}

fn count_lines(content: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', content).count();
    let has_rest = content.last().is_some_and(|last| *last != b'\n');
    ends + usize::from(has_rest)
}

/// Returns the change, unless it is too large to be shown or not text.
fn change(old: OldContent, new: String) -> Option<FileChange> {
    let old = match old {
        OldContent::Nothing => String::new(),
        OldContent::Content(old) => String::from_utf8(old.into_vec()).ok()?,
        OldContent::Unshown => return None,
    };
    let is_small = old.len() as u64 <= MAX_OLD_BYTES && new.len() as u64 <= MAX_OLD_BYTES;
    is_small.then(|| FileChange::between(old, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_they_are_read() {
        for text in ["", "a", "a\n", "a\nb", "\n", "\n\n", "a\r\nb\r\n", "\r"] {
            assert_eq!(
                count_lines(text.as_bytes()),
                text.lines().count(),
                "{text:?}"
            );
        }
    }
}
