//! Tasks and sessions: submit, list, show, send a message, answer a question, cancel, delete.

use super::auth::Shared;
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::query::CheckedQuery;
use super::session_pages::ListQuery;
use super::{SubmittedTask, THIS_MACHINE, blocking, on_session, own_session};
use crate::base_path::BasePath;
use crate::store::{RequestKey, Scope, SessionWorkspace, WorkspaceChoice};
use crate::work::{App, OpenApproval, Reply, TaskLimits, TaskRequest, Word};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use glovebox_agent::SessionInfo;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

const MAX_KEY_CHARS: usize = 255;

/// A session that was begun, or goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// Its name.
    session_id: String,
    /// Where it is.
    session_url: String,
    /// Where its events are.
    events_url: String,
}

impl Submitted {
    fn new(base: &BasePath, id: &str) -> Self {
        Self {
            session_id: id.to_owned(),
            session_url: format!("{base}/api/sessions/{id}"),
            events_url: format!("{base}/api/sessions/{id}/events"),
        }
    }
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    /// Its name.
    id: String,
    /// `queued`, `running`, `interrupted`, `completed`, `stopped_by_limit`, `aborted`, `lost` or `failed`.
    state: String,
    /// What it was asked to do.
    task: String,
    /// `PROVIDER/NAME`.
    model: String,
    /// `sandbox` or `local`.
    placement: String,
    /// Name of its sandbox, once there is one.
    sandbox: Option<String>,
    /// What its workspace began with, where that was chosen.
    workspace: Option<WorkspaceChoice>,
    /// Whether changes may be taken over where the session began.
    takes_changes: bool,
    /// Whose it is.
    user: String,
    /// Its place among those that wait for their turn, from 1.
    queue_position: Option<usize>,
    /// What it waits for besides its turn: memory, for instance, that others have.
    waits_for: Option<String>,
    /// Questions that wait for an answer.
    approvals: Vec<OpenApproval>,
    /// When it began, in milliseconds since 1970.
    created_unix_ms: u64,
    /// When something last happened.
    updated_unix_ms: u64,
    /// How many events are in its log.
    events: u64,
}

fn view(
    app: &App,
    info: SessionInfo,
    user: String,
    workspace: Option<SessionWorkspace>,
) -> SessionView {
    let live = app.live(&info.id);
    let place = app.queue_place(&info.id);
    let checked = app.check_workspace(workspace.as_ref(), Some(info.project.as_path()));
    SessionView {
        takes_changes: checked.is_ok(),
        queue_position: place.as_ref().map(|place| place.position),
        waits_for: place.and_then(|place| place.waits_for),
        approvals: live.map(|live| live.approvals.open()).unwrap_or_default(),
        state: info.state.as_str().to_owned(),
        id: info.id,
        task: info.task,
        model: info.model,
        placement: info.placement,
        sandbox: info.sandbox,
        workspace: workspace.and_then(SessionWorkspace::into_choice),
        user,
        created_unix_ms: info.created_unix_ms,
        updated_unix_ms: info.updated_unix_ms,
        events: info.events,
    }
}

/// Sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionList {
    /// The newest first.
    sessions: Vec<SessionView>,
    /// When there are more: `after` of the request for the next page.
    next: Option<String>,
}

