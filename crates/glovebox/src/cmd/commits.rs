//! `glovebox pull --commits`: the commits of a sandbox, as a branch of the user's repository.

use super::here::HERE;
use super::{Cx, TerminalFrontend, name, run::supervisor};
use crate::args::PullArgs;
use crate::exit::CommandError;
use crate::render::{self, plural};
use crate::sync;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Sandbox, SandboxState};
use glovebox_session::sync::git_commits::{self, BranchResult};
use glovebox_session::work::WorkContext;
use glovebox_session::{Error, WorkSession};
use glovebox_workspace::branch::TakenCommits;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

/// Refuses the name of a sandbox as the branch if the command line names no sandbox: the user meant
/// the sandbox, and the branch would get the commits of another one.
///
/// # Errors
/// A usage error that names the intended command.
pub(crate) fn refuse_name_as_branch(cx: &Cx, args: &PullArgs) -> Result<(), CommandError> {
    let Some(branch) = args.commits.as_deref().filter(|_| args.name == HERE) else {
        return Ok(());
    };
    if let Ok(sandbox) = name(branch)
        && cx.user_registry()?.entry(&sandbox)?.is_some()
    {
        return Err(CommandError::usage(
            format!("`{branch}` is the name of a sandbox, and --commits takes that of a branch"),
            format!("`glovebox pull {branch} --commits` takes the commits of `{branch}`"),
        ));
    }
    Ok(())
}

/// Takes the commits to a branch; an empty name means the default branch of the sandbox. A stopped
/// sandbox is started for it, because git runs inside, and stopped again.
pub(super) fn pull(
    cx: &Cx,
    args: &PullArgs,
    branch: &str,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let registry = Arc::new(cx.user_registry()?);
    let name = name(&args.name)?;
    let Some(project) = sync::project_of_named(&registry, &name)? else {
        return Err(CommandError::usage(
            "the sandbox did not come from a project",
            "pull files with --from and --to",
        ));
    };
    if let Some(entry) = registry.entry(&name)?
        && entry.state != SandboxState::Ready
    {
        let first = match branch {
            "" => format!("sandbox/{name}"),
            branch => branch.to_owned(),
        };
        if let Some(taken) = git_commits::take_fetched(&entry.dir, &project, &first, args.all)? {
            return tell_fetched(cx, args, &project, taken, data);
        }
    }
    let caller = WorkContext {
        host: &cx.host,
        registry: &registry,
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    let is_running = match registry.connect(&name) {
        Ok(_) => true,
        Err(fault) if fault.code == Code::SandboxNotRunning => false,
        Err(fault) => return Err(fault.into()),
    };
    let Some(work) = WorkSession::resume(&caller, &name)? else {
        return Err(Error::no_sandbox(&name).into());
    };
    let sandbox = work.sandbox();
    let taken = if args.all {
        pull_all(cx, args, sandbox, &project, data)
    } else {
        let branch = match branch {
            "" => git_commits::default_branch(sandbox),
            branch => branch.to_owned(),
        };
        pull_one(cx, args, sandbox, &project, &branch, data)
    };
    if !is_running {
        sandbox.stop("it was started to hand its commits over")?;
    }
    taken
}

fn pull_one(
    cx: &Cx,
    args: &PullArgs,
    sandbox: &Sandbox,
    project: &Path,
    branch: &str,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let taken = git_commits::take(sandbox, project, branch)?;
    tell_one(cx, args, project, &taken, data)
}

/// Reports the commits that were taken from the last fetched state of a sandbox that is not
/// running.
fn tell_fetched(
    cx: &Cx,
    args: &PullArgs,
    project: &Path,
    taken: Vec<BranchResult>,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    if args.all {
        return tell_all(cx, args, project, taken, data);
    }
    match taken.into_iter().next() {
        Some((_, taken)) => tell_one(cx, args, project, &taken?, data),
        // Only other branches have commits.
        None => tell_all(cx, args, project, Vec::new(), data),
    }
}

fn tell_one(
    cx: &Cx,
    args: &PullArgs,
    project: &Path,
    taken: &TakenCommits,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let branch = &taken.branch;
    let Value::Object(fields) = fields_of(taken) else {
        return Err(Fault::failed(Code::Internal, "the result is no object").into());
    };
    data.extend(fields);
    let message = message_of(taken);
    if !args.json {
        cx.talk.note(&message);
        sync::git::tell_unwritten(cx.talk, taken);
        if sync::git::signs_commits(cx, project) {
            sync::git::tell_unsigned(cx.talk, taken);
        }
        if taken.commits > 0 {
            cx.talk.note(format_args!(
                "`git log -p HEAD..{branch}` shows them, `git merge {branch}` takes them; what is not \
                 committed stays in the sandbox"
            ));
        }
    }
    Ok(message)
}

/// Takes all commits (held ones too), other branches, tags and stashes, each to a branch of its
/// own.
fn pull_all(
    cx: &Cx,
    args: &PullArgs,
    sandbox: &Sandbox,
    project: &Path,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    tell_all(
        cx,
        args,
        project,
        git_commits::take_all(sandbox, project)?,
        data,
    )
}

fn tell_all(
    cx: &Cx,
    args: &PullArgs,
    project: &Path,
    results: Vec<BranchResult>,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let mut taken = Vec::new();
    let mut failed = Vec::new();
    let is_signing = !args.json && sync::git::signs_commits(cx, project);
    for (branch, result) in results {
        match result {
            Ok(done) => {
                if !args.json && done.commits > 0 {
                    cx.talk.note(message_of(&done));
                    sync::git::tell_unwritten(cx.talk, &done);
                    if is_signing {
                        sync::git::tell_unsigned(cx.talk, &done);
                    }
                }
                taken.push(done);
            }
            Err(error) => {
                let error = CommandError::from(error);
                if !args.json {
                    let message = render::escape_text(&error.fault.message);
                    cx.talk
                        .warning(format_args!("`{branch}` was not made: {message}"));
                }
                failed.push(json!({ "branch": branch, "error": error.fault.message }));
            }
        }
    }
    let count = taken.iter().filter(|done| done.commits > 0).count();
    data.insert("taken".to_owned(), taken.iter().map(fields_of).collect());
    data.insert("failed".to_owned(), failed.clone().into());
    let message = match count {
        0 => "the sandbox has no commits that you do not have".to_owned(),
        count => plural(
            count,
            "branch was made or moved",
            "branches were made or moved",
        ),
    };
    if !failed.is_empty() {
        let left = plural(
            failed.len(),
            "branch was not made",
            "branches were not made",
        );
        return Err(Fault::refused(Code::Conflict, format!("{message}; {left}")).into());
    }
    if !args.json {
        cx.talk.note(&message);
    }
    Ok(message)
}

fn message_of(taken: &TakenCommits) -> String {
    if taken.commits == 0 {
        return "the sandbox has no commits that you do not have".to_owned();
    }
    format!(
        "{} on the {}branch `{}`",
        plural(taken.commits as usize, "commit", "commits"),
        if taken.is_new { "new " } else { "" },
        taken.branch
    )
}

fn fields_of(taken: &TakenCommits) -> Value {
    json!({
        "branch": taken.branch,
        "commit": taken.commit,
        "commits": taken.commits,
        "is_new": taken.is_new,
        "unwritten": sync::git::unwritten(taken),
    })
}
