//! `glovebox sessions`: earlier sessions of agents, and their continuation.

use super::agent::{AgentTerminal, Work, lay_phase, open_log, summary, workplace};
use super::{Cx, TerminalFrontend, age};
use crate::args::{
    ResumeArgs, SessionArgs, SessionDeleteArgs, SessionExportArgs, SessionForkArgs, SessionsAction,
    SessionsArgs, SessionsListArgs,
};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text, table};
use crate::streams::Signals;
use crate::sync::question;
use crate::sync::tell_discarded;
use glovebox_agent::{Event, Log, LoggedEvent, MessagePart, Placement, SessionInfo};
use glovebox_proto::Code;
use glovebox_sandbox::Name;
use glovebox_session::agent::{
    AgentRun, EarlierSession, find_model, has_own_sandbox, load_instructions,
};
use glovebox_session::sync::discard::count_named;
use glovebox_session::work::lay_local;
use glovebox_settings::Settings;
use serde_json::json;
use std::fmt::Write as _;

/// Maximum number of displayed characters of a task in the list.
const TASK_CHARS: usize = 60;

/// Runs the action of the command line.
pub(crate) fn run(cx: &Cx, args: &SessionsArgs) -> CommandResult {
    match &args.action {
        SessionsAction::List(args) => list(cx, args),
        SessionsAction::Show(args) => show(cx, args),
        SessionsAction::Export(args) => export(cx, args),
        SessionsAction::Resume(args) => resume(cx, args),
        SessionsAction::Fork(args) => fork(cx, args),
        SessionsAction::Delete(args) => delete(cx, args),
    }
}

fn log(cx: &Cx) -> Result<Log, CommandError> {
    open_log(cx, &cx.settings(None)?)
}

fn list(cx: &Cx, args: &SessionsListArgs) -> CommandResult {
    let sessions = log(cx)?.list()?;
    if args.json {
        let message = render::plural(sessions.len(), "session", "sessions");
        let data = json!({ "sessions": sessions });
        render::print(render::envelope(true, &message, &data))?;
        return Ok(0);
    }
    if sessions.is_empty() {
        cx.talk
            .note("there are no sessions; `glovebox agent TASK` begins one");
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .map(|session| {
            let first = session.task.lines().next().unwrap_or_default();
            let task: String = first.chars().take(TASK_CHARS).collect();
            vec![
                session.id.clone(),
                session.state.as_str().to_owned(),
                age(session.created_unix_ms),
                session.sandbox.clone().unwrap_or_else(|| "-".to_owned()),
                escape_text(&session.model),
                escape_text(&task),
            ]
        })
        .collect();
    render::print(table(
        &["SESSION", "STATE", "AGE", "SANDBOX", "MODEL", "TASK"],
        &rows,
    ))?;
    Ok(0)
}

fn show(cx: &Cx, args: &SessionArgs) -> CommandResult {
    let log = log(cx)?;
    let session = log.find(&args.session)?;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "session  {}\nstate    {}\nmodel    {}\nplace    {}{}\nproject  {}",
        session.id,
        session.state.as_str(),
        escape_text(&session.model),
        session.placement,
        session
            .sandbox
            .as_ref()
            .map_or_else(String::new, |name| format!(" {name}")),
        escape_text(&session.project.display().to_string()),
    );
    for logged in log.events(&session.id)? {
        describe(&mut text, logged.seq, &logged.event);
    }
    render::print(text)?;
    Ok(0)
}

