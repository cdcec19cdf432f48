//! Chats with an agent of a bundle, as the AI SDK's UI message stream (version 1), so that
//! `useChat` works.
//!
//! The browser keeps the messages and sends all of them with each request. The server reads only
//! the last one; the earlier ones are in the log of the chat's session. If the browser removed
//! messages (an edit or a regeneration), the session is forked before the first of them.

use super::auth::Shared;
use super::blocking;
use super::body::JsonBody;
use super::bundle_runs::{choose_agent, go_on};
use super::bundle_tools::parse_engine;
use super::chat_chunks::ChatChunks;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::events::{follow, to_response};
use super::principal::Principal;
use crate::store::{ChatTurns, Scope};
use crate::work::{App, Cursor, LiveSession, Sent, TaskLimits, check_input};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _, stream};
use glovebox_proto::{Code, Fault};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

const MAX_ID_CHARS: usize = 128;
/// Chunk that ends a stream.
const DONE: &str = "[DONE]";

/// What `useChat` sends, with the bundle and the agent in `body`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChatRequest {
    /// The chat.
    id: String,
    /// All messages so far; the last one of the user is what the agent is told.
    messages: Vec<ChatMessage>,
    /// SHA-256 of the bundle.
    bundle: String,
    /// The agent, by its key; not needed where the bundle has one only.
    agent_name: Option<String>,
    /// `quickjs` or `node`: what runs its tools; a chat keeps that of its first message.
    engine: Option<String>,
    /// Whether the agent goes on when the reader leaves; without it, it stops.
    #[serde(default)]
    resumable: bool,
    /// Limits that are tighter than the server's.
    #[serde(default)]
    limits: TaskLimits,
}

/// A message of a chat.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatMessage {
    /// `user`, `assistant` or `system`.
    role: String,
    /// What it is made of.
    #[schema(value_type = Vec<Object>)]
    parts: Vec<ChatPart>,
}

/// A part of a message.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// Say something in a chat, and read what the agent answers. A reader that leaves stops the agent.
#[utoipa::path(
    post, path = "/api/chat", tag = "bundles", operation_id = "chat_send", request_body = ChatRequest,
    responses(
        (status = 200, description = "Chunks of the AI SDK's UI message stream, version 1", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such bundle or agent: `details.agents` has those there are", body = ErrorBody),
        (status = 409, description = "The chat has more messages than were said here, or is taking another one", body = ErrorBody),
        (status = "4XX", description = "Refused, or wrong", body = ErrorBody))
)]
pub(super) async fn send(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<ChatRequest>,
) -> ApiResult<Response> {
    principal.require(Scope::Run)?;
    let request = body.value;
    check_id(&request.id)?;
    let is_resumable = request.resumable;
    let open = shared.chats.enter(&principal.name, &request.id)?;
    let app = Arc::clone(&shared.app);
    let begun = blocking(move || {
        // Moved into the thread, which continues when the client disconnects: the turns of the chat
        // are read and written without a transaction.
        let _open = open;
        begin(&app, &principal, &request)
    });
    let (id, after) = begun.await??;
    let live = shared.app.live(&id);
    let presence = ChatPresence(live.clone().filter(|_| !is_resumable));
    Ok(stream_chat(&shared.app, id, live, after, presence))
}

