//! Contents of a project's files at the time when a sandbox started from it, for files that the
//! host may change.
//!
//! The base index shows that a file changed, but not its former content. [`keep`] records that
//! after the index is written: for files that git tracks and that are unchanged, the name of their
//! content in the object database; for other files that are small and not ignored, a copy. Both are
//! bounded. The content that a pull brings becomes the base of later changes, so pulls record it
//! beside the index ([`advance`]).
//!
//! ```text
//! "GLVKEPT" version(1)
//! entry*   path-length(4) path flags(1) id-length(1) id size(8) content   little-endian
//! end      0(4)
//! ```

use super::git_index::GitIndex;
use super::ignored::ProjectIgnoreRules;
use super::{Kind, Signature, beside, decode, write_atomically};
use crate::beneath::{Anchor, io};
use crate::git::owned_working_tree;
use crate::{Digest, RelPath};
use glovebox_proto::limits::MAX_PATH_BYTES;
use glovebox_proto::{Code, Fault};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"GLVKEPT\x01";
/// Maximum size of a file that is copied, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum total size of all copies, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum length of an object name, in bytes.
const MAX_ID_BYTES: usize = 32;
const IS_CLEAN: u8 = 1;
const HAS_CONTENT: u8 = 2;

/// Recorded content of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptFile {
    /// Object name in git's index if git tracked the file; for a file from a pull, the digest.
    /// Empty if there is neither.
    pub(crate) id: Vec<u8>,
    /// True if the file had the content of the object.
    pub(crate) is_clean: bool,
    /// Offset and length of the copy in the record; `None` if there is none.
    content: Option<(u64, u64)>,
}

/// Records the contents of the files in the index at `index`, beside it. Paths in `hidden` are not
/// copied, because they may be secret. `is_stopped` is called for each file.
///
/// # Errors
/// [`Code::Cancelled`] if stopped; any failure to read the index or to write. No part of an
/// incomplete record remains.
pub fn keep(
    project: &Path,
    index: &Path,
    pushed_unix_ns: u128,
    hidden: &[PathBuf],
    is_stopped: &dyn Fn() -> bool,
) -> std::result::Result<(), Fault> {
    let hidden: HashSet<&Path> = hidden.iter().map(PathBuf::as_path).collect();
    let is_hidden = |path: &RelPath| {
        let mut above = path.as_path().ancestors();
        above.any(|path| hidden.contains(path))
    };
    let file = kept_file(index);
    let anchor = Anchor::open(project)?;
    let (git_index, prefix) = match owned_working_tree(project) {
        Some((tree, prefix)) => (GitIndex::read(&tree.git_dir), prefix),
        None => (GitIndex::default(), Vec::new()),
    };
    let pushed_unix_ns = i64::try_from(pushed_unix_ns).unwrap_or(i64::MAX);
    let mut ignored = ProjectIgnoreRules::new(&anchor);
    let mut was_stopped = false;
    let written = write_atomically(&file, |out| {
        let mut writer = Writer::new(out)?;
        let mut failure = None;
        decode(File::open(index)?, |path, signature| {
            was_stopped = is_stopped();
            if was_stopped {
                return false;
            }
            let Signature::Present {
                kind: Kind::File,
                size,
                ctime_ns,
                ..
            } = signature
            else {
                return true;
            };
            // A file changed after the push may no longer have the content that the sandbox found.
            if ctime_ns > pushed_unix_ns {
                return true;
            }
            let from_top = [&prefix, path.as_bytes()].concat();
            let tracked = git_index.tracked(&from_top, &signature);
            let id = tracked.map_or(&b""[..], |tracked| tracked.id);
            let done = if tracked.is_some_and(|tracked| tracked.is_clean) {
                writer.put(path, IS_CLEAN, id, None)
            } else {
                let is_wanted = size <= MAX_FILE_BYTES.min(writer.left)
                    && !is_hidden(path)
                    && (tracked.is_some() || !ignored.is_ignored(path));
                let content = is_wanted.then(|| read(&anchor, path, &signature)).flatten();
                if content.is_some() || !id.is_empty() {
                    writer.put(path, 0, id, content.as_deref())
                } else {
                    Ok(())
                }
            };
            failure = done.err();
            failure.is_none()
        })?;
        match failure {
            Some(error) => Err(error),
            None if was_stopped => Err(ErrorKind::Interrupted.into()),
            None => writer.finish(),
        }
    });
    written.map_err(|error| {
        if was_stopped {
            Fault::failed(Code::Cancelled, "it was cancelled")
        } else {
            io("write", &file, error)
        }
    })
}

/// Returns the content of a file, unless the file changed since its signature was recorded or is
/// too large.
fn read(anchor: &Anchor, path: &RelPath, signature: &Signature) -> Option<Vec<u8>> {
    let (file, _) = anchor.file(path.as_bytes()).ok()?;
    let mut content = Vec::new();
    (&file)
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .ok()?;
    // The attributes are compared after reading, which also detects a write during it.
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_same = Signature::from(&stat) == *signature;
    (is_same && content.len() as i64 == stat.st_size).then_some(content)
}

