//! Layout of the state directory, and the check that only this user has access to it.
//!
//! ```text
//! STATE/sandboxes/NAME/   one directory per sandbox (see `sandbox_dir`)
//! STATE/staging/          directories that are being filled
//! STATE/slots/N           leases: one lock per live sandbox (see `slot`)
//! STATE/base/             files that sandboxes share, by hash
//! STATE/layers/           frozen layers of checkpoints, shared (see `checkpoint`)
//! STATE/caches/           package caches that projects keep (see `cache`)
//! STATE/trash/            trees that are being removed
//! ```

use crate::fault;
use crate::state::ancestors::check_ancestors;
use glovebox_proto::{Code, Fault};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Name of the directory of writable layers, below the sandbox's own.
pub(crate) const LAYERS: &str = "layers";
/// Layer with the changes to the workspace, below the sandbox's own directory.
pub(crate) const WORKSPACE_UPPER: &str = "layers/workspace-upper";
/// Directory of a sandbox's checkpoints, below its own.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// File of a sandbox with its stack of frozen layers, if it has any.
pub(crate) const STACK: &str = "stack.json";

/// Paths below one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    state: PathBuf,
}

impl Layout {
    /// Creates missing directories, and refuses a state directory that another user could have
    /// prepared.
    pub(crate) fn open(state: &Path) -> Result<Self, Fault> {
        if !state.is_absolute() {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!(
                    "the state directory {} is not an absolute path",
                    state.display()
                ),
            ));
        }
        if let Some(parent) = state.parent() {
            check_ancestors(parent)?;
            fs::create_dir_all(parent).map_err(|error| fault::io("make", parent, error))?;
        }
        let layout = Self {
            state: state.to_owned(),
        };
        let rooms = [
            layout.sandboxes(),
            layout.staging(),
            layout.slots(),
            layout.base(),
            layout.layers(),
            layout.caches(),
            layout.trash(),
        ];
        make_private(state)?;
        for room in rooms {
            if make_private(&room)? && room == layout.staging() {
                spread(&room);
            }
        }
        Ok(layout)
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.state.join("sandboxes")
    }

    pub(crate) fn sandbox(&self, name: &str) -> PathBuf {
        self.state.join("sandboxes").join(name)
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.state.join("staging")
    }

    pub(crate) fn slots(&self) -> PathBuf {
        self.state.join("slots")
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.state.join("base")
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.state.join("layers")
    }

    pub(crate) fn caches(&self) -> PathBuf {
        self.state.join("caches")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.state.join("trash")
    }
}

/// Tells ext4 that the directories created in `dir` are unrelated, so that it places each where
/// there is room (chattr(1), attribute `T`). If all sandboxes were in one place, freed inodes would
/// slow down the creation of new ones: by milliseconds, without a journal.
fn spread(dir: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    // Other file systems lack this flag and do not need it.
    let _ = open_dir(dir).and_then(|dir| {
        let flags = ioctl_getflags(&dir)?;
        ioctl_setflags(&dir, flags | IFlags::TOPDIR)
    });
}

/// Creates a directory of mode 0700, or checks an existing one: it must be a real directory of this
/// user that no other user can access. Returns true if it is new.
fn make_private(path: &Path) -> Result<bool, Fault> {
    let found = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    if matches!(found, Err(Errno::NOENT)) {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => return Ok(true),
            // Another process created it first.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fault::io("make", path, error)),
        }
    }
    let refuse = |what: &str, remedy: String| {
        Err(Fault::refused(
            Code::PermissionDenied,
            format!("will not use {} for state: {what}", path.display()),
        )
        .remedy(remedy))
    };
    let stat = match found {
        Err(Errno::NOENT) => rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW),
        found => found,
    }
    .map_err(|errno| fault::io("inspect", path, errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return refuse(
            "it is not a directory",
            "remove it, or choose another state directory".into(),
        );
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse(
            &format!("it belongs to user {}", stat.st_uid),
            "choose another state directory".into(),
        );
    }
    // Another user who can write to it could have prepared it.
    if stat.st_mode & 0o022 != 0 {
        return refuse(
            "others may write to it",
            format!("chmod 700 {}", path.display()),
        );
    }
    if stat.st_mode & 0o055 != 0 {
        // The user may have named a directory of other content by mistake, so its permissions are
        // not changed.
        if !is_empty_or_state(path) {
            return refuse(
                "others may look into it, and it holds something else",
                format!("name an empty directory, or chmod 700 {}", path.display()),
            );
        }
        open_dir(path)
            .and_then(|dir| rustix::fs::fchmod(&dir, Mode::RWXU))
            .map_err(|errno| fault::io("make private", path, errno))?;
    }
    Ok(false)
}

