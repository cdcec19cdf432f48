//! Health and metrics of the server.

use super::auth::Shared;
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use crate::work::ComponentHealth;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// Whether the server lives. Needs no token.
#[utoipa::path(
    get, path = "/health/live", tag = "operation", operation_id = "health_live", security(()),
    responses((status = 200, description = "It answers", body = String, content_type = "text/plain"))
)]
pub(super) async fn live() -> &'static str {
    "live\n"
}

/// Whether tasks can be done.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ready {
    /// Whether every component works.
    is_ready: bool,
    /// Where tools work: `sandbox`, or `local` without walls.
    placement: &'static str,
    /// What must work.
    components: Vec<ComponentHealth>,
}

/// Whether tasks can be done, component by component. Needs no token; nothing of it tells about sessions.
#[utoipa::path(
    get, path = "/health/ready", tag = "operation", operation_id = "health_ready", security(()),
    responses((status = 200, description = "They can", body = Ready),
        (status = 503, description = "They cannot; the components say why", body = Ready))
)]
pub(super) async fn ready(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let app = Arc::clone(&shared.app);
    let placement = app.config.placement.as_str();
    let checked = super::blocking(move || app.check_health()).await;
    let mut components = match checked {
        Ok(components) => components,
        Err(error) => return error.into_response(),
    };
    // TRUST: under a foreign name a page of another site may read the answer.
    if !shared.is_own_host(&headers) {
        for component in &mut components {
            component.detail.clear();
        }
    }
    let is_ready = components.iter().all(|component| component.is_ready);
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = Ready {
        is_ready,
        placement,
        components,
    };
    (status, Json(body)).into_response()
}

/// What was counted, in the OpenMetrics text format. For administrators: it is about everybody.
#[utoipa::path(
    get, path = "/metrics", tag = "operation", operation_id = "health_metrics",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn metrics(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Response> {
    principal.require(Scope::Admin)?;
    let app = Arc::clone(&shared.app);
    super::blocking(move || app.count_networks(false)).await?;
    let (running, queued) = shared.app.counts();
    let pool = shared.app.pool_counts();
    let text = shared.app.metrics.encode(running, queued, pool);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}
