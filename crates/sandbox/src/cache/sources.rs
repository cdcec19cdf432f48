//! Check that kept build output belongs to the sources that the next sandbox sees.
//!
//! Cargo and make compare times: output is fresh if it is newer than its sources. A sandbox that
//! changed a source and built leaves output that is newer than the user's file, although it was
//! built from another content. The digests of all files that the sandbox had changed are therefore
//! recorded with its output. The output is used only if each of these paths has that content again,
//! is newer than the output, or is gone: cargo treats the output as stale in the last two cases.

use super::store::CacheLayer;
use crate::checkpoint::tree;
use crate::fault;
use glovebox_proto::{Code, Fault};
use glovebox_spec::json_path;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of changed paths to record for one sandbox.
const MAX_SOURCES: usize = 2000;
/// Maximum total length of these paths, in bytes.
const MAX_PATH_BYTES: usize = 128 << 10;
/// Maximum number of bytes of files to read for comparison.
const MAX_READ_BYTES: u64 = 256 << 20;
/// Maximum depth of directories. Each level holds a directory open.
const MAX_DEPTH: usize = 200;
/// Names that no build output depends on by time: git's own files, and a file that cargo compares
/// by content.
const NO_SOURCES: [&CStr; 2] = [c".git", c"Cargo.lock"];

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Path of the workspace that a sandbox had changed when it left build output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangedSource {
    /// Path, relative to the workspace.
    #[serde(with = "json_path")]
    pub(super) path: PathBuf,
    /// Digest of its content. `None` if it was removed.
    pub(super) digest: Option<String>,
    /// Time at which the output was kept, in milliseconds since the Unix epoch.
    pub(super) kept_unix_ms: u64,
}

/// Change that layers make at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) digest: Option<String>,
    modified_ns: i128,
}

pub(super) type Changes = BTreeMap<PathBuf, Change>;

/// Returns true if the records in `layers` are few enough to be compared.
pub(super) fn is_within_bounds(layers: &[CacheLayer]) -> bool {
    const LAYERS: usize = 4;
    let sources = || layers.iter().flat_map(|layer| &layer.sources);
    let bytes: usize = sources().map(|source| source.path.as_os_str().len()).sum();
    sources().count() <= LAYERS * MAX_SOURCES && bytes <= LAYERS * MAX_PATH_BYTES
}

/// Returns the changes in the layers of a workspace, newest first, outside the top-level directory
/// `except`. Nothing may write to the layers meanwhile.
///
/// # Errors
/// `too-large` if there is more than can be recorded; the errors of reading.
pub(super) fn changes(layers: &[PathBuf], except: &Path) -> Result<Changes, Fault> {
    let mut walk = SourceWalk {
        except: except.as_os_str(),
        found: Changes::new(),
        path_bytes: 0,
        bytes_left: MAX_READ_BYTES,
    };
    for layer in layers {
        walk.layer(layer).map_err(|errno| match errno {
            Errno::FBIG | Errno::NAMETOOLONG => Fault::failed(
                Code::TooLarge,
                format!(
                    "build output is not kept: more was changed beside it than is compared later ({MAX_SOURCES} \
                     paths, {} MiB)",
                    MAX_READ_BYTES >> 20
                ),
            ),
            errno => fault::io("look for changes in", layer, errno),
        })?;
    }
    Ok(walk.found)
}

/// Converts changes to the records of output that is kept now.
pub(super) fn written_down(changes: Changes, kept_unix_ms: u64) -> Vec<ChangedSource> {
    let source = |(path, change): (PathBuf, Change)| ChangedSource {
        path,
        digest: change.digest,
        kept_unix_ms,
    };
    changes.into_iter().map(source).collect()
}

/// The project as the next sandbox sees it.
#[derive(Debug)]
pub(super) struct ProjectView {
    project: OwnedFd,
    /// Changes of the sandbox itself, if it is resumed.
    own: Changes,
    bytes_left: u64,
}

impl ProjectView {
    pub(super) fn open(project: &Path, own: Changes) -> Result<Self, Errno> {
        Ok(Self {
            project: rustix::fs::openat(CWD, project, DIRECTORY, Mode::empty())?,
            own,
            bytes_left: MAX_READ_BYTES,
        })
    }

    /// Returns true if the build output in a layer was built from these sources or is older than
    /// them.
    pub(super) fn fits(&mut self, layer: &CacheLayer) -> bool {
        let is_own_known = self.own.iter().all(|(path, change)| {
            is_later(change.modified_ns, layer.kept_unix_ms)
                || layer.sources.iter().any(|source| source.path == *path)
        });
        is_own_known && layer.sources.iter().all(|source| self.has(source))
    }

