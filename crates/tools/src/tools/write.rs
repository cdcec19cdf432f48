//! Write: a whole file.

use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::{Outcome, View};
use glovebox_proto::{Code, Fault, WriteMode, visible};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use similar::{Algorithm, TextDiff};
use std::time::Duration;

/// Largest file that is compared before it is overwritten, in bytes.
const MAX_COMPARED_BYTES: u64 = 32 << 20;
/// Largest file whose change is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 1 << 20;
/// What finding the change may take.
const DIFF_TIME: Duration = Duration::from_millis(200);

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
        now, or `overwrite` be true. For changes in a file use Edit.";
    const EFFECT: Effect = Effect::Writes;
    const IS_IDEMPOTENT: bool = true;

    fn run(self, call: &Call<'_>) -> Result<Outcome, Fault> {
        let content = self.content.as_bytes();
        let there = self.there(call)?;
        let mode = match &there {
            // What appears meanwhile was not read either.
            There::Nothing => WriteMode::CreateNew,
            There::Text(_) | There::Unknown => WriteMode::Replace,
        };
        let is_new = match call.write(&self.path, mode, 0o644, content) {
            Err(fault) if fault.code == Code::AlreadyExists && mode == WriteMode::CreateNew => {
                return Err(self.unseen());
            }
            written => written?,
        };
        call.hands.ledger.note(&self.path, blake3::hash(content));
        let (bytes, lines) = (content.len(), self.content.lines().count());
        let word = if is_new { "written anew" } else { "replaced" };
        let path = visible::line_of_text(&self.path);
        let outcome = Outcome::ok(
            format!("[{path} {word}: {lines} lines, {bytes} bytes]"),
            json!({ "path": self.path, "is_new": is_new, "bytes": bytes }),
        );
        Ok(match there {
            There::Nothing => outcome.with_view(change("", &self.content)),
            There::Text(old) => outcome.with_view(change(&old, &self.content)),
            There::Unknown => outcome,
        })
    }
}

/// What stands where a file is to be written.
enum There {
    Nothing,
    /// Text that may be replaced.
    Text(String),
    /// Something else that may be replaced.
    Unknown,
}

impl Write {
    fn there(&self, call: &Call<'_>) -> Result<There, Fault> {
        let (there, size) = match call.read(&self.path, MAX_COMPARED_BYTES) {
            Ok(there) => there,
            Err(fault) if fault.code == Code::NotFound && !self.overwrite => {
                return Ok(There::Nothing);
            }
            // What is wrong is told by the writing itself.
            Err(_) if self.overwrite => return Ok(There::Unknown),
            Err(fault) => return Err(fault),
        };
        let is_whole = size == there.len() as u64;
        let is_known = self.overwrite
            || is_whole
                && (there.is_empty()
                    || there == self.content.as_bytes()
                    || call.hands.ledger.has_seen(&self.path, blake3::hash(&there)));
        if !is_known {
            return Err(self.unseen());
        }
        let text = is_whole.then(|| String::from_utf8(there).ok()).flatten();
        Ok(text.map_or(There::Unknown, There::Text))
    }

    fn unseen(&self) -> Fault {
        Fault::refused(
            Code::UnseenContent,
            format!(
                "{} exists with content that was not read in full since it last changed",
                visible::line_of_text(&self.path)
            ),
        )
        .remedy("read it first, or change a part of it with Edit, or set `overwrite` to true")
    }
}

/// The change, unless it is too large to be worth showing.
fn change(old: &str, new: &str) -> View {
    if old.len() > MAX_SHOWN_BYTES || new.len() > MAX_SHOWN_BYTES {
        return View::Text;
    }
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIME)
        .diff_lines(old, new)
        .unified_diff()
        .to_string();
    View::Diff(visible::lines(diff.as_bytes()))
}
