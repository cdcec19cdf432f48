//! Changes of a session: collected from its sandbox, listed, and applied to its project.

use super::App;
use super::request::held_elsewhere;
use super::tools::Unheard;
use glovebox_proto::{Code, Fault};
use glovebox_session::host::now_unix_ms;
use glovebox_session::sync::apply::{self, ApplyOutcome, ApplyTarget, ReviewAnswer};
use glovebox_session::sync::changes_json::{changes_json, outcome_json};
use glovebox_session::sync::shown::{self, ShownState};
use glovebox_session::sync::{
    SandboxChanges, collect_named, copied, destination, ignore_rules, outside, patch_error, paths,
};
use glovebox_session::{Error, Frontend as _};
use glovebox_settings::texts;
use glovebox_workspace::patch::{self, Style};
use glovebox_workspace::{CollectedChanges, Filter, RelPath, Resolution};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use tracing::warn;
use utoipa::ToSchema;

/// Maximum length of a patch, in bytes.
const MAX_PATCH_BYTES: usize = 64 << 20;

/// Maximum number of conflicts in a stored outcome.
const MAX_KEPT_PATHS: usize = 1000;

/// Decision about a file that both sides changed in a way that cannot be merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConflictChoice {
    /// The project's version stays; the session's is put beside it.
    #[default]
    Beside,
    /// The session's version is taken; the project's is kept as `PATH.orig`.
    Theirs,
    /// Both are put into the file, between markers.
    Markers,
}

impl From<ConflictChoice> for Resolution {
    fn from(choice: ConflictChoice) -> Self {
        match choice {
            ConflictChoice::Beside => Self::Beside,
            ConflictChoice::Theirs => Self::Theirs,
            ConflictChoice::Markers => Self::Markers,
        }
    }
}

/// One decision about all conflicts, or one for each path; `beside` for those that are not named.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ConflictChoices {
    /// About all.
    All(ConflictChoice),
    /// By path.
    ByPath(BTreeMap<String, ConflictChoice>),
}

impl Default for ConflictChoices {
    fn default() -> Self {
        Self::All(ConflictChoice::default())
    }
}

/// Version of a path in conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConflictSide {
    /// The version from which both sides went on, where it was kept.
    Base,
    /// The project's.
    Project,
    /// The session's.
    Sandbox,
}

impl From<ConflictSide> for shown::ConflictSide {
    fn from(side: ConflictSide) -> Self {
        match side {
            ConflictSide::Base => Self::Base,
            ConflictSide::Project => Self::Project,
            ConflictSide::Sandbox => Self::Sandbox,
        }
    }
}

/// A request to apply changes to the project.
#[derive(Debug, Default)]
pub(crate) struct ApplyWish {
    /// Paths to apply, each with everything below it. Empty applies all changes.
    pub paths: Vec<String>,
    pub conflicts: ConflictChoices,
    /// Digest of the changes that the user saw. None applies the current changes.
    pub digest: Option<String>,
}

impl App {
    fn collect(&self, id: &str) -> Result<SandboxChanges, Error> {
        self.collect_after(id, |_| {})
    }

    /// Collects the changes. First calls `prepare` with the project's directory, if there is a
    /// project.
    fn collect_after(
        &self,
        id: &str,
        prepare: impl FnOnce(&Path),
    ) -> Result<SandboxChanges, Error> {
        let name = self.session_sandbox(id)?;
        let rules = &self.config.settings.sync;
        let host = &self.config.host;
        let mut watch = Unheard.watch_progress();
        collect_named(&self.config.registry, &name, &mut *watch, |project| {
            let (exclude, include) = (texts(&rules.pull_exclude), texts(&rules.pull_include));
            let filter = Filter::new(&exclude, &include)?;
            Ok(match project {
                Some(project) => {
                    prepare(project);
                    filter.without_ignored(ignore_rules(host, project, &[])?)
                }
                None => filter,
            })
        })
    }