/// Returns true if a directory is empty, or a state directory or a part of one.
fn is_empty_or_state(path: &Path) -> bool {
    let is_state = |dir: &Path| dir.join("sandboxes").is_dir() && dir.join("slots").is_dir();
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    is_state(path) || path.parent().is_some_and(is_state) || is_empty()
}

/// Opens a directory as the anchor of relative operations.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_fresh_state_directory_is_private_and_opens_again() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("a/b/state");
        Layout::open(&state).unwrap();
        Layout::open(&state).unwrap();
        for path in [state.clone(), state.join("sandboxes"), state.join("slots")] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                0o700
            );
        }
    }

    #[test]
    fn what_others_could_have_prepared_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let real = temp.path().join("real");
        Layout::open(&real).unwrap();
        let link = temp.path().join("link");
        symlink(&real, &link).unwrap();
        let fault = Layout::open(&link).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied);
        assert!(fault.message.contains("not a directory"), "{fault}");

        fs::set_permissions(&real, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(
            Layout::open(&real)
                .unwrap_err()
                .remedy
                .unwrap()
                .to_string()
                .starts_with("chmod 700 ")
        );
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();

        let room = real.join("sandboxes");
        fs::remove_dir(&room).unwrap();
        symlink("/", &room).unwrap();
        assert!(
            Layout::open(&real)
                .unwrap_err()
                .message
                .contains("not a directory")
        );
    }

    #[test]
    fn a_state_directory_that_others_may_read_is_made_private() {
        let temp = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let state = temp.path().join("state");
        fs::create_dir(&state).unwrap();
        set(&state, 0o755);
        Layout::open(&state).unwrap();
        assert_eq!(mode(&state), 0o700);
        set(&state, 0o755);
        set(&state.join("sandboxes"), 0o711);
        Layout::open(&state).unwrap();
        assert_eq!(
            (mode(&state), mode(&state.join("sandboxes"))),
            (0o700, 0o700)
        );

        let other = temp.path().join("documents");
        fs::create_dir_all(other.join("letters")).unwrap();
        set(&other, 0o755);
        let fault = Layout::open(&other).unwrap_err();
        assert!(fault.message.contains("holds something else"), "{fault}");
        assert_eq!(mode(&other), 0o755);
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        if !rustix::process::geteuid().is_root() {
            // Every system has directories of root, which an ordinary user may not use for state.
            let fault = Layout::open(Path::new("/usr/lib")).unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied);
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        Layout::open(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(12345), None).unwrap();
        let fault = Layout::open(&state).unwrap_err();
        assert!(fault.message.contains("belongs to user 12345"), "{fault}");
    }

    #[test]
    fn a_directory_that_others_could_exchange_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        fs::create_dir(&open).unwrap();
        let state = open.join("state");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        Layout::open(&state).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let fault = Layout::open(&state).unwrap_err();
        assert_eq!(fault.code, Code::PermissionDenied);
        assert!(fault.message.contains("no sticky bit"), "{fault}");
        // A state directory below it is refused as well.
        Layout::open(&open.join("other/state")).unwrap_err();
        assert!(!open.join("other").exists());
    }

    #[test]
    fn a_relative_state_directory_is_refused() {
        assert_eq!(
            Layout::open(Path::new("state")).unwrap_err().code,
            Code::InvalidArgument
        );
    }
}
