//! Parser of a git index (`gitformat-index(5)`), versions 2 to 4, SHA-1 and SHA-256.
//!
//! Input: the bytes of the file. Output: a value that the caller builds from the entries, such as
//! the sorted names ([`Index`]). A split or damaged index is treated as missing, so no file counts
//! as tracked.

/// Maximum size of an index that is read, in bytes: several million files, four times the size of
/// the largest known repositories.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// Maximum total length of all names, in bytes: version 4 compresses the prefix that a name shares
/// with the previous one.
const MAX_TEXT_BYTES: usize = 512 << 20;
/// Length of an object name in bytes: SHA-1, SHA-256.
const ID_BYTES: [usize; 2] = [20, 32];
/// Flag of a file that git assumes to be unchanged.
const ASSUMED: u16 = 0x8000;
/// Flag of an entry that has two more bytes of flags.
const EXTENDED: u16 = 0x4000;
/// Extended flag of a file that is not in the working tree.
const SKIP_WORKTREE: u16 = 0x4000;
/// Mask of the flags' bits for the side of a conflict.
const STAGE: u16 = 0x3000;
/// Mask of the flags' bits for the length of the name, which is capped to fit.
const NAME_MASK: u16 = 0x0fff;

/// Entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Path from the top of the working tree.
    pub(crate) name: &'a [u8],
    /// Object name of the content.
    pub(crate) id: &'a [u8],
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Attributes of the file when git last inspected it: seconds and nanoseconds, or the lower 32
    /// bits.
    pub(crate) ctime: (u32, u32),
    pub(crate) mtime: (u32, u32),
    pub(crate) ino: u32,
    pub(crate) size: u32,
    /// Encoded bytes before the object name.
    pub(crate) fixed: &'a [u8],
    /// Extended flags, which only some entries have since version 3.
    pub(crate) further_flags: u16,
    flags: u16,
}

impl Entry<'_> {
    /// Returns true if git was told to assume that the file is unchanged.
    pub(crate) fn is_assumed(&self) -> bool {
        self.flags & ASSUMED != 0
    }

    /// Returns true if a sparse checkout leaves the file out of the working tree.
    pub(crate) fn is_sparse(&self) -> bool {
        self.further_flags & SKIP_WORKTREE != 0
    }

    /// Returns the flags that every entry has.
    pub(crate) fn flags(&self) -> u16 {
        self.flags
    }

    /// Returns the side of a conflict; 0 if there is none.
    pub(crate) fn stage(&self) -> u16 {
        (self.flags & STAGE) >> 12
    }
}

