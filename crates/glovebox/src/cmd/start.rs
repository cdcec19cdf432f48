//! `glovebox start`: a named sandbox that stays.

use super::{Cx, TerminalFrontend, run::supervisor};
use crate::args::StartArgs;
use crate::exit::CommandResult;
use crate::render;
use crate::streams::Signals;
use glovebox_sandbox::StartOutcome;
use glovebox_sandbox::WorkspaceMode;
use glovebox_session::spec;
use glovebox_session::work::{self, WorkContext};
use serde_json::json;
use std::sync::Arc;

/// Starts the sandbox, or finds it running.
pub(crate) fn run(cx: &Cx, args: &StartArgs) -> CommandResult {
    render::answer_failure(start(cx, args), args.json, || json!({ "name": args.name }))
}

fn start(cx: &Cx, args: &StartArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let (project, mut settings) = cx.project_settings(&args.sandbox)?;
    let state_dir = cx.state_dir(&settings)?;
    let fitted = spec::fit_file_systems(&mut settings, &project, &state_dir)?;
    let settings = settings;
    let registry = Arc::new(cx.registry(&settings)?);
    let caller = WorkContext {
        host: &cx.host,
        registry: &registry,
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    let (entry, started) = work::start_named(&caller, &settings, &project, &name, fitted)?;
    let message = match started {
        StartOutcome::Created => format!("sandbox `{name}` is ready"),
        StartOutcome::Existing => format!("sandbox `{name}` runs already, with these settings"),
        StartOutcome::Resumed => format!("sandbox `{name}` is ready again, with the files it had"),
    };
    if started == StartOutcome::Created && settings.workspace_mode() == WorkspaceMode::Copy {
        let signals = Signals::take_over()?;
        let sandbox = registry.connect(&name)?;
        let frontend = TerminalFrontend::stoppable(cx, &signals, args.json);
        work::push_project(&frontend, &sandbox, &settings, &project)?;
    }
    if args.json {
        render::print(render::envelope(
            true,
            &message,
            &json!({ "started": started, "sandbox": entry }),
        ))?;
    } else {
        cx.talk.note(message);
        if started == StartOutcome::Created {
            cx.talk.note(format_args!(
                "`glovebox exec {name} -- COMMAND` runs something in it"
            ));
        }
    }
    Ok(0)
}
