//! Interface to the git that makes a commit.
//!
//! A repository can configure filters, which are programs that decide what `git add` stores. The
//! git that runs them is therefore in a sandbox, with a copy of the repository and no working tree.
//! Its commit is checked like any other commit from a sandbox.

use super::OfferedCommit;
use glovebox_proto::Fault;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

/// Git in a sandbox, where it may run the filters of a repository.
pub trait CommitBuilder {
    /// Checks out files of the commit `head`, given as paths from the top of the working tree with
    /// their objects. Returns local files with the contents of those whose form in the working tree
    /// differs from the stored one.
    ///
    /// # Errors
    /// Any failure of git there.
    fn check_out(
        &mut self,
        head: &str,
        files: &[(Vec<u8>, String)],
    ) -> Result<HashMap<Vec<u8>, PathBuf>, Fault>;

    /// Writes a file of the new working tree. `content` is in the form of the working tree.
    ///
    /// # Errors
    /// Any failure to read or write it.
    fn write(
        &mut self,
        path: &[u8],
        is_executable: bool,
        content: &mut dyn Read,
    ) -> Result<(), Fault>;

    /// Stores the written files as `git add` does, and makes the commit; `None` if it would have
    /// the same files as its parent.
    ///
    /// # Errors
    /// Any failure of git there, including that of a required filter.
    fn commit(&mut self, draft: &CommitDraft<'_>) -> Result<Option<OfferedCommit>, Fault>;
}

/// A commit to be made, without the contents of its files.
#[derive(Debug, Clone)]
pub struct CommitDraft<'a> {
    /// Parent commit.
    pub parent: &'a str,
    /// Paths to be removed.
    pub removed: Vec<Vec<u8>>,
    /// Paths whose mode changes and whose content stays: mode, object and path.
    pub kept: Vec<(&'static str, String, Vec<u8>)>,
    /// Symbolic links with their targets.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths of the written files.
    pub written: Vec<Vec<u8>>,
    /// Author in the form of a commit: name, address and time.
    pub author: &'a [u8],
    /// Committer, in the same form.
    pub committer: &'a [u8],
    /// Message, including its line end.
    pub message: &'a str,
    /// Commits that the host has, so that their objects are not offered.
    pub known: Vec<String>,
}