fn describe(text: &mut String, seq: u64, event: &Event) {
    let mut block = |label: &str, words: &str| {
        let _ = writeln!(text, "\n[{seq}] {label}");
        for line in words.lines() {
            let _ = writeln!(text, "  {}", escape_text(line));
        }
    };
    match event {
        Event::Started { task, .. } => block("task", task),
        Event::Said { text } => block("said", text),
        Event::Resumed { model, .. } => block(&format!("resumed with {}", escape_text(model)), ""),
        Event::Answered { parts, turn, .. } => {
            let words: String = parts
                .iter()
                .filter_map(|part| match part {
                    MessagePart::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            block(&format!("answer {turn}"), &words);
        }
        Event::CallStarted {
            tool,
            arguments,
            server,
            ..
        } => {
            let place = super::agent::placed(server.as_ref());
            let tool = escape_text(tool);
            block(&format!("{tool}{place} {}", summary(arguments)), "");
        }
        Event::CallFinished { text, is_error, .. } => {
            block(if *is_error { "failed" } else { "came to" }, text);
        }
        Event::Compacted {
            summary, messages, ..
        } => block(
            &format!(
                "a summary stands for {}",
                render::plural(*messages, "message", "messages")
            ),
            summary,
        ),
        Event::SandboxStopped { sandbox, reason } => {
            block(&format!("sandbox {sandbox} was stopped"), reason);
        }
        Event::Ended {
            ending, message, ..
        } => block(&format!("ended: {ending:?}"), message),
        _ => {}
    }
}

fn export(cx: &Cx, args: &SessionExportArgs) -> CommandResult {
    let log = log(cx)?;
    let session = log.find(&args.session)?;
    for logged in log.events(&session.id)? {
        let line = serde_json::to_string(&logged).unwrap_or_default();
        render::print(format_args!("{line}\n"))?;
    }
    Ok(0)
}

fn fork(cx: &Cx, args: &SessionForkArgs) -> CommandResult {
    let log = log(cx)?;
    let session = log.find(&args.session)?;
    if let Some(at) = args.at
        && !args.without_files
    {
        require_same_files(&session, &log.events(&session.id)?, at)?;
    }
    let id = Name::random("s").to_string();
    log.fork(&session, &id, args.at)?;
    render::print(format_args!("{id}\n"))?;
    cx.talk.note(format_args!(
        "`glovebox sessions resume {id} TASK` goes on from there, in a sandbox of its own, on the project as it is \
         then"
    ));
    Ok(0)
}

/// Fails if the files may differ from those at event `at`. The files of a session are those of its
/// end, or lost; a fork of an earlier part would continue with other files than the model assumes.
fn require_same_files(
    session: &SessionInfo,
    events: &[LoggedEvent],
    at: u64,
) -> Result<(), CommandError> {
    // A new sandbox starts from the project, so changes up to `at` are missing. On the user's
    // machine the files are the present ones, so changes after `at` are too many.
    let is_local = session.placement == Placement::Local.as_str();
    let is_other = |seq: u64| if is_local { seq > at } else { seq <= at };
    let changes = events.iter().find(|logged| {
        let Event::CallFinished { tool, facts, .. } = &logged.event else {
            return false;
        };
        let is_read_only = glovebox_tools::find(tool).is_ok_and(|tool| tool.is_read_only);
        let is_refused = facts
            .get("fault")
            .is_some_and(|fault| fault == Code::PermissionDenied.as_str());
        is_other(logged.seq) && !is_read_only && !is_refused
    });
    let Some(change) = changes else {
        return Ok(());
    };
    let (seq, when) = (change.seq, if is_local { "after it" } else { "by then" });
    Err(CommandError::usage(
        format!(
            "the files as they were at event {at} are not kept: event {seq} may have changed some {when}"
        ),
        if is_local {
            "pass --without-files to go on with your files as they are now"
        } else {
            "pass --without-files to go on with the project as it is now; the model is told that its changes are gone"
        },
    ))
}

fn delete(cx: &Cx, args: &SessionDeleteArgs) -> CommandResult {
    let log = log(cx)?;
    let registry = cx.user_registry()?;
    for name in &args.sessions {
        let session = log.find(name)?;
        let events = log.events(&session.id)?;
        let is_own = has_own_sandbox(&session, events.iter().map(|logged| &logged.event));
        log.delete(&session.id)?;
        if let Some(sandbox) = session.sandbox
            && let Ok(sandbox) = Name::parse(&sandbox)
        {
            if is_own {
                let discarded = count_named(&cx.host, &registry, &sandbox);
                registry.kill(&sandbox)?;
                tell_discarded(cx.talk, &discarded, &format!(" with {sandbox}"));
            } else if registry.entry(&sandbox)?.is_some() {
                cx.talk.note(format_args!(
                    "the sandbox {sandbox} stays; `glovebox kill {sandbox}` removes it"
                ));
            }
        }
        cx.talk.note(format_args!("session {} is gone", session.id));
    }
    Ok(0)
}

fn resume(cx: &Cx, args: &ResumeArgs) -> CommandResult {
    let log = log(cx)?;
    let earlier = EarlierSession::open(&log, &args.session)?;
    let id = &earlier.info.id;
    if earlier.is_done() && args.task.is_none() {
        return Err(CommandError::usage(
            format!("session {id} was done: there is nothing to go on with"),
            format!("say what is to be done further: glovebox sessions resume {id} TASK"),
        ));
    }
    let (phase, project) = (earlier.phase(), earlier.info.project.clone());
    let mut settings = settings(cx, args, &earlier.info)?;
    lay_phase(&mut settings, phase.as_deref())?;
    let settings = settings;
    let is_local = earlier.is_local();
    if is_local && !args.yes && !question::is_possible() {
        return Err(CommandError::usage(
            "there is no terminal to ask on before each change",
            "pass --yes",
        ));
    }
    let mut model = find_model(&cx.host, &settings, Some(&earlier.info.model))?;
    model.learn_window();
    model.model.skip(earlier.conversation.turns as usize);
    let frontend = TerminalFrontend::new(cx);
    let instructions = load_instructions(&cx.host, &frontend, &settings, &project)?;
    let signals = Signals::take_over()?;
    let (mut place, is_new) = workplace::reopen(cx, &settings, &earlier, &signals)?;
    place.find_again(earlier.context());
    let work = Work {
        cx,
        run: AgentRun {
            host: &cx.host,
            settings: &settings,
            project: &project,
            model: &model,
            phase: phase.as_deref(),
            addition: earlier.addition(),
            instructions,
            is_asked: is_local && !args.yes,
            is_yes: args.yes,
            is_kept: !is_new && earlier.info.sandbox.is_some() && !earlier.has_own_sandbox(),
        },
        terminal: AgentTerminal::new(cx, &signals, args.json),
        apply: args.apply,
        is_json: args.json,
        signals: &signals,
    };
    workplace::start_servers(cx, &mut place, &settings, &project, &signals)?;
    let (run, terminal, words) = (&work.run, &work.terminal, args.task.as_deref());
    let session = run.take_up(&place, terminal, log, earlier, is_new, words)?;
    work.banner(&place, &session.id);
    work.carry_out(place, session)
}

/// Returns the settings of the session's project, with the flags of this command.
fn settings(cx: &Cx, args: &ResumeArgs, info: &SessionInfo) -> Result<Settings, CommandError> {
    if !info.project.is_dir() {
        return Err(CommandError::usage(
            format!(
                "the project {} is not there any more",
                info.project.display()
            ),
            "bring it back, or begin a new session",
        ));
    }
    let mut settings = cx.load_settings(Some(&info.project))?;
    settings.lay_agent_flags(&args.limits.to_flags(args.model.as_deref()));
    settings.lay_no_instructions(args.no_instructions);
    if info.placement == Placement::Local.as_str() {
        lay_local(&mut settings);
    }
    let is_outside_native = settings.is_outside_native();
    cx.require_consent(&mut settings, is_outside_native)?;
    Ok(settings)
}
