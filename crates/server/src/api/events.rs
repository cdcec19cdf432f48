//! Events of a session as a stream (server-sent events).
//!
//! Every event has an `id`. A client that was disconnected sends the last one it saw as
//! `Last-Event-ID` and continues from there: no kept event is missing, and none comes twice. The
//! stream ends after the session's last event. A client that returns to an ended session after its
//! last event gets status 204, which tells browsers to stop.

use super::auth::Shared;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use super::query::CheckedQuery;
use super::{blocking, on_session};
use crate::metrics::Metrics;
use crate::store::Scope;
use crate::work::{App, Cursor, LiveSession, Next, Sent, to_json};
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval of keep-alive comments in the stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum number of events fetched at once.
const BATCH: u32 = 32;
/// Time after which a client that does not take a waiting event is disconnected.
const SLOW: Duration = Duration::from_secs(30);

/// Where to begin.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// The same as `Last-Event-ID`, for those that cannot send headers.
    after: Option<String>,
}

/// Follow a session.
#[utoipa::path(
    get, path = "/api/sessions/{id}/events", tag = "sessions", operation_id = "events_stream",
    params(("id" = String, Path, description = "Its name"), EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    responses(
        (status = 200, description = "Events as they happen: `id`, `event` (its type) and `data` (JSON with the same `type`). \
            Types: started, resumed, said, turn_started, text, reasoning, call_written, retrying, answered, call_started, \
            tool_output, call_finished, pruned, compacted, not_compacted, ended; queued, notice, approval_asked, \
            approval_answered, dropped.", body = String, content_type = "text/event-stream"),
        (status = 204, description = "The session has ended, and there is nothing after that event"),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn stream(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    CheckedQuery(query): CheckedQuery<EventsQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let given = headers.get("last-event-id");
    let given = given.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let is_return = given.is_some() || query.after.is_some();
    let after = given.or(query.after).unwrap_or_else(|| "0".to_owned());
    let after: Cursor = after.parse().map_err(|error: String| {
        ApiError::invalid(error, "send the id of an event, or none for all of them")
    })?;
    let name = id.clone();
    let (live, last) = on_session(&shared, principal, name, Scope::Read, |app, id| {
        let live = app.live(id);
        let info = app
            .find(id)?
            .ok_or_else(|| ApiError::not_found("session", id))?;
        Ok((live, info.events))
    })
    .await?;
    if live.is_none() && is_return && after.seq >= last {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let events = follow(Arc::clone(&shared.app), id, live, after);
    Ok(to_response(events.map(|sent| Ok(sent.to_event()))))
}

/// Returns the events of a session after `after`, until its end.
pub(super) fn follow(
    app: Arc<App>,
    id: String,
    live: Option<Arc<LiveSession>>,
    after: Cursor,
) -> impl Stream<Item = Sent> + Send + 'static {
    let reader = Reader::new(app, id, live, after);
    stream::unfold(reader, |mut reader| async {
        let sent = reader.next().await?;
        Some((sent, reader))
    })
}

/// Wraps events in a response, with keep-alive comments between them.
pub(super) fn to_response(
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("still here");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let no_store = http::HeaderValue::from_static("no-store");
    response.headers_mut().insert("cache-control", no_store);
    response
}

/// Position of one client in the events of one session.
struct Reader {
    app: Arc<App>,
    id: String,
    live: Option<(Arc<LiveSession>, watch::Receiver<()>)>,
    after: Cursor,
    /// Events that were fetched and not yet sent.
    ready: VecDeque<Sent>,
    /// Time at which the last event was handed to the connection. None if none was.
    handed: Option<Instant>,
    is_over: bool,
    _open: OpenReader,
}

impl Reader {
    fn new(app: Arc<App>, id: String, live: Option<Arc<LiveSession>>, after: Cursor) -> Self {
        let open = OpenReader::new(&app.metrics);
        let live = live.map(|live| {
            let changed = live.hub.subscribe();
            (live, changed)
        });
        Self {
            app,
            id,
            live,
            after,
            ready: VecDeque::new(),
            handed: None,
            is_over: false,
            _open: open,
        }
    }

    /// Waits for the next event. Returns None after the last.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            // The connection polls again only when it has taken the previous event: the time since
            // then shows a slow client.
            let waited = self.handed.take().map(|at| at.elapsed());
            if self.is_over {
                return None;
            }
            if waited.is_some_and(|waited| waited > SLOW) {
                self.is_over = true;
                return Some(Sent {
                    at: self.after,
                    kind: "dropped",
                    json: r#"{"type":"dropped","reason":"the reader was too slow; it can come back with Last-Event-ID"}"#.into(),
                });
            }
            if let Some(sent) = self.ready.pop_front() {
                self.after = sent.at;
                self.handed = Some(Instant::now());
                return Some(sent);
            }
            if !self.take_up().await {
                return None;
            }
        }
    }

    /// Fetches the next events, waiting for them if necessary. Returns false after the last.
    async fn take_up(&mut self) -> bool {
        let Some((live, changed)) = &mut self.live else {
            return self.take_up_from_log().await;
        };
        // Before the hub is read: an event that is published after the read must wake `changed`
        // below, or this reader would sleep over it.
        changed.mark_unchanged();
        match live.hub.next(self.after, BATCH as usize) {
            Next::Events(events) => {
                self.ready.extend(events);
                true
            }
            Next::InLog => self.take_up_from_log().await,
            Next::Over => false,
            Next::Wait => {
                tokio::select! {
                    // The sender is not dropped meanwhile: this reader holds the session and with
                    // it the hub.
                    _ = changed.changed() => true,
                    () = self.app.end.cancelled() => false,
                }
            }
        }
    }

    async fn take_up_from_log(&mut self) -> bool {
        let (app, id, seq) = (Arc::clone(&self.app), self.id.clone(), self.after.seq);
        let read = blocking(move || app.log().events_after(&id, seq, BATCH)).await;
        let Ok(Ok(events)) = read else {
            return false;
        };
        let events = events.into_iter().map(|logged| Sent {
            at: Cursor {
                seq: logged.seq,
                piece: 0,
            },
            kind: logged.event.kind(),
            json: to_json(&logged).to_string().into(),
        });
        self.ready.extend(events);
        !self.ready.is_empty()
    }
}

impl Sent {
    /// Converts the event to a server-sent event.
    pub(super) fn to_event(&self) -> Event {
        Event::default()
            .event(self.kind)
            .id(self.at.to_string())
            .data(&*self.json)
    }
}

/// Guard that counts a connected client in the metrics.
struct OpenReader(Arc<Metrics>);

impl OpenReader {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.reader_came();
        Self(Arc::clone(metrics))
    }
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        self.0.reader_left();
    }
}
