//! Edit: replaces texts in a file.

mod notebook;

use super::read::{MAX_NOTEBOOK_BYTES, is_notebook};
use crate::call::{Call, unexpected};
use crate::catalog::{Effect, Tool};
use crate::cut::readable;
use crate::{FileChange, OutcomeView, ToolOutcome};
use glovebox_proto::{Code, Fault, MatchKind, Replacement, Reply, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::json;
use std::fmt::Write as _;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The file, absolute or relative to the workspace.
    #[serde(alias = "file_path", alias = "file", alias = "filename")]
    path: String,
    /// The text that is there, as it stands in the file; enough of it to stand in one place only.
    #[serde(default, alias = "old_string", alias = "old_text")]
    old: Option<String>,
    /// The text that takes its place.
    #[serde(default, alias = "new_string", alias = "new_text")]
    new: Option<String>,
    /// Replace it wherever it stands.
    #[serde(default, alias = "replace_all")]
    all: bool,
    /// Several replacements at once, each in the result of the one before: all are made, or none.
    #[serde(default)]
    edits: Vec<ReplacementArgument>,
}

/// One of several replacements.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplacementArgument {
    /// The text that is there.
    #[serde(alias = "old_string", alias = "old_text")]
    old: String,
    /// The text that takes its place.
    #[serde(alias = "new_string", alias = "new_text")]
    new: String,
    /// Replace it wherever it stands.
    #[serde(default, alias = "replace_all")]
    all: bool,
}

impl Tool for Edit {
    const NAME: &'static str = "Edit";
    const ALIASES: &'static [&'static str] = &["file_edit", "edit_file", "str_replace"];
    const DESCRIPTION: &'static str = "Replaces text in a file. The old text must stand in exactly one \
        place unless `all` is true. White space at line ends and indentation may differ; how it was \
        found is then said. The source of a Jupyter notebook's cell is edited as text, not as \
        JSON. Returns the change as a small diff.";
    const EFFECT: Effect = Effect::Writes;

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let path = self.path.clone();
        let mut replacements = self.replacements()?;
        if is_notebook(&path) {
            let (file, size) = call.read(&path, MAX_NOTEBOOK_BYTES)?;
            if size == file.len() as u64
                && let Some(in_json) = notebook::in_json(&file, &replacements)?
            {
                replacements = in_json;
            }
        }
        let reply = call.ask(Request::Edit {
            path: ByteBuf::from(path.as_bytes()),
            replacements,
        })?;
        let Reply::Edited(edited) = reply else {
            return Err(unexpected(&reply));
        };
        // If the conversation knew all of the file before, it knows all of it after its own edit.
        let [before, after] = [edited.before, edited.after].map(blake3::Hash::from_bytes);
        if call.session.ledger.has_seen(&path, before) {
            call.session.ledger.note(&path, after);
        }
        let mut text = String::new();
        for made in &edited.made {
            let how = match made.how {
                MatchKind::Exact => continue,
                MatchKind::LineEndings => "with the file's line endings",
                MatchKind::TrailingSpace => "with other white space at line ends",
                MatchKind::Indentation => {
                    "with another indentation, which the new text was given too"
                }
            };
            let _ = writeln!(text, "[the old text was found {how}]");
        }
        let diff = readable(&edited.diff);
        text.push_str(&diff);
        if edited.is_diff_cut {
            text.push_str("[the diff is longer than this]\n");
        }
        let places: u32 = edited.made.iter().map(|made| made.places).sum();
        Ok(ToolOutcome::ok(
            text,
            json!({ "path": path, "places": places, "bytes": edited.size }),
        )
        .with_view(OutcomeView::Change(FileChange::found(diff))))
    }
}

impl Edit {
    fn replacements(self) -> Result<Vec<Replacement>, Fault> {
        let replacement = |old: String, new: String, all| Replacement {
            old: ByteBuf::from(old),
            new: ByteBuf::from(new),
            all,
        };
        let single = match (self.old, self.new) {
            (Some(old), Some(new)) => Some(replacement(old, new, self.all)),
            (None, None) => None,
            _ => {
                return Err(Fault::failed(
                    Code::InvalidArgument,
                    "Edit needs both `old` and `new`",
                ));
            }
        };
        let replacements: Vec<_> = single
            .into_iter()
            .chain(
                self.edits
                    .into_iter()
                    .map(|one| replacement(one.old, one.new, one.all)),
            )
            .collect();
        if replacements.is_empty() {
            return Err(Fault::failed(
                Code::InvalidArgument,
                "Edit needs `old` and `new`, or `edits`",
            ));
        }
        Ok(replacements)
    }
}
