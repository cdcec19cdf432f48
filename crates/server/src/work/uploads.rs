//! Uploaded workspaces: one archive each, unpacked once, with which any number of sessions can
//! begin.
//!
//! ```text
//! bytes of the client -> `incoming-XXXX` (bounded, checked) -> `u-XXXX` and its row
//!                     -> sessions over it -> expired
//! ```
//!
//! The server does not write to an upload afterwards: sandboxes have layers over it, and changes
//! are not applied to it. An archive that does not become an upload leaves no files behind, however
//! the attempt ended.

use super::App;
use super::places::{NoPlace, Place, Places};
use super::workspaces::NewWorkspace;
use crate::store::{SessionWorkspace, Upload, WorkspaceChoice};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::host::now_unix_ms;
use glovebox_workspace::Quota;
use glovebox_workspace::archive::{ArchiveError, ArchiveProblem, unpack};
use std::fs::{self, DirBuilder};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of entries of an upload, and of components of a path in it. Further limits are
/// the operator's ([`crate::UploadLimits`]) and those of every archive
/// (`glovebox_workspace::archive`).
const MAX_ENTRIES: usize = 100_000;
const MAX_DEPTH: usize = 64;
/// Maximum bytes of headers and padding per entry, unless names are long.
const HEADER_BYTES: u64 = 4096;
/// Maximum number of workspaces that are uploaded or downloaded at the same time, one per user.
const MAX_TRANSFERS: usize = 8;
/// Prefix of the names of directories that are not uploads yet.
const INCOMING: &str = "incoming";
/// Minimum and maximum interval between checks for expired uploads.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Creates the limits of transfers in progress.
pub(super) fn transfer_places() -> Arc<Places> {
    Places::new(1, MAX_TRANSFERS)
}

/// Slot of one transfer, which is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct TransferPlace {
    _place: Place,
}

/// Reason for which an archive did not become an upload.
#[derive(Debug)]
pub(crate) enum UploadRefusal {
    /// The user's quota of uploads is exhausted.
    Quota(Fault),
    Archive(ArchiveError),
}

impl From<Fault> for UploadRefusal {
    fn from(fault: Fault) -> Self {
        Self::Archive(fault.into())
    }
}

/// An upload that is being received.
#[derive(Debug)]
pub(crate) struct IncomingUpload {
    app: Arc<App>,
    user: String,
    dir: IncomingDir,
    quota: Quota,
    /// True if `quota` is what the user's other uploads leave, rather than the limit of each
    /// upload.
    is_rest: bool,
    _place: TransferPlace,
}

/// Directory that is removed when this is dropped, unless it was renamed to an upload.
#[derive(Debug)]
struct IncomingDir(PathBuf);

