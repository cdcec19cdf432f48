//! What was committed inside a sandbox, as a branch of the user's repository.
//!
//! The sandbox's git is asked for the objects that the host does not have. What it answers is bounded here and
//! checked by [`HostRepository::take_commits`]; nothing else of its repository is looked at.

use super::{GIT, copied};
use crate::Error;
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Exec, Exit, Fault, Setting};
use glovebox_sandbox::{CommandOutput, Sandbox};
use glovebox_workspace::branch::{self, CommitOrigin, HostRepository, OfferedCommit, TakenCommits};
use glovebox_workspace::{Stage, SyncError};
use serde_bytes::ByteBuf;
use std::path::Path;

/// Most bytes of objects that are taken, compressed.
const MAX_PACK_BYTES: usize = 256 << 20;
/// Most bytes of any other answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How long git inside may take for one answer.
const ANSWER_MS: u64 = 300_000;

/// Takes what is checked out in the sandbox to `branch` of the repository at `project`.
///
/// # Errors
/// Either git fails, the sandbox has no commit or offers what is none, or the branch cannot be moved there.
pub fn take(sandbox: &Sandbox, project: &Path, branch: &str) -> Result<TakenCommits, Error> {
    let failed = |fault| SyncError::pull(Stage::Apply, fault);
    let repository = HostRepository::open(project, Path::new(GIT)).map_err(failed)?;
    let tips = repository.known_tips().map_err(failed)?;
    let inside = SandboxGit {
        sandbox,
        root: copied::root(sandbox),
    };
    let offer = inside
        .offer(&tips)
        .map_err(|fault| SyncError::pull(Stage::Transfer, fault))?;
    let origin = origin_of(sandbox)?;
    let taken = repository.take_commits(&offer, branch, origin.as_ref());
    Ok(taken.map_err(failed)?)
}

/// The repository that the sandbox began with, and what it wrote since; `None` for one without a seed.
fn origin_of(sandbox: &Sandbox) -> Result<Option<CommitOrigin>, Error> {
    if copied::CopyOrigin::read(sandbox.dir()).is_some() {
        return Ok(None);
    }
    let layers = sandbox.workspace_layers()?;
    let Some(seed) = layers.seed else {
        return Ok(None);
    };
    Ok(CommitOrigin::of_seed(&seed, layers.layers, layers.hidden))
}

/// The git of a sandbox.
struct SandboxGit<'a> {
    sandbox: &'a Sandbox,
    root: Vec<u8>,
}

impl SandboxGit<'_> {
    /// What is checked out, and the objects that lead there from what the host has.
    // TRUST: all of it comes from the sandbox: bounded here, checked where it is taken.
    fn offer(&self, tips: &[String]) -> Result<OfferedCommit, Fault> {
        let head = self.git(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], "")?;
        let commit = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        if !branch::is_object_name(&commit) {
            let fault = Fault::failed(
                Code::NotFound,
                "there is no commit in the sandbox's workspace",
            );
            return Err(fault.remedy([
                "commit something inside first, or pull without ".into(),
                Setting::Commits.into(),
            ]));
        }
        // What was fetched on the host since the start is not known inside.
        let known = self.git(
            &["cat-file", "--batch-check=%(objectname)"],
            &tips.join("\n"),
        )?;
        let mut wanted = format!("{commit}\n");
        for tip in String::from_utf8_lossy(&known.stdout).lines() {
            if branch::is_object_name(tip) {
                wanted.push('^');
                wanted.push_str(tip);
                wanted.push('\n');
            }
        }
        let pack = [
            "pack-objects",
            "--revs",
            "--stdout",
            "--quiet",
            "--delta-base-offset",
        ];
        let pack = self.run(&pack, &wanted, MAX_PACK_BYTES)?;
        if pack.truncated {
            return Err(Fault::failed(
                Code::TooLarge,
                format!("the commits have more than {MAX_PACK_BYTES} bytes"),
            )
            .remedy("push them from inside, or pull the files with `glovebox pull`"));
        }
        if pack.report.exit != Exit::Code(0) {
            let said = String::from_utf8_lossy(&pack.stderr);
            let said = escape_text(said.lines().last().unwrap_or("it says nothing"));
            return Err(Fault::failed(
                Code::Io,
                format!("git inside did not hand the commits over: {said}"),
            ));
        }
        Ok(OfferedCommit {
            commit,
            pack: pack.stdout,
        })
    }

    fn git(&self, args: &[&str], input: &str) -> Result<CommandOutput, Fault> {
        self.run(args, input, MAX_ANSWER_BYTES)
    }

    fn run(&self, args: &[&str], input: &str, max_bytes: usize) -> Result<CommandOutput, Fault> {
        let words = ["git"].iter().chain(args);
        let exec = Exec {
            cwd: Some(ByteBuf::from(self.root.clone())),
            timeout_ms: Some(ANSWER_MS),
            ..Exec::new(words.map(|word| word.as_bytes().to_vec()))
        };
        self.sandbox.exec_with(exec, input.as_bytes(), max_bytes)
    }
}
