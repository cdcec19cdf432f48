//! `glovebox config`: each setting and its origin, and trust in project files.

use super::{Cx, trust};
use crate::args::{ConfigAction, ConfigArgs, ConfigExplainArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text};
use glovebox_session::host;
use glovebox_settings::{Settings, keys};
use serde_json::{Map, Value, json};

/// Runs the action of the command line.
pub(crate) fn run(cx: &Cx, args: &ConfigArgs) -> CommandResult {
    match &args.action {
        ConfigAction::Explain(args) => explain(cx, args),
        ConfigAction::Trust(args) => trust::trust(cx, args),
        ConfigAction::Untrust(args) => trust::untrust(cx, args),
        ConfigAction::Trusted(args) => trust::trusted(cx, args),
    }
}

fn explain(cx: &Cx, args: &ConfigExplainArgs) -> CommandResult {
    // Outside a project the user's own configuration is still explained.
    let project = host::project_dir(&cx.host).ok();
    let mut settings = cx.load_settings(project.as_deref())?;
    settings.lay_flags(&args.sandbox.to_flags());
    cx.look_up_consent(&mut settings)?;
    if args.json {
        let data = json!({
            "settings": as_json(cx, &settings)?,
            "project": project,
            "project_file": trust::project_file_json(cx, &settings)?,
        });
        render::print(render::envelope(true, "configuration", &data))?;
        return Ok(0);
    }
    let mut rows = Vec::new();
    for key in keys() {
        let mut shown = shown(cx, &settings, key.name)?;
        if shown.is_empty() {
            shown.push(("-".to_owned(), "default".to_owned()));
        }
        for (index, (value, origin)) in shown.into_iter().enumerate() {
            let name = if index == 0 { key.name } else { "" };
            rows.push(vec![
                name.to_owned(),
                escape_text(&value),
                escape_text(&origin),
            ]);
        }
    }
    let table = render::table(&["KEY", "VALUE", "FROM"], &rows);
    render::print(format_args!(
        "{}{table}",
        trust::describe_project_file(cx, &settings)?
    ))?;
    Ok(0)
}

fn shown(cx: &Cx, settings: &Settings, key: &str) -> Result<Vec<(String, String)>, CommandError> {
    if key == "state" && settings.state.value.is_none() {
        return Ok(vec![(
            cx.state_dir(settings)?.display().to_string(),
            "default".to_owned(),
        )]);
    }
    Ok(settings
        .shown(key)
        .into_iter()
        .map(|(value, origin)| (value, origin.to_string()))
        .collect())
}

fn as_json(cx: &Cx, settings: &Settings) -> Result<Value, CommandError> {
    let mut object = Map::new();
    for key in keys() {
        let values: Vec<Value> = shown(cx, settings, key.name)?
            .into_iter()
            .map(|(value, origin)| json!({ "value": value, "from": origin }))
            .collect();
        object.insert(key.name.to_owned(), values.into());
    }
    Ok(Value::Object(object))
}
