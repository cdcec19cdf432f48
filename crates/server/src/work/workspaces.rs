//! Workspaces of sessions: their origin, where their changes may be applied, and when the server
//! removes its own directories.
//!
//! A session begins with the server's project, with a source of the operator, with an upload of its
//! user, or with an empty directory of its own. The sandbox writes to layers over it. A directory
//! of its own is removed with the last session and the last sandbox that use it.

use super::{App, TaskRequest};
use crate::store::{SessionWorkspace, WorkspaceChoice};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::sync::project_of_named;
use glovebox_session::work::WarmSandbox;
use glovebox_settings::{Settings, SourceDir};
use std::fs;
use std::path::{Path, PathBuf};

/// Advice for sessions whose changes cannot be applied.
const INSTEAD_OF_APPLY: &str = "take the changes along as a patch, GET /api/sessions/{id}/diff, or all files, GET \
                                /api/sessions/{id}/workspace";
/// Name of the directory that serves as project of health probes.
const PROBE: &str = "probe";

/// Directory of a new session or sandbox. A directory that was made for it is removed when this is
/// dropped, unless `keep` was called.
#[derive(Debug)]
pub(super) struct NewWorkspace {
    dir: PathBuf,
    is_own: bool,
    warm: Option<WarmSandbox>,
}

impl NewWorkspace {
    /// Wraps a directory that exists already and is never removed.
    pub(super) fn existing(dir: PathBuf) -> Self {
        Self {
            dir,
            is_own: false,
            warm: None,
        }
    }

