//! `glovebox pull --commits`: what was committed inside, as a branch of the user's repository.
//!
//! The sandbox's git is asked for the objects that the host does not have. What it answers is bounded here and
//! checked by [`branch::take_commits`]; nothing else of its repository is looked at.

use super::{Cx, name};
use crate::args::PullArgs;
use crate::exit::CommandError;
use crate::render;
use crate::sync::{self, copied};
use glovebox_proto::{Code, Exec, Exit, Fault};
use glovebox_sandbox::{CommandOutput, Sandbox};
use glovebox_workspace::branch::{self, OfferedCommit};
use glovebox_workspace::{Stage, SyncError};
use serde_bytes::ByteBuf;
use serde_json::{Map, Value};
use std::path::Path;

/// Most bytes of objects that are taken, compressed.
const MAX_PACK_BYTES: usize = 256 << 20;
/// Most bytes of any other answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// How long git inside may take for one answer.
const ANSWER_MS: u64 = 300_000;

/// Takes the commits to a branch; an empty name stands for the one that the sandbox's name gives.
pub(super) fn pull(
    cx: &Cx,
    args: &PullArgs,
    branch: &str,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let name = name(&args.name)?;
    let registry = cx.user_registry()?;
    let Some(project) = sync::project_of_named(&registry, &name)? else {
        return Err(CommandError::usage(
            "the sandbox did not come from a project",
            "pull files with --from and --to",
        ));
    };
    let branch = match branch {
        "" => format!("sandbox/{name}"),
        branch => branch.to_owned(),
    };
    let sandbox = registry.connect(&name).map_err(|fault| {
        if fault.code == Code::SandboxNotRunning {
            let remedy =
                format!("git runs inside for it: start it again with `glovebox start {name}`");
            return fault.remedy(remedy);
        }
        fault
    })?;
    let failed = |fault| CommandError::from(SyncError::pull(Stage::Apply, fault));
    let git = Path::new("git");
    let tips = branch::known_tips(&project, git).map_err(failed)?;
    let inside = SandboxGit {
        sandbox: &sandbox,
        root: copied::root(&sandbox),
    };
    let offer = inside
        .offer(&tips)
        .map_err(|fault| SyncError::pull(Stage::Transfer, fault))?;
    let taken = branch::take_commits(&offer, &project, git, &branch).map_err(failed)?;
    data.insert("branch".to_owned(), branch.clone().into());
    data.insert("commit".to_owned(), taken.commit.clone().into());
    data.insert("commits".to_owned(), taken.commits.into());
    data.insert("is_new".to_owned(), taken.is_new.into());
    let message = if taken.commits == 0 {
        "the sandbox has no commits that you do not have".to_owned()
    } else {
        format!(
            "{} on the {}branch `{branch}`",
            render::plural(taken.commits as usize, "commit", "commits"),
            if taken.is_new { "new " } else { "" }
        )
    };
    if !args.json {
        cx.talk.note(&message);
        if taken.commits > 0 {
            cx.talk.note(format_args!(
                "`git log -p HEAD..{branch}` shows them, `git merge {branch}` takes them; what is not \
                 committed stays in the sandbox"
            ));
        }
    }
    Ok(message)
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
            return Err(fault.remedy("commit something inside first, or pull without --commits"));
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
            let said = render::escape_text(said.lines().last().unwrap_or("it says nothing"));
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
