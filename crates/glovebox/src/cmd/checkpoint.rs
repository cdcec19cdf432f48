//! `glovebox checkpoint`, `checkpoints`, `restore` and `fork`: saved states of a sandbox's files.

use super::{Cx, age, run::supervisor};
use crate::args::{
    CheckpointAction, CheckpointArgs, CheckpointsArgs, ForkArgs, OneCheckpoint, RestoreArgs,
};
use crate::exit::CommandResult;
use crate::render::{self, escape_text, plural};
use glovebox_sandbox::Checkpoint;
use serde_json::{Value, json};

fn facts(checkpoint: &Checkpoint) -> Value {
    json!({
        "id": checkpoint.id,
        "created_unix_ms": checkpoint.created_unix_ms,
        "comment": checkpoint.comment,
        "parent": checkpoint.parent,
    })
}

/// Creates a checkpoint, or runs the action of the command line.
pub(crate) fn run(cx: &Cx, args: &CheckpointArgs) -> CommandResult {
    match &args.action {
        Some(CheckpointAction::Delete(args)) => delete(cx, &args.one),
        None => make(cx, args, &args.name),
    }
}

fn make(cx: &Cx, args: &CheckpointArgs, name: &str) -> CommandResult {
    let name = super::name(name)?;
    let registry = cx.user_registry()?;
    let taken = registry.checkpoint(&name, args.comment.as_deref(), args.live)?;
    let message = format!("checkpoint {} of sandbox `{name}` is made", taken.id);
    if args.json {
        let data = json!({ "sandbox": name, "checkpoint": facts(&taken) });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
    }
    Ok(0)
}

fn delete(cx: &Cx, one: &OneCheckpoint) -> CommandResult {
    let name = super::name(&one.name)?;
    let gone = cx.user_registry()?.delete_checkpoint(&name, &one.id)?;
    let message = format!("checkpoint {} of sandbox `{name}` is gone", gone.id);
    if one.json {
        let data = json!({ "sandbox": name, "checkpoint": facts(&gone) });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
    }
    Ok(0)
}

/// Lists the checkpoints of a sandbox.
pub(crate) fn list(cx: &Cx, args: &CheckpointsArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let found = cx.user_registry()?.checkpoints(&name)?;
    if args.json {
        let message = plural(found.list.len(), "checkpoint", "checkpoints");
        let list: Vec<Value> = found.list.iter().map(facts).collect();
        let data = json!({ "sandbox": name, "current": found.current, "checkpoints": list });
        render::print(render::envelope(true, &message, &data))?;
    } else if found.list.is_empty() {
        cx.talk.note(format_args!(
            "sandbox `{name}` has no checkpoints; `glovebox checkpoint {name}` makes one"
        ));
    } else {
        let row = |one: &Checkpoint| {
            let is_current = found.current.as_ref() == Some(&one.id);
            vec![
                format!("{}{}", one.id, if is_current { "*" } else { "" }),
                age(one.created_unix_ms),
                one.parent.clone().unwrap_or_else(|| "-".to_owned()),
                one.comment
                    .as_deref()
                    .map_or_else(|| "-".to_owned(), escape_text),
            ]
        };
        let rows: Vec<Vec<String>> = found.list.iter().map(row).collect();
        render::print(render::table(&["ID", "AGE", "AFTER", "COMMENT"], &rows))?;
    }
    Ok(0)
}

/// Restores a checkpoint.
pub(crate) fn restore(cx: &Cx, args: &RestoreArgs) -> CommandResult {
    let one = &args.one;
    let name = super::name(&one.name)?;
    let found = cx.user_registry()?.restore(&name, &one.id)?;
    let message = format!(
        "sandbox `{name}` is back at checkpoint {}; what was written since is gone, and what ran inside has ended",
        found.id
    );
    if one.json {
        let data = json!({ "sandbox": name, "checkpoint": facts(&found) });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
    }
    Ok(0)
}

/// Creates another sandbox from a checkpoint.
pub(crate) fn fork(cx: &Cx, args: &ForkArgs) -> CommandResult {
    let (name, new) = (super::name(&args.name)?, super::name(&args.new)?);
    let registry = cx.user_registry()?;
    // Read the secrets before anything is created: without them the fork could not start.
    let mut secrets = registry
        .spec(&name)
        .map_or_else(|_| Vec::new(), |spec| spec.secrets);
    if !args.no_start {
        glovebox_session::secrets::read(&mut secrets, &cx.host)?;
    }
    let mut forked = registry.fork(&name, &new, args.from.as_deref())?;
    let state = if args.no_start {
        "is made"
    } else {
        forked.spec.secrets = secrets;
        glovebox_session::spec::renew_upstream(&mut forked.spec, &cx.host);
        registry.start(&forked.spec, &new, &supervisor()?)?;
        "is ready"
    };
    let message = format!(
        "sandbox `{new}` {state}, with the files of `{name}` at checkpoint {}",
        forked.from.id
    );
    if args.json {
        let data = json!({
            "sandbox": new,
            "from": { "sandbox": name, "checkpoint": facts(&forked.from) },
        });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
        cx.talk.note(if args.no_start {
            format!("`glovebox start {new}` brings it up")
        } else {
            format!("`glovebox exec {new} -- COMMAND` runs something in it")
        });
    }
    Ok(0)
}
