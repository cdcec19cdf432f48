//! Finds files by name, newest first.

use super::{Bounds, OpenDirectory, Scope, bad_pattern, mtime_ns};
use glovebox_proto::{Fault, FoundFile, Glob, GlobReport, Reply};
use ignore::DirEntry;
use ignore::overrides::OverrideBuilder;
use rustix::fs::AtFlags;
use serde_bytes::ByteBuf;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// Sort key: newest first, then by path.
type Rank = Reverse<(i128, Reverse<Vec<u8>>, u64)>;

/// Finds files below `root`. Blocks until the walk ends, is cancelled or reaches its deadline.
pub(crate) fn glob(root: &[u8], wanted: &Glob, cancel: &AtomicBool) -> Result<Reply, Fault> {
    let bounds = Bounds::new(wanted.deadline_ms, cancel);
    let mut only = OverrideBuilder::new(Path::new(OsStr::from_bytes(root)));
    // For the library a leading exclamation mark negates the pattern; here it is part of a name.
    let escape = if wanted.pattern.starts_with('!') {
        "\\"
    } else {
        ""
    };
    only.add(&format!("{escape}{}", wanted.pattern))
        .map_err(|error| bad_pattern("pattern", &error))?;
    let scope = Scope {
        root,
        use_ignore: wanted.use_ignore,
        only: only
            .build()
            .map_err(|error| bad_pattern("pattern", &error))?,
        types: None,
    };
    scope.check()?;
    let max = wanted.max_hits as usize;
    let newest: Mutex<(BinaryHeap<Rank>, u64)> = Mutex::default();
    let look = |near: &mut OpenDirectory, path: &Path| {
        let stat = near
            .find(path)
            .and_then(|(dir, name)| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        // The file was removed after it was listed.
        let Some(stat) = stat else {
            return;
        };
        let mtime_ns = mtime_ns(&stat);
        let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.1 += 1;
        let is_full = newest.0.len() >= max;
        let oldest = newest.0.peek().map(|Reverse((mtime_ns, ..))| *mtime_ns);
        if is_full && oldest.is_none_or(|oldest| mtime_ns < oldest) {
            return;
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        newest
            .0
            .push(Reverse((mtime_ns, Reverse(scope.relative(path)), size)));
        if is_full {
            newest.0.pop();
        }
    };
    let walked = scope.walk(&bounds, || {
        let mut near = OpenDirectory::default();
        let look = &look;
        move |entry: &DirEntry| look(&mut near, entry.path())
    });
    let (heap, total) = newest.into_inner().unwrap_or_else(PoisonError::into_inner);
    let hits = heap
        .into_sorted_vec()
        .into_iter()
        .map(|Reverse((mtime_ns, Reverse(path), size))| FoundFile {
            path: ByteBuf::from(path),
            mtime_ns,
            size,
        })
        .collect();
    Ok(Reply::Globbed(GlobReport {
        hits,
        total,
        unreadable: walked.unreadable,
        end: bounds.end(walked.was_stopped)?,
    }))
}
