//! A sandbox's changes on their way to the host: collected, narrowed, shown.
//!
//! In: a sandbox (by name, or one we own) and what was asked for. Out: a change set whose contents
//! stay readable and, while it is held, a sandbox that holds still. What is done with it is in
//! [`apply`] and the commands.

pub(crate) mod after;
pub(crate) mod apply;
mod base;
mod below;
mod choices;
pub(crate) mod copied;
pub(crate) mod outside;
pub(crate) mod patch_file;
pub(crate) mod question;
pub(crate) mod screen;
mod select;

pub(crate) use base::BaseIndex;

use crate::cmd::{Cx, name};
use crate::exit::{CommandError, Kind};
use crate::host::GitQuestion;
use crate::render::{self, Talk};
use below::Below;
use glovebox_proto::{Class, Code, Fault};
use glovebox_sandbox::jail::spec::WORKSPACE;
use glovebox_sandbox::{Frozen, Registry, Sandbox, State, WorkspaceLayers};
use glovebox_settings::texts;
use glovebox_workspace::apply::BaseFile;
use glovebox_workspace::collect::{Layered, from_layers};
use glovebox_workspace::patch::PatchError;
use glovebox_workspace::{
    ChangeKind, Collected, Filter, IgnoreRules, Ignored, Node, Quota, Refusal, RelPath, Stage,
    SyncError, Watch,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The host's git.
pub(crate) const GIT: &str = "git";

/// Which changes of which sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The sandbox.
    pub name: &'a str,
    /// Patterns besides those of the configuration.
    pub exclude: &'a [String],
    /// Patterns besides those of the configuration.
    pub include: &'a [String],
    /// Paths that were named: they are taken although the project ignores them.
    pub named: &'a [RelPath],
    /// Whether all is taken that the project ignores.
    pub takes_ignored: bool,
}

/// Collected changes, and what they came from.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The changes.
    pub collected: Collected,
    /// The project they are changes of.
    pub project: Option<PathBuf>,
    /// What the project looked like when the sandbox started from it.
    pub base: Option<BaseFile>,
    /// Whether its paths are those of the workspace.
    pub is_whole: bool,
    /// Held until the contents have been read.
    _frozen: Option<Frozen>,
}

impl Taken {
    /// Why the sandbox went on working meanwhile, if it did.
    pub(crate) fn unheld(&self) -> Option<&str> {
        let fault = self.collected.unheld.as_ref();
        fault.map(|fault| fault.message.as_str())
    }

    /// Keeps only what lies at or below one of `paths`; everything when there are none.
    pub(crate) fn retain(&mut self, paths: &[RelPath]) {
        if paths.is_empty() {
            return;
        }
        let is_wanted = |path: &RelPath| paths.iter().any(|wanted| path.starts_with(wanted));
        self.collected.set.changes.retain(|change| {
            is_wanted(&change.path)
                || matches!(&change.kind, ChangeKind::Renamed { source, .. } if is_wanted(source))
        });
        self.collected.set.refused.retain(|refusal| {
            RelPath::new(refusal.path.clone()).is_ok_and(|path| is_wanted(&path))
        });
    }

    /// Makes every path relative to `dir`, leaving out what lies elsewhere. If it is a file, that is all
    /// that stays, by its name.
    pub(crate) fn rebase(&mut self, dir: &RelPath) {
        self.is_whole = false;
        let mut changes = self.collected.set.changes.iter();
        let is_file = changes
            .any(|change| change.path == *dir && change.to().or(change.from()) != Some(&Node::Dir));
        let dir = if is_file {
            self.retain(std::slice::from_ref(dir));
            match dir.parent() {
                Some(parent) => parent,
                None => return,
            }
        } else {
            dir.clone()
        };
        let empty = Collected::new(
            glovebox_workspace::ChangeSet::default(),
            Box::new(below::Nothing),
        );
        let whole = std::mem::replace(&mut self.collected, empty);
        self.collected = Below::rebase(whole, &dir);
    }
}

