//! `glovebox net log`: the network decisions of a running sandbox, once or continuously.

use super::{because, decision};
use crate::args::NetLogArgs;
use crate::cmd::{Cx, age};
use crate::exit::CommandResult;
use crate::render::{self, plural, table};
use glovebox_egress::{ConnectFailure, LogEntry};
use glovebox_proto::{Code, EgressReason, Fault};
use glovebox_sandbox::Name;
use glovebox_settings::units::human_bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that one request for more entries waits.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// Prints the log, or follows it.
pub(super) fn run(cx: &Cx, args: &NetLogArgs) -> CommandResult {
    let name = crate::cmd::name(&args.name)?;
    if args.follow {
        return follow(cx, args, &name);
    }
    let entries = cx.user_registry()?.network_log(&name, 0)?;
    if args.json {
        let message = plural(entries.len(), "decision", "decisions");
        let entries: Vec<Value> = entries.iter().map(entry_json).collect();
        let data = json!({ "sandbox": name, "entries": entries });
        render::print(render::envelope(true, &message, &data))?;
    } else if entries.is_empty() {
        cx.talk
            .note(format_args!("sandbox `{name}` has asked for nothing yet"));
    } else {
        let heading = [
            "AGE",
            "DECISION",
            "HOST",
            "SENT",
            "RECEIVED",
            "LASTED",
            "BECAUSE OF",
        ];
        let rows: Vec<Vec<String>> = entries.iter().map(entry_cells).collect();
        render::print(table(&heading, &rows))?;
    }
    Ok(0)
}

/// Prints every decision and every end of a connection while the sandbox runs.
fn follow(cx: &Cx, args: &NetLogArgs, name: &Name) -> CommandResult {
    let registry = cx.user_registry()?;
    // The first request must not wait: for a sandbox that does not exist it fails, and that is an
    // error and not an end.
    let mut entries = registry.network_changes(name, 0, Duration::ZERO)?;
    let mut seen = 0;
    loop {
        for entry in entries {
            if args.json {
                render::print(format_args!("{}\n", entry_json(&entry)))?;
            } else {
                render::print(format_args!("{}\n", change_line(&entry)))?;
            }
            seen = entry.change;
        }
        entries = match registry.network_changes(name, seen, FOLLOW_WAIT) {
            Ok(entries) => entries,
            Err(fault) if is_end_of_sandbox(&fault) => {
                cx.talk.note(format_args!("sandbox `{name}` has ended"));
                return Ok(0);
            }
            Err(fault) => return Err(fault.into()),
        };
    }
}

const fn is_end_of_sandbox(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::LinkLost | Code::SandboxNotRunning | Code::SandboxNotFound | Code::NotFound
    )
}

/// Formats one decision, or the end of a connection, with the time of day (UTC).
fn change_line(entry: &LogEntry) -> String {
    let when_ms = entry.when_unix_ms + entry.duration_ms.unwrap_or_default();
    let second = when_ms / 1000 % 86_400;
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let (event, what) = match (entry.failure, entry.duration_ms) {
        (Some(failure), _) => ("failed", failure.to_string()),
        (None, _) if entry.is_refused() => ("refused", decided_by(entry)),
        (None, None) => ("opened", decided_by(entry)),
        (None, Some(lasted_ms)) => (
            "closed",
            format!(
                "{} sent, {} received in {}",
                human_bytes(entry.sent_bytes),
                human_bytes(entry.received_bytes),
                in_seconds(lasted_ms)
            ),
        ),
    };
    format!(
        "{hours:02}:{minutes:02}:{seconds:02}Z  {event:7}  {}  {what}",
        place(entry)
    )
}

fn place(entry: &LogEntry) -> String {
    match entry.port {
        Some(port) => format!("{}:{port}", entry.host),
        None => entry.host.clone(),
    }
}

fn in_seconds(ms: u64) -> String {
    format!("{:.1}s", ms as f64 / 1000.0)
}

/// Names the rule or reason behind a decision.
fn decided_by(entry: &LogEntry) -> String {
    match &entry.withheld {
        Some(withheld) => format!("the secret {}: {}", withheld.secret, withheld.reason.word()),
        None => because(entry.refused, entry.rule.as_deref()),
    }
}

fn entry_json(entry: &LogEntry) -> Value {
    json!({
        "number": entry.number,
        "when_unix_ms": entry.when_unix_ms,
        "host": entry.host,
        "port": entry.port,
        "decision": decision(entry.is_refused()),
        "reason": reason_word(entry),
        "failure": entry.failure.map(ConnectFailure::word),
        "secret": entry.withheld.as_ref().map(|withheld| &withheld.secret),
        "rule": entry.rule,
        "sent_bytes": entry.sent_bytes,
        "received_bytes": entry.received_bytes,
        "duration_ms": entry.duration_ms,
    })
}

fn reason_word(entry: &LogEntry) -> Option<&'static str> {
    let withheld = entry.withheld.as_ref();
    let word = withheld.map(|withheld| withheld.reason.word());
    word.or_else(|| entry.refused.map(EgressReason::word))
}

fn entry_cells(entry: &LogEntry) -> Vec<String> {
    let was_looked_up_only = entry.failure.is_some() && entry.duration_ms.is_none();
    let is_connection = !entry.is_refused() && !was_looked_up_only;
    let bytes = |bytes| {
        if is_connection {
            human_bytes(bytes)
        } else {
            "-".to_owned()
        }
    };
    let lasted = match entry.duration_ms {
        Some(ms) => in_seconds(ms),
        None if is_connection => "open".to_owned(),
        None => "-".to_owned(),
    };
    let decided_by = decided_by(entry);
    vec![
        age(entry.when_unix_ms),
        decision(entry.is_refused()).to_owned(),
        place(entry),
        bytes(entry.sent_bytes),
        bytes(entry.received_bytes),
        lasted,
        match entry.failure {
            Some(failure) => format!("{decided_by}, but {failure}"),
            None => decided_by,
        },
    ]
}
