//! The commands: one file each, all with the same shape. In: parsed arguments and the environment.
//! Out: an exit code, or an error that is rendered once, in [`crate::main_with`].

pub(crate) mod agent;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod bundle;
pub(crate) mod cache;
pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod commits;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod consent;
pub(crate) mod cp;
pub(crate) mod demo;
mod descriptors;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod expose;
mod frontend;
mod given_token;
pub(crate) mod help;
pub(crate) mod here;
mod hidden_note;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod kill;
mod limit_end;
mod limit_note;
pub(crate) mod list;
mod listening;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod net;
mod park;
pub(crate) mod ports;
pub(crate) mod prune;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod rename;
pub(crate) mod replay;
pub(crate) mod run;
mod run_json;
pub(crate) mod serve;
mod service;
pub(crate) mod sessions;
mod several;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod supervise;
pub(crate) mod token;
mod told_once;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod why;

pub(crate) use frontend::{SharedTerminal, TerminalFrontend};

use crate::args::{GlobalArgs, SandboxArgs};
use crate::exit::{CommandError, TIMED_OUT};
use crate::render::Messages;
use glovebox_proto::ExitReport;
use glovebox_sandbox::{
    Backend, CacheKeeping, Name, Place, Registry, RegistryConfig, Report, SandboxSpec, Walls,
};
use glovebox_session::Note;
use glovebox_session::ResolvedSpec;
use glovebox_session::host;
use glovebox_session::work::unknown_toolset;
use glovebox_settings::one_of;
use glovebox_settings::{self as settings, Settings, Sources, Surroundings};
use glovebox_spec::{Net, RootFs, WorkspaceAccess};
use std::path::{Path, PathBuf};

/// Context of every command.
#[derive(Debug)]
pub(crate) struct Cx {
    /// Flags that every command accepts.
    pub global: GlobalArgs,
    /// Environment of this process: variables, directories, user.
    pub host: Surroundings,
    /// Verbosity and style of messages.
    pub talk: Messages,
}

/// Starts an empty sandbox of a backend and ends it.
///
/// # Errors
/// The reason why none starts here.
pub(crate) fn try_start(registry: &Registry, backend: Backend) -> Result<Report, CommandError> {
    let sandbox = registry.create(&SandboxSpec::new(backend), None)?;
    let report = sandbox.report();
    sandbox.finish()?;
    Ok(report?)
}

impl Cx {
    /// Reads the environment of this process.
    pub(crate) fn new(global: GlobalArgs) -> Self {
        let host = crate::surroundings::read_surroundings(global.directory.as_deref(), global.here);
        let no_color =
            host.var("NO_COLOR").is_some() || host.var("TERM").is_none_or(|term| term == "dumb");
        let talk = Messages::new(&global, no_color);
        Self { global, host, talk }
    }

    /// Loads the settings of the user, and of the project if one is given, without flags. Nothing
    /// may start with them before [`Self::require_consent`].
    pub(crate) fn load_settings(&self, project: Option<&Path>) -> Result<Settings, CommandError> {
        let sources = Sources {
            project,
            config: self.global.config.as_deref(),
            no_config: self.global.no_config,
            trust_config: self.global.trust_config,
        };
        let (settings, warnings) = settings::resolve(&sources, &self.host)?;
        for warning in warnings {
            self.talk.warning(warning);
        }
        Ok(settings)
    }

    /// Loads the settings, with the user's consent to the demands of the project's file in a native
    /// sandbox.
    pub(crate) fn settings(&self, project: Option<&Path>) -> Result<Settings, CommandError> {
        let mut settings = self.load_settings(project)?;
        self.require_consent(&mut settings, false)?;
        Ok(settings)
    }

    /// Returns the project directory. Prints a note if it may not be the one that the user expects.
    pub(crate) fn project(&self) -> Result<PathBuf, CommandError> {
        let host::Project { dir, note } = host::find_project(&self.host)?;
        if let Some(note) = note {
            self.talk.note(crate::render::escape_text(&note));
        }
        Ok(dir)
    }

    /// Returns the project directory and its settings with flags and backend, with the user's
    /// consent.
    pub(crate) fn project_settings(
        &self,
        flags: &SandboxArgs,
    ) -> Result<(PathBuf, Settings), CommandError> {
        let project = self.project()?;
        let mut settings = self.load_settings(Some(&project))?;
        settings.lay_flags(&flags.to_flags());
        self.choose_backend(&mut settings)?;
        let is_outside_native = settings.is_outside_native();
        self.require_consent(&mut settings, is_outside_native)?;
        Ok((project, settings))
    }