/// Says that a sandbox went on working while its changes were collected.
pub(crate) fn tell_unheld(talk: Talk, taken: &Taken) {
    if let Some(why) = taken.unheld() {
        talk.warning(format_args!(
            "the sandbox went on working while its changes were collected, so they may be of different moments: {}",
            render::escape_text(why)
        ));
    }
}

/// Collects the changes of a named sandbox, running or not.
pub(crate) fn collect(
    cx: &Cx,
    asked: &Asked<'_>,
    watch: &mut Watch<'_>,
) -> Result<Taken, CommandError> {
    let name = name(asked.name)?;
    let registry = cx.user_registry()?;
    let Some(entry) = registry.entry(&name)? else {
        return Err(no_sandbox(&name));
    };
    if let Some(origin) = copied::Origin::read(&entry.dir) {
        let filter = filter(cx, Some(&origin.project), asked)?;
        let sandbox = registry.connect(&name)?;
        return copied::collect(&sandbox, origin, &filter, watch);
    }
    let layers = registry.workspace_layers(&name)?;
    let filter = filter(cx, layers.project.as_deref(), asked)?;
    let frozen = match entry.state {
        State::Ready => Some(freeze(&registry, &name)?),
        _ => None,
    };
    Ok(from_workspace(layers, frozen.flatten(), &filter, watch)?)
}

/// Collects the changes of a sandbox at hand.
pub(crate) fn collect_own(
    sandbox: &Sandbox,
    filter: &Filter,
    is_still: bool,
    watch: &mut Watch<'_>,
) -> Result<Taken, CommandError> {
    if let Some(origin) = copied::Origin::read(sandbox.dir()) {
        return copied::collect(sandbox, origin, filter, watch);
    }
    let layers = sandbox.workspace_layers()?;
    let frozen = if is_still {
        None
    } else {
        sandbox.freeze().ok()
    };
    Ok(from_workspace(layers, frozen, filter, watch)?)
}

fn from_workspace(
    layers: WorkspaceLayers,
    frozen: Option<Frozen>,
    filter: &Filter,
    watch: &mut Watch<'_>,
) -> Result<Taken, SyncError> {
    let source = Layered {
        project: layers.project.as_deref(),
        layers: &layers.layers,
        hidden: &layers.hidden,
    };
    let mut collected = from_layers(&source, filter, &Quota::default(), watch)?;
    if let Some(Err(fault)) = frozen.as_ref().map(Frozen::verify)
        && fault.class != Class::Lost
    {
        collected.unheld = Some(fault);
    }
    Ok(Taken {
        collected,
        base: Some(BaseFile {
            index: layers.base,
            pushed_unix_ns: layers.pushed_unix_ns,
            git: PathBuf::from(GIT),
        }),
        project: layers.project,
        is_whole: true,
        _frozen: frozen,
    })
}

/// There is no sandbox of this name.
pub(crate) fn no_sandbox(name: &glovebox_sandbox::Name) -> CommandError {
    let fault = Fault::failed(
        Code::SandboxNotFound,
        format!("there is no sandbox `{name}`"),
    )
    .remedy("`glovebox list` shows those there are");
    CommandError::new(Kind::NotFound, fault)
}

/// Holds a running sandbox still. One that ended meanwhile is as still as can be.
fn freeze(
    registry: &Registry,
    name: &glovebox_sandbox::Name,
) -> Result<Option<Frozen>, CommandError> {
    let frozen = registry.connect(name).and_then(|sandbox| sandbox.freeze());
    match frozen {
        Ok(frozen) => Ok(Some(frozen)),
        Err(fault)
            if fault.class == Class::Lost
                || matches!(
                    fault.code,
                    Code::SandboxNotRunning | Code::SandboxNotFound | Code::Unsupported
                ) =>
        {
            Ok(None)
        }
        Err(fault) => Err(SyncError::pull(Stage::Collect, fault).into()),
    }
}

