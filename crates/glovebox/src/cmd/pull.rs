//! `glovebox pull`: applies a sandbox's changes to the host.

use super::{Cx, run::supervisor};
use crate::args::PullArgs;
use crate::exit::{CommandError, CommandResult, Kind};
use crate::render::{self, Meter};
use crate::streams::Signals;
use crate::sync::apply::{self, ApplyOutcome, ApplyTarget, Review, ReviewAnswer};
use crate::sync::{self, ChangesRequest, PullSource, SandboxChanges, patch_file, question};
use glovebox_proto::{Code, Fault};
use glovebox_session::sync::{git_box, viewers};
use glovebox_workspace::{Outcome, Resolution};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Pulls and reports the result.
pub(crate) fn run(cx: &Cx, args: &PullArgs) -> CommandResult {
    let mut data = Map::new();
    data.insert("name".to_owned(), args.name.clone().into());
    let error = match pull(cx, args, &mut data) {
        Ok(message) => {
            if args.json {
                render::print(render::envelope(true, &message, &Value::Object(data)))?;
            }
            return Ok(0);
        }
        Err(error) => error,
    };
    let error = if error.fault.code == Code::Conflict {
        error
    } else {
        sync::with_remedy(error, &again(args))
    };
    if args.json {
        render::print(render::failure(&error, &Value::Object(data)))?;
        return Ok(error.exit_code());
    }
    if error.kind == Kind::Interrupted {
        cx.talk
            .note("interrupted: nothing was changed and the sandbox is as it was");
    }
    Err(error)
}

fn pull(cx: &Cx, args: &PullArgs, data: &mut Map<String, Value>) -> Result<String, CommandError> {
    if args.select && !question::is_possible() {
        return Err(CommandError::usage(
            "--select asks, and there is no terminal to ask on",
            "leave it out, or name what stays with --exclude",
        ));
    }
    let signals = Signals::take_over()?;
    if let Some(id) = &args.undo {
        return put_back(cx, args, id, &signals, data);
    }
    if let Some(branch) = &args.commits {
        return super::commits::pull(cx, args, branch, data);
    }
    let from = match &args.from {
        Some(from) => sync::source(from, sync::standing(cx, &args.name)?.as_ref())?,
        None => PullSource::Workspace,
    };
    let named = match &from {
        PullSource::Inside(path) => std::slice::from_ref(path),
        PullSource::Workspace | PullSource::Outside(_) => &[],
    };
    let asked = ChangesRequest {
        name: &args.name,
        exclude: &args.exclude,
        include: &args.include,
        named,
        takes_ignored: args.ignored,
        recovers_project: args.to.is_none() && !args.dry_run,
    };
    let mut meter = Meter::new(cx.talk, args.json, &signals);
    let mut watch = |progress| meter.tick(progress);
    let mut taken = match (&from, &args.to) {
        (PullSource::Outside(path), None) => return Err(nowhere(path)),
        (PullSource::Outside(path), Some(_)) => {
            sync::collect_outside(cx, &asked, path, &mut watch)?
        }
        _ => sync::collect(cx, &asked, &mut watch)?,
    };
    meter.clear();
    sync::tell_unheld(cx.talk, taken.unheld());
    if let Some(why) = taken.unheld() {
        data.insert("unheld".to_owned(), why.into());
    }
    data.insert("ignored".to_owned(), json!(taken.collected.ignored));
    if !args.json && named.is_empty() {
        sync::tell_ignored(cx.talk, &taken.collected.ignored, false);
    }
    let to = match (&args.to, &from) {
        (Some(to), from) => {
            if let PullSource::Inside(from) = from {
                taken.rebase(from);
            }
            let to = cx.host.absolute(to);
            to.canonicalize().map_err(|error| {
                let what = format!("open the destination {}", to.display());
                let remedy = "make the directory first, or name another with --to";
                CommandError::io(what, &error).remedy(remedy)
            })?
        }
        (None, from) => {
            if let PullSource::Inside(from) = from {
                taken.retain(std::slice::from_ref(from));
            }
            sync::destination(&taken)?
        }
    };
    data.insert("to".to_owned(), to.display().to_string().into());
    if let Some(file) = &args.patch {
        return patch(cx, args, &taken, &to, file, data);
    }
    if let Some(name) = &args.branch {
        return commit(cx, args, &taken, &to, name, data);
    }
    let conflicts = match (args.force, args.merge) {
        (true, _) => Resolution::Theirs,
        (_, true) => Resolution::Markers,
        _ => Resolution::Beside,
    };
    let registry = cx.user_registry()?;
    let goal = ApplyTarget::with_conflicts(&to, conflicts);
    let name = super::name(&args.name)?;
    let goal = goal
        .keeping_earlier(registry.state_dir(), false)
        .telling(registry.state_dir(), Some(&name));
    if args.dry_run {
        let outcome = apply::preview(&taken, goal)?;
        data.insert("dry_run".to_owned(), true.into());
        return tell(cx, args, &outcome, &to, data, false);
    }
    let mut has_chosen = false;
    let is_whole = taken.is_whole;
    let supervisor = supervisor()?;
    let mut watch = |progress| meter.tick(progress);
    let applied = apply::apply(taken, goal, &supervisor, &mut watch, &mut |review| {
        if args.select {
            return apply::select(cx, review, &signals);
        }
        if is_asked(cx, args) && !args.merge && !has_chosen && review.has_open_conflicts() {
            apply::tell(cx.talk, review.outcome, false);
            has_chosen = true;
            return Ok(apply::choose(cx, review, &signals)?.unwrap_or(ReviewAnswer::No));
        }
        agree(cx, args, review, &to, &signals)
    })?;
    drop(meter);
    // Ask git only after the apply has released the sandbox: git runs inside, and a frozen sandbox
    // does not answer.
    if is_whole {
        let git = sync::git::tell_named(cx, &registry, &name, args.json);
        data.insert("git".to_owned(), git);
    }
    match applied {
        ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) => {
            tell(cx, args, &outcome, &to, data, true)
        }
        ApplyOutcome::Declined(_) => {
            let fault = Fault::failed(Code::Cancelled, "nothing was changed");
            Err(CommandError::new(Kind::Interrupted, fault))
        }
    }
}

