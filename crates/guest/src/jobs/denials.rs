//! Determines which restrictions a command has met, as far as the guest can know them.
//!
//! In: the job, the attempts to use a missing network, and the mount table. A command whose write
//! was refused prints a message of its own with a path; only a path that really lies below a
//! read-only mount becomes a record. (The kernel offers no readable counter of refused writes or
//! refused system calls.)

use super::job::Job;
use crate::network_use::NetworkUse;
use glovebox_jail::stage0::unescape_mount;
use glovebox_proto::{Denial, EgressReason, visible};
use std::os::unix::ffi::OsStringExt as _;

/// Number of bytes at the end of the output that are searched.
const TAIL_BYTES: usize = 8 << 10;
/// Maximum number of chunks in that part; a program that alternates between its streams by the byte
/// would make more.
const TAIL_CHUNKS: usize = 256;
/// Message for EROFS (strerror(3)), in lower case.
const REFUSED: &[u8] = b"read-only file system";
/// Maximum number of paths in one report.
const MAX_PLACES: usize = 2;
/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Returns the end of a job's output.
pub(super) fn output_tail(job: &Job) -> Vec<u8> {
    let total = job.log.total();
    let (_, chunks) = job.log.read(
        total.saturating_sub(TAIL_BYTES as u64),
        TAIL_BYTES,
        TAIL_CHUNKS,
    );
    chunks.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

/// Returns the denials of a command that has ended. `tail` is the end of its output, which is
/// searched only if the command failed: a successful one may report a refusal that did not matter.
pub(super) fn find(job: &Job, tail: &[u8], network: Option<&mut NetworkUse>) -> Vec<Denial> {
    let mut denials = Vec::new();
    if let (Some(network), Some(mark)) = (network, job.network)
        && let Some(news) = network.news_since(mark)
    {
        let is_shared = job.has_company;
        denials.push(match news.names {
            // A program without an address does not connect: where names were looked up, connection
            // attempts add nothing.
            Some(names) => Denial::NameLookup {
                names: names.count,
                last: names.last,
                is_shared,
            },
            None if network.resolver().is_none() => Denial::Egress {
                host: String::new(),
                port: None,
                reason: EgressReason::Address,
                attempts: news.connections,
                is_shared,
            },
            None => Denial::Connection {
                attempts: news.connections,
                rule: None,
                is_shared,
            },
        });
    }
    let paths = if job.has_failed() {
        refused_paths(tail, job.cwd.as_bytes())
    } else {
        Vec::new()
    };
    if !paths.is_empty() {
        let mut places = 0;
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mounts = Mounts::parse(&table);
        for refused in paths {
            let Some(mount) = mounts.read_only_above(&refused.path) else {
                continue;
            };
            let path = if refused.is_exact {
                &refused.path
            } else {
                mount
            };
            let denial = Denial::ReadOnly {
                path: visible::line(path),
                mount: visible::line(mount),
            };
            let denial = denial.made_safe();
            if !denials.contains(&denial) && places < MAX_PLACES {
                denials.push(denial);
                places += 1;
            }
        }
    }
    denials
}

/// Path in a line about a refused write.
#[derive(Debug, PartialEq, Eq)]
struct RefusedPath {
    /// Absolute path without `.` and `..`.
    path: Vec<u8>,
    /// True if the output names the full path. Otherwise the command may have meant another
    /// directory than the one it started in.
    is_exact: bool,
}

fn refused_paths(output: &[u8], cwd: &[u8]) -> Vec<RefusedPath> {
    let mut paths = Vec::new();
    for line in output.split(|byte| *byte == b'\n') {
        let small = line.to_ascii_lowercase();
        let Some(at) = memchr::memmem::find(&small, REFUSED) else {
            continue;
        };
        // TRUST: the command controls its output; a path from it is only compared with the mount
        // table.
        let after = &line[at + REFUSED.len()..];
        let named = quoted(after).or_else(|| last_word(line[..at].strip_suffix(b": ")?));
        let Some(named) = named.filter(|named| named.len() <= MAX_PATH_BYTES) else {
            continue;
        };
        let path = RefusedPath {
            path: absolute(named, cwd),
            is_exact: named.starts_with(b"/"),
        };
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Returns the last word of a text, or its content if quoted.
fn last_word(text: &[u8]) -> Option<&[u8]> {
    for (open, close) in QUOTES {
        if let Some(inner) = text.strip_suffix(close) {
            let start = memchr::memmem::rfind(inner, open)? + open.len();
            return Some(&inner[start..]).filter(|word| !word.is_empty());
        }
    }
    // A line of one word names a program, not a file.
    let start = text.iter().rposition(u8::is_ascii_whitespace)? + 1;
    Some(&text[start..]).filter(|word| !word.is_empty())
}

/// Returns the first quoted text.
fn quoted(text: &[u8]) -> Option<&[u8]> {
    let found = QUOTES.iter().filter_map(|(open, close)| {
        let start = memchr::memmem::find(text, open)? + open.len();
        let length = memchr::memmem::find(&text[start..], close)?;
        Some((start, &text[start..start + length]))
    });
    let first = found.min_by_key(|(start, _)| *start)?.1;
    Some(first).filter(|word| !word.is_empty())
}

/// Quotation marks around names in messages.
const QUOTES: [(&[u8], &[u8]); 4] = [
    (b"'", b"'"),
    (b"\"", b"\""),
    ("\u{2018}".as_bytes(), "\u{2019}".as_bytes()),
    (b"`", b"`"),
];

/// Makes `path` absolute relative to `cwd`, by text alone: links are not resolved.
fn absolute(path: &[u8], cwd: &[u8]) -> Vec<u8> {
    let start = if path.starts_with(b"/") { &[][..] } else { cwd };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in start
        .split(|byte| *byte == b'/')
        .chain(path.split(|byte| *byte == b'/'))
    {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = Vec::with_capacity(path.len() + start.len());
    for part in parts {
        clean.push(b'/');
        clean.extend_from_slice(part);
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    clean
}

/// Mount points, and true for each that is read-only. Later mounts cover earlier ones.
struct Mounts(Vec<(Vec<u8>, bool)>);

impl Mounts {
    /// Parses a mount table (proc_pid_mountinfo(5)).
    fn parse(table: &[u8]) -> Self {
        let row = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let place = unescape_mount(fields.nth(4)?)?;
            let place = place.into_os_string().into_vec();
            let options = fields.next()?;
            let of_file_system = fields.next_back()?;
            let is_read_only = [options, of_file_system].iter().any(|options| {
                options
                    .split(|byte| *byte == b',')
                    .any(|word| word == b"ro")
            });
            Some((place, is_read_only))
        };
        Self(table.split(|byte| *byte == b'\n').filter_map(row).collect())
    }

    /// Returns the mount point that contains this path if it is read-only.
    fn read_only_above(&self, path: &[u8]) -> Option<&[u8]> {
        let is_above = |place: &[u8]| {
            let rest = path.strip_prefix(place);
            place == b"/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let above = self.0.iter().filter(|(place, _)| is_above(place));
        let (place, is_read_only) = above.max_by_key(|(place, _)| place.len())?;
        is_read_only.then_some(place.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &[u8] = b"1 0 0:1 / / rw,nosuid - overlay none rw,lowerdir=/x\n\
        2 1 0:2 / /usr ro,nosuid - ext4 /dev/vda rw\n\
        3 1 0:3 / /workspace ro - overlay none rw\n\
        4 3 0:4 / /workspace rw - overlay none rw\n\
        5 1 0:5 / /opt/a\\040b rw - squashfs none ro\n";

    #[test]
    fn the_words_of_programs_lead_to_a_path() {
        for (line, want) in [
            (
                "touch: cannot touch '/usr/x': Read-only file system",
                "/usr/x",
            ),
            (
                "mkdir: cannot create directory \u{2018}/usr/a b\u{2019}: Read-only file system",
                "/usr/a b",
            ),
            (
                "sh: 1: cannot create /usr/x: Read-only file system",
                "/usr/x",
            ),
            ("bash: line 1: /usr/x: Read-only file system", "/usr/x"),
            (
                "bash: line 1: name.txt: Read-only file system",
                "/workspace/sub/name.txt",
            ),
            (
                "touch: cannot touch '../x': Read-only file system",
                "/workspace/x",
            ),
            (
                "OSError: [Errno 30] Read-only file system: '/usr/x'",
                "/usr/x",
            ),
            (
                "Error: EROFS: read-only file system, open '/usr/x'",
                "/usr/x",
            ),
            ("open /usr/x: read-only file system", "/usr/x"),
        ] {
            let found = refused_paths(line.as_bytes(), b"/workspace/sub");
            let want = RefusedPath {
                path: want.into(),
                is_exact: line.contains(want),
            };
            assert_eq!(found, [want], "{line}");
        }
        for line in [
            "cat: /usr/x: Permission denied",
            "Read-only file system",
            "error: Read-only file system (os error 30)",
        ] {
            let found = refused_paths(line.as_bytes(), b"/workspace");
            assert!(found.is_empty(), "{line}: {found:?}");
        }
    }

    #[test]
    fn only_what_lies_below_a_read_only_mount_counts() {
        let mounts = Mounts::parse(TABLE);
        let above = |path: &str| mounts.read_only_above(path.as_bytes()).map(<[u8]>::to_vec);
        assert_eq!(above("/usr/x").unwrap(), b"/usr");
        assert_eq!(above("/usr").unwrap(), b"/usr");
        assert_eq!(above("/opt/a b/c").unwrap(), b"/opt/a b");
        assert_eq!(above("/usr2"), None);
        assert_eq!(above("/etc/x"), None);
        assert_eq!(above("/workspace/x"), None, "another one lies over it");
    }

    proptest! {
        #[test]
        fn any_output_is_looked_at(output in ".{0,40}[Rr]ead-only file system.{0,40}") {
            for refused in refused_paths(output.as_bytes(), b"/workspace") {
                prop_assert!(refused.path.starts_with(b"/"));
            }
        }
    }
}
