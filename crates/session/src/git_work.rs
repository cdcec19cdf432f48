//! Git work that exists only in a sandbox, for the end of an operation and for the user.

use serde::Serialize;
use std::path::PathBuf;

/// Git work that exists only in the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GitWork {
    /// The branch that is checked out inside; `None` for a detached `HEAD`.
    pub branch: Option<String>,
    /// Number of commits that `HEAD` leads to.
    pub commits: u64,
    /// Other branches with commits of their own.
    pub branches: Vec<String>,
    /// New or moved tags.
    pub tags: Vec<String>,
    /// Number of stashes.
    pub stashes: usize,
    /// Directories of submodules and nested repositories with work of their own.
    pub repositories: Vec<PathBuf>,
    /// True if there may be commits, branches or stashes that were not counted, since the sandbox
    /// does not run.
    pub is_uncounted: bool,
}

impl GitWork {
    /// Returns true if no git work exists only in the sandbox.
    pub fn is_empty(&self) -> bool {
        self.commits == 0 && !self.is_uncounted && !self.has_more()
    }

    /// Returns true if there is work that `pull --commits` does not take.
    pub fn has_more(&self) -> bool {
        self.stashes > 0
            || !self.branches.is_empty()
            || !self.tags.is_empty()
            || !self.repositories.is_empty()
    }
}
