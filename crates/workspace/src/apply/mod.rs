//! Applies changes to a destination on the host: all of them, or none.
//!
//! ```text
//! Destination::open   locks it, and finishes or undoes an interrupted pull
//!   .plan             compares it with a change set (three-way)
//!   .stage            copies contents into `.glovebox-pull-XXXX` in it, and checks digests
//! commit              renames everything into place; undoes its operations if one fails
//! ```
//!
//! Before [`commit`] only the staging directory is written. It is on the same file system, so a
//! commit consists of renames: one system call per path, each of which can be undone. A replaced
//! object is exchanged with its replacement (`renameat2(2)`), so the old version is in the staging
//! directory until the end. A journal there tells the next [`Destination::open`] how to handle an
//! interrupted commit. Every host path is opened beneath the destination without following links,
//! and is compared with what the plan saw immediately before it is changed.

mod abilities;
mod attributes;
mod case;
mod commit;
mod digests;
mod earlier;
mod host;
mod journal;
mod operation;
mod recover;
mod stage;
mod view;

pub use crate::base::BaseFile;
pub use commit::commit;
pub use digests::DestinationDigests;
pub use earlier::{PutBack, discard_earlier, keep_earlier, sweep_earlier};
pub use recover::Recovery;
pub use stage::StagedChanges;

