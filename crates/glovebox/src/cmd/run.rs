//! `glovebox run`: one command in a sandbox of its own.

use super::run_json::Captured;
use super::{Cx, command_words, destroy, exit_code, explain_limits};
use crate::args::{Apply, RunArgs, WorkspaceMode};
use crate::config::Settings;
use crate::exit::{CONFLICT, CommandError, CommandResult, Kind};
use crate::render::{self, Meter};
use crate::session::{self, Ended, InputFrom, OnSignal, Passthrough, RawMode, Signals, carry};
use crate::sync::after::{self, After, Settled, When};
use crate::sync::{BaseIndex, copied};
use crate::wanted::{self, Wanted};
use glovebox_proto::{Code, Exec, Fault, Request, Stdin, limits::MAX_TIMEOUT_MS};
use glovebox_sandbox::{Registry, Report, Sandbox, Started, Supervisor};
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
    if args.json {
        return super::run_json::run(cx, args);
    }
    run_command(cx, args, None)
}

/// Runs the command; what it writes goes to our own streams, or is kept.
pub(super) fn run_command(
    cx: &Cx,
    args: &RunArgs,
    mut captured: Option<&mut Captured>,
) -> CommandResult {
    let command = command_words(&args.command, "glovebox run -- make test")?;
    let keep = args.keep.as_deref().map(super::name).transpose()?;
    let (project, settings) = cx.project_settings(&args.sandbox)?;
    if !settings.can_collect() {
        refuse_meaningless(args, &settings)?;
    }
    let timeout_ms = wanted::deadline_ms(&settings, (!args.tty).then_some(USUAL_TIMEOUT_MS));
    let wall_ms = timeout_ms
        .filter(|_| keep.is_none())
        .map(|ms| (ms + WALL_MARGIN_MS).min(MAX_TIMEOUT_MS));
    let Wanted { spec, .. } = &{
        let wanted = wanted::wanted(&settings, &cx.host, &project, wall_ms)?;
        if !args.explain {
            cx.announce(&wanted, &settings, &project);
        }
        wanted
    };
    if args.explain {
        render::print(glovebox_sandbox::explain(spec)?)?;
        return Ok(0);
    }
    let mut exec = Exec {
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
    let when = When::of(args, &settings);
    // A supervisor writes the index of its sandbox by itself.
    let index = (keep.is_none() && when != When::Never)
        .then(|| BaseIndex::begin(sandbox.workspace_layers().ok()?))
        .flatten();
    let report = sandbox.report();
    if let Ok(report) = &report {
        cx.announce_limits(report, &settings);
    }
    if let (Some((file, path)), Ok(report)) = (report_file, &report) {
        write_report(file, path, report)?;
    }
    if settings.workspace_mode() == WorkspaceMode::Copy {
        let mut meter = Meter::new(cx.talk, false, &signals);
        let watch = &mut |progress| meter.tick(progress);
        let pushed = copied::push(&sandbox, &project, &settings, watch)?;
        super::push::tell(cx, &pushed);
    }
    if exec.cwd.is_none() {
        exec.cwd = copied::start_dir(&sandbox);
    }
    signals.check()?;

    let ended = match &mut captured {
        Some(captured) => captured.carry(&sandbox, exec, &signals),
        None => stand_in(&sandbox, exec, args.tty, &signals),
    };
    let code = match ended {
        Ok(Ended::Exited(report)) => {
            explain_limits(cx.talk, &report, timeout_ms, settings.memory.value.0);
            Ok(exit_code(&report))
        }
        Ok(Ended::Detached) => Ok(0),
        Err(error) => Err(super::name_the_flag(error)),
    };
    // Whatever was not written down by now is done without.
    drop(index);
    let kept_as = keep.as_ref().map(glovebox_sandbox::Name::as_str);
    let settled = if settings.can_collect() && !matches!(&code, Err(error) if is_gone(error)) {
        let after = After {
            when,
            patch: args.patch.as_deref(),
            kept_as,
            is_still: keep.is_none(),
            can_stay: settings.has_layers_on_disk(),
            is_success: matches!(code, Ok(0)),
        };
        after::settle(cx, &sandbox, &settings, after, &signals)
    } else {
        Ok(Settled::Done)
    };
    match (kept_as, &settled) {
        (Some(name), _) => cx.talk.note(format_args!(
            "the sandbox is kept: `glovebox exec {name} -- COMMAND`, `glovebox attach {name}`, `glovebox kill {name}`"
        )),
        (None, Ok(Settled::Done | Settled::Conflicts)) => {
            copied::clean(&sandbox);
            destroy(cx.talk, sandbox);
        }
        (None, Ok(Settled::Keep)) => keep_for_later(cx, sandbox, "its changes were kept for later"),
        (None, Err(error)) => {
            // Without these words the work would be lost without anybody noticing.
            cx.talk.error(error);
            keep_for_later(cx, sandbox, "its changes could not be taken over");
        }
    }
    match (code, settled) {
        (Ok(0), Ok(Settled::Conflicts)) => Ok(CONFLICT),
        (Ok(0), Err(error)) => Ok(error.stand_in_code()),
        (code, _) => code,
    }
}

/// Whether there is no sandbox any more whose changes could be looked at.
fn is_gone(error: &CommandError) -> bool {
    error.kind == Kind::Lost
}

/// Stops a sandbox and keeps its files under the name it has.
fn keep_for_later(cx: &Cx, sandbox: Arc<Sandbox>, reason: &str) {
    let name = sandbox.info().name.clone();
    // The signal thread lets go of it as soon as the command has ended.
    let kept = Arc::into_inner(sandbox).map(|sandbox| sandbox.keep(reason));
    match kept {
        Some(Ok(())) => cx.talk.warning(format_args!(
            "the sandbox is kept, your files are as before: `glovebox diff {name}`, `glovebox pull {name}`, \
             `glovebox kill {name}`"
        )),
        Some(Err(fault)) => cx.talk.warning(format_args!(
            "the sandbox could not be kept ({}); its changes are gone",
            render::escape_text(&fault.message)
        )),
        None => cx.talk.warning("the sandbox is still in use; its changes are gone"),
    }
}

/// Runs `exec` with our own streams as the command's.
pub(super) fn stand_in(
    sandbox: &Arc<Sandbox>,
    mut exec: Exec,
    is_tty: bool,
    signals: &Signals,
) -> Result<Ended, CommandError> {
    let mut sink = if is_tty {
        Passthrough::on_terminal()
    } else {
        Passthrough::default()
    };
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

/// Where commands write to the project itself, or there is none, nothing can be taken over.
fn refuse_meaningless(args: &RunArgs, settings: &Settings) -> Result<(), CommandError> {
    let flag = [
        (
            args.apply.is_some_and(|apply| apply != Apply::Never),
            "apply",
        ),
        (args.patch.is_some(), "patch"),
        (args.sync_on_success, "sync-on-success"),
    ]
    .into_iter()
    .find_map(|(is_given, flag)| is_given.then_some(flag));
    let Some(flag) = flag else {
        return Ok(());
    };
    let mode = settings.workspace_mode();
    Err(CommandError::usage(
        format!(
            "--{flag} has no meaning with the backend `{}` and the workspace `{}`",
            settings.backend.value.as_str(),
            mode.as_str()
        ),
        "leave it out, or use the native backend with --workspace overlay",
    ))
}

/// A sandbox that stays: it runs under its own supervisor from the start.
pub(super) fn keep_under(
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
pub(crate) fn supervisor() -> Result<Supervisor, CommandError> {
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
