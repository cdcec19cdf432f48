//! Directory of one sandbox, and the lock that decides whether the sandbox lives.
//!
//! The owner holds `lock` (flock(2)) while the sandbox lives. The kernel releases it when the owner
//! dies in any way. A directory appears in `sandboxes/` complete and locked, because it is filled
//! in `staging/` and renamed. Testing the lock is therefore always enough:
//!
//! - held: the sandbox lives, or is being removed;
//! - free: its owner is dead, and the process that takes the lock decides about the remains.
//!
//! `spec.json` and `status.json` are information for people and tools. A corrupt file never
//! prevents listing or killing.

use crate::fault;
use crate::spec::name::random_hex;
use crate::state::cleanup::CleanupWorker;
use crate::state::layout::{CHECKPOINTS, LAYERS, WORKSPACE_UPPER};
use crate::state::layout::{Layout, open_dir};
use crate::state::status::Status;
use crate::state::trash;
use crate::{COPY_DIR, Name, SandboxSpec};
use glovebox_proto::{Code, Fault};
use glovebox_spec::Layers;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, openat};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Version of `spec.json` and `status.json`.
const FILE_VERSION: u32 = 1;
/// Maximum number of bytes to read of either file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Content of a file with the version of its schema.
#[derive(Serialize)]
struct VersionedFile<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

impl<T> VersionedFile<T> {
    fn new(content: T) -> Self {
        Self {
            version: FILE_VERSION,
            content,
        }
    }
}

/// Directory of a sandbox whose lock this process holds.
#[derive(Debug)]
pub(crate) struct SandboxDir {
    pub(crate) name: Name,
    pub(crate) path: PathBuf,
    pub(crate) lock: OwnedFd,
}

/// Result of testing the lock of a sandbox's directory.
#[derive(Debug)]
pub(crate) enum SandboxDirState {
    /// There is no such directory.
    Absent,
    /// Another process holds the lock, because the owner lives.
    Held,
    /// The owner is dead. This process holds the lock now.
    Free(SandboxDir),
}

impl SandboxDir {
    /// Creates the directory of a new sandbox. Returns `None` if the name is taken. Without a
    /// status it counts as starting and not supervised.
    pub(crate) fn make(
        layout: &Layout,
        name: &Name,
        spec: &SandboxSpec,
        status: Option<&Status>,
    ) -> Result<Option<Self>, Fault> {
        Self::make_with(layout, name, spec, status, |_| Ok(()))
    }

