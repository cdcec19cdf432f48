//! Limit on the disk space of a sandbox, enforced by the kernel: the quota of a project.
//!
//! ext4 and xfs count the space of all files with the same project id if they are mounted with
//! `prjquota`. The directory of a sandbox's layers gets an id of a range that Glovebox uses. Every
//! file made below it inherits the id, and no process inside a user namespace can change it.
//! Writing past the limit fails with `EDQUOT` (ext4) or `ENOSPC` (xfs). Only root of the first user
//! namespace can set this up.
//!
//! The kernel alone knows which ids are taken: an id with usage or limits is in use. So no record
//! has to be kept, and none is lost with a process that dies.

use crate::sys::quota;
use rustix::fd::BorrowedFd;
use rustix::fs::Dir;
use rustix::io::Errno;
use std::fmt;
use std::ops::RangeInclusive;

/// Range of project ids that Glovebox uses.
const RANGE: RangeInclusive<u32> = 0x676c_0000..=0x676c_ffff;
/// Room in addition to the present usage while layers are mounted. The kernel then makes
/// directories on behalf of the sandbox, even of one that has used up its limit.
const MOUNT_BYTES: u64 = 1 << 20;
const MOUNT_INODES: u64 = 64;
/// Maximum number of ids that are tried.
const ATTEMPTS: u32 = 64;

/// Limits of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectLimits {
    /// Bytes on disk. The file system counts in blocks of 1 KiB; the limit is at least one block.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl ProjectLimits {
    fn blocks(self) -> u64 {
        (self.bytes / quota::BLOCK_BYTES).max(1)
    }
}

/// Reason why the kernel does not enforce a limit here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnavailable {
    /// Linux is older than 5.14.
    OldKernel,
    /// The file system has no project quotas.
    NotSupported,
    /// The file system counts without enforcing limits, or does not count.
    NotEnforced,
    /// The directory has a project id outside the range. Holds that id.
    OtherProject(u32),
    /// The directory already contains files, which have no project id.
    Occupied,
    /// Every id that was tried is in use.
    NoFreeId,
    /// The kernel refused this step.
    Refused(&'static str, Errno),
}

impl fmt::Display for QuotaUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldKernel => f.write_str("it needs Linux 5.14"),
            Self::NotSupported => {
                f.write_str("the file system of the state directory has none (ext4 and xfs have)")
            }
            Self::NotEnforced => f.write_str(
                "the file system of the state directory is not mounted with the option `prjquota`",
            ),
            Self::OtherProject(id) => write!(
                f,
                "the state directory belongs to project {id} of somebody else, whose limit stays"
            ),
            Self::Occupied => f.write_str("the sandbox was made without one"),
            Self::NoFreeId => write!(
                f,
                "all of {ATTEMPTS} project ids that were tried are in use"
            ),
            Self::Refused(step, errno) => write!(f, "the kernel refused to {step} ({errno})"),
        }
    }
}

impl std::error::Error for QuotaUnavailable {}

fn refused(step: &'static str) -> impl FnOnce(Errno) -> QuotaUnavailable {
    move |errno| QuotaUnavailable::Refused(step, errno)
}

/// Gives an empty directory an unused project id, or keeps the one of the range that it has
/// already. Returns the id. The limits include room for mounting the layers; [`tighten`] makes them
/// exact.
///
/// # Errors
/// The reason why the kernel does not enforce them. The directory is then unchanged.
pub fn assign(dir: BorrowedFd<'_>, limits: ProjectLimits) -> Result<u32, QuotaUnavailable> {
    ensure_enforced(dir)?;
    let found = quota::attributes(dir).map_err(refused("tell the project id"))?;
    if RANGE.contains(&found.project) {
        loosen(dir, found.project, limits)?;
        return Ok(found.project);
    }
    if found.project != 0 {
        return Err(QuotaUnavailable::OtherProject(found.project));
    }
    if !is_empty(dir).map_err(refused("list the layers"))? {
        return Err(QuotaUnavailable::Occupied);
    }
    for _ in 0..ATTEMPTS {
        let id = random_id().map_err(refused("give a random number"))?;
        if !is_free(dir, id)? {
            continue;
        }
        let mut wanted = found;
        wanted.project = id;
        wanted.flags |= quota::INHERITS;
        // The id is set first and the usage checked afterwards: of two processes that choose the
        // same id at the same time, at least one then sees the other.
        quota::set_attributes(dir, &wanted).map_err(refused("set a project id"))?;
        match claim(dir, id, limits) {
            Ok(true) => return Ok(id),
            Ok(false) => give_back(dir, &found)?,
            Err(why) => {
                give_back(dir, &found)?;
                return Err(why);
            }
        }
    }
    Err(QuotaUnavailable::NoFreeId)
}