    fn has(&mut self, source: &ChangedSource) -> bool {
        if let Some(own) = self.own.get(&source.path) {
            return own.digest == source.digest || is_later(own.modified_ns, source.kept_unix_ms);
        }
        match self.host_has(source) {
            Ok(is_same) => is_same,
            // Cargo rebuilds everything that depends on a missing file.
            Err(Errno::NOENT | Errno::NOTDIR) => true,
            Err(_) => false,
        }
    }

    // TRUST: a sandbox chose the path. It is resolved below the project, without following links.
    fn host_has(&mut self, source: &ChangedSource) -> Result<bool, Errno> {
        let name = source.path.file_name().ok_or(Errno::INVAL)?;
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        let parent = match source.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let way = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        // Without NOFOLLOW, a link fails with an error of its own and not with that of a missing
        // path.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat2(&self.project, parent, flags, Mode::empty(), way)?;
        let stat = tree::look(&dir, &name)?.ok_or(Errno::NOENT)?;
        if is_later(modified_ns(&stat), source.kept_unix_ms) {
            return Ok(true);
        }
        let Some(digest) = &source.digest else {
            return Ok(false);
        };
        Ok(digest_of(&dir, &name, &stat, &mut self.bytes_left)?.as_ref() == Some(digest))
    }
}

fn modified_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec as i64)
}

/// Returns true if a file was modified after the output was kept.
fn is_later(modified_ns: i128, kept_unix_ms: u64) -> bool {
    modified_ns > i128::from(kept_unix_ms) * 1_000_000
}

/// Returns the digest of a file's content or of a link's target. `None` for other types.
fn digest_of(
    dir: &OwnedFd,
    name: &CStr,
    stat: &Stat,
    bytes_left: &mut u64,
) -> Result<Option<String>, Errno> {
    let mut hasher = blake3::Hasher::new();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            hasher.update(b"link\0").update(target.as_bytes());
        }
        FileType::RegularFile => {
            hasher.update(b"file\0");
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            let mut piece = vec![0_u8; 64 << 10];
            loop {
                let count =
                    rustix::io::retry_on_intr(|| rustix::io::read(&file, piece.as_mut_slice()))?;
                if count == 0 {
                    break;
                }
                *bytes_left = bytes_left.checked_sub(count as u64).ok_or(Errno::FBIG)?;
                hasher.update(&piece[..count]);
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(hasher.finalize().to_hex().to_string()))
}

/// Walk through the layers of a workspace.
struct SourceWalk<'a> {
    except: &'a OsStr,
    found: Changes,
    path_bytes: usize,
    bytes_left: u64,
}

/// Directory of a layer, with the names that are still to be visited.
struct Level {
    dir: OwnedFd,
    path: PathBuf,
    names: std::vec::IntoIter<CString>,
}

impl Level {
    fn new(dir: OwnedFd, path: PathBuf) -> Result<Self, Errno> {
        let names = tree::names(&dir)?.into_iter();
        Ok(Self { dir, path, names })
    }
}