/// Parses an index, and adds each of its entries to a `T`; `None` if it is not a valid index.
pub(crate) fn read<T: Default>(bytes: &[u8], add: impl Fn(&mut T, &Entry<'_>)) -> Option<T> {
    // The index does not say how long object names are, so both lengths are tried.
    ID_BYTES.into_iter().find_map(|id_bytes| {
        let mut made = T::default();
        walk(bytes, id_bytes, |entry| add(&mut made, entry))?;
        Some(made)
    })
}

/// Visits the entries. If the result is `None`, the visited entries are not valid.
// TRUST: the repository may come from a stranger. Every length is checked against the input;
// nothing is allocated for a count alone; all names together are bounded by `MAX_TEXT_BYTES`.
fn walk(bytes: &[u8], id_bytes: usize, mut visit: impl FnMut(&Entry<'_>)) -> Option<()> {
    let (bytes, _digest) = bytes.split_at_checked(bytes.len().checked_sub(id_bytes)?)?;
    let mut input = Input { bytes, at: 0 };
    if input.take(4)? != b"DIRC" {
        return None;
    }
    let version = input.number()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut text_bytes = 0;
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..input.number()? {
        let start = input.at;
        let ctime = (input.number()?, input.number()?);
        let mtime = (input.number()?, input.number()?);
        let _device = input.number()?;
        let ino = input.number()?;
        let mode = input.number()?;
        let _owner = (input.number()?, input.number()?);
        let size = input.number()?;
        let fixed = &input.bytes[start..input.at];
        let id = input.take(id_bytes)?;
        let flags = input.short()?;
        let mut further_flags = 0;
        if flags & EXTENDED != 0 {
            if version == 2 {
                return None;
            }
            further_flags = input.short()?;
        }
        let dropped = if version == 4 {
            input.offset()?
        } else {
            name.len()
        };
        name.truncate(name.len().checked_sub(dropped)?);
        name.extend_from_slice(input.until_nul()?);
        if version < 4 {
            // The NUL belongs to a padding of one to eight bytes.
            let used = input.at - start - 1;
            input.take((used / 8 + 1) * 8 - used - 1)?;
        }
        let stated = usize::from(flags & NAME_MASK);
        text_bytes += name.len();
        if name.is_empty()
            || stated != name.len().min(usize::from(NAME_MASK))
            || text_bytes > MAX_TEXT_BYTES
        {
            return None;
        }
        visit(&Entry {
            name: &name,
            id,
            mode,
            ctime,
            mtime,
            ino,
            size,
            fixed,
            further_flags,
            flags,
        });
    }
    // Extensions must fill the rest up to the digest. If they do not, the assumed length of object
    // names was wrong.
    while input.at < bytes.len() {
        // A split index has only a part of the names.
        if input.take(4)? == b"link" {
            return None;
        }
        let length = input.number()?;
        input.take(length as usize)?;
    }
    Some(())
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

    /// Reads a number of variable length, encoded as offsets in packs are.
    fn offset(&mut self) -> Option<usize> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
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

/// Sorted names of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    text: Vec<u8>,
    /// Beginning and end of each name in `text`, sorted by name. `MAX_TEXT_BYTES` fits into `u32`.
    spans: Vec<(u32, u32)>,
}

impl Index {
    /// Parses an index; `None` if it is not a valid one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut index: Self = read(bytes, |index: &mut Self, entry| {
            let begin = index.text.len();
            index.text.extend_from_slice(entry.name);
            index.spans.push((begin as u32, index.text.len() as u32));
        })?;
        let text = &index.text;
        let name = |span: &(u32, u32)| &text[span.0 as usize..span.1 as usize];
        // Git writes sorted entries; other writers may not.
        index.spans.sort_by(|a, b| name(a).cmp(name(b)));
        Some(index)
    }

    fn name(&self, (begin, end): (u32, u32)) -> &[u8] {
        &self.text[begin as usize..end as usize]
    }

    /// Returns true if the index has a path.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        let found = self
            .spans
            .binary_search_by(|span| self.name(*span).cmp(path));
        found.is_ok()
    }

    /// Returns true if the index has a path below a directory.
    pub(crate) fn has_below(&self, dir: &[u8]) -> bool {
        let prefix = [dir, b"/"].concat();
        let at = self
            .spans
            .partition_point(|span| self.name(*span) < prefix.as_slice());
        self.spans
            .get(at)
            .is_some_and(|span| self.name(*span).starts_with(&prefix))
    }

    /// Returns true if the index has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::Command;
    use testkit::{has_program, skip};

    fn git(dir: &Path, args: &[&str]) -> Vec<u8> {
        let output = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output.stdout
    }

    /// The entries as `git ls-files --stage -z` writes them.
    fn list(bytes: &[u8]) -> Option<Vec<u8>> {
        read(bytes, |list: &mut Vec<u8>, entry| {
            let id = crate::base::hex(entry.id);
            list.extend(format!("{:06o} {id} {}\t", entry.mode, entry.stage()).bytes());
            list.extend([entry.name, b"\0"].concat());
        })
    }

    /// The entries that `git ls-files` tells, in every version and both hashes, with odd and long
    /// names.
    #[test]
    fn entries_are_those_that_git_tells() {
        if !has_program("git") {
            skip!("needs git");
        }
        for hash in ["sha1", "sha256"] {
            let temp = tempfile::tempdir().unwrap();
            git(
                temp.path(),
                &["init", "-q", &format!("--object-format={hash}"), "."],
            );
            let long = format!("{}/{}", "d".repeat(200), "x".repeat(200));
            let deep = [long.as_str(); 12].join("/");
            let mut names = vec![
                "a".to_owned(),
                "a-b".to_owned(),
                "a b\n".to_owned(),
                "d/e".into(),
            ];
            names.extend((0..300).map(|number| format!("many/{number}")));
            for name in &names {
                let path = temp.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, name).unwrap();
            }
            git(temp.path(), &["add", "."]);
            let blob = git(temp.path(), &["hash-object", "a"]);
            let blob = String::from_utf8(blob).unwrap();
            let info = format!("100644,{},{}", blob.trim(), &deep[..4095.min(deep.len())]);
            git(
                temp.path(),
                &["update-index", "--add", "--cacheinfo", &info],
            );
            std::fs::write(temp.path().join("later"), "").unwrap();
            git(temp.path(), &["add", "--intent-to-add", "later"]);
            git(temp.path(), &["update-index", "--assume-unchanged", "a-b"]);
            let told = git(temp.path(), &["ls-files", "--stage", "-z"]);
            for version in ["2", "3", "4"] {
                git(temp.path(), &["update-index", "--index-version", version]);
                let bytes = std::fs::read(temp.path().join(".git/index")).unwrap();
                assert_eq!(list(&bytes).as_ref(), Some(&told), "{hash} {version}");
                let assumed = read(&bytes, |assumed: &mut Vec<Vec<u8>>, entry| {
                    assumed.extend(entry.is_assumed().then(|| entry.name.to_vec()));
                });
                assert_eq!(assumed.unwrap(), [b"a-b"], "{hash} {version}");
                let index = Index::parse(&bytes).unwrap();
                assert!(index.contains(b"many/7") && !index.contains(b"many"));
                assert!(index.has_below(b"many") && index.has_below(b"d"));
                assert!(!index.has_below(b"man") && !index.has_below(b"a"));
                // A truncated or altered index yields `None` or some names, never a panic.
                for end in 0..bytes.len().min(2000) {
                    assert_eq!(Index::parse(&bytes[..end]), None);
                }
                let mut odd = bytes.clone();
                for at in 0..odd.len().min(2000) {
                    odd[at] ^= 0xff;
                    let _ = Index::parse(&odd);
                    odd[at] ^= 0xff;
                }
            }
            git(temp.path(), &["update-index", "--split-index"]);
            let bytes = std::fs::read(temp.path().join(".git/index")).unwrap();
            assert_eq!(Index::parse(&bytes), None);
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

    /// An index with these entries.
    fn index(version: u8, entries: &[Vec<u8>]) -> Vec<u8> {
        let count = entries.len() as u8;
        let head = [b"DIRC\0\0\0", &[version, 0, 0, 0, count][..]].concat();
        [head, entries.concat(), vec![0; 20]].concat()
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            version in 2_u8..5,
            id_bytes in prop::sample::select(ID_BYTES.to_vec()),
        ) {
            let mut bytes = index(version, &[entry(b"a", 0), entry(b"dir/b", 0)]);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = walk(&bytes, id_bytes, |_| ());
        }
    }

    #[test]
    fn what_is_no_index_has_no_entries() {
        let names = |bytes: &[u8]| {
            let found = Index::parse(bytes)?;
            let names = found.spans.iter().map(|span| found.name(*span).to_vec());
            Some(names.collect::<Vec<_>>())
        };
        let (a, b) = (entry(b"a", 0), entry(b"dir/b", 0));
        let sorted = Some(vec![b"a".to_vec(), b"dir/b".to_vec()]);
        assert_eq!(names(&index(2, &[a.clone(), b.clone()])), sorted);
        assert_eq!(names(&index(3, &[b, a])), sorted);
        // More flags are in front of the name since version 3.
        let mut extended = entry(b"\0\0a", EXTENDED);
        extended[61] = 1;
        let of_version = |version| names(&index(version, std::slice::from_ref(&extended)));
        assert_eq!(of_version(3), Some(vec![b"a".to_vec()]));
        assert_eq!(of_version(2), None);
        let mut short = entry(b"abc", 0);
        short[61] = 2;
        for odd in [entry(b"", 0), short, entry(b"a", NAME_MASK)] {
            assert_eq!(
                names(&index(2, std::slice::from_ref(&odd))),
                None,
                "{odd:?}"
            );
        }

        let mut bytes = b"DIRC\0\0\0\x02\xff\xff\xff\xff".to_vec();
        assert_eq!(names(&bytes), None);
        bytes.extend([0; 200]);
        for cut in 0..=bytes.len() {
            assert_eq!(names(&bytes[..cut]), None);
        }
    }
}
