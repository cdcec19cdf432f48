//! Shared parts of commands on several sandboxes or caches: a failure with one does not stop the
//! others, removals are confirmed once, and there is one result.

use super::Cx;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::Signals;
use crate::sync::question;
use serde_json::Value;

/// Records the failure that the command will end with; an earlier one is printed now.
pub(super) fn keep_failure(cx: &Cx, failure: &mut Option<CommandError>, error: CommandError) {
    if let Some(earlier) = failure.replace(error) {
        cx.talk.error(&earlier);
    }
}

/// Asks before `what` is removed. `list` is the full list, `how_to_see` the command that displays
/// it.
///
/// # Errors
/// There is no terminal to ask on, or the answer is not yes.
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

/// Ends a command that removed things: prints one line for people or an object for programs, and
/// returns the last failure.
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