use crate::base::{Base, BaseContents, Signature, noted_theirs};
use crate::beneath::Anchor;
use crate::progress::Watch;
use crate::{
    ChangeKind, ChangeSet, CollectedChanges, Options, Plan, RelPath, Stage, SyncError, plan,
};
use glovebox_proto::{Code, Fault};
use host::{DestinationLook, KnownBase};
use rustix::fs::{FileType, FlockOperation};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{Cursor, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time to wait for a lock. Its holder may be exiting, or may be a forked child that has
/// not called `execve(2)` yet.
const LOCK_WAIT: Duration = Duration::from_millis(300);
const LOCK_STEP: Duration = Duration::from_millis(5);

/// A directory on the host to which changes are applied. Holds an advisory lock while it exists,
/// unless it was opened with [`Self::look`].
#[derive(Debug)]
pub struct Destination {
    anchor: Anchor,
    base: Option<BaseFile>,
    /// Signatures that the plan saw, by path.
    seen: HashMap<RelPath, Signature>,
}

/// The destination's version of a path: the content of a regular file, or the target of a link.
pub struct HostVersion {
    /// Reader of the content.
    pub content: Box<dyn Read + Send>,
    /// Length of the content.
    pub bytes: u64,
}

impl fmt::Debug for HostVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HostVersion");
        shown.field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Destination {
    /// Opens a destination for applying: locks it, and recovers it from an interrupted pull.
    ///
    /// `base` is given if the destination is the project from which the sandbox started. Any other
    /// destination is compared by content with the base of the sandbox.
    ///
    /// # Errors
    /// [`Code::Busy`] if another process applies changes to it; any error of opening or recovering.
    pub fn open(path: &Path, base: Option<BaseFile>) -> Result<Self, SyncError> {
        Self::open_telling(path, base, &mut || {})
    }

    /// Opens a destination like [`Self::open`]. Calls `on_recovered` for each interrupted pull that
    /// had changed files.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_telling(
        path: &Path,
        base: Option<BaseFile>,
        on_recovered: &mut dyn FnMut(),
    ) -> Result<Self, SyncError> {
        let destination = Self::look(path, base)?;
        // The lock must precede the recovery, which would otherwise remove the staging directory of
        // another pull that has not written its journal yet.
        lock(&destination.anchor).map_err(|fault| SyncError::pull(Stage::Apply, fault))?;
        destination.recover(on_recovered)?;
        Ok(destination)
    }

    /// Finishes or undoes interrupted commits in a destination that was opened for applying. Calls
    /// `on_recovered` for each commit that had changed files.
    ///
    /// # Errors
    /// When an object cannot be put back: the message says where it is, and the next recovery tries
    /// again.
    pub fn recover(&self, on_recovered: &mut dyn FnMut()) -> Result<Recovery, SyncError> {
        recover::recover(&self.anchor, on_recovered)
            .map_err(|fault| SyncError::pull(Stage::Apply, fault))
    }

    /// Opens a destination for planning only: locks and writes nothing.
    ///
    /// # Errors
    /// When it cannot be opened; [`Code::PermissionDenied`] if `path` leads through a symbolic
    /// link.
    pub fn look(path: &Path, base: Option<BaseFile>) -> Result<Self, SyncError> {
        let anchor =
            Anchor::open_canonical(path).map_err(|fault| SyncError::pull(Stage::Plan, fault))?;
        Ok(Self {
            anchor,
            base,
            seen: HashMap::new(),
        })
    }

    /// Compares collected changes with the destination.
    ///
    /// # Errors
    /// Any error of reading the destination.
    pub fn plan(
        &mut self,
        collected: &CollectedChanges,
        options: Options,
    ) -> Result<Plan, SyncError> {
        self.seen.clear();
        let base = self.base.as_ref().map(|base| {
            let wanted = paths(&collected.set);
            KnownBase {
                signatures: Base::load(&base.index, base.pushed_unix_ns, &wanted),
                contents: BaseContents::load(base, self.anchor.path(), &wanted),
                theirs: noted_theirs(&base.index),
            }
        });
        let mut view = DestinationLook::new(&self.anchor, base, collected, &mut self.seen);
        plan(&collected.set, &mut view, options)
            .map_err(|fault| SyncError::pull(Stage::Plan, fault))
    }

    /// Returns the effects of a plan as changes of the current state of the destination. The host's
    /// own changes since the push are not part of it. Applying them by other means has the same
    /// result as applying the plan.
    ///
    /// # Errors
    /// When the destination cannot be opened again.
    pub fn view(
        &self,
        plan: &Plan,
        collected: &CollectedChanges,
    ) -> Result<CollectedChanges, SyncError> {
        view::view(self.anchor.path(), &self.seen, plan, collected)
            .map_err(|fault| SyncError::pull(Stage::Plan, fault))
    }

    /// Opens the destination's version of a path. `None` if it is neither a regular file nor a
    /// link.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open_version(&self, path: &RelPath) -> Result<Option<HostVersion>, SyncError> {
        let failed = |errno| {
            let path = self.anchor.path().join(path.as_path());
            SyncError::pull(Stage::Plan, crate::beneath::io("read", &path, errno))
        };
        let stat = match self.anchor.stat_within(path.as_bytes()) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let (file, stat) = self.anchor.file(path.as_bytes()).map_err(failed)?;
                Ok(Some(HostVersion {
                    content: Box::new(file),
                    bytes: stat.st_size as u64,
                }))
            }
            FileType::Symlink => {
                let target = self.anchor.link(path.as_bytes()).map_err(failed)?;
                Ok(Some(HostVersion {
                    bytes: target.len() as u64,
                    content: Box::new(Cursor::new(target)),
                }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the common base of both sides' texts of a path: the version of the last pull, or the
    /// one from which the sandbox started. `None` if it was not kept.
    pub fn base_text(&self, path: &RelPath) -> Option<Vec<u8>> {
        let base = self.base.as_ref()?;
        let wanted = BTreeSet::from([path.clone()]);
        BaseContents::load(base, self.anchor.path(), &wanted).text(path)
    }

    /// Copies the contents that a plan of this destination needs into a staging directory in it.
    /// The sandbox is not needed afterwards.
    ///
    /// # Errors
    /// [`Code::NoSpace`] if there is too little space; an error with [`Stage::Validate`] if
    /// contents differ from what was collected; [`Code::Cancelled`] if `watch` stops the operation.
    /// Nothing remains then.
    pub fn stage(
        &self,
        plan: &Plan,
        collected: &CollectedChanges,
        watch: &mut Watch<'_>,
    ) -> Result<StagedChanges, SyncError> {
        stage::stage(self, plan, collected, watch)
    }
}

/// Returns the paths of a change set, including the sources of renames.
pub(crate) fn paths(set: &ChangeSet) -> BTreeSet<RelPath> {
    let mut paths = BTreeSet::new();
    for change in &set.changes {
        paths.insert(change.path.clone());
        if let ChangeKind::Renamed { source, .. } = &change.kind {
            paths.insert(source.clone());
        }
    }
    paths
}

/// Takes the advisory lock of a destination. The lock is on the directory itself, so that nothing
/// is left behind and every path to the directory leads to the same lock.
fn lock(anchor: &Anchor) -> Result<(), Fault> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(anchor, FlockOperation::NonBlockingLockExclusive) {
            // Some network file systems cannot lock a directory; the lock is advisory.
            Ok(()) | Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return Ok(());
            }
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(LOCK_STEP),
            Err(Errno::AGAIN) => {
                return Err(Fault::failed(
                    Code::Busy,
                    format!(
                        "somebody else applies changes to {} at this moment",
                        anchor.path().display()
                    ),
                )
                .remedy("try again when that has ended")
                .retryable());
            }
            Err(errno) => return Err(crate::beneath::io("lock", anchor.path(), errno)),
        }
    }
}
