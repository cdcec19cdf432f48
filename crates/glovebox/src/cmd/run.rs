//! `glovebox run`: one command in a sandbox of its own.

use super::{Cx, command_words, destroy, exit_code, explain_limits};
use crate::args::RunArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, Talk};
use crate::session::{self, Ended, InputFrom, OnSignal, Passthrough, RawMode, Signals, carry};
use crate::wanted::{self, Wanted};
use glovebox_proto::{Code, Exec, Fault, Request, Stdin, limits::MAX_TIMEOUT_MS};
use glovebox_sandbox::{Backend, Registry, Report, Sandbox, Started, Supervisor};
use serde_bytes::ByteBuf;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Deadline of a command that nobody set one for and nobody sits before.
const USUAL_TIMEOUT_MS: u64 = 300_000;
/// The sandbox outlives its command's deadline by this much, so that the deadline is what is reported.
const WALL_MARGIN_MS: u64 = 10_000;

/// Runs the command.
pub(crate) fn run(cx: &Cx, args: &RunArgs) -> CommandResult {
    let command = command_words(&args.command, "glovebox run -- make test")?;
    let keep = args.keep.as_deref().map(super::name).transpose()?;
    let (project, settings) = cx.project_settings(&args.sandbox)?;
    let timeout_ms = wanted::deadline_ms(&settings, (!args.tty).then_some(USUAL_TIMEOUT_MS));
    let wall_ms = timeout_ms
        .filter(|_| keep.is_none())
        .map(|ms| (ms + WALL_MARGIN_MS).min(MAX_TIMEOUT_MS));
    let Wanted { spec, .. } = &{
        let wanted = wanted::wanted(&settings, &cx.host, &project, wall_ms)?;
        if !args.explain {
            cx.announce(&wanted);
        }
        wanted
    };
    if args.explain {
        render::print(glovebox_sandbox::explain(spec)?)?;
        return Ok(0);
    }
    let exec = Exec {
        cwd: args
            .cwd
            .as_ref()
            .map(|cwd| ByteBuf::from(cwd.as_os_str().as_bytes())),
        env: wanted::command_env(settings.env.iter().map(|var| &var.value), &cx.host)?,
        timeout_ms,
        ..Exec::new(command.iter().map(|word| word.as_bytes().to_vec()))
    };
    Request::Exec(exec.clone()).validate()?;
    let report_file = args.report.as_deref().map(create_report).transpose()?;

    let signals = Signals::take_over()?;
    let registry = cx.registry(&settings)?;
    let sandbox = match &keep {
        None => registry.create(spec, None)?,
        Some(name) => keep_under(&registry, spec, name)?,
    };
    let sandbox = Arc::new(sandbox);
    let report = sandbox.report();
    if let Ok(report) = &report {
        cx.announce_limits(report, &settings);
    }
    if let (Some((file, path)), Ok(report)) = (report_file, &report) {
        write_report(file, path, report)?;
    }
    signals.check()?;

    let ended = stand_in(&sandbox, exec, args.tty, &signals);
    let code = match ended {
        Ok(Ended::Exited(report)) => {
            explain_limits(cx.talk, &report, timeout_ms, settings.memory.value.0);
            Ok(exit_code(&report))
        }
        Ok(Ended::Detached) => Ok(0),
        Err(error) => Err(super::name_the_flag(error)),
    };
    if code.is_ok()
        && (cx.talk.is_terminal || cx.talk.is_verbose)
        && matches!(spec.backend, Backend::Native)
    {
        show_changes(
            cx.talk,
            &sandbox,
            keep.as_ref().map(glovebox_sandbox::Name::as_str),
        );
    }
    match keep {
        None => destroy(cx.talk, sandbox),
        Some(name) => cx.talk.note(format_args!(
            "the sandbox is kept: `glovebox exec {name} -- COMMAND`, `glovebox attach {name}`, `glovebox kill {name}`"
        )),
    }
    code
}

/// Runs `exec` with our own streams as the command's.
pub(super) fn stand_in(
    sandbox: &Arc<Sandbox>,
    mut exec: Exec,
    is_tty: bool,
    signals: &Signals,
) -> Result<Ended, CommandError> {
    let mut sink = Passthrough::default();
    let (input, raw) = if is_tty {
        exec.pty = Some(session::terminal_size());
        exec.stdin = Stdin::Stream;
        (InputFrom::Stdin, Some(RawMode::enter()?))
    } else if session::is_null_device() {
        (InputFrom::Nothing, None)
    } else {
        exec.stdin = Stdin::Stream;
        (InputFrom::Stdin, None)
    };
    let ended = carry(
        sandbox,
        Request::Exec(exec),
        input,
        OnSignal::PassOn,
        signals,
        &mut sink,
    );
    drop(raw);
    ended
}

/// A sandbox that stays: it runs under its own supervisor from the start.
fn keep_under(
    registry: &Registry,
    spec: &glovebox_sandbox::SandboxSpec,
    name: &glovebox_sandbox::Name,
) -> Result<Sandbox, CommandError> {
    let taken = || {
        let fault = Fault::refused(
            Code::AlreadyExists,
            format!("there is a sandbox `{name}` already"),
        );
        fault.remedy(format!(
            "run in it with `glovebox exec {name} -- COMMAND`, or choose another name"
        ))
    };
    if registry.entry(name)?.is_some() {
        return Err(taken().into());
    }
    match registry.start(spec, name, &supervisor()?)? {
        (_, Started::Created) => Ok(registry.connect(name)?),
        (_, Started::Existing | Started::Resumed) => Err(taken().into()),
    }
}

/// How to start a supervisor: this very program.
pub(super) fn supervisor() -> Result<Supervisor, CommandError> {
    let exe =
        std::env::current_exe().map_err(|error| CommandError::io("find this program", &error))?;
    // After an upgrade the path leads to another program or to none; the link leads to this one.
    let exe = if exe.exists() {
        exe
    } else {
        "/proc/self/exe".into()
    };
    Ok(Supervisor { exe })
}

fn create_report(path: &Path) -> Result<(File, &Path), CommandError> {
    let file = File::create(path).map_err(|error| {
        CommandError::io(format!("write the report to {}", path.display()), &error)
    })?;
    Ok((file, path))
}

fn write_report(mut file: File, path: &Path, report: &Report) -> Result<(), CommandError> {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    file.write_all(text.as_bytes()).map_err(|error| {
        CommandError::io(format!("write the report to {}", path.display()), &error)
    })
}

fn show_changes(talk: Talk, sandbox: &Sandbox, kept_as: Option<&str>) {
    let Ok(changes) = sandbox.changes() else {
        return;
    };
    if changes.is_empty() || talk.is_quiet {
        return;
    }
    talk.note(render::changes(&changes).trim_end());
    if kept_as.is_none() {
        talk.note("your files are as before and these changes are gone; `--keep NAME` keeps them in a named sandbox");
    }
}