    /// Collects all files of a session's workspace in their current state.
    pub(crate) fn collect_workspace(&self, id: &str) -> Result<CollectedChanges, Error> {
        let name = self.session_sandbox(id)?;
        let opened = self.open_sandbox(&name)?;
        let sandbox = opened.work.sandbox();
        let root = copied::root(sandbox);
        let root = Path::new(OsStr::from_bytes(&root));
        let mut watch = Unheard.watch_progress();
        let everything = || Ok::<_, Error>(Filter::new(&[], &[])?);
        Ok(outside::collect(sandbox, root, &mut *watch, everything)?.collected)
    }

    /// Returns the changes as a patch for `git apply`, and the digest of the changes it shows.
    ///
    /// # Errors
    /// `too-large` if the patch exceeds `MAX_PATCH_BYTES`.
    pub(crate) fn patch(&self, id: &str) -> Result<(Vec<u8>, String), Error> {
        let collected = self.collect(id)?;
        let shown = ShownState::read(&collected, collected.project.as_deref())?;
        let view = apply::view(&collected, collected.project.as_deref())?;
        let mut out = Bounded(Vec::new());
        match patch::write(&view.collected, Style::Exact, &mut out) {
            Ok(()) => Ok((out.0, shown.digest())),
            Err(patch::PatchError::Write(_)) => Err(Fault::failed(
                Code::TooLarge,
                format!("the patch has more than {} MiB", MAX_PATCH_BYTES >> 20),
            )
            .remedy("ask for `format=json`, and for the files that matter")
            .into()),
            Err(error) => Err(patch_error(error, "the client")),
        }
    }

    /// Returns the changes as a list, with the digest of the changes it shows.
    pub(crate) fn changes(&self, id: &str) -> Result<Value, Error> {
        let collected = self.collect(id)?;
        let project = collected.project.as_deref();
        let shown = ShownState::read(&collected, project)?;
        let view = apply::view(&collected, project)?;
        let mut list = changes_json(&view.collected.set);
        list["digest"] = shown.digest().into();
        if let Value::Object(mut outcome) = outcome_json(&view.outcome) {
            let mut conflicts = outcome.remove("conflicts").unwrap_or_default();
            if let (Some(project), Some(entries)) = (project, conflicts.as_array_mut()) {
                for (entry, conflict) in entries.iter_mut().zip(&view.outcome.conflicts) {
                    let versions = shown::look_at_conflict(&collected, project, &conflict.path)?;
                    entry["is_text"] = versions.is_text.into();
                    entry["project_bytes"] = versions.project_bytes.into();
                    entry["sandbox_bytes"] = versions.sandbox_bytes.into();
                }
            }
            list["conflicts"] = conflicts;
            list["merged"] = outcome.remove("merged").unwrap_or_default();
        }
        list["last_apply"] = self.owners.outcome(id)?;
        let stats = patch::stat(&view.collected)?;
        let stats = stats.iter().map(|stat| {
            serde_json::json!({
                "path": String::from_utf8_lossy(stat.path.as_bytes()),
                "insertions": stat.insertions,
                "deletions": stat.deletions,
                "is_binary": stat.binary.is_some(),
            })
        });
        list["files"] = stats.collect();
        Ok(list)
    }

    /// Reads one version of a path in conflict.
    ///
    /// # Errors
    /// `not-found` if this version does not exist.
    pub(crate) fn read_conflict(
        &self,
        id: &str,
        path: &str,
        side: ConflictSide,
    ) -> Result<Vec<u8>, Error> {
        let collected = self.collect(id)?;
        let to = destination(&collected)?;
        let path = parse_path(path)?;
        let version = shown::read_conflict(&collected, &to, &path, side.into())?;
        version.ok_or_else(|| {
            let message = "there is no such version of this path";
            Fault::failed(Code::NotFound, message).into()
        })
    }