/// Sets the limits of an id that a directory was just given. Returns false if another directory was
/// given the same id at the same time: then at least one of the two sees both in the usage.
fn claim(dir: BorrowedFd<'_>, id: u32, limits: ProjectLimits) -> Result<bool, QuotaUnavailable> {
    let used = quota::quota(dir, id).map_err(refused("tell the use of a project"))?;
    if used.used_inodes != 1 {
        return Ok(false);
    }
    loosen(dir, id, limits)?;
    Ok(true)
}

fn give_back(dir: BorrowedFd<'_>, before: &quota::Attributes) -> Result<(), QuotaUnavailable> {
    quota::set_attributes(dir, before).map_err(refused("take a project id back"))
}

/// Sets limits with room for mounting the layers in a directory of this project, regardless of the
/// present usage. Processes in the sandbox could use that room, so none should run.
///
/// # Errors
/// The kernel refuses.
pub fn loosen(dir: BorrowedFd<'_>, id: u32, limits: ProjectLimits) -> Result<(), QuotaUnavailable> {
    let used = quota::quota(dir, id).map_err(refused("tell the use of a project"))?;
    let loose = ProjectLimits {
        bytes: limits
            .bytes
            .max(used.used_bytes)
            .saturating_add(MOUNT_BYTES),
        inodes: limits
            .inodes
            .max(used.used_inodes)
            .saturating_add(MOUNT_INODES),
    };
    tighten(dir, id, loose)
}

/// Sets exactly these limits for a project. Existing usage beyond them stays.
///
/// # Errors
/// The kernel refuses.
pub fn tighten(
    dir: BorrowedFd<'_>,
    id: u32,
    limits: ProjectLimits,
) -> Result<(), QuotaUnavailable> {
    quota::set_limits(dir, id, limits.blocks(), limits.inodes)
        .map_err(refused("set the limit of a project"))
}

/// Returns true if the project of `dir` is `id` and has these limits now.
///
/// # Errors
/// The values cannot be read.
pub fn is_held(
    dir: BorrowedFd<'_>,
    id: u32,
    limits: ProjectLimits,
) -> Result<bool, QuotaUnavailable> {
    let found = quota::attributes(dir).map_err(refused("tell the project id"))?;
    let held = quota::quota(dir, id).map_err(refused("tell the limit of a project"))?;
    Ok(found.project == id
        && found.flags & quota::INHERITS != 0
        && (held.max_blocks, held.max_inodes) == (limits.blocks(), limits.inodes))
}

/// Returns the bytes that may still be written to a directory that has a limit of ours. `None` if
/// it has no limit or this process may not read it: the kernel shows it to root alone.
pub fn bytes_left(dir: BorrowedFd<'_>) -> Option<u64> {
    let found = quota::attributes(dir).ok()?;
    if !RANGE.contains(&found.project) || quota::is_enforced(dir) != Ok(true) {
        return None;
    }
    let held = quota::quota(dir, found.project).ok()?;
    let max_bytes = held.max_blocks.checked_mul(quota::BLOCK_BYTES)?;
    (max_bytes > 0).then(|| max_bytes.saturating_sub(held.used_bytes))
}

/// Returns the number of files that may still be made in such a directory. `None` as for
/// [`bytes_left`].
pub fn files_left(dir: BorrowedFd<'_>) -> Option<u64> {
    let found = quota::attributes(dir).ok()?;
    if !RANGE.contains(&found.project) || quota::is_enforced(dir) != Ok(true) {
        return None;
    }
    let held = quota::quota(dir, found.project).ok()?;
    (held.max_inodes > 0).then(|| held.max_inodes.saturating_sub(held.used_inodes))
}

