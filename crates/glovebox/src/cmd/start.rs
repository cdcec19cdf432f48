//! `glovebox start`: a named sandbox that stays.

use super::{Cx, run::supervisor, start_difference};
use crate::args::StartArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, Meter};
use crate::session::Signals;
use crate::sync::copied;
use glovebox_settings::Settings;
use glovebox_settings::WorkspaceMode;

use crate::wanted::{self, Wanted};
use glovebox_sandbox::{Backend, Started, State};
use serde_json::json;
use std::path::Path;

/// What is wanted of a sandbox that has a supervisor: its variables are its own, not those of a command.
pub(crate) fn wanted_named(
    cx: &Cx,
    settings: &Settings,
    project: &Path,
) -> Result<Wanted, CommandError> {
    let wall_ms = wanted::deadline_ms(settings);
    let mut wanted = wanted::wanted(settings, &cx.host, project, wall_ms)?;
    for var in wanted::command_env(settings.env.iter().map(|var| &var.value), &cx.host)? {
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| {
                CommandError::usage(
                    "a variable of a named sandbox must be UTF-8",
                    "give it to `glovebox exec` instead",
                )
            })
        };
        wanted
            .spec
            .jail
            .env
            .push((text(var.name.into_vec())?, text(var.value.into_vec())?));
    }
    if matches!(wanted.spec.backend, Backend::Command { .. }) && !settings.env.is_empty() {
        return Err(CommandError::usage(
            "variables cannot be given to a sandbox that lives elsewhere as a whole",
            "give them to each command with `glovebox exec --env`",
        ));
    }
    Ok(wanted)
}

/// Starts it, or finds it running.
pub(crate) fn run(cx: &Cx, args: &StartArgs) -> CommandResult {
    render::answer_failure(start(cx, args), args.json, || json!({ "name": args.name }))
}

fn start(cx: &Cx, args: &StartArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let (project, settings) = cx.project_settings(&args.sandbox)?;
    let wanted = wanted_named(cx, &settings, &project)?;
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
        && let Ok(report) = sandbox.report()
    {
        cx.announce_limits(&report, &settings);
    }
    if started == Started::Created && settings.workspace_mode() == WorkspaceMode::Copy {
        let signals = Signals::take_over()?;
        let sandbox = registry.connect(&name)?;
        let mut meter = Meter::new(cx.talk, args.json, &signals);
        let watch = &mut |progress| meter.tick(progress);
        let pushed = copied::push(&sandbox, &project, &settings, watch)?;
        super::push::tell(cx, &pushed);
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
