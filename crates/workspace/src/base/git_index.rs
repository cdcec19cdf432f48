//! Which files of a project are as git last saw them, read from the index of its repository.
//!
//! Git's index holds the name of the content and the attributes of every tracked file. Where the
//! attributes are those of the file, the object database holds its content, and no copy is needed. The
//! file is read as data, by no program; see `gitformat-index(5)`.

use super::{Kind, Signature};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Longer indexes are not read: four times that of the largest known repositories.
const MAX_BYTES: u64 = 256 << 20;
/// Attributes before the name of the content: ten numbers.
const ATTRIBUTES_BYTES: usize = 40;
/// Lengths of names of contents: SHA-1, SHA-256.
const ID_BYTES: [usize; 2] = [20, 32];
const EXTENDED: u16 = 0x4000;
const ASSUMED: u16 = 0x8000;
const STAGE: u16 = 0x3000;
const REGULAR: u32 = 0o100_000;
const TYPE: u32 = 0o170_000;

/// Tracked files by their path from the top of the working tree.
#[derive(Debug, Default)]
pub(super) struct GitIndex {
    entries: HashMap<Box<[u8]>, Entry>,
    /// When the index was written.
    written: (u32, u32),
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    ctime: (u32, u32),
    mtime: (u32, u32),
    ino: u32,
    size: u32,
    is_assumed: bool,
    id: Box<[u8]>,
}

/// What the index says about one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tracked<'a> {
    /// Name of the content it has for git.
    pub(super) id: &'a [u8],
    /// Whether the file has that content.
    pub(super) is_clean: bool,
}

impl GitIndex {
    /// Reads an index; one that cannot be read tracks nothing.
    pub(super) fn read(path: &Path) -> Self {
        Self::try_read(path).unwrap_or_default()
    }

    fn try_read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.len() > MAX_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        // Nothing in it says how long names of contents are.
        let entries = ID_BYTES
            .into_iter()
            .find_map(|id_bytes| parse(&bytes, id_bytes))?;
        Some(Self {
            entries,
            written: (meta.mtime() as u32, meta.mtime_nsec() as u32),
        })
    }

    /// What it says about the file at `path` that has this signature.
    pub(super) fn tracked(&self, path: &[u8], signature: &Signature) -> Option<Tracked<'_>> {
        let entry = self.entries.get(path)?;
        Some(Tracked {
            id: &entry.id,
            is_clean: !entry.is_assumed && self.is_clean(entry, signature),
        })
    }

    fn is_clean(&self, entry: &Entry, signature: &Signature) -> bool {
        let Signature::Present {
            kind: Kind::File,
            size,
            mtime_ns,
            ctime_ns,
            ino,
            ..
        } = signature
        else {
            return false;
        };
        let same = |(seconds, rest): (u32, u32), ns: i64| {
            let parts = (
                ns.div_euclid(1_000_000_000) as u32,
                ns.rem_euclid(1_000_000_000) as u32,
            );
            // Some write no fractions.
            seconds == parts.0 && (rest == 0 || rest == parts.1)
        };
        // What was written in the same moment as the index may have changed after git looked at it.
        let is_older = if entry.mtime.1 == 0 || self.written.1 == 0 {
            entry.mtime.0 < self.written.0
        } else {
            entry.mtime < self.written
        };
        is_older
            && entry.size == *size as u32
            && entry.ino == *ino as u32
            && same(entry.mtime, *mtime_ns)
            && same(entry.ctime, *ctime_ns)
    }
}

