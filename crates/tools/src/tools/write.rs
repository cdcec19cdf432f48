//! Write: a whole file.

use crate::Outcome;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use glovebox_proto::{Code, Fault, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Largest file that is compared before it is overwritten, in bytes.
const MAX_COMPARED_BYTES: u64 = 32 << 20;

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
        if !self.overwrite {
            self.check_seen(call)?;
        }
        let content = self.content.as_bytes();
        let is_new = call.write(&self.path, WriteMode::Replace, content)?;
        call.hands
            .ledger
            .note(&self.path, blake3::hash(self.content.as_bytes()));
        let (bytes, lines) = (self.content.len(), self.content.lines().count());
        let word = if is_new { "written anew" } else { "replaced" };
        Ok(Outcome::ok(
            format!("[{} {word}: {lines} lines, {bytes} bytes]", self.path),
            json!({ "path": self.path, "is_new": is_new, "bytes": bytes }),
        ))
    }
}

impl Write {
    fn check_seen(&self, call: &Call<'_>) -> Result<(), Fault> {
        let (there, size) = match call.read(&self.path, MAX_COMPARED_BYTES) {
            Ok(there) => there,
            Err(fault) if fault.code == Code::NotFound => return Ok(()),
            Err(fault) => return Err(fault),
        };
        // Too large to have been read in full.
        if size > there.len() as u64 {
            return Err(self.unseen());
        }
        let is_known = there.is_empty()
            || there == self.content.as_bytes()
            || call.hands.ledger.has_seen(&self.path, blake3::hash(&there));
        if is_known { Ok(()) } else { Err(self.unseen()) }
    }

    fn unseen(&self) -> Fault {
        Fault::refused(
            Code::UnseenContent,
            format!(
                "{} exists with content that was not read in full since it last changed",
                self.path
            ),
        )
        .remedy("read it first, or change a part of it with Edit, or set `overwrite` to true")
    }
}
