//! Takes commits that were made in a sandbox, as a branch of the host's repository.
//!
//! Input: a pack of objects that the sandbox offers, and the commit to which they lead; both are
//! untrusted. Output: a branch of the host. The objects are checked in a directory apart from the
//! repository's (`git index-pack --strict`, and a walk over all objects that the commit needs), and
//! moved to the repository only if all of them are valid. Hooks, configuration and other references
//! of the sandbox are never read. An existing branch is only moved forward, and never if it is
//! checked out.

use super::git::{Git, OwnGitDir};
use super::held::{CommitOrigin, find_unwritten};
use super::repository::Repository;
use super::{check_branch_name, complaint, failed, missing, name_and_address, require_new};
use crate::git::pointer;
use glovebox_proto::{Code, Fault, Setting};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Maximum number of references whose commits are reported as known.
const MAX_TIPS: usize = 1000;
/// Log message for a branch that is created or moved.
const LOG_MESSAGE: &str = "glovebox: commits from a sandbox";

/// Commit and objects that a sandbox offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedCommit {
    /// Commit that is checked out in the sandbox.
    pub commit: String,
    /// Pack of the objects that it needs and the host does not have.
    pub pack: Vec<u8>,
}

/// A branch with the commits of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenCommits {
    /// Name of the branch, without `refs/heads/`.
    pub branch: String,
    /// Commit to which the branch points now.
    pub commit: String,
    /// Number of commits that no branch had before. With zero, no branch is created.
    pub commits: u64,
    /// True if the branch was created.
    pub is_new: bool,
    /// True if the branch is a descendant of the commit that is checked out on the host.
    pub is_ahead: bool,
    /// Paths in the commits that the sandbox never wrote: they are as the user has committed or
    /// edited them since.
    pub unwritten: Vec<Vec<u8>>,
}

/// The repository of a project on the host. It is examined once for all operations of one command.
#[derive(Debug)]
pub struct HostRepository<'a> {
    pub(super) project: &'a Path,
    git: Git<'a>,
    pub(super) repository: Repository,
}

