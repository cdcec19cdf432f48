//! `glovebox bundle check`: the problems of a bundle.

use super::{ReadBundle, content, model, read, tool_names};
use crate::args::BundleCheckArgs;
use crate::cmd::Cx;
use crate::exit::CommandResult;
use crate::render::{self, escape_text, table};
use glovebox_bundle::ExtractedBy;
use serde_json::json;
use std::fmt::Write as _;

/// Reads the bundle and prints its problems.
pub(super) fn run(cx: &Cx, args: &BundleCheckArgs) -> CommandResult {
    tell(&read(cx, &args.bundle)?, args.json)
}

/// Prints the problems of a bundle, and its content.
pub(super) fn tell(read: &ReadBundle, is_json: bool) -> CommandResult {
    if read.error_count() > 0 {
        return read.refuse(is_json);
    }
    let bundle = &read.bundle;
    let content = content(bundle);
    let message = match read.counts() {
        None => format!("{}: {content}, nothing wrong", read.name),
        Some(counts) => format!("{}: {content}, {counts}", read.name),
    };
    if is_json {
        let mut data = read.problems_json();
        data["format"] = json!(bundle.format);
        data["extracted_by"] = json!(bundle.extracted_by);
        data["agents"] = bundle
            .agents
            .iter()
            .map(|agent| {
                let tools: Vec<&str> = agent.tools.iter().map(|tool| &*tool.name).collect();
                json!({ "key": agent.key, "name": agent.name, "model": agent.model, "tools": tools })
            })
            .collect();
        data["tools"] = bundle.tools.iter().map(|tool| &*tool.name).collect();
        render::print(render::envelope(true, &message, &data))?;
        return Ok(0);
    }
    let mut text = read.problems();
    text.push_str(&message);
    text.push('\n');
    if bundle.extracted_by == ExtractedBy::Execution {
        text.push_str("  it was run to be asked what it declares, and each tool runs all of it\n");
    }
    if bundle.agents.is_empty() {
        let _ = writeln!(text, "  {}", tool_names(&bundle.tools));
    } else {
        let rows: Vec<Vec<String>> = bundle
            .agents
            .iter()
            .map(|agent| {
                vec![
                    escape_text(&agent.key),
                    model(&agent.model),
                    tool_names(&agent.tools),
                ]
            })
            .collect();
        text.push_str(&table(&["AGENT", "MODEL", "TOOLS"], &rows));
    }
    render::print(text)?;
    Ok(0)
}
