//! Runs of agents that bundles declare: started or continued, and followed in the same response.

use super::auth::Shared;
use super::body::JsonBody;
use super::bundle_tools::parse_engine;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::events::{follow, to_response};
use super::principal::Principal;
use super::{SubmittedTask, blocking, own_session};
use crate::store::Scope;
use crate::work::{App, Cursor, HostRights, ReadyBundle, TaskLimits, check_input};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::StreamExt as _;
use futures_util::stream;
use glovebox_agent::Event as SessionEvent;
use glovebox_bundle::Agent;
use glovebox_runner::Engine;
use glovebox_session::bundle::{engine_of, find_agent};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of events read to find the one that names the session's bundle; it is the first.
const FIRST_EVENTS: u32 = 4;

/// A run of an agent of a bundle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ExecuteRequest {
    /// SHA-256 of the bundle.
    bundle: Option<String>,
    /// Where the bundle is, instead: `https`, at a host that the operator has listed.
    bundle_url: Option<String>,
    /// SHA-256 that the bundle at `bundleUrl` must have.
    bundle_sha256: Option<String>,
    /// Base64 of its Ed25519 signature, where the server asks for one.
    bundle_signature: Option<String>,
    /// The agent, by its key; not needed where the bundle has one only.
    agent_name: Option<String>,
    /// `quickjs` or `node`: what runs its tools; a session keeps its own.
    engine: Option<String>,
    /// What it is to do.
    #[schema(min_length = 1)]
    input: String,
    /// A session of it that goes on with that.
    session_id: Option<String>,
    /// Limits that are tighter than the server's.
    #[serde(default)]
    limits: TaskLimits,
}

/// Run an agent of a bundle, and follow it. The run goes on when the reader leaves; its events can be read again.
#[utoipa::path(
    post, path = "/api/execute", tag = "bundles", operation_id = "bundle_runs_execute", request_body = ExecuteRequest,
    responses(
        (status = 200, description = "First `session` (`session_id`, `events_url`), then the events of the session as in \
            `/api/sessions/{id}/events`, to its end", body = String, content_type = "text/event-stream"),
        (status = 403, description = "The agent's model is not allowed here, or the host of `bundleUrl` is not", body = ErrorBody),
        (status = 404, description = "There is no such bundle, session or agent: `details.agents` has those there are", body = ErrorBody),
        (status = "4XX", description = "Refused, or wrong", body = ErrorBody))
)]
pub(super) async fn execute(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<ExecuteRequest>,
) -> ApiResult<Response> {
    principal.require(Scope::Run)?;
    let (request, digest) = (body.value, body.digest);
    check_input(&request.input)?;
    let app = Arc::clone(&shared.app);
    let begun = blocking(move || begin(&app, &principal, &request)).await??;
    let (id, after) = begun;
    let first = json!({
        "type": "session",
        "session_id": id,
        "events_url": format!("{}/api/sessions/{id}/events", shared.app.config.base_path),
    });
    let first = Event::default().event("session").data(first.to_string());
    let live = shared.app.live(&id);
    let events = follow(Arc::clone(&shared.app), id.clone(), live, after);
    let events = stream::once(async { Ok::<_, Infallible>(first) })
        .chain(events.map(|sent| Ok(sent.to_event())));
    let mut response = to_response(events);
    let task = SubmittedTask {
        session: id,
        digest,
    };
    response.extensions_mut().insert(task);
    Ok(response)
}

/// Starts or continues a run. Returns its session and the cursor after which its events begin.
fn begin(
    app: &Arc<App>,
    principal: &Principal,
    request: &ExecuteRequest,
) -> ApiResult<(String, Cursor)> {
    let Some(id) = &request.session_id else {
        let bundle = find_bundle(app, principal, request)?;
        let agent = choose_agent(&bundle, request.agent_name.as_deref())?;
        let id = app.execute(
            &principal.name,
            &bundle,
            &agent.key,
            parse_engine(request.engine.as_deref())?.unwrap_or_default(),
            &request.input,
            request.limits,
        )?;
        return Ok((id, Cursor::default()));
    };
    let run = find_run(app, principal, id)?;
    let hash = run.bundle.stored.hash.to_string();
    let is_other =
        request.bundle.as_ref().is_some_and(|asked| *asked != hash) || request.bundle_url.is_some();
    let is_other_agent = match &request.agent_name {
        Some(asked) => choose_agent(&run.bundle, Some(asked))?.key != run.agent,
        None => false,
    };
    let engine = parse_engine(request.engine.as_deref())?;
    let is_other_engine = engine.is_some_and(|asked| asked != run.engine);
    if is_other || is_other_agent || is_other_engine {
        return Err(ApiError::invalid(
            "a session goes on with the bundle, the agent and the engine that it has",
            "leave them out, or begin a session without `sessionId`",
        ));
    }
    go_on(app, id, &request.input, request.limits)
}