/// Returns true if a text is the full name of an object.
pub fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl<'a> HostRepository<'a> {
    /// Finds the repository that contains the project, and checks that no part of it leads git
    /// elsewhere.
    ///
    /// # Errors
    /// [`Code::NotFound`] without a repository, [`Code::PermissionDenied`] for one of another user
    /// or with links in place of its parts.
    pub fn open(project: &'a Path, git: &'a Path) -> Result<Self, Fault> {
        let git = Git { program: git };
        let repository = Repository::find(project, &git)?;
        Ok(Self {
            project,
            git,
            repository,
        })
    }

    /// Refuses an invalid name for a branch, and an existing branch.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::AlreadyExists`], and any failure of git.
    pub fn require_new(&self, branch: &str) -> Result<(), Fault> {
        require_new(&self.make_git_dir()?, branch)
    }

    /// Returns the directory with `HEAD` and the index.
    pub fn git_dir(&self) -> &Path {
        &self.repository.git_dir
    }

    /// Returns the directory with references and objects.
    pub fn common_dir(&self) -> &Path {
        &self.repository.common_dir
    }

    pub(super) fn make_git_dir(&self) -> Result<OwnGitDir<'_>, Fault> {
        let repository = &self.repository;
        OwnGitDir::make(repository, self.project, self.git, &repository.git_dir)
    }

    /// Returns the commits to which the host's references point; these need not be offered.
    ///
    /// # Errors
    /// Any failure of git.
    pub fn known_tips(&self) -> Result<Vec<String>, Fault> {
        let own = self.make_git_dir()?;
        let mut text = own
            .run(&["rev-parse", "--verify", "--quiet", "HEAD"], b"")?
            .stdout;
        text.extend(
            own.run(&["for-each-ref", "--format=%(objectname)"], b"")?
                .stdout,
        );
        let mut tips: Vec<String> = String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| is_object_name(line))
            .map(str::to_owned)
            .collect();
        tips.sort_unstable();
        tips.dedup();
        tips.truncate(MAX_TIPS);
        Ok(tips)
    }

    /// Returns the objects that the host does not have.
    ///
    /// # Errors
    /// Any failure of git.
    pub fn find_missing(&self, objects: &[String]) -> Result<Vec<String>, Fault> {
        let own = self.make_git_dir()?;
        let input = objects.join("\n");
        let output = own.run(&["cat-file", "--batch-check"], input.as_bytes())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let missing = text
            .lines()
            .filter_map(|line| line.strip_suffix(" missing"));
        Ok(missing.map(str::to_owned).collect())
    }

    /// Returns the commits of the repository's stashes, as the log of their reference lists them.
    /// Empty if the log cannot be read.
    pub fn stashes(&self) -> Vec<String> {
        let log = self.repository.common_dir.join("logs/refs/stash");
        let text = fs::read_to_string(log).unwrap_or_default();
        let names = text.lines().filter_map(|line| line.split(' ').nth(1));
        let names = names.filter(|name| is_object_name(name));
        names.take(MAX_TIPS).map(str::to_owned).collect()
    }

    /// Creates or moves forward a branch with the offered commits: the first of `branches` that has
    /// no other commits. With `origin`, commits that would revert paths which the sandbox never
    /// wrote are refused.
    ///
    /// # Errors
    /// [`Code::Protocol`] if the objects are invalid or incomplete; [`Code::Conflict`] if the
    /// branch has commits that the sandbox's does not have, if it is checked out, or if the commits
    /// would revert other work; [`Code::InvalidArgument`] for a name that git does not accept; and
    /// any failure of git.
    pub fn take_commits(
        &self,
        offer: &OfferedCommit,
        branches: &[String],
        origin: Option<&CommitOrigin>,
    ) -> Result<TakenCommits, Fault> {
        // TRUST: the sandbox chose the commit. Only the name of an object is passed to a command
        // line.
        if !is_object_name(&offer.commit) {
            return Err(unsound("the commit has no valid name"));
        }
        let repository = &self.repository;
        let own = self.make_git_dir()?;
        for branch in branches {
            check_branch_name(&own, branch)?;
        }
        let incoming = ObjectQuarantine::make(&own, repository)?;
        incoming.check(offer, repository)?;

        let commits = incoming.count(&offer.commit)?;
        let mut unwritten = Vec::new();
        if let Some(origin) = origin
            && commits > 0
        {
            let found = find_unwritten(&incoming, repository, self.project, origin, &offer.commit)?;
            if !found.held.is_empty() {
                return Err(found.fault(origin));
            }
            unwritten.extend(found.told);
        }
        let (branch, reference, old) = choose_branch(&own, &incoming, branches, &offer.commit)?;
        let is_ahead = match incoming.object("HEAD^{commit}")? {
            Some(head) => incoming.is_ancestor(&head, &offer.commit)?,
            None => false,
        };
        let taken = TakenCommits {
            branch: branch.to_owned(),
            commit: offer.commit.clone(),
            commits,
            is_new: false,
            is_ahead,
            unwritten,
        };
        match &old {
            Some(old) if *old == offer.commit => return Ok(taken),
            None if commits == 0 => return Ok(taken),
            Some(_) | None => {}
        }
        // If a checked-out branch moved, its working tree would appear to revert the new commits.
        if let Some(place) = checked_out_at(repository, &reference) {
            return Err(Fault::refused(
                Code::Conflict,
                format!(
                    "the branch `{branch}` is checked out in {}",
                    place.display()
                ),
            )
            .remedy([
                "choose another name with ".into(),
                Setting::Commits.of("NAME"),
                ", and `git merge NAME` then".into(),
            ]));
        }
        // The objects come before the reference, or a crash could leave a branch that points to a
        // missing commit.
        incoming.keep(repository)?;
        let zero = "0".repeat(offer.commit.len());
        // `update-ref` fails if the branch no longer has this value, so a commit that the user
        // makes meanwhile is not lost.
        let before = old.as_deref().unwrap_or(&zero);
        let mut update = own.command(&[
            "update-ref",
            "--no-deref",
            "--create-reflog",
            "-m",
            LOG_MESSAGE,
            &reference,
            &offer.commit,
            before,
        ]);
        sign_log(&mut update, &own);
        let output = own.run_command(&mut update, b"")?;
        if !output.status.success() {
            let what = format!("git did not move the branch `{branch}`");
            return Err(failed(&what, &output.stderr));
        }
        Ok(TakenCommits {
            is_new: old.is_none(),
            ..taken
        })
    }
}

