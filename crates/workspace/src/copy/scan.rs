//! Lists a sandbox's directory through its guest, and checks the entries.

use super::difference::DifferenceSink;
use super::entry::{SeenEntry, SeenKind};
use super::spool::{Spool, SpooledList};
use super::{SandboxRoot, protocol};
use crate::path::compare;
use crate::{RefusalReason, RefusedPath, RelPath};
use glovebox_proto::tree::{EntryKind, ScanItem, Signature, Unpacker};
use glovebox_proto::{Channel, Code, Fault, Reply, Request};
use glovebox_sandbox::Incoming;
use serde_bytes::ByteBuf;
use std::path::Path;

/// Signature of an entry that is not a regular file.
pub(super) const NO_SIGNATURE: Signature = Signature {
    size: 0,
    mtime_ns: 0,
    ctime_ns: 0,
    ino: 0,
    permissions: 0,
};
/// Maximum number of invalid names that are listed.
const MAX_BAD_NAMES: usize = 1000;

/// Entries below a directory of a sandbox, as a list.
#[derive(Debug)]
pub(super) struct SandboxList {
    pub(super) seen: SpooledList<SeenEntry>,
    /// Names that are not valid.
    pub(super) refused: Vec<RefusedPath>,
}

/// Further results of a scan.
#[derive(Debug)]
pub(super) struct ScanSummary {
    /// True if the directory has no entries.
    pub(super) is_empty: bool,
    /// Names that are not valid.
    pub(super) refused: Vec<RefusedPath>,
}

/// Lists a sandbox's directory into a file.
pub(super) fn list(
    place: &SandboxRoot<'_>,
    max_entries: u64,
    max_depth: usize,
    spool_dir: &Path,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<SandboxList, Fault> {
    let mut spool = Spool::unnamed(spool_dir)?;
    let told = scan(place, max_entries, max_depth, &mut spool, each)?;
    Ok(SandboxList {
        seen: spool.finish()?,
        refused: told.refused,
    })
}

/// Passes the entries of a sandbox's directory to `finds`; none if the directory does not exist.
/// `each` is called with the number of entries from time to time, and can stop the operation by an
/// error.
// TRUST: the guest controls the data. Paths are checked, their order is enforced, and their number
// and depth are bounded by the limits of the request.
pub(super) fn scan(
    place: &SandboxRoot<'_>,
    max_entries: u64,
    max_depth: usize,
    finds: &mut dyn DifferenceSink,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<ScanSummary, Fault> {
    let mut stream = place.sandbox.open(Request::TreeScan {
        path: ByteBuf::from(place.root),
        max_entries,
        max_depth: u32::try_from(max_depth).unwrap_or(u32::MAX),
        packing: place.packing,
    })?;
    let mut unpacker = Unpacker::new();
    let mut refused = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    let mut count = 0_u64;
    loop {
        let bytes = match stream.recv() {
            Incoming::Data {
                channel: Channel::Content,
                bytes,
                ..
            } => bytes,
            Incoming::Data { .. } => continue,
            Incoming::Reply(Ok(Reply::Tree(_))) if unpacker.is_between_blocks() => break,
            Incoming::Reply(Ok(_)) => return Err(protocol("ended a scan in the wrong way")),
            Incoming::Reply(Err(fault)) if fault.code == Code::NotFound && count == 0 => break,
            Incoming::Reply(Err(fault)) => return Err(fault),
        };
        let mut input = bytes.as_slice();
        while let Some(block) = unpacker
            .next_block(&mut input)
            .map_err(|error| protocol(&error.to_string()))?
        {
            for item in block.items::<ScanItem<'_>>() {
                count += 1;
                if count > max_entries.saturating_mul(2) {
                    return Err(protocol("tells of more entries than it was asked for"));
                }
                let (path, kind, signature) = match item
                    .map_err(|error| protocol(&error.to_string()))?
                {
                    ScanItem::Entry(entry) => {
                        let (kind, signature) = kind_of(&entry.kind);
                        (entry.path, kind, signature)
                    }
                    ScanItem::Missed { path, code } => (path, SeenKind::Missed(code), NO_SIGNATURE),
                };
                let order = compare(&last, path);
                let is_after = order.is_lt()
                    || (order.is_eq() && matches!(kind, SeenKind::Missed(_)) && !last.is_empty());
                if !is_after {
                    return Err(protocol("tells of its files out of order"));
                }
                last.clear();
                last.extend_from_slice(path);
                // A path that is in the manifest has been validated before.
                let is_plain = kind == (SeenKind::File { is_linked: false });
                if is_plain && finds.knows(path, &signature)? {
                    continue;
                }
                match RelPath::new(path) {
                    Ok(path) => finds.take(SeenEntry {
                        path,
                        signature,
                        kind,
                    })?,
                    Err(_) if refused.len() < MAX_BAD_NAMES => refused.push(RefusedPath {
                        path: path.to_vec(),
                        reason: RefusalReason::BadName,
                    }),
                    Err(_) => {}
                }
            }
        }
        each(count)?;
    }
    Ok(ScanSummary {
        is_empty: count == 0,
        refused,
    })
}

fn kind_of(kind: &EntryKind<'_>) -> (SeenKind, Signature) {
    match kind {
        EntryKind::File {
            signature,
            is_linked,
        } => (
            SeenKind::File {
                is_linked: *is_linked,
            },
            *signature,
        ),
        EntryKind::Dir => (SeenKind::Dir, NO_SIGNATURE),
        EntryKind::Link { target } => (
            SeenKind::Link {
                target: ByteBuf::from(*target),
            },
            NO_SIGNATURE,
        ),
        EntryKind::Special(_) => (SeenKind::Special, NO_SIGNATURE),
    }
}
