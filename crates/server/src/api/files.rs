//! Files of a session's sandbox: content as bytes, directories as lists.

use super::auth::Shared;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::on_session;
use super::principal::Principal;
use crate::store::Scope;
use crate::work::{FileAnswer, FileEntry};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde::Serialize;
use utoipa::ToSchema;

/// A directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DirectoryView {
    /// Its entries, sorted by name.
    entries: Vec<FileEntry>,
    /// Whether there are more than are listed.
    is_cut: bool,
}

/// The workspace of a session, as a list of its entries.
#[utoipa::path(
    get, path = "/api/sessions/{id}/files", tag = "changes", operation_id = "files_list",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "Its entries", body = DirectoryView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn list(
    shared: State<Shared>,
    principal: Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    read(shared, principal, Path((id, ".".to_owned()))).await
}

/// A file of the workspace as bytes, or a directory as a list.
#[utoipa::path(
    get, path = "/api/sessions/{id}/files/{path}", tag = "changes", operation_id = "files_read",
    params(("id" = String, Path, description = "Its name"),
        ("path" = String, Path, description = "A path in the workspace; slashes stay as they are")),
    responses((status = 200, description = "The bytes of a file, or the entries of a directory",
            content((Vec<u8> = "application/octet-stream"), (DirectoryView = "application/json"))),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn read(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path((id, path)): Path<(String, String)>,
) -> ApiResult<Response> {
    if path.contains('\0') {
        return Err(ApiError::invalid("the path has a NUL byte", "leave it out"));
    }
    let found = on_session(&shared, principal, id, Scope::Read, move |app, id| {
        Ok(app.read_path(id, &path)?)
    });
    Ok(match found.await? {
        FileAnswer::Directory { entries, is_cut } => {
            Json(DirectoryView { entries, is_cut }).into_response()
        }
        // TRUST: the sandbox wrote these bytes; they must never render as a page of this server.
        FileAnswer::File(bytes) => (
            [
                (CONTENT_TYPE, "application/octet-stream"),
                (CONTENT_DISPOSITION, "attachment"),
                (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
            ],
            bytes,
        )
            .into_response(),
    })
}
