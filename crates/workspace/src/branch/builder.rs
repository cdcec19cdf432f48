//! Git that makes a commit, as this module needs it.
//!
//! Filters that a repository configures decide what `git add` stores, and they are programs. So the
//! git that runs them is elsewhere: in a sandbox with a copy of the repository and no working tree.
//! What it returns is checked as any commit that comes out of a sandbox.

use super::OfferedCommit;
use glovebox_proto::Fault;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

/// Git in a place where it may run the filters of a repository.
pub trait CommitBuilder {
    /// Checks out files of the commit `head`, paths from the top of the working tree with their
    /// objects. Returns local files with the contents of those that the working tree has in another
    /// form than git stores them.
    ///
    /// # Errors
    /// Whatever keeps git from working there.
    fn check_out(
        &mut self,
        head: &str,
        files: &[(Vec<u8>, String)],
    ) -> Result<HashMap<Vec<u8>, PathBuf>, Fault>;

    /// Writes a file of the new working tree, with the bytes that a working tree has.
    ///
    /// # Errors
    /// Whatever keeps it from being read or written.
    fn write(
        &mut self,
        path: &[u8],
        is_executable: bool,
        content: &mut dyn Read,
    ) -> Result<(), Fault>;

    /// Stores what was written, as `git add` does, and makes the commit; `None` if that has the same
    /// files as its parent.
    ///
    /// # Errors
    /// Whatever keeps git from working there, a required filter that fails included.
    fn commit(&mut self, draft: &CommitDraft<'_>) -> Result<Option<OfferedCommit>, Fault>;
}

/// A commit that is to be made, less the contents of its files.
#[derive(Debug, Clone)]
pub struct CommitDraft<'a> {
    /// The commit it follows.
    pub parent: &'a str,
    /// Paths that are not in it.
    pub removed: Vec<Vec<u8>>,
    /// Paths that have another mode and the content that they had: mode, object and path.
    pub kept: Vec<(&'static str, String, Vec<u8>)>,
    /// Symbolic links and their targets.
    pub links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths of the files that were written.
    pub written: Vec<Vec<u8>>,
    /// Author as a commit holds it: name, address and time.
    pub author: &'a [u8],
    /// Committer, in the same form.
    pub committer: &'a [u8],
    /// Message, with its line end.
    pub message: &'a str,
    /// Commits that need not be offered.
    pub known: Vec<String>,
}