/// Restores the files that an earlier apply replaced or removed.
fn put_back(
    cx: &Cx,
    args: &PullArgs,
    id: &str,
    signals: &Signals,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    data.remove("name");
    let id = Some(id).filter(|id| !id.is_empty());
    // A backup named by its id records its own directory.
    let project = match id {
        Some(_) => PathBuf::new(),
        None => glovebox_session::host::project_dir(&cx.host)?,
    };
    let registry = cx.user_registry()?;
    let mut meter = Meter::new(cx.talk, args.json, signals);
    let mut watch = |progress| meter.tick(progress);
    let supervisor = supervisor()?;
    let (to, outcome) =
        apply::put_back(registry.state_dir(), id, &project, &supervisor, &mut watch)?;
    drop(meter);
    data.insert("to".to_owned(), to.display().to_string().into());
    tell(cx, args, &outcome, &to, data, true)
}

/// Creates the error for a source outside the workspace without `--to`: the project has no place
/// for it.
fn nowhere(from: &Path) -> CommandError {
    CommandError::usage(
        format!("{} does not lie in the workspace", from.display()),
        "name the directory that it goes to with --to DIR",
    )
}

/// Returns true if a user can be asked and no flag answers already.
fn is_asked(cx: &Cx, args: &PullArgs) -> bool {
    !args.force && !args.json && !cx.talk.is_quiet && question::is_possible()
}

