//! What a bundle may be written like, and what is refused with which code and where.
//!
//! `rows` has one test for each variation; the other files go through what a kind of them has in common.

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

/// A bundle around one agent; `before` stands above it, `fields` in it.
fn with_agent(before: &str, fields: &str) -> String {
    format!(
        "{IMPORTS}{before}\nconst agent = createAgent({{ {fields} }});\n\
         export default createLightfast({{ agents: {{ a: agent }} }});\n"
    )
}

/// The system prompt that an expression gives.
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

/// Agents' tools from an expression.
fn tools(before: &str, expression: &str) -> Extraction {
    read(&with_agent(
        before,
        &format!("name: 'a', system: 's', model: 'm', tools: {expression}"),
    ))
}
