//! Facts about the machine and its sandboxes, and the status of the server as a stream of changes.

use super::auth::Shared;
use super::blocking;
use super::error::{ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use crate::work::{App, Board, EnvironmentSnapshot, ServerStatus};
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use utoipa::ToSchema;

/// Interval of keep-alive comments in the stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Version of these events.
const VERSION: u32 = 1;

/// Facts of the machine and of a new sandbox, from an allow-list. No variable is among them but `HOSTNAME` and `USER` of
/// the machine.
#[utoipa::path(
    get, path = "/api/environment", tag = "operation", operation_id = "environment_show",
    responses((status = 200, description = "The newest snapshot", body = EnvironmentSnapshot),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn show(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<EnvironmentSnapshot>> {
    principal.require(Scope::Read)?;
    Ok(Json(EnvironmentSnapshot::clone(
        &shared.app.status.environment(),
    )))
}

/// Capture them again. A snapshot of the last ten seconds is answered as it is.
#[utoipa::path(
    post, path = "/api/environment", tag = "operation", operation_id = "environment_refresh",
    responses((status = 200, description = "The newest snapshot", body = EnvironmentSnapshot),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn refresh(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Json<EnvironmentSnapshot>> {
    principal.require(Scope::Run)?;
    let app = Arc::clone(&shared.app);
    let snapshot = blocking(move || app.refresh_environment()).await?;
    Ok(Json(EnvironmentSnapshot::clone(&snapshot)))
}

/// An event of the server's own stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum StatusEvent {
    /// How the server stands.
    Status {
        /// Version of this form.
        version: u32,
        /// The state.
        #[serde(flatten)]
        status: ServerStatus,
    },
    /// The newest snapshot of the environment.
    Environment {
        /// Version of this form.
        version: u32,
        /// The snapshot.
        #[serde(flatten)]
        snapshot: Box<EnvironmentSnapshot>,
    },
}

/// Follow the server: how it stands and what its environment is like. Whoever comes gets the newest of both at once, then
/// every change.
#[utoipa::path(
    get, path = "/api/status/events", tag = "operation", operation_id = "environment_events",
    responses((status = 200, description = "`event` is `status` or `environment`, `data` is JSON with the same `type`",
            body = StatusEvent, content_type = "text/event-stream"),
        (status = "4XX", description = "Refused", body = ErrorBody))
)]
pub(super) async fn events(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Response> {
    principal.require(Scope::Read)?;
    let follower = Follower {
        changed: shared.app.status.subscribe(),
        app: Arc::clone(&shared.app),
        sent: None,
        ready: VecDeque::new(),
    };
    let events = stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("still here");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let no_store = http::HeaderValue::from_static("no-store");
    response.headers_mut().insert("cache-control", no_store);
    Ok(response)
}

/// Client that follows the status. A slow client misses intermediate states, but always gets the
/// newest.
struct Follower {
    changed: watch::Receiver<Board>,
    app: Arc<App>,
    sent: Option<Board>,
    ready: VecDeque<Event>,
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.sent.is_some() {
                tokio::select! {
                    changed = self.changed.changed() => changed.ok()?,
                    () = self.app.end.cancelled() => return None,
                }
            }
            let now = self.changed.borrow_and_update().clone();
            let sent = self.sent.as_ref();
            if !sent.is_some_and(|sent| Arc::ptr_eq(&sent.status, &now.status)) {
                let status = ServerStatus::clone(&now.status);
                let event = StatusEvent::Status {
                    version: VERSION,
                    status,
                };
                self.ready.push_back(to_event("status", &event));
            }
            if !sent.is_some_and(|sent| Arc::ptr_eq(&sent.environment, &now.environment)) {
                let snapshot = Box::new(EnvironmentSnapshot::clone(&now.environment));
                let event = StatusEvent::Environment {
                    version: VERSION,
                    snapshot,
                };
                self.ready.push_back(to_event("environment", &event));
            }
            self.sent = Some(now);
        }
    }
}

fn to_event(kind: &str, event: &StatusEvent) -> Event {
    // Events are maps with string keys, which always have a JSON form.
    let json = serde_json::to_string(event).unwrap_or_default();
    Event::default().event(kind).data(json)
}
