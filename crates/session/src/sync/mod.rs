//! Changes of a sandbox on their way to the host: collected, filtered, applied; and pushing a copy
//! of the project.
//!
//! In between is a change set whose contents stay readable and, while it is held, a frozen sandbox.

pub mod apply;
mod base;
mod below;
pub mod changes_json;
mod commit;
pub mod copied;
mod copied_git;
pub mod discard;
pub mod git_box;
pub mod git_commits;
mod git_inside;
pub mod git_state;
pub mod kept;
mod kept_dir;
mod large_files;
pub mod outside;
pub mod overlay;
pub mod settle;
pub mod shown;
pub mod single_file;
pub mod viewers;

pub use base::BaseIndex;

use crate::Error;
use crate::host::GitSettings;
use below::ChangesBelow;
use glovebox_proto::{Class, Code, Fault, Remedy, Setting};
use glovebox_sandbox::{FrozenSandbox, Name, Registry, Sandbox, SandboxState, WorkspaceLayers};
use glovebox_settings::Surroundings;
use glovebox_spec::WORKSPACE;
use glovebox_workspace::apply::BaseFile;
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::patch::PatchError;
use glovebox_workspace::{
    ChangeKind, CollectedChanges, Filter, IgnoreRules, Node, Quota, RelPath, Stage, SyncError,
    Watch,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The host's git program.
pub const GIT: &str = "git";

/// Collected changes, and their origin.
#[derive(Debug)]
pub struct SandboxChanges {
    /// The changes.
    pub collected: CollectedChanges,
    /// Project that they are changes of.
    pub project: Option<PathBuf>,
    /// Recorded state of the project at the start of the sandbox.
    pub base: Option<BaseFile>,
    /// True if the paths are relative to the workspace.
    pub is_whole: bool,
    /// Frozen sandbox, until the contents have been read.
    _frozen: Option<FrozenSandbox>,
}

impl SandboxChanges {
    /// Returns the reason why the sandbox was not frozen during the collection; `None` if it was.
    pub fn unheld(&self) -> Option<&str> {
        let fault = self.collected.unheld.as_ref();
        fault.map(|fault| fault.message.as_str())
    }

    /// Removes all changes that are not at or below one of `paths`. Empty `paths` keep everything.
    pub fn retain(&mut self, paths: &[RelPath]) {
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

    /// Makes every path relative to `dir` and removes changes elsewhere. If `dir` is a file, only
    /// its change is kept, under the file's name.
    pub fn rebase(&mut self, dir: &RelPath) {
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
        let empty = CollectedChanges::new(
            glovebox_workspace::ChangeSet::default(),
            Box::new(below::NoContents),
        );
        let whole = std::mem::replace(&mut self.collected, empty);
        self.collected = ChangesBelow::rebase(whole, &dir);
    }
}

/// Collects the changes of a named sandbox, running or not. `filter` returns the filter for a
/// project.
///
/// # Errors
/// Those of `filter`; there is no such sandbox, or its changes cannot be collected.
pub fn collect_named<E: From<Error>>(
    registry: &Registry,
    name: &Name,
    watch: &mut Watch<'_>,
    filter: impl FnOnce(Option<&Path>) -> Result<Filter, E>,
) -> Result<SandboxChanges, E> {
    let failed = |fault: Fault| E::from(fault.into());
    let Some(entry) = registry.entry(name).map_err(failed)? else {
        return Err(Error::no_sandbox(name).into());
    };
    if let Some(origin) = copied::CopyOrigin::read(&entry.dir) {
        let filter = filter(Some(&origin.project))?;
        let sandbox = registry.connect(name).map_err(failed)?;
        return Ok(copied::collect(&sandbox, origin, &filter, watch)?);
    }
    let layers = registry.workspace_layers(name).map_err(failed)?;
    let filter = filter(layers.project.as_deref())?;
    let frozen = match entry.state {
        SandboxState::Ready => freeze(registry, name)?,
        _ => None,
    };
    from_workspace(layers, frozen, &filter, watch).map_err(|error| E::from(error.into()))
}

/// Collects the changes of a connected sandbox, which is frozen meanwhile unless `is_still`.
///
/// # Errors
/// The changes cannot be collected, or `watch` stops that.
pub fn collect_own(
    sandbox: &Sandbox,
    filter: &Filter,
    is_still: bool,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, Error> {
    if let Some(origin) = copied::CopyOrigin::read(sandbox.dir()) {
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
    frozen: Option<FrozenSandbox>,
    filter: &Filter,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, SyncError> {
    let source = LayerPaths {
        project: layers.project.as_deref(),
        layers: &layers.layers,
        hidden: &layers.hidden,
        base: Some(&layers.base),
    };
    let mut collected = from_layers(&source, filter, &Quota::default(), watch)?;
    if let Some(Err(fault)) = frozen.as_ref().map(FrozenSandbox::verify)
        && fault.class != Class::Lost
    {
        collected.unheld = Some(fault);
    }
    Ok(SandboxChanges {
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

/// Freezes a running sandbox. `None` for one that has ended meanwhile or cannot be frozen.
fn freeze(registry: &Registry, name: &Name) -> Result<Option<FrozenSandbox>, Error> {
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

/// Returns the project of a connected sandbox.
pub fn project_of(sandbox: &Sandbox) -> Option<PathBuf> {
    match copied::CopyOrigin::read(sandbox.dir()) {
        Some(origin) => Some(origin.project),
        None => sandbox.workspace_layers().ok()?.project,
    }
}

/// Returns the project of a named sandbox.
pub fn project_of_named(registry: &Registry, name: &Name) -> Result<Option<PathBuf>, Error> {
    let Some(entry) = registry.entry(name)? else {
        return Err(Error::no_sandbox(name));
    };
    let layers = || registry.workspace_layers(name).ok();
    Ok(match copied::CopyOrigin::read(&entry.dir) {
        Some(origin) => Some(origin.project),
        None => layers().and_then(|layers| layers.project),
    })
}

/// Parses paths that the user typed: relative to the start directory in the workspace, or absolute
/// below it. Returns no paths if one of them is the workspace itself.
pub fn paths(typed: &[OsString], standing: Option<&RelPath>) -> Result<Vec<RelPath>, Error> {
    let parsed = typed.iter().map(|path| inside(Path::new(path), standing));
    // The workspace itself is no restriction, so the whole list is dropped.
    let parsed: Option<Vec<RelPath>> = parsed.collect::<Result<_, _>>()?;
    Ok(parsed.unwrap_or_default())
}

/// Location in a sandbox to pull from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullSource {
    /// The whole workspace.
    Workspace,
    /// A path in the workspace.
    Inside(RelPath),
    /// An absolute path outside of the workspace.
    Outside(PathBuf),
}

/// Parses a location that the user typed: relative to the start directory in the workspace, or
/// absolute.
pub fn source(typed: &Path, standing: Option<&RelPath>) -> Result<PullSource, Error> {
    let is_clean = |path: &Path| {
        path.components()
            .all(|part| part != std::path::Component::ParentDir)
    };
    if typed.is_absolute() && !typed.starts_with(WORKSPACE) && is_clean(typed) {
        return Ok(PullSource::Outside(typed.components().collect()));
    }
    Ok(inside(typed, standing)?.map_or(PullSource::Workspace, PullSource::Inside))
}

/// Parses a path in the workspace; `None` for the workspace itself.
pub fn inside(typed: &Path, standing: Option<&RelPath>) -> Result<Option<RelPath>, Error> {
    let wrong = || {
        Error::usage(
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
            // `..` may lead up to the workspace, but not out of it.
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

/// Returns the project's ignore rules as on the host, except for paths that the user named.
///
/// # Errors
/// The rules cannot be read.
pub fn ignore_rules(
    host: &Surroundings,
    project: &Path,
    named: &[RelPath],
) -> Result<IgnoreRules, Error> {
    let git = GitSettings::read(host, project);
    let mut rules = IgnoreRules::read(project, git.excludes_file.as_deref())?;
    rules.except(named);
    Ok(rules)
}

/// Converts an error of writing a patch to `what`.
pub fn patch_error(error: PatchError, what: &str) -> Error {
    match error {
        PatchError::Content(fault) => SyncError::pull(Stage::Transfer, fault).into(),
        PatchError::Write(error) => Error::io(format!("write the patch to {what}"), &error),
    }
}

/// Returns the default destination of changes: the project of the sandbox.
pub fn destination(taken: &SandboxChanges) -> Result<PathBuf, Error> {
    taken.project.clone().ok_or_else(|| {
        Error::usage(
            "the sandbox did not come from a project",
            Remedy::advice([
                "name the directory that its changes go to with ".into(),
                Setting::To.of("DIR"),
            ]),
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
            let outside = PullSource::Outside(PathBuf::from("/tmp/out"));
            assert_eq!(source(Path::new(typed), None).unwrap(), outside, "{typed}");
        }
        assert_eq!(
            source(Path::new("/workspace/"), None).unwrap(),
            PullSource::Workspace
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
