//! Git work in a remote copy: detected there, and fetched before the copy is removed, so that it
//! can be taken from this machine later.

use super::GIT;
use super::copied::CopyOrigin;
use super::git_inside::SandboxGit;
use super::kept_dir::KeptDir;
use crate::{Error, GitWork};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::branch::{HostRepository, OfferedCommit};
use glovebox_workspace::{Stage, SyncError};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of branches and stashes examined.
const MAX_REVISIONS: usize = 1000;
/// Directory below the sandbox's for fetched commits.
const FETCHED: KeptDir = KeptDir("commits");
const LIST: &str = "list.json";

/// Commit of a copy that no reference of this machine leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopiedCommit {
    /// Suffix of its branch on this machine: empty for the commit that is checked out.
    pub(super) suffix: String,
    /// Object name of the commit.
    pub(super) commit: String,
}

/// Git work of a copy.
#[derive(Debug, Default)]
struct CopiedWork {
    work: GitWork,
    commits: Vec<CopiedCommit>,
    /// Commits of this machine that the copy has too.
    known: Vec<String>,
}

/// Finds the git work of a copy that its project does not have.
///
/// # Errors
/// Git there does not answer; then there may be work that is unknown.
pub(super) fn find_work(sandbox: &Sandbox, origin: &CopyOrigin) -> Result<GitWork, Error> {
    Ok(find(sandbox, origin)?.work)
}

fn find(sandbox: &Sandbox, origin: &CopyOrigin) -> Result<CopiedWork, Error> {
    // Without a repository on this machine, commits have no place to go.
    let Ok(host) = HostRepository::open(&origin.project, Path::new(GIT)) else {
        return Ok(CopiedWork::default());
    };
    let mut began = origin.git.clone();
    began.extend(host.known_tips().unwrap_or_default());
    began.extend(host.stashes());
    began.sort_unstable();
    began.dedup();
    let inside = SandboxGit::new(sandbox);
    let known = match inside.known(&began) {
        // Without git in the sandbox, nothing was committed.
        Err(fault) if fault.code == Code::CommandNotFound => return Ok(CopiedWork::default()),
        known => known?,
    };
    let mut found = CopiedWork {
        known,
        ..CopiedWork::default()
    };
    found.work.branch = inside.branch()?;
    let head = inside.commit("HEAD")?;
    if let Some(head) = &head {
        found.work.commits = inside.count(head, &found.known)?;
        if found.work.commits > 0 {
            found.commits.push(CopiedCommit {
                suffix: String::new(),
                commit: head.clone(),
            });
        }
    }
    let beyond_head: Vec<String> = found.known.iter().cloned().chain(head).collect();
    for reference in inside.references()?.into_iter().take(MAX_REVISIONS) {
        let Some(branch) = reference.name.strip_prefix("refs/heads/") else {
            continue;
        };
        if beyond_head.contains(&reference.object)
            || inside.count(&reference.object, &beyond_head)? == 0
        {
            continue;
        }
        found.work.branches.push(branch.to_owned());
        found.commits.push(CopiedCommit {
            suffix: format!("@{}", super::git_commits::suffix(branch)),
            commit: reference.object,
        });
    }
    let stashes = inside.stashes()?.into_iter().take(MAX_REVISIONS);
    for (number, stash) in stashes.enumerate() {
        if !began.contains(&stash) {
            found.work.stashes += 1;
            found.commits.push(CopiedCommit {
                suffix: format!("@stash-{number}"),
                commit: stash,
            });
        }
    }
    Ok(found)
}

/// Fetches the git work of a copy into the directory of its sandbox, and returns its description.
///
/// # Errors
/// Git there does not answer, or the objects cannot be written.
pub(super) fn fetch(sandbox: &Sandbox, origin: &CopyOrigin) -> Result<GitWork, Error> {
    let found = find(sandbox, origin)?;
    if found.commits.is_empty() {
        return Ok(found.work);
    }
    let dir = sandbox.dir();
    let new = FETCHED.begin(dir).map_err(|error| failed(dir, &error))?;
    let inside = SandboxGit::new(sandbox);
    for one in &found.commits {
        let offer = inside.offer(&one.commit, &found.known)?;
        let place = new.join(&one.commit);
        fs::write(&place, offer.pack).map_err(|error| failed(&place, &error))?;
    }
    let list = new.join(LIST);
    let text = serde_json::to_vec(&found.commits).map_err(io::Error::from);
    text.and_then(|text| fs::write(&list, text))
        .map_err(|error| failed(&list, &error))?;
    FETCHED.finish(dir).map_err(|error| failed(dir, &error))?;
    Ok(found.work)
}

/// Commits that were fetched into a sandbox's directory before its copy was removed.
#[derive(Debug)]
pub(super) struct FetchedCommits {
    dir: PathBuf,
    pub(super) list: Vec<CopiedCommit>,
}

impl FetchedCommits {
    /// Finds fetched commits; `None` if there are none.
    pub(super) fn find(sandbox_dir: &Path) -> Option<Self> {
        let dir = FETCHED.find(sandbox_dir)?;
        let list = serde_json::from_slice(&fs::read(dir.join(LIST)).ok()?).ok()?;
        Some(Self { dir, list })
    }

    /// Reads one commit with its objects.
    pub(super) fn offer(&self, one: &CopiedCommit) -> Result<OfferedCommit, Error> {
        let place = self.dir.join(&one.commit);
        let pack = fs::read(&place).map_err(|error| {
            let fault = Fault::failed(
                Code::Io,
                format!("cannot read {}: {error}", place.display()),
            );
            Error::from(SyncError::pull(Stage::Transfer, fault))
        })?;
        Ok(OfferedCommit {
            commit: one.commit.clone(),
            pack,
        })
    }
}

fn failed(place: &Path, error: &io::Error) -> Fault {
    Fault::failed(
        Code::Io,
        format!("cannot keep commits in {}: {error}", place.display()),
    )
}
