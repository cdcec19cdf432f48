//! `glovebox run`: one command in a sandbox of its own.

use super::descriptors::{find_missing, open_descriptors, tell_missing};
use super::limit_end::{self, WallNote};
use super::park::{self, ParkOutcome};
use super::run_json::CapturedRun;
use super::{Cx, TerminalFrontend, command_words, exit_code};
use crate::args::{Apply, RunArgs};
use crate::exit::{CONFLICT, CommandError, CommandResult, Kind, OWN_FAILURE};
use crate::render;
use crate::streams::{
    self, CallerDescriptors, InputFrom, OnSignal, Passthrough, RawMode, Signals, StreamsEnd,
    TerminalPlan, carry,
};
use crate::sync::settle::{self, ApplyWhen, SettleOptions, SettleOutcome};
use crate::sync::{BaseIndex, copied};
use glovebox_proto::{Exec, Request, Stdin, TerminalUse, limits::MAX_TIMEOUT_MS};
use glovebox_sandbox::{Name, Registry, Report, Sandbox, Supervisor};
use glovebox_session::host::below;
use glovebox_session::spec::{self, ResolvedSpec};
use glovebox_session::sync::kept::{self, KeptChanges};
use glovebox_session::work;
use glovebox_settings::Settings;
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Time by which the sandbox's own limit exceeds the command's timeout, so that the timeout is
/// reported.
const WALL_MARGIN_MS: u64 = 10_000;

/// Runs the command.
pub(crate) fn run(cx: &Cx, args: &RunArgs) -> CommandResult {
    if args.json {
        return super::run_json::run(cx, args);
    }
    run_command(cx, args, None)
}

