//! Operations on checkpoints. The supervisor of a running sandbox carries them out; for a kept one,
//! this process does.

use crate::checkpoint::stack::{self, Stack, VERSION};
use crate::checkpoint::workspace;
use crate::checkpoint::{Checkpoint, change, flatten, store};
use crate::control::{self, Order};
use crate::state::layout::Layout;
use crate::state::sandbox_dir::is_kept;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_spec};
use crate::state::status::{SandboxState, Status};
use crate::state::trash;
use crate::{Backend, CheckpointStore, Name, Registry, SandboxSpec, fault};
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Maximum time for a supervisor's answer. Copying written files may take long.
const ORDER_WAIT: Duration = Duration::from_mins(10);

/// Checkpoints of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoints {
    /// Checkpoints, oldest first.
    pub list: Vec<Checkpoint>,
    /// Checkpoint that the present files are based on. `None` if there is none or it was deleted.
    pub current: Option<String>,
}

/// Sandbox that was created from a checkpoint of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// Checkpoint that it begins with.
    pub from: Checkpoint,
    /// Spec of the new sandbox, equal to that of the old one, for [`Registry::start`].
    pub spec: SandboxSpec,
}

/// Owner of the right to change a sandbox's files: this process, or a supervisor.
enum CheckpointAccess {
    Ours(SandboxDir),
    Supervised,
}

