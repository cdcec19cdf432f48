//! Where tools work: a sandbox that is there, one of their own, or the project itself.
//!
//! A sandbox of their own lives under a supervisor, so whatever happens to this process the work in it
//! is kept. In the end it is removed if nothing was changed, and else stops under its name, where
//! `glovebox list`, `diff` and `pull` find it.

use crate::cmd::{Cx, name as parse_name, run::supervisor};
use crate::exit::CommandError;
use crate::sync::{collect_own, copied};
use glovebox_proto::{Fault, JobInfo, JobState};
use glovebox_sandbox::{Backend, Entry, Name, Registry, Sandbox, SandboxSpec, Started, State};
use glovebox_session::{host, spec};
use glovebox_settings::WorkspaceMode;
use glovebox_settings::{Origin, Settings};
use glovebox_tools::policy::{Gate, Journal};
use glovebox_tools::{Children, Hands, is_script_session};
use glovebox_workspace::Filter;
use glovebox_workspace::patch::{self, Style};
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Which sandbox is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    /// One that runs.
    Named(&'a str),
    /// One of its own over the project.
    Own(Own),
    /// None: the project itself.
    Local,
}

/// A sandbox of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// What its name begins with.
    pub prefix: &'static str,
    /// How long it outlives a process that dies without a word.
    pub lease_ms: Option<u64>,
    /// Whether one that was left with changes is taken up again, if there is one of the same settings.
    pub is_taken_up: bool,
}

/// A place to work at.
#[derive(Debug)]
pub(crate) struct Seat {
    sandbox: Arc<Sandbox>,
    gate: Arc<Gate>,
    /// What can be made beside the sandbox; there is nothing beside the project itself.
    children: Option<Arc<Children>>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Named,
    Own {
        registry: Arc<Registry>,
        /// Whether its files stay when it is stopped.
        has_layers: bool,
    },
    Local,
}

/// What became of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was not ours to end.
    Alone,
    /// It is gone; nothing was changed in it.
    Gone,
    /// It has stopped and holds this many changes.
    Kept(usize),
    /// It goes on, for this reason.
    Running(String),
}

/// The settings of tools: those of the project, with a toolset by name.
pub(crate) fn settings(
    cx: &Cx,
    flags: &crate::args::SandboxArgs,
    toolset: Option<&str>,
) -> Result<(PathBuf, Settings), CommandError> {
    let (project, mut settings) = cx.project_settings(flags)?;
    if let Some(toolset) = toolset {
        settings
            .tools
            .choose(toolset, &Origin::Flag("toolset"))
            .map_err(unknown_toolset)?;
    }
    Ok((project, settings))
}

/// A toolset that is not there.
pub(crate) fn unknown_toolset(message: String) -> CommandError {
    CommandError::usage(message, "`glovebox tools` shows the toolsets")
}

/// The decisions of this state directory.
pub(crate) fn journal(registry: &Registry) -> Journal {
    Journal::new(registry.state_dir().join("decisions.jsonl"))
}

impl Seat {
    /// Finds or makes the sandbox.
    ///
    /// # Errors
    /// Whatever keeps it from being there.
    pub(crate) fn take(
        cx: &Cx,
        which: Which<'_>,
        settings: &Settings,
        registry: &Arc<Registry>,
    ) -> Result<Self, CommandError> {
        let policy = settings.tools.policy().map_err(unknown_toolset)?;
        let is_read_only = policy.toolset().is_read_only;
        let gate = Arc::new(Gate::new(policy).writing(Arc::new(journal(registry))));
        let (sandbox, kind) = match which {
            Which::Named(name) => (registry.connect(&parse_name(name)?)?, Kind::Named),
            Which::Own(own) => Self::own(cx, own, settings, is_read_only, registry)?,
            Which::Local => {
                settings.check_project(true)?;
                let project = host::project_dir(&cx.host)?;
                let mut spec = SandboxSpec::new(Backend::Host);
                spec.jail.env = host::host_environment(&cx.host);
                spec.cwd = Some(host::below(&project, &cx.host.start_dir(&project)));
                (registry.create(&spec, None)?, Kind::Local)
            }
        };
        let children = match kind {
            Kind::Local => None,
            _ => Some(Arc::new(Children::new(Arc::clone(registry), supervisor()?))),
        };
        Ok(Self {
            sandbox: Arc::new(sandbox),
            gate,
            children,
            kind,
        })
    }

    fn own(
        cx: &Cx,
        own: Own,
        settings: &Settings,
        is_read_only: bool,
        registry: &Arc<Registry>,
    ) -> Result<(Sandbox, Kind), CommandError> {
        let project = host::project_dir(&cx.host)?;
        let mut settings = settings.clone();
        if is_read_only {
            let toolset = &settings.tools.toolset.value;
            match settings.workspace_mode() {
                WorkspaceMode::Overlay | WorkspaceMode::Live => {
                    settings.workspace.value = Some(WorkspaceMode::ReadOnly);
                }
                WorkspaceMode::ReadOnly | WorkspaceMode::None => {}
                WorkspaceMode::Copy => cx.talk.warning(format_args!(
                    "the toolset `{toolset}` is read-only, but a copy can be written by the commands in it"
                )),
            }
        }
        let mut wanted = spec::resolve_supervised_spec(
            &settings,
            &cx.host,
            &project,
            spec::deadline_ms(&settings),
        )?;
        cx.announce(&wanted, &settings, &project);
        let has_layers = wanted.spec.has_layers_on_disk();
        // What cannot be kept when it stops must not stop by itself.
        wanted.spec.lease_ms = own.lease_ms.filter(|_| has_layers);
        let earlier = if own.is_taken_up {
            take_up(own.prefix, &wanted.spec, registry)?
        } else {
            None
        };
        let is_new = earlier.is_none();
        let name = if let Some(name) = earlier {
            name
        } else {
            let name = Name::random(own.prefix);
            registry.start(&wanted.spec, &name, &supervisor()?)?;
            name
        };
        let sandbox = registry.connect(&name)?;
        if is_new && settings.workspace_mode() == WorkspaceMode::Copy {
            let pushed = copied::push(&sandbox, &project, &settings, &mut |_| {
                ControlFlow::Continue(())
            })?;
            crate::cmd::push::tell(cx, &pushed);
        }
        let kind = Kind::Own {
            registry: Arc::clone(registry),
            has_layers,
        };
        Ok((sandbox, kind))
    }

