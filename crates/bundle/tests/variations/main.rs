//! Variations in the form of bundles, and refusals with their codes and places.
//!
//! `rows` has a test for each variation; the other files test what several have in common.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bounds;
mod exports;
mod problems;
mod rows;
mod slices;
mod tools;
mod values;

use glovebox_bundle::{Extraction, Language, extract};
use std::fmt::Write as _;

const IMPORTS: &str = r#"import { createLightfast } from "lightfast/client";
import { createAgent } from "lightfast/agent";
import { createTool } from "lightfast/tool";
import { gateway } from "@ai-sdk/gateway";
import { tool, jsonSchema } from "ai";
import { z } from "zod";
"#;

fn read(source: &str) -> Extraction {
    extract(source, Language::JavaScript).unwrap()
}

fn complaints(extraction: &Extraction) -> String {
    extraction
        .errors()
        .fold(String::new(), |mut text, problem| {
            let _ = writeln!(text, "{}", problem.render("bundle.js"));
            text
        })
}

/// Returns a bundle with one agent; `before` precedes it, `fields` are its fields.
fn with_agent(before: &str, fields: &str) -> String {
    format!(
        "{IMPORTS}{before}\nconst agent = createAgent({{ {fields} }});\n\
         export default createLightfast({{ agents: {{ a: agent }} }});\n"
    )
}

/// Returns the system prompt that an expression evaluates to, or the complaints.
fn system(before: &str, expression: &str) -> Result<String, String> {
    let source = with_agent(
        before,
        &format!("name: 'a', model: gateway('m'), system: {expression}"),
    );
    let extraction = read(&source);
    match extraction.bundle.agents.first() {
        Some(agent) if extraction.errors().next().is_none() => Ok(agent.system.clone()),
        _ => Err(complaints(&extraction)),
    }
}

/// Extracts an agent whose tools are an expression.
fn tools(before: &str, expression: &str) -> Extraction {
    read(&with_agent(
        before,
        &format!("name: 'a', system: 's', model: 'm', tools: {expression}"),
    ))
}