/// Removes the limits of a directory that has a project id of the range. Does nothing for other
/// directories.
///
/// # Errors
/// The kernel refuses.
pub fn lift(dir: BorrowedFd<'_>) -> Result<(), QuotaUnavailable> {
    // Without support for project ids there is no limit to remove.
    let Ok(found) = quota::attributes(dir) else {
        return Ok(());
    };
    // There is none either if the file system does not enforce it.
    if !RANGE.contains(&found.project) || quota::is_enforced(dir) != Ok(true) {
        return Ok(());
    }
    quota::set_limits(dir, found.project, 0, 0).map_err(refused("lift the limit of a project"))
}

/// Clears the limits of all ids of the range, on the file system of `dir`, that no file has any
/// more: those of removed sandboxes. Failures are ignored: such an id keeps its limits and is not
/// used.
pub fn reclaim(dir: BorrowedFd<'_>) {
    let mut next = Some(*RANGE.start());
    while let Some(id) = next.filter(|id| RANGE.contains(id)) {
        let Ok(Some(found)) = quota::next_quota(dir, id) else {
            return;
        };
        // TRUST: an answer that goes backwards would never end.
        if found.project < id || !RANGE.contains(&found.project) {
            return;
        }
        let has_limits = found.max_blocks != 0 || found.max_inodes != 0;
        if has_limits && found.used_inodes == 0 && found.used_bytes == 0 {
            let _ = quota::set_limits(dir, found.project, 0, 0);
        }
        next = found.project.checked_add(1);
    }
}

fn ensure_enforced(dir: BorrowedFd<'_>) -> Result<(), QuotaUnavailable> {
    if !quota::is_known() {
        return Err(QuotaUnavailable::OldKernel);
    }
    match quota::is_enforced(dir) {
        Ok(true) => Ok(()),
        Ok(false) => Err(QuotaUnavailable::NotEnforced),
        // ext4 without any quota returns the same error as a file system that has no quotas.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => match quota::attributes(dir) {
            Ok(_) => Err(QuotaUnavailable::NotEnforced),
            Err(_) => Err(QuotaUnavailable::NotSupported),
        },
        Err(errno) => Err(QuotaUnavailable::Refused("tell the state of quotas", errno)),
    }
}

/// Returns true if an id has neither usage nor limits.
fn is_free(dir: BorrowedFd<'_>, id: u32) -> Result<bool, QuotaUnavailable> {
    let found = quota::quota(dir, id).map_err(refused("tell the use of a project"))?;
    Ok((
        found.used_inodes,
        found.used_bytes,
        found.max_blocks,
        found.max_inodes,
    ) == (0, 0, 0, 0))
}

fn random_id() -> Result<u32, Errno> {
    let mut bytes = [0_u8; 2];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(RANGE.start() | u32::from(u16::from_ne_bytes(bytes)))
}

fn is_empty(dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    const LIMITS: ProjectLimits = ProjectLimits {
        bytes: 1 << 20,
        inodes: 100,
    };

    #[test]
    fn limits_are_whole_blocks_and_never_none() {
        let blocks = |bytes| ProjectLimits { bytes, inodes: 1 }.blocks();
        assert_eq!([0, 1023, 1024, 4096].map(blocks), [1, 1, 1, 4]);
    }

    #[test]
    fn a_file_system_without_quotas_is_told_and_left_as_it_is() {
        // A file system of the kernel, which never has quotas.
        let dir = File::open("/proc/self").unwrap();
        let why = assign(dir.as_fd(), LIMITS).unwrap_err();
        assert!(
            matches!(
                why,
                QuotaUnavailable::NotSupported | QuotaUnavailable::OldKernel
            ),
            "{why}"
        );
        lift(dir.as_fd()).unwrap();
        assert_eq!(bytes_left(dir.as_fd()), None);
        reclaim(dir.as_fd());
    }

    #[test]
    fn random_ids_are_ours() {
        for _ in 0..100 {
            assert!(RANGE.contains(&random_id().unwrap()));
        }
    }

    #[test]
    fn each_reason_is_a_phrase() {
        for why in [
            QuotaUnavailable::OldKernel,
            QuotaUnavailable::NotEnforced,
            QuotaUnavailable::OtherProject(7),
            QuotaUnavailable::Refused("set a project id", Errno::PERM),
        ] {
            let text = why.to_string();
            assert!(!text.is_empty() && !text.ends_with('.'), "{text}");
        }
    }
}
