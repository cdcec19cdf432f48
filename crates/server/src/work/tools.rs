//! Single tool calls, and the connections to sandboxes that they use. Each connection has a tool
//! session, which remembers what its callers have read.

use super::App;
use super::accounting::{CallEnd, CallPlace};
use super::request::{TaskLimits, parse_name};
use crate::log;
use glovebox_agent::Placement;
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use glovebox_sandbox::{Name, SandboxState};
use glovebox_session::sync::copied::{CopyRemoval, clean_named};
use glovebox_session::sync::project_of_named;
use glovebox_session::work::{NewName, NewSandbox, WorkContext, WorkSession, WorkTarget};
use glovebox_session::{Error, Frontend, Notice};
use glovebox_tools::policy::CallId;
use glovebox_tools::{ToolOutcome, ToolSession};
use glovebox_workspace::Watch;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{Span, info, warn};

/// Lease of a sandbox, in milliseconds: without a connection it stops after this time and keeps its
/// files.
const LEASE_MS: u64 = 3_600_000;
/// Maximum number of connections that are kept open.
const MAX_OPEN: usize = 256;

/// An open connection to a sandbox.
#[derive(Debug)]
pub(crate) struct OpenSandbox {
    pub work: WorkSession,
    pub tools: ToolSession,
}

/// Open connections to sandboxes, by name, with the time of their last use.
#[derive(Debug, Default)]
pub(crate) struct OpenSandboxes {
    open: Mutex<HashMap<Name, (Arc<OpenSandbox>, Instant)>>,
}

impl OpenSandboxes {
    fn open(&self) -> MutexGuard<'_, HashMap<Name, (Arc<OpenSandbox>, Instant)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &Name) -> Option<Arc<OpenSandbox>> {
        let mut open = self.open();
        let (found, used) = open.get_mut(name)?;
        *used = Instant::now();
        Some(Arc::clone(found))
    }

    fn add(&self, name: Name, sandbox: &Arc<OpenSandbox>) {
        let mut open = self.open();
        if open.len() >= MAX_OPEN
            && let Some(oldest) = open.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = oldest.0.clone();
            open.remove(&oldest);
        }
        open.insert(name, (Arc::clone(sandbox), Instant::now()));
    }

    /// Closes the server's connection to a sandbox.
    pub(crate) fn close(&self, name: &Name) {
        self.open().remove(name);
    }

    /// Closes all connections.
    pub(crate) fn close_all(&self) {
        self.open().clear();
    }
}

/// Frontend of single calls: it discards notices and never cancels.
#[derive(Debug)]
pub(crate) struct Unheard;

impl Frontend for Unheard {
    fn notify(&self, _: &Notice<'_>) {}

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| ControlFlow::Continue(()))
    }
}