// TRUST: a project may come with a repository that others made.
fn parse(bytes: &[u8], id_bytes: usize) -> Option<HashMap<Box<[u8]>, Entry>> {
    let mut input = Input { bytes, at: 0 };
    if input.take(4)? != b"DIRC" {
        return None;
    }
    let version = input.number()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = input.number()? as usize;
    // Each has more bytes than that, so a number alone allocates nothing.
    let mut entries = HashMap::with_capacity(count.min(bytes.len() / ATTRIBUTES_BYTES));
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..count {
        let start = input.at;
        let ctime = (input.number()?, input.number()?);
        let mtime = (input.number()?, input.number()?);
        let _device = input.number()?;
        let ino = input.number()?;
        let mode = input.number()?;
        let _owner = (input.number()?, input.number()?);
        let size = input.number()?;
        let id = input.take(id_bytes)?;
        let flags = input.short()?;
        if flags & EXTENDED != 0 {
            if version == 2 {
                return None;
            }
            input.short()?;
        }
        if version == 4 {
            let dropped = input.offset()?;
            name.truncate(name.len().checked_sub(dropped)?);
            name.extend_from_slice(input.until_nul()?);
        } else {
            name.clear();
            name.extend_from_slice(input.until_nul()?);
            // The NUL is one of up to eight that fill the entry.
            let used = input.at - start - 1;
            input.take((used / 8 + 1) * 8 - used - 1)?;
        }
        let stated = usize::from(flags & 0xfff);
        if name.is_empty() || (stated < 0xfff && stated != name.len()) {
            return None;
        }
        if mode & TYPE == REGULAR && flags & STAGE == 0 {
            let entry = Entry {
                ctime,
                mtime,
                ino,
                size,
                is_assumed: flags & ASSUMED != 0,
                id: id.into(),
            };
            entries.insert(name.as_slice().into(), entry);
        }
    }
    Some(entries)
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let found = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(found)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// A number in as many bytes as it needs, as in offsets of packs.
    fn offset(&mut self) -> Option<usize> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
        }
        Some(value)
    }

    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;
    use testkit::{has_program, skip};

    fn git(dir: &Path, args: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .status()
            .unwrap();
        assert!(done.success(), "git {args:?}");
    }

    fn look(dir: &Path, index: &GitIndex, name: &str) -> Option<bool> {
        let stat = rustix::fs::lstat(dir.join(name)).unwrap();
        let tracked = index.tracked(name.as_bytes(), &Signature::from(&stat));
        tracked.map(|tracked| tracked.is_clean)
    }

    #[test]
    fn every_version_that_git_writes_is_read() {
        if !has_program("git") {
            skip!("needs git");
        }
        let tick = || std::thread::sleep(std::time::Duration::from_millis(20));
        for version in ["2", "3", "4"] {
            for format in ["sha1", "sha256"] {
                let temp = tempfile::tempdir().unwrap();
                let dir = temp.path();
                git(dir, &["init", "-q", "--object-format", format]);
                let names = ["a", "a-long-name-of-a-file", "dir/one", "dir/two", "x"];
                std::fs::create_dir(dir.join("dir")).unwrap();
                for name in names {
                    std::fs::write(dir.join(name), name).unwrap();
                }
                tick();
                git(dir, &["add", "-A"]);
                git(dir, &["update-index", "--index-version", version]);
                tick();
                std::fs::write(dir.join("x"), "y").unwrap();
                std::fs::write(dir.join("untracked"), "").unwrap();
                let index = GitIndex::read(&dir.join(".git/index"));
                for name in &names[..4] {
                    assert_eq!(look(dir, &index, name), Some(true), "{version} {name}");
                }
                assert_eq!(look(dir, &index, "x"), Some(false), "{version}");
                assert_eq!(look(dir, &index, "untracked"), None, "{version}");
            }
        }
    }

    /// One entry as versions 2 and 3 have it.
    fn entry(name: &[u8], flags: u16) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        for number in [1_u32, 0, 2, 0, 3, 4, 0o100_644, 5, 6, 7] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend([9; 20]);
        bytes.extend((flags | name.len() as u16).to_be_bytes());
        bytes.extend(name);
        bytes.resize((bytes.len() / 8 + 1) * 8, 0);
        bytes
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            version in 2_u8..5,
            id_bytes in prop::sample::select(ID_BYTES.to_vec()),
        ) {
            let mut bytes = [b"DIRC\0\0\0", &[version][..], &[0, 0, 0, 2]].concat();
            bytes.extend(entry(b"a", 0));
            bytes.extend(entry(b"dir/b", 0));
            if version < 4 && changes.is_empty() && id_bytes == 20 {
                prop_assert_eq!(parse(&bytes, id_bytes).map(|found| found.len()), Some(2));
            }
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = parse(&bytes, id_bytes);
        }
    }

    #[test]
    fn what_is_no_index_tracks_nothing() {
        let mut bytes = b"DIRC\0\0\0\x02\xff\xff\xff\xff".to_vec();
        assert_eq!(parse(&bytes, 20), None);
        bytes.extend([0; 200]);
        assert_eq!(parse(&bytes, 20), None);
        for cut in 0..bytes.len() {
            let _ = parse(&bytes[..cut], 32);
        }
    }
}