impl Registry {
    /// Creates a checkpoint of a named sandbox: of a native one, running or kept, or by the service
    /// of a running one, while its commands go on.
    ///
    /// A running native one must be idle. Its layers are exchanged; if that is impossible, its guest
    /// is restarted and forgets ended jobs. With `is_live` the layers are copied instead, while the
    /// sandbox is frozen. Jobs continue afterwards, and the freeze takes as long as copying
    /// everything written since the last checkpoint.
    ///
    /// # Errors
    /// `busy` if a command runs inside; `unsupported` if there are no layers on disk;
    /// `sandbox-not-found`.
    pub fn checkpoint(
        &self,
        name: &Name,
        comment: Option<&str>,
        is_live: bool,
    ) -> Result<Checkpoint, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        match self.access(name)? {
            CheckpointAccess::Ours(sandbox_dir) => {
                settle(self.layout(), &sandbox_dir.path)?;
                let (pending, taken) = change::plan_checkpoint(&sandbox_dir.path, comment, false)?;
                change::begin(&sandbox_dir.path, &pending)?;
                settle(self.layout(), &sandbox_dir.path)?;
                flatten::flatten(self.layout(), &sandbox_dir.path);
                Ok(taken)
            }
            CheckpointAccess::Supervised => {
                let comment = comment.map(str::to_owned);
                let id = ask(name, &dir, &Order::Checkpoint { comment, is_live })?;
                stack::checkpoint(&dir, &id)
            }
        }
    }

    /// Returns the checkpoints of a named sandbox, running or not.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn checkpoints(&self, name: &Name) -> Result<Checkpoints, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        if !dir.is_dir() {
            return Err(fault::not_found(name));
        }
        let list = stack::checkpoints(&dir)?;
        let current = stack::read(&dir)?.parent;
        // The files may be based on a checkpoint that was deleted.
        let current = current.filter(|id| list.iter().any(|one| one.id == *id));
        Ok(Checkpoints { list, current })
    }

    /// Restores a sandbox to a checkpoint. Later changes are discarded, and running commands are
    /// ended.
    ///
    /// # Errors
    /// `not-found` if there is no such checkpoint; otherwise as [`Self::checkpoint`].
    pub fn restore(&self, name: &Name, id: &str) -> Result<Checkpoint, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        match self.access(name)? {
            CheckpointAccess::Ours(sandbox_dir) => {
                settle(self.layout(), &sandbox_dir.path)?;
                let (pending, found) = change::plan_restore(&sandbox_dir.path, id)?;
                change::begin(&sandbox_dir.path, &pending)?;
                settle(self.layout(), &sandbox_dir.path)?;
                store::collect_garbage(self.layout())?;
                Ok(found)
            }
            CheckpointAccess::Supervised => {
                let id = ask(name, &dir, &Order::Restore { id: id.to_owned() })?;
                stack::checkpoint(&dir, &id)
            }
        }
    }

    /// Deletes a checkpoint. The sandbox and its forks stay as they are; layers that no sandbox
    /// needs are removed.
    ///
    /// # Errors
    /// `not-found` if there is no such checkpoint; otherwise as [`Self::checkpoint`].
    pub fn delete_checkpoint(&self, name: &Name, id: &str) -> Result<Checkpoint, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        let gone = match self.access(name)? {
            CheckpointAccess::Ours(sandbox_dir) => {
                settle(self.layout(), &sandbox_dir.path)?;
                let gone = stack::checkpoint(&sandbox_dir.path, id)?;
                stack::remove_checkpoint(&sandbox_dir.path, id)?;
                gone
            }
            CheckpointAccess::Supervised => {
                let gone = stack::checkpoint(&dir, id)?;
                ask(name, &dir, &Order::Delete { id: id.to_owned() })?;
                gone
            }
        };
        store::collect_garbage(self.layout())?;
        Ok(gone)
    }

    /// Creates a stopped sandbox that begins with the files of another, at a checkpoint or in their
    /// present state, of which a checkpoint is made. [`Self::start`] starts it.
    ///
    /// # Errors
    /// `already-exists` if the new name is taken; otherwise as [`Self::checkpoint`].
    pub fn fork(&self, name: &Name, new: &Name, from: Option<&str>) -> Result<Fork, Fault> {
        if self.entry(new)?.is_some() {
            return Err(taken(new));
        }
        self.check_fork(name)?;
        let layout = self.layout();
        let dir = layout.sandbox(name.as_str());
        let from = match from {
            Some(id) => {
                drop(self.access(name)?);
                stack::checkpoint(&dir, id)?
            }
            None => self
                .checkpoint(name, Some(&format!("for the fork `{new}`")), false)
                .map_err(|fault| match fault.code {
                    Code::Busy => fault.remedy([
                        format!(
                            "wait for it or end it (`glovebox logs {name}` lists what runs), or fork from a copy of \
                             the files: "
                        )
                        .into(),
                        AdvicePart::command(
                            format!("glovebox checkpoint {name}"),
                            Setting::Live,
                            None,
                        ),
                        ", then ".into(),
                        AdvicePart::command(
                            format!("glovebox fork {name} {new}"),
                            Setting::FromCheckpoint,
                            Some("ID"),
                        ),
                        ", the id it names".into(),
                    ]),
                    _ => fault,
                })?,
        };
        // Held until the fork's files name the layers, or a collection of garbage could remove
        // them.
        let guard = store::share(layout)?;
        // Read again under the lock: it may have been deleted before its layers were protected.
        let from = stack::checkpoint(&dir, &from.id)?;
        let spec = SandboxSpec {
            // A fork belongs to the user, even if the original was made for another sandbox.
            parent: None,
            ..read_spec(&dir)?
        };
        let mut status = Status::starting(true);
        status.state = SandboxState::Stopped;
        let comment = format!("forked from {name} {}", from.id);
        let made = SandboxDir::make_with(layout, new, &spec, Some(&status), |staged| {
            workspace::inherit(&dir, staged, &stack::checkpoint_path(&dir, &from.id))?;
            stack::write_checkpoint(
                staged,
                &Checkpoint {
                    id: "v0".to_owned(),
                    comment: Some(comment),
                    parent: None,
                    ..from.clone()
                },
            )?;
            stack::write(
                staged,
                &Stack {
                    version: VERSION,
                    layers: from.layers.clone(),
                    mounted: Vec::new(),
                    last: 0,
                    parent: Some("v0".to_owned()),
                },
            )
        })?;
        drop(guard);
        match made {
            Some(_) => Ok(Fork { from, spec }),
            None => Err(taken(new)),
        }
    }

    /// Refuses to fork a sandbox whose checkpoints a service keeps.
    fn check_fork(&self, name: &Name) -> Result<(), Fault> {
        match read_spec(&self.layout().sandbox(name.as_str())) {
            Ok(spec) if spec.checkpoints() == CheckpointStore::Service => Err(Fault::refused(
                Code::Unsupported,
                format!(
                    "the service that keeps the files of `{name}` makes no second machine of them"
                ),
            )
            .remedy("start another sandbox and `glovebox push` the project into it")),
            // A sandbox that does not exist is told later.
            _ => Ok(()),
        }
    }

    /// Returns the owner of the right to change the files of a named sandbox.
    fn access(&self, name: &Name) -> Result<CheckpointAccess, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        let store = read_spec(&dir).map(|spec| spec.checkpoints());
        let access = match SandboxDir::find(self.layout(), name)? {
            SandboxDirState::Held => CheckpointAccess::Supervised,
            SandboxDirState::Free(sandbox_dir)
                if is_kept(&sandbox_dir) && store == Ok(CheckpointStore::Service) =>
            {
                return Err(Fault::failed(
                    Code::SandboxNotRunning,
                    format!(
                        "the sandbox `{name}` does not run, and its checkpoints are at a service"
                    ),
                )
                .remedy(format!("`glovebox start {name}` starts it")));
            }
            SandboxDirState::Free(sandbox_dir) if is_kept(&sandbox_dir) => {
                self.keep_slot(&dir);
                CheckpointAccess::Ours(sandbox_dir)
            }
            SandboxDirState::Absent | SandboxDirState::Free(_) => {
                return Err(fault::not_found(name));
            }
        };
        if store? != CheckpointStore::None {
            return Ok(access);
        }
        let able = Backend::all()
            .iter()
            .filter(|backend| backend.capabilities().checkpoints != CheckpointStore::None);
        let able: Vec<String> = able.map(Backend::to_string).collect();
        Err(Fault::failed(
            Code::Unsupported,
            format!("the sandbox `{name}` has no layers on disk to make checkpoints of"),
        )
        .remedy([
            format!("checkpoints need one of the backends {}", able.join(", ")).into(),
            ", and native ones ".into(),
            Setting::Layers.of("disk"),
        ]))
    }
}

/// Finishes a recorded change and removes the files that it discarded.
fn settle(layout: &Layout, dir: &Path) -> Result<(), Fault> {
    for place in change::finish(layout, dir)? {
        trash::remove(layout, &place)?;
    }
    Ok(())
}

pub(super) fn ask(name: &Name, dir: &Path, order: &Order) -> Result<String, Fault> {
    if !fs::exists(dir.join(control::CONTROL)).unwrap_or(false) {
        return Err(Fault::failed(
            Code::SandboxNotRunning,
            format!(
                "the sandbox `{name}` belongs to a running command or is just starting, and takes \
                 no orders"
            ),
        )
        .remedy("try again, or start a named one with `glovebox start NAME`")
        .retryable());
    }
    control::order(dir, order, ORDER_WAIT).map(|(id, _)| id)
}

fn taken(name: &Name) -> Fault {
    Fault::failed(
        Code::AlreadyExists,
        format!("a sandbox `{name}` exists already"),
    )
    .remedy(format!(
        "choose another name, or `glovebox kill {name}` first"
    ))
}
