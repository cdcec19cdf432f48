//! `glovebox pull --commits`: what was committed inside, as a branch of the user's repository.

use super::here::HERE;
use super::{Cx, name};
use crate::args::PullArgs;
use crate::exit::CommandError;
use crate::render;
use crate::sync;
use glovebox_proto::Code;
use glovebox_proto::visible::line_of_text;
use glovebox_session::sync::git_commits;
use serde_json::{Map, Value};

/// Refuses the name of a sandbox in the place of the branch where no sandbox is named: it was meant
/// for the sandbox, and would become a branch with the commits of another one.
///
/// # Errors
/// A usage error that names the command that was meant.
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

/// Takes the commits to a branch; an empty name stands for the one that the sandbox's name gives.
pub(super) fn pull(
    cx: &Cx,
    args: &PullArgs,
    branch: &str,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let registry = cx.user_registry()?;
    let name = name(&args.name)?;
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
    let taken = git_commits::take(&sandbox, &project, &branch)?;
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
    let unwritten = taken.unwritten.iter();
    let unwritten: Vec<_> = unwritten.map(|path| shown_path(path)).collect();
    data.insert("unwritten".to_owned(), unwritten.clone().into());
    if !args.json {
        cx.talk.note(&message);
        if !unwritten.is_empty() {
            cx.talk.note(tell_unwritten(&unwritten));
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

/// Says which paths of the commits the user wrote, not the sandbox.
fn tell_unwritten(paths: &[String]) -> String {
    const SHOWN: usize = 10;
    let more = if paths.len() > SHOWN { ", ..." } else { "" };
    let shown = &paths[..paths.len().min(SHOWN)];
    let count = render::plural(paths.len(), "path in them is", "paths in them are");
    format!(
        "{count} as you committed or edited since: {}{more}",
        shown.join(", ")
    )
}

fn shown_path(path: &[u8]) -> String {
    line_of_text(&String::from_utf8_lossy(path))
}
