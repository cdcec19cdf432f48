//! Changes of a session: shown and applied.

use super::auth::Shared;
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::on_session;
use super::principal::Principal;
use super::query::CheckedQuery;
use crate::store::Scope;
use crate::work::{ApplyWish, ConflictChoices, ConflictSide};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// The form of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DiffFormat {
    /// A patch that `git apply` takes.
    #[default]
    Patch,
    /// A list with the lines added and removed in each file, conflicts, and what cannot come back.
    Json,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// `patch`, or `json` for a list.
    #[serde(default)]
    #[param(inline)]
    format: DiffFormat,
}

/// What a session changed, against the files of its project as they are now.
#[utoipa::path(
    get, path = "/api/sessions/{id}/diff", tag = "changes", operation_id = "changes_diff",
    params(("id" = String, Path, description = "Its name"), DiffQuery),
    responses((status = 200, description = "A patch, or a list; the `ETag` of the patch is the list's `digest`", content((String = "text/x-diff"), (Object = "application/json"))),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn diff(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    CheckedQuery(query): CheckedQuery<DiffQuery>,
) -> ApiResult<Response> {
    let shown = on_session(&shared, principal, id, Scope::Read, move |app, id| {
        Ok(match query.format {
            DiffFormat::Patch => {
                let (patch, digest) = app.patch(id)?;
                let kind = "text/x-diff; charset=utf-8".to_owned();
                let headers = [(CONTENT_TYPE, kind), (ETAG, format!("\"{digest}\""))];
                (headers, patch).into_response()
            }
            DiffFormat::Json => Json(app.changes(id)?).into_response(),
        })
    });
    shown.await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ConflictQuery {
    /// `base`, `project` or `sandbox`.
    #[param(inline)]
    side: ConflictSide,
}

/// One version of a path in conflict, as bytes.
#[utoipa::path(
    get, path = "/api/sessions/{id}/conflicts/{path}", tag = "changes", operation_id = "changes_conflict",
    params(("id" = String, Path, description = "Its name"),
        ("path" = String, Path, description = "A path in conflict; slashes stay as they are"), ConflictQuery),
    responses((status = 200, description = "The bytes of a file, or the target of a link", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "4XX", description = "Refused, not in conflict, or without this version", body = ErrorBody))
)]
pub(super) async fn conflict(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path((id, path)): Path<(String, String)>,
    CheckedQuery(query): CheckedQuery<ConflictQuery>,
) -> ApiResult<Response> {
    let read = on_session(&shared, principal, id, Scope::Read, move |app, id| {
        Ok(app.read_conflict(id, &path, query.side)?)
    });
    // TRUST: the sandbox wrote these bytes; they must never render as a page of this server.
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    ];
    Ok((headers, read.await?).into_response())
}

/// Which changes are taken over, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyRequest {
    /// Only what lies at or below these paths, relative to the workspace; everything without any.
    #[serde(default)]
    paths: Vec<String>,
    /// One decision about all conflicts, or an object with one for each path.
    #[serde(default)]
    conflicts: ConflictChoices,
    /// The `digest` of the list that was looked at. If files have changed since, nothing is applied (409 `changed`).
    digest: Option<String>,
}

/// What was taken over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AppliedView {
    /// Paths that were taken over, conflicts, and what stays in the sandbox.
    #[schema(value_type = Object)]
    outcome: Value,
}

/// Maximum number of paths, and of decisions about conflicts, in one request.
const MAX_PATHS: usize = 10_000;

/// Take changes over into the project, or into the session's own workspace.
#[utoipa::path(
    post, path = "/api/sessions/{id}/apply", tag = "changes", operation_id = "changes_apply", request_body = ApplyRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "What was done", body = AppliedView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn apply(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ApplyRequest>,
) -> ApiResult<Json<AppliedView>> {
    let chosen = match &body.value.conflicts {
        ConflictChoices::ByPath(choices) => choices.len(),
        ConflictChoices::All(_) => 0,
    };
    for (name, count) in [("paths", body.value.paths.len()), ("conflicts", chosen)] {
        if count > MAX_PATHS {
            return Err(ApiError::invalid(
                format!("`{name}` has more than {MAX_PATHS} entries"),
                "name directories",
            ));
        }
    }
    let applied = on_session(&shared, principal, id, Scope::Apply, move |app, id| {
        let ApplyRequest {
            paths,
            conflicts,
            digest,
        } = body.value;
        let wish = ApplyWish {
            paths,
            conflicts,
            digest,
        };
        Ok(app.apply(id, &wish)?)
    });
    Ok(Json(AppliedView {
        outcome: applied.await?,
    }))
}
