//! What the state directories of tests share of `base`: the generated copy of the machine's `/etc`, and the guest.
//!
//! The first sandbox of a state directory makes some 900 files and links that are the same for every test. Made and
//! removed each time they are most of what a suite does: ext4 leaves removed inodes alone for a minute, and passes over
//! every one of them whenever it looks for a free one. So a test that has passed hands them on to the next one of the
//! same user, who meets what a user meets from the second command on.
//!
//! Only where [`PLACE`] names a directory to keep them in, which `cargo xtask test` makes and removes. Otherwise every
//! test begins with nothing.

use crate::skip::current_user;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Variable with the directory in which they wait, a directory for each user.
const PLACE: &str = "GLOVEBOX_TEST_BASES";
/// Its name in a state directory.
const BASE: &str = "base";
/// How the names of what is handed on begin.
const SHARED: [&str; 2] = ["etc-", "guest-"];

/// Puts a `base` into a state directory of this user, if one waits.
pub fn lend(state: &Path) {
    lend_to(state, current_user());
}

/// The same for the user `uid`.
pub(crate) fn lend_to(state: &Path, uid: u32) {
    let waiting = waiting(uid).and_then(|dir| fs::read_dir(dir).ok());
    for entry in waiting.into_iter().flatten().flatten() {
        // Whoever renames one has it.
        if fs::rename(entry.path(), state.join(BASE)).is_ok() {
            return;
        }
    }
}

/// Removes what was lent.
pub(crate) fn remove(state: &Path) -> io::Result<()> {
    match fs::remove_dir_all(state.join(BASE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Takes what can be shared out of a state directory, for the next test. What cannot be handed on stays, and goes with
/// the directory. To be called when a test has passed, and everything in its sandboxes has ended.
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

/// Where those of this user wait.
fn waiting(uid: u32) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os(PLACE)?).join(uid.to_string());
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&dir).ok()?;
    Some(dir)
}