    /// As [`Self::make`]. `furnish` adds files before the directory becomes visible.
    pub(crate) fn make_with(
        layout: &Layout,
        name: &Name,
        spec: &SandboxSpec,
        status: Option<&Status>,
        furnish: impl FnOnce(&Path) -> Result<(), Fault>,
    ) -> Result<Option<Self>, Fault> {
        let random = random_hex();
        let staged = layout.staging().join(random);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&staged)
            .map_err(|error| fault::io("make", &staged, error))?;
        let made = Self::fill(layout, name, spec, status, &staged, furnish);
        if !matches!(made, Ok(Some(_))) {
            // The first fault is the one to report. A sweep removes the remains.
            let _ = fs::remove_dir_all(&staged);
        }
        made
    }

    fn fill(
        layout: &Layout,
        name: &Name,
        spec: &SandboxSpec,
        status: Option<&Status>,
        staged: &Path,
        furnish: impl FnOnce(&Path) -> Result<(), Fault>,
    ) -> Result<Option<Self>, Fault> {
        let dir = open_dir(staged).map_err(|errno| fault::io("open", staged, errno))?;
        // Locked before the rename: an unlocked directory looks like that of a dead owner, and a
        // sweep would remove it.
        let lock = open_lock(&dir).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        let lock = lock.map_err(|errno| fault::io("lock", staged, errno))?;
        let path = layout.sandbox(name.as_str());
        let sandbox_dir = Self {
            name: name.clone(),
            path: staged.to_owned(),
            lock,
        };
        write_fresh(&staged.join("spec.json"), &VersionedFile::new(spec))?;
        if let Some(status) = status {
            write_fresh(&staged.join("status.json"), &VersionedFile::new(status))?;
        }
        furnish(staged)?;
        match rename_new(staged, &path) {
            Ok(()) => Ok(Some(Self {
                path,
                ..sandbox_dir
            })),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(None),
            Err(errno) => Err(fault::io("make", &path, errno)),
        }
    }

    /// Tests the lock of a sandbox's directory, and takes it if the owner is dead.
    pub(crate) fn find(layout: &Layout, name: &Name) -> Result<SandboxDirState, Fault> {
        let path = layout.sandbox(name.as_str());
        Self::find_at(&path, name)
    }

    pub(crate) fn find_at(path: &Path, name: &Name) -> Result<SandboxDirState, Fault> {
        let broken = |errno| fault::io("open", path, errno);
        loop {
            let dir = match open_dir(path) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => return Ok(SandboxDirState::Absent),
                Err(errno) => return Err(broken(errno)),
            };
            let lock = match open_lock(&dir) {
                Ok(lock) => lock,
                // The directory was removed after it was opened, so no file can be created in it.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(broken(errno)),
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(SandboxDirState::Held),
                Err(errno) => return Err(broken(errno)),
            }
            // Another process may have removed the directory between the open and the lock, and may
            // have created a new one of the same name. The lock counts only if it is the file at
            // the path now.
            if is_same(&lock, &path.join("lock")) {
                return Ok(SandboxDirState::Free(Self {
                    name: name.clone(),
                    path: path.to_owned(),
                    lock,
                }));
            }
        }
    }

    /// Takes over a directory whose lock was passed to this process.
    pub(crate) fn adopt(layout: &Layout, name: &Name, lock: OwnedFd) -> Result<Self, Fault> {
        let sandbox_dir = Self {
            name: name.clone(),
            path: layout.sandbox(name.as_str()),
            lock,
        };
        if sandbox_dir.is_in_place() {
            return Ok(sandbox_dir);
        }
        Err(fault::internal(format!(
            "the lock handed over is not that of `{name}`"
        )))
    }

    /// Returns true if the directory is still at its path, so no other process has killed the
    /// sandbox.
    pub(crate) fn is_in_place(&self) -> bool {
        is_same(&self.lock, &self.path.join("lock"))
    }

    pub(crate) fn write_spec(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        write_json(&self.path.join("spec.json"), &VersionedFile::new(spec))
    }

    pub(crate) fn write_status(&self, status: &Status) -> Result<(), Fault> {
        write_json(&self.path.join("status.json"), &VersionedFile::new(status))
    }

    /// Removes the directory with its content and frees the name.
    pub(crate) fn discard(self, layout: &Layout) -> Result<(), Fault> {
        self.discard_with(layout, |place| trash::remove(layout, &place))
    }

    /// Frees the name and has the directory removed in the background.
    pub(crate) fn leave_to(self, layout: &Layout, cleanup: &CleanupWorker) -> Result<(), Fault> {
        self.discard_with(layout, |place| cleanup.remove(place))
    }

    fn discard_with(
        self,
        layout: &Layout,
        remove: impl FnOnce(PathBuf) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // Renamed before the unlock: otherwise a process that takes the free lock would find the
        // directory of a dead owner in place.
        let discarded = trash::discard(layout, &self.path);
        unlock(&self.lock);
        // FUSE file systems keep a removed file, and with it the directory, while it is open.
        drop(self.lock);
        match discarded {
            Ok(Some(place)) => remove(place),
            other => other.map(|_| ()),
        }
    }

    /// Records that a service holds files of this sandbox, if its backend keeps files.
    pub(crate) fn note_remote_files(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        if !spec.backend.capabilities().keeps_files {
            return Ok(());
        }
        let path = self.path.join(REMOTE_FILES);
        std::fs::write(&path, b"").map_err(|error| fault::io("write", &path, error))
    }

    /// Returns true if a service holds files of this sandbox.
    pub(crate) fn has_remote_files(&self) -> bool {
        self.path.join(REMOTE_FILES).exists()
            && read_spec(&self.path).is_ok_and(|spec| spec.backend.capabilities().keeps_files)
    }

    /// Returns true if there are layers on disk, which may be worth keeping.
    pub(crate) fn has_layers(&self) -> bool {
        let is_on_disk = read_spec(&self.path).is_ok_and(|spec| spec.has_layers_on_disk());
        // A fork that was never started has a checkpoint only. A stack alone is left by a start
        // that failed.
        is_on_disk && (self.path.join(LAYERS).is_dir() || self.path.join(CHECKPOINTS).is_dir())
    }

    /// Returns the workspace layer that an earlier guest saved here, for use below the layers in
    /// memory of the next guest. `None` if there is none.
    pub(crate) fn saved_layer(&self) -> Option<PathBuf> {
        let is_in_memory =
            |spec: SandboxSpec| spec.backend.has_layers() && spec.jail.layers == Layers::Memory;
        let layer = self.path.join(WORKSPACE_UPPER);
        (read_spec(&self.path).is_ok_and(is_in_memory) && layer.is_dir()).then_some(layer)
    }

    /// Returns true if there is work that a new guest can continue: layers, a copy of the project,
    /// or files at a service.
    pub(crate) fn holds_work(&self) -> bool {
        let keeps_copy = read_spec(&self.path).is_ok_and(|spec| spec.backend.keeps_copy_here());
        let has_copy = keeps_copy && self.path.join(COPY_DIR).is_dir();
        self.has_layers() || has_copy || self.saved_layer().is_some() || self.has_remote_files()
    }
}

