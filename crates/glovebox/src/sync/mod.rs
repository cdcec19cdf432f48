//! A sandbox's changes for the host: collected, filtered, displayed.
//!
//! In: a sandbox (by name, or one that this process owns) and the request. Out: a change set whose
//! contents stay readable while the sandbox is frozen. `glovebox_session::sync` processes it;
//! [`apply`], [`settle`] and the commands ask and report.

pub(crate) mod apply;
mod choices;
pub(crate) mod git;
pub(crate) mod patch_file;
pub(crate) mod question;
pub(crate) mod screen;
mod select;
pub(crate) mod settle;

pub(crate) use screen::tell_hidden;

pub(crate) use glovebox_session::sync::{
    BaseIndex, PullSource, SandboxChanges, collect_own, copied, destination, overlay, paths,
    project_of_named, source,
};

use crate::cmd::run::supervisor;
use crate::cmd::{Cx, TerminalFrontend, name};
use crate::exit::{CommandError, Kind};
use crate::render::{self, Messages};
use glovebox_proto::{Class, Code};
use glovebox_sandbox::{Name, Registry, SandboxState};
use glovebox_session::WorkSession;
use glovebox_session::sync::discard::{DiscardCount, DiscardedWork};
use glovebox_session::sync::{collect_named, ignore_rules, kept, outside};
use glovebox_session::work::WorkContext;
use glovebox_settings::texts;
use glovebox_workspace::patch::PatchError;
use glovebox_workspace::{Filter, IgnoredChanges, RefusedPath, RelPath, Watch};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Creates the error for a sandbox that does not exist.
pub(crate) fn no_sandbox(name: &glovebox_sandbox::Name) -> CommandError {
    glovebox_session::Error::no_sandbox(name).into()
}

/// Creates the error for a patch that could not be written to `what`.
pub(crate) fn patch_error(error: PatchError, what: &str) -> CommandError {
    glovebox_session::sync::patch_error(error, what).into()
}

/// Changes that a command asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangesRequest<'a> {
    /// Name of the sandbox.
    pub name: &'a str,
    /// Patterns to exclude, in addition to those of the configuration.
    pub exclude: &'a [String],
    /// Patterns to include, in addition to those of the configuration.
    pub include: &'a [String],
    /// Paths that the user named; they are included although the project ignores them.
    pub named: &'a [RelPath],
    /// True if everything that the project ignores is included.
    pub takes_ignored: bool,
    /// True if the changes go to the project; an interrupted pull there is then finished or undone
    /// first.
    pub recovers_project: bool,
}

/// Warns that the sandbox was not frozen while its changes were collected. None means that it was.
pub(crate) fn tell_unheld(talk: Messages, reason: Option<&str>) {
    if let Some(why) = reason {
        talk.warning(format_args!(
            "the sandbox went on working while its changes were collected, so they may be of different moments: {}",
            render::escape_text(why)
        ));
    }
}

/// Collects the changes of a named sandbox, running or not.
pub(crate) fn collect(
    cx: &Cx,
    asked: &ChangesRequest<'_>,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, CommandError> {
    let registry = Arc::new(cx.user_registry()?);
    let name = name(asked.name)?;
    let woken = match wake_remote(cx, &registry, &name) {
        Err(error) if error.fault.class != Class::Refused => {
            return collect_fetched(cx, &registry, &name, asked, watch)?.ok_or(error);
        }
        woken => woken?,
    };
    let collected = collect_named(&registry, &name, watch, |project| {
        if let Some(project) = project.filter(|_| asked.recovers_project) {
            glovebox_session::sync::apply::recover_project(project, registry.state_dir());
        }
        filter(cx, project, asked)
    });
    if let Some(work) = woken {
        work.sandbox().stop("its changes were collected")?;
    }
    collected
}

