//! Project files that the user trusts: one record per directory, in the state directory.
//!
//! ```text
//! STATE/trust/HASH.json   HASH of the directory's path; directory, digest of the content, time
//! ```
//!
//! Input: a directory and the digest of its `glovebox.toml`. Output: the record of the content that
//! the user agreed to. The store lies outside every project and only its owner can read and write
//! it. A record that other users could have written is an error.

use crate::SettingsError;
use glovebox_sandbox::check_ancestors;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the store in the state directory.
const DIR_NAME: &str = "trust";
const VERSION: u32 = 1;
/// Most bytes of a record.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// The user's consent to one project file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRecord {
    version: u32,
    /// Directory of the file, for people. The record's file name is derived from its bytes.
    pub directory: String,
    /// BLAKE3 digest of the content that the user agreed to.
    pub digest: String,
    /// Time of the consent, in Unix milliseconds.
    pub since_unix_ms: u64,
}

/// Store of one user's records.
#[derive(Debug, Clone)]
pub struct TrustStore {
    state: PathBuf,
}

impl TrustStore {
    /// Returns the store in a state directory. Creates nothing.
    pub const fn new(state: PathBuf) -> Self {
        Self { state }
    }

    /// Returns the record of a directory, or `None` if there is none.
    ///
    /// # Errors
    /// A refusal if the store lies in the directory, or if another user could have written the
    /// store or the record; [`SettingsError::Io`] if they cannot be read.
    pub fn find(&self, directory: &Path) -> Result<Option<TrustRecord>, SettingsError> {
        self.refuse_inside(directory)?;
        if !self.check_store()? {
            return Ok(None);
        }
        read_record(&self.path(directory))
    }

    /// Records that the user agrees to the content with this digest.
    ///
    /// # Errors
    /// Same as [`Self::find`], and [`SettingsError::Io`] if the record cannot be written.
    pub fn add(
        &self,
        directory: &Path,
        digest: &str,
        now_unix_ms: u64,
    ) -> Result<TrustRecord, SettingsError> {
        self.refuse_inside(directory)?;
        self.create_store()?;
        let record = TrustRecord {
            version: VERSION,
            directory: directory.to_string_lossy().into_owned(),
            digest: digest.to_owned(),
            since_unix_ms: now_unix_ms,
        };
        let path = self.path(directory);
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let wrong = |error: &std::io::Error| cannot("write", &path, error);
        let mut text = serde_json::to_vec(&record).map_err(|error| wrong(&error.into()))?;
        text.push(b'\n');
        // A draft of an earlier process with this id would make `create_new` fail.
        let _ = fs::remove_file(&draft);
        // Sync before the rename: otherwise a crash could leave an empty record under its name.
        let placed = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| {
                file.write_all(&text)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = placed {
            let _ = fs::remove_file(&draft);
            return Err(wrong(&error));
        }
        Ok(record)
    }

    /// Removes the record of a directory. Returns false if there was none.
    ///
    /// # Errors
    /// A refusal if another user could have written the store; [`SettingsError::Io`] if the record
    /// cannot be removed.
    pub fn remove(&self, directory: &Path) -> Result<bool, SettingsError> {
        if !self.check_store()? {
            return Ok(false);
        }
        let path = self.path(directory);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(cannot("remove", &path, &error)),
        }
    }

    /// Returns all records, sorted by directory.
    ///
    /// # Errors
    /// A refusal if another user could have written the store or a record; [`SettingsError::Io`] if
    /// they cannot be read.
    pub fn list(&self) -> Result<Vec<TrustRecord>, SettingsError> {
        if !self.check_store()? {
            return Ok(Vec::new());
        }
        let dir = self.dir();
        let entries = fs::read_dir(&dir).map_err(|error| cannot("read", &dir, &error))?;
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", &dir, &error))?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                records.extend(read_record(&path)?);
            }
        }
        records.sort_by(|one, other| one.directory.cmp(&other.directory));
        Ok(records)
    }

    fn dir(&self) -> PathBuf {
        self.state.join(DIR_NAME)
    }

    fn path(&self, directory: &Path) -> PathBuf {
        let hash = blake3::hash(directory.as_os_str().as_bytes()).to_hex();
        self.dir().join(format!("{hash}.json"))
    }

    /// Refuses a store inside the project, because it could have come with the project, records
    /// included.
    fn refuse_inside(&self, directory: &Path) -> Result<(), SettingsError> {
        let state = self.state.canonicalize();
        if !state
            .unwrap_or_else(|_| self.state.clone())
            .starts_with(directory)
        {
            return Ok(());
        }
        Err(SettingsError::refused(
            format!(
                "the state directory {} lies in the project {}, so it cannot say whether that is trusted",
                self.state.display(),
                directory.display()
            ),
            "choose a state directory outside the project",
        ))
    }

    fn create_store(&self) -> Result<(), SettingsError> {
        if let Some(parent) = self.state.parent() {
            // Check first: otherwise the store could be created below a directory that another user
            // controls.
            check_ancestors(parent)?;
            fs::create_dir_all(parent).map_err(|error| cannot("make", parent, &error))?;
        }
        for dir in [&self.state, &self.dir()] {
            match fs::DirBuilder::new().mode(0o700).create(dir) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot("make", dir, &error)),
            }
        }
        self.check_store().map(|_| ())
    }

    /// Returns true if the store exists. A store that other users could have written is an error.
    fn check_store(&self) -> Result<bool, SettingsError> {
        check_ancestors(&self.state)?;
        for dir in [&self.state, &self.dir()] {
            match rustix::fs::statat(CWD, dir, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(status) => check_private(dir, &status, FileType::Directory)?,
                Err(Errno::NOENT) => return Ok(false),
                Err(errno) => return Err(cannot("inspect", dir, &errno.into())),
            }
        }
        Ok(true)
    }
}

