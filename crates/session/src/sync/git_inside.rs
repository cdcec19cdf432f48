//! Queries git inside a sandbox for references and objects.
//!
//! All answers come from the sandbox: they are bounded here, and checked where they are used.

use super::copied;
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Exec, Exit, Fault, Setting};
use glovebox_sandbox::{CommandOutput, Sandbox};
use glovebox_workspace::branch::{self, OfferedCommit};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Maximum size of a pack, in bytes.
const MAX_PACK_BYTES: usize = 256 << 20;
/// Maximum size of any other answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Maximum time for packing objects, in milliseconds.
const PACK_MS: u64 = 300_000;
/// Maximum time for any other answer, in milliseconds.
const ANSWER_MS: u64 = 60_000;

/// Reference inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InsideReference {
    /// Full name, such as `refs/heads/main`.
    pub(super) name: String,
    /// Name of the object that it points to.
    pub(super) object: String,
}

/// Git of a sandbox.
pub(super) struct SandboxGit<'a> {
    sandbox: &'a Sandbox,
    root: Vec<u8>,
}

impl<'a> SandboxGit<'a> {
    pub(super) fn new(sandbox: &'a Sandbox) -> Self {
        Self {
            sandbox,
            root: copied::root(sandbox),
        }
    }

    /// Creates one for another working tree in the workspace, such as a submodule.
    pub(super) fn at(sandbox: &'a Sandbox, tree: &Path) -> Self {
        let mut root = copied::root(sandbox);
        root.push(b'/');
        root.extend_from_slice(tree.as_os_str().as_bytes());
        Self { sandbox, root }
    }

    /// Returns the directory of the working tree inside.
    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    /// Returns the commit of a revision; `None` if there is none.
    pub(super) fn commit(&self, revision: &str) -> Result<Option<String>, Fault> {
        let revision = format!("{revision}^{{commit}}");
        let output = self.git(&["rev-parse", "--verify", "--quiet", &revision], "")?;
        let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(branch::is_object_name(&commit).then_some(commit))
    }

    /// Returns the branch that is checked out; `None` for a detached `HEAD`.
    pub(super) fn branch(&self) -> Result<Option<String>, Fault> {
        let output = self.git(&["symbolic-ref", "--quiet", "--short", "HEAD"], "")?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok((!name.is_empty()).then_some(name))
    }

    /// Returns the branches and tags.
    pub(super) fn references(&self) -> Result<Vec<InsideReference>, Fault> {
        let args = [
            "for-each-ref",
            "--format=%(objectname) %(refname)",
            "refs/heads",
            "refs/tags",
        ];
        let output = self.git_answer(&args, "")?;
        let lines = output.lines().filter_map(|line| {
            let (object, name) = line.split_once(' ')?;
            branch::is_object_name(object).then(|| InsideReference {
                name: name.to_owned(),
                object: object.to_owned(),
            })
        });
        Ok(lines.collect())
    }

    /// Returns the commits of the stashes, the newest first.
    pub(super) fn stashes(&self) -> Result<Vec<String>, Fault> {
        let output = self.git_answer(&["stash", "list", "--format=%H"], "")?;
        let names = output.lines().filter(|name| branch::is_object_name(name));
        Ok(names.map(str::to_owned).collect())
    }

    /// Counts the commits of `revision` that are not reachable from `known`. The sandbox must have
    /// all of `known`.
    pub(super) fn count(&self, revision: &str, known: &[String]) -> Result<u64, Fault> {
        let revisions = revisions(revision, known);
        let output = self.git_answer(&["rev-list", "--count", "--stdin"], &revisions)?;
        output
            .trim()
            .parse()
            .map_err(|_| no_answer("it did not count the commits"))
    }

    /// Returns those of the commits that the sandbox has: it lacks commits fetched on the host
    /// since its start.
    pub(super) fn known(&self, commits: &[String]) -> Result<Vec<String>, Fault> {
        let output = self.git(
            &["cat-file", "--batch-check=%(objectname)"],
            &commits.join("\n"),
        )?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter(|name| branch::is_object_name(name));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the commit of `revision`, and a pack of the objects that are not reachable from
    /// `known`.
    ///
    /// # Errors
    /// `NotFound` without a commit, `TooLarge` for a pack above the limit.
    pub(super) fn offer(&self, revision: &str, known: &[String]) -> Result<OfferedCommit, Fault> {
        let Some(commit) = self.commit(revision)? else {
            let fault = Fault::failed(
                Code::NotFound,
                "there is no commit in the sandbox's workspace",
            );
            return Err(fault.remedy([
                "commit something inside first, or pull without ".into(),
                Setting::Commits.into(),
            ]));
        };
        let pack = [
            "pack-objects",
            "--revs",
            "--stdout",
            "--quiet",
            "--delta-base-offset",
        ];
        let wanted = revisions(&commit, known);
        let pack = self.run(&pack, &wanted, MAX_PACK_BYTES, PACK_MS)?;
        if pack.truncated {
            return Err(Fault::failed(
                Code::TooLarge,
                format!("the commits have more than {MAX_PACK_BYTES} bytes"),
            )
            .remedy("push them from inside, or pull the files with `glovebox pull`"));
        }
        if pack.report.exit != Exit::Code(0) {
            return Err(no_answer(&complaint(&pack)));
        }
        Ok(OfferedCommit {
            commit,
            pack: pack.stdout,
        })
    }

    /// Runs git and returns its output, regardless of its exit code.
    fn git(&self, args: &[&str], input: &str) -> Result<CommandOutput, Fault> {
        self.run(args, input, MAX_ANSWER_BYTES, ANSWER_MS)
    }

    /// Runs git, which must succeed, and returns its complete output.
    fn git_answer(&self, args: &[&str], input: &str) -> Result<String, Fault> {
        let output = self.git(args, input)?;
        if output.report.exit != Exit::Code(0) {
            return Err(no_answer(&complaint(&output)));
        }
        if output.truncated {
            return Err(no_answer("its answer is too long"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(
        &self,
        args: &[&str],
        input: &str,
        max_bytes: usize,
        timeout_ms: u64,
    ) -> Result<CommandOutput, Fault> {
        let words = ["git"].iter().chain(args);
        let exec = Exec {
            cwd: Some(ByteBuf::from(self.root.clone())),
            timeout_ms: Some(timeout_ms),
            ..Exec::new(words.map(|word| word.as_bytes().to_vec()))
        };
        self.sandbox.exec_with(exec, input.as_bytes(), max_bytes)
    }
}

/// Formats revisions for git's standard input: the wanted one, and the excluded ones.
fn revisions(wanted: &str, known: &[String]) -> String {
    let known = known.iter().map(|commit| format!("^{commit}\n"));
    [format!("{wanted}\n")].into_iter().chain(known).collect()
}

/// Returns the last line of git's standard error.
fn complaint(output: &CommandOutput) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    escape_text(text.lines().last().unwrap_or("it says nothing"))
}

fn no_answer(why: &str) -> Fault {
    Fault::failed(
        Code::Io,
        format!("git inside did not hand the commits over: {why}"),
    )
}