/// Begin a session with a task, or go on with one.
#[utoipa::path(
    post, path = "/api/tasks", tag = "sessions", operation_id = "sessions_submit", request_body = TaskRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key leads to the same session.")),
    responses(
        (status = 202, description = "It waits for its turn or works", body = Submitted),
        (status = "4XX", description = "It was not begun", body = ErrorBody),
        (status = "5XX", description = "It could not be begun", body = ErrorBody),
    )
)]
pub(super) async fn submit(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: JsonBody<TaskRequest>,
) -> ApiResult<Response> {
    principal.require(Scope::Run)?;
    let key = idempotency_key(&headers)?;
    if body.value.apply {
        principal.require(Scope::Apply)?;
    }
    let (app, digest) = (Arc::clone(&shared.app), body.digest);
    let id = blocking(move || -> ApiResult<String> {
        let request = body.value;
        let host_rights = app.host_rights(principal.scopes.has(Scope::Admin));
        if let Some(id) = &request.session_id {
            own_session(&app, &principal, id)?;
        }
        let Some(key) = key else {
            return Ok(app.submit(&principal.name, &request, host_rights, None)?);
        };
        let key = RequestKey { key, digest };
        // Held until the first request is stored: the second of two concurrent ones must find its
        // session.
        let _turn = app.idempotent_turn();
        if let Some(id) = app.owners.request(&principal.name, &key)? {
            return Ok(id);
        }
        Ok(app.submit(&principal.name, &request, host_rights, Some(&key))?)
    })
    .await??;
    let mut response = (
        StatusCode::ACCEPTED,
        Json(Submitted::new(&shared.app.config.base_path, &id)),
    )
        .into_response();
    let session = id;
    let task = SubmittedTask { session, digest };
    response.extensions_mut().insert(task);
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = key.to_str().ok().filter(|text| {
        !text.is_empty()
            && text.len() <= MAX_KEY_CHARS
            && text.bytes().all(|b| b.is_ascii_graphic())
    });
    text.map(|text| Some(text.to_owned())).ok_or_else(|| {
        ApiError::invalid(
            "the Idempotency-Key is not a word of at most 255 characters",
            "send a random word, such as a UUID",
        )
    })
}