impl Drop for IncomingDir {
    fn drop(&mut self) {
        // A directory that cannot be removed now is removed when the server next starts.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl IncomingUpload {
    /// Returns the maximum length of the archive, in bytes.
    pub(crate) fn max_archive_bytes(&self) -> u64 {
        let headers = HEADER_BYTES * self.quota.max_changes as u64;
        self.quota.max_bytes.saturating_add(headers)
    }

    /// Unpacks the archive and stores the upload.
    ///
    /// # Errors
    /// Says whether the user's quota or the archive is the reason.
    pub(crate) fn receive(self, archive: impl Read) -> Result<Upload, UploadRefusal> {
        let app = &self.app;
        let totals = unpack(archive, &self.dir.0, &self.quota).map_err(|error| match error {
            ArchiveError::Refused {
                problem: ArchiveProblem::TooLarge,
                ..
            } if self.is_rest => self.no_room(),
            error => UploadRefusal::Archive(error),
        })?;
        let now = now_unix_ms();
        let upload = Upload {
            id: Name::random("u").to_string(),
            user: self.user.clone(),
            files: totals.files,
            directories: totals.directories,
            links: totals.links,
            bytes: totals.bytes,
            created_unix_ms: now,
            used_unix_ms: now,
        };
        // Checked again with the bytes that entries count for, whose number is known only now.
        let left = app.upload_bytes_left(&self.user)?;
        if upload.charged_bytes() > left {
            return Err(self.no_room());
        }
        let dir = app.upload_dir(&upload.id);
        // Before the row is written: a row must never name a directory that is not there.
        fs::rename(&self.dir.0, &dir).map_err(|error| cannot("keep the upload", &dir, &error))?;
        if let Err(fault) = app.owners.add_upload(&upload) {
            // A directory without a row belongs to no user.
            let _ = fs::remove_dir_all(&dir);
            return Err(fault.into());
        }
        Ok(upload)
    }

    fn no_room(&self) -> UploadRefusal {
        let most = self.app.config.uploads.max_bytes_per_user;
        let message =
            format!("the uploads of this user would have more than {most} bytes together");
        let fault = Fault::failed(Code::TooLarge, message);
        UploadRefusal::Quota(
            fault.remedy("remove one that is no longer needed: DELETE /api/workspaces/{id}"),
        )
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Error::io(format!("{what} {}", path.display()), error).into_fault()
}

impl App {
    fn uploads_dir(&self) -> PathBuf {
        self.config.state_dir.join("server/uploads")
    }

    fn upload_dir(&self, id: &str) -> PathBuf {
        self.uploads_dir().join(id)
    }

    /// Returns the bytes that `user` may still upload.
    fn upload_bytes_left(&self, user: &str) -> Result<u64, Fault> {
        let most = self.config.uploads.max_bytes_per_user;
        Ok(most.saturating_sub(self.upload_bytes(user)?))
    }

    /// Returns the bytes that the uploads of `user` count for.
    pub(super) fn upload_bytes(&self, user: &str) -> Result<u64, Fault> {
        let uploads = self.owners.uploads()?;
        let own = uploads.iter().filter(|upload| upload.user == user);
        Ok(own.map(Upload::charged_bytes).sum())
    }

    /// Takes a slot for uploading or downloading a workspace of `user`.
    ///
    /// # Errors
    /// `busy` if another transfer of the user is in progress, `unavailable` if too many are in
    /// total.
    pub(crate) fn take_transfer_place(&self, user: &str) -> Result<TransferPlace, Fault> {
        let place = self.transfers.take(user).map_err(|no_place| {
            let message = match no_place {
                NoPlace::OfKey => "another workspace of this user is on its way",
                NoPlace::AtAll => "too many workspaces are on their way",
            };
            let fault = Fault::failed(no_place.code(), message);
            fault.remedy("try again when it has ended").retryable()
        })?;
        Ok(TransferPlace { _place: place })
    }

    /// Creates the directory and the limits for an upload of `user`.
    pub(crate) fn begin_upload(self: &Arc<Self>, user: &str) -> Result<IncomingUpload, Fault> {
        let place = self.take_transfer_place(user)?;
        let left = self.upload_bytes_left(user)?;
        let max_bytes = self.config.uploads.max_bytes;
        let uploads = self.uploads_dir();
        let dir = uploads.join(Name::random(INCOMING).as_str());
        let mut make = DirBuilder::new();
        // The mode keeps the uploads from other users of this machine.
        make.mode(0o700).recursive(true);
        make.create(&uploads)
            .and_then(|()| fs::create_dir(&dir))
            .map_err(|error| cannot("make the directory", &dir, &error))?;
        Ok(IncomingUpload {
            app: Arc::clone(self),
            user: user.to_owned(),
            dir: IncomingDir(dir),
            quota: Quota {
                max_changes: MAX_ENTRIES,
                max_bytes: max_bytes.min(left),
                max_depth: MAX_DEPTH,
            },
            is_rest: left < max_bytes,
            _place: place,
        })
    }

    /// Locks the decision whether an upload is in use.
    pub(super) fn uploads_turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.uploads_turn.lock();
        turn.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workspace of a session of `user` that begins with an upload.
    ///
    /// # Errors
    /// `not-found` if the user has no such upload.
    pub(super) fn use_upload(&self, user: &str, id: &str) -> Result<NewWorkspace, Error> {
        let found = self.owners.upload(id)?;
        if found.is_none_or(|upload| upload.user != user) {
            let shown: String = id.escape_debug().take(64).collect();
            let message = format!("there is no uploaded workspace `{shown}`");
            let fault = Fault::failed(Code::NotFound, message);
            let remedy = "GET /api/workspaces lists yours; one that nobody uses goes after a while";
            return Err(fault.remedy(remedy).into());
        }
        self.owners.touch_upload(id, now_unix_ms())?;
        Ok(NewWorkspace::existing(self.upload_dir(id)))
    }

    /// Returns true if a session or a sandbox uses the upload.
    pub(crate) fn is_upload_used(&self, id: &str) -> Result<bool, Error> {
        let choice = SessionWorkspace::Chosen(WorkspaceChoice::Upload(id.to_owned()));
        let workspaces = self.owners.workspaces()?;
        if workspaces.values().any(|one| *one == choice) {
            return Ok(true);
        }
        self.is_workspace_used(&self.upload_dir(id))
    }

    /// Removes an upload that is not in use.
    ///
    /// # Errors
    /// `conflict` if a session or a sandbox uses it.
    pub(crate) fn remove_upload(&self, id: &str) -> Result<(), Error> {
        let _turn = self.uploads_turn();
        if self.is_upload_used(id)? {
            let fault = Fault::failed(Code::Conflict, "a session works over this workspace");
            return Err(fault.remedy("delete the session first").into());
        }
        self.owners.remove_upload(id)?;
        let dir = self.upload_dir(id);
        // Files that cannot be removed now are removed when the server next starts.
        let _ = fs::remove_dir_all(dir);
        Ok(())
    }

    /// Removes uploads that were not used for longer than they are kept, until the server ends.
    pub(crate) async fn expire_uploads(self: Arc<Self>) {
        let pause = self.config.uploads.ttl.clamp(LOOK.0, LOOK.1);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.end.cancelled() => return,
            }
            let app = Arc::clone(&self);
            // A fault or a panic must not end this loop; the next check tries again.
            let _ = tokio::task::spawn_blocking(move || app.remove_old_uploads()).await;
        }
    }

