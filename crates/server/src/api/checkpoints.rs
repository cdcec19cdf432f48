//! Checkpoints of a session's files: made, listed, restored, and used to begin new sessions.

use super::auth::Shared;
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::on_session;
use super::principal::Principal;
use crate::store::Scope;
use crate::work::held_elsewhere;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Checkpoint;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const MAX_COMMENT_CHARS: usize = 1000;

/// A checkpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointView {
    /// Its name in the session.
    id: String,
    /// When it was made, in milliseconds since 1970.
    created_unix_ms: u64,
    /// What was said about it.
    comment: Option<String>,
    /// The checkpoint that the files stood on then.
    parent: Option<String>,
}

impl From<Checkpoint> for CheckpointView {
    fn from(checkpoint: Checkpoint) -> Self {
        Self {
            id: checkpoint.id,
            created_unix_ms: checkpoint.created_unix_ms,
            comment: checkpoint.comment,
            parent: checkpoint.parent,
        }
    }
}

/// The checkpoints of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckpointList {
    /// The one that the files stand on.
    current: Option<String>,
    /// The oldest first.
    checkpoints: Vec<CheckpointView>,
}

/// The checkpoints of a session.
#[utoipa::path(
    get, path = "/api/sessions/{id}/checkpoints", tag = "checkpoints", operation_id = "checkpoints_list",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "The oldest first", body = CheckpointList),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Json<CheckpointList>> {
    let found = on_session(&shared, principal, id, Scope::Read, |app, id| {
        let name = app.session_sandbox(id)?;
        Ok(app.config.registry.checkpoints(&name)?)
    });
    let found = found.await?;
    Ok(Json(CheckpointList {
        current: found.current,
        checkpoints: found.list.into_iter().map(CheckpointView::from).collect(),
    }))
}

/// What a checkpoint is to be like.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointRequest {
    /// A few words about it.
    comment: Option<String>,
    /// Whether it is made while commands run, as a copy; without it a busy sandbox is refused.
    #[serde(default)]
    live: bool,
}

/// Keep the files of a session as they are now.
#[utoipa::path(
    post, path = "/api/sessions/{id}/checkpoints", tag = "checkpoints", operation_id = "checkpoints_make", request_body = CheckpointRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 201, description = "It is made", body = CheckpointView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn make(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<CheckpointRequest>,
) -> ApiResult<(StatusCode, Json<CheckpointView>)> {
    let CheckpointRequest { comment, live } = body.value;
    if comment
        .as_ref()
        .is_some_and(|text| text.chars().count() > MAX_COMMENT_CHARS)
    {
        return Err(ApiError::invalid(
            format!("`comment` has more than {MAX_COMMENT_CHARS} characters"),
            "say it in fewer words",
        ));
    }
    let made = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        let name = app.session_sandbox(id)?;
        Ok(app
            .config
            .registry
            .checkpoint(&name, comment.as_deref(), live)
            .map_err(held_elsewhere)?)
    });
    Ok((StatusCode::CREATED, Json(made.await?.into())))
}

/// Which checkpoint.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreRequest {
    /// Its name.
    checkpoint_id: String,
}

/// Go back to a checkpoint. What was written since is gone.
#[utoipa::path(
    post, path = "/api/sessions/{id}/restore", tag = "checkpoints", operation_id = "checkpoints_restore", request_body = RestoreRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "The files are as they were then", body = CheckpointView),
        (status = 409, description = "The session works: cancel it first", body = ErrorBody),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn restore(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<RestoreRequest>,
) -> ApiResult<Json<CheckpointView>> {
    let restored = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        if app.live(id).is_some() {
            let fault = Fault::failed(Code::Conflict, "the session works, or waits for its turn");
            return Err(ApiError::from(fault.remedy("cancel it first")));
        }
        let name = app.session_sandbox(id)?;
        // The tool session remembers what callers have read; after the restore those files may
        // differ.
        app.sandboxes.close(&name);
        let checkpoint = &body.value.checkpoint_id;
        let restored = app.config.registry.restore(&name, checkpoint);
        Ok(restored.map_err(held_elsewhere)?)
    });
    Ok(Json(restored.await?.into()))
}

/// Where a new session begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkRequest {
    /// A checkpoint; without one, the files as they are now.
    checkpoint_id: Option<String>,
}

/// A session that was made from another.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkView {
    /// Its name.
    session_id: String,
}

/// Begin a session where this one is: with its words and its files.
#[utoipa::path(
    post, path = "/api/sessions/{id}/fork", tag = "checkpoints", operation_id = "checkpoints_fork", request_body = ForkRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 201, description = "The new session; a message begins its work", body = ForkView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn fork(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ForkRequest>,
) -> ApiResult<(StatusCode, Json<ForkView>)> {
    let user = principal.name.clone();
    let forked = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        Ok(app.fork(&user, id, body.value.checkpoint_id.as_deref())?)
    });
    let session_id = forked.await?;
    Ok((StatusCode::CREATED, Json(ForkView { session_id })))
}