/// Returns the first of the branches that does not exist or can be moved forward to `commit`: its
/// name, its full name, and the commit to which it points, if it exists.
fn choose_branch<'b>(
    own: &OwnGitDir<'_>,
    incoming: &ObjectQuarantine<'_>,
    branches: &'b [String],
    commit: &str,
) -> Result<(&'b str, String, Option<String>), Fault> {
    let mut refusal = unsound("no branch is named for them");
    for branch in branches {
        let reference = format!("refs/heads/{branch}");
        if own.is_symbolic(&reference)? {
            refusal = Fault::refused(
                Code::Conflict,
                format!("the branch `{branch}` is a symbolic reference to another one"),
            )
            .remedy([
                "choose another name with ".into(),
                Setting::Commits.of("NAME"),
            ]);
            continue;
        }
        match incoming.object(&reference)? {
            Some(old) if old != commit && !incoming.is_ancestor(&old, commit)? => {
                refusal = Fault::refused(
                    Code::Conflict,
                    format!("the branch `{branch}` has commits that the sandbox's does not have"),
                )
                .remedy([
                    "choose another name with ".into(),
                    Setting::Commits.of("NAME"),
                    format!(", or remove it with `git branch -D {branch}`").into(),
                ]);
            }
            old => return Ok((branch, reference, old)),
        }
    }
    Err(refusal)
}

/// Sets the identity for the log of a branch: the user, if git knows them.
fn sign_log(update: &mut Command, own: &OwnGitDir<'_>) {
    let identity = own.identity("GIT_COMMITTER_IDENT").unwrap_or_default();
    let (name, address) =
        name_and_address(&identity).unwrap_or((b"glovebox", b"glovebox@localhost"));
    update
        .env("GIT_COMMITTER_NAME", OsStr::from_bytes(name))
        .env("GIT_COMMITTER_EMAIL", OsStr::from_bytes(address));
}

/// A directory of objects apart from the repository's, in our own git directory.
pub(super) struct ObjectQuarantine<'a> {
    own: &'a OwnGitDir<'a>,
    objects: PathBuf,
    known: PathBuf,
}

impl<'a> ObjectQuarantine<'a> {
    fn make(own: &'a OwnGitDir<'a>, repository: &Repository) -> Result<Self, Fault> {
        let objects = own.dir().join("incoming");
        let made = fs::create_dir_all(objects.join("pack"));
        made.map_err(|error| super::repository::cannot_make(&objects, &error))?;
        Ok(Self {
            own,
            objects,
            known: repository.common_dir.join("objects"),
        })
    }

    fn run(&self, args: &[&str], input: &[u8]) -> Result<Output, Fault> {
        let mut command = self.command(args, &[&self.known]);
        self.own.run_command(&mut command, input)
    }

    /// Runs git with the objects of one more directory. These do not count as the host's.
    pub(super) fn run_with(
        &self,
        args: &[&str],
        input: &[u8],
        more: &Path,
    ) -> Result<Output, Fault> {
        let mut command = self.command(args, &[&self.known, more]);
        self.own.run_command(&mut command, input)
    }

    fn command(&self, args: &[&str], known: &[&Path]) -> Command {
        let quoted: Vec<_> = known.iter().map(|path| quoted(path)).collect();
        let mut command = self.own.command(args);
        command.env("GIT_OBJECT_DIRECTORY", &self.objects).env(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            quoted.join(OsStr::new(":")),
        );
        command
    }