/// Sends a message to a session. Returns the session and the cursor after which the new events
/// begin.
pub(super) fn go_on(
    app: &Arc<App>,
    id: &str,
    input: &str,
    limits: TaskLimits,
) -> ApiResult<(String, Cursor)> {
    let seen = app.find(id)?.map_or(0, |info| info.events);
    app.say(id, input, limits, false, HostRights::Nothing)?;
    Ok((
        id.to_owned(),
        Cursor {
            seq: seen,
            piece: 0,
        },
    ))
}

fn find_bundle(
    app: &App,
    principal: &Principal,
    request: &ExecuteRequest,
) -> ApiResult<Arc<ReadyBundle>> {
    match (&request.bundle, &request.bundle_url) {
        (Some(hash), None) => Ok(app.bundle(&principal.name, hash.parse()?)?),
        (None, Some(url)) => {
            let pin = request
                .bundle_sha256
                .as_deref()
                .map(str::parse)
                .transpose()?;
            let fetched = app.fetch_bundle(
                &principal.name,
                url,
                pin,
                request.bundle_signature.as_deref(),
            );
            fetched.map_err(super::bundles::refusal)
        }
        (Some(_), Some(_)) => Err(ApiError::invalid(
            "there are both `bundle` and `bundleUrl`",
            "send one of them",
        )),
        (None, None) => Err(ApiError::invalid(
            "there is no `bundle`",
            "send the hash that PUT /api/bundles answered, or a `bundleUrl`",
        )),
    }
}

/// Returns the requested agent, or the only one if none is requested.
///
/// # Errors
/// Lists the agents of the bundle if the choice is missing or unknown.
pub(super) fn choose_agent<'a>(
    bundle: &'a ReadyBundle,
    asked: Option<&str>,
) -> ApiResult<&'a Agent> {
    let agents = &bundle.stored.extraction.bundle.agents;
    let keys: Vec<&str> = agents.iter().map(|agent| agent.key.as_str()).collect();
    match (asked, agents.as_slice()) {
        (None, [only]) => Ok(only),
        (None, [_, _, ..]) => Err(ApiError::invalid(
            format!("the bundle has several agents: {}", keys.join(", ")),
            "name one with `agentName`",
        )
        .with_details(json!({ "agents": keys }))),
        (asked, _) => find_agent(&bundle.stored, asked.unwrap_or_default())
            .map_err(|fault| ApiError::from(fault).with_details(json!({ "agents": keys }))),
    }
}

/// Bundle, agent and engine of a session.
pub(super) struct RunOfBundle {
    pub bundle: Arc<ReadyBundle>,
    /// Key of the agent.
    pub agent: String,
    pub engine: Engine,
}

/// Returns the run of a session that the user may see.
///
/// # Errors
/// `not-found` if it is not a session of a bundle.
pub(super) fn find_run(app: &App, principal: &Principal, id: &str) -> ApiResult<RunOfBundle> {
    let owned = own_session(app, principal, id)?;
    let events = app.log().events_after(id, 0, FIRST_EVENTS)?;
    let declared = events.into_iter().find_map(|logged| match logged.event {
        SessionEvent::Started { declared, .. } => declared,
        _ => None,
    });
    let Some(declared) = declared else {
        return Err(ApiError::not_found("session of a bundle", id));
    };
    Ok(RunOfBundle {
        bundle: app.bundle(&owned.user, declared.bundle.parse()?)?,
        engine: engine_of(&declared)?,
        agent: declared.agent,
    })
}
