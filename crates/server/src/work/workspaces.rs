//! Where the files of sessions begin, where their changes may go, and when a directory of the server's own goes.
//!
//! A session begins with the server's project, with a source that the operator has named, with what its user has
//! uploaded, or with an empty directory of its own. Whatever it is, the sandbox writes to layers over it. A directory of
//! its own is removed with the last session and the last sandbox over it.

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

/// Advice where changes are not taken over.
const INSTEAD_OF_APPLY: &str = "take the changes along as a patch, GET /api/sessions/{id}/diff, or all files, GET \
                                /api/sessions/{id}/workspace";
/// Where the sandbox that tries whether sandboxes work has its project.
const PROBE: &str = "probe";

/// The directory that a new session or sandbox works over. One that was made for it goes with this value, until
/// somebody has it.
#[derive(Debug)]
pub(super) struct NewWorkspace {
    dir: PathBuf,
    is_own: bool,
    warm: Option<WarmSandbox>,
}

impl NewWorkspace {
    /// One that is there already, and stays.
    pub(super) fn existing(dir: PathBuf) -> Self {
        Self {
            dir,
            is_own: false,
            warm: None,
        }
    }

    /// The sandbox that waits over it, if it is of one.
    pub(super) fn take_warm(&mut self) -> Option<WarmSandbox> {
        self.warm.take()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// From now on it belongs to a session or a sandbox.
    pub(super) fn keep(mut self) -> PathBuf {
        self.is_own = false;
        std::mem::take(&mut self.dir)
    }
}

impl Drop for NewWorkspace {
    fn drop(&mut self) {
        if self.is_own {
            // Nobody has written to it yet.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Directory of the workspaces of sessions that bring no project.
pub(super) fn workspaces_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("server/workspaces")
}

impl App {
    /// Directory of the workspaces of sessions that bring no project.
    fn workspaces_dir(&self) -> PathBuf {
        workspaces_dir(&self.config.state_dir)
    }

    /// The project of the sandbox that is tried.
    pub(super) fn probe_dir(&self) -> PathBuf {
        self.workspaces_dir().join(PROBE)
    }

    /// The source of this name.
    ///
    /// # Errors
    /// `not-found`, with the names that there are.
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

    /// Returns what the workspace of a new session begins with.
    pub(super) fn beginning_of(&self, choice: Option<&WorkspaceChoice>) -> SessionWorkspace {
        match (choice, &self.config.project) {
            (Some(choice), _) => SessionWorkspace::Chosen(choice.clone()),
            (None, Some(_)) => SessionWorkspace::Project,
            (None, None) => SessionWorkspace::Own,
        }
    }

    /// Keeps caches apart for the user. A session over a directory of its own keeps none: they would be of use to no
    /// other session, and a sandbox of the pool, which is started for nobody yet, has the same settings.
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

    /// What a new session or sandbox of `user` works over.
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

    /// What a new session of `user` works over, with a sandbox that waits for it where there is one.
    pub(super) fn session_workspace(
        &self,
        user: &str,
        request: &TaskRequest,
    ) -> Result<NewWorkspace, Error> {
        let choice = request.workspace.as_ref();
        // A phase wants a sandbox of its own kind; a session that has to wait for its turn would keep one from others.
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

    /// Refuses to take changes of a session over where they may not go.
    ///
    /// # Errors
    /// `read-only` for an upload and for a source that takes none; `permission-denied` for a source that the operator
    /// names no longer, and where no row says what the session began with.
    pub(crate) fn check_apply(&self, id: &str) -> Result<(), Fault> {
        let began = self.find(id)?.map(|info| info.project);
        self.check_workspace(self.owners.workspace(id)?.as_ref(), began.as_deref())
    }

    /// Refuses the same by the row of a session that works over the directory `began`.
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

    /// Refuses the same for a choice; `began` is the directory of a session that has begun.
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
        // The operator may have changed the sources since the session began.
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

    /// Removes a directory that the server has made, when no session and no sandbox is over it any more.
    pub(super) fn release_workspace(&self, dir: &Path) {
        if dir.parent() != Some(self.workspaces_dir().as_path()) {
            return;
        }
        // What cannot be removed now takes room and does no harm; the next start of the server looks again.
        if self.is_workspace_used(dir).is_ok_and(|is_used| !is_used) {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Whether a session, or a sandbox of any kind, works over a directory.
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

    /// Removes what a server that was killed has left: directories without a session and without a sandbox.
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
