//! Quotas of the requesting user.

use super::auth::Shared;
use super::blocking;
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use crate::work::Quotas;
use axum::extract::State;
use axum::{Extension, Json};
use std::sync::Arc;

/// What you may have at the same time, and how much of it you have.
#[utoipa::path(
    get, path = "/api/quotas", tag = "operation", operation_id = "quotas_show",
    responses((status = 200, description = "Of the user that asks", body = Quotas),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn show(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<Quotas>> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let is_admin = principal.scopes.has(Scope::Admin);
    let quotas = blocking(move || app.quotas(&principal.name, is_admin)).await??;
    Ok(Json(quotas))
}
