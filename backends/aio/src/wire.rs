//! Requests and responses of the endpoints that are used. Unknown fields of responses are ignored.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Envelope of nearly every response.
#[derive(Debug, Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(default = "default_success")]
    pub(crate) success: bool,
    pub(crate) message: Option<String>,
    #[serde(borrow)]
    pub(crate) data: Option<&'a RawValue>,
}

fn default_success() -> bool {
    true
}

/// `POST /v1/bash/exec`.
#[derive(Debug, Serialize)]
pub(crate) struct Exec<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) command: &'a str,
    pub(crate) async_mode: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hard_timeout: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ExecResult {
    pub(crate) command_id: String,
    pub(crate) status: String,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) exit_code: Option<i64>,
}

/// `POST /v1/bash/output`.
#[derive(Debug, Serialize)]
pub(crate) struct ReadOutput<'a> {
    pub(crate) session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command_id: Option<&'a str>,
    pub(crate) offset: u64,
    pub(crate) stderr_offset: u64,
    pub(crate) wait: bool,
    pub(crate) wait_timeout: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Output {
    #[serde(default)]
    pub(crate) stdout: String,
    #[serde(default)]
    pub(crate) stderr: String,
    pub(crate) offset: u64,
    #[serde(default)]
    pub(crate) stderr_offset: u64,
    pub(crate) command: Option<CommandInfo>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CommandInfo {
    pub(crate) command_id: String,
    pub(crate) status: String,
    pub(crate) exit_code: Option<i64>,
}

impl CommandInfo {
    pub(crate) fn is_running(&self) -> bool {
        is_running(&self.status)
    }
}

/// Returns true if a command with this status has not ended.
pub(crate) fn is_running(status: &str) -> bool {
    matches!(status, "pending" | "running")
}

/// `POST /v1/bash/write`.
#[derive(Debug, Serialize)]
pub(crate) struct WriteInput<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) command_id: &'a str,
    pub(crate) input: &'a str,
}

/// `POST /v1/bash/kill`.
#[derive(Debug, Serialize)]
pub(crate) struct Kill<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) signal: &'a str,
}

/// Entry of `GET /v1/bash/sessions`.
#[derive(Debug, Deserialize)]
pub(crate) struct SessionInfo {
    pub(crate) session_id: String,
}

/// `POST /v1/file/write`.
#[derive(Debug, Serialize)]
pub(crate) struct FileWrite<'a> {
    pub(crate) file: &'a str,
    pub(crate) content: &'a str,
    pub(crate) encoding: &'a str,
    pub(crate) append: bool,
}

/// Response of `GET /v1/sandbox`, whose fields are next to `success`.
#[derive(Debug, Deserialize)]
pub(crate) struct Sandbox {
    #[serde(default = "default_success")]
    pub(crate) success: bool,
    pub(crate) message: Option<String>,
    pub(crate) home_dir: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Detail {
    #[serde(default)]
    pub(crate) system: System,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct System {
    pub(crate) os: String,
    pub(crate) os_version: String,
    pub(crate) arch: String,
    pub(crate) user: String,
}