/// Version of one path that a pull brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PulledContent {
    /// Digest of the sandbox's version; `None` if that is not a file.
    pub(crate) digest: Option<Digest>,
    /// Content; `None` if it is too large to be the base of merges.
    pub(crate) content: Option<Vec<u8>>,
}

/// Records the new bases of paths after a pull. The base of a path with neither content nor digest
/// becomes unknown.
///
/// # Errors
/// When the record cannot be written.
pub(crate) fn advance(
    index: &Path,
    updates: &BTreeMap<RelPath, PulledContent>,
) -> std::result::Result<(), Fault> {
    if updates.is_empty() {
        return Ok(());
    }
    let file = pulled_file(index);
    // An unreadable record counts as missing.
    let mut earlier = KeptRecord::load(file.clone(), |path| !updates.contains_key(path));
    write_atomically(&file, |out| {
        let mut writer = Writer::new(out)?;
        for (path, pulled) in updates {
            let fits = |content: &&Vec<u8>| content.len() as u64 <= writer.left;
            let content = pulled.content.as_ref().filter(fits);
            let id = pulled
                .digest
                .as_ref()
                .map_or(&b""[..], |digest| digest.as_slice());
            if content.is_some() || !id.is_empty() {
                writer.put(path, 0, id, content.map(Vec::as_slice))?;
            }
        }
        let known: Vec<(RelPath, Vec<u8>)> = earlier
            .files
            .iter()
            .map(|(path, known)| (path.clone(), known.id.clone()))
            .collect();
        for (path, id) in known {
            let content = earlier.content(&path, writer.left);
            if content.is_some() || !id.is_empty() {
                writer.put(&path, 0, &id, content.as_deref())?;
            }
        }
        writer.finish()
    })
    .map_err(|error| io("write", &file, error))
}

/// An opened record of contents.
#[derive(Debug, Default)]
pub(crate) struct KeptRecord {
    files: HashMap<RelPath, KeptFile>,
    file: Option<File>,
}

impl KeptRecord {
    /// Loads the record from the start of the sandbox.
    pub(crate) fn first(index: &Path, wanted: &BTreeSet<RelPath>) -> Self {
        Self::load(kept_file(index), |path| wanted.contains(path))
    }

    /// Loads the record of pulls.
    pub(crate) fn pulled(index: &Path, wanted: &BTreeSet<RelPath>) -> Self {
        Self::load(pulled_file(index), |path| wanted.contains(path))
    }

    /// Loads a record. One that cannot be read to its end counts as empty.
    fn load(path: PathBuf, is_wanted: impl Fn(&RelPath) -> bool) -> Self {
        let load = || -> Result<Self> {
            let file = File::open(path)?;
            let files = scan(&file, is_wanted)?;
            Ok(Self {
                files,
                file: Some(file),
            })
        };
        load().unwrap_or_default()
    }

    /// Returns the record of a path; `None` if there is none.
    pub(crate) fn get(&self, path: &RelPath) -> Option<&KeptFile> {
        self.files.get(path)
    }

    /// Returns the copy of a content; `None` if there is none or it is longer than `max_bytes`.
    pub(crate) fn content(&mut self, path: &RelPath, max_bytes: u64) -> Option<Vec<u8>> {
        let (at, size) = self.files.get(path)?.content?;
        if size > max_bytes {
            return None;
        }
        let file = self.file.as_mut()?;
        file.seek(SeekFrom::Start(at)).ok()?;
        let mut content = vec![0; usize::try_from(size).ok()?];
        file.read_exact(&mut content).ok()?;
        Some(content)
    }
}

struct Writer<W: Write> {
    out: W,
    /// Remaining number of bytes of content.
    left: u64,
}

impl<W: Write> Writer<W> {
    fn new(mut out: W) -> Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self {
            out,
            left: MAX_BYTES,
        })
    }

    fn put(&mut self, path: &RelPath, flags: u8, id: &[u8], content: Option<&[u8]>) -> Result<()> {
        let bytes = path.as_bytes();
        self.out.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.out.write_all(bytes)?;
        let flags = flags | if content.is_some() { HAS_CONTENT } else { 0 };
        self.out.write_all(&[flags, id.len() as u8])?;
        self.out.write_all(id)?;
        let content = content.unwrap_or_default();
        self.out.write_all(&(content.len() as u64).to_le_bytes())?;
        self.left = self.left.saturating_sub(content.len() as u64);
        self.out.write_all(content)
    }

    fn finish(mut self) -> Result<()> {
        self.out.write_all(&0_u32.to_le_bytes())?;
        self.out.flush()
    }
}