/// Asks about changes that the host would execute, if a user can be asked.
fn agree(
    cx: &Cx,
    args: &PullArgs,
    review: &Review<'_>,
    to: &Path,
    signals: &Signals,
) -> Result<ReviewAnswer, CommandError> {
    let outcome = review.outcome;
    if !apply::runs_here(outcome) || !is_asked(cx, args) {
        return Ok(ReviewAnswer::Yes);
    }
    apply::tell(cx.talk, outcome, false);
    sync::tell_hidden(cx.talk, &review.view()?)?;
    loop {
        let text = format!(
            "apply {} to {}? [y]es, [n]o, [d]iff, [s]elect",
            render::applied_summary(outcome),
            cx.short(to)
        );
        match question::ask(&text, &['y', 'n', 'd', 's'], signals) {
            Some('y') => return Ok(ReviewAnswer::Yes),
            Some('s') => return apply::select(cx, review, signals),
            Some('d') => apply::show(cx, review, signals)?,
            _ => return Ok(ReviewAnswer::No),
        }
    }
}

fn patch(
    cx: &Cx,
    args: &PullArgs,
    taken: &SandboxChanges,
    to: &Path,
    file: &Path,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    // Without a project every file is new.
    let to = taken.project.is_some().then_some(to);
    let view = apply::view(taken, to)?;
    let set = &view.collected.set;
    if !args.dry_run {
        patch_file::write(&view.collected, file, &cx.host)?;
    }
    data.insert("patch".to_owned(), file.display().to_string().into());
    data.insert("changes".to_owned(), set.changes.len().into());
    let message = format!(
        "{} in {}",
        render::change_count(set),
        render::escape(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()))
    );
    if !args.json {
        apply::tell_patch(cx.talk, &view.outcome);
        cx.talk.note(format_args!(
            "{message}; `git apply` takes it, your files are as before"
        ));
        sync::tell_refused(cx.talk, &set.refused);
    }
    both_sides(&view.outcome, data);
    if view.outcome.conflicts.is_empty() {
        return Ok(message);
    }
    Err(apply::conflict(
        &view.outcome,
        "the patch puts the sandbox's version beside yours, as FILE.theirs: compare the two",
    ))
}

/// Adds the conflicts and the merged paths, for programs.
fn both_sides(outcome: &Outcome, data: &mut Map<String, Value>) {
    let Value::Object(mut fields) = render::outcome_json(outcome) else {
        return;
    };
    for name in ["conflicts", "merged"] {
        if let Some(value) = fields.remove(name) {
            data.insert(name.to_owned(), value);
        }
    }
}

fn commit(
    cx: &Cx,
    args: &PullArgs,
    taken: &SandboxChanges,
    to: &Path,
    name: &str,
    data: &mut Map<String, Value>,
) -> Result<String, CommandError> {
    let set = &taken.collected.set;
    data.insert("branch".to_owned(), name.into());
    if args.dry_run || set.changes.is_empty() {
        let message = format!("{} for the branch `{name}`", render::change_count(set));
        if !args.json {
            cx.talk.note(format_args!("{message}; nothing was written"));
        }
        return Ok(message);
    }
    let text = format!(
        "Changes from sandbox {}\n\n{}\n",
        args.name,
        render::summary(set)
    );
    let registry = cx.user_registry()?;
    let sandbox = super::name(&args.name)?;
    let done = git_box::commit_to_branch(&registry, &cx.host, &sandbox, taken, to, name, &text)?;
    let outcome = Outcome {
        conflicts: done.conflicts,
        applied: done.merged,
        ..Outcome::default()
    };
    both_sides(&outcome, data);
    let Some(commit) = done.commit else {
        let message =
            format!("nothing is new to what is committed, so there is no branch `{name}`");
        if !args.json {
            cx.talk.note(&message);
            sync::tell_refused(cx.talk, &set.refused);
        }
        return Ok(message);
    };
    data.insert("commit".to_owned(), commit.into());
    data.insert("paths".to_owned(), done.paths.into());
    let message = format!(
        "{} on the new branch `{name}`",
        render::plural(done.paths as usize, "path", "paths")
    );
    if !args.json {
        cx.talk.note(format_args!(
            "{message}; `git diff HEAD {name}` shows them, your files are as before"
        ));
        apply::tell_branch(cx.talk, &outcome);
        if !done.ignored.is_empty() {
            cx.talk.note(format_args!(
                "left out because the repository ignores {}: {}",
                if done.ignored.len() == 1 {
                    "it"
                } else {
                    "them"
                },
                render::plural(done.ignored.len(), "new path", "new paths")
            ));
        }
        sync::tell_refused(cx.talk, &set.refused);
    }
    if outcome.conflicts.is_empty() {
        return Ok(message);
    }
    Err(apply::conflict(
        &outcome,
        format!(
            "the branch `{name}` has the sandbox's version beside yours, as FILE.theirs: compare the two"
        ),
    ))
}

