//! Names in a git index (`gitformat-index(5)`), versions 2 to 4, SHA-1 and SHA-256.
//!
//! In: the bytes of the file. Out: the names, sorted. An index that is split over two files, or that is
//! damaged, is an error; its caller then takes nothing for tracked.

/// Bytes of the header.
const HEADER_BYTES: usize = 12;
/// Bytes of an entry before its object name.
const STAT_BYTES: usize = 40;
/// Bytes of an object name: SHA-1, SHA-256.
const HASH_BYTES: [usize; 2] = [20, 32];
/// The flag for two more bytes of flags.
const EXTENDED: u16 = 0x4000;
/// The part of the flags that holds the length of the name, as far as it fits.
const NAME_MASK: u16 = 0x0fff;

/// Names of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    text: Vec<u8>,
    /// Begin and end in `text`, sorted by name.
    spans: Vec<(u32, u32)>,
}

impl Index {
    /// Reads an index; `None` when it is none that can be read.
    // TRUST: every length is checked against what is there; the result is no longer than the input,
    // but for names of version 4, which are bounded by `MAX_TEXT_BYTES`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        HASH_BYTES
            .into_iter()
            .find_map(|hash_bytes| Self::parse_with(bytes, hash_bytes))
    }

    fn parse_with(bytes: &[u8], hash_bytes: usize) -> Option<Self> {
        /// Most bytes of all names together.
        const MAX_TEXT_BYTES: usize = 512 << 20;
        let (signature, version, count) = (bytes.get(..4)?, number(bytes, 4)?, number(bytes, 8)?);
        let end = bytes.len().checked_sub(hash_bytes)?;
        if signature != b"DIRC" || !(2..=4).contains(&version) {
            return None;
        }
        let mut index = Self::default();
        let mut at = HEADER_BYTES;
        let mut is_sorted = true;
        let mut last: Vec<u8> = Vec::new();
        for _ in 0..count {
            let flags_at = at + STAT_BYTES + hash_bytes;
            let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
            let is_extended = version >= 3 && flags & EXTENDED != 0;
            let mut name_at = flags_at + 2 + if is_extended { 2 } else { 0 };
            let kept = if version == 4 {
                let (dropped, next) = offset(bytes, name_at)?;
                name_at = next;
                last.len().checked_sub(dropped)?
            } else {
                0
            };
            let rest = bytes.get(name_at..end)?;
            let length = rest.iter().position(|byte| *byte == 0)?;
            let name = [&last[..kept], &rest[..length]].concat();
            let told = usize::from(flags & NAME_MASK);
            if told != name.len().min(usize::from(NAME_MASK)) {
                return None;
            }
            at = if version == 4 {
                name_at + length + 1
            } else {
                at + ((name_at - at + length + 8) & !7)
            };
            is_sorted &= last <= name;
            let begin = index.text.len();
            if begin + name.len() > MAX_TEXT_BYTES {
                return None;
            }
            index.text.extend_from_slice(&name);
            index
                .spans
                .push((begin as u32, (begin + name.len()) as u32));
            last = name;
        }
        // Extensions reach to the digest, or the length of object names was guessed wrong.
        while at < end {
            // A split index holds a part of the names only.
            if bytes.get(at..at + 4)? == b"link" {
                return None;
            }
            at = at
                .checked_add(8)?
                .checked_add(number(bytes, at + 4)? as usize)?;
        }
        if at != end {
            return None;
        }
        if !is_sorted {
            let text = &index.text;
            index.spans.sort_by(|a, b| {
                text[a.0 as usize..a.1 as usize].cmp(&text[b.0 as usize..b.1 as usize])
            });
        }
        Some(index)
    }

    fn name(&self, (begin, end): (u32, u32)) -> &[u8] {
        &self.text[begin as usize..end as usize]
    }

    /// Whether a path is in it.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        let found = self
            .spans
            .binary_search_by(|span| self.name(*span).cmp(path));
        found.is_ok()
    }

    /// Whether something below a directory is in it.
    pub(crate) fn has_below(&self, dir: &[u8]) -> bool {
        let prefix = [dir, b"/"].concat();
        let at = self
            .spans
            .partition_point(|span| self.name(*span) < prefix.as_slice());
        self.spans
            .get(at)
            .is_some_and(|span| self.name(*span).starts_with(&prefix))
    }

    /// All names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| self.name(*span))
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// A number as version 4 writes it, and where the next byte is.
fn offset(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?;
        value |= usize::from(byte & 0x7f);
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use testkit::{has_program, skip};

    fn git(dir: &Path, args: &[&str]) -> Vec<u8> {
        let output = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output.stdout
    }

    /// The names that `git ls-files` tells, in every version and both hashes, with odd and long names.
    #[test]
    fn names_are_those_that_git_tells() {
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
            let told = git(temp.path(), &["ls-files", "-z"]);
            let mut told: Vec<&[u8]> = told.split(|byte| *byte == 0).collect();
            assert_eq!(told.pop(), Some(&b""[..]));
            for version in ["2", "3", "4"] {
                git(temp.path(), &["update-index", "--index-version", version]);
                let bytes = std::fs::read(temp.path().join(".git/index")).unwrap();
                let index = Index::parse(&bytes).unwrap();
                assert_eq!(index.names().collect::<Vec<_>>(), told, "{hash} {version}");
                assert!(index.contains(b"many/7") && !index.contains(b"many"));
                assert!(index.has_below(b"many") && index.has_below(b"d"));
                assert!(!index.has_below(b"man") && !index.has_below(b"a"));
                // Whatever is cut off or turned over, the answer is none or some names, never a panic.
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
}
