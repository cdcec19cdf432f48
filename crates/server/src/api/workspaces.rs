//! Workspaces as archives: uploads of users, and downloads of sessions' workspaces.

use super::auth::Shared;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::{blocking, on_session, stream};
use crate::store::{Scope, Upload};
use crate::work::{App, UploadRefusal};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use glovebox_session::host::now_unix_ms;
use glovebox_workspace::archive::{ArchiveError, pack_gzip};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;

/// A workspace that was uploaded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadView {
    /// What a task calls it: `"workspace": {"upload": ID}`.
    id: String,
    /// Whose it is.
    user: String,
    files: u64,
    directories: u64,
    /// Symbolic links.
    links: u64,
    /// Of all files.
    bytes: u64,
    /// When it came, in milliseconds since 1970.
    created_unix_ms: u64,
    /// When it goes if nobody uses it until then; null for never.
    expires_unix_ms: Option<u64>,
}

impl UploadView {
    fn new(app: &App, upload: Upload) -> Self {
        let ttl_ms = u64::try_from(app.config.uploads.ttl.as_millis()).ok();
        Self {
            expires_unix_ms: ttl_ms.and_then(|ttl| upload.used_unix_ms.checked_add(ttl)),
            id: upload.id,
            user: upload.user,
            files: upload.files,
            directories: upload.directories,
            links: upload.links,
            bytes: upload.bytes,
            created_unix_ms: upload.created_unix_ms,
        }
    }
}

/// Uploaded workspaces.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadList {
    /// The newest first.
    workspaces: Vec<UploadView>,
}

impl From<UploadRefusal> for ApiError {
    fn from(refusal: UploadRefusal) -> Self {
        match refusal {
            UploadRefusal::Quota(fault) => Self::from(fault).with_code("upload-quota"),
            UploadRefusal::Archive(error) => {
                let refused = match &error {
                    ArchiveError::Refused { problem, path } => Some((problem.code(), path.clone())),
                    ArchiveError::Failed(_) => None,
                };
                let answer = Self::from(error.into_fault());
                match refused {
                    Some((code, Some(path))) => {
                        answer.with_code(code).with_details(json!({ "path": path }))
                    }
                    Some((code, None)) => answer.with_code(code),
                    None => answer,
                }
            }
        }
    }
}

/// Upload a workspace: a tar archive, plain or gzipped, as the body.
#[utoipa::path(
    put, path = "/api/workspaces", tag = "workspaces", operation_id = "workspaces_put",
    request_body(content((Vec<u8> = "application/x-tar"), (Vec<u8> = "application/gzip"))),
    responses((status = 201, description = "It is unpacked", body = UploadView),
        (status = "4XX", description = "Refused, or not an archive that is taken", body = ErrorBody),
        (status = 507, description = "There is no room on the disk", body = ErrorBody))
)]
pub(super) async fn put(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> ApiResult<(StatusCode, Json<UploadView>)> {
    principal.require(Scope::Run)?;
    let app = Arc::clone(&shared.app);
    let received = blocking(move || -> ApiResult<UploadView> {
        let body = request.into_body();
        // A client that is still sending does not read an error response: the body is drained
        // first.
        let incoming = match app.begin_upload(&principal.name) {
            Ok(incoming) => incoming,
            Err(fault) => {
                stream::discard(stream::reader(body, u64::MAX));
                return Err(fault.into());
            }
        };
        let mut archive = stream::reader(body, incoming.max_archive_bytes());
        let received = incoming.receive(&mut archive);
        if received.is_err() {
            stream::discard(archive);
        }
        Ok(UploadView::new(&app, received?))
    });
    Ok((StatusCode::CREATED, Json(received.await??)))
}

/// Your uploaded workspaces; all of them for an administrator.
#[utoipa::path(
    get, path = "/api/workspaces", tag = "workspaces", operation_id = "workspaces_list",
    responses((status = 200, description = "The newest first", body = UploadList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<UploadList>> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let listed = blocking(move || -> ApiResult<UploadList> {
        let uploads = app.owners.uploads()?.into_iter();
        let seen = uploads.filter(|upload| principal.sees(&upload.user));
        let workspaces = seen.map(|upload| UploadView::new(&app, upload)).collect();
        Ok(UploadList { workspaces })
    });
    Ok(Json(listed.await??))
}

/// Remove an uploaded workspace that no session works over.
#[utoipa::path(
    delete, path = "/api/workspaces/{id}", tag = "workspaces", operation_id = "workspaces_delete", params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "It is gone"),
        (status = 409, description = "A session works over it", body = ErrorBody),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    principal.require(Scope::Run)?;
    let app = Arc::clone(&shared.app);
    let removed = blocking(move || -> ApiResult<()> {
        let found = app.owners.upload(&id)?;
        if found.is_none_or(|upload| !principal.sees(&upload.user)) {
            return Err(ApiError::not_found("uploaded workspace", &id));
        }
        Ok(app.remove_upload(&id)?)
    });
    removed.await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Response header with the number of paths that the archive leaves out: special files and links
/// that lead out of the workspace.
const LEFT_OUT: &str = "glovebox-left-out";

/// All files of a session's workspace as they are now, as a gzipped tar archive.
#[utoipa::path(
    get, path = "/api/sessions/{id}/workspace", tag = "workspaces", operation_id = "workspaces_download", params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "The archive", content((Vec<u8> = "application/gzip")),
            headers(("glovebox-left-out" = u64, description = "How many special files, unreadable files and links that lead out are not in it"))),
        (status = 413, description = "There is more than is packed", body = ErrorBody),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn download(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let user = principal.name.clone();
    let file_name = format!("attachment; filename=\"{id}.tar.gz\"");
    let collected = on_session(&shared, principal, id, Scope::Read, move |app, id| {
        let place = app.take_transfer_place(&user)?;
        Ok((app.collect_workspace(id)?, place))
    });
    let (collected, place) = collected.await?;
    let left_out = collected.set.refused.len();
    let (mut writer, body) = stream::writer();
    tokio::task::spawn_blocking(move || {
        let _place = place;
        // After an error, `finish` is not called, so the client sees that the archive is
        // incomplete.
        if pack_gzip(&collected, now_unix_ms() / 1000, &mut writer).is_ok() {
            let _ = writer.finish();
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/gzip".to_owned()),
        (CONTENT_DISPOSITION, file_name),
        (HeaderName::from_static(LEFT_OUT), left_out.to_string()),
    ];
    Ok((headers, body).into_response())
}
