//! `glovebox net`: what sandboxes can be allowed to reach.

use crate::args::{NetAction, NetArgs, NetPresetsArgs};
use crate::exit::CommandResult;
use crate::render::{self, plural, table};
use glovebox_sandbox::egress::PRESETS;
use serde_json::{Value, json};

/// Does what is asked.
pub(crate) fn run(args: &NetArgs) -> CommandResult {
    match &args.action {
        NetAction::Presets(args) => presets(args),
    }
}

fn presets(args: &NetPresetsArgs) -> CommandResult {
    if args.json {
        let presets: Vec<Value> = PRESETS
            .iter()
            .map(
                |preset| json!({"name": preset.name, "about": preset.about, "rules": preset.rules}),
            )
            .collect();
        render::print(render::envelope(
            true,
            &plural(presets.len(), "preset", "presets"),
            &json!({ "presets": presets }),
        ))?;
    } else {
        let rows: Vec<Vec<String>> = PRESETS
            .iter()
            .map(|preset| {
                vec![
                    preset.name.to_owned(),
                    preset.about.to_owned(),
                    preset.rules.join(" "),
                ]
            })
            .collect();
        render::print(table(&["PRESET", "FOR", "HOSTS"], &rows))?;
    }
    Ok(0)
}