/// What comes back: patterns of the configuration, then those that were asked for.
fn filter(cx: &Cx, project: Option<&Path>, asked: &Asked<'_>) -> Result<Filter, CommandError> {
    let settings = cx.settings(project.filter(|project| project.is_dir()))?;
    let mut exclude = texts(&settings.sync.pull_exclude);
    exclude.extend_from_slice(asked.exclude);
    let mut include = texts(&settings.sync.pull_include);
    include.extend_from_slice(asked.include);
    let filter = Filter::new(&exclude, &include)?;
    let Some(project) = project.filter(|project| project.is_dir() && !asked.takes_ignored) else {
        return Ok(filter);
    };
    Ok(filter.without_ignored(ignore_rules(cx, project, asked.named)?))
}

/// The project's ignore rules, as it has them on the host, less what was named.
fn ignore_rules(cx: &Cx, project: &Path, named: &[RelPath]) -> Result<IgnoreRules, CommandError> {
    let git = GitQuestion::ask(&cx.host).answer(&cx.host);
    let mut rules = IgnoreRules::read(project, git.excludes_file.as_deref())?;
    rules.except(named);
    Ok(rules)
}

/// The project that a sandbox at hand came from.
fn project_of(sandbox: &Sandbox) -> Option<PathBuf> {
    match copied::Origin::read(sandbox.dir()) {
        Some(origin) => Some(origin.project),
        None => sandbox.workspace_layers().ok()?.project,
    }
}

/// The project that a named sandbox came from.
pub(crate) fn project_of_named(
    registry: &Registry,
    name: &glovebox_sandbox::Name,
) -> Result<Option<PathBuf>, CommandError> {
    let Some(entry) = registry.entry(name)? else {
        return Err(no_sandbox(name));
    };
    let layers = || registry.workspace_layers(name).ok();
    Ok(match copied::Origin::read(&entry.dir) {
        Some(origin) => Some(origin.project),
        None => layers().and_then(|layers| layers.project),
    })
}

/// Where the user stands in the project of a named sandbox, as what is typed relative to it is meant; the
/// workspace itself for who stands elsewhere.
pub(crate) fn standing(cx: &Cx, typed_name: &str) -> Result<Option<RelPath>, CommandError> {
    let project = project_of_named(&cx.user_registry()?, &name(typed_name)?)?;
    let below = project.map(|project| cx.host.start_dir(&project));
    Ok(below.and_then(|below| RelPath::new(below.as_os_str().as_bytes()).ok()))
}

/// Says what is left out because the project ignores it. `ends`: the sandbox does not stay.
pub(crate) fn tell_ignored(talk: Talk, ignored: &Ignored, ends: bool) {
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
        "{} ({}) left out because the project ignores them: {}; {}--ignored takes them",
        render::plural(ignored.paths as usize, "file", "files"),
        glovebox_settings::units::human_bytes(ignored.bytes),
        names.join(", "),
        if ends {
            "they go with the sandbox, "
        } else {
            ""
        }
    ));
}

/// Paths as typed: relative to where the user stands in the workspace, or absolute below it.
pub(crate) fn paths(
    typed: &[OsString],
    standing: Option<&RelPath>,
) -> Result<Vec<RelPath>, CommandError> {
    let parsed = typed.iter().map(|path| inside(Path::new(path), standing));
    // The workspace itself is no restriction.
    let parsed: Option<Vec<RelPath>> = parsed.collect::<Result<_, _>>()?;
    Ok(parsed.unwrap_or_default())
}

/// A path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The workspace.
    Workspace,
    /// A path in it.
    Inside(RelPath),
    /// An absolute path elsewhere.
    Outside(PathBuf),
}

/// Where to pull from, as typed: relative to where the user stands in the workspace, or absolute.
pub(crate) fn source(typed: &Path, standing: Option<&RelPath>) -> Result<Source, CommandError> {
    let is_clean = |path: &Path| {
        path.components()
            .all(|part| part != std::path::Component::ParentDir)
    };
    if typed.is_absolute() && !typed.starts_with(WORKSPACE) && is_clean(typed) {
        return Ok(Source::Outside(typed.components().collect()));
    }
    Ok(inside(typed, standing)?.map_or(Source::Workspace, Source::Inside))
}

