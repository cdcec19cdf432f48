//! `glovebox list`: all sandboxes of this user.

use super::{Cx, age, service};
use crate::args::ListArgs;
use crate::exit::CommandResult;
use crate::render::{self, escape_text, plural};
use glovebox_sandbox::{RegistryEntry, SandboxState};
use glovebox_settings::units::human_bytes;
use serde_json::{Value, json};

/// Prints the list.
pub(crate) fn run(cx: &Cx, args: &ListArgs) -> CommandResult {
    if args.service.is_given() {
        return service::list(cx, &args.service, args.json);
    }
    let registry = cx.user_registry()?;
    let entries = registry.list()?;
    let size = |entry: &RegistryEntry| registry.disk_bytes(&entry.name).ok().flatten();
    if args.json {
        let message = plural(entries.len(), "sandbox", "sandboxes");
        let sandboxes: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let mut told = json!(entry);
                told["disk_bytes"] = size(entry).into();
                told
            })
            .collect();
        render::print(render::envelope(
            true,
            &message,
            &json!({ "sandboxes": sandboxes }),
        ))?;
    } else if entries.is_empty() {
        cx.talk
            .note("there are no sandboxes; `glovebox start NAME` makes one");
    } else {
        let rows: Vec<Vec<String>> = entries
            .iter()
            .map(|entry| row(entry, size(entry)))
            .collect();
        render::print(render::table(
            &[
                "NAME",
                "STATE",
                "BACKEND",
                "AGE",
                "SIZE",
                "PID",
                "WORKSPACE",
            ],
            &rows,
        ))?;
        if entries
            .iter()
            .any(|entry| entry.state == SandboxState::Parked)
        {
            cx.talk.note(
                "parked are changes nobody has decided about: `glovebox pull NAME` takes them over, `glovebox kill \
                 NAME` drops them; they stay for a day",
            );
        }
    }
    Ok(0)
}

fn row(entry: &RegistryEntry, bytes: Option<u64>) -> Vec<String> {
    let dash = || "-".to_owned();
    vec![
        entry.name.to_string(),
        state_word(entry.state).to_owned(),
        if entry.backend.is_empty() {
            dash()
        } else {
            escape_text(&entry.backend)
        },
        age(entry.created_unix_ms),
        bytes.map_or_else(dash, human_bytes),
        entry.pid.map_or_else(dash, |pid| pid.to_string()),
        entry.workspace.as_deref().map_or_else(dash, escape_text),
    ]
}

/// Returns the word for a state.
pub(super) const fn state_word(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Starting => "starting",
        SandboxState::Ready => "ready",
        SandboxState::Stopped => "stopped",
        SandboxState::Parked => "parked",
        SandboxState::Lost => "lost",
        SandboxState::Gone => "gone",
    }
}
