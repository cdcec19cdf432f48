//! Clients of the MCP server: each works in a sandbox of its own, or all of them share an existing
//! one.
//!
//! In: settings, and where sandboxes are. Out: an implementation of `glovebox_mcp::server` with one
//! [`Session`] per client, over pipes or HTTP. A sandbox that a client leaves unchanged is removed;
//! one with changes is kept for the user.

use crate::work::{
    NewName, NewSandbox, Reuse, WorkContext, WorkSession, WorkTarget, changes_as_patch,
    unknown_toolset,
};
use crate::{Error, Frontend, Notice};
use glovebox_mcp::server::{Session, SessionFactory};
use glovebox_proto::Fault;
use glovebox_sandbox::{Name, Registry, Supervisor};
use glovebox_settings::{Settings, Surroundings};
use glovebox_spec::Net;
use glovebox_tools::policy::Toolset;
use glovebox_tools::{ToolPrefix, ToolSession, WaitPolicy};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time for which a sandbox outlives a killed server, in milliseconds.
const LEASE_MS: u64 = 5000;
/// Default time for which a call waits for a command: clients give up after a minute.
pub const USUAL_WAIT: Duration = Duration::from_secs(45);
/// Prefix of the names of clients' sandboxes.
const PREFIX: &str = "mcp";

/// User interface for events of the clients, called from the threads that serve them.
pub type ClientsFrontend = Arc<dyn Frontend + Send + Sync>;

/// Factory of sessions for clients, with their settings.
#[derive(Debug)]
pub struct McpClients {
    host: Surroundings,
    project: PathBuf,
    settings: Settings,
    toolset: Toolset,
    registry: Arc<Registry>,
    supervisor: Supervisor,
    frontend: ClientsFrontend,
    waits: WaitPolicy,
    prefix: ToolPrefix,
    /// Sandbox that all clients share; `None` if each has its own.
    shared: Option<ToolSession>,
    /// Sandbox started in advance for the next client.
    ready: Mutex<Option<OwnSession>>,
    /// Sandboxes that clients have left, each with the client's name, in order of leaving.
    left: LeftSandboxes,
}

type LeftSandboxes = Arc<Mutex<Vec<(String, Name)>>>;
/// Maximum number of remembered sandboxes.
const MAX_LEFT: usize = 256;

impl McpClients {
    /// Creates a factory for clients that each get a sandbox of their own, from `project`. A call
    /// waits at most `longest_wait` for a command.
    ///
    /// # Errors
    /// The settings name an unknown toolset.
    pub fn new(
        host: Surroundings,
        project: PathBuf,
        settings: Settings,
        registry: Arc<Registry>,
        supervisor: Supervisor,
        frontend: ClientsFrontend,
        longest_wait: Duration,
    ) -> Result<Self, Error> {
        let toolset = settings.tools.toolset().map_err(unknown_toolset)?.clone();
        Ok(Self {
            host,
            project,
            settings,
            toolset,
            registry,
            supervisor,
            frontend,
            waits: WaitPolicy::at_most(longest_wait),
            prefix: ToolPrefix::default(),
            shared: None,
            ready: Mutex::new(None),
            left: LeftSandboxes::default(),
        })
    }

