//! Messages about commits, branches, tags and stashes that were made in a sandbox.

use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{self, Messages, escape_text, plural};
use glovebox_proto::visible::line_of_text;
use glovebox_sandbox::{Name, Registry};
use glovebox_session::host::GitSettings;
use glovebox_session::sync::git_state::find_git_work_named;
use glovebox_session::{Error, GitWork};
use glovebox_workspace::branch::TakenCommits;
use serde_json::{Value, json};
use std::path::Path;

/// Maximum number of names in one line.
const SHOWN: usize = 10;

/// Reports the git work that stays in a sandbox, and the command that takes it. Printed with
/// `--quiet` too: no other message says where the work is.
pub(crate) fn tell_left(name: &Name, work: &GitWork) {
    let parts = list_parts(work, work.branch.as_deref());
    let Some(what) = in_a_row(&parts) else {
        return;
    };
    let stays = if parts.len() == 1 && what.starts_with("1 ") {
        "stays"
    } else {
        "stay"
    };
    let has_more = work.is_uncounted || work.has_more();
    let how = match (work.commits > 0, has_more) {
        (true, false) => format!("; `glovebox pull {name} --commits` takes the commits"),
        (true, true) => format!(
            "; `glovebox pull {name} --commits` takes the commits, `glovebox pull {name} --commits --all` the rest too"
        ),
        (false, _) => format!("; `glovebox pull {name} --commits --all` takes it"),
    };
    render::say(format_args!("glovebox: {what} {stays} in {name}{how}"));
}

/// Describes the parts of git work. `branch` is the name to print with its commits.
pub(crate) fn list_parts(work: &GitWork, branch: Option<&str>) -> Vec<String> {
    let mut parts = Vec::new();
    if work.commits > 0 {
        let commits = plural(work.commits as usize, "commit", "commits");
        parts.push(match branch {
            Some(branch) => format!("{commits} on `{}`", line_of_text(branch)),
            None => commits,
        });
    }
    for (names, one, many) in [
        (&work.branches, "branch", "branches"),
        (&work.tags, "tag", "tags"),
    ] {
        if !names.is_empty() {
            parts.push(format!(
                "{} ({})",
                plural(names.len(), one, many),
                list(names)
            ));
        }
    }
    if work.is_uncounted {
        parts.push("commits, branches or stashes, as it seems".to_owned());
    }
    if work.stashes > 0 {
        parts.push(plural(work.stashes, "stash", "stashes"));
    }
    if !work.repositories.is_empty() {
        let paths: Vec<String> = work
            .repositories
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        parts.push(format!("git work in {}", list(&paths)));
    }
    parts
}

/// Joins parts as a list in a sentence. None if there are none.
pub(crate) fn in_a_row(parts: &[String]) -> Option<String> {
    match parts.split_last()? {
        (last, []) => Some(last.clone()),
        (last, rest) => Some(format!("{} and {last}", rest.join(", "))),
    }
}

/// Reports the git work that stays in a named sandbox, and returns it for programs: null if there
/// is none or git cannot be asked. The sandbox must not be frozen meanwhile.
pub(crate) fn tell_named(cx: &Cx, registry: &Registry, name: &Name, is_json: bool) -> Value {
    let is_told = !is_json && !cx.talk.is_quiet;
    match find_git_work_named(registry, name) {
        Ok(work) if work.is_empty() => Value::Null,
        Ok(work) => {
            if is_told {
                tell_left(name, &work);
            }
            json!(work)
        }
        Err(error) => {
            if is_told {
                tell_unknown(name, &error);
            }
            Value::Null
        }
    }
}

/// Finds the git work of a named sandbox. None if there is none, or if git cannot be asked.
pub(crate) fn find_named(registry: &Registry, name: &Name) -> Option<GitWork> {
    let work = find_git_work_named(registry, name).ok()?;
    (!work.is_empty()).then_some(work)
}

/// Reports that the git work of a sandbox is unknown, with the reason.
pub(crate) fn tell_unknown(name: &Name, error: &Error) {
    let error = CommandError::from(error.clone());
    render::say(format_args!(
        "glovebox: there may be commits or stashes in {name}, and git inside did not say ({})",
        escape_text(&error.fault.message)
    ));
}

/// Reports the branch that has the commits, and the command that merges it.
pub(crate) fn tell_taken(talk: Messages, taken: &TakenCommits) {
    if taken.commits == 0 {
        return;
    }
    let TakenCommits {
        branch, is_ahead, ..
    } = taken;
    let how = if *is_ahead {
        format!("your files have their changes too: `git reset {branch}` moves your branch to them")
    } else {
        format!("`git stash` and `git merge {branch}` take them")
    };
    talk.note(format_args!(
        "{} on the {}branch `{branch}`; {how}",
        plural(taken.commits as usize, "commit", "commits"),
        if taken.is_new { "new " } else { "" }
    ));
    tell_unwritten(talk, taken);
}

/// Returns true if the user signs commits of a project. Reads the user's git configuration.
pub(crate) fn signs_commits(cx: &Cx, project: &Path) -> bool {
    GitSettings::read(&cx.host, project).signs_commits
}

/// Reports that taken commits are not signed, with the command that signs them.
pub(crate) fn tell_unsigned(talk: Messages, taken: &TakenCommits) {
    if taken.commits == 0 {
        return;
    }
    let branch = &taken.branch;
    talk.note(format_args!(
        "the commits are not signed, because your key stays outside; `git rebase -f --exec \
         'git commit --amend --no-edit -S' $(git merge-base HEAD {branch}) {branch}` signs them"
    ));
}

/// Reports the paths in the commits that the user changed, not the sandbox.
pub(crate) fn tell_unwritten(talk: Messages, taken: &TakenCommits) {
    let paths = unwritten(taken);
    if paths.is_empty() {
        return;
    }
    talk.note(format_args!(
        "{} as you committed or edited since: {}",
        plural(paths.len(), "path in them is", "paths in them are"),
        list(&paths)
    ));
}

/// Returns the paths in the commits that the sandbox never wrote, escaped.
pub(crate) fn unwritten(taken: &TakenCommits) -> Vec<String> {
    let paths = taken.unwritten.iter();
    paths
        .map(|path| line_of_text(&String::from_utf8_lossy(path)))
        .collect()
}

/// Joins the first names, up to [`SHOWN`].
fn list(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| line_of_text(name))
        .collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}
