//! A user's MCP clients: each works in a sandbox of its own, which is the user's as any other.
//!
//! A sandbox that a client has left untouched is removed; one with changes stops and stays among the user's.

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
use std::sync::Arc;
use std::time::Instant;
use tracing::{Span, error_span};

/// What the names of these sandboxes begin with.
const PREFIX: &str = "mcp";

/// Opens the sandboxes of one user's clients.
#[derive(Debug)]
pub(crate) struct McpUser {
    app: Arc<App>,
    name: String,
    toolset: Toolset,
}

impl McpUser {
    /// For the user of this name.
    pub(crate) fn new(app: Arc<App>, name: &str) -> Result<Self, Error> {
        let settings = app.session_settings(None, TaskLimits::default())?;
        let toolset = settings.tools.toolset().map_err(unknown_toolset)?.clone();
        Ok(Self {
            app,
            name: name.to_owned(),
            toolset,
        })
    }
}

impl SessionFactory for McpUser {
    fn open_session(&self) -> Result<Box<dyn Session>, Fault> {
        let started = self.app.start_sandbox(&self.name, PREFIX);
        let (name, sandbox) = started.map_err(Error::into_fault)?;
        // A client is in it: it does not stop for being idle, or to make room, before the client has gone.
        self.app.idle.remove(&name);
        let tools = sandbox.tools.new_conversation();
        Ok(Box::new(McpSession {
            app: Arc::clone(&self.app),
            tools: tools.with_waits(WaitPolicy::at_most(USUAL_WAIT)),
            user: self.name.clone(),
            name,
            sandbox,
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
            waits,
            None,
            writing,
        )
    }
}

/// One client in its sandbox.
#[derive(Debug)]
struct McpSession {
    app: Arc<App>,
    user: String,
    name: Name,
    sandbox: Arc<OpenSandbox>,
    tools: ToolSession,
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
        Some(format!(
            "[this is the sandbox {name}; on the server's machine, what is changed in it is taken over with \
             `glovebox pull {name}`]"
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

/// A call that is counted when it ends.
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
        self.app.count_network(&self.name, true);
        let project = project_of(self.sandbox.work.sandbox());
        match self.sandbox.work.leave(false) {
            Ok(LeaveOutcome::Removed) => self.app.forget_sandbox(&self.name, project.as_deref()),
            Ok(LeaveOutcome::Stopped(_)) => {}
            // It goes on, and stops when nobody has used it for a while.
            Ok(LeaveOutcome::Running(_) | LeaveOutcome::Untouched) | Err(_) => {
                self.app.idle.touch(&self.name);
            }
        }
    }
}
