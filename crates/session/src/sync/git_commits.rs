//! Commits made inside a sandbox, as branches of the user's repository.
//!
//! The sandbox's git is asked for the objects that the host does not have, and
//! [`HostRepository::take_commits`] checks them. Nothing else of its repository is read.

use super::GIT;
use super::copied_git::{CopiedCommit, FetchedCommits};
use super::git_inside::SandboxGit;
use super::git_state::OwnRepository;
use super::large_files::take_large_files;
use crate::Error;
use glovebox_sandbox::Sandbox;
use glovebox_workspace::branch::{HostRepository, TakenCommits, changed_repositories};
use glovebox_workspace::{SeedReferences, Stage, SyncError};
use std::path::{Path, PathBuf};

/// Maximum number of names tried for a branch that the user has not named.
const MAX_NAMES: usize = 99;
/// Maximum number of branches, tags and stashes taken by one command.
const MAX_TAKEN: usize = 1000;

/// Name of a branch to create, and its commits or the error.
pub type BranchResult = (String, Result<TakenCommits, Error>);

/// Takes the commit that is checked out in the sandbox to `branch` of the repository at `project`.
///
/// # Errors
/// Git fails on either side; the sandbox has no commit or offers an invalid one; the branch cannot
/// be moved there; or the commits would revert changes that the sandbox never made.
pub fn take(sandbox: &Sandbox, project: &Path, branch: &str) -> Result<TakenCommits, Error> {
    CommitTaker::new(sandbox, project)?.take("HEAD", &[branch.to_owned()], true)
}

/// Takes the commit that is checked out to the branch of the sandbox's name or, if that has other
/// commits, to the next free one such as `sandbox/NAME@2`.
///
/// # Errors
/// As [`take`].
pub fn take_to_free_branch(sandbox: &Sandbox, project: &Path) -> Result<TakenCommits, Error> {
    let first = default_branch(sandbox);
    let further = (2..=MAX_NAMES).map(|number| format!("{first}@{number}"));
    let branches: Vec<String> = [first.clone()].into_iter().chain(further).collect();
    CommitTaker::new(sandbox, project)?.take("HEAD", &branches, true)
}

/// Returns the default branch for the commits of a sandbox.
pub fn default_branch(sandbox: &Sandbox) -> String {
    format!("sandbox/{}", sandbox.info().name)
}

/// Takes everything that was committed or stashed. The commit that is checked out goes to the
/// branch of the sandbox's name or, if that is refused, to `sandbox/NAME@held`; other branches and
/// tags to `sandbox/NAME@BRANCH`; stashes to `sandbox/NAME@stash-N`. Commits of submodules and
/// nested repositories go to `sandbox/NAME` of their own repositories on the host. A failed branch
/// does not stop the others; its result holds the error.
///
/// # Errors
/// The host's repository cannot be used, or git inside does not answer.
pub fn take_all(sandbox: &Sandbox, project: &Path) -> Result<Vec<BranchResult>, Error> {
    let taker = CommitTaker::new(sandbox, project)?;
    let name = default_branch(sandbox);
    let mut results = Vec::new();
    let mut take = |revision: &str, branch: String, is_compared: bool| {
        let taken = taker.take(revision, std::slice::from_ref(&branch), is_compared);
        let is_held = taken.is_err();
        results.push((branch, taken));
        is_held
    };
    if take("HEAD", name.clone(), true) {
        take("HEAD", format!("{name}@held"), false);
    }
    let own = OwnRepository::of(sandbox).map_err(transfer)?;
    let began = own.map(|own| SeedReferences::read(&own.seed));
    let began = began.unwrap_or_default();
    let own_branch = taker.inside.branch().map_err(transfer)?;
    let references = taker.inside.references().map_err(transfer)?;
    for reference in references.iter().take(MAX_TAKEN) {
        let short = reference
            .name
            .strip_prefix("refs/heads/")
            .or_else(|| reference.name.strip_prefix("refs/tags/"));
        let is_old = began.objects.get(&reference.name) == Some(&reference.object);
        let Some(short) = short.filter(|short| !is_old && own_branch.as_deref() != Some(*short))
        else {
            continue;
        };
        take(
            &reference.object,
            format!("{name}@{}", suffix(short)),
            false,
        );
    }
    let stashes = taker.inside.stashes().map_err(transfer)?;
    for (number, stash) in stashes.iter().enumerate().take(MAX_TAKEN) {
        if !began.has_stash(stash) {
            take(stash, format!("{name}@stash-{number}"), false);
        }
    }
    for tree in find_changed_trees(sandbox) {
        let taken = CommitTaker::below(sandbox, &project.join(&tree), &tree)
            .and_then(|taker| taker.take("HEAD", std::slice::from_ref(&name), false));
        let tree = tree.display();
        let taken = taken.map(|taken| TakenCommits {
            branch: format!("{} in {tree}", taken.branch),
            ..taken
        });
        results.push((format!("{name} in {tree}"), taken));
    }
    Ok(results)
}