/// Reads a record, and checks that only its owner could have written it.
fn read_record(path: &Path) -> Result<Option<TrustRecord>, SettingsError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(cannot("read", path, &errno.into())),
    };
    // Check the open file, not the path, which could be exchanged between check and read.
    let status =
        rustix::fs::fstat(&file).map_err(|errno| cannot("inspect", path, &errno.into()))?;
    check_private(path, &status, FileType::RegularFile)?;
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| cannot("read", path, &error))?;
    let record: Option<TrustRecord> = serde_json::from_str(&text).ok();
    match record {
        Some(record) if record.version == VERSION => Ok(Some(record)),
        _ => Err(SettingsError::refused(
            format!("{} is no record of a trusted project", path.display()),
            "remove it, and trust the project again with `glovebox config trust`",
        )),
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> SettingsError {
    SettingsError::io(format!("{what} {}", path.display()), error).with_remedy(
        "trust in projects is kept in the state directory; make it yours, or choose another one",
    )
}

fn check_private(path: &Path, status: &Stat, kind: FileType) -> Result<(), SettingsError> {
    let problem = if FileType::from_raw_mode(status.st_mode) != kind {
        "is not what it should be"
    } else if status.st_uid != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if status.st_mode & 0o077 != 0 {
        "is open to other users"
    } else {
        return Ok(());
    };
    Err(SettingsError::refused(
        format!(
            "{} {problem}, so which projects are trusted is unknown",
            path.display()
        ),
        "look at it, and remove it or take the others' permissions away",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn store(temp: &tempfile::TempDir) -> TrustStore {
        TrustStore::new(temp.path().join("state"))
    }

    #[test]
    fn what_is_trusted_is_found_listed_and_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let store = store(&temp);
        let (one, two) = (Path::new("/p/one"), Path::new("/p/two"));
        assert_eq!(store.find(one).unwrap(), None);
        assert_eq!(store.list().unwrap(), []);
        assert!(!store.remove(one).unwrap());
        store.add(two, "d2", 7).unwrap();
        store.add(one, "old", 1).unwrap();
        store.add(one, "d1", 2).unwrap();
        let found = store.find(one).unwrap().unwrap();
        assert_eq!((found.digest.as_str(), found.since_unix_ms), ("d1", 2));
        let listed: Vec<String> = store
            .list()
            .unwrap()
            .into_iter()
            .map(|one| one.directory)
            .collect();
        assert_eq!(listed, ["/p/one", "/p/two"]);
        assert!(store.remove(one).unwrap());
        assert_eq!(store.find(one).unwrap(), None);
        for entry in fs::read_dir(store.dir()).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(store.dir().metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_store_in_the_project_is_no_answer() {
        let temp = tempfile::tempdir().unwrap();
        let (store, root) = (store(&temp), temp.path().canonicalize().unwrap());
        store.find(&root).unwrap_err();
        store.add(&root, "d", 1).unwrap_err();
        assert!(!store.state.exists());
        store.add(&root.join("project"), "d", 1).unwrap();
        store.find(&root).unwrap_err();
        assert!(store.find(&root.join("project")).unwrap().is_some());
    }

    #[test]
    fn a_store_or_record_that_others_could_have_written_is_no_answer() {
        let temp = tempfile::tempdir().unwrap();
        let store = store(&temp);
        let dir = Path::new("/p");
        store.add(dir, "d", 1).unwrap();
        let record = store.path(dir);
        let with_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (path, bad, good) in [
            (store.dir(), 0o777, 0o700),
            (store.state.clone(), 0o777, 0o700),
            (record.clone(), 0o666, 0o600),
            (temp.path().to_owned(), 0o777, 0o700),
        ] {
            with_mode(&path, bad);
            store.find(dir).unwrap_err();
            store.add(Path::new("/q"), "d", 1).ok();
            with_mode(&path, good);
            assert!(store.find(dir).unwrap().is_some(), "{}", path.display());
        }
        fs::write(&record, "{}").unwrap();
        store.find(dir).unwrap_err();
        fs::remove_file(&record).unwrap();
        symlink("/etc/hostname", &record).unwrap();
        store.find(dir).unwrap_err();
        store.add(dir, "d", 1).unwrap();
        assert_eq!(store.find(dir).unwrap().unwrap().digest, "d");
    }
}