/// Runs the command. Its output goes to the streams of this process, or is kept in `captured`.
pub(super) fn run_command(
    cx: &Cx,
    args: &RunArgs,
    mut captured: Option<&mut CapturedRun>,
) -> CommandResult {
    let command = command_words(&args.command, "glovebox run -- make test")?;
    let descriptors = open_descriptors(&args.fd, &args.command)?;
    let given = descriptors.numbers();
    let keep = args.keep.as_deref().map(super::name).transpose()?;
    let (project, mut settings) = cx.project_settings(&args.sandbox)?;
    let state_dir = cx.state_dir(&settings)?;
    let fitted = spec::fit_file_systems(&mut settings, &project, &state_dir)?;
    let settings = settings;
    if !settings.can_collect() {
        refuse_meaningless(args, &settings)?;
    }
    let timeout_ms = spec::deadline_ms(&settings);
    let wall_ms = timeout_ms
        .filter(|_| keep.is_none())
        .map(|ms| (ms + WALL_MARGIN_MS).min(MAX_TIMEOUT_MS));
    let ResolvedSpec { spec, hidden, .. } = &{
        let mut wanted = spec::resolve_spec(&settings, &cx.host, &project, wall_ms)?;
        wanted.notes.extend(fitted);
        wanted.spec.parks_changes =
            settings.can_collect() && keep.is_none() && args.apply != Some(Apply::Discard);
        if !args.explain {
            cx.announce(&wanted, &settings, &project);
        }
        wanted
    };
    if args.explain {
        render::print(glovebox_sandbox::backend::explain(spec)?)?;
        return Ok(0);
    }
    let mut exec = Exec {
        cwd: args
            .cwd
            .as_ref()
            .map(|cwd| ByteBuf::from(cwd.as_os_str().as_bytes())),
        env: spec::command_env(settings.env.iter().map(|var| &var.value), &cx.host)?,
        timeout_ms,
        umask: cx.host.umask(),
        ..Exec::new(command.iter().map(|word| word.as_bytes().to_vec()))
    };
    Request::Exec(exec.clone()).validate()?;
    // Create the file now: a path that cannot be written must fail before the command runs.
    let report_file = args.report.as_deref().map(create_report).transpose()?;

    // Handle signals before the sandbox exists: by default they would end the process without
    // removing it.
    let signals = Signals::take_over_all()?;
    let registry = cx.registry(&settings)?;
    let sandbox = match &keep {
        None => registry.create(spec, Some(Name::random("run")))?,
        Some(name) => work::start_new(&registry, spec, name, &supervisor()?)?,
    };
    let sandbox = Arc::new(sandbox);
    let when = settle::when_of(args, &settings);
    // A supervisor writes the index of its own sandbox.
    let index = (keep.is_none() && (when != ApplyWhen::Discard || args.patch.is_some()))
        .then(|| BaseIndex::begin(sandbox.workspace_layers().ok()?))
        .flatten();
    let report = sandbox.report();
    if let Ok(report) = &report {
        cx.announce_limits(report, &settings);
    }
    if let (Some((file, path)), Ok(report)) = (report_file, &report) {
        write_report(file, path, report)?;
    }
    let frontend = TerminalFrontend::stoppable(cx, &signals, false);
    work::push_project(&frontend, &sandbox, &settings, &project)?;
    if exec.cwd.is_none() {
        exec.cwd = copied::start_dir(&sandbox).map(|root| {
            let start_dir = cx.host.start_dir(&project);
            let root = below(Path::new(OsStr::from_bytes(&root)), &start_dir);
            ByteBuf::from(root.as_os_str().as_bytes())
        });
    }
    signals.check()?;

    let kept_changes = (keep.is_none() && settings.can_collect())
        .then(|| KeptChanges::begin(&sandbox))
        .flatten();
    let ended = if let Some(captured) = &mut captured {
        captured.carry(&sandbox, exec, descriptors, &signals)
    } else {
        let terminal = TerminalPlan::resolve(args.tty, args.no_tty);
        let keys = InputFrom::Keys;
        stand_in(&sandbox, exec, terminal, keys, true, descriptors, &signals)
    };
    // Dropping stops both threads and waits for them; the collection below works without their
    // unfinished part.
    drop(index);
    drop(kept_changes);
    let mut walls = Vec::new();
    let (code, loss) = match ended {
        Ok(StreamsEnd::Exited(report)) => {
            walls = limit_end::met_walls(&sandbox, &report, timeout_ms, || Some(spec.clone()));
            limit_end::explain(cx.talk, &report, &walls);
            tell_missing(cx, &find_missing(&sandbox, &report, &given));
            (exit_code(&report), None)
        }
        Ok(StreamsEnd::Detached(_)) => (0, None),
        Err(error) => {
            let (code, kind) = (error.stand_in_code(), error.kind);
            match &mut captured {
                Some(captured) => captured.failure = Some(error),
                // Print it now: the next output may be a question about the command's changes.
                None if kind != Kind::Interrupted => cx.talk.error(&error),
                None => {}
            }
            (code, Some(kind))
        }
    };
    let names_hidden = walls.iter().any(WallNote::is_hidden_file);
    if let Some(captured) = &mut captured {
        captured.walls = walls;
    }
    if code != 0
        && !names_hidden
        && let Some(line) = super::hidden_note::after_failure(hidden)
    {
        cx.talk.note(line);
    }
    let lost_copy = find_lost_copy(cx, &sandbox, loss);
    let settled = if lost_copy == Some(LostCopy::Kept) {
        Ok(SettleOutcome::Undecided(None))
    } else if settings.can_collect() && lost_copy.is_none() {
        let options = SettleOptions {
            when,
            has_patch: args.patch.is_some(),
            is_shown: cx.talk.is_watched(),
            kept_as: keep.as_ref().map(Name::as_str),
            is_still: keep.is_none(),
            can_stay: settings.backend.value.has_layers(),
            takes_ignored: args.ignored,
            is_success: code == 0,
        };
        let patch = args.patch.as_deref();
        settle::settle(cx, &sandbox, &settings, options, patch, &signals)
    } else {
        Ok(SettleOutcome::Done)
    };
    if lost_copy == Some(LostCopy::Left) {
        if let Some(sandbox) = Arc::into_inner(sandbox) {
            sandbox.keep("its machine could not be reached")?;
        }
        return Ok(code);
    }
    Ok(match keep {
        Some(name) => leave_kept(cx, &registry, &name, code, settled),
        None => leave(cx, sandbox, code, settled),
    })
}