/// A path in the workspace as typed; `None` for the workspace itself.
pub(crate) fn inside(
    typed: &Path,
    standing: Option<&RelPath>,
) -> Result<Option<RelPath>, CommandError> {
    let wrong = || {
        CommandError::usage(
            format!("`{}` does not lie in the workspace", typed.display()),
            format!("name a path below {WORKSPACE}, or one relative to it"),
        )
    };
    let mut clean: Vec<&[u8]> = Vec::new();
    let relative = if typed.is_absolute() {
        typed.strip_prefix(WORKSPACE).map_err(|_| wrong())?
    } else {
        clean.extend(standing.into_iter().flat_map(RelPath::components));
        typed
    };
    for part in relative.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::Normal(part) => clean.push(part.as_bytes()),
            // Up to the workspace, and no further.
            std::path::Component::ParentDir if !typed.is_absolute() => {
                clean.pop().ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    if clean.is_empty() {
        return Ok(None);
    }
    RelPath::new(clean.join(&b'/'))
        .map(Some)
        .map_err(|_| wrong())
}

/// Says what stays in the sandbox.
pub(crate) fn tell_refused(talk: Talk, refused: &[Refusal]) {
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

/// A path of the user's as a word of a command line.
pub(crate) fn shown_path(path: &Path) -> String {
    crate::cmd::shown_command(&[path.as_os_str().as_bytes()])
}

/// Adds the command to try again.
pub(crate) fn with_remedy(mut error: CommandError, command: &str) -> CommandError {
    // Doing the same once more would not help with these.
    let is_final = matches!(
        error.fault.code,
        Code::SandboxNotFound | Code::AlreadyExists | Code::InvalidArgument
    );
    if is_final || matches!(error.kind, Kind::Usage | Kind::BrokenPipe) {
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

/// A patch that could not be written to `what`.
pub(crate) fn patch_error(error: PatchError, what: &str) -> CommandError {
    match error {
        PatchError::Content(fault) => SyncError::pull(Stage::Transfer, fault).into(),
        PatchError::Write(error) => CommandError::io(format!("write the patch to {what}"), &error),
    }
}

/// Where changes go unless somebody says otherwise.
pub(crate) fn destination(taken: &Taken) -> Result<PathBuf, CommandError> {
    taken.project.clone().ok_or_else(|| {
        CommandError::usage(
            "the sandbox did not come from a project",
            "name the directory that its changes go to with --to DIR",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_workspace_however_they_are_typed() {
        let name = |typed: &str| {
            inside(Path::new(typed), None)
                .unwrap()
                .map(|path| String::from_utf8(path.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(name("src/x").as_deref(), Some("src/x"));
        assert_eq!(name("./src//x/").as_deref(), Some("src/x"));
        assert_eq!(name("/workspace/src").as_deref(), Some("src"));
        assert_eq!(name("/workspace"), None);
        assert_eq!(name("."), None);
        for typed in ["/tmp/out", "/tmp//out/", "/tmp/./out"] {
            let outside = Source::Outside(PathBuf::from("/tmp/out"));
            assert_eq!(source(Path::new(typed), None).unwrap(), outside, "{typed}");
        }
        assert_eq!(
            source(Path::new("/workspace/"), None).unwrap(),
            Source::Workspace
        );
        assert!(source(Path::new("/tmp/../etc"), None).is_err());
        for wrong in ["/etc", "../x", "a/../../x", "/workspacex"] {
            assert!(inside(Path::new(wrong), None).is_err(), "{wrong}");
        }
        let standing = RelPath::new("crates/a").unwrap();
        let from = |typed: &str| inside(Path::new(typed), Some(&standing));
        for (typed, want) in [
            ("src/x", Some("crates/a/src/x")),
            (".", Some("crates/a")),
            ("../b", Some("crates/b")),
            ("/workspace/b", Some("b")),
            ("../..", None),
        ] {
            let want = want.map(|path| RelPath::new(path).unwrap());
            assert_eq!(from(typed).unwrap(), want, "{typed}");
        }
        assert!(from("../../..").is_err() && from("/workspace/../x").is_err());
    }
}
