//! The items of tree streams. Enum variants are only ever appended.
//!
//! Paths are relative to the root of the request, bytes as on Linux. Neither side relies on the
//! other to send good ones: whoever uses one checks it.

use crate::{Code, FileKind};
use serde::{Deserialize, Serialize};

/// BLAKE3 digest of a file's content.
pub type Digest = [u8; 32];

/// What tells one state of a file from another without reading it. Two equal signatures of one
/// path mean the same content, if the older one is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// Time of the last change of any kind, which no program can set.
    pub ctime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Permission bits, without the kind.
    pub permissions: u16,
}

impl Signature {
    /// How old a modification must be when a file is read or written, so that a later one is sure
    /// to have another time: file systems count in steps of up to two seconds.
    const SETTLED_NS: i64 = 2_000_000_000;

    /// Puts one together from the fields of a `stat`: length, times as seconds and nanoseconds, inode
    /// and mode.
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

    /// Whether the same signature, seen later, will prove the same content. `now_ns` is the time of
    /// the file's machine when its content was known, in nanoseconds since the epoch.
    pub const fn is_settled(&self, now_ns: i64) -> bool {
        self.mtime_ns.saturating_add(Self::SETTLED_NS) < now_ns
    }

    /// Whether the owner may execute it.
    pub const fn is_executable(&self) -> bool {
        self.permissions & 0o100 != 0
    }
}

/// One line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<'a> {
    /// Where it is.
    #[serde(with = "serde_bytes")]
    pub path: &'a [u8],
    /// What it is.
    #[serde(borrow)]
    pub kind: EntryKind<'a>,
}

/// What a path of a manifest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind<'a> {
    /// A regular file.
    File {
        /// Its state.
        signature: Signature,
        /// It has other names too.
        is_linked: bool,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Link {
        /// What it points to, as stored.
        #[serde(with = "serde_bytes")]
        target: &'a [u8],
    },
    /// A device, FIFO or socket. It was not opened.
    Special(FileKind),
}

/// What a scan sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanItem<'a> {
    /// Something that is there.
    Entry(#[serde(borrow)] Entry<'a>),
    /// Something that cannot be looked at or into.
    Missed {
        /// Where.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// Why: `too-large` when it lies deeper than asked for.
        code: Code,
    },
}

/// What a put is told to do, in this order within one stream: deletions from the bottom up, then
/// everything else from the top down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutItem<'a> {
    /// Removes a file, a link, or an empty directory. Nothing there is fine.
    Delete {
        /// Where.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
    },
    /// Makes a directory; one that exists is fine, anything else there gives way.
    Dir {
        /// Where.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
    },
    /// Makes or replaces a symbolic link.
    Link {
        /// Where.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// What it points to.
        #[serde(with = "serde_bytes")]
        target: &'a [u8],
    },
    /// Makes or replaces a file; its chunks and its end follow.
    File {
        /// Where.
        #[serde(with = "serde_bytes")]
        path: &'a [u8],
        /// Whether it may be executed.
        is_executable: bool,
        /// Its modification time, in nanoseconds since the epoch.
        mtime_ns: i64,
    },
    /// Content of the file.
    Chunk(#[serde(with = "serde_bytes")] &'a [u8]),
    /// The file is complete and takes its place, if it arrived as it was sent.
    End {
        /// Length in bytes.
        size: u64,
        /// Digest of the content.
        digest: Digest,
    },
}

/// What an item of a put has become.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutReceipt {
    /// It is so.
    Done,
    /// The file is in its place.
    Written {
        /// Its state there.
        signature: Signature,
        /// See [`Signature::is_settled`].
        is_settled: bool,
    },
    /// A directory that has something else in it stays.
    Kept,
}

/// What a get is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want<'a> {
    /// A regular file.
    #[serde(with = "serde_bytes")]
    pub path: &'a [u8],
    /// What the asking side knows already; the same content is not sent.
    pub known: Option<(u64, Digest)>,
    /// Whether to send content at all, or only its digest.
    pub has_content: bool,
}

/// What a get sends: for each want a file with its chunks and its end, or a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GotItem<'a> {
    /// Content of the wanted file.
    Chunk(#[serde(with = "serde_bytes")] &'a [u8]),
    /// The wanted file has been read to its end.
    End {
        /// Its state before it was read.
        signature: Signature,
        /// See [`Signature::is_settled`]; false also when it changed while it was read.
        is_settled: bool,
        /// It changed while it was read: the content is a mixture that the file may never have had.
        is_torn: bool,
        /// Bytes read.
        size: u64,
        /// Digest of these bytes.
        digest: Digest,
        /// Whether they were sent.
        has_content: bool,
    },
    /// It cannot be read.
    Failed {
        /// Why: `not-found`, `special-file`, `permission-denied` and so on.
        code: Code,
        /// In words.
        message: &'a str,
    },
}

/// What a tree request has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeTotals {
    /// Entries found, made, deleted or read.
    pub entries: u64,
    /// Bytes of content read or written.
    pub bytes: u64,
    /// Entries that could not be looked at or read.
    pub failed: u64,
}