/// Your sessions; all of them for an administrator.
#[utoipa::path(
    get, path = "/api/sessions", tag = "sessions", operation_id = "sessions_list", params(ListQuery),
    responses((status = 200, description = "The newest first", body = SessionList),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn list(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    CheckedQuery(query): CheckedQuery<ListQuery>,
) -> ApiResult<Json<SessionList>> {
    principal.require(Scope::Read)?;
    let page = query.check()?;
    let app = Arc::clone(&shared.app);
    let list = blocking(move || -> ApiResult<SessionList> {
        let mut owners: std::collections::HashMap<String, String> = app
            .owners
            .sessions()?
            .into_iter()
            .map(|(id, owned)| (id, owned.user))
            .collect();
        let all = app.log().list()?;
        let own = all.into_iter().filter_map(|info| {
            let user = match owners.remove(&info.id) {
                Some(user) => principal.sees(&user).then_some(user)?,
                None if principal.scopes.has(Scope::Admin) => THIS_MACHINE.to_owned(),
                None => return None,
            };
            Some((info, user))
        });
        let (found, next) = page.take(own);
        let mut workspaces = app.owners.workspaces()?;
        let sessions = found.into_iter().map(|(info, user)| {
            let workspace = workspaces.remove(&info.id);
            view(&app, info, user, workspace)
        });
        Ok(SessionList {
            sessions: sessions.collect(),
            next,
        })
    })
    .await??;
    Ok(Json(list))
}

/// One session.
#[utoipa::path(
    get, path = "/api/sessions/{id}", tag = "sessions", operation_id = "sessions_show", params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "How it stands", body = SessionView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn show(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Json<SessionView>> {
    let shown = on_session(&shared, principal, id, Scope::Read, |app, id| {
        let info = app
            .find(id)?
            .ok_or_else(|| ApiError::not_found("session", id))?;
        let user = app
            .owners
            .session(id)?
            .map_or_else(|| THIS_MACHINE.to_owned(), |owned| owned.user);
        Ok(view(app, info, user, app.owners.workspace(id)?))
    });
    Ok(Json(shown.await?))
}

/// Forget a session, with its sandbox and its workspace.
#[utoipa::path(
    delete, path = "/api/sessions/{id}", tag = "sessions", operation_id = "sessions_delete", params(("id" = String, Path, description = "Its name")),
    responses((status = 204, description = "It is gone"),
        (status = 409, description = "It works, or waits: cancel it first", body = ErrorBody),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    principal.require(Scope::Run)?;
    let deleted = on_session(&shared, principal, id, Scope::Read, |app, id| {
        Ok(app.delete(id)?)
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What became of a wish.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cancelled {
    /// Whether the session worked or waited, and ends now.
    is_ending: bool,
}

/// End what a session does. Its sandbox stays, with its changes.
#[utoipa::path(
    post, path = "/api/sessions/{id}/cancel", tag = "sessions", operation_id = "sessions_cancel", params(("id" = String, Path, description = "Its name")),
    responses((status = 202, description = "It ends, or has ended", body = Cancelled),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn cancel(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<(StatusCode, Json<Cancelled>)> {
    let is_ending = on_session(&shared, principal, id, Scope::Run, |app, id| {
        Ok(app.cancel(id))
    });
    let is_ending = is_ending.await?;
    Ok((StatusCode::ACCEPTED, Json(Cancelled { is_ending })))
}

/// Words for an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageRequest {
    /// The words, at most 1 MiB.
    #[schema(min_length = 1)]
    text: String,
    /// Whether the agent stops what it does to hear them; without it, it hears them when it has ended.
    #[serde(default)]
    interrupt: bool,
    /// Limits of what it does then.
    #[serde(default)]
    limits: TaskLimits,
    /// Whether somebody answers questions about calls, where the session begins to work again.
    #[serde(default)]
    ask: bool,
}

/// Say something to a session. One that has ended goes on with it.
#[utoipa::path(
    post, path = "/api/sessions/{id}/messages", tag = "sessions", operation_id = "sessions_say", request_body = MessageRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 202, description = "It will hear it", body = Submitted),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn say(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<MessageRequest>,
) -> ApiResult<(StatusCode, Json<Submitted>)> {
    let is_admin = principal.scopes.has(Scope::Admin);
    let said = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        let MessageRequest {
            text,
            interrupt,
            limits,
            ask,
        } = body.value;
        if text.trim().is_empty() {
            return Err(ApiError::invalid("`text` is empty", "say something"));
        }
        app.say(id, &text, limits, ask, app.host_rights(is_admin))?;
        if interrupt && let Some(live) = app.live(id) {
            live.stop();
        }
        Ok(Submitted::new(&app.config.base_path, id))
    });
    Ok((StatusCode::ACCEPTED, Json(said.await?)))
}

/// The answer to a question.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalRequest {
    /// The question.
    approval_id: String,
    /// The word.
    answer: Word,
    /// Why not; the agent is told.
    reason: Option<String>,
}

/// Answer a question about a call.
#[utoipa::path(
    post, path = "/api/sessions/{id}/approvals", tag = "sessions", operation_id = "sessions_approve", request_body = ApprovalRequest,
    params(("id" = String, Path, description = "Its name")),
    responses((status = 204, description = "It is answered"),
        (status = "4XX", description = "Refused, or nobody waits for that answer", body = ErrorBody))
)]
pub(super) async fn approve(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ApprovalRequest>,
) -> ApiResult<StatusCode> {
    let (name, is_admin) = (principal.name.clone(), principal.scopes.has(Scope::Admin));
    let answered = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        let ApprovalRequest {
            approval_id,
            answer,
            reason,
        } = body.value;
        let absent = || ApiError::not_found("open question", &approval_id);
        let live = app.live(id).ok_or_else(absent)?;
        let question = live.approvals.find(&approval_id).ok_or_else(absent)?;
        if let Some(rule) = question.host_rule() {
            if !app.host_rights(is_admin).cover(rule) {
                return Err(ApiError::forbidden(
                    "the administrator opens hosts",
                    "ask the administrator to answer this question",
                ));
            }
            if answer == Word::AllowTool {
                return Err(ApiError::invalid(
                    "`allow_tool` is no answer to a question about a host",
                    "answer `allow`, which opens this host, or `deny`",
                ));
            }
        }
        let reply = Reply {
            word: answer,
            reason,
            is_foreign: live.user != name,
        };
        if live.approvals.answer(&approval_id, reply) {
            return Ok(());
        }
        Err(absent())
    });
    answered.await?;
    Ok(StatusCode::NO_CONTENT)
}