/// Marker file in a sandbox's directory: a service holds files of the sandbox.
const REMOTE_FILES: &str = "remote-files";

/// Returns true if the sandbox of a dead owner is to be kept: it is supervised, holds work, and
/// does not end with its parent.
pub(crate) fn is_kept(sandbox_dir: &SandboxDir) -> bool {
    read_status(&sandbox_dir.path).is_ok_and(|status| status.is_supervised)
        && sandbox_dir.holds_work()
        && !read_spec(&sandbox_dir.path).is_ok_and(|spec| spec.is_bound())
}

/// Releases a lock. Closing the file would not be enough while a child process that another thread
/// is starting still has a copy.
pub(crate) fn unlock(lock: impl AsFd) {
    // Fails only for a descriptor that is not a file.
    let _ = flock(lock, FlockOperation::Unlock);
}

fn open_lock(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(dir, "lock", flags, Mode::RUSR | Mode::WUSR)
}

fn is_same(file: impl AsFd, path: &Path) -> bool {
    let (Ok(ours), Ok(theirs)) = (
        rustix::fs::fstat(file),
        rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW),
    ) else {
        return false;
    };
    (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
}

/// Renames a sandbox's directory to a free name. The directory is never empty, so on a file system
/// without the flag, rename(2) refuses a taken name as well.
///
/// # Errors
/// `EXIST` or `NOTEMPTY` if the name is taken.
pub(crate) fn rename_new(from: &Path, to: &Path) -> Result<(), Errno> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rustix::fs::rename(from, to),
        renamed => renamed,
    }
}

/// Reads `spec.json` of a sandbox's directory.
pub(crate) fn read_spec(dir: &Path) -> Result<SandboxSpec, Fault> {
    read_versioned(&dir.join("spec.json"))
}

/// Reads `status.json` of a sandbox's directory.
pub(crate) fn read_status(dir: &Path) -> Result<Status, Fault> {
    read_versioned(&dir.join("status.json"))
}

/// Writes a JSON file atomically: readers see the old or the new content.
pub(crate) fn write_json<T: Serialize>(path: &Path, content: &T) -> Result<(), Fault> {
    let fresh = path.with_extension("json.new");
    write_fresh(&fresh, content)?;
    // Exchanged instead of replaced: ext4 flushes a file that is renamed over another one
    // (`auto_da_alloc`, ext4(5)), and these files need not survive a power failure.
    let placed = match rustix::fs::renameat_with(CWD, &fresh, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(&fresh),
        Err(_) => fs::rename(&fresh, path),
    };
    placed.map_err(|error| fault::io("write", path, error))
}

/// Writes a JSON file at a path that no other process reads yet.
fn write_fresh<T: Serialize>(path: &Path, content: &T) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(content).map_err(|error| {
        Fault::failed(
            Code::InvalidArgument,
            format!("cannot write {}: {error}", path.display()),
        )
        .remedy("names of directories must be UTF-8")
    })?;
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(&bytes))
        .map_err(|error| fault::io("write", path, error))
}

/// Reads and parses a JSON file. Fails with `io` if the content does not fit `T`.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Fault> {
    serde_json::from_value(read_value(path)?).map_err(|error| corrupt(path, &error.to_string()))
}

fn read_value(path: &Path) -> Result<serde_json::Value, Fault> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|error| fault::io("read", path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| corrupt(path, &error.to_string()))
}

