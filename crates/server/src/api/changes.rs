//! What a session changed: to look at, and to take over.

use super::auth::{Principal, Shared};
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::on_session;
use super::query::CheckedQuery;
use crate::store::Scope;
use crate::work::Conflicts;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::CONTENT_TYPE;
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
pub(super) struct DiffQuery {
    /// `patch`, or `json` for a list.
    #[serde(default)]
    #[param(inline)]
    format: DiffFormat,
}

/// What a session changed, against the files of its project as they are now.
#[utoipa::path(
    get, path = "/api/sessions/{id}/diff", tag = "changes",
    params(("id" = String, Path, description = "Its name"), DiffQuery),
    responses((status = 200, description = "A patch, or a list", content((String = "text/x-diff"), (Object = "application/json"))),
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
                let patch = app.patch(id)?;
                ([(CONTENT_TYPE, "text/x-diff; charset=utf-8")], patch).into_response()
            }
            DiffFormat::Json => Json(app.changes(id)?).into_response(),
        })
    });
    shown.await
}

/// Which changes are taken over, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyRequest {
    /// Only what lies at or below these paths, relative to the workspace; everything without any.
    #[serde(default)]
    paths: Vec<String>,
    /// What becomes of conflicts.
    #[serde(default)]
    conflicts: Conflicts,
}

/// What was taken over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AppliedView {
    /// Paths that were taken over, conflicts, and what stays in the sandbox.
    #[schema(value_type = Object)]
    outcome: Value,
}

/// Paths in one request.
const MAX_PATHS: usize = 10_000;

/// Take changes over into the project, or into the session's own workspace.
#[utoipa::path(
    post, path = "/api/sessions/{id}/apply", tag = "changes", request_body = ApplyRequest,
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
    if body.value.paths.len() > MAX_PATHS {
        return Err(ApiError::invalid(
            format!("`paths` has more than {MAX_PATHS} entries"),
            "name directories",
        ));
    }
    let applied = on_session(&shared, principal, id, Scope::Apply, move |app, id| {
        let ApplyRequest { paths, conflicts } = body.value;
        Ok(app.apply(id, &paths, conflicts)?)
    });
    Ok(Json(AppliedView {
        outcome: applied.await?,
    }))
}
