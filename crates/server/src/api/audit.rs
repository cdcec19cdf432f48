//! The audit log, for administrators.

use super::auth::Shared;
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use super::query::CheckedQuery;
use super::stream;
use crate::store::{AuditFilter, Scope, export_audit_log};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use std::sync::Arc;
use tracing::warn;
use utoipa::IntoParams;

/// Which entries are wanted; without any of these, all.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// From this time on, in milliseconds since 1970.
    since_unix_ms: Option<i64>,
    /// Before this time, in milliseconds since 1970.
    until_unix_ms: Option<i64>,
    /// Of this user.
    user: Option<String>,
}

/// The audit log: one JSON object a line, the oldest first.
#[utoipa::path(
    get, path = "/api/audit", tag = "operation", operation_id = "audit_export", params(AuditQuery),
    responses((status = 200, description = "The entries", body = String, content_type = "application/x-ndjson"),
        (status = "4XX", description = "Refused: the scope `admin` is needed", body = ErrorBody))
)]
pub(super) async fn export(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    CheckedQuery(query): CheckedQuery<AuditQuery>,
) -> ApiResult<Response> {
    principal.require(Scope::Admin)?;
    // Negative times are before 1970, when no entry was written.
    let moment = |at: i64| u64::try_from(at).unwrap_or(0);
    let filter = AuditFilter {
        since_unix_ms: query.since_unix_ms.map(moment),
        until_unix_ms: query.until_unix_ms.map(moment),
        user: query.user,
    };
    let (mut writer, body) = stream::writer();
    let app = Arc::clone(&shared.app);
    tokio::task::spawn_blocking(move || {
        let exported = export_audit_log(&app.config.state_dir, &filter, &mut writer);
        // Without `finish` the body ends without its last chunk, so the client sees that it is
        // incomplete.
        if let Err(error) = exported.and_then(|()| writer.finish()) {
            warn!(problem = %error, "the audit log was not sent to its end");
        }
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}
