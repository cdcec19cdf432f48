//! Health of the tools of bundles, and the limits of their calls.

use super::auth::Shared;
use super::blocking;
use super::body::MAX_BODY_BYTES;
use super::bundle_tools::{MAX_MS, USUAL_MS};
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use crate::work::MAX_CALLS_PER_USER;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use glovebox_bundle::MAX_SOURCE_BYTES;
use glovebox_js::tool_call::CallLimits;
use glovebox_runner::Engine;
use http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// What calls of tools of bundles can do here.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolHealth {
    /// Whether tools can be called: a call of a tool of the server's own came to its value within the last seconds.
    is_ready: bool,
    /// Bounds of a call.
    limits: ToolLimits,
    /// What runs the code of a tool here: `quickjs`, and `node` where the operator allows it. Only those that work.
    engines: Vec<&'static str>,
    /// What should run the code of a tool here and does not.
    failures: Vec<EngineFailure>,
    /// Whether bundles need a signature.
    needs_signature: bool,
    /// Whether bundles can be fetched by `bundleUrl`.
    has_bundle_urls: bool,
    /// Whether tools may reach any host with `fetch`.
    can_fetch: bool,
}

/// An engine that does not work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngineFailure {
    /// `quickjs` or `node`.
    engine: &'static str,
    /// What a call ends with: the word under `error.code` of `POST /api/tool`.
    code: &'static str,
    /// In one sentence.
    message: String,
}

/// Bounds of a call of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolLimits {
    /// Bytes of a bundle.
    bundle_bytes: usize,
    /// Bytes of a request.
    request_bytes: usize,
    /// Milliseconds of a call, usually.
    usual_timeout_ms: u32,
    /// The same, at most.
    max_timeout_ms: u32,
    /// Bytes of memory of a tool's values and code.
    memory_bytes: u64,
    /// Bytes of a result as JSON.
    output_bytes: u64,
    /// Bytes of a log; what is beyond is left out and said to be.
    log_bytes: u64,
    /// Calls of one user at a time.
    calls_per_user: usize,
}

/// Whether tools of bundles can be called, and within which limits. A call is made to find out.
#[utoipa::path(
    get, path = "/api/tool", tag = "bundles", operation_id = "bundle_health_health",
    responses((status = 200, description = "Tools can be called", body = ToolHealth),
        (status = 503, description = "They cannot: `failures` says why", body = ToolHealth),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn health(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Response> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let probed = blocking(move || app.probe_engines(&principal.name)).await?;
    let (mut engines, mut failures) = (Vec::new(), Vec::new());
    for (engine, outcome) in probed {
        match outcome {
            Ok(()) => engines.push(engine.as_str()),
            Err(failure) => failures.push(EngineFailure {
                engine: engine.as_str(),
                code: failure.kind.as_str(),
                message: failure.message,
            }),
        }
    }
    let is_ready = engines.contains(&Engine::default().as_str());
    let config = &shared.app.config.bundles;
    let usual = CallLimits::default();
    let body = ToolHealth {
        is_ready,
        limits: ToolLimits {
            bundle_bytes: MAX_SOURCE_BYTES,
            request_bytes: MAX_BODY_BYTES,
            usual_timeout_ms: USUAL_MS,
            max_timeout_ms: MAX_MS,
            memory_bytes: usual.memory_bytes,
            output_bytes: usual.output_bytes,
            log_bytes: usual.log_bytes,
            calls_per_user: MAX_CALLS_PER_USER,
        },
        engines,
        failures,
        needs_signature: config.keys.is_required(),
        has_bundle_urls: !config.hosts.is_empty(),
        can_fetch: shared.app.bundles.runner.can_fetch(),
    };
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok((status, Json(body)).into_response())
}
