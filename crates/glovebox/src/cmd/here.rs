//! Resolves `.`, or a missing name, to the sandbox of the project that contains the current
//! directory.

use super::{Cx, age, list::state_word};
use crate::exit::CommandError;
use crate::render::{self, escape_text};
use crate::sync::question;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::RegistryEntry;
use serde_json::json;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Name that stands for the sandbox of the project; also the default.
pub(super) const HERE: &str = ".";
/// Maximum number of sandboxes to choose from; the newest are offered.
const MAX_CHOICES: usize = 9;

/// Replaces `.` by the name of a sandbox. Returns an exit code if that failed and the failure has
/// been printed as JSON.
///
/// # Errors
/// `sandbox-not-found` if there is none; a usage error if there are several and no user can be
/// asked.
pub(crate) fn settle(
    cx: &Cx,
    name: &mut String,
    is_json: bool,
) -> Result<Option<u8>, CommandError> {
    if name != HERE {
        return Ok(None);
    }
    match find(cx) {
        Ok(found) => {
            if !is_json {
                cx.talk.note(format_args!("the sandbox {found}"));
            }
            *name = found;
            Ok(None)
        }
        Err(error) if is_json => {
            render::print(render::failure(&error, &json!({ "name": null })))?;
            Ok(Some(error.exit_code()))
        }
        Err(error) => Err(error),
    }
}

fn find(cx: &Cx) -> Result<String, CommandError> {
    let project = glovebox_session::host::project_dir(&cx.host)?;
    let shown = project.to_string_lossy();
    let mut found: Vec<RegistryEntry> = cx
        .user_registry()?
        .list()?
        .into_iter()
        .filter(|entry| entry.workspace.as_deref() == Some(&*shown))
        .collect();
    found.sort_by_key(|entry| Reverse(entry.created_unix_ms));
    match found.as_slice() {
        [] => {
            let fault = Fault::failed(
                Code::SandboxNotFound,
                format!("no sandbox works on {}", cx.short(&project)),
            );
            let remedy = "`glovebox list` shows what there is; `glovebox start NAME` makes one";
            Err(fault.remedy(remedy).into())
        }
        [one] => Ok(one.name.to_string()),
        several => choose(several),
    }
}

/// Asks the user to choose one of several sandboxes, the newest first.
fn choose(entries: &[RegistryEntry]) -> Result<String, CommandError> {
    const SENTENCE: &str = "several sandboxes work on this project";
    let choices: Vec<String> = (1..=MAX_CHOICES)
        .zip(entries)
        .map(|(number, entry)| {
            format!(
                "{number}  {}  {}, {} old",
                entry.name,
                state_word(entry.state),
                age(entry.created_unix_ms)
            )
        })
        .collect();
    if !question::is_possible() {
        let remedy = "name the one that is meant; `glovebox list` shows all";
        return Err(CommandError::usage(SENTENCE, remedy).details(choices));
    }
    let count = choices.len();
    let digits: Vec<char> = ('1'..='9').take(count).collect();
    let mut asked = format!("{SENTENCE}:");
    for choice in &choices {
        let _ = write!(asked, "\n  {}", escape_text(choice));
    }
    let _ = write!(asked, "\nwhich one? [1-{count}]");
    question::choose_before_start(&asked, &digits)
        .and_then(|digit| digit.to_digit(10))
        .and_then(|digit| entries.get(digit as usize - 1))
        .map(|entry| entry.name.to_string())
        .ok_or_else(CommandError::interrupted)
}
