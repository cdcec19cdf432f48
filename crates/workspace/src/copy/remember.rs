//! Records of a path after a push: its line in the manifest, and its entry in the base index.

use super::digest::ReadDigest;
use super::entry::{SeenEntry, SeenKind};
use super::manifest::{Line, LineKind};
use super::walk::signature;
use crate::base;
use crate::{Digest, RelPath};
use glovebox_proto::tree::Signature;
use serde_bytes::ByteBuf;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

/// A host file whose digest was computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedFile {
    pub(super) size: u64,
    pub(super) digest: Digest,
    pub(super) settled: Option<Signature>,
}

/// Returns the signature of a file that was read; `None` if an equal signature later would not
/// prove the same content.
pub(super) fn settled(file: &File, before: Signature, size: u64) -> Option<Signature> {
    let after = signature(&rustix::fs::fstat(file).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let now_ns = i64::try_from(now.as_nanos()).ok()?;
    (after == before && size == before.size && before.is_settled(now_ns)).then_some(before)
}

/// Returns the manifest's line for a path that stays, with new information from this push.
pub(super) fn refreshed(
    path: RelPath,
    base: Option<Line>,
    host: &SeenEntry,
    inside: Option<&SeenEntry>,
    told: Option<&ReadDigest>,
    hashed: Option<HashedFile>,
) -> Line {
    let kind = match (&host.kind, base.map(|line| line.kind)) {
        (SeenKind::Dir, _) => LineKind::Dir,
        (SeenKind::Link { target }, _) => LineKind::Link {
            target: ByteBuf::from(target.to_vec()),
        },
        (
            _,
            Some(LineKind::File {
                size,
                is_executable,
                digest,
                host: known_host,
                inside: known_inside,
            }),
        ) if hashed.is_none_or(|own| (own.size, own.digest) == (size, digest)) => LineKind::File {
            size,
            is_executable,
            digest,
            host: hashed.map_or(known_host, |own| own.settled),
            inside: match told {
                Some(told) if (told.size, told.digest) == (size, digest) => told.signature,
                _ => known_inside.filter(|_| inside.is_some()),
            },
        },
        _ => LineKind::File {
            size: hashed.map_or(0, |own| own.size),
            is_executable: host.signature.is_executable(),
            digest: hashed.map_or([0; 32], |own| own.digest),
            host: hashed.and_then(|own| own.settled),
            inside: told.and_then(|told| told.signature),
        },
    };
    Line { path, kind }
}

pub(super) fn index_signature(host: &SeenEntry) -> base::Signature {
    let kind = match host.kind {
        SeenKind::File { .. } => base::Kind::File,
        SeenKind::Dir => base::Kind::Dir,
        SeenKind::Link { .. } => base::Kind::Link,
        SeenKind::Special | SeenKind::Missed(_) => base::Kind::Other,
    };
    index_entry(kind, host.signature)
}

/// Converts a signature to an entry of the base index.
pub(super) fn index_entry(kind: base::Kind, signature: Signature) -> base::Signature {
    let Signature {
        size,
        mtime_ns,
        ctime_ns,
        ino,
        permissions,
    } = signature;
    base::Signature::Present {
        kind,
        size,
        mode: u32::from(permissions),
        mtime_ns,
        ctime_ns,
        ino,
    }
}
