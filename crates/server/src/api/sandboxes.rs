//! Sandboxes without an agent: started, used by single tool calls, removed.

use super::auth::Shared;
use super::blocking;
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::request_id::note_sandbox;
use crate::store::Scope;
use crate::work::App;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use glovebox_proto::{Class, Code, Fault};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::work::unknown_toolset;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::ToSchema;

/// Prefix of the names of sandboxes without an agent.
const PREFIX: &str = "box";

/// A sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxView {
    /// Its name.
    id: String,
    /// `starting`, `ready`, `stopped` or another word for how it stands.
    state: String,
    /// Whose it is.
    user: String,
    /// When it was made, in milliseconds since 1970.
    created_unix_ms: u64,
}

/// Sandboxes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxList {
    /// In the order of their names.
    sandboxes: Vec<SandboxView>,
}

/// Your sandboxes, those of sessions among them; all for an administrator.
#[utoipa::path(
    get, path = "/api/sandboxes", tag = "sandboxes", operation_id = "sandboxes_list",
    responses((status = 200, description = "By name", body = SandboxList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<SandboxList>> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let sandboxes = blocking(move || -> ApiResult<Vec<SandboxView>> {
        let mut list = Vec::new();
        for (name, owned) in app.owners.sandboxes()? {
            let Ok(parsed) = Name::parse(&name) else {
                continue;
            };
            if !principal.sees(&owned.user) {
                continue;
            }
            let Some(entry) = app.config.registry.entry(&parsed)? else {
                continue;
            };
            list.push(SandboxView {
                id: name,
                state: super::word(&entry.state),
                user: owned.user,
                created_unix_ms: entry.created_unix_ms,
            });
        }
        Ok(list)
    })
    .await??;
    Ok(Json(SandboxList { sandboxes }))
}

/// A sandbox that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StartedSandbox {
    /// Its name.
    id: String,
}

/// Start a sandbox.
#[utoipa::path(
    post, path = "/api/sandboxes", tag = "sandboxes", operation_id = "sandboxes_start",
    responses((status = 201, description = "It is ready", body = StartedSandbox),
        (status = "4XX", description = "Refused", body = ErrorBody),
        (status = "5XX", description = "It could not be started", body = ErrorBody))
)]
pub(super) async fn start(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<(StatusCode, Json<StartedSandbox>)> {
    principal.require(Scope::Run)?;
    let app = Arc::clone(&shared.app);
    let started = blocking(move || app.start_sandbox(&principal.name, PREFIX));
    let (name, _) = started.await??;
    let id = name.to_string();
    Ok((StatusCode::CREATED, Json(StartedSandbox { id })))
}

/// Runs `work` on a sandbox of the requesting user, on a blocking thread.
///
/// # Errors
/// Fails if the principal lacks the scope or may not see the sandbox.
pub(super) async fn on_sandbox<T: Send + 'static>(
    shared: &Shared,
    principal: Principal,
    id: String,
    scope: Scope,
    work: impl FnOnce(&App, &Name) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    principal.require(scope)?;
    let app = Arc::clone(&shared.app);
    blocking(move || {
        let owned = app.owners.sandbox(&id)?;
        let is_own = owned.is_some_and(|owned| principal.sees(&owned.user));
        match Name::parse(&id) {
            Ok(name) if is_own => {
                note_sandbox(name.as_str());
                work(&app, &name)
            }
            _ => Err(ApiError::not_found("sandbox", &id)),
        }
    })
    .await?
}

/// End a sandbox, with all that is in it.
#[utoipa::path(
    delete, path = "/api/sandboxes/{id}", tag = "sandboxes", operation_id = "sandboxes_kill", params(("id" = String, Path, description = "Its name")),
    responses((status = 204, description = "It is gone"),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn kill(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let killed = on_sandbox(&shared, principal, id, Scope::Run, |app, name| {
        Ok(app.kill_sandbox(name)?)
    });
    killed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A call of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallRequest {
    /// The tool.
    tool: String,
    /// Its arguments; `/api/tools` has their schemas.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
}

/// What a call came to.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallView {
    /// What a model is told.
    text: String,
    /// Whether what was asked for did not succeed, such as a command that exits with 1.
    is_error: bool,
    /// Exit, times, counts, paths.
    #[schema(value_type = Object)]
    facts: Map<String, Value>,
}

/// Call one tool. A caller that leaves ends the call.
#[utoipa::path(
    post, path = "/api/sandboxes/{id}/call", tag = "sandboxes", operation_id = "sandboxes_call", request_body = CallRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "What it came to", body = CallView),
        (status = "4XX", description = "Refused, wrong, or not there", body = ErrorBody),
        (status = 502, description = "The sandbox was lost", body = ErrorBody))
)]
pub(super) async fn call(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<CallRequest>,
) -> ApiResult<Json<CallView>> {
    let cancel = Arc::new(AtomicBool::new(false));
    // Dropped when the client disconnects, which cancels the call.
    let _presence = Presence(Arc::clone(&cancel));
    let user = principal.name.clone();
    let called = on_sandbox(&shared, principal, id, Scope::Run, move |app, name| {
        let CallRequest { tool, arguments } = body.value;
        match app.call_tool(&user, name, &tool, Value::Object(arguments), &cancel) {
            Ok(outcome) => Ok(CallView {
                text: outcome.text,
                is_error: outcome.is_error,
                facts: outcome.facts,
            }),
            Err(Error::Fault(fault)) if is_outcome(&fault) => Ok(CallView::from(fault)),
            Err(error) => Err(error.into()),
        }
    });
    Ok(Json(called.await?))
}

/// Returns true if the tool ran and failed. That is a result of the call, not an error of the
/// request.
const fn is_outcome(fault: &Fault) -> bool {
    matches!(fault.class, Class::Failed)
        && !matches!(
            fault.code,
            Code::InvalidArgument | Code::Busy | Code::Cancelled | Code::Unavailable
        )
}

impl From<Fault> for CallView {
    fn from(fault: Fault) -> Self {
        let text = match &fault.remedy {
            Some(remedy) => format!("{}\n{remedy}", fault.message),
            None => fault.message,
        };
        let mut facts = Map::new();
        facts.insert("fault".to_owned(), fault.code.as_str().into());
        Self {
            text,
            is_error: true,
            facts,
        }
    }
}

/// Guard of a client's request. Dropping it cancels the call.
pub(super) struct Presence(pub Arc<AtomicBool>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolView {
    /// Its name.
    name: &'static str,
    /// What it is for.
    description: &'static str,
    /// JSON schema of its arguments.
    #[schema(value_type = Object)]
    schema: Value,
    /// Whether it leaves everything as it is.
    is_read_only: bool,
}

/// The tools.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolList {
    /// The toolset.
    toolset: String,
    /// Its tools, in a fixed order.
    tools: Vec<ToolView>,
}

/// The tools that can be called here.
#[utoipa::path(
    get, path = "/api/tools", tag = "sandboxes", operation_id = "sandboxes_tools",
    responses((status = 200, description = "In a fixed order", body = ToolList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn tools(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<ToolList>> {
    principal.require(Scope::Read)?;
    let chosen = shared.app.config.settings.tools.toolset();
    let toolset = chosen.map_err(unknown_toolset)?;
    let tools = toolset.tools().map(|tool| ToolView {
        name: tool.name,
        description: tool.description,
        schema: tool.schema(),
        is_read_only: tool.is_read_only,
    });
    Ok(Json(ToolList {
        toolset: toolset.name.clone(),
        tools: tools.collect(),
    }))
}
