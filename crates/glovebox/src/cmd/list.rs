//! `glovebox list`: all sandboxes of this user.

use super::{Cx, age};
use crate::args::ListArgs;
use crate::exit::CommandResult;
use crate::render::{self, escape_text, plural};
use glovebox_sandbox::{Entry, State};
use serde_json::json;

/// Prints the list.
pub(crate) fn run(cx: &Cx, args: &ListArgs) -> CommandResult {
    let entries = cx.user_registry()?.list()?;
    if args.json {
        let message = plural(entries.len(), "sandbox", "sandboxes");
        render::print(render::envelope(
            true,
            &message,
            &json!({ "sandboxes": entries }),
        ))?;
    } else if entries.is_empty() {
        cx.talk
            .note("there are no sandboxes; `glovebox start NAME` makes one");
    } else {
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        render::print(render::table(
            &["NAME", "STATE", "BACKEND", "AGE", "PID", "WORKSPACE"],
            &rows,
        ))?;
    }
    Ok(0)
}

fn row(entry: &Entry) -> Vec<String> {
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
        entry.pid.map_or_else(dash, |pid| pid.to_string()),
        entry.workspace.as_deref().map_or_else(dash, escape_text),
    ]
}

/// The word for a state.
pub(super) const fn state_word(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Ready => "ready",
        State::Stopped => "stopped",
        State::Lost => "lost",
        State::Gone => "gone",
    }
}
