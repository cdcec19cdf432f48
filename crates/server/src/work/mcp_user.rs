//! MCP clients of a user. Each client works in a sandbox of its own, which belongs to the user.
//!
//! When a client leaves, its sandbox is removed if it has no changes; otherwise it is stopped and
//! kept.

use super::accounting::{CallEnd, CallPlace, OpenCall};
use super::tools::OpenSandbox;
use super::{App, TaskLimits};
use glovebox_agent::Placement;
use glovebox_mcp::server::{CallRecord, Session, SessionFactory};
use glovebox_proto::Fault;
use glovebox_sandbox::Name;
use glovebox_session::mcp_clients::{USUAL_WAIT, describe_tools};
use glovebox_session::sync::project_of;
use glovebox_session::work::unknown_toolset;
use glovebox_session::{Error, LeaveOutcome};
use glovebox_tools::policy::{CallId, Toolset};
use glovebox_tools::{ToolOutcome, ToolSession, WaitPolicy};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{Span, error_span};

/// Prefix of the names of these sandboxes.
const PREFIX: &str = "mcp";

/// Factory of the sessions of one user's MCP clients.
#[derive(Debug)]
pub(crate) struct McpUser {
    app: Arc<App>,
    name: String,
    toolset: Toolset,
    /// Sandboxes that clients left with changes, with the client's name; the latest is last.
    left: LeftSandboxes,
}

type LeftSandboxes = Arc<Mutex<Vec<(String, Name)>>>;
/// Maximum number of such sandboxes that are remembered.
const MAX_LEFT: usize = 256;

impl McpUser {
    /// Creates the factory for the user `name`.
    ///
    /// # Errors
    /// Fails if the configured toolset is unknown.
    pub(crate) fn new(app: Arc<App>, name: &str) -> Result<Self, Error> {
        let settings = app.session_settings(None, TaskLimits::default())?;
        let toolset = settings.tools.toolset().map_err(unknown_toolset)?.clone();
        Ok(Self {
            app,
            name: name.to_owned(),
            toolset,
            left: LeftSandboxes::default(),
        })
    }

    /// Reopens the sandbox that a client of this name left last. Returns None if it left none that
    /// still exists.
    fn reopen_left(&self, client: &str) -> Option<(Name, Arc<OpenSandbox>)> {
        loop {
            let name = {
                let mut left = lock(&self.left);
                let at = left.iter().rposition(|(name, _)| name == client)?;
                left.remove(at).1
            };
            // The user may have removed the sandbox: then try the one that was left before it.
            if let Ok(sandbox) = self.app.open_sandbox(&name) {
                return Some((name, sandbox));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionFactory for McpUser {
    fn open_session(&self, client: Option<&str>) -> Result<Box<dyn Session>, Fault> {
        let left = client.and_then(|client| self.reopen_left(client));
        let is_back = left.is_some();
        let (name, sandbox) = if let Some(left) = left {
            left
        } else {
            let started = self.app.start_sandbox(&self.name, PREFIX);
            started.map_err(Error::into_fault)?
        };
        // Not idle while the client is connected: the sandbox must not be stopped for being idle or
        // to make room.
        self.app.idle.remove(&name);
        let tools = sandbox.tools.new_conversation();
        Ok(Box::new(McpSession {
            app: Arc::clone(&self.app),
            tools: tools.with_waits(WaitPolicy::at_most(USUAL_WAIT)),
            user: self.name.clone(),
            name,
            sandbox,
            is_back,
            client: client.map(str::to_owned),
            left: Arc::clone(&self.left),
        }))
    }

    fn toolset(&self) -> &Toolset {
        &self.toolset
    }

    fn instructions(&self) -> String {
        let writing = "What you change stays in the sandbox, and is kept there when you leave; the resource \
                       glovebox://changes shows it as a patch.";
        let waits = WaitPolicy::at_most(USUAL_WAIT);
        describe_tools(
            &self.app.config.settings,
            &self.toolset,
            &self.prefix(),
            waits,
            None,
            writing,
        )
    }
}

/// Session of one client in its sandbox.
#[derive(Debug)]
struct McpSession {
    app: Arc<App>,
    user: String,
    name: Name,
    sandbox: Arc<OpenSandbox>,
    tools: ToolSession,
    /// True if the sandbox was left by an earlier client of this name.
    is_back: bool,
    client: Option<String>,
    left: LeftSandboxes,
}

impl Session for McpSession {
    fn tools(&self) -> &ToolSession {
        &self.tools
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn notice(&self) -> Option<String> {
        let name = &self.name;
        let before = if self.is_back {
            "; it has the changes from before"
        } else {
            ""
        };
        Some(format!(
            "[this is the sandbox {name}; on the server's machine, what is changed in it is taken over with \
             `glovebox pull {name}`{before}]"
        ))
    }

    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let patch = self.sandbox.work.changes_as_patch(max_bytes);
        patch.map_err(Error::into_fault)
    }

    fn call_began(&self, tool: &str, arguments: &Value) -> Box<dyn CallRecord> {
        let place = CallPlace {
            user: self.user.clone(),
            session: None,
            sandbox: Some(self.name.to_string()),
            placement: Placement::Sandbox.as_str(),
        };
        let id = CallId::random().to_string();
        let request = Span::current();
        let call = self
            .app
            .accounting
            .begin_call(&request, &place, id, tool, arguments);
        Box::new(CountedCall {
            app: Arc::clone(&self.app),
            place,
            call,
            begun: Instant::now(),
        })
    }
}

/// A tool call that is counted when it ends.
struct CountedCall {
    app: Arc<App>,
    place: CallPlace,
    call: OpenCall,
    begun: Instant,
}

impl CallRecord for CountedCall {
    fn end(self: Box<Self>, outcome: Result<&ToolOutcome, &Fault>) {
        let backend = self.app.config.settings.backend.value.as_str();
        let metrics = &self.app.metrics;
        metrics.operation("call", backend, self.begun.elapsed());
        let end = CallEnd::of(outcome);
        let (user, sandbox) = (&self.place.user, self.place.sandbox.as_deref());
        error_span!("mcp", user, sandbox)
            .in_scope(|| self.app.accounting.end_call(&self.place, &self.call, end));
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        self.app.sandboxes.close(&self.name);
        // Before the sandbox may stop: what the supervisor holds back is lost when it ends.
        self.app.count_network(&self.name, true);
        let project = project_of(self.sandbox.work.sandbox());
        match self.sandbox.work.leave(false) {
            Ok(LeaveOutcome::Removed) => {
                self.app.forget_sandbox(&self.name, project.as_deref());
                return;
            }
            Ok(LeaveOutcome::Stopped(_)) => {}
            // The sandbox keeps running until it has been idle for too long.
            Ok(LeaveOutcome::Running(_) | LeaveOutcome::Untouched) | Err(_) => {
                self.app.idle.touch(&self.name);
            }
        }
        // Remembered only after the sandbox has stopped. A client of the same name that connects
        // earlier gets a new sandbox, not one that is stopping.
        if let Some(client) = &self.client {
            let mut left = lock(&self.left);
            left.push((client.clone(), self.name.clone()));
            let surplus = left.len().saturating_sub(MAX_LEFT);
            left.drain(..surplus);
        }
    }
}