/// Removes a sandbox that was created for one command, or parks or keeps it with its changes.
/// Returns the exit code.
fn leave(
    cx: &Cx,
    sandbox: Arc<Sandbox>,
    code: u8,
    settled: Result<SettleOutcome, CommandError>,
) -> u8 {
    let (park, failure) = match settled {
        Ok(settled @ (SettleOutcome::Done | SettleOutcome::Conflicts)) => {
            copied::clean(&sandbox);
            work::take_down(&TerminalFrontend::new(cx), sandbox);
            return exit_code_of(code, settled);
        }
        Ok(SettleOutcome::Keep) => {
            park::keep(
                cx,
                sandbox,
                "its changes were kept for later",
                "your files are as before",
            );
            return code;
        }
        Ok(SettleOutcome::KeepRest) => {
            let files = "what you left out is in it";
            park::keep(cx, sandbox, "part of its changes was kept for later", files);
            return code;
        }
        Ok(SettleOutcome::Undecided(count)) => (
            park::park(cx, sandbox, "nobody decided about its changes", count),
            None,
        ),
        Ok(settled @ SettleOutcome::LeftOut(count)) => {
            let reason = "changes that conflict are not in the patch";
            return match park::park(cx, sandbox, reason, Some(count)) {
                ParkOutcome::Failed if code == 0 => OWN_FAILURE,
                _ => exit_code_of(code, settled),
            };
        }
        Ok(settled @ SettleOutcome::Unplaced(count)) => {
            let reason = "the sandbox's versions of some conflicts have no place on the host";
            return match park::park(cx, sandbox, reason, Some(count)) {
                ParkOutcome::Failed if code == 0 => OWN_FAILURE,
                _ => exit_code_of(code, settled),
            };
        }
        Ok(settled @ SettleOutcome::GitStays { .. }) => {
            let reason = "git work stays in it";
            return match park::park(cx, sandbox, reason, Some(0)) {
                ParkOutcome::Failed if code == 0 => OWN_FAILURE,
                _ => exit_code_of(code, settled),
            };
        }
        Err(error) => {
            // Without this message the user would not notice that the changes were not applied.
            cx.talk.error(&error);
            let reason = "its changes could not be taken over";
            (park::park(cx, sandbox, reason, None), Some(error))
        }
    };
    match (code, park, failure) {
        (0, _, Some(error)) => error.stand_in_code(),
        (0, ParkOutcome::Failed, None) => OWN_FAILURE,
        (code, ..) => code,
    }
}

/// Names a sandbox that stays under a name. Returns the exit code.
fn leave_kept(
    cx: &Cx,
    registry: &Registry,
    name: &Name,
    code: u8,
    settled: Result<SettleOutcome, CommandError>,
) -> u8 {
    if matches!(registry.entry(name), Ok(Some(_))) {
        cx.talk.note(format_args!(
            "the sandbox is kept: `glovebox exec {name} -- COMMAND`, `glovebox attach {name}`, `glovebox kill {name}`"
        ));
    }
    match settled {
        Ok(settled) => exit_code_of(code, settled),
        Err(error) => {
            cx.talk.error(&error);
            if code == 0 {
                error.stand_in_code()
            } else {
                code
            }
        }
    }
}

fn exit_code_of(code: u8, settled: SettleOutcome) -> u8 {
    if code == 0
        && matches!(
            settled,
            SettleOutcome::Conflicts
                | SettleOutcome::LeftOut(_)
                | SettleOutcome::Unplaced(_)
                | SettleOutcome::GitStays { is_refused: true }
        )
    {
        CONFLICT
    } else {
        code
    }
}

/// State of the changes in a copy that cannot be reached any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LostCopy {
    /// The changes were fetched some time before.
    Kept,
    /// The changes are on the other machine, which can be reached again later.
    Left,
    /// The changes are lost.
    Gone,
}

