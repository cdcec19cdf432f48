//! `glovebox rename`: gives a stopped sandbox another name.

use super::Cx;
use crate::args::RenameArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render;
use serde_json::json;

/// Renames the sandbox.
pub(crate) fn run(cx: &Cx, args: &RenameArgs) -> CommandResult {
    let data = json!({ "name": args.name, "new": args.new });
    match rename(cx, args) {
        Ok(()) => {
            let message = format!("sandbox `{}` is called `{}` now", args.name, args.new);
            if args.json {
                render::print(render::envelope(true, &message, &data))?;
            } else {
                cx.talk.note(message);
            }
            Ok(0)
        }
        Err(error) => render::answer_failure(Err(error), args.json, || data),
    }
}

fn rename(cx: &Cx, args: &RenameArgs) -> Result<(), CommandError> {
    let (name, new) = (super::name(&args.name)?, super::name(&args.new)?);
    Ok(cx.user_registry()?.rename(&name, &new)?)
}
