//! Single calls of the tools of bundles. A request names a bundle or a run and never contains code.

use super::auth::Shared;
use super::blocking;
use super::body::JsonBody;
use super::bundle_runs::find_run;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::sandboxes::Presence;
use crate::store::Scope;
use crate::work::{App, ReadyBundle};
use axum::extract::State;
use axum::{Extension, Json};
use glovebox_js::tool_call::LogRecord;
use glovebox_proto::{Code, Fault};
use glovebox_runner::{Engine, FailureKind};
use glovebox_session::bundle::{CallContext, ToolFailure, find_agent};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use utoipa::ToSchema;

/// Default and maximum time of a call, in milliseconds.
pub(super) const USUAL_MS: u32 = 10_000;
pub(super) const MAX_MS: u32 = 30_000;
const MAX_ID_CHARS: usize = 128;

/// A call of a tool of a bundle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolRequest {
    /// A session of an agent of a bundle, whose tools are meant.
    run_id: Option<String>,
    /// SHA-256 of a bundle, where there is no `run_id`.
    bundle: Option<String>,
    /// The agent whose tool it is; not needed where the bundle has one agent only.
    agent: Option<String>,
    /// The tool.
    tool: String,
    /// Its arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// Names the call, for the tool and in the answer.
    call_id: Option<String>,
    /// `quickjs` or `node`: what runs it. Without it that of the run, or quickjs.
    engine: Option<String>,
    /// How long it may take: 1 to 30000 milliseconds; 10000 without it.
    timeout_ms: Option<u32>,
}

/// What a tool returned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolAnswer {
    /// The call.
    call_id: String,
    /// What it returned.
    result: Value,
    /// What was changed to make it JSON.
    warnings: Vec<String>,
    /// What it logged.
    #[schema(value_type = Vec<Object>)]
    log: Vec<LogRecord>,
    /// How long it took.
    wall_ms: u64,
}

