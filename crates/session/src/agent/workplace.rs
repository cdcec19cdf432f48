//! Workplace of an agent's tools: a sandbox of its own, or this machine.
//!
//! An agent's sandbox has a supervisor, so that it outlives this process: if the process is killed,
//! the work remains and the session can continue in it. A sandbox without a client stops after its
//! lease and keeps its files.

use super::servers;
use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::host::below;
use crate::sync::copied;
use crate::work::{
    NewName, NewSandbox, PoolConfig, PoolSource, SandboxFacts, WarmPool, WarmSandbox, WorkContext,
    WorkSession, WorkTarget, take_down,
};
use glovebox_agent::{Date, NetworkReach, Placement, PromptFacts, Questions, plain_fact};
use glovebox_mcp::client::Servers;
use glovebox_proto::{Fault, Remedy, Setting};
use glovebox_sandbox::WorkspaceMode;
use glovebox_sandbox::{Name, Sandbox};
use glovebox_settings::Settings;
use glovebox_spec::{LimitKind, Net, WORKSPACE};
use glovebox_tools::{ContextData, ToolSession};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Prefix of the names of agents' sandboxes.
const PREFIX: &str = "agent";
/// Time without a connection after which a sandbox stops, in milliseconds.
const LEASE_MS: u64 = 3_600_000;
/// Returns the hint for a server that cannot be started.
fn correct_server() -> Remedy {
    Remedy::advice([
        "correct its table in glovebox.toml, or take it out; a server in the sandbox finds only what is in there, and \
         hosts only with "
            .into(),
        Setting::Net.of("egress"),
        " and ".into(),
        Setting::Allow.into(),
    ])
}

/// Workplace of an agent's tools, with its servers and context file.
#[derive(Debug)]
pub struct AgentWorkplace {
    /// The sandbox, or the project itself.
    pub work: WorkSession,
    /// File that came with the task.
    pub context: Option<ContextData>,
    servers: Option<Servers>,
    /// Guest for servers that do not run with the other tools.
    beside: Option<Arc<Sandbox>>,
}

impl AgentWorkplace {
    /// Opens a workplace; a sandbox gets the name `name`, or a random name and a lease.
    ///
    /// # Errors
    /// As [`WorkSession::open`].
    pub fn open(
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
        placement: Placement,
        name: Option<&Name>,
    ) -> Result<Self, Error> {
        let target = match (placement, name) {
            (Placement::Local, _) => WorkTarget::Local,
            (Placement::Sandbox, Some(name)) => WorkTarget::New(NewSandbox {
                name: NewName::Given(name),
                lease_ms: None,
            }),
            (Placement::Sandbox, None) => WorkTarget::New(NewSandbox {
                name: NewName::Random(PREFIX),
                lease_ms: Some(LEASE_MS),
            }),
        };
        let work = WorkSession::open(caller, settings, project, target)?;
        Ok(Self::on(work))
    }

    /// Starts a sandbox of this name, which stops if no agent uses it for `LEASE_MS`.
    ///
    /// # Errors
    /// As [`WorkSession::open`].
    pub fn open_leased(
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
        name: &Name,
    ) -> Result<Self, Error> {
        let target = WorkTarget::New(NewSandbox {
            name: NewName::Given(name),
            lease_ms: Some(LEASE_MS),
        });
        Ok(Self::on(WorkSession::open(
            caller, settings, project, target,
        )?))
    }

    /// Returns a random name for [`Self::open_leased`].
    pub fn random_name() -> Name {
        Name::random(PREFIX)
    }

    /// Takes over a sandbox that was started in advance; `None` if it does not fit the settings.
    ///
    /// # Errors
    /// As [`WorkSession::open_warm`].
    pub fn open_warm(
        caller: &WorkContext<'_>,
        settings: &Settings,
        warm: WarmSandbox,
    ) -> Result<Option<Self>, Error> {
        Ok(WorkSession::open_warm(caller, settings, warm)?.map(Self::on))
    }

    /// Opens a pool of sandboxes for agents.
    ///
    /// # Errors
    /// As [`WarmPool::open`].
    pub fn open_pool(
        caller: &WorkContext<'_>,
        settings: Settings,
        config: PoolConfig,
    ) -> Result<WarmPool, Fault> {
        let source = PoolSource {
            host: caller.host.clone(),
            registry: Arc::clone(caller.registry),
            supervisor: caller.supervisor.clone(),
            settings,
            prefix: PREFIX,
            lease_ms: LEASE_MS,
        };
        WarmPool::open(source, config)
    }

    /// Reconnects to an existing sandbox in any state; `None` if it no longer exists.
    ///
    /// # Errors
    /// As [`WorkSession::resume`].
    pub fn resume(caller: &WorkContext<'_>, name: &Name) -> Result<Option<Self>, Error> {
        Ok(WorkSession::resume(caller, name)?.map(Self::on))
    }

    const fn on(work: WorkSession) -> Self {
        Self {
            work,
            context: None,
            servers: None,
            beside: None,
        }
    }