/// Reports what was applied, or would be. A conflict becomes the error of the command.
fn tell(
    cx: &Cx,
    args: &PullArgs,
    outcome: &Outcome,
    to: &Path,
    data: &mut Map<String, Value>,
    is_done: bool,
) -> Result<String, CommandError> {
    if let Value::Object(fields) = render::outcome_json(outcome) {
        data.extend(fields);
    }
    let message = format!(
        "{} {}: {}",
        if is_done {
            "applied to"
        } else {
            "would apply to"
        },
        cx.short(to),
        render::applied_summary(outcome)
    );
    let seen_by = if is_done && !outcome.applied.is_empty() {
        let registry = cx.user_registry()?;
        viewers::find_viewers(&registry, to, super::name(&args.name).ok().as_ref())
    } else {
        Vec::new()
    };
    if !args.json {
        cx.talk.note(&message);
        if !cx.talk.is_quiet {
            render::print(render::applied(outcome))?;
        }
        apply::tell(cx.talk, outcome, is_done);
        apply::tell_unplaced(&args.name, outcome);
        apply::tell_viewers(cx.talk, &seen_by);
    }
    data.insert("seen_by".to_owned(), json!(seen_by));
    if outcome.conflicts.is_empty() {
        return Ok(message);
    }
    let again = again(args);
    let remedy = if args.undo.is_some() {
        "what was there is FILE.theirs: compare the two".to_owned()
    } else if outcome.conflicts.iter().all(|conflict| conflict.is_marked) {
        "edit the files between the markers `<<<<<<<` and `>>>>>>>`".to_owned()
    } else if outcome.unplaced().count() == outcome.conflicts.len() {
        format!(
            "`glovebox pull {} --to DIR` writes the sandbox's versions to another directory",
            args.name
        )
    } else if args.merge {
        format!("compare FILE with FILE.theirs, or take the sandbox's with `{again} --force`")
    } else {
        format!(
            "compare FILE with FILE.theirs, put both into the file with `{again} --merge`, or take \
             the sandbox's with `{again} --force`"
        )
    };
    Err(apply::conflict(outcome, remedy))
}

/// Returns the command as it was given, with the flags that decide its effect.
fn again(args: &PullArgs) -> String {
    let mut words: Vec<Vec<u8>> = vec![b"glovebox".into(), b"pull".into()];
    words.push(args.name.clone().into_bytes());
    let bytes = |path: &PathBuf| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    let mut option = |name: &str, value: Vec<u8>| {
        words.push(name.as_bytes().to_vec());
        words.push(value);
    };
    if let Some(from) = &args.from {
        option("--from", bytes(from));
    }
    if let Some(to) = &args.to {
        option("--to", bytes(to));
    }
    for pattern in &args.exclude {
        option("--exclude", pattern.clone().into_bytes());
    }
    for pattern in &args.include {
        option("--include", pattern.clone().into_bytes());
    }
    if args.ignored {
        words.push(b"--ignored".to_vec());
    }
    let mut option = |name: &str, value: Vec<u8>| {
        words.push(name.as_bytes().to_vec());
        words.push(value);
    };
    if let Some(file) = &args.patch {
        option("--patch", bytes(file));
    }
    if let Some(branch) = &args.branch {
        option("--branch", branch.clone().into_bytes());
    }
    if let Some(branch) = &args.commits {
        words.push(b"--commits".to_vec());
        if !branch.is_empty() {
            words.push(branch.clone().into_bytes());
        }
    }
    super::shown_command(&words)
}
