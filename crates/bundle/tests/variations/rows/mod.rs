//! Numbered variations in the form of bundles, with a test each: accepted ones with their content,
//! and refused ones with code and place. Missing numbers were never assigned.

mod agents;
mod exports;
mod schemas;
mod tools;
mod values;

use crate::{complaints, read};
use glovebox_bundle::Extraction;

/// Argument of `createLightfast` with one agent `a` whose prompt is `s`.
const AGENTS: &str =
    "{ agents: { a: createAgent({ name: 'a', system: 's', model: gateway('m') }) } }";

/// CommonJS in place of `IMPORTS`.
const REQUIRES: &str = "const { createLightfast } = require('lightfast/client');
const { createAgent } = require('lightfast/agent');
const { createTool } = require('lightfast/tool');
const { gateway } = require('@ai-sdk/gateway');
const { tool, jsonSchema } = require('ai');
const { z } = require('zod');
";

/// Checks that the bundle is read without an error and has this agent.
#[track_caller]
fn accepted(source: &str) -> Extraction {
    let extraction = read(source);
    assert_eq!(complaints(&extraction), "", "{source}");
    assert!(
        extraction
            .bundle
            .agents
            .iter()
            .any(|agent| agent.key == "a"),
        "{source}"
    );
    extraction
}

/// Checks that an error has this code, path and source text, and that it comes with a hint.
#[track_caller]
fn refused(source: &str, code: &str, path: &str, text: &str) {
    let extraction = read(source);
    let said = complaints(&extraction);
    let Some(problem) = extraction
        .errors()
        .find(|problem| problem.code.as_str() == code && problem.path == path)
    else {
        panic!("no {code} at `{path}` in {source}\n{said}");
    };
    let line = source.lines().nth(problem.line as usize - 1).unwrap();
    let there: String = line.chars().skip(problem.column as usize - 1).collect();
    assert!(there.starts_with(text), "{there} is not at {text}: {said}");
    assert!(
        !problem.hint.is_empty() && !problem.snippet.is_empty(),
        "{said}"
    );
}

/// Checks that a warning contains these words.
#[track_caller]
fn warned(extraction: &Extraction, words: &str) {
    let mut reasons = extraction.warnings().map(|problem| &problem.reason);
    assert!(
        reasons.any(|reason| reason.contains(words)),
        "{words}: {:?}",
        extraction.problems
    );
}

/// Returns the only tool of the only agent.
#[track_caller]
fn tool(before: &str, declared: &str) -> glovebox_bundle::Tool {
    let extraction = crate::tools(before, &format!("{{ t: {declared} }}"));
    assert_eq!(complaints(&extraction), "", "{before} {declared}");
    extraction.bundle.agents[0].tools[0].clone()
}

/// Returns the JSON Schema of a zod expression.
#[track_caller]
fn schema(before: &str, expression: &str) -> serde_json::Value {
    let declared = format!("tool({{ inputSchema: {expression}, execute: () => 1 }})");
    serde_json::to_value(tool(before, &declared).input_schema).unwrap()
}
