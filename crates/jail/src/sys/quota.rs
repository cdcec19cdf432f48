//! Project ids of files and quotas of projects: the ioctls `FS_IOC_FSGETXATTR` and
//! `FS_IOC_FSSETXATTR`, and `quotactl_fd(2)`, which takes any file of the file system in place of
//! its device.
#![expect(unsafe_code, reason = "none of these calls has a safe wrapper")]

use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::io::Errno;
use rustix::ioctl::opcode;

/// Quota type of projects (`PRJQUOTA`).
const PROJECTS: u32 = 2;
/// Commands `Q_GETQUOTA`, `Q_SETQUOTA`, `Q_GETNEXTQUOTA` of `linux/quota.h`.
const GET: u32 = 0x80_0007;
const SET: u32 = 0x80_0008;
const GET_NEXT: u32 = 0x80_0009;
/// Command `Q_XGETQSTATV` of `linux/dqblk_xfs.h`, and the version of the structure it fills.
const STATE: u32 = 0x5808;
const STATE_VERSION: i8 = 1;
/// Flag of [`State`]: limits of projects are enforced (`FS_QUOTA_PDQ_ENFD`).
const PROJECTS_ENFORCED: u16 = 1 << 5;
/// Fields that [`set_limits`] sets: limits of bytes and of inodes (`QIF_LIMITS`).
const LIMITS: u32 = 1 | 4;
/// Unit of byte limits (`QIF_DQBLKSIZE`).
pub(crate) const BLOCK_BYTES: u64 = 1024;

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub(crate) flags: u32,
    extent_size: u32,
    extents: u32,
    pub(crate) project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// Flag of [`Attributes`] of a directory: new files inherit its project id
/// (`FS_XFLAG_PROJINHERIT`).
pub(crate) const INHERITS: u32 = 0x200;

/// `struct if_nextdqblk` of `linux/quota.h`, which begins with the fields of `struct if_dqblk`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quota {
    pub(crate) max_blocks: u64,
    soft_blocks: u64,
    pub(crate) used_bytes: u64,
    pub(crate) max_inodes: u64,
    soft_inodes: u64,
    pub(crate) used_inodes: u64,
    block_grace: u64,
    inode_grace: u64,
    valid: u32,
    /// Project id. Only [`next_quota`] fills it.
    pub(crate) project: u32,
}

/// `struct fs_quota_statv` of `linux/dqblk_xfs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct State {
    version: i8,
    padding: u8,
    flags: u16,
    rest: [u32; 39],
}

/// Returns flags and project id of an open file.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> Result<Attributes, Errno> {
    const CODE: libc::Ioctl = opcode::read::<Attributes>(b'X', 31) as libc::Ioctl;
    let mut found = Attributes::default();
    // SAFETY: the request writes one structure of this layout, whose size is part of the number, to
    // the address given; it is live and ours alone.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), CODE, std::ptr::from_mut(&mut found)) };
    answer(result.into()).map(|()| found)
}

/// Sets flags and project id of an open file.
pub(crate) fn set_attributes(file: BorrowedFd<'_>, wanted: &Attributes) -> Result<(), Errno> {
    const CODE: libc::Ioctl = opcode::write::<Attributes>(b'X', 32) as libc::Ioctl;
    // SAFETY: the request only reads one structure of this layout, whose size is part of the
    // number, at the address given, which is live.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), CODE, std::ptr::from_ref(wanted)) };
    answer(result.into())
}

/// Returns true if the file system of an open file enforces limits of projects.
pub(crate) fn is_enforced(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut state = State {
        version: STATE_VERSION,
        padding: 0,
        flags: 0,
        rest: [0; 39],
    };
    call(file, STATE, 0, &mut state)?;
    Ok(state.flags & PROJECTS_ENFORCED != 0)
}

/// Returns limits and usage of a project; all zeroes if it has neither.
pub(crate) fn quota(file: BorrowedFd<'_>, project: u32) -> Result<Quota, Errno> {
    let mut found = Quota::default();
    match call(file, GET, project, &mut found) {
        // xfs knows only projects that were used at least once.
        Err(Errno::NOENT | Errno::SRCH) => Ok(Quota::default()),
        other => other.map(|()| found),
    }
}

/// Returns the first project from `project` on that has limits or usage. `None` if there is no
/// further one.
pub(crate) fn next_quota(file: BorrowedFd<'_>, project: u32) -> Result<Option<Quota>, Errno> {
    let mut found = Quota::default();
    match call(file, GET_NEXT, project, &mut found) {
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        other => other.map(|()| Some(found)),
    }
}

/// Sets the limits of a project; zero is no limit.
pub(crate) fn set_limits(
    file: BorrowedFd<'_>,
    project: u32,
    max_blocks: u64,
    max_inodes: u64,
) -> Result<(), Errno> {
    let mut wanted = Quota {
        max_blocks,
        max_inodes,
        valid: LIMITS,
        ..Quota::default()
    };
    call(file, SET, project, &mut wanted)
}

/// Returns true if the kernel has the system call (Linux 5.14).
pub(crate) fn is_known() -> bool {
    // SAFETY: no descriptor has this number, so the call ends before it looks at anything else.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, -1, 0, 0, 0) };
    answer(result) != Err(Errno::NOSYS)
}

/// Types that a `command` of [`call`] reads or writes: C structures of integers, at least as large
/// as the kernel's.
trait Argument {}
impl Argument for Quota {}
impl Argument for State {}

/// Makes one quota call for a project. Precondition: `command` takes an argument of the type `T`.
fn call<T: Argument>(
    file: BorrowedFd<'_>,
    command: u32,
    project: u32,
    argument: &mut T,
) -> Result<(), Errno> {
    let number = libc::c_long::from((command << 8) | PROJECTS);
    // SAFETY: each command reads or writes one structure of the type it is used with here, which is
    // live and ours alone; the other arguments are integers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            file.as_raw_fd(),
            number,
            libc::c_long::from(project),
            std::ptr::from_mut(argument),
        )
    };
    answer(result)
}

fn answer(result: libc::c_long) -> Result<(), Errno> {
    if result >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}