/// Starts a stopped sandbox whose files are kept by a service. None for any other sandbox.
fn wake_remote(
    cx: &Cx,
    registry: &Arc<Registry>,
    name: &Name,
) -> Result<Option<WorkSession>, CommandError> {
    let is_stopped = registry
        .entry(name)?
        .is_some_and(|entry| entry.state != SandboxState::Ready);
    if !is_stopped || !registry.spec(name)?.backend.capabilities().keeps_files {
        return Ok(None);
    }
    let caller = WorkContext {
        host: &cx.host,
        registry,
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    Ok(WorkSession::resume(&caller, name)?)
}

/// Returns the changes of an unreachable sandbox as they were last fetched, with a warning. None if
/// none were fetched.
fn collect_fetched(
    cx: &Cx,
    registry: &Registry,
    name: &Name,
    asked: &ChangesRequest<'_>,
    watch: &mut Watch<'_>,
) -> Result<Option<SandboxChanges>, CommandError> {
    let Some(entry) = registry.entry(name)? else {
        return Ok(None);
    };
    let project = project_of_named(registry, name)?;
    let filter = filter(cx, project.as_deref(), asked)?;
    let Some((changes, fetched)) = kept::collect_last(&entry.dir, &filter, watch)? else {
        return Ok(None);
    };
    let age = fetched.elapsed().unwrap_or_default().as_secs();
    cx.talk.warning(format_args!(
        "the machine of `{name}` cannot be reached; these are its changes as they were fetched {age} s ago"
    ));
    Ok(Some(changes))
}

/// Fetches a path outside the workspace of a named sandbox: one file, or a directory filtered by
/// `asked`.
pub(crate) fn collect_outside(
    cx: &Cx,
    asked: &ChangesRequest<'_>,
    from: &Path,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, CommandError> {
    let sandbox = cx.user_registry()?.connect(&name(asked.name)?)?;
    outside::collect(&sandbox, from, watch, || filter(cx, None, asked))
}

/// Creates the filter from the patterns of the configuration and of the request.
fn filter(
    cx: &Cx,
    project: Option<&Path>,
    asked: &ChangesRequest<'_>,
) -> Result<Filter, CommandError> {
    let settings = cx.settings(project.filter(|project| project.is_dir()))?;
    let mut exclude = texts(&settings.sync.pull_exclude);
    exclude.extend_from_slice(asked.exclude);
    let mut include = texts(&settings.sync.pull_include);
    include.extend_from_slice(asked.include);
    let filter = Filter::new(&exclude, &include)?;
    let Some(project) = project.filter(|project| project.is_dir() && !asked.takes_ignored) else {
        return Ok(filter);
    };
    Ok(filter.without_ignored(ignore_rules(&cx.host, project, asked.named)?))
}

/// Returns the user's current directory relative to the project of a named sandbox, against which
/// typed paths are resolved. None if it is outside the project.
pub(crate) fn standing(cx: &Cx, typed_name: &str) -> Result<Option<RelPath>, CommandError> {
    let project = project_of_named(&cx.user_registry()?, &name(typed_name)?)?;
    let below = project.map(|project| cx.host.start_dir(&project));
    Ok(below.and_then(|below| RelPath::new(below.as_os_str().as_bytes()).ok()))
}

/// Reports the changes that are left out because the project ignores them. `ends` is true if the
/// sandbox is removed afterwards.
pub(crate) fn tell_ignored(talk: Messages, ignored: &IgnoredChanges, ends: bool) {
    const MAX_NAMES: usize = 3;
    if ignored.paths == 0 {
        return;
    }
    // TRUST: the sandbox chose these names.
    let names = ignored.largest(MAX_NAMES).into_iter();
    let mut names: Vec<String> = names.map(|name| render::escape(name.as_bytes())).collect();
    if ignored.tops.len() > MAX_NAMES {
        names.push("...".to_owned());
    }
    talk.note(format_args!(
        "{} ({}) left out because {}: {}; {}--ignored takes them",
        render::plural(ignored.paths as usize, "file", "files"),
        glovebox_settings::units::human_bytes(ignored.bytes),
        if ignored.has_new_rules {
            "the new .gitignore covers them"
        } else {
            "the project ignores them"
        },
        names.join(", "),
        if ends {
            "they go with the sandbox, "
        } else {
            ""
        }
    ));
}

/// Reports what was discarded with a sandbox: changes, commits and other git work. Prints nothing
/// if there was none.
pub(crate) fn tell_discarded(talk: Messages, work: &DiscardedWork, hint: &str) {
    let changes = match work.changes {
        DiscardCount::None | DiscardCount::Changes(0) => None,
        DiscardCount::Changes(count) => Some(render::plural(count, "change", "changes")),
        DiscardCount::Uncounted => Some("its changes were".to_owned()),
    };
    let git = git::list_parts(&work.git, None);
    let parts: Vec<String> = changes.into_iter().chain(git).collect();
    if let Some(what) = git::in_a_row(&parts) {
        let comma = if work.git.is_uncounted { "," } else { "" };
        talk.note(format_args!("{what}{comma} discarded{hint}"));
    }
}

/// Reports the paths that stay in the sandbox.
pub(crate) fn tell_refused(talk: Messages, refused: &[RefusedPath]) {
    if refused.is_empty() || talk.is_quiet {
        return;
    }
    talk.note(format_args!(
        "{} in the sandbox:\n{}",
        if refused.len() == 1 {
            "one path stays".to_owned()
        } else {
            format!("{} paths stay", refused.len())
        },
        render::refused(refused).trim_end()
    ));
}

/// Quotes a path of the user's as a word of a command line.
pub(crate) fn shown_path(path: &Path) -> String {
    crate::cmd::shown_command(&[path.as_os_str().as_bytes()])
}

/// Adds the command to try again as hint.
pub(crate) fn with_remedy(mut error: CommandError, command: &str) -> CommandError {
    // Repeating the command would not help with these.
    let is_final = matches!(
        error.fault.code,
        Code::SandboxNotFound | Code::AlreadyExists | Code::InvalidArgument
    );
    // A named object does not exist, found before the push or pull began.
    let is_absent = error.kind == Kind::NotFound && error.at.is_none();
    if is_final || is_absent || matches!(error.kind, Kind::Usage | Kind::BrokenPipe) {
        return error;
    }
    let again =
        format!("nothing was changed and the sandbox is as it was; try again with `{command}`");
    error.fault.remedy = Some(match error.fault.remedy.take() {
        Some(remedy) => remedy.then(format!("; {again}")),
        None => again.into(),
    });
    error
}
