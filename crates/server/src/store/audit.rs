//! Who did what, when, and what was decided: one JSON line each, appended and never changed.
//!
//! No content: neither words of a task nor of a file. A task is told by its digest.

use glovebox_proto::{Code, Fault};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What was decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// It was done, or failed honestly.
    Allowed,
    /// It was refused.
    Refused,
}

#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    user: &'a str,
    action: &'a str,
    object: Option<&'a str>,
    decision: Decision,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Audit {
    file: File,
}

/// One entry, without its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditEntry<'a> {
    pub user: &'a str,
    /// Method and route.
    pub action: &'a str,
    /// The session or sandbox.
    pub object: Option<&'a str>,
    pub decision: Decision,
    pub status: u16,
    /// Of the body.
    pub digest: Option<blake3::Hash>,
}

impl Audit {
    pub(crate) fn open(dir: &Path) -> Result<Self, Fault> {
        let path = dir.join("audit.jsonl");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|error| {
            Fault::failed(Code::Io, format!("cannot open {}: {error}", path.display()))
        })?;
        Ok(Self { file })
    }

    /// Appends one line.
    pub(crate) fn write(&self, entry: &AuditEntry<'_>, now_unix_ms: u64) -> Result<(), Fault> {
        let line = Line {
            at_unix_ms: now_unix_ms,
            user: entry.user,
            action: entry.action,
            object: entry.object,
            decision: entry.decision,
            status: entry.status,
            digest: entry.digest.map(|digest| digest.to_hex().to_string()),
        };
        let written = serde_json::to_vec(&line)
            .map_err(std::io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                // One call, so that lines of several threads stay whole.
                (&self.file).write_all(&bytes)
            });
        written.map_err(|error| {
            Fault::failed(
                Code::Io,
                format!("the audit log cannot be written: {error}"),
            )
        })
    }
}