    /// Takes the warm sandbox that works over the directory, if there is one.
    pub(super) fn take_warm(&mut self) -> Option<WarmSandbox> {
        self.warm.take()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory, which now belongs to a session or a sandbox and is not removed.
    pub(super) fn keep(mut self) -> PathBuf {
        self.is_own = false;
        std::mem::take(&mut self.dir)
    }
}

impl Drop for NewWorkspace {
    fn drop(&mut self) {
        if self.is_own {
            // The directory is still empty: `remove_dir` fails rather than delete files.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Returns the directory of the workspaces of sessions without a project.
pub(super) fn workspaces_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("server/workspaces")
}

impl App {
    /// Returns the directory of the workspaces of sessions without a project.
    fn workspaces_dir(&self) -> PathBuf {
        workspaces_dir(&self.config.state_dir)
    }

    /// Returns the project directory of health probes.
    pub(super) fn probe_dir(&self) -> PathBuf {
        self.workspaces_dir().join(PROBE)
    }

    /// Returns the source of this name.
    ///
    /// # Errors
    /// `not-found`, with the names of the sources.
    fn source(&self, name: &str) -> Result<&SourceDir, Fault> {
        let sources = &self.config.sources;
        let found = sources.iter().find(|source| source.name == name);
        found.ok_or_else(|| {
            let shown: String = name.escape_debug().take(64).collect();
            let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
            let remedy = match names.as_slice() {
                [] => "this server has no sources; leave `workspace` out".to_owned(),
                names => format!("name one of: {}", names.join(", ")),
            };
            Fault::failed(Code::NotFound, format!("there is no source `{shown}`")).remedy(remedy)
        })
    }

    /// Returns the origin of a new session's workspace.
    pub(super) fn beginning_of(&self, choice: Option<&WorkspaceChoice>) -> SessionWorkspace {
        match (choice, &self.config.project) {
            (Some(choice), _) => SessionWorkspace::Chosen(choice.clone()),
            (None, Some(_)) => SessionWorkspace::Project,
            (None, None) => SessionWorkspace::Own,
        }
    }

    /// Separates the caches of users. A session over a directory of its own has no caches: no other
    /// session could use them, and warm sandboxes, which belong to no user yet, have the same
    /// settings.
    pub(super) fn lay_caches(
        settings: &mut Settings,
        user: &str,
        workspace: Option<&SessionWorkspace>,
    ) {
        if workspace == Some(&SessionWorkspace::Own) {
            settings.cache.value = false;
        }
        settings.cache_owner = Some(user.to_owned());
    }

    /// Returns the workspace of a new session or sandbox of `user`.
    ///
    /// # Errors
    /// `not-found` if the source or the upload does not exist.
    pub(super) fn workspace_for(
        &self,
        user: &str,
        choice: Option<&WorkspaceChoice>,
    ) -> Result<NewWorkspace, Error> {
        match choice {
            Some(WorkspaceChoice::Source(name)) => {
                Ok(NewWorkspace::existing(self.source(name)?.dir.clone()))
            }
            Some(WorkspaceChoice::Upload(id)) => self.use_upload(user, id),
            None => match &self.config.project {
                Some(project) => Ok(NewWorkspace::existing(project.clone())),
                None => self.make_workspace(),
            },
        }
    }

    /// Returns the workspace of a new session of `user`, with a warm sandbox if one fits and is
    /// ready.
    pub(super) fn session_workspace(
        &self,
        user: &str,
        request: &TaskRequest,
    ) -> Result<NewWorkspace, Error> {
        let choice = request.workspace.as_ref();
        // A phase needs other settings than a warm sandbox has. A session that must wait in the
        // queue would keep the warm sandbox from others.
        if choice.is_none()
            && request.phase.is_none()
            && self.config.project.is_none()
            && self.queue.has_turn_for(user)
            && let Some(warm) = self.take_warm()
        {
            return Ok(NewWorkspace {
                dir: warm.workspace().to_owned(),
                is_own: true,
                warm: Some(warm),
            });
        }
        self.workspace_for(user, choice)
    }

    fn make_workspace(&self) -> Result<NewWorkspace, Error> {
        let dir = self.workspaces_dir().join(Name::random("w").as_str());
        fs::create_dir_all(&dir)
            .map_err(|error| Error::io(format!("make the workspace {}", dir.display()), &error))?;
        Ok(NewWorkspace {
            dir,
            is_own: true,
            warm: None,
        })
    }

    /// Checks that the changes of a session may be applied.
    ///
    /// # Errors
    /// `read-only` for an upload and for a read-only source; `permission-denied` if the operator no
    /// longer lists the source, or if no row says with what the session began.
    pub(crate) fn check_apply(&self, id: &str) -> Result<(), Fault> {
        let began = self.find(id)?.map(|info| info.project);
        self.check_workspace(self.owners.workspace(id)?.as_ref(), began.as_deref())
    }

    /// Checks the same for the row of a session; `began` is the directory that the session works
    /// over.
    pub(crate) fn check_workspace(
        &self,
        workspace: Option<&SessionWorkspace>,
        began: Option<&Path>,
    ) -> Result<(), Fault> {
        match workspace {
            Some(SessionWorkspace::Project | SessionWorkspace::Own) => Ok(()),
            Some(SessionWorkspace::Chosen(choice)) => self.check_choice(choice, began),
            None => {
                let message = "nothing says what the workspace of this session began with, so it takes no changes \
                               back";
                Err(Fault::refused(Code::PermissionDenied, message).remedy(INSTEAD_OF_APPLY))
            }
        }
    }

    /// Checks the same for a choice; `began` is the directory of a session that has begun, None for
    /// a new one.
    pub(crate) fn check_choice(
        &self,
        choice: &WorkspaceChoice,
        began: Option<&Path>,
    ) -> Result<(), Fault> {
        let instead = INSTEAD_OF_APPLY;
        let name = match choice {
            WorkspaceChoice::Source(name) => name,
            WorkspaceChoice::Upload(_) => {
                let message = "an uploaded workspace stays as it came, and takes no changes back";
                return Err(Fault::refused(Code::ReadOnly, message).remedy(instead));
            }
        };
        // The operator may have changed the sources since the session began: the name alone is not
        // enough.
        let source = self
            .source(name)
            .ok()
            .filter(|source| began.is_none_or(|began| began == source.dir));
        match source {
            Some(source) if !source.is_read_only => Ok(()),
            Some(_) => {
                let message = format!("the source `{name}` takes no changes back");
                Err(Fault::refused(Code::ReadOnly, message).remedy(instead))
            }
            None => {
                let message = format!("the server has the source `{name}` no longer");
                Err(Fault::refused(Code::PermissionDenied, message).remedy(instead))
            }
        }
    }

    /// Removes a directory that the server made, if no session and no sandbox uses it any more.
    pub(super) fn release_workspace(&self, dir: &Path) {
        if dir.parent() != Some(self.workspaces_dir().as_path()) {
            return;
        }
        // A directory that cannot be removed now only takes space; the next start of the server
        // tries again.
        if self.is_workspace_used(dir).is_ok_and(|is_used| !is_used) {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Returns true if a session or a sandbox of any kind uses a directory.
    pub(super) fn is_workspace_used(&self, dir: &Path) -> Result<bool, Error> {
        let sessions = self.log().list()?;
        if sessions.iter().any(|session| session.project == dir) {
            return Ok(true);
        }
        let registry = &self.config.registry;
        for entry in registry.list()? {
            if project_of_named(registry, &entry.name)?.as_deref() == Some(dir) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes directories without a session and a sandbox, which a killed server left.
    pub(super) fn sweep_workspaces(&self) {
        let Ok(entries) = fs::read_dir(self.workspaces_dir()) else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_name() != PROBE {
                self.release_workspace(&entry.path());
            }
        }
    }
}