/// Read on in a chat whose agent works.
#[utoipa::path(
    get, path = "/api/chat/{id}/stream", tag = "bundles", operation_id = "chat_resume", params(("id" = String, Path, description = "The chat")),
    responses(
        (status = 200, description = "The chunks of the agent's answer from its beginning", body = String, content_type = "text/event-stream"),
        (status = 204, description = "The agent does not work"),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn resume(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    principal.require(Scope::Read)?;
    let app = Arc::clone(&shared.app);
    let turns = blocking(move || app.owners.chat(&principal.name, &id)).await??;
    let found = turns.and_then(|turns| {
        let live = shared.app.live(&turns.session)?;
        Some((live, turns))
    });
    let Some((live, turns)) = found else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let after = Cursor {
        seq: turns.begun.last().copied().unwrap_or_default(),
        piece: 0,
    };
    Ok(stream_chat(
        &shared.app,
        turns.session,
        Some(live),
        after,
        ChatPresence(None),
    ))
}

fn check_id(id: &str) -> ApiResult<()> {
    let is_word = !id.is_empty()
        && id.len() <= MAX_ID_CHARS
        && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_word {
        return Ok(());
    }
    Err(ApiError::invalid(
        format!("`id` is not a word of at most {MAX_ID_CHARS} characters"),
        "send the id of the chat, as useChat does",
    ))
}

/// Returns the text of the user's last message.
fn words(request: &ChatRequest) -> ApiResult<String> {
    let last = request
        .messages
        .iter()
        .rfind(|message| message.role == "user");
    let Some(last) = last else {
        return Err(ApiError::invalid(
            "`messages` has none of the user",
            "send what the user says",
        ));
    };
    let mut words = Vec::new();
    for part in &last.parts {
        match (part.kind.as_str(), &part.text) {
            ("text", Some(text)) => words.push(text.as_str()),
            ("file", _) => {
                return Err(ApiError::invalid(
                    "the message has a file",
                    "send text; files are not supported here",
                ));
            }
            _ => {}
        }
    }
    let words = words.join("\n");
    check_input(&words)?;
    Ok(words)
}

/// Sends the message to the agent. Returns the session and the cursor after which the new events
/// begin.
fn begin(
    app: &Arc<App>,
    principal: &Principal,
    request: &ChatRequest,
) -> ApiResult<(String, Cursor)> {
    let words = words(request)?;
    let user = principal.name.as_str();
    let bundle = app.bundle(user, request.bundle.parse()?)?;
    let agent = choose_agent(&bundle, request.agent_name.as_deref())?;
    // Number of this message among the user's, from 1.
    let place = request
        .messages
        .iter()
        .filter(|message| message.role == "user")
        .count();
    let known = app.owners.chat(user, &request.id)?;
    let known = known.filter(|_| place > 1);
    let Some(mut turns) = known else {
        if place > 1 {
            return Err(unknown_messages());
        }
        let engine = parse_engine(request.engine.as_deref())?.unwrap_or_default();
        let session = app.execute(user, &bundle, &agent.key, engine, &words, request.limits)?;
        let turns = ChatTurns {
            session: session.clone(),
            begun: vec![0],
        };
        app.owners.set_chat(user, &request.id, &turns)?;
        return Ok((session, Cursor::default()));
    };
    if place > turns.begun.len() + 1 {
        return Err(unknown_messages());
    }
    if let Some(before) = turns.begun.get(place - 1).copied() {
        // The browser removed messages: continue from a fork before the first of them.
        turns.session = app.fork_at(user, &turns.session, before)?;
        turns.begun.truncate(place - 1);
    }
    let (session, after) = go_on(app, &turns.session, &words, request.limits)?;
    turns.begun.push(after.seq);
    app.owners.set_chat(user, &request.id, &turns)?;
    Ok((session, after))
}

fn unknown_messages() -> ApiError {
    let fault = Fault::failed(
        Code::Conflict,
        "the chat has messages that were not said here",
    );
    fault.remedy("begin a chat with a new id").into()
}

fn stream_chat(
    app: &Arc<App>,
    id: String,
    live: Option<Arc<LiveSession>>,
    after: Cursor,
    presence: ChatPresence,
) -> Response {
    let chunks = ChatChunks::new(&id);
    let events = follow(Arc::clone(app), id, live, after);
    let mut response = to_response(to_chunks(events, chunks, presence));
    let headers = response.headers_mut();
    headers.insert(
        "x-vercel-ai-ui-message-stream",
        HeaderValue::from_static("v1"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Chats in which a message is being accepted. A second message at the same time would get the
/// number of the first, so it is refused.
#[derive(Debug, Default)]
pub(crate) struct OpenChats(Mutex<HashSet<(String, String)>>);

impl OpenChats {
    fn enter(self: &Arc<Self>, user: &str, chat: &str) -> ApiResult<OpenChat> {
        let key = (user.to_owned(), chat.to_owned());
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.insert(key.clone()) {
            let chats = Arc::clone(self);
            return Ok(OpenChat { chats, key });
        }
        let fault = Fault::failed(Code::Conflict, "the chat is taking another message");
        Err(fault.remedy("send it again after that").retryable().into())
    }
}

/// A message that is being accepted into a chat. Dropping it admits the next one.
#[derive(Debug)]
struct OpenChat {
    chats: Arc<OpenChats>,
    key: (String, String),
}

impl Drop for OpenChat {
    fn drop(&mut self) {
        let open = self.chats.0.lock();
        open.unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
    }
}

/// Converts events to chunks until the agent has ended.
fn to_chunks(
    events: impl Stream<Item = Sent> + Send + 'static,
    chunks: ChatChunks,
    presence: ChatPresence,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    let first = stream::iter(chunks.begin());
    let state = (Box::pin(events), chunks, presence, false);
    let rest = stream::unfold(
        state,
        |(mut events, mut chunks, presence, is_over)| async move {
            if is_over {
                return None;
            }
            let (found, is_over) = match events.next().await {
                Some(sent) => {
                    let found = chunks.take(sent.kind, &sent.json);
                    (found, chunks.is_over())
                }
                None => (chunks.end(), true),
            };
            Some((stream::iter(found), (events, chunks, presence, is_over)))
        },
    );
    let done = stream::once(async { Event::default().data(DONE) });
    first
        .chain(rest.flatten())
        .map(|chunk: Value| Event::default().data(chunk.to_string()))
        .chain(done)
        .map(Ok)
}

/// Reader of a chat. Dropping it stops the agent, as the AI SDK's `stop()` expects.
struct ChatPresence(Option<Arc<LiveSession>>);

impl Drop for ChatPresence {
    fn drop(&mut self) {
        if let Some(live) = &self.0 {
            live.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_takes_one_message_at_a_time() {
        let chats = Arc::new(OpenChats::default());
        let first = chats.enter("ann", "c").unwrap();
        assert!(chats.enter("ann", "c").is_err());
        let _others = [
            chats.enter("bob", "c").unwrap(),
            chats.enter("ann", "d").unwrap(),
        ];
        drop(first);
        chats.enter("ann", "c").unwrap();
    }
}