fn read_versioned<T: DeserializeOwned>(path: &Path) -> Result<T, Fault> {
    let mut value = read_value(path)?;
    let version = value
        .as_object_mut()
        .and_then(|object| object.remove("version"));
    match version.as_ref().and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(FILE_VERSION) => {}
        Some(version) => {
            return Err(corrupt(
                path,
                &format!("version {version} was written by another glovebox"),
            ));
        }
        None => return Err(corrupt(path, "it has no version")),
    }
    serde_json::from_value(value).map_err(|error| corrupt(path, &error.to_string()))
}

fn corrupt(path: &Path, what: &str) -> Fault {
    Fault::failed(Code::Io, format!("{} is corrupt: {what}", path.display()))
        .remedy("`glovebox kill NAME` removes the sandbox with all it holds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backend;
    use crate::SandboxState;

    fn make(layout: &Layout, name: &Name) -> Option<SandboxDir> {
        let spec = SandboxSpec::new(Backend::HOST);
        SandboxDir::make(layout, name, &spec, Some(&Status::starting(false))).unwrap()
    }

    #[test]
    fn a_name_is_taken_once_and_its_lock_tells() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let name = Name::parse("one").unwrap();
        assert!(matches!(
            SandboxDir::find(&layout, &name).unwrap(),
            SandboxDirState::Absent
        ));
        let sandbox_dir = make(&layout, &name).unwrap();
        assert!(make(&layout, &name).is_none());
        assert_eq!(fs::read_dir(layout.staging()).unwrap().count(), 0);
        assert!(matches!(
            SandboxDir::find(&layout, &name).unwrap(),
            SandboxDirState::Held
        ));
        unlock(&sandbox_dir.lock);
        let SandboxDirState::Free(sandbox_dir) = SandboxDir::find(&layout, &name).unwrap() else {
            panic!("still held")
        };
        assert!(matches!(
            SandboxDir::find(&layout, &name).unwrap(),
            SandboxDirState::Held
        ));
        sandbox_dir.discard(&layout).unwrap();
        assert!(matches!(
            SandboxDir::find(&layout, &name).unwrap(),
            SandboxDirState::Absent
        ));
        assert!(make(&layout, &name).is_some());
    }

    #[test]
    fn looking_at_what_is_just_removed_is_no_fault() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let name = Name::parse("one").unwrap();
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                for turn in 0..4_000 {
                    let path = layout.sandbox("one");
                    let grave = temp.path().join(turn.to_string());
                    fs::create_dir(&path).unwrap();
                    fs::rename(&path, &grave).unwrap();
                    // A concurrent test of the lock may create its file meanwhile.
                    while fs::remove_dir_all(&grave).is_err() {}
                }
            });
            while !remover.is_finished() {
                if let SandboxDirState::Free(sandbox_dir) =
                    SandboxDir::find(&layout, &name).unwrap()
                {
                    unlock(&sandbox_dir.lock);
                }
            }
        });
    }

    #[test]
    fn files_survive_the_round_trip_and_corruption_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let sandbox_dir = make(&layout, &Name::parse("one").unwrap()).unwrap();
        let mut spec = SandboxSpec::new(Backend::COMMAND);
        spec.set_option("carrier", ["ssh", "box"]);
        spec.lease_ms = Some(5);
        sandbox_dir.write_spec(&spec).unwrap();
        assert_eq!(read_spec(&sandbox_dir.path).unwrap(), spec);
        let status = read_status(&sandbox_dir.path).unwrap();
        assert_eq!(status.state, SandboxState::Starting);

        let path = sandbox_dir.path.join("status.json");
        for (text, said) in [
            ("", "EOF"),
            ("{}", "no version"),
            ("{\"version\":2}", "version 2"),
            ("{\"version\":1}", "missing field"),
            ("[1]", "no version"),
        ] {
            fs::write(&path, text).unwrap();
            let fault = read_status(&sandbox_dir.path).unwrap_err();
            assert!(fault.message.contains(said), "{text}: {fault}");
        }
        let mut unknown = serde_json::to_value(&status).unwrap();
        unknown["version"] = 1.into();
        unknown["extra"] = 1.into();
        fs::write(&path, unknown.to_string()).unwrap();
        assert!(
            read_status(&sandbox_dir.path)
                .unwrap_err()
                .message
                .contains("extra")
        );
    }
}