impl SourceWalk<'_> {
    fn layer(&mut self, layer: &Path) -> Result<(), Errno> {
        let top = match rustix::fs::openat(CWD, layer, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        let mut levels = vec![Level::new(top, PathBuf::new())?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                levels.pop();
                continue;
            };
            let is_excepted = levels.len() == 1 && name.to_bytes() == self.except.as_bytes();
            if is_excepted || NO_SOURCES.contains(&name.as_c_str()) {
                continue;
            }
            if let Some(below) = self.entry(levels.last(), &name)? {
                if levels.len() >= MAX_DEPTH {
                    return Err(Errno::NAMETOOLONG);
                }
                levels.push(below);
            }
        }
        Ok(())
    }

    /// Visits one name. Returns a directory that is still to be walked.
    fn entry(&mut self, level: Option<&Level>, name: &CStr) -> Result<Option<Level>, Errno> {
        let Some(level) = level else {
            return Ok(None);
        };
        let Some(stat) = tree::look(&level.dir, name)? else {
            return Ok(None);
        };
        let path = level.path.join(OsStr::from_bytes(name.to_bytes()));
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let dir = tree::open_dir(&level.dir, name)?;
            // An opaque directory replaces the one below it, so it is a change itself.
            if tree::is_opaque(&dir) {
                self.add(path.clone(), None, &stat)?;
            }
            return Level::new(dir, path).map(Some);
        }
        let is_known = self.found.contains_key(&path);
        if !is_known && tree::is_whiteout(&stat) {
            self.add(path, None, &stat)?;
        } else if !is_known {
            let digest = digest_of(&level.dir, name, &stat, &mut self.bytes_left)?;
            if digest.is_some() {
                self.add(path, digest, &stat)?;
            }
        }
        Ok(None)
    }

    fn add(&mut self, path: PathBuf, digest: Option<String>, stat: &Stat) -> Result<(), Errno> {
        self.path_bytes += path.as_os_str().len();
        if self.found.len() >= MAX_SOURCES || self.path_bytes > MAX_PATH_BYTES {
            return Err(Errno::FBIG);
        }
        let modified_ns = modified_ns(stat);
        let change = Change {
            digest,
            modified_ns,
        };
        self.found.entry(path).or_insert(change);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, SystemTime};

    struct Site {
        temp: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Self {
            let site = Self {
                temp: tempfile::tempdir().unwrap(),
            };
            for dir in ["project/src", "upper/src", "upper/target"] {
                fs::create_dir_all(site.path(dir)).unwrap();
            }
            site
        }

        fn path(&self, path: &str) -> PathBuf {
            self.temp.path().join(path)
        }

        /// Writes a file whose modification time is an hour ago.
        fn write(&self, path: &str, text: &str) {
            fs::write(self.path(path), text).unwrap();
            let file = fs::File::options().write(true).open(self.path(path));
            let hour_ago = SystemTime::now() - Duration::from_hours(1);
            file.unwrap().set_modified(hour_ago).unwrap();
        }

        fn changes(&self) -> Changes {
            changes(&[self.path("upper")], Path::new("target")).unwrap()
        }

        /// Returns a layer that is kept now.
        fn layer(&self) -> CacheLayer {
            let now_ms = super::super::store::now_ms();
            CacheLayer {
                id: "0".to_owned(),
                first_id: None,
                bytes: 0,
                names: vec!["cargo-target".to_owned()],
                kept_unix_ms: now_ms,
                sources: written_down(self.changes(), now_ms),
            }
        }

        fn fits(&self, layer: &CacheLayer, own: Changes) -> bool {
            ProjectView::open(&self.path("project"), own)
                .unwrap()
                .fits(layer)
        }
    }

    #[test]
    fn output_of_other_sources_than_there_are_now_is_told() {
        let site = Site::new();
        site.write("project/src/lib.rs", "old");
        site.write("upper/src/lib.rs", "new");
        site.write("upper/target/out", "");
        site.write("upper/Cargo.lock", "");
        let layer = site.layer();
        let paths: Vec<&Path> = layer.sources.iter().map(|it| it.path.as_path()).collect();
        assert_eq!(paths, [Path::new("src/lib.rs")]);
        assert!(!site.fits(&layer, Changes::new()));
        // The change was applied, the file was edited since, or it is gone.
        site.write("project/src/lib.rs", "new");
        assert!(site.fits(&layer, Changes::new()));
        site.write("project/src/lib.rs", "older");
        assert!(!site.fits(&layer, Changes::new()));
        fs::remove_file(site.path("project/src/lib.rs")).unwrap();
        assert!(site.fits(&layer, Changes::new()));
        std::thread::sleep(Duration::from_millis(20));
        fs::write(site.path("project/src/lib.rs"), "edited").unwrap();
        assert!(site.fits(&layer, Changes::new()));
    }

    #[test]
    fn a_sandbox_that_lives_again_has_changes_of_its_own() {
        let site = Site::new();
        site.write("project/src/lib.rs", "old");
        let of_others = site.layer();
        site.write("upper/src/lib.rs", "new");
        let own = site.layer();
        assert!(site.fits(&own, site.changes()));
        assert!(!site.fits(&of_others, site.changes()));
        assert!(site.fits(&of_others, Changes::new()));
    }

    #[test]
    fn a_path_never_leads_out_of_the_project() {
        let site = Site::new();
        site.write("upper/src/lib.rs", "new");
        let layer = site.layer();
        fs::create_dir(site.path("elsewhere")).unwrap();
        site.write("elsewhere/lib.rs", "new");
        fs::remove_dir(site.path("project/src")).unwrap();
        std::os::unix::fs::symlink(site.path("elsewhere"), site.path("project/src")).unwrap();
        assert!(!site.fits(&layer, Changes::new()));
    }

    #[test]
    fn too_many_changes_are_an_error() {
        let site = Site::new();
        for number in 0..=MAX_SOURCES {
            fs::write(site.path(&format!("upper/src/{number}")), "").unwrap();
        }
        let fault = changes(&[site.path("upper")], Path::new("target")).unwrap_err();
        assert_eq!(fault.code, Code::TooLarge);
        assert!(fault.message.contains("2000 paths"), "{}", fault.message);
    }
}
