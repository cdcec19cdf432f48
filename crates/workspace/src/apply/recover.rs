//! Recovery: finishes or undoes commits that an earlier pull left incomplete.

use super::commit::{finish, undo};
use super::journal::{COMMITTING, DONE, Staging, discard_unfinished};
use super::operation::OperationDirs;
use crate::beneath::{Anchor, io, read_names};
use crate::collect::RESERVED_PREFIX;
use glovebox_proto::{Code, Fault};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Maximum time to wait for a commit that another process still performs.
const WAIT: Duration = Duration::from_secs(20);
const WAIT_STEP: Duration = Duration::from_millis(10);

/// Result of recovering a destination from commits that were interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// No commit had begun: the destination is unchanged.
    Nothing,
    /// A commit that had begun was undone.
    Undone,
    /// A commit that had done all its operations was finished.
    Finished,
}

/// Recovers a destination, which must be locked. Calls `on_recovered` for each commit that was
/// undone or finished, before its journal is removed: if this process dies in between, the next
/// recovery calls it again.
pub(super) fn recover(anchor: &Anchor, on_recovered: &mut dyn FnMut()) -> Result<Recovery, Fault> {
    let failed = |errno: Errno| io("read", anchor.path(), errno);
    let dir = anchor.dir(b"").map_err(failed)?;
    let mut names = Vec::new();
    read_names(&dir, |name, _| {
        if name.starts_with(RESERVED_PREFIX) {
            names.push(name.to_vec());
        }
        Ok::<(), Errno>(())
    })
    .map_err(failed)?;
    let mut recovery = Recovery::Nothing;
    for name in names {
        match Staging::open(anchor.as_fd(), anchor.path(), &name) {
            Some(staging) => recovery = recovery.max(one(anchor, &staging, on_recovered)?),
            None => discard_unfinished(anchor.as_fd(), &name),
        }
    }
    Ok(recovery)
}

fn one(
    anchor: &Anchor,
    staging: &Staging,
    on_recovered: &mut dyn FnMut(),
) -> Result<Recovery, Fault> {
    let deadline = Instant::now() + WAIT;
    let found = loop {
        match staging.take_journal() {
            Ok(found) => break found,
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(WAIT_STEP),
            Err(Errno::AGAIN) => {
                return Err(Fault::failed(
                    Code::Busy,
                    format!(
                        "an earlier pull still applies changes to {}",
                        anchor.path().display()
                    ),
                )
                .remedy("try again when it has ended")
                .retryable());
            }
            Err(errno) => return Err(io("read", &staging.path, errno)),
        }
    };
    let Some((journal, lock)) = found else {
        staging.remove(anchor.as_fd(), None);
        return Ok(Recovery::Nothing);
    };
    if staging.has(DONE) {
        on_recovered();
        finish(anchor, staging, &journal, lock);
        return Ok(Recovery::Finished);
    }
    // Without the mark, either no operation was performed yet, or the commit has ended and its
    // staging directory is being removed.
    let is_begun = staging.has(COMMITTING);
    if is_begun {
        undo(
            &OperationDirs::new(anchor, staging),
            &journal,
            journal.operations.len(),
        )?;
        on_recovered();
    }
    staging.remove(anchor.as_fd(), Some(lock));
    Ok(if is_begun {
        Recovery::Undone
    } else {
        Recovery::Nothing
    })
}
