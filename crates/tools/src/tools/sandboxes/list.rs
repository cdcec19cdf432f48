//! Sandboxes: lists the child sandboxes of the session.

use super::children;
use crate::call::Call;
use crate::catalog::{Effect, Tool};
use crate::schedule::ScheduleLane;
use crate::{OutcomeView, ToolOutcome};
use glovebox_proto::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;

/// Arguments.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sandboxes {
    /// Only this one.
    #[serde(default)]
    name: Option<String>,
}

impl Tool for Sandboxes {
    const NAME: &'static str = "Sandboxes";
    const ALIASES: &'static [&'static str] = &["sandbox_list"];
    const DESCRIPTION: &'static str =
        "Lists the sandboxes that this session has made, and how they are.";
    const EFFECT: Effect = Effect::Reads;
    const IS_FOR_SCRIPTS: bool = false;

    fn lane(&self) -> ScheduleLane {
        ScheduleLane::Beside
    }

    fn run(self, call: &Call<'_>) -> Result<ToolOutcome, Fault> {
        let children = children(call)?;
        let only = self
            .name
            .map(|name| children.find(call.sandbox(), &name))
            .transpose()?;
        let mut text = String::new();
        let (mut rows, mut facts) = (Vec::new(), Vec::new());
        for child in children.list(call.sandbox())? {
            let entry = &child.entry;
            if only.as_ref().is_some_and(|only| *only != entry.name) {
                continue;
            }
            let end = if child.is_kept() {
                "kept"
            } else {
                "ends with this session"
            };
            let _ = writeln!(text, "{}  {}, {end}", entry.name, entry.state);
            rows.push(vec![
                entry.name.to_string(),
                entry.state.to_string(),
                end.to_owned(),
            ]);
            facts.push(json!({
                "sandbox": entry.name.as_str(),
                "state": entry.state,
                "kept": child.is_kept(),
            }));
        }
        if rows.is_empty() {
            text.push_str("[this session has made no sandboxes]");
        }
        Ok(
            ToolOutcome::ok(text, json!({ "sandboxes": facts })).with_view(OutcomeView::Table {
                columns: vec!["sandbox", "state", "end"],
                rows,
            }),
        )
    }
}