    /// Chooses the first backend in the user's order that starts here, and prints a note if that
    /// was not the first.
    pub(crate) fn choose_backend(&self, settings: &mut Settings) -> Result<(), CommandError> {
        if settings.backend_order.len() < 2 {
            return Ok(());
        }
        let registry = self.registry(settings)?;
        let first = settings.choose_backend(|backend| try_start(&registry, backend).is_ok());
        if let Some(first) = first {
            self.talk.note(format_args!(
                "sandbox on {} ({first} is refused here)",
                settings.backend.value
            ));
        }
        Ok(())
    }

    /// Returns the project directory and its settings, with the named toolset.
    pub(crate) fn tool_settings(
        &self,
        flags: &SandboxArgs,
        toolset: Option<&str>,
    ) -> Result<(PathBuf, Settings), CommandError> {
        let (project, mut settings) = self.project_settings(flags)?;
        if let Some(toolset) = toolset {
            settings
                .tools
                .choose(toolset, &settings::Origin::Flag("toolset"))
                .map_err(unknown_toolset)?;
        }
        Ok((project, settings))
    }

    pub(crate) fn state_dir(&self, settings: &Settings) -> Result<PathBuf, CommandError> {
        let asked = settings.state.value.as_deref();
        Ok(host::state_dir(asked, &self.host)?)
    }

    pub(crate) fn registry(&self, settings: &Settings) -> Result<Registry, CommandError> {
        let state_dir = self.state_dir(settings)?;
        let max_sandboxes = settings.max_sandboxes.value.0.unwrap_or(u32::MAX);
        let registry = Registry::open(RegistryConfig {
            state_dir,
            max_sandboxes,
            seed_maker: Some(glovebox_workspace::SEED_MAKER),
        })?;
        prune::remove_temporary(self, &registry);
        park::tell_news(self, &registry.take_parking_news());
        Ok(registry)
    }

    /// Returns true if a text at the start of a sandbox must be printed: it is new for the project,
    /// or `--verbose` is set.
    fn is_new(&self, settings: &Settings, project: &Path, topic: &str, told: &str) -> bool {
        let is_new = self.state_dir(settings).map_or(true, |state_dir| {
            told_once::is_new(&state_dir, project, topic, told)
        });
        is_new || self.talk.is_verbose
    }

    /// Opens the registry, for commands that are about sandboxes and not about a project.
    pub(crate) fn user_registry(&self) -> Result<Registry, CommandError> {
        self.registry(&self.settings(None)?)
    }

    /// Warns of walls that the settings remove. Notes the automatic grants if they are new for the
    /// project.
    pub(crate) fn announce(&self, wanted: &ResolvedSpec, settings: &Settings, project: &Path) {
        let shown: Vec<String> = wanted
            .toolchains
            .iter()
            .filter(|toolchain| !toolchain.grants.is_empty())
            .map(|toolchain| {
                let paths: Vec<String> = toolchain
                    .grants
                    .iter()
                    .map(|grant| self.short(&grant.source))
                    .collect();
                format!("{} ({})", toolchain.name, paths.join(", "))
            })
            .collect();
        let shown: Vec<String> = shown.into_iter().chain(self.shown_caches(wanted)).collect();
        if !shown.is_empty() && !self.talk.is_quiet {
            let line = format!(
                "readable inside: {}; --no-toolchains hides them",
                shown.join(", ")
            );
            if self.is_new(settings, project, "readable", &line) {
                self.talk.note(line);
            }
        }
        let hosts: Vec<String> = wanted
            .spec
            .egress
            .allowed()
            .iter()
            .map(ToString::to_string)
            .collect();
        if !hosts.is_empty() {
            let line = format!("hosts that can be reached: {}", hosts.join(", "));
            self.talk.detail(crate::render::escape_text(&line));
        }
        if let Some(line) = hidden_note::at_start(&wanted.hidden) {
            self.talk.note(line);
        }
        let notes: Vec<String> = wanted
            .notes
            .iter()
            .map(|Note { what, remedy }| format!("{what}; {}", crate::render::in_flags(remedy)))
            .collect();
        if !notes.is_empty()
            && !self.talk.is_quiet
            && self.is_new(settings, project, "notes", &notes.join("\n"))
        {
            for line in notes {
                self.talk.note(crate::render::escape_text(&line));
            }
        }
        if wanted.spec.jail.workspace_access == WorkspaceAccess::Live {
            self.talk.warning(
                "--workspace live has no wall around the project: the command writes to your files at once",
            );
        }
        if wanted.spec.backend.is_walled_here() && wanted.spec.jail.rootfs == RootFs::HostAll {
            self.talk.warning(
                "--rootfs host-all shows the command everything on this machine that you can read, less known secrets",
            );
        }
        if wanted.spec.jail.is_nested {
            self.talk.warning(
                "--nested lets commands make namespaces: they reach much more of the kernel, and Landlock is not on them",
            );
        }
        let capabilities = wanted.spec.backend.capabilities();
        match (capabilities.walls, capabilities.place) {
            (Walls::None, Place::Here) => self.talk.warning(
                "the backend `host` has no walls: the command runs as you, on your files, with your network",
            ),
            (Walls::Ours, _) if wanted.spec.jail.net == Net::Host => self.talk.warning(
                "--net host opens your network to the command: this machine's services and everything you can reach",
            ),
            _ => {}
        }
    }

