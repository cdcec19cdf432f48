//! `glovebox kill`: ends sandboxes and removes their files, or ends one job. Can be repeated
//! safely.

use super::{Cx, service, several};
use crate::args::KillArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural};
use crate::sync::copied::{self, CopyRemoval};
use crate::sync::tell_discarded;
use glovebox_proto::{Class, Code, Fault, JobId, JobState, Reply, Request};
use glovebox_sandbox::{Name, Registry, SandboxState};
use glovebox_session::GitWork;
use glovebox_session::sync::discard::{DiscardCount, count_named};
use serde_json::{Value, json};
use std::time::Duration;

/// Time that a single job has to end by itself.
const JOB_GRACE_MS: u64 = 2_000;
/// Time that its sandbox has to reply.
const JOB_WAIT: Duration = Duration::from_secs(12);

/// Ends each sandbox; a failure with one does not keep the others alive.
pub(crate) fn run(cx: &Cx, args: &KillArgs) -> CommandResult {
    if let Some(number) = args.job {
        let ended = end_job(cx, args, JobId(number));
        return render::answer_failure(
            ended,
            args.json,
            || json!({ "names": args.names, "job": number }),
        );
    }
    // Check all names before anything ends.
    let mut names = super::names(&args.names)?;
    let registry = cx.user_registry()?;
    if args.all {
        names = registry
            .list()?
            .into_iter()
            .map(|entry| entry.name)
            .collect();
    }
    let mut killed: Vec<Value> = Vec::new();
    let mut failure: Option<CommandError> = None;
    for name in names {
        let remains = match clean_elsewhere(cx, &registry, &name) {
            Ok(remains) => remains,
            Err(error) => {
                several::keep_failure(cx, &mut failure, error);
                continue;
            }
        };
        // Count now: after the removal there is nothing to count.
        let discarded = count_named(&cx.host, &registry, &name);
        match registry.kill(&name) {
            Ok(what) => {
                let left = match &remains {
                    CopyRemoval::Left(dir) => Some(dir),
                    CopyRemoval::None | CopyRemoval::Removed | CopyRemoval::Unreachable(_) => None,
                };
                killed.push(json!({
                    "name": name,
                    "was": what.was,
                    "forced": what.forced,
                    "discarded_changes": discarded_json(discarded.changes),
                    "discarded_git": discarded_git_json(&discarded.git),
                    "left": left,
                }));
                if let Some(dir) = left {
                    cx.talk.warning(format_args!(
                        "the copy of the project stays where the carrier of `{name}` leads, in `{dir}`; \
                         remove it there"
                    ));
                }
                if !args.json {
                    cx.talk.note(match what.was {
                        SandboxState::Gone => {
                            format!("there is no sandbox `{name}`; nothing to do")
                        }
                        _ => format!("sandbox `{name}` is gone"),
                    });
                    tell_discarded(cx.talk, &discarded, "");
                }
            }
            Err(fault) => {
                let error = CommandError::from(fault);
                several::keep_failure(cx, &mut failure, error);
            }
        }
    }
    if args.json {
        let message = plural(killed.len(), "sandbox is gone", "sandboxes are gone");
        let data = json!({ "killed": killed });
        match &failure {
            None => render::print(render::envelope(true, &message, &data))?,
            Some(error) => render::print(render::failure(error, &data))?,
        }
    }
    failure.map_or(Ok(0), Err)
}

/// Removes the files of a sandbox on another machine, before the sandbox is removed. Warns if the
/// service cannot be reached.
///
/// # Errors
/// The service refuses. The sandbox's entry must then stay, so that the user can try again.
pub(super) fn clean_elsewhere(
    cx: &Cx,
    registry: &Registry,
    name: &Name,
) -> Result<CopyRemoval, CommandError> {
    let remains = copied::clean_named(&cx.host, registry, name);
    if let CopyRemoval::Unreachable(error) = &remains {
        let error = CommandError::from(error.clone());
        if error.fault.class == Class::Refused {
            return Err(error);
        }
        let flags = registry.spec(name).map_or_else(
            |_| "--backend BACKEND".to_owned(),
            |spec| service::flags_of(&spec),
        );
        cx.talk.warning(format_args!(
            "the service may still hold the files of `{name}`: {}; `glovebox prune {flags}` removes what is left \
             there",
            render::escape_text(&error.fault.message)
        ));
    }
    Ok(remains)
}

/// Returns the number of discarded changes for programs; null if they were not counted.
pub(super) fn discarded_json(count: DiscardCount) -> Value {
    match count {
        DiscardCount::None => 0.into(),
        DiscardCount::Changes(count) => count.into(),
        DiscardCount::Uncounted => Value::Null,
    }
}

/// Returns the discarded commits, branches, tags and stashes for programs; null if there were none.
pub(super) fn discarded_git_json(work: &GitWork) -> Value {
    if work.is_empty() {
        Value::Null
    } else {
        json!(work)
    }
}

/// Ends one job with every process it started; the sandbox stays.
fn end_job(cx: &Cx, args: &KillArgs, job: JobId) -> CommandResult {
    let [name] = args.names.as_slice() else {
        return Err(CommandError::usage(
            "a job belongs to one sandbox",
            "name that one, as in `glovebox kill work --job 3`",
        ));
    };
    let name = super::name(name)?;
    let sandbox = cx.user_registry()?.connect(&name)?;
    let Some(info) = sandbox.jobs()?.into_iter().find(|info| info.job == job) else {
        let fault = Fault::failed(
            Code::JobNotFound,
            format!("there is no job {job} in `{name}`"),
        );
        return Err(fault
            .remedy(format!("`glovebox logs {name}` lists its jobs"))
            .into());
    };
    let was_running = !matches!(info.state, JobState::Ended(_));
    let mut data = json!({ "name": name, "job": job, "was_running": was_running });
    if was_running {
        let request = Request::JobKill {
            job,
            grace_ms: JOB_GRACE_MS,
        };
        if let Reply::Exited(report) = sandbox.call_for(request, Some(JOB_WAIT))? {
            let mut fields = serde_json::Map::new();
            super::exec::add_report(&mut fields, &report);
            for (field, value) in fields {
                data[field] = value;
            }
        }
    }
    let message = if was_running {
        format!("job {job} of sandbox `{name}` is ended")
    } else {
        format!("job {job} of sandbox `{name}` had ended already")
    };
    if args.json {
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
    }
    Ok(0)
}