/// Returns the state of the changes if they are in an unreachable copy, and reports it. None if
/// they are not.
fn find_lost_copy(cx: &Cx, sandbox: &Sandbox, loss: Option<Kind>) -> Option<LostCopy> {
    if loss != Some(Kind::Lost) || copied::CopyOrigin::read(sandbox.dir()).is_none() {
        return None;
    }
    let place = match copied::start_dir(sandbox) {
        Some(_) => format!(
            "; the copy of the project stays where it is, in `{}`",
            sandbox.info().name.directory_elsewhere()
        ),
        None => String::new(),
    };
    match kept::keep_last(sandbox) {
        Ok(Some(fetched)) => {
            let age = fetched.elapsed().unwrap_or_default().as_secs();
            cx.talk.warning(format_args!(
                "the sandbox is lost; what the command had changed {age} s ago is kept here{place}"
            ));
            return Some(LostCopy::Kept);
        }
        Ok(None) => {}
        Err(error) => cx.talk.error(&error.into()),
    }
    if sandbox.info().backend.capabilities().keeps_files {
        let name = &sandbox.info().name;
        cx.talk.warning(format_args!(
            "what the command changed is still on that machine: `glovebox pull {name}` goes back to it, `glovebox \
             kill {name}` drops it"
        ));
        return Some(LostCopy::Left);
    }
    cx.talk.warning(format_args!(
        "what the command changed cannot be collected any more{place}"
    ));
    Some(LostCopy::Gone)
}

/// Runs `exec` with the streams of this process. `keys` decides whether Ctrl-\ detaches from a
/// command with a terminal; `has_stdin` is true if the command may read standard input.
pub(super) fn stand_in(
    sandbox: &Arc<Sandbox>,
    mut exec: Exec,
    terminal: TerminalPlan,
    keys: InputFrom,
    has_stdin: bool,
    descriptors: CallerDescriptors,
    signals: &Signals,
) -> Result<StreamsEnd, CommandError> {
    exec.merge = streams::is_output_one_place();
    let has_stdin = match terminal {
        TerminalPlan::Whole | TerminalPlan::Beside([true, ..]) => false,
        TerminalPlan::Beside(_) | TerminalPlan::Without => has_stdin && !streams::is_null_device(),
    };
    let mut input = InputFrom::Nothing;
    if has_stdin {
        exec.stdin = Stdin::Stream;
        input = InputFrom::Stdin;
    }
    let mut sink = Passthrough::default();
    let mut raw = None;
    match terminal {
        TerminalPlan::Without => {}
        TerminalPlan::Whole => {
            exec.pty = Some(streams::terminal_size());
            exec.stdin = Stdin::Stream;
            input = keys;
            sink = Passthrough::on_terminal(Some(false));
            raw = Some(RawMode::enter()?);
        }
        TerminalPlan::Beside(terminals) => {
            exec.pty = Some(streams::terminal_size());
            exec.terminal_use = TerminalUse {
                streams: terminals,
                is_foreground: false,
            };
            sink = Passthrough::on_terminal(match terminals {
                [_, true, _] => Some(false),
                [_, _, true] => Some(true),
                _ => None,
            });
        }
    }
    let ended = carry(
        sandbox,
        Request::Exec(exec),
        input,
        descriptors,
        OnSignal::PassOn,
        signals,
        &mut sink,
    );
    drop(raw);
    ended
}

/// Refuses flags that apply changes if there are none to apply: commands write to the project
/// itself, or there is no project.
fn refuse_meaningless(args: &RunArgs, settings: &Settings) -> Result<(), CommandError> {
    let flag = [
        (
            args.apply.is_some_and(|apply| apply != Apply::Discard),
            "apply",
        ),
        (args.patch.is_some(), "patch"),
        (args.sync_on_success, "sync-on-success"),
        (args.ignored, "ignored"),
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

/// Returns the program that is started as supervisor: this one.
pub(crate) fn supervisor() -> Result<Supervisor, CommandError> {
    let exe =
        std::env::current_exe().map_err(|error| CommandError::io("find this program", &error))?;
    // After an upgrade the path names another program or none; the link always names this one.
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
