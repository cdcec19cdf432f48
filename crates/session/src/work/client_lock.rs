//! Locks that show which client's server uses a sandbox: one lock file per sandbox, which the
//! kernel releases when the server dies.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, Registry};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Directory of the lock files, below the state directory.
const DIRECTORY: &str = "clients";
/// Content of a lock file whose holder is about to release the sandbox.
const LEAVING: &[u8] = b"leaving";

/// Exclusive right to a sandbox. Dropping it releases the sandbox to the next server.
#[derive(Debug)]
pub(super) struct ClientLock(File);

/// Result of an attempt to take a lock.
#[derive(Debug)]
pub(super) enum LockOutcome {
    Taken(ClientLock),
    /// Another server has a client in the sandbox.
    Used,
    /// Another server is leaving the sandbox.
    Leaving,
}

impl ClientLock {
    /// Tries to take the lock of the sandbox `name`, which need not exist yet.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn take(registry: &Registry, name: &Name) -> Result<LockOutcome, Fault> {
        let directory = directory(registry);
        let taken = make_directory(&directory).and_then(|()| take(&directory.join(name.as_str())));
        taken.map_err(|error| {
            Fault::failed(
                Code::Io,
                format!("cannot take the lock of the sandbox `{name}`: {error}"),
            )
        })
    }

    /// Returns true if a client's server has ever used the sandbox `name`.
    pub(super) fn was_taken(registry: &Registry, name: &Name) -> bool {
        directory(registry).join(name.as_str()).exists()
    }

    /// Tells servers that start now to wait for the sandbox, which is about to be released.
    pub(super) fn tell_leaving(&self) {
        // A server that misses this creates a sandbox of its own.
        let _ = (&self.0).write_all(LEAVING);
    }
}

/// Removes the lock files of sandboxes that no longer exist.
pub(super) fn remove_stale(registry: &Registry) {
    let Ok(files) = fs::read_dir(directory(registry)) else {
        return;
    };
    for file in files.flatten() {
        let name = file
            .file_name()
            .to_str()
            .and_then(|name| Name::parse(name).ok());
        let is_gone = name.is_some_and(|name| matches!(registry.entry(&name), Ok(None)));
        // Removed while locked: a server that has opened it meanwhile notices that the file was
        // replaced. A lock without a sandbox that is held belongs to a server that is about to
        // create the sandbox.
        if is_gone && let Ok(LockOutcome::Taken(_lock)) = take(&file.path()) {
            let _ = fs::remove_file(file.path());
        }
    }
}

fn directory(registry: &Registry) -> PathBuf {
    registry.state_dir().join(DIRECTORY)
}

fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn take(path: &Path) -> io::Result<LockOutcome> {
    loop {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut content = Vec::new();
                file.read_to_end(&mut content)?;
                return Ok(if content == LEAVING {
                    LockOutcome::Leaving
                } else {
                    LockOutcome::Used
                });
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let is_current = fs::metadata(path).is_ok_and(|now| {
            file.metadata()
                .is_ok_and(|ours| (ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        });
        if is_current {
            file.set_len(0)?;
            return Ok(LockOutcome::Taken(ClientLock(file)));
        }
    }
}
