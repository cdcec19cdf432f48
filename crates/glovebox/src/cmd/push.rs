//! `glovebox push`: sends the project again to a sandbox that has a copy of it, or writes its
//! changes into an overlay, so that programs that watch files see them.

use super::Cx;
use crate::args::PushArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, Meter};
use crate::streams::Signals;
use crate::sync::{self, copied, overlay};
use glovebox_proto::{Code, Fault};
use glovebox_settings::{Origin, SourcedValue};
use glovebox_workspace::copy::PushTotals;
use glovebox_workspace::{MAX_PUSHED_FILE_BYTES, RelPath};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt as _;

/// Sends the differences and reports the result.
pub(crate) fn run(cx: &Cx, args: &PushArgs) -> CommandResult {
    let mut data = json!({ "name": args.name });
    let error = match push(cx, args) {
        Ok(PushOutcome {
            totals: pushed,
            large,
        }) => {
            let names = large.iter().map(ToString::to_string);
            if args.json {
                merge(&mut data, &pushed);
                data["large"] = names.collect::<Vec<_>>().into();
            } else {
                tell(cx, &pushed);
                for name in names.take(10) {
                    cx.talk.warning(format_args!(
                        "{}: larger than {}; the sandbox sees it, but programs inside get no event",
                        render::escape(name.as_bytes()),
                        glovebox_settings::units::human_bytes(MAX_PUSHED_FILE_BYTES)
                    ));
                }
            }
            if let Some(fault) = conflict(&pushed, &args.name) {
                fault.into()
            } else {
                if args.json {
                    render::print(render::envelope(true, &sentence(&pushed), &data))?;
                }
                return Ok(0);
            }
        }
        Err(error) => sync::with_remedy(error, &format!("glovebox push {}", args.name)),
    };
    if args.json {
        render::print(render::failure(&error, &data))?;
        return Ok(error.exit_code());
    }
    Err(error)
}

fn push(cx: &Cx, args: &PushArgs) -> Result<PushOutcome, CommandError> {
    let signals = Signals::take_over()?;
    let name = super::name(&args.name)?;
    let registry = cx.user_registry()?;
    let Some(entry) = registry.entry(&name)? else {
        return Err(sync::no_sandbox(&name));
    };
    let origin = copied::CopyOrigin::read(&entry.dir);
    let paths = if args.paths.is_empty() {
        Vec::new()
    } else {
        sync::paths(&args.paths, sync::standing(cx, &args.name)?.as_ref())?
    };
    if origin.is_some() && !paths.is_empty() {
        let message =
            format!("the sandbox `{name}` has a copy of the project, which is pushed whole");
        return Err(CommandError::usage(message, "leave the paths out"));
    }
    let project = match &origin {
        Some(origin) => Some(origin.project.clone()),
        None => sync::project_of_named(&registry, &name)?,
    };
    let mut settings = cx.settings(project.as_deref().filter(|project| project.is_dir()))?;
    let add = |list: &mut Vec<SourcedValue<String>>, patterns: &[String], flag| {
        list.extend(patterns.iter().map(|pattern| SourcedValue {
            value: pattern.clone(),
            origin: Origin::Flag(flag),
        }));
    };
    add(&mut settings.sync.push_exclude, &args.exclude, "exclude");
    add(&mut settings.sync.push_include, &args.include, "include");
    let sandbox = registry.connect(&name)?;
    let mut meter = Meter::new(cx.talk, args.json, &signals);
    let watch = &mut |progress| meter.tick(progress);
    let Some(origin) = origin else {
        let pushed = overlay::push(&registry, &name, &sandbox, &settings, &paths, watch)?;
        return Ok(PushOutcome {
            totals: PushTotals {
                files: pushed.files.len() as u64,
                bytes: pushed.bytes,
                deleted: pushed.deleted.len() as u64,
                hidden: pushed.hidden,
                conflicts: pushed.conflicts,
                ..PushTotals::default()
            },
            large: pushed.large,
        });
    };
    let totals = copied::push(&sandbox, &origin.project, &settings, watch)?;
    Ok(PushOutcome {
        totals,
        large: Vec::new(),
    })
}

/// Result of a push.
struct PushOutcome {
    totals: PushTotals,
    /// Files that the sandbox sees without a copy, because they are large.
    large: Vec<RelPath>,
}

/// Returns the error for paths that both sides changed; all other paths have been sent. None if
/// there are none.
fn conflict(pushed: &PushTotals, name: &str) -> Option<Fault> {
    let what = match pushed.conflicts.len() {
        0 => return None,
        1 => "one path changed".to_owned(),
        count => format!("{count} paths changed"),
    };
    let message =
        format!("{what} on both sides; the sandbox's version stays, everything else is sent");
    let fault = Fault::refused(Code::Conflict, message);
    Some(fault.remedy(format!("see the sandbox's with `glovebox diff {name}`")))
}

fn merge(data: &mut Value, pushed: &PushTotals) {
    for (name, value) in [
        ("files", pushed.files),
        ("bytes", pushed.bytes),
        ("made", pushed.made),
        ("deleted", pushed.deleted),
        ("unchanged", pushed.unchanged),
        ("hidden", pushed.hidden),
    ] {
        data[name] = value.into();
    }
    data["conflicts"] = pushed
        .conflicts
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .into();
    data["skipped"] = render::refused_json(&pushed.skipped);
    let unsent = pushed.unsent_git.iter();
    data["unsent_git"] = unsent
        .map(|(path, why)| json!({ "path": path.to_string_lossy(), "reason": why }))
        .collect();
}

fn sentence(pushed: &PushTotals) -> String {
    format!(
        "sent {} ({}), deleted {}, {} as they were",
        render::plural(pushed.files as usize, "file", "files"),
        glovebox_settings::units::human_bytes(pushed.bytes),
        pushed.deleted,
        pushed.unchanged
    )
}

/// Reports what was sent and what was not.
pub(crate) fn tell(cx: &Cx, pushed: &PushTotals) {
    cx.talk.detail(sentence(pushed));
    if pushed.hidden > 0 {
        cx.talk.note(format_args!(
            "{} of the project {} not sent, by a name like that of a secret or by a pattern; --include PATTERN sends them",
            render::plural(pushed.hidden as usize, "path", "paths"),
            if pushed.hidden == 1 { "was" } else { "were" }
        ));
    }
    for refusal in pushed.skipped.iter().take(10) {
        cx.talk.warning(format_args!(
            "{}: not sent, {}",
            render::escape(&refusal.path),
            refusal.reason
        ));
    }
    for (git_dir, why) in pushed.unsent_git.iter().take(10) {
        cx.talk.warning(format_args!(
            "{}: not sent, so git does not work there: {}",
            render::escape(git_dir.as_os_str().as_bytes()),
            render::escape_text(why)
        ));
    }
    for path in pushed.conflicts.iter().take(10) {
        cx.talk.warning(format_args!(
            "{}: changed on both sides; the sandbox's stays",
            render::escape(path.as_bytes())
        ));
    }
}
