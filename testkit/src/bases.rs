//! Shared parts of `base` in the state directories of tests: the generated copy of the machine's
//! `/etc`, and the guest.
//!
//! The first sandbox of a state directory creates some 900 files and links that are the same for
//! every test. Creating and removing them each time takes most of a suite's time: ext4 does not
//! reuse a removed inode for a minute, and skips each of them whenever it looks for a free one. So
//! a test that has passed hands them on to the next one of the same user, which then runs as a
//! user's second command does.
//!
//! They are kept only if [`PLACE`] names a directory, which `cargo xtask test` creates and removes.
//! Otherwise every test starts with an empty state directory.

use crate::skip::current_user;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Variable with the directory in which they are kept, with a subdirectory for each user.
const PLACE: &str = "GLOVEBOX_TEST_BASES";
/// Name of the directory in a state directory.
const BASE: &str = "base";
/// Prefixes of the names that are handed on.
const SHARED: [&str; 2] = ["etc-", "guest-"];

/// Moves a `base` into a state directory of this user, if one is kept.
pub fn lend(state: &Path) {
    lend_to(state, current_user());
}

/// Moves a `base` into a state directory of the user `uid`, if one is kept.
pub(crate) fn lend_to(state: &Path, uid: u32) {
    let waiting = waiting(uid).and_then(|dir| fs::read_dir(dir).ok());
    for entry in waiting.into_iter().flatten().flatten() {
        // The rename is atomic, so one of several tests gets it.
        if fs::rename(entry.path(), state.join(BASE)).is_ok() {
            return;
        }
    }
}

/// Removes what was lent. Succeeds if there is nothing.
pub(crate) fn remove(state: &Path) -> io::Result<()> {
    match fs::remove_dir_all(state.join(BASE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Moves the sharable part out of a state directory, for the next test. A part that cannot be moved
/// is removed with the directory. Must be called after a test has passed, and after every process
/// in its sandboxes has ended.
pub fn hand_on(state: &Path) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = state.join(BASE);
    let owner = fs::symlink_metadata(&base).map(|meta| meta.uid());
    let Some(dir) = owner.ok().and_then(waiting) else {
        return;
    };
    if remove_others(&base).is_ok() {
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let _ = fs::rename(base, dir.join(format!("{}-{count}", std::process::id())));
    }
}

fn remove_others(base: &Path) -> io::Result<()> {
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !SHARED.iter().any(|prefix| name.starts_with(prefix)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Returns the directory in which those of a user are kept, and creates it. None if there is none.
fn waiting(uid: u32) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os(PLACE)?).join(uid.to_string());
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&dir).ok()?;
    Some(dir)
}
