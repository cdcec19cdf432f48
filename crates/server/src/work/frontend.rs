//! User interface of a session whose user is an HTTP client: notices and agent events become events
//! of the session.

use super::HostRights;
use super::approvals::RemoteUser;
use super::live::LiveSession;
use super::session_calls::SessionCalls;
use super::worker::state_of;
use crate::log;
use glovebox_agent::{Event, Log, LoggedEvent, Observe, Secrets, ToolServer};
use glovebox_proto::Fault;
use glovebox_session::agent::{AgentFrontend, AgentUser, OnStop};
use glovebox_session::{Frontend, Notice};
use glovebox_workspace::Watch;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing::{debug, info};

/// Version of the events that the server adds to those of the agent.
const VERSION: u32 = 1;

/// Publishes notices and agent events as events of one session.
#[derive(Debug)]
pub(crate) struct EventFrontend {
    pub live: Arc<LiveSession>,
    pub calls: SessionCalls,
    /// True if a user can answer questions.
    pub has_user: bool,
    /// Hosts that the user who sent the request may open.
    pub host_rights: HostRights,
}

impl Frontend for EventFrontend {
    fn notify(&self, notice: &Notice<'_>) {
        let Some((kind, message)) = told(notice) else {
            return;
        };
        let json =
            json!({ "version": VERSION, "type": "notice", "notice": kind, "message": message });
        self.live.hub.publish_piece("notice", &json);
    }

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| {
            if self.live.is_cancelled.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }
}

/// Returns a kind for programs and a text for people. None for notices that the session's own state
/// already shows.
fn told(notice: &Notice<'_>) -> Option<(&'static str, String)> {
    Some(match notice {
        Notice::Started { report, .. } => {
            let kinds: Vec<&str> = report
                .absent_limits()
                .map(|limit| limit.kind.as_str())
                .collect();
            if kinds.is_empty() {
                ("sandbox_started", "the sandbox has started".to_owned())
            } else {
                let kinds = kinds.join(", ");
                let message = format!("the sandbox has started; not limited here: {kinds}");
                ("sandbox_started", message)
            }
        }
        Notice::Unheld { reason } => (
            "changed_meanwhile",
            format!("the sandbox went on working while its changes were collected: {reason}"),
        ),
        Notice::NotCollected(error) => ("changes_not_collected", error.to_string()),
        Notice::InstructionsLeftOut { path, reason } => (
            "instructions_left_out",
            format!("{} does not reach the model: {reason}", path.display()),
        ),
        Notice::ServerLeftOut { name, fault } => (
            "mcp_server_left_out",
            format!("the MCP server {name} is left out: {}", fault.message),
        ),
        Notice::ServerToolLeftOut(note) => ("mcp_tool_left_out", (*note).to_owned()),
        Notice::ChangesLost => (
            "changes_lost",
            "the sandbox was lost, and its changes with it".to_owned(),
        ),
        Notice::Applied { outcome, .. } => (
            "applied",
            format!(
                "changes were taken over; conflicts: {}",
                outcome.conflicts.len()
            ),
        ),
        Notice::TakeDownIncomplete(fault) => ("take_down_incomplete", fault.message.clone()),
        Notice::RemovalFailed { name, fault } => (
            "removal_failed",
            format!("the sandbox {name} could not be removed: {}", fault.message),
        ),
        _ => return None,
    })
}

impl AgentFrontend for EventFrontend {
    fn observer<'a>(&'a self, log: &'a Log, id: &'a str) -> Box<dyn Observe + 'a> {
        Box::new(EventObserver {
            frontend: self,
            log,
            id,
        })
    }

    fn user(&self, secrets: &Secrets, _servers: Vec<ToolServer>) -> Option<Arc<dyn AgentUser>> {
        if !self.has_user {
            return None;
        }
        Some(Arc::new(RemoteUser {
            approvals: Arc::clone(&self.live.approvals),
            hub: Arc::clone(&self.live.hub),
            is_cancelled: Arc::clone(&self.live.is_cancelled),
            secrets: secrets.clone(),
            host_rights: self.host_rights,
            always: std::sync::Mutex::default(),
        }))
    }

    fn has_user(&self) -> bool {
        self.has_user
    }

    fn watch_stop(&self, _id: &str, on_stop: OnStop) {
        self.live.watch_stop(on_stop);
    }

    fn unwatch_stop(&self) -> u32 {
        self.live.unwatch_stop()
    }

    fn ask_for_more(&self) -> Option<String> {
        self.live.next_message(false)
    }
}

/// Appends events to the log, then publishes them to readers.
#[derive(Debug)]
struct EventObserver<'a> {
    frontend: &'a EventFrontend,
    log: &'a Log,
    id: &'a str,
}

impl Observe for EventObserver<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        let hub = &self.frontend.live.hub;
        let kind = event.kind();
        // Logged before it is published: a client that reconnects with this id continues from the
        // log.
        match self.log.append(self.id, event)? {
            Some(place) => {
                let logged = LoggedEvent {
                    version: glovebox_agent::EVENT_VERSION,
                    seq: place.seq,
                    at_unix_ms: place.at_unix_ms,
                    event: event.clone(),
                };
                hub.publish_kept(place.seq, kind, &to_json(&logged));
            }
            None => hub.publish_piece(kind, &to_json(event)),
        }
        self.frontend.calls.observe(event);
        log_event(event);
        Ok(())
    }
}

/// Logs an event. The ends of calls are logged by the accounting.
fn log_event(event: &Event) {
    match event {
        Event::CallStarted { id, tool, .. } => {
            let call_id = Some(id.as_str()).filter(|id| log::is_id(id));
            debug!(call_id, tool = log::tool_word(tool), "call begins");
        }
        Event::Ended { ending, turns, .. } => {
            let ending = state_of(*ending).as_str();
            info!(ending, turns, "session ended");
        }
        _ => {}
    }
}

/// Converts an event to the JSON that readers receive.
pub(crate) fn to_json(event: &impl serde::Serialize) -> Value {
    // Events are maps with string keys, which always have a JSON form.
    serde_json::to_value(event).unwrap_or_default()
}