/// Finds submodules and nested repositories whose references the sandbox has written.
fn find_changed_trees(sandbox: &Sandbox) -> Vec<PathBuf> {
    let Ok(Some(own)) = OwnRepository::of(sandbox) else {
        return Vec::new();
    };
    let mut trees = changed_repositories(&own.seed, &own.layers.layers);
    trees.retain(|tree| !tree.as_os_str().is_empty());
    trees.truncate(MAX_TAKEN);
    trees
}

/// Takes commits that were fetched before the copy was removed: those that were checked out to
/// `branch`, and with `is_all` also other branches and stashes, as [`take_all`]. `None` if none
/// were fetched.
///
/// # Errors
/// As [`take_all`].
pub fn take_fetched(
    dir: &Path,
    project: &Path,
    branch: &str,
    is_all: bool,
) -> Result<Option<Vec<BranchResult>>, Error> {
    let Some(fetched) = FetchedCommits::find(dir) else {
        return Ok(None);
    };
    let host = HostRepository::open(project, Path::new(GIT)).map_err(apply)?;
    let wanted = fetched.list.iter();
    let wanted = wanted.filter(|one| is_all || one.suffix.is_empty());
    let take = |one: &CopiedCommit| {
        let branch = format!("{branch}{}", one.suffix);
        let offer = fetched.offer(one);
        let taken = offer.and_then(|offer| {
            let branches = std::slice::from_ref(&branch);
            host.take_commits(&offer, branches, None).map_err(apply)
        });
        (branch, taken)
    };
    Ok(Some(wanted.map(take).collect()))
}

/// Returns the suffix for a branch of the sandbox. Names that have another meaning are prefixed
/// with `branch-`.
pub(super) fn suffix(branch: &str) -> String {
    let is_taken = branch == "held"
        || branch.bytes().all(|byte| byte.is_ascii_digit())
        || ["stash-", "branch-", "{"]
            .iter()
            .any(|begin| branch.starts_with(begin));
    if is_taken {
        format!("branch-{branch}")
    } else {
        branch.to_owned()
    }
}

fn transfer(fault: glovebox_proto::Fault) -> Error {
    SyncError::pull(Stage::Transfer, fault).into()
}

fn apply(fault: glovebox_proto::Fault) -> Error {
    SyncError::pull(Stage::Apply, fault).into()
}

/// Both repositories of one command.
struct CommitTaker<'a> {
    sandbox: &'a Sandbox,
    inside: SandboxGit<'a>,
    host: HostRepository<'a>,
    /// Commits that the sandbox need not send.
    known: Vec<String>,
}

impl<'a> CommitTaker<'a> {
    fn new(sandbox: &'a Sandbox, project: &'a Path) -> Result<Self, Error> {
        Self::between(sandbox, SandboxGit::new(sandbox), project)
    }

    /// Creates one for a submodule or nested repository: `tree` in the workspace, `project` on the
    /// host.
    fn below(sandbox: &'a Sandbox, project: &'a Path, tree: &Path) -> Result<Self, Error> {
        Self::between(sandbox, SandboxGit::at(sandbox, tree), project)
    }

    fn between(
        sandbox: &'a Sandbox,
        inside: SandboxGit<'a>,
        project: &'a Path,
    ) -> Result<Self, Error> {
        let host = HostRepository::open(project, Path::new(GIT)).map_err(apply)?;
        let tips = host.known_tips().map_err(apply)?;
        let known = inside.known(&tips).map_err(transfer)?;
        Ok(Self {
            sandbox,
            inside,
            host,
            known,
        })
    }

    /// Takes one commit to the first suitable branch. With `is_compared`, commits that would revert
    /// changes which the sandbox never made are refused.
    fn take(
        &self,
        revision: &str,
        branches: &[String],
        is_compared: bool,
    ) -> Result<TakenCommits, Error> {
        let offer = self.inside.offer(revision, &self.known).map_err(transfer)?;
        let own = OwnRepository::of(self.sandbox).map_err(transfer)?;
        let origin = own.map(|own| own.origin).filter(|_| is_compared);
        // Pointers are useless without the large files that they refer to.
        take_large_files(self.sandbox, self.inside.root(), &self.host)?;
        let taken = self.host.take_commits(&offer, branches, origin.as_ref());
        taken.map_err(apply)
    }
}

#[cfg(test)]
mod tests {
    use super::suffix;

    #[test]
    fn branches_inside_do_not_take_the_names_of_other_things() {
        for (branch, name) in [
            ("topic/a", "topic/a"),
            ("held", "branch-held"),
            ("2", "branch-2"),
            ("stash-0", "branch-stash-0"),
            ("branch-2", "branch-branch-2"),
        ] {
            assert_eq!(suffix(branch), name);
        }
    }
}