    /// Lists the host's package caches that are visible inside, without those of a toolchain.
    fn shown_caches(&self, wanted: &ResolvedSpec) -> Option<String> {
        let is_of_toolchain = |path: &Path| {
            let mut grants = wanted.toolchains.iter().flat_map(|found| &found.grants);
            grants.any(|grant| grant.source == path)
        };
        let paths: Vec<String> = wanted
            .spec
            .jail
            .caches
            .iter()
            .filter(|cache| cache.in_workspace().is_none())
            .filter_map(|cache| cache.source.as_deref())
            .filter(|path| !is_of_toolchain(path))
            .map(|path| self.short(path))
            .collect();
        (!paths.is_empty()).then(|| format!("package caches ({})", paths.join(", ")))
    }

    /// Reports the limits that are not enforced: those that the user set always, all together once,
    /// defaults with `-v`.
    fn announce_limits(&self, report: &Report, settings: &Settings) {
        for limit in report.absent_limits() {
            let line = format!(
                "the {} limit of {} does not hold here: {}",
                limit.kind.noun(),
                crate::render::limit_value(limit.kind, limit.value),
                crate::render::escape_text(&limit.mechanism)
            );
            let is_asked_for = settings
                .shown(limit.kind.setting())
                .iter()
                .any(|(_, origin)| **origin != settings::Origin::Default);
            if is_asked_for {
                self.talk.warning(line);
            } else {
                self.talk.detail(line);
            }
        }
        if !self.talk.is_quiet
            && let Some(line) = limit_note::line(report)
            && let Ok(state_dir) = self.state_dir(settings)
            && !limit_note::was_said(&state_dir, &line)
        {
            self.talk.note(line);
        }
        if report
            .caches
            .iter()
            .any(|cache| cache.keeping == CacheKeeping::HeldByAnother)
        {
            self.talk.note(
                "another sandbox of this project keeps its package caches now: what this one adds to them goes with it",
            );
        }
        for line in &report.degraded {
            self.talk.detail(crate::render::escape_text(line));
        }
    }

    /// Returns a path below the home in short form.
    pub(crate) fn short(&self, path: &Path) -> String {
        host::short_path(&self.host, path)
    }
}

/// Parses a name that was typed.
///
/// # Errors
/// A usage error if it is no valid name.
pub(crate) fn name(text: &str) -> Result<Name, CommandError> {
    Name::parse(text).map_err(|error| {
        CommandError::usage(error.to_string(), "choose a name like `work` or `api-2`")
    })
}

/// Parses names that were typed; a repeated name is returned once.
fn names(typed: &[String]) -> Result<Vec<Name>, CommandError> {
    let mut names: Vec<Name> = Vec::new();
    for text in typed {
        let name = name(text)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Returns the exit code for the end of a command.
fn exit_code(report: &ExitReport) -> u8 {
    if report.timed_out {
        TIMED_OUT
    } else {
        (report.exit.shell_code() & 0xff) as u8
    }
}

/// Formats the time since `created_unix_ms` for people.
fn age(created_unix_ms: u64) -> String {
    let seconds = host::now_unix_ms().saturating_sub(created_unix_ms) / 1000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a command line for display only, never for execution.
pub(crate) fn shown_command<T: AsRef<[u8]>>(argv: &[T]) -> String {
    let words: Vec<String> = argv
        .iter()
        .map(|word| {
            let text = crate::render::escape(word.as_ref());
            let is_plain = !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte));
            if is_plain {
                text
            } else {
                format!("'{}'", text.replace('\'', "'\\''"))
            }
        })
        .collect();
    words.join(" ")
}

/// Returns the command after `--`.
///
/// # Errors
/// A usage error if there is none.
fn command_words<'a>(
    command: &'a [std::ffi::OsString],
    example: &str,
) -> Result<&'a [std::ffi::OsString], CommandError> {
    if command.is_empty() {
        return Err(CommandError::usage(
            "no command was given",
            format!("name it after the flags, such as {}", one_of(&[example])),
        ));
    }
    Ok(command)
}