    /// Applies changes to the project and returns the outcome.
    ///
    /// # Errors
    /// `changed` if files differ from those of the request's digest; nothing is applied then.
    pub(crate) fn apply(&self, id: &str, wish: &ApplyWish) -> Result<Value, Error> {
        // With each request: the operator may have made the source read-only since the session
        // began.
        self.check_apply(id)?;
        let typed: Vec<OsString> = wish.paths.iter().map(OsString::from).collect();
        let wanted = paths(&typed, None)?;
        let (conflicts, by_path) = match &wish.conflicts {
            ConflictChoices::All(choice) => (Resolution::from(*choice), None),
            ConflictChoices::ByPath(choices) => (Resolution::Beside, Some(choices)),
        };
        let choices = by_path.into_iter().flatten();
        let choices = choices.map(|(path, choice)| Ok((parse_path(path)?, (*choice).into())));
        let choices: BTreeMap<RelPath, Resolution> = choices.collect::<Result<_, Fault>>()?;
        let state_dir = self.config.registry.state_dir();
        let mut collected =
            self.collect_after(id, |project| apply::recover_project(project, state_dir))?;
        let to = destination(&collected)?;
        let shown = match &wish.digest {
            Some(digest) => {
                let shown = ShownState::read(&collected, Some(&to))?;
                if shown.digest() != *digest {
                    return Err(not_shown().into());
                }
                Some(shown)
            }
            None => None,
        };
        // After the digest was compared: it covers all changes that were listed, not only the
        // chosen ones.
        collected.retain(&wanted);
        let target = ApplyTarget {
            to: &to,
            conflicts,
            choices: &choices,
            undo: Some(apply::UndoStore {
                state_dir,
                is_required: false,
            }),
            told: Some(apply::ToldSandboxes {
                state_dir,
                by: None,
            }),
        };
        let mut watch = Unheard.watch_progress();
        // The plan exists by now, and the commit compares each path once more. This check closes
        // the gap between the digest and the plan, so no change of the project goes unseen.
        let mut agree = |review: &apply::Review<'_>| match &shown {
            Some(shown) if !shown.is_destination_of(review)? => Err(Error::from(not_shown())),
            _ => Ok(ReviewAnswer::Yes),
        };
        let supervisor = &self.config.supervisor;
        let applied = apply::apply(collected, target, supervisor, &mut *watch, &mut agree)
            .map_err(held_elsewhere)?;
        let outcome = match applied {
            ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) => outcome,
            ApplyOutcome::Declined(_) => return Ok(Value::Null),
        };
        let outcome = outcome_json(&outcome);
        // The changes are already in the project: a full disk must not turn that into a failure.
        if let Err(fault) = self.owners.set_outcome(id, &kept_outcome(&outcome)) {
            warn!(
                session = id,
                error = fault.message,
                "the outcome of an Apply is not kept"
            );
        }
        Ok(outcome)
    }
}

/// Returns the part of an outcome that is stored: all counts, and at most `MAX_KEPT_PATHS`
/// conflicts.
fn kept_outcome(outcome: &Value) -> Value {
    let count = |name: &str| outcome[name].as_array().map_or(0, Vec::len);
    let conflicts = outcome["conflicts"].as_array().into_iter().flatten();
    json!({
        "at_unix_ms": now_unix_ms(),
        "counts": {
            "applied": count("applied"),
            "already_there": count("already_there"),
            "conflicts": count("conflicts"),
            "refused": count("refused"),
        },
        "conflicts": conflicts.take(MAX_KEPT_PATHS).collect::<Vec<_>>(),
    })
}

fn parse_path(path: &str) -> Result<RelPath, Fault> {
    RelPath::new(path.as_bytes()).map_err(|_| {
        let message = "a path is relative to the workspace, without `.` and `..`";
        Fault::failed(Code::InvalidArgument, message)
    })
}

fn not_shown() -> Fault {
    let message = "files have changed since these changes were shown; nothing was applied";
    Fault::failed(Code::Changed, message).remedy("look at the changes again, then apply them")
}

/// A buffer that refuses writes beyond `MAX_PATCH_BYTES`.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PATCH_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