    /// Stores the objects, checks them, and checks that the commit and everything it needs exist.
    fn check(&self, offer: &OfferedCommit, repository: &Repository) -> Result<(), Fault> {
        // In a partial clone, trees may refer to missing files. The walk below checks completeness.
        let check = if repository.format.is_partial {
            "--fsck-objects"
        } else {
            "--strict"
        };
        let args = ["index-pack", "--stdin", check, "--fix-thin"];
        let output = self.run(&args, &offer.pack)?;
        if !output.status.success() {
            return Err(unsound(&complaint(&output.stderr)));
        }
        let commit = format!("{}^{{commit}}", offer.commit);
        if self.object(&commit)?.as_deref() != Some(&offer.commit) {
            return Err(unsound("what is checked out in it is no commit"));
        }
        let args = [
            "rev-list",
            "--objects",
            "--quiet",
            &offer.commit,
            "--not",
            "--all",
        ];
        let output = self.run(&args, b"")?;
        if output.status.success() {
            Ok(())
        } else if repository.format.is_partial {
            Err(missing(&output.stderr))
        } else {
            Err(unsound(&complaint(&output.stderr)))
        }
    }

    /// Returns the object to which a name resolves; `None` if there is none.
    pub(super) fn object(&self, name: &str) -> Result<Option<String>, Fault> {
        let output = self.run(&["rev-parse", "--verify", "--quiet", name], b"")?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok((output.status.success() && is_object_name(&text)).then_some(text))
    }

    /// Returns the number of commits that no reference of the host has.
    fn count(&self, commit: &str) -> Result<u64, Fault> {
        let output = self.run(&["rev-list", "--count", commit, "--not", "--all"], b"")?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .map_err(|_| failed("git did not count the commits", &output.stderr))
    }

    fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, Fault> {
        let output = self.run(&["merge-base", "--is-ancestor", old, new], b"")?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed("git did not compare the branches", &output.stderr)),
        }
    }

    /// Moves the objects to the repository. The index of a pack comes last, because git opens the
    /// pack that an index names.
    fn keep(&self, repository: &Repository) -> Result<(), Fault> {
        let (from, to) = (
            self.objects.join("pack"),
            repository.common_dir.join("objects/pack"),
        );
        let moved = || -> std::io::Result<()> {
            fs::create_dir_all(&to)?;
            let mut names: Vec<_> = fs::read_dir(&from)?
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<Result<_, _>>()?;
            names.sort_by_key(|name| name.as_bytes().ends_with(b".idx"));
            for name in names {
                fs::rename(from.join(&name), to.join(&name))?;
            }
            Ok(())
        };
        moved().map_err(|error| super::repository::cannot_make(&to, &error))
    }
}

/// Quotes a path for the variable of alternates, which is a list separated by colons.
fn quoted(path: &Path) -> std::ffi::OsString {
    let mut text = b"\"".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            b'\n' => text.extend(b"\\n"),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
    OsStr::from_bytes(&text).to_owned()
}

/// Returns the git directory of a working tree in which a branch is checked out; `None` if there is
/// none.
fn checked_out_at(repository: &Repository, reference: &str) -> Option<PathBuf> {
    let wanted = format!("ref: {reference}");
    let is_there =
        |git_dir: &Path| pointer(&git_dir.join("HEAD")).is_ok_and(|head| head == wanted.as_bytes());
    let common = &repository.common_dir;
    let linked = fs::read_dir(common.join("worktrees")).into_iter().flatten();
    let linked = linked.filter_map(|entry| Some(entry.ok()?.path()));
    [repository.git_dir.clone(), common.clone()]
        .into_iter()
        .chain(linked)
        .find(|git_dir| is_there(git_dir))
}

fn unsound(why: &str) -> Fault {
    Fault::refused(
        Code::Protocol,
        format!("the sandbox's commits are not sound, and nothing was taken: {why}"),
    )
    .remedy("look at the repository inside with `git fsck`")
}
