//! `/v1/file/upload` and `/v1/file/write`.

use super::envelope::{Strict, failure, status, success, unprocessable};
use super::{SharedService, envelope};
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Error, ErrorKind};
use std::path::Path;
use tokio::io::AsyncWriteExt as _;

/// Takes the parts `path` and `file` in any order.
pub(super) async fn upload_file(
    State(service): State<SharedService>,
    mut parts: Multipart,
) -> Response {
    let (mut path, mut content): (Option<String>, Option<Bytes>) = (None, None);
    loop {
        let part = match parts.next_field().await {
            Ok(Some(part)) => part,
            Ok(None) => break,
            Err(error) => return error.into_response(),
        };
        let name = part.name().unwrap_or_default().to_owned();
        let Ok(bytes) = part.bytes().await else {
            return status(
                StatusCode::BAD_REQUEST,
                "There was an error parsing the body",
            );
        };
        match name.as_str() {
            "path" if path.is_none() => path = Some(String::from_utf8_lossy(&bytes).into_owned()),
            "file" if content.is_none() => content = Some(bytes),
            name => {
                service
                    .journal
                    .note(format!("/v1/file/upload: unexpected part {name:?}"));
                return unprocessable(&["body", name], "unexpected part");
            }
        }
    }
    let Some(content) = content else {
        return unprocessable(&["body", "file"], "Field required");
    };
    if service
        .upload_limit
        .is_some_and(|limit| content.len() > limit)
    {
        return status(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    }
    let path = path.unwrap_or_else(|| service.dir.join("upload").to_string_lossy().into_owned());
    match write(Path::new(&path), &content, false).await {
        Ok(()) => {
            success(&json!({ "file_path": path, "file_size": content.len(), "success": true }))
        }
        Err(error) => {
            let mut data = operation_error(&path, "upload", &error);
            data["file_path"] = json!(path);
            data["file_size"] = json!(0);
            data["success"] = json!(false);
            failure(&error.to_string(), &data)
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWrite {
    file: String,
    content: String,
    encoding: Option<String>,
    append: Option<bool>,
    leading_newline: Option<bool>,
    trailing_newline: Option<bool>,
    sudo: Option<bool>,
}

pub(super) async fn write_file(Strict(request): Strict<FileWrite>) -> Response {
    let path = request.file;
    let refused = |kind: ErrorKind, message: &str| {
        let error = Error::new(kind, message.to_owned());
        let mut data = operation_error(&path, "write", &error);
        data["file"] = json!(path);
        failure(message, &data)
    };
    if request.sudo == Some(true) {
        return refused(ErrorKind::PermissionDenied, "sudo is not available");
    }
    let mut content = match request.encoding.as_deref().unwrap_or("utf-8") {
        "utf-8" => request.content.into_bytes(),
        "base64" => match STANDARD.decode(request.content) {
            Ok(content) => content,
            Err(error) => return refused(ErrorKind::InvalidData, &error.to_string()),
        },
        "raw" => match request.content.chars().map(u8::try_from).collect() {
            Ok(content) => content,
            Err(_) => return refused(ErrorKind::InvalidData, "not latin-1"),
        },
        _ => {
            let message = "Input should be 'utf-8', 'base64' or 'raw'";
            return envelope::unprocessable(&["body", "encoding"], message);
        }
    };
    if request.leading_newline == Some(true) {
        content.insert(0, b'\n');
    }
    if request.trailing_newline == Some(true) {
        content.push(b'\n');
    }
    match write(Path::new(&path), &content, request.append == Some(true)).await {
        Ok(()) => success(&json!({ "file": path, "bytes_written": content.len() })),
        Err(error) => refused(error.kind(), &error.to_string()),
    }
}

async fn write(path: &Path, content: &[u8], append: bool) -> Result<(), Error> {
    if !path.is_absolute() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the path is not absolute",
        ));
    }
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    let mut options = tokio::fs::OpenOptions::new();
    options
        .write(true)
        .create(true)
        .append(append)
        .truncate(!append);
    let mut file = options.open(path).await?;
    file.write_all(content).await?;
    file.flush().await
}

/// The description of a failure, with the fields that published clients demand of every answer.
fn operation_error(path: &str, operation: &str, error: &Error) -> Value {
    let kind = match error.kind() {
        ErrorKind::NotFound => "not_found",
        ErrorKind::PermissionDenied => "permission_denied",
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => "invalid_target",
        ErrorKind::AlreadyExists => "already_exists",
        ErrorKind::InvalidInput => "invalid_path",
        ErrorKind::ReadOnlyFilesystem => "read_only_filesystem",
        ErrorKind::StorageFull => "no_space_left",
        ErrorKind::InvalidData => "decode_error",
        _ => "io_error",
    };
    json!({
        "path": path,
        "operation": operation,
        "message": error.to_string(),
        "error_type": kind,
        "retryable": false,
        "errno": error.raw_os_error(),
        "errno_name": null,
        "exception_type": null,
    })
}
