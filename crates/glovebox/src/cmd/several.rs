//! What commands on several sandboxes or caches have in common: a failure stops none of the others, what goes is
//! agreed to once, and the answer is one.

use super::Cx;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::Signals;
use crate::sync::question;
use serde_json::Value;

/// Keeps the failure that the command will end with; one from before is said now.
pub(super) fn keep_failure(cx: &Cx, failure: &mut Option<CommandError>, error: CommandError) {
    if let Some(earlier) = failure.replace(error) {
        cx.talk.error(&earlier);
    }
}

/// Asks before `what` goes. `list` tells what that is in full, `how_to_see` where it can be looked at.
///
/// # Errors
/// Without a terminal to ask on, and when the answer is not yes.
pub(super) fn agree_to_remove(
    cx: &Cx,
    what: &str,
    how_to_see: &str,
    list: &str,
) -> Result<(), CommandError> {
    if !question::is_possible() {
        return Err(CommandError::usage(
            format!("{what} would be removed, and there is no terminal to ask on"),
            format!("say so with --yes; {how_to_see}"),
        ));
    }
    cx.talk.note(list.trim_end());
    let signals = Signals::take_over()?;
    match question::ask("remove them? [y]es, [n]o", &['y', 'n'], &signals) {
        Some('y') => Ok(()),
        _ => Err(CommandError::interrupted()),
    }
}

/// The end of a command that removed things: one line for people or for programs, and the last failure.
pub(super) fn answer_removal(
    cx: &Cx,
    is_json: bool,
    message: &str,
    data: &Value,
    failure: Option<CommandError>,
) -> CommandResult {
    if !is_json {
        cx.talk.note(message);
        return failure.map_or(Ok(0), Err);
    }
    match failure {
        None => {
            render::print(render::envelope(true, message, data))?;
            Ok(0)
        }
        Some(error) => {
            render::print(render::failure(&error, data))?;
            Ok(error.exit_code())
        }
    }
}
