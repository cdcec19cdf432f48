//! Requirements of an apply that depend on the destination: free space, and features of its file
//! system.

use super::journal::{Staging, keeps_modes};
use crate::beneath::{Anchor, io, stat_at};
use crate::{Plan, RelPath, Step};
use glovebox_proto::{Code, Fault, Setting};
use rustix::fd::AsFd as _;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::HashMap;

/// Space that a file system needs beside the contents, in bytes.
const SPARE_BYTES: u64 = 4 << 20;
/// Maximum space that a file needs beside its content, in bytes: a block, an inode and a name.
const FILE_BYTES: u64 = 8 << 10;

/// Fails with [`Code::NoSpace`] if the file system of a destination has too little space or too few
/// inodes.
pub(super) fn require_space(anchor: &Anchor, files: u64, bytes: u64) -> Result<(), Fault> {
    let space =
        rustix::fs::fstatvfs(anchor).map_err(|errno| io("inspect", anchor.path(), errno))?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = bytes
        .saturating_add(files.saturating_mul(FILE_BYTES))
        .saturating_add(SPARE_BYTES);
    let has_inodes = space.f_files == 0 || space.f_favail > files + 8;
    if needed <= available && has_inodes {
        return Ok(());
    }
    Err(Fault::failed(
        Code::NoSpace,
        format!(
            "the changes need {needed} bytes and {} files in {}, where {available} bytes and {} files \
             are free",
            files + 8,
            anchor.path().display(),
            space.f_favail
        ),
    )
    .remedy("make room there; the sandbox keeps its changes"))
}

/// Features of the file system of a destination.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// True if it can exchange two names atomically.
    pub(super) can_exchange: bool,
    /// True if it treats names that differ only in case as one.
    pub(super) folds_case: bool,
    /// True if it stores the permissions of files.
    pub(super) keeps_modes: bool,
}

pub(super) fn try_out(staging: &Staging) -> Result<Abilities, Fault> {
    let failed = |errno| io("try out the file system in", &staging.path, errno);
    let mut has_modes = true;
    for name in ["a", "b"] {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&staging.old, name, flags, Mode::from_raw_mode(0o600))
            .map_err(failed)?;
        let mode = rustix::fs::fstat(&file).map_err(failed)?.st_mode;
        has_modes &= keeps_modes(file.as_fd(), Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    let old = &staging.old;
    let folds_case = stat_at(old.as_fd(), b"A").is_ok();
    let exchanged = rustix::fs::renameat_with(old, "a", old, "b", RenameFlags::EXCHANGE);
    for name in ["a", "b"] {
        rustix::fs::unlinkat(old, name, AtFlags::empty()).map_err(failed)?;
    }
    let can_exchange = match exchanged {
        Ok(()) => true,
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => false,
        Err(errno) => return Err(failed(errno)),
    };
    Ok(Abilities {
        can_exchange,
        folds_case,
        keeps_modes: has_modes,
    })
}

/// Refuses a plan that would write two objects to one name. The planner prevents that itself,
/// unless the destination is empty and does not show whether it folds case.
pub(super) fn require_distinct(anchor: &Anchor, plan: &Plan) -> Result<(), Fault> {
    let mut names: HashMap<Vec<u8>, &RelPath> = HashMap::new();
    for step in &plan.steps {
        let (Step::Write { path, .. } | Step::MakeDir { path }) = step else {
            continue;
        };
        if let Some(other) = names.insert(path.folded(), path) {
            return Err(Fault::refused(
                Code::AlreadyExists,
                format!(
                    "`{other}` and `{path}` differ only in case, and {} takes them for one",
                    anchor.path().display()
                ),
            )
            .remedy([
                "leave one of them out, such as with ".into(),
                Setting::Exclude.of(path.to_string()),
            ]));
        }
    }
    Ok(())
}