    /// Sets the prefix of the tools' names.
    #[must_use]
    pub fn with_prefix(mut self, prefix: ToolPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// Lets all clients share the running sandbox `name`.
    ///
    /// # Errors
    /// The sandbox does not run, or cannot be used.
    pub fn in_sandbox(mut self, name: &Name) -> Result<Self, Error> {
        let (_, tools) = self.work(WorkTarget::Running(name))?;
        self.shared = Some(tools);
        if self.toolset.is_read_only {
            self.frontend.notify(&Notice::SharedIsWritable {
                name,
                toolset: &self.toolset.name,
            });
        }
        Ok(self)
    }

    /// Starts the sandbox of the first client at once, so that failures show before a client relies
    /// on it. With `may_be_used`, reuses one that an earlier client has left.
    ///
    /// # Errors
    /// The sandbox cannot be started.
    pub fn with_first(self, may_be_used: bool) -> Result<Self, Error> {
        let reuse = if may_be_used {
            Reuse::Newest
        } else {
            Reuse::Never
        };
        *self.ready() = Some(self.own_session(reuse, None)?);
        Ok(self)
    }

    /// Returns a session in the sandbox that a client of the same name left last, or in a new one.
    fn returning_session(&self, client: Option<&str>) -> Result<OwnSession, Error> {
        let own: Vec<Name> = {
            let left = lock(&self.left);
            let own = left
                .iter()
                .filter(|(name, _)| Some(name.as_str()) == client);
            own.map(|(_, name)| name.clone()).collect()
        };
        let reuse = if own.is_empty() {
            Reuse::Never
        } else {
            Reuse::Among(&own)
        };
        let session = self.own_session(reuse, client)?;
        lock(&self.left).retain(|(_, name)| name != session.sandbox_name());
        Ok(session)
    }

    fn ready(&self) -> MutexGuard<'_, Option<OwnSession>> {
        lock(&self.ready)
    }

    /// Starts or reuses a sandbox for one client.
    fn own_session(&self, reuse: Reuse<'_>, client: Option<&str>) -> Result<OwnSession, Error> {
        let (work, tools) = self.work(WorkTarget::New(NewSandbox {
            name: NewName::OfClient {
                prefix: PREFIX,
                reuse,
            },
            lease_ms: Some(LEASE_MS),
        }))?;
        // Changes that cannot be counted now are shown by `glovebox diff`.
        let earlier_changes = if work.is_taken_over() {
            work.count_changes().unwrap_or_default()
        } else {
            0
        };
        let session = OwnSession {
            tools,
            work,
            earlier_changes,
            client: client.map(str::to_owned),
            left: Arc::clone(&self.left),
            frontend: Arc::clone(&self.frontend),
        };
        self.frontend.notify(&Notice::ClientArrived {
            name: session.sandbox_name(),
        });
        Ok(session)
    }