impl App {
    fn unheard_caller(&self) -> WorkContext<'_> {
        WorkContext {
            host: &self.config.host,
            registry: &self.config.registry,
            supervisor: &self.config.supervisor,
            frontend: &Unheard,
        }
    }

    /// Starts a sandbox for `user`, with a random name that begins with `prefix`.
    ///
    /// # Errors
    /// Fails if the server works without sandboxes, a limit is reached, or the sandbox does not
    /// start.
    pub(crate) fn start_sandbox(
        &self,
        user: &str,
        prefix: &str,
    ) -> Result<(Name, Arc<OpenSandbox>), Error> {
        if self.config.placement == Placement::Local {
            return Err(Error::usage(
                "this server works without sandboxes",
                [
                    "whoever runs the server leaves out an option: ".into(),
                    AdvicePart::command("glovebox serve", Setting::UnsafeLocal, None),
                ],
            ));
        }
        let mut settings = self.session_settings(None, TaskLimits::default())?;
        Self::lay_caches(&mut settings, user, Some(&self.beginning_of(None)));
        self.lay_address(&mut settings, user)?;
        let _place = self.take_start_place(user, &settings)?;
        let workspace = self.workspace_for(user, None)?;
        let begun = Instant::now();
        let name = Name::random(prefix);
        let target = || {
            WorkTarget::New(NewSandbox {
                name: NewName::Given(&name),
                lease_ms: Some(LEASE_MS),
            })
        };
        let caller = self.unheard_caller();
        let backend = settings.backend.value.as_str();
        let span = log::start_span(backend);
        let opened = span.in_scope(|| {
            self.start_owned(user, &name, || {
                WorkSession::open(&caller, &settings, workspace.dir(), target())
            })
        });
        let work = opened.inspect_err(|error| {
            log::mark_failed(&span, error.clone().into_fault().code.as_str());
        })?;
        span.record("sandbox", work.sandbox().info().name.as_str());
        span.record("glovebox.is_new", true);
        drop(span);
        // The workspace must not be removed with this value any more: it belongs to the sandbox
        // now.
        workspace.keep();
        self.metrics.operation("start", backend, begun.elapsed());
        let tools = work.permitted_tools(&settings)?;
        let took_ms = log::millis(begun.elapsed());
        info!(sandbox = name.as_str(), user, took_ms, "sandbox started");
        self.accounting.network.watch(&name, user, None);
        let sandbox = Arc::new(OpenSandbox { work, tools });
        self.sandboxes.add(name.clone(), &sandbox);
        self.idle.touch(&name);
        Ok((name, sandbox))
    }

    /// Writes the owner of a sandbox, then starts it. If the server is killed in between, a row
    /// without a sandbox remains, which its next start removes. The other order could leave a
    /// sandbox that no user sees and that is never stopped for being idle.
    pub(super) fn start_owned<T>(
        &self,
        user: &str,
        name: &Name,
        start: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.owners.add_sandbox(name.as_str(), user)?;
        self.with_room(start).inspect_err(|_| {
            let _ = self.owners.remove_sandbox(name.as_str());
        })
    }

    /// Returns the open connection to a sandbox if it still answers.
    pub(super) fn connected_sandbox(&self, name: &Name) -> Option<Arc<OpenSandbox>> {
        let found = self.sandboxes.find(name)?;
        if found.work.sandbox().ping().is_ok() {
            return Some(found);
        }
        // The sandbox has stopped or was lost; the caller may start it again.
        self.sandboxes.close(name);
        None
    }

    /// Returns a connection to a sandbox, which is started again if it has stopped.
    ///
    /// # Errors
    /// Fails if the sandbox does not exist or cannot be started.
    pub(crate) fn open_sandbox(&self, name: &Name) -> Result<Arc<OpenSandbox>, Error> {
        if let Some(found) = self.connected_sandbox(name) {
            self.idle.touch_idle(name);
            return Ok(found);
        }
        let settings = self.session_settings(None, TaskLimits::default())?;
        let caller = self.unheard_caller();
        let Some(work) = self.with_room(|| WorkSession::resume(&caller, name))? else {
            return Err(Error::no_sandbox(name));
        };
        let tools = work.permitted_tools(&settings)?;
        let sandbox = Arc::new(OpenSandbox { work, tools });
        self.sandboxes.add(name.clone(), &sandbox);
        self.idle.touch(name);
        if let Some(owned) = self.owners.sandbox(name.as_str())? {
            self.accounting.network.watch(name, &owned.user, None);
        }
        Ok(sandbox)
    }

    /// Returns the name of a session's sandbox.
    ///
    /// # Errors
    /// `not-found` if there is no such session; `sandbox-not-found` if it has no sandbox.
    pub(crate) fn session_sandbox(&self, id: &str) -> Result<Name, Error> {
        let Some(info) = self.find(id)? else {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no session `{id}`")).into(),
            );
        };
        match info.sandbox {
            Some(name) => Ok(parse_name(&name)?),
            None => Err(Fault::failed(
                Code::SandboxNotFound,
                "the session has no sandbox: it waits for its turn, or its sandbox is gone",
            )
            .into()),
        }
    }

    /// Calls a tool in a sandbox on behalf of `user`, and accounts for the call.
    pub(crate) fn call_tool(
        &self,
        user: &str,
        name: &Name,
        tool: &str,
        arguments: Value,
        cancel: &AtomicBool,
    ) -> Result<ToolOutcome, Error> {
        let place = CallPlace {
            user: user.to_owned(),
            session: None,
            sandbox: Some(name.to_string()),
            placement: Placement::Sandbox.as_str(),
        };
        let opened = self.open_sandbox(name);
        let id = CallId::random().to_string();
        let request = Span::current();
        let call = self
            .accounting
            .begin_call(&request, &place, id, tool, &arguments);
        let begun = Instant::now();
        let called = opened.and_then(|sandbox| {
            let called = sandbox.tools.call(tool, arguments, cancel);
            let backend = self.config.settings.backend.value.as_str();
            self.metrics.operation("call", backend, begun.elapsed());
            Ok(called?)
        });
        match called {
            Ok(outcome) => {
                let end = CallEnd::of(Ok(&outcome));
                self.accounting.end_call(&place, &call, end);
                Ok(outcome)
            }
            Err(error) => {
                let fault = error.clone().into_fault();
                let end = CallEnd::of(Err(&fault));
                self.accounting.end_call(&place, &call, end);
                Err(error)
            }
        }
    }

    /// Removes a sandbox and its files.
    pub(crate) fn kill_sandbox(&self, name: &Name) -> Result<(), Error> {
        self.sandboxes.close(name);
        self.idle.remove(name);
        self.forget_disk_bytes(name);
        // Before the removal: what the supervisor holds back is lost when it ends.
        self.count_network(name, true);
        let project = project_of_named(&self.config.registry, name).ok().flatten();
        self.clean_stopped(name);
        self.config.registry.kill(name)?;
        info!(sandbox = name.as_str(), "sandbox removed");
        // Last: the next start of the server removes a row without a sandbox, but not a sandbox
        // without a row.
        self.owners.remove_sandbox(name.as_str())?;
        if let Some(project) = project {
            self.release_workspace(&project);
        }
        Ok(())
    }

    /// Removes a stopped sandbox's files at the service. A running sandbox's guest would remove
    /// them itself.
    fn clean_stopped(&self, name: &Name) {
        let registry = &self.config.registry;
        let entry = registry.entry(name).ok().flatten();
        if entry.is_none_or(|entry| entry.state == SandboxState::Ready) {
            return;
        }
        if let CopyRemoval::Unreachable(error) = clean_named(&self.config.host, registry, name) {
            warn!(
                sandbox = name.as_str(),
                problem = error.message(),
                "the service may still hold the files of a sandbox"
            );
        }
    }

    /// Removes what the server knows of a sandbox that no longer exists, and releases its
    /// workspace.
    pub(super) fn forget_sandbox(&self, name: &Name, project: Option<&Path>) {
        self.idle.remove(name);
        self.forget_disk_bytes(name);
        // A row that stays behind names no existing sandbox, so it is shown to no user.
        let _ = self.owners.remove_sandbox(name.as_str());
        if let Some(project) = project {
            self.release_workspace(project);
        }
    }
}
