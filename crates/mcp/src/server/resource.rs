//! Resources that a client can read without a tool: the changes of its sandbox as a patch, and the
//! logs of commands.

use super::Session;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::limits::MAX_LOG_READ_BYTES;
use glovebox_proto::{Code, Fault, JobId, Reply, Request};
use glovebox_tools::ToolSession;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

const CHANGES: &str = "glovebox://changes";
const JOBS: &str = "glovebox://jobs/";
/// Maximum size of one resource, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of jobs that are listed.
const MAX_JOBS: usize = 200;

pub(super) fn list(tools: &ToolSession) -> Result<Vec<Resource>, Fault> {
    let mut found = vec![
        Resource::new(CHANGES, "changes")
            .with_title("Changes")
            .with_description(
                "What was changed in the sandbox's workspace, as a patch for `git apply`",
            )
            .with_mime_type("text/x-diff"),
    ];
    // Newest first, as they are the most likely to be wanted.
    for job in tools.sandbox().jobs()?.iter().rev().take(MAX_JOBS) {
        found.push(
            Resource::new(format!("{JOBS}{}", job.job), format!("job {}", job.job))
                .with_title(format!("Output of job {}", job.job))
                .with_mime_type("text/plain"),
        );
    }
    Ok(found)
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{JOBS}{{id}}"), "job")
            .with_title("Output of a job")
            .with_description(
                "What a command has written so far; the last 4 MiB when there is more",
            )
            .with_mime_type("text/plain"),
    ]
}

pub(super) fn read(session: &dyn Session, uri: &str) -> Result<ReadResourceResult, Fault> {
    let (bytes, mime) = if uri == CHANGES {
        (session.changes(MAX_BYTES)?, "text/x-diff")
    } else if let Some(id) = uri.strip_prefix(JOBS).and_then(|id| id.parse().ok()) {
        (log(session.tools(), JobId(id))?, "text/plain")
    } else {
        return Err(Fault::failed(
            Code::NotFound,
            format!("there is no resource {}", uri.escape_debug()),
        ));
    };
    let contents = match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
    };
    Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime)]))
}

/// Reads the log of a job, or its last part if it exceeds [`MAX_BYTES`].
fn log(tools: &ToolSession, job: JobId) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut offset = 0;
    loop {
        let reply = tools.sandbox().call(Request::JobRead {
            job,
            offset,
            max_bytes: MAX_LOG_READ_BYTES,
            wait_ms: 0,
        })?;
        let Reply::Log {
            chunks,
            next,
            total,
            ..
        } = reply
        else {
            return Err(Fault::lost(
                Code::Protocol,
                "the guest answered something else than a log",
            ));
        };
        // Skips to the last part in one step.
        let start = total.saturating_sub(MAX_BYTES as u64);
        if offset < start {
            offset = start;
            continue;
        }
        let before = bytes.len();
        for chunk in chunks {
            bytes.extend_from_slice(&chunk.bytes);
        }
        // TRUST: the guest decides how much it sends.
        if bytes.len() == before || bytes.len() >= MAX_BYTES || next >= total {
            bytes.truncate(MAX_BYTES);
            return Ok(bytes);
        }
        offset = next;
    }
}