    /// Hands that work here, under the policy of the settings.
    pub(crate) fn hands(&self) -> Hands {
        let gate: Arc<Gate> = Arc::clone(&self.gate);
        let hands = Hands::new(Arc::clone(&self.sandbox)).with_permit(gate);
        match &self.children {
            Some(children) => hands.with_children(Arc::clone(children)),
            None => hands,
        }
    }

    /// The name of the sandbox.
    pub(crate) fn name(&self) -> String {
        self.sandbox.info().name.to_string()
    }

    /// See [`patch`].
    pub(crate) fn patch(&self, max_bytes: usize) -> Result<Vec<u8>, CommandError> {
        patch(&self.sandbox, max_bytes)
    }

    /// Ends what is ours to end, and keeps what was changed.
    pub(crate) fn leave(&self, is_job_kept: bool) -> Result<Left, Fault> {
        let (registry, has_layers) = match &self.kind {
            Kind::Named => return Ok(Left::Alone),
            Kind::Local => return Ok(Left::Gone),
            Kind::Own {
                registry,
                has_layers,
            } => (registry, *has_layers),
        };
        let is_running = |jobs: Vec<JobInfo>| {
            // A session of scripts that nobody will come back to is no work.
            let mut jobs = jobs.iter().filter(|job| !is_script_session(job));
            jobs.any(|job| !matches!(job.state, JobState::Ended(_)))
        };
        if is_job_kept && self.sandbox.jobs().is_ok_and(is_running) {
            return Ok(Left::Running("a job runs in it".to_owned()));
        }
        let has_child =
            |children: &Arc<Children>| children.count(&self.sandbox).is_ok_and(|count| count > 0);
        if is_job_kept && self.children.as_ref().is_some_and(has_child) {
            return Ok(Left::Running("sandboxes were made beside it".to_owned()));
        }
        // Read-only and empty workspaces have nothing to collect; anything else that cannot be
        // collected now may hold work.
        let count = Filter::new(&[], &[])
            .map_err(CommandError::from)
            .and_then(|filter| {
                let taken = collect_own(&self.sandbox, &filter, false, &mut |_| {
                    ControlFlow::Continue(())
                })?;
                Ok(taken.collected.set.changes.len() + taken.collected.set.refused.len())
            });
        match count {
            Ok(0) => {
                registry.kill(&self.sandbox.info().name)?;
                Ok(Left::Gone)
            }
            Ok(_) | Err(_) if !has_layers => Ok(Left::Running(
                "what was changed in it cannot be kept otherwise".to_owned(),
            )),
            Ok(count) => {
                self.sandbox
                    .stop("its changes are kept for `glovebox pull`")?;
                Ok(Left::Kept(count))
            }
            Err(_) => {
                self.sandbox.stop("its changes could not be looked at")?;
                Ok(Left::Kept(0))
            }
        }
    }
}

/// Starts the newest sandbox again that was left by whoever names its own so, with these very settings; `None`
/// where there is none that nobody uses.
fn take_up(
    prefix: &str,
    spec: &SandboxSpec,
    registry: &Registry,
) -> Result<Option<Name>, CommandError> {
    let is_ours = |entry: &Entry| {
        let name = entry.name.as_str().strip_prefix(prefix);
        name.is_some_and(|rest| rest.starts_with('-'))
            && matches!(entry.state, State::Stopped | State::Lost)
            && registry.spec(&entry.name).is_ok_and(|made| made == *spec)
    };
    let mut left: Vec<Entry> = registry.list()?.into_iter().filter(is_ours).collect();
    left.sort_by_key(|entry| Reverse(entry.created_unix_ms));
    for entry in left {
        // Somebody else may be quicker, and one that cannot start again stays for `glovebox pull`.
        if let Ok((_, Started::Resumed)) = registry.start(spec, &entry.name, &supervisor()?) {
            return Ok(Some(entry.name));
        }
    }
    Ok(None)
}

/// What was changed in a sandbox, as a patch that `git apply` takes.
///
/// # Errors
/// Where changes cannot be collected; when there is more than `max_bytes`.
pub(crate) fn patch(sandbox: &Sandbox, max_bytes: usize) -> Result<Vec<u8>, CommandError> {
    let watch = &mut |_| ControlFlow::Continue(());
    let taken = collect_own(sandbox, &Filter::new(&[], &[])?, false, watch)?;
    let mut text = Bounded {
        bytes: Vec::new(),
        max_bytes,
    };
    let view = crate::sync::apply::view(&taken, taken.project.as_deref())?;
    patch::write(&view.collected, Style::Exact, &mut text)
        .map_err(|error| crate::sync::patch_error(error, "the client"))?;
    Ok(text.bytes)
}

/// A buffer that refuses to grow without end.
struct Bounded {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max_bytes {
            return Err(std::io::Error::other(format!(
                "it has more than {} bytes; use `glovebox diff`",
                self.max_bytes
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