    /// Restarts the sandbox with `settings`, with its files unchanged. Without a sandbox nothing
    /// changes.
    ///
    /// # Errors
    /// As [`WorkSession::renew`].
    pub fn renew(
        self,
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
    ) -> Result<Self, Error> {
        let work = self.work.renew(caller, settings, project)?;
        Ok(Self { work, ..self })
    }

    /// Returns the tools of this workplace.
    pub fn tools(&self) -> ToolSession {
        match &self.context {
            Some(context) => self.work.tools().with_context(context.clone()),
            None => self.work.tools(),
        }
    }

    /// Starts the MCP servers of the settings, whose tools are fixed from here on. Blocks until all
    /// have answered; `cancel` interrupts that.
    ///
    /// # Errors
    /// The first required server that cannot be started. Optional ones that fail are left out, with
    /// a notice.
    pub fn start_servers(
        &mut self,
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        if settings.servers.is_empty() {
            return Ok(());
        }
        let resolved = servers::resolve_servers(caller, settings, project, &self.work)?;
        self.beside = resolved.host;
        let started = Servers::start(resolved.specs, cancel).map_err(|mut fault| {
            fault.remedy.get_or_insert_with(correct_server);
            fault
        })?;
        for (name, mut fault) in resolved.broken.into_iter().chain(started.broken) {
            fault.remedy.get_or_insert_with(correct_server);
            let (name, fault) = (&name, &fault);
            caller
                .frontend
                .notify(&Notice::ServerLeftOut { name, fault });
        }
        for note in &started.left_out {
            caller.frontend.notify(&Notice::ServerToolLeftOut(note));
        }
        for server in &started.servers.labels() {
            caller.frontend.notify(&Notice::ServerStarted(server));
        }
        self.servers = Some(started.servers);
        Ok(())
    }

    /// Returns the MCP servers; `None` if there are none.
    pub const fn servers(&self) -> Option<&Servers> {
        self.servers.as_ref()
    }

    /// Ends the MCP servers.
    pub fn end_servers(&mut self, frontend: &dyn Frontend) {
        self.servers = None;
        if let Some(beside) = self.beside.take() {
            take_down(frontend, beside);
        }
    }

    /// Ends the workplace: servers, context file and sandbox.
    pub fn end(mut self, frontend: &dyn Frontend) {
        self.end_servers(frontend);
        self.take_away();
        self.work.end(frontend);
    }

    /// Returns the facts for the system prompt.
    ///
    /// # Errors
    /// The sandbox is lost.
    pub fn facts(
        &self,
        settings: &Settings,
        project: &Path,
        start_dir: &Path,
    ) -> Result<PromptFacts, Fault> {
        let is_sandbox = self.work.placement() == Placement::Sandbox;
        let limits = [
            ("memory", LimitKind::Memory),
            ("CPUs", LimitKind::Cpu),
            ("disk", LimitKind::Disk),
        ]
        .into_iter()
        .filter(|(_, kind)| is_sandbox && settings.limits.value(*kind).is_some())
        .map(|(name, kind)| (name.to_owned(), settings.limits.text(kind)))
        .collect();
        let found = SandboxFacts::capture_if_possible(self.work.sandbox())?;
        Ok(PromptFacts {
            placement: self.work.placement(),
            today: Date::from_unix_ms(0),
            questions: Questions::Nobody,
            workspace: if is_sandbox {
                match copied::start_dir(self.work.sandbox()) {
                    Some(dir) => copy_place(self.work.sandbox(), &dir)?,
                    None => below(Path::new(WORKSPACE), start_dir).display().to_string(),
                }
            } else {
                below(project, start_dir).display().to_string()
            },
            network: network(settings, is_sandbox),
            limits,
            system: found.system,
            programs: found.programs,
            is_read_only: settings.workspace_mode() == WorkspaceMode::ReadOnly,
            changes_come_back: settings.can_collect(),
            servers: self
                .servers
                .as_ref()
                .map(Servers::labels)
                .unwrap_or_default(),
            context: self.context.clone(),
            can_run_scripts: false,
            addition: None,
            instructions: Vec::new(),
        })
    }
}

/// Returns the path of the project's copy for a prompt, or `.` if it cannot be part of a prompt
/// unchanged.
fn copy_place(sandbox: &Sandbox, dir: &[u8]) -> Result<String, Fault> {
    let start = sandbox.facts()?.cwd;
    let path = Path::new(OsStr::from_bytes(&start)).join(OsStr::from_bytes(dir));
    let path: PathBuf = path.components().collect();
    let path = path.display().to_string();
    // TRUST: the guest reports this path.
    Ok(if plain_fact(&path) == path {
        path
    } else {
        ".".to_owned()
    })
}

/// Returns what the network of commands reaches.
fn network(settings: &Settings, is_sandbox: bool) -> NetworkReach {
    let networks = settings.backend.value.capabilities().networks;
    if !is_sandbox || !networks.contains(&settings.net.value) {
        return NetworkReach::All;
    }
    match settings.net.value {
        Net::Host => NetworkReach::All,
        Net::Egress => NetworkReach::Listed(
            settings
                .allow
                .iter()
                .map(|word| word.value.clone())
                .collect(),
        ),
        Net::None => NetworkReach::None,
    }
}
