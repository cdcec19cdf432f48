//! A sandbox's changes on their way to the host: collected, narrowed, taken over; and the way of a copy into a sandbox.
//!
//! In between stands a change set whose contents stay readable and, while it is held, a sandbox that holds still.

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
mod large_files;
pub mod outside;
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

/// The host's git.
pub const GIT: &str = "git";

/// Collected changes, and what they came from.
#[derive(Debug)]
pub struct SandboxChanges {
    /// The changes.
    pub collected: CollectedChanges,
    /// The project they are changes of.
    pub project: Option<PathBuf>,
    /// What the project looked like when the sandbox started from it.
    pub base: Option<BaseFile>,
    /// Whether its paths are those of the workspace.
    pub is_whole: bool,
    /// Held until the contents have been read.
    _frozen: Option<FrozenSandbox>,
}

impl SandboxChanges {
    /// Why the sandbox went on working meanwhile, if it did.
    pub fn unheld(&self) -> Option<&str> {
        let fault = self.collected.unheld.as_ref();
        fault.map(|fault| fault.message.as_str())
    }

    /// Keeps only what lies at or below one of `paths`; everything when there are none.
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

    /// Makes every path relative to `dir`, leaving out what lies elsewhere. If it is a file, that is all
    /// that stays, by its name.
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

/// Collects the changes of a named sandbox, running or not. `filter` says what comes back of a project.
///
/// # Errors
/// Whatever `filter` says; when there is no such sandbox, or its changes cannot be collected.
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

/// Collects the changes of a sandbox at hand.
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

/// Holds a running sandbox still. One that ended meanwhile is as still as can be.
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

/// The project that a sandbox at hand came from.
pub fn project_of(sandbox: &Sandbox) -> Option<PathBuf> {
    match copied::CopyOrigin::read(sandbox.dir()) {
        Some(origin) => Some(origin.project),
        None => sandbox.workspace_layers().ok()?.project,
    }
}

/// The project that a named sandbox came from.
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

/// Paths as typed: relative to where the user stands in the workspace, or absolute below it.
pub fn paths(typed: &[OsString], standing: Option<&RelPath>) -> Result<Vec<RelPath>, Error> {
    let parsed = typed.iter().map(|path| inside(Path::new(path), standing));
    // The workspace itself is no restriction.
    let parsed: Option<Vec<RelPath>> = parsed.collect::<Result<_, _>>()?;
    Ok(parsed.unwrap_or_default())
}

/// A path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullSource {
    /// The workspace.
    Workspace,
    /// A path in it.
    Inside(RelPath),
    /// An absolute path elsewhere.
    Outside(PathBuf),
}

/// Where to pull from, as typed: relative to where the user stands in the workspace, or absolute.
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

/// A path in the workspace as typed; `None` for the workspace itself.
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

/// The project's ignore rules, as it has them on the host, less what was named.
///
/// # Errors
/// When they cannot be read.
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

/// A patch that could not be written to `what`.
pub fn patch_error(error: PatchError, what: &str) -> Error {
    match error {
        PatchError::Content(fault) => SyncError::pull(Stage::Transfer, fault).into(),
        PatchError::Write(error) => Error::io(format!("write the patch to {what}"), &error),
    }
}

/// Where changes go unless somebody says otherwise.
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
