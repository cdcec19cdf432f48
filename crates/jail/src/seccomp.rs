//! System-call filter of all processes in a sandbox.
//!
//! The policy is `seccomp.toml`, compiled at build time into a constant program for the target
//! architecture; nothing is decided or allocated at run time. It is an allow-list. Unknown calls
//! get ENOSYS, so that C libraries fall back as on an older kernel; known dangers get EPERM,
//! foreign socket families EAFNOSUPPORT.
//!
//! The caller needs `no_new_privs`. Afterwards every thread of the process is under the filter, and
//! so are all processes that it starts. The filter is installed in full, or an error is returned.

use crate::sys::notify;
use crate::sys::seccomp::{InstallOutcome, install_everywhere};
use rustix::fd::OwnedFd;
use std::io;

/// Filter to install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// Allows the calls that ordinary development tools need.
    #[default]
    Default,
    /// In addition to the first filter, for commands that have the guest's user id: refuses calls
    /// that control when and where another process runs.
    SameUser,
    /// In place of [`Profile::Default`], for a sandbox whose commands may make namespaces.
    Nested,
    /// In addition to [`Profile::Default`] or [`Profile::Nested`], if no Landlock domain keeps
    /// commands apart: refuses calls that trace another process or read its memory.
    Untraced,
    /// In place of [`Profile::Default`], for a sandbox without namespaces. Calls that change
    /// metadata of files go to the listener of [`install_with_listener`]; without a listener they
    /// fail with ENOSYS.
    Confined,
    /// In addition to any other filter, for a process that reads a task, computes and writes the
    /// answer. Any other call kills it with SIGSYS.
    Compute,
    /// Refuses nothing. A process under it has one filter more than others, and can never have
    /// fewer.
    Mark,
}

/// Error of installing a filter.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a program: EACCES without `no_new_privs`, EINVAL or ENOSYS if it has no
    /// seccomp filters.
    #[error(
        "the kernel refused the system call filter: {0}; it needs CONFIG_SECCOMP_FILTER and no_new_privs"
    )]
    Refused(#[from] std::io::Error),
    /// The named thread of the process already has a filter that this thread does not share.
    #[error(
        "thread {0} has a system call filter of its own, so the process cannot be given one for all threads"
    )]
    Diverged(i32),
}

/// Treatment of one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out.
    Allowed,
    /// The kernel carries it out unless an argument is refused.
    ByArgument,
    /// Fails with EPERM.
    Refused,
    /// Fails with ENOSYS.
    Unsupported,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name as in the manual, without `SYS_`.
    pub name: &'static str,
    /// Number on the target architecture.
    pub number: i64,
    /// Group of `seccomp.toml` that contains the call. It is the reason for a refusal.
    pub group: &'static str,
    /// Treatment of the call.
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

/// Installs `profile` on every thread of the calling process. It cannot be removed.
///
/// The caller must have set `no_new_privs` (prctl(2)). Without it this fails with EACCES, unless
/// the caller holds CAP_SYS_ADMIN.
pub fn install(profile: Profile) -> Result<(), Error> {
    match install_everywhere(program(profile))? {
        InstallOutcome::Everywhere => Ok(()),
        InstallOutcome::Diverged(thread) => Err(Error::Diverged(thread)),
    }
}

/// Installs [`Profile::Confined`] on the calling thread and returns its listener. The filter cannot
/// be removed.
///
/// Precondition: no other thread runs, since none of them would be under the filter.
///
/// # Errors
/// EBUSY if a filter around this process has a listener already.
pub(crate) fn install_with_listener() -> io::Result<OwnedFd> {
    notify::install(program(Profile::Confined))
}

/// Returns the filter program of `profile`.
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

/// Returns the table of [`Profile::Default`], for reports and tests.
pub fn table() -> &'static [Entry] {
    generated::TABLE
}