fn scan(file: &File, is_wanted: impl Fn(&RelPath) -> bool) -> Result<HashMap<RelPath, KeptFile>> {
    let invalid = || Error::from(ErrorKind::InvalidData);
    let mut input = BufReader::with_capacity(64 << 10, file);
    let mut at = 0_u64;
    let mut take = |input: &mut BufReader<&File>, buffer: &mut [u8]| {
        at += buffer.len() as u64;
        input.read_exact(buffer).map(|()| at)
    };
    let mut head = [0; MAGIC.len()];
    take(&mut input, &mut head)?;
    if head != *MAGIC {
        return Err(invalid());
    }
    let mut skipped = 0_u64;
    let mut files = HashMap::new();
    loop {
        let mut length = [0; 4];
        take(&mut input, &mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return Ok(files);
        }
        if length > MAX_PATH_BYTES {
            return Err(invalid());
        }
        let mut path = vec![0; length];
        take(&mut input, &mut path)?;
        let mut flags = [0; 2];
        take(&mut input, &mut flags)?;
        let [flags, id_length] = flags;
        if usize::from(id_length) > MAX_ID_BYTES {
            return Err(invalid());
        }
        let mut id = vec![0; usize::from(id_length)];
        take(&mut input, &mut id)?;
        let mut size = [0; 8];
        let content_at = take(&mut input, &mut size)? + skipped;
        let size = u64::from_le_bytes(size);
        if size > MAX_BYTES {
            return Err(invalid());
        }
        let path = RelPath::new(path).map_err(|_| invalid())?;
        if is_wanted(&path) {
            let kept = KeptFile {
                id,
                is_clean: flags & IS_CLEAN != 0,
                content: (flags & HAS_CONTENT != 0).then_some((content_at, size)),
            };
            files.insert(path, kept);
        }
        input.seek_relative(i64::try_from(size).map_err(|_| invalid())?)?;
        skipped += size;
    }
}

fn kept_file(index: &Path) -> PathBuf {
    beside(index, ".kept")
}

fn pulled_file(index: &Path) -> PathBuf {
    beside(index, ".pulled.kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn what_was_noted_is_found_and_the_latest_counts() {
        let temp = tempfile::tempdir().unwrap();
        let index = temp.path().join("base");
        let note = |updates: &[(&str, Option<&str>)]| {
            let owned = updates.iter().map(|(name, text)| {
                let content = text.map(|text| text.as_bytes().to_vec());
                (
                    path(name),
                    PulledContent {
                        digest: None,
                        content,
                    },
                )
            });
            advance(&index, &owned.collect()).unwrap();
        };
        note(&[("a", Some("one")), ("b", Some("two")), ("d/c", Some(""))]);
        note(&[("b", None), ("a", Some("three"))]);
        let wanted: BTreeSet<RelPath> = ["a", "b", "d/c"].map(path).into();
        let mut kept = KeptRecord::pulled(&index, &wanted);
        assert_eq!(kept.content(&path("a"), 9).as_deref(), Some(&b"three"[..]));
        assert_eq!(kept.content(&path("a"), 4), None);
        assert_eq!(kept.content(&path("b"), 9), None);
        assert_eq!(kept.content(&path("d/c"), 9).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn a_record_that_is_cut_off_knows_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let index = temp.path().join("base");
        let content = Some(b"one".to_vec());
        let pulled = PulledContent {
            digest: None,
            content,
        };
        advance(&index, &[(path("a"), pulled)].into()).unwrap();
        let file = pulled_file(&index);
        let whole = std::fs::read(&file).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&file, &whole[..length]).unwrap();
            let mut kept = KeptRecord::pulled(&index, &[path("a")].into());
            assert_eq!(kept.content(&path("a"), 9), None, "{length}");
        }
    }

    #[test]
    fn small_files_are_copied_and_ignored_ones_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path().join("project");
        std::fs::create_dir_all(project.join("sub/out")).unwrap();
        let write = |name: &str, text: &[u8]| std::fs::write(project.join(name), text).unwrap();
        // An invalid pattern does not affect the others.
        write(".gitignore", b"*.log\n[z-a]x\n[x\nout/\n");
        write("small", b"text");
        write("x.log", b"ignored");
        write("sub/out/y", b"ignored");
        write("sub/.gitignore", b"!kept.log\n");
        write("sub/kept.log", b"wanted");
        write("secret", b"hidden");
        std::fs::create_dir(project.join("secrets")).unwrap();
        write("secrets/a", b"hidden");
        write("large", &vec![b'x'; MAX_FILE_BYTES as usize + 1]);
        let index = temp.path().join("base");
        let later = u128::from(u64::MAX / 4);
        super::super::record(&project, &index, later, &|| false).unwrap();
        let hidden = ["secret".into(), "secrets".into()];
        keep(&project, &index, later, &hidden, &|| false).unwrap();
        let names = [
            "small",
            "x.log",
            "sub/out/y",
            "sub/kept.log",
            "large",
            "secret",
            "secrets/a",
        ];
        let mut kept = KeptRecord::first(&index, &names.map(path).into());
        let found = names.map(|name| kept.content(&path(name), 1 << 30).is_some());
        assert_eq!(found, [true, false, false, true, false, false, false]);
        assert_eq!(
            keep(&project, &index, later, &[], &|| true)
                .unwrap_err()
                .code,
            Code::Cancelled
        );
    }
}
