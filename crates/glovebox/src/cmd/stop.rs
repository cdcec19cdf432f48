//! `glovebox stop`: ends the processes of sandboxes and keeps their files.

use super::{Cx, list::state_word, several};
use crate::args::StopArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural};
use crate::sync;
use glovebox_proto::{Code, Fault, JobState, Request};
use glovebox_sandbox::{Name, Registry, Sandbox, SandboxState};
use serde_json::{Value, json};
use std::time::Duration;

/// Time that jobs have to end by themselves.
const GRACE_MS: u64 = 5_000;
/// Time that the guest has to reply after that.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Reason that is recorded for the stop.
const REASON: &str = "it was stopped with `glovebox stop`";

/// Stops each sandbox; a failure with one does not keep the others running.
pub(crate) fn run(cx: &Cx, args: &StopArgs) -> CommandResult {
    let mut names = super::names(&args.names)?;
    let registry = cx.user_registry()?;
    if args.all {
        names = registry
            .list()?
            .into_iter()
            .filter(|entry| entry.is_supervised && entry.state == SandboxState::Ready)
            .map(|entry| entry.name)
            .collect();
    }
    let grace_ms = args.grace.and_then(|span| span.0).unwrap_or(GRACE_MS);
    let mut stopped: Vec<Value> = Vec::new();
    let mut failure: Option<CommandError> = None;
    for name in names {
        // Ask git before the stop: git runs inside. A missing sandbox is reported below.
        let is_there = registry.entry(&name)?.is_some();
        let git = is_there.then(|| sync::git::find_named(&registry, &name));
        match stop(&registry, &name, grace_ms) {
            Ok(was) => {
                let git = git.unwrap_or_default();
                stopped.push(json!({ "name": name, "was": was, "git": git }));
                if !args.json {
                    cx.talk.note(if was == SandboxState::Ready {
                        format!(
                            "sandbox `{name}` is stopped; `glovebox start {name}` takes it up again"
                        )
                    } else {
                        format!("sandbox `{name}` does not run: it is {}", state_word(was))
                    });
                    if let Some(work) = git.filter(|_| !cx.talk.is_quiet) {
                        sync::git::tell_left(&name, &work);
                    }
                }
            }
            Err(error) => {
                several::keep_failure(cx, &mut failure, error);
            }
        }
    }
    let data = json!({ "stopped": stopped });
    match failure {
        None if args.json => {
            let message = plural(stopped.len(), "sandbox is stopped", "sandboxes are stopped");
            render::print(render::envelope(true, &message, &data))?;
            Ok(0)
        }
        None => Ok(0),
        Some(error) if args.json => {
            render::print(render::failure(&error, &data))?;
            Ok(error.exit_code())
        }
        Some(error) => Err(error),
    }
}

/// Stops one sandbox, and returns its previous state.
fn stop(registry: &Registry, name: &Name, grace_ms: u64) -> Result<SandboxState, CommandError> {
    let Some(entry) = registry.entry(name)? else {
        return Err(crate::sync::no_sandbox(name));
    };
    if matches!(entry.state, SandboxState::Stopped | SandboxState::Lost) {
        return Ok(entry.state);
    }
    let sandbox = registry.connect(name)?;
    let spec = registry.spec(name)?;
    let is_bound = spec
        .parent
        .as_ref()
        .is_some_and(|parent| !parent.is_survived);
    if !spec.keeps_files() || is_bound {
        let fault = Fault::failed(
            Code::Unsupported,
            format!("the files of `{name}` would go with its processes, so it was not stopped"),
        );
        return Err(fault
            .remedy(format!(
                "`glovebox pull {name}` brings its changes back; `glovebox kill {name}` ends it with all it holds"
            ))
            .into());
    }
    end_jobs(&sandbox, grace_ms);
    sandbox.stop(REASON)?;
    Ok(SandboxState::Ready)
}

/// Asks all jobs at once to end, and waits. Jobs that cannot be asked end with the sandbox.
fn end_jobs(sandbox: &Sandbox, grace_ms: u64) {
    let jobs = sandbox.jobs().unwrap_or_default();
    let wait = Duration::from_millis(grace_ms) + ANSWER_WAIT;
    std::thread::scope(|scope| {
        for info in &jobs {
            if matches!(info.state, JobState::Ended(_)) {
                continue;
            }
            let request = Request::JobKill {
                job: info.job,
                grace_ms,
            };
            scope.spawn(move || {
                let _ = sandbox.call_for(request, Some(wait));
            });
        }
    });
}