    fn remove_old_uploads(&self) -> Result<(), Error> {
        let ttl_ms = u64::try_from(self.config.uploads.ttl.as_millis()).unwrap_or(u64::MAX);
        for upload in self.owners.uploads()? {
            let now = now_unix_ms();
            if now.saturating_sub(upload.used_unix_ms) < ttl_ms {
                continue;
            }
            if self.is_upload_used(&upload.id)? {
                self.owners.touch_upload(&upload.id, now)?;
            } else {
                // `remove_upload` checks again under the lock: a session may have begun with the
                // upload just now.
                let _ = self.remove_upload(&upload.id);
            }
        }
        Ok(())
    }

    /// Removes rows without a directory and directories without a row, which a killed server left
    /// while it received or removed an upload.
    pub(super) fn sweep_uploads(&self) -> Result<(), Fault> {
        for upload in self.owners.uploads()? {
            if !self.upload_dir(&upload.id).is_dir() {
                self.owners.remove_upload(&upload.id)?;
            }
        }
        let Ok(entries) = fs::read_dir(self.uploads_dir()) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            if self.owners.upload(name)?.is_none() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_brings_one_workspace_at_a_time() {
        let places = transfer_places();
        let ann = places.take("ann").unwrap();
        assert_eq!(places.take("ann").unwrap_err(), NoPlace::OfKey);
        let others = (0..).map_while(|n: usize| places.take(&n.to_string()).ok());
        assert_eq!(others.collect::<Vec<_>>().len(), MAX_TRANSFERS - 1);
        drop(ann);
        places.take("ann").unwrap();
    }
}