/// Call one tool of a bundle. A caller that leaves ends the call.
#[utoipa::path(
    post, path = "/api/tool", tag = "bundles", operation_id = "bundle_tools_call", request_body = ToolRequest,
    responses((status = 200, description = "What it returned", body = ToolAnswer),
        (status = 400, description = "The request is wrong, or its arguments do not fit the tool's schema: `details.mismatches`", body = ErrorBody),
        (status = 403, description = "The engine is not allowed here", body = ErrorBody),
        (status = 404, description = "There is no such tool, bundle or run", body = ErrorBody),
        (status = 413, description = "The request or the result is too large", body = ErrorBody),
        (status = 422, description = "The tool threw, or was ended by one of its limits: `details.thrown`, `details.refused_hosts`, `details.log`", body = ErrorBody),
        (status = 429, description = "Too many tools of this user are being called", body = ErrorBody),
        (status = 503, description = "Too many tools of all users are being called, or no sandbox can be had now", body = ErrorBody),
        (status = 504, description = "It took too long", body = ErrorBody),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn call(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<ToolRequest>,
) -> ApiResult<Json<ToolAnswer>> {
    principal.require(Scope::Run)?;
    let request = body.value;
    let id = call_id(request.call_id.as_deref())?;
    let timeout = timeout(request.timeout_ms)?;
    let cancel = Arc::new(AtomicBool::new(false));
    // Dropped when the client disconnects, which cancels the call.
    let _presence = Presence(Arc::clone(&cancel));
    let app = Arc::clone(&shared.app);
    let open = app.bundles.begin_call(&principal.name)?;
    let called = blocking(move || -> ApiResult<ToolAnswer> {
        // Moved into the thread, so that a call whose client has disconnected counts until it ends.
        let _open = open;
        let (bundle, agent, usual) = find_tools(&app, &principal, &request)?;
        let engine = parse_engine(request.engine.as_deref())?.unwrap_or(usual);
        app.check_engine(engine)?;
        let tools = bundle.tools(agent.as_deref());
        let context = json!({ "resourceId": principal.name, "sessionId": request.run_id });
        let call = CallContext {
            tenant: &principal.name,
            id: &id,
            context: &context,
            engine,
            timeout: Some(timeout),
        };
        let arguments = Value::Object(request.arguments);
        let done = app.call_bundle_tool(tools, &request.tool, &call, &arguments, &cancel);
        let done = done.map_err(|failure| to_error(&failure, &id))?;
        Ok(ToolAnswer {
            call_id: id,
            result: done.value,
            warnings: done.warnings,
            log: done.log,
            wall_ms: done.wall.as_millis() as u64,
        })
    });
    Ok(Json(called.await??))
}

fn call_id(given: Option<&str>) -> ApiResult<String> {
    let Some(id) = given else {
        return Ok(glovebox_sandbox::Name::random("call").to_string());
    };
    let is_word = !id.is_empty()
        && id.len() <= MAX_ID_CHARS
        && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_word {
        return Ok(id.to_owned());
    }
    Err(ApiError::invalid(
        format!("`call_id` is not a word of at most {MAX_ID_CHARS} characters"),
        "send such a word, or leave it out",
    ))
}

fn timeout(asked: Option<u32>) -> ApiResult<Duration> {
    let ms = asked.unwrap_or(USUAL_MS);
    if (1..=MAX_MS).contains(&ms) {
        return Ok(Duration::from_millis(ms.into()));
    }
    Err(ApiError::invalid(
        format!("`timeout_ms` is not between 1 and {MAX_MS}"),
        "send such a number, or leave it out",
    ))
}

/// Returns the bundle, the agent whose tools are called, and the default engine.
fn find_tools(
    app: &App,
    principal: &Principal,
    request: &ToolRequest,
) -> ApiResult<(Arc<ReadyBundle>, Option<String>, Engine)> {
    let one = "send `run_id`, or `bundle` with `agent`";
    match (&request.run_id, &request.bundle) {
        (Some(_), Some(_)) => Err(ApiError::invalid(
            "there are both `run_id` and `bundle`",
            one,
        )),
        (None, None) => Err(ApiError::invalid(
            "there is neither `run_id` nor `bundle`",
            one,
        )),
        (Some(run), None) => {
            if request.agent.is_some() {
                return Err(ApiError::invalid(
                    "a run has its agent",
                    "leave `agent` out",
                ));
            }
            let run = find_run(app, principal, run)?;
            Ok((run.bundle, Some(run.agent), run.engine))
        }
        (None, Some(hash)) => {
            let bundle = app.bundle(&principal.name, hash.parse()?)?;
            let agents = &bundle.stored.extraction.bundle.agents;
            let agent = match (&request.agent, agents.as_slice()) {
                (Some(asked), _) => Some(find_agent(&bundle.stored, asked)?.key.clone()),
                (None, []) => None,
                (None, [only]) => Some(only.key.clone()),
                (None, several) => {
                    let keys: Vec<&str> = several.iter().map(|agent| agent.key.as_str()).collect();
                    let message = format!("the bundle has several agents: {}", keys.join(", "));
                    return Err(ApiError::invalid(
                        message,
                        "say whose tool it is with `agent`",
                    ));
                }
            };
            Ok((bundle, agent, Engine::default()))
        }
    }
}

/// Parses the engine of a request. None if the request names none.
pub(super) fn parse_engine(given: Option<&str>) -> ApiResult<Option<Engine>> {
    let parsed = given.map(str::parse).transpose();
    parsed.map_err(|reason: String| {
        ApiError::invalid(
            format!("`engine`: {reason}"),
            "send one of them, or leave it out",
        )
    })
}

/// Returns the HTTP status of a failure.
const fn status_of(failure: &ToolFailure) -> StatusCode {
    match failure {
        ToolFailure::NotFound(_) | ToolFailure::NotExecutable(_) => StatusCode::NOT_FOUND,
        ToolFailure::InvalidArguments(_) => StatusCode::BAD_REQUEST,
        ToolFailure::InvalidResult(..) => StatusCode::UNPROCESSABLE_ENTITY,
        ToolFailure::Call(failure) => match failure.kind {
            FailureKind::OutputLimit | FailureKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FailureKind::Busy => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::Cancelled => StatusCode::REQUEST_TIMEOUT,
            FailureKind::ToolError
            | FailureKind::Syntax
            | FailureKind::NotFound
            | FailureKind::NotJson
            | FailureKind::Cpu
            | FailureKind::Memory
            | FailureKind::Killed => StatusCode::UNPROCESSABLE_ENTITY,
        },
    }
}

fn to_error(failure: &ToolFailure, call: &str) -> ApiError {
    let status = status_of(failure);
    let mut details = Map::new();
    details.insert("call_id".to_owned(), call.into());
    match failure {
        ToolFailure::InvalidArguments(mismatches) | ToolFailure::InvalidResult(mismatches, _) => {
            let mismatches = mismatches
                .iter()
                .map(|one| json!({ "path": one.path, "reason": one.reason }));
            details.insert("mismatches".to_owned(), mismatches.collect());
        }
        ToolFailure::Call(failure) if !failure.name.is_empty() => {
            let thrown =
                json!({ "name": failure.name, "message": failure.message, "stack": failure.stack });
            details.insert("thrown".to_owned(), thrown);
        }
        _ => {}
    }
    if let ToolFailure::Call(failure) = failure
        && !failure.refused_hosts.is_empty()
    {
        let hosts = failure
            .refused_hosts
            .iter()
            .map(|one| json!({ "host": one.host, "port": one.port, "reason": one.reason.word(), "remedy": one.remedy }));
        details.insert("refused_hosts".to_owned(), hosts.collect());
    }
    if !failure.log().is_empty() {
        details.insert("log".to_owned(), json!(failure.log()));
    }
    let fault = Fault::failed(Code::InvalidArgument, failure.to_string());
    let fault = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => fault.retryable(),
        _ => fault,
    };
    ApiError::new(status, fault)
        .with_code(failure.as_str())
        .with_details(details.into())
}
