//! The system call filter of everything that runs in a sandbox.
//!
//! The policy is `seccomp.toml`, compiled at build time into a constant program for the target
//! architecture; nothing is decided or allocated at run time. It is an allow-list: ENOSYS for what it
//! does not know, so that C libraries fall back as on an older kernel, EPERM for known dangers,
//! EAFNOSUPPORT for foreign socket families.
//!
//! In: a thread with `no_new_privs`. Out: every thread of the process under the filter, and with
//! it everything the process ever starts. Invariant: installed in full or reported; there is no
//! "best effort".

use crate::sys::notify;
use crate::sys::seccomp::{InstallOutcome, install_everywhere};
use rustix::fd::OwnedFd;
use std::io;

/// Which table to install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// What ordinary development tools need.
    #[default]
    Default,
    /// On top of that, for commands that have the user id of the program on the inside: no call that
    /// steers when and where another process runs.
    SameUser,
    /// In place of [`Profile::Default`], for a sandbox whose commands may make namespaces of their own.
    Nested,
    /// On top of [`Profile::Default`] or [`Profile::Nested`], where no Landlock domain keeps commands apart: no call
    /// that traces another process or reads its memory.
    Untraced,
    /// In place of [`Profile::Default`], for a sandbox without namespaces. Calls that change the metadata of files
    /// go to the listener that [`install_with_listener`] gives; without one they fail with ENOSYS.
    Confined,
    /// On top of whatever holds already, for a process that reads a task, computes and writes the answer. Whatever
    /// else it asks for ends it with SIGSYS.
    Compute,
    /// Refuses nothing. Who runs under it has one filter more than those who do not, and can never have fewer.
    Mark,
}

/// The filter was not installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a program: EACCES without `no_new_privs`, EINVAL or ENOSYS when it has
    /// no seccomp filters.
    #[error(
        "the kernel refused the system call filter: {0}; it needs CONFIG_SECCOMP_FILTER and no_new_privs"
    )]
    Refused(#[from] std::io::Error),
    /// Another thread of the process already has a filter that this thread does not share.
    #[error(
        "thread {0} has a system call filter of its own, so the process cannot be given one for all threads"
    )]
    Diverged(i32),
}

/// What becomes of one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel answers.
    Allowed,
    /// The kernel answers unless an argument is refused.
    ByArgument,
    /// EPERM.
    Refused,
    /// ENOSYS.
    Unsupported,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name as in the manual, without `SYS_`.
    pub name: &'static str,
    /// The number on the target architecture.
    pub number: i64,
    /// The group of `seccomp.toml` it stands in: the reason for a refusal.
    pub group: &'static str,
    /// What becomes of it.
    pub verdict: Verdict,
}

#[expect(
    clippy::unreadable_literal,
    reason = "written by the build script, for the compiler"
)]
mod generated {
    use super::{Entry, Verdict};
    include!(concat!(env!("OUT_DIR"), "/seccomp_table.rs"));
}

/// Puts `profile` on every thread of the calling process, for good.
///
/// The caller has set `no_new_privs` (prctl(2)); without it this fails with EACCES, unless the
/// caller holds CAP_SYS_ADMIN.
pub fn install(profile: Profile) -> Result<(), Error> {
    match install_everywhere(program(profile))? {
        InstallOutcome::Everywhere => Ok(()),
        InstallOutcome::Diverged(thread) => Err(Error::Diverged(thread)),
    }
}

/// Puts [`Profile::Confined`] on the calling thread, for good, and gives its listener.
///
/// Precondition: no other thread runs, since none of them would be under the filter.
///
/// # Errors
/// EBUSY where a filter around this process has a listener already.
pub(crate) fn install_with_listener() -> io::Result<OwnedFd> {
    notify::install(program(Profile::Confined))
}

/// The program of `profile`.
pub fn program(profile: Profile) -> &'static [libc::sock_filter] {
    match profile {
        Profile::Default => generated::PROGRAM,
        Profile::SameUser => generated::SAME_USER,
        Profile::Nested => generated::NESTED,
        Profile::Untraced => generated::UNTRACED,
        Profile::Confined => generated::CONFINED,
        Profile::Compute => generated::COMPUTE,
        Profile::Mark => generated::MARK,
    }
}

/// The table behind [`Profile::Default`], for reports and tests.
pub fn table() -> &'static [Entry] {
    generated::TABLE
}
