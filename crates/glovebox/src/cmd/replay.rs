//! `glovebox replay`: repeats a session with its recorded model responses in a new sandbox.

use super::agent::{View, lay_phase, open_log, workplace};
use super::{Cx, TerminalFrontend};
use crate::args::ReplayArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::{Signals, StopWatch};
use glovebox_agent::{
    AgentLoop, Conversation, Ending, Event, Message, NoApproval, Placement, RecordedModel,
    ReplayComparison, RunLimits, Secrets, StopSignal, compare,
};
use glovebox_session::agent::{AgentWorkplace, find_changed_since};
use glovebox_settings::SandboxFlags;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Replays the session and compares the results of its calls.
pub(crate) fn run(cx: &Cx, args: &ReplayArgs) -> CommandResult {
    let log = open_log(cx, &cx.settings(None)?)?;
    let info = log.find(&args.session).map_err(CommandError::from)?;
    let recorded: Vec<Event> = log
        .events(&info.id)?
        .into_iter()
        .map(|logged| logged.event)
        .collect();
    drop(log);
    let project = match &args.project {
        Some(dir) => cx.host.absolute(dir),
        None => info.project.clone(),
    };
    let mut settings = cx.load_settings(Some(&project))?;
    settings.lay_flags(&SandboxFlags::default());
    let phase = recorded.iter().find_map(|event| match event {
        Event::Started { phase, .. } => phase.as_deref(),
        _ => None,
    });
    lay_phase(&mut settings, phase)?;
    let is_outside_native = settings.is_outside_native();
    cx.require_consent(&mut settings, is_outside_native)?;
    let signals = Signals::take_over()?;
    let place = workplace::open(cx, &settings, &project, Placement::Sandbox, None, &signals)?;
    cx.talk.note(format_args!(
        "replaying session {} in sandbox {}",
        info.id,
        place.work.sandbox().info().name
    ));
    let mut view = View::new(cx, None, args.json);
    view.collect();
    let is_whole = play(&place, &recorded, &mut view, &signals);
    place.end(&TerminalFrontend::new(cx));
    let began = UNIX_EPOCH + Duration::from_millis(info.created_unix_ms);
    let outcome = compare(&recorded, &view.events);
    let (is_same, message, data) = match outcome {
        Ok(compared) => (
            is_whole,
            if is_whole {
                words(compared)
            } else {
                "the replay was interrupted".to_owned()
            },
            json!({
                "session": info.id,
                "calls": compared.same,
                "interrupted_calls": compared.interrupted,
            }),
        ),
        Err(other) => (
            false,
            format!(
                "call {} ({}) came to something else",
                other.call,
                render::escape_text(&other.tool)
            ),
            json!({
                "session": info.id,
                "call": other.call,
                "tool": other.tool,
                "before": other.before,
                "now": other.now,
                "changed_since": find_changed_since(&project, &recorded, began),
            }),
        ),
    };
    if args.json {
        render::print(render::envelope(is_same, &message, &data))?;
    } else {
        cx.talk.note(&message);
        if !is_same {
            for side in ["before", "now"] {
                let text = data[side].as_str().unwrap_or("(not called)");
                for line in text.lines().take(20) {
                    cx.talk
                        .note(format_args!("{side:6} | {}", render::escape_text(line)));
                }
            }
            if let Some(note) = changed_since_note(&data["changed_since"], &info.id, began) {
                cx.talk.note(note);
            }
        }
    }
    Ok(u8::from(!is_same))
}

fn words(compared: ReplayComparison) -> String {
    let same = render::plural(compared.same, "call", "calls");
    if compared.interrupted == 0 {
        return format!("{same} came to the same");
    }
    let interrupted = render::plural(compared.interrupted, "call", "calls");
    format!("{same} came to the same; {interrupted} had been interrupted, and cannot be compared")
}

/// Describes the files of the project that have changed since the session, and how to restore them:
/// in a working tree at the commit of that time. None if there are none.
fn changed_since_note(changed: &Value, session: &str, began: SystemTime) -> Option<String> {
    let changed: Vec<String> = changed
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .map(render::escape_text)
        .collect();
    let (shown, rest) = changed.split_at(changed.len().min(3));
    let shown = shown.join(", ");
    let more = match rest.len() {
        0 if shown.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let second = began
        .duration_since(UNIX_EPOCH)
        .map_or(0, |at| at.as_secs());
    Some(format!(
        "the project has changed since: {shown}{more}; `git worktree add DIR \"$(git rev-list -1 --before={second} HEAD)\"` \
         has what was committed then, and `glovebox replay --project DIR {session}` plays it there"
    ))
}

/// Plays all recorded responses. Returns true if it reached the end of them.
fn play(
    place: &AgentWorkplace,
    recorded: &[Event],
    view: &mut View<'_>,
    signals: &Signals,
) -> bool {
    let model = RecordedModel::new(recorded, "replay");
    let tools = place.tools();
    // The recorded system prompt, with the date and the instructions of that time.
    let system = recorded.iter().find_map(|event| match event {
        Event::Started { system, .. } => Some(system.clone()),
        _ => None,
    });
    let system = system.unwrap_or_default();
    let stop = StopSignal::default();
    let wish = stop.clone();
    signals.work(StopWatch(Box::new(move |_| wish.ask())));
    let head = AgentLoop {
        model: &model,
        tools: &tools,
        approve: &NoApproval,
        system: &system,
        limits: RunLimits {
            max_turns: None,
            max_time: None,
            max_tokens: None,
            needs_token_counts: false,
            max_cost_usd: None,
        },
        price: None,
        budget: glovebox_agent::ContextBudget::default(),
        secrets: &Secrets::default(),
        stop,
    };
    let task = recorded.iter().find_map(|event| match event {
        Event::Started { task, .. } => Some(task.clone()),
        _ => None,
    });
    let mut conversation = Conversation::new(task.unwrap_or_default());
    loop {
        let left = model.left();
        if left == 0 {
            break;
        }
        let verdict = head.run(&mut conversation, view);
        // No progress: the events cannot be written any longer, and the loop would never end.
        if model.left() == left {
            break;
        }
        match verdict.ending {
            Ending::Lost | Ending::Aborted => break,
            // The recording of a run that broke off ends this way.
            Ending::Failed | Ending::StoppedByLimit if model.left() == 0 => break,
            Ending::Completed | Ending::Failed | Ending::StoppedByLimit => {}
        }
        let text = "[goes on as recorded]".to_owned();
        conversation.messages.push(Message::User { text });
    }
    signals.rest();
    model.left() == 0
}
