//! `glovebox kill`: ends sandboxes and removes what they hold. Safe to repeat.

use super::Cx;
use crate::args::KillArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural};
use crate::sync::copied::{self, Remains};
use glovebox_sandbox::{Name, State};
use serde_json::{Value, json};

/// Ends each; a failure with one does not keep the others alive.
pub(crate) fn run(cx: &Cx, args: &KillArgs) -> CommandResult {
    // All names are checked before anything ends.
    let mut names = args
        .names
        .iter()
        .map(|text| super::name(text))
        .collect::<Result<Vec<Name>, _>>()?;
    let registry = cx.user_registry()?;
    if args.all {
        names = registry
            .list()?
            .into_iter()
            .map(|entry| entry.name)
            .collect();
    }
    names.dedup();
    let mut killed: Vec<Value> = Vec::new();
    let mut failure: Option<CommandError> = None;
    for name in names {
        let remains = copied::clean_named(&registry, &name);
        match registry.kill(&name) {
            Ok(what) => {
                let left = match &remains {
                    Remains::Left(dir) => Some(dir),
                    Remains::None | Remains::Removed => None,
                };
                killed.push(json!({
                    "name": name,
                    "was": what.was,
                    "forced": what.forced,
                    "left": left,
                }));
                if let Some(dir) = left {
                    cx.talk.warning(format_args!(
                        "the copy of the project stays where the carrier of `{name}` leads, in `{dir}`; \
                         remove it there"
                    ));
                }
                if !args.json {
                    cx.talk.note(match what.was {
                        State::Gone => format!("there is no sandbox `{name}`; nothing to do"),
                        _ => format!("sandbox `{name}` is gone"),
                    });
                }
            }
            Err(fault) => {
                let error = CommandError::from(fault);
                if let Some(earlier) = failure.replace(error) {
                    cx.talk.error(&earlier);
                }
            }
        }
    }
    if args.json {
        let message = plural(killed.len(), "sandbox is gone", "sandboxes are gone");
        let data = json!({ "killed": killed });
        match &failure {
            None => render::print(render::envelope(true, &message, &data))?,
            Some(error) => render::print(render::failure(error, &data))?,
        }
    }
    failure.map_or(Ok(0), Err)
}
