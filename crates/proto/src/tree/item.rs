//! Items of tree streams. Enum variants are only appended.
//!
//! Paths are relative to the root of the request and are bytes, as on Linux. Neither side trusts
//! the paths of the other: the side that uses a path checks it.

use crate::{Code, FileKind};
use serde::{Deserialize, Serialize};

/// BLAKE3 digest of a file's content.
pub type Digest = [u8; 32];

/// Metadata that identifies the state of a file without reading it. Two equal signatures of one
/// path mean equal content if the older signature is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Time of the last change of any kind, in nanoseconds since the epoch. Programs cannot set it.
    pub ctime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Permission bits, without the file type.
    pub permissions: u16,
}

impl Signature {
    /// Minimum age of a modification, in nanoseconds, when a file is read or written. A later
    /// modification then has another time: file systems count in steps of up to two seconds.
    const SETTLED_NS: i64 = 2_000_000_000;

    /// Creates a signature from the fields of a `stat`: length, times as seconds and nanoseconds,
    /// inode and mode.
    pub const fn from_stat(
        size: i64,
        modified: (i64, i64),
        changed: (i64, i64),
        ino: u64,
        mode: u32,
    ) -> Self {
        const fn ns((seconds, rest): (i64, i64)) -> i64 {
            seconds.saturating_mul(1_000_000_000).saturating_add(rest)
        }
        Self {
            size: if size < 0 { 0 } else { size as u64 },
            mtime_ns: ns(modified),
            ctime_ns: ns(changed),
            ino,
            permissions: (mode & 0o7777) as u16,
        }
    }

    /// Returns true if an equal signature, seen later, proves equal content. `now_ns` is the time
    /// at which the content was known, in nanoseconds since the epoch, by the clock of the file's
    /// machine.
    pub const fn is_settled(&self, now_ns: i64) -> bool {
        self.mtime_ns.saturating_add(Self::SETTLED_NS) < now_ns
    }

    /// Returns true if the owner may execute the file.
    pub const fn is_executable(&self) -> bool {
        self.permissions & 0o100 != 0
    }
}

/// Path in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// Path relative to the root.
    #[serde(with = "serde_bytes")]
    pub path: &'a [u8],
    /// File type with the data that belongs to it.
    #[serde(borrow)]
    pub kind: EntryKind<'a>,
}

/// File type of a path in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind<'a> {
    /// A regular file.
    File {
        /// State of the file.
        signature: Signature,
        /// True if the file has other hard links.
        is_linked: bool,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Link {
        /// Target, unresolved.
        #[serde(with = "serde_bytes")]
        target: &'a [u8],
    },
    /// Device, FIFO or socket. The guest did not open it.
    Special(FileKind),
}

/// Item of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanItem<'a> {
    /// Path that exists.
    Entry(#[serde(borrow)] Entry<'a>),
    /// Path that the guest cannot examine or enter.
    Missed {
        /// Path relative to the root.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// Reason; `too-large` if the path lies deeper than the request permits.
        code: Code,
    },
}

/// Instruction of a put. Within one stream deletions come first, children before their directories;
/// then everything else, directories before their children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutItem<'a> {
    /// Removes a file, a link, or an empty directory. Succeeds if nothing is there.
    Delete {
        /// Path relative to the root.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
    },
    /// Creates a directory. An existing directory stays; a file of any other type is replaced.
    Dir {
        /// Path relative to the root.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
    },
    /// Creates or replaces a symbolic link.
    Link {
        /// Path relative to the root.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// Target, unresolved.
        #[serde(with = "serde_bytes")]
        target: &'a [u8],
    },
    /// Begins to create or replace a file. [`Self::Chunk`]s and [`Self::End`] follow.
    File {
        /// Path relative to the root.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// True if the file is executable.
        is_executable: bool,
        /// Modification time in nanoseconds since the epoch.
        mtime_ns: i64,
    },
    /// Next piece of the file's content.
    Chunk(#[serde(with = "serde_bytes")] &'a [u8]),
    /// Completes the file and moves it into place, if size and digest match the chunks that
    /// arrived.
    End {
        /// Length in bytes.
        size: u64,
        /// Digest of the whole content.
        digest: Digest,
    },
}

/// Result of an instruction of a put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutReceipt {
    /// The instruction was carried out.
    Done,
    /// The file is in place.
    Written {
        /// State of the new file.
        signature: Signature,
        /// See [`Signature::is_settled`].
        is_settled: bool,
    },
    /// The directory was not removed, because it still has entries.
    Kept,
}

/// File wanted by a get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want<'a> {
    /// Path of a regular file, relative to the root.
    #[serde(with = "serde_bytes")]
    pub path: &'a [u8],
    /// Length and digest of the content that the host already has. Equal content is not sent.
    /// `None` if it has none.
    pub known: Option<(u64, Digest)>,
    /// True to send the content, false to send only its digest.
    pub has_content: bool,
}

/// Item that answers a get. Each want yields its chunks and an end, or a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GotItem<'a> {
    /// Next piece of the wanted file's content.
    Chunk(#[serde(with = "serde_bytes")] &'a [u8]),
    /// The wanted file was read to its end.
    End {
        /// State before reading.
        signature: Signature,
        /// See [`Signature::is_settled`]. Also false if the file changed during reading.
        is_settled: bool,
        /// True if the file changed during reading. The content is then a mixture that the file may
        /// never have had.
        is_torn: bool,
        /// Number of bytes read.
        size: u64,
        /// Digest of the bytes read.
        digest: Digest,
        /// True if the bytes were sent.
        has_content: bool,
    },
    /// The wanted file cannot be read.
    Failed {
        /// Reason: `not-found`, `special-file`, `permission-denied` and so on.
        code: Code,
        /// Description for people.
        message: &'a str,
    },
}

/// Counters of a finished tree request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeTotals {
    /// Entries found, created, deleted or read.
    pub entries: u64,
    /// Bytes of content read or written.
    pub bytes: u64,
    /// Entries that could not be examined or read.
    pub failed: u64,
}
