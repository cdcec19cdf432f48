//! Source directories of the operator that tasks may name.

use super::auth::Shared;
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

/// A directory that a task may name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceView {
    /// What a task calls it.
    name: String,
    /// Whether no changes are taken over into it.
    is_read_only: bool,
    /// Where it is on the server's machine; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
}

/// Sources.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceList {
    /// In the order in which the operator has named them.
    sources: Vec<SourceView>,
}

/// Directories that a task may name as its workspace.
#[utoipa::path(
    get, path = "/api/sources", tag = "workspaces", operation_id = "sources_list",
    responses((status = 200, description = "Their names", body = SourceList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<SourceList>> {
    principal.require(Scope::Read)?;
    let shows_directories = principal.scopes.has(Scope::Admin);
    let view = |source: &glovebox_settings::SourceDir| SourceView {
        name: source.name.clone(),
        is_read_only: source.is_read_only,
        directory: shows_directories.then(|| source.dir.display().to_string()),
    };
    let sources = shared.app.config.sources.iter().map(view).collect();
    Ok(Json(SourceList { sources }))
}