    fn work(&self, target: WorkTarget<'_>) -> Result<(WorkSession, ToolSession), Error> {
        let caller = WorkContext {
            host: &self.host,
            registry: &self.registry,
            supervisor: &self.supervisor,
            frontend: self.frontend.as_ref(),
        };
        let work = WorkSession::open(&caller, &self.settings, &self.project, target)?;
        let tools = work.permitted_tools(&self.settings)?.with_waits(self.waits);
        Ok((work, tools.with_prefix(self.prefix.clone())))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionFactory for McpClients {
    fn open_session(&self, client: Option<&str>) -> Result<Box<dyn Session>, Fault> {
        if let Some(tools) = &self.shared {
            return Ok(Box::new(SharedSession(tools.new_conversation())));
        }
        let waiting = self.ready().take();
        let session = match waiting {
            Some(session) => session,
            None => self.returning_session(client).map_err(Error::into_fault)?,
        };
        Ok(Box::new(session))
    }

    fn toolset(&self) -> &Toolset {
        &self.toolset
    }

    fn prefix(&self) -> ToolPrefix {
        self.prefix.clone()
    }

    fn instructions(&self) -> String {
        let writing = if self.shared.is_some() {
            "What you change stays in that sandbox until the user takes it over."
        } else {
            "What you change stays in the sandbox until the user takes it over with `glovebox pull`; the \
             resource glovebox://changes shows it as a patch. In a git repository you may commit: the user gets \
             commits as a branch, stashes and other branches do not come by \
             themselves, and no credentials are here to push. Commit only files that you changed."
        };
        let ready = self.ready();
        let name = ready.as_ref().map(Session::name);
        let mut text = describe_tools(
            &self.settings,
            &self.toolset,
            &self.prefix,
            self.waits,
            name.as_deref(),
            writing,
        );
        if let Some(earlier) = ready.as_ref().and_then(OwnSession::describe_earlier) {
            text.extend([" It has ", &earlier, "."]);
        }
        text
    }
}

/// Returns the instructions for a client about its tools and its sandbox `name`, if known.
/// `writing` says what happens to changes in it.
pub fn describe_tools(
    settings: &Settings,
    toolset: &Toolset,
    prefix: &ToolPrefix,
    waits: WaitPolicy,
    name: Option<&str>,
    writing: &str,
) -> String {
    let network = match settings.net.value {
        Net::Host => "Commands have the network of the machine.".to_owned(),
        Net::Egress => {
            let listed: Vec<_> = settings
                .allow
                .iter()
                .map(|word| word.value.as_str())
                .collect();
            format!(
                "Commands reach these hosts and no others: {}.",
                listed.join(", ")
            )
        }
        Net::None => "Commands have no network.".to_owned(),
    };
    let writing = if toolset.is_read_only {
        "The project cannot be written."
    } else {
        writing
    };
    let name = name.map_or_else(String::new, |name| format!(" It is called {name}."));
    let wait = waits.longest().as_secs();
    let job = if toolset.has("Job") {
        format!(
            ": {} waits for it and reads what it writes",
            prefix.name("Job")
        )
    } else {
        String::new()
    };
    format!(
        "Use these tools for files and commands instead of your own. They work in a sandbox, not on the user's \
         machine.{name} The user's project is in /workspace, where relative paths and commands begin. {writing} \
         {network} A call waits at most {wait} s for a command, which then goes on as a job{job}."
    )
}

/// Client in a sandbox of its own.
#[derive(Debug)]
struct OwnSession {
    work: WorkSession,
    tools: ToolSession,
    /// Number of changes that a previous client has left in the sandbox.
    earlier_changes: usize,
    /// Name of the client, if known.
    client: Option<String>,
    left: LeftSandboxes,
    frontend: ClientsFrontend,
}

impl OwnSession {
    fn sandbox_name(&self) -> &Name {
        &self.work.sandbox().info().name
    }

    fn describe_earlier(&self) -> Option<String> {
        match self.earlier_changes {
            0 => None,
            1 => Some("1 change from before that is not pulled".to_owned()),
            count => Some(format!("{count} changes from before that are not pulled")),
        }
    }
}

impl Session for OwnSession {
    fn tools(&self) -> &ToolSession {
        &self.tools
    }

    fn name(&self) -> String {
        self.sandbox_name().to_string()
    }

    fn notice(&self) -> Option<String> {
        let name = self.name();
        let mut notice = format!(
            "[this is the sandbox {name}; the user takes over what is changed in it with `glovebox pull {name}`"
        );
        if let Some(earlier) = self.describe_earlier() {
            notice.extend(["; it has ", &earlier]);
        }
        let used: Vec<&str> = self
            .work
            .used_by_others()
            .iter()
            .map(Name::as_str)
            .collect();
        if !used.is_empty() {
            let used = used.join(", ");
            notice.extend([
                "; another client works in ",
                &used,
                ", whose changes are not here",
            ]);
        }
        notice.push(']');
        Some(notice)
    }

    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let patch = self.work.changes_as_patch(max_bytes);
        patch.map_err(Error::into_fault)
    }
}

impl Drop for OwnSession {
    fn drop(&mut self) {
        // Before anything that takes time, because a server that starts now waits for it.
        self.work.tell_leaving();
        let name = self.sandbox_name();
        if let Some(client) = &self.client {
            let mut left = lock(&self.left);
            left.push((client.clone(), name.clone()));
            let surplus = left.len().saturating_sub(MAX_LEFT);
            left.drain(..surplus);
        }
        self.work.tell_git_work(&*self.frontend);
        let left = self.work.leave(false);
        self.frontend.notify(&match &left {
            Ok(outcome) => Notice::ClientLeft { name, outcome },
            Err(fault) => Notice::ClientNotLeft { name, fault },
        });
    }
}

/// Client in a shared sandbox.
#[derive(Debug)]
struct SharedSession(ToolSession);

impl Session for SharedSession {
    fn tools(&self) -> &ToolSession {
        &self.0
    }

    fn name(&self) -> String {
        self.0.sandbox().info().name.to_string()
    }

    /// Returns none: the operator has chosen the sandbox.
    fn notice(&self) -> Option<String> {
        None
    }

    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let patch = changes_as_patch(self.0.sandbox(), max_bytes);
        patch.map_err(Error::into_fault)
    }
}
