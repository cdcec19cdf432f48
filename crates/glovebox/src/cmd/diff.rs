//! `glovebox diff`: the changes of a sandbox.

use super::Cx;
use crate::args::DiffArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, Meter, Pager, Screen};
use crate::streams::Signals;
use crate::sync::apply::{self, ChangesView};
use crate::sync::{self, ChangesRequest, SandboxChanges};
use glovebox_proto::{Code, Fault};
use glovebox_workspace::patch::{self, FileStat, PatchError, Style, Totals};
use glovebox_workspace::{ChangeKind, RelPath};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt as _;

/// Displays the changes.
pub(crate) fn run(cx: &Cx, args: &DiffArgs) -> CommandResult {
    let shown = show(cx, args).map(|()| 0);
    render::answer_failure(shown, args.json, || json!({ "name": args.name }))
}

fn show(cx: &Cx, args: &DiffArgs) -> Result<(), CommandError> {
    let signals = Signals::take_over()?;
    let standing = sync::standing(cx, &args.name)?;
    let paths = sync::paths(&args.paths, standing.as_ref())?;
    let asked = ChangesRequest {
        name: &args.name,
        exclude: &[],
        include: &[],
        named: &paths,
        takes_ignored: args.ignored,
        recovers_project: false,
    };
    let mut meter = Meter::new(cx.talk, args.json, &signals);
    let mut taken = sync::collect(cx, &asked, &mut |progress| meter.tick(progress))?;
    drop(meter);
    sync::tell_unheld(cx.talk, taken.unheld());
    require_present(&taken, &paths)?;
    taken.retain(&paths);
    let ChangesView { collected, outcome } = apply::view(&taken, taken.project.as_deref())?;
    let registry = cx.user_registry()?;
    let name = super::name(&args.name)?;
    if args.json {
        let stats = patch::stat(&collected)?;
        let mut data = render::changes_json(&collected.set);
        if let Value::Object(mut fields) = render::outcome_json(&outcome) {
            for name in ["merged", "conflicts"] {
                data[name] = fields.remove(name).unwrap_or_default();
            }
        }
        add_counts(&mut data, &stats);
        data["name"] = args.name.clone().into();
        data["ignored"] = json!(taken.collected.ignored);
        if let Some(why) = taken.unheld() {
            data["unheld"] = why.into();
        }
        // Thaw the sandbox before asking git: git runs inside, and a frozen sandbox does not
        // answer.
        drop(taken);
        data["git"] = sync::git::tell_named(cx, &registry, &name, true);
        let message = render::change_count(&collected.set);
        return render::print(render::envelope(true, &message, &data));
    }
    let style = cx.talk.patch_style();
    let pager = Pager::new(&cx.host, Screen::Stdout, &signals);
    let mut out = BufWriter::new(pager);
    let written = if args.stat {
        patch::stat(&collected)
            .map_err(PatchError::from)
            .and_then(|stats| patch::write_stat(&stats, style, &mut out))
    } else {
        patch::write(&collected, style, &mut out)
    };
    let written = written.and_then(|()| {
        let pager = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        Ok(pager.finish()?)
    });
    written.map_err(|error| sync::patch_error(error, "standard output"))?;
    if matches!(style, Style::Screen { .. }) {
        sync::tell_hidden(cx.talk, &collected)?;
    }
    apply::tell_patch(cx.talk, &outcome);
    sync::tell_refused(cx.talk, &collected.set.refused);
    if paths.is_empty() {
        sync::tell_ignored(cx.talk, &taken.collected.ignored, false);
        drop(taken);
        sync::git::tell_named(cx, &registry, &name, false);
    }
    if args.stat || outcome.conflicts.is_empty() {
        return Ok(());
    }
    Err(apply::conflict(
        &outcome,
        format!(
            "`glovebox pull {} --merge` puts both versions into each file, between markers",
            args.name
        ),
    ))
}

/// Fails if a named path is neither in the project nor among the changes.
fn require_present(taken: &SandboxChanges, paths: &[RelPath]) -> Result<(), CommandError> {
    let is_present = |wanted: &RelPath| {
        let set = &taken.collected.set;
        let is_changed = set.changes.iter().any(|change| {
            change.path.starts_with(wanted)
                || matches!(&change.kind, ChangeKind::Renamed { source, .. } if source.starts_with(wanted))
        });
        let is_refused = || {
            set.refused.iter().any(|refusal| {
                RelPath::new(refusal.path.clone()).is_ok_and(|path| path.starts_with(wanted))
            })
        };
        let is_in_project = || {
            let path = OsStr::from_bytes(wanted.as_bytes());
            let project = taken.project.as_ref();
            project.is_some_and(|project| project.join(path).symlink_metadata().is_ok())
        };
        is_changed || is_refused() || is_in_project()
    };
    let Some(absent) = paths.iter().find(|path| !is_present(path)) else {
        return Ok(());
    };
    let fault = Fault::failed(
        Code::NotFound,
        format!("there is no path `{absent}` in the project, nor among the changes"),
    )
    .remedy("paths are relative to the workspace; without a path, all changes are shown");
    Err(fault.into())
}

/// Adds the counts of inserted and deleted lines to each change.
fn add_counts(data: &mut Value, stats: &[FileStat]) {
    let totals = Totals::of(stats);
    data["insertions"] = totals.insertions.into();
    data["deletions"] = totals.deletions.into();
    let mut stats = stats.iter().peekable();
    let Some(changes) = data["changes"].as_array_mut() else {
        return;
    };
    for change in changes {
        let path = shown_name(stats.peek().map(|stat| stat.path.as_bytes()));
        if path.is_none() || change["path"].as_str() != path.as_deref() {
            continue;
        }
        if let Some(stat) = stats.next() {
            change["insertions"] = stat.insertions.into();
            change["deletions"] = stat.deletions.into();
            change["binary"] = stat.binary.is_some().into();
        }
    }
}

fn shown_name(bytes: Option<&[u8]>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
