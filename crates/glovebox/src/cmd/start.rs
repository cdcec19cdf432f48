//! `glovebox start`: a named sandbox that stays.

use super::{Cx, TerminalFrontend, run::supervisor, start_difference};
use crate::args::StartArgs;
use crate::exit::CommandResult;
use crate::render;
use crate::session::Signals;
use glovebox_sandbox::{Started, State};
use glovebox_session::{spec, work};
use glovebox_settings::WorkspaceMode;
use serde_json::json;

/// Starts it, or finds it running.
pub(crate) fn run(cx: &Cx, args: &StartArgs) -> CommandResult {
    render::answer_failure(start(cx, args), args.json, || json!({ "name": args.name }))
}

fn start(cx: &Cx, args: &StartArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let (project, settings) = cx.project_settings(&args.sandbox)?;
    let wanted =
        spec::resolve_supervised_spec(&settings, &cx.host, &project, spec::deadline_ms(&settings))?;
    cx.announce(&wanted, &settings, &project);
    let registry = cx.registry(&settings)?;
    if let Some(entry) = registry.entry(&name)?
        && matches!(entry.state, State::Stopped | State::Parked | State::Lost)
        && let Ok(has) = registry.spec(&name)
    {
        start_difference::check_project(&name, &has, &wanted)?;
    }
    let (entry, started) = registry.start(&wanted.spec, &name, &supervisor()?)?;
    if started == Started::Existing {
        let variables: Vec<String> = settings
            .env
            .iter()
            .map(|var| var.value.name.to_string_lossy().into_owned())
            .collect();
        start_difference::check(&name, &registry.spec(&name)?, &wanted, &variables)?;
    }
    let message = match started {
        Started::Created => format!("sandbox `{name}` is ready"),
        Started::Existing => format!("sandbox `{name}` runs already, with these settings"),
        Started::Resumed => format!("sandbox `{name}` is ready again, with the files it had"),
    };
    if started != Started::Existing
        && let Ok(sandbox) = registry.connect(&name)
    {
        work::notify_started(&TerminalFrontend::new(cx), &sandbox, &settings);
    }
    if started == Started::Created && settings.workspace_mode() == WorkspaceMode::Copy {
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
        if started == Started::Created {
            cx.talk.note(format_args!(
                "`glovebox exec {name} -- COMMAND` runs something in it"
            ));
        }
    }
    Ok(0)
}
