//! What a model is advised to use it has: whatever its toolset leaves out, no message names it.

use crate::Fixture;
use crate::tools::{call, text, tools};
use glovebox_tools::policy::{Policy, PolicyGate, Toolset};
use glovebox_tools::{CATALOG, ToolSession};
use serde_json::{Value, json};
use std::sync::Arc;

/// Toolsets, from all to one tool.
const SETS: [&[&str]; 7] = [
    &[
        "Bash", "Job", "Read", "Write", "Edit", "List", "Glob", "Grep", "Code", "RunJS",
    ],
    &["Bash"],
    &["Read", "Grep"],
    &["Read", "List"],
    &["Read", "Glob", "Bash"],
    &["Bash", "Read"],
    &["Code", "Job"],
];

/// Calls whose answers advise something.
fn provocations() -> Vec<(&'static str, Value)> {
    vec![
        ("Bash", json!({ "command": "seq 100000" })),
        ("Bash", json!({ "command": "sleep 60", "background": true })),
        ("Bash", json!({ "command": "exit 3" })),
        ("Read", json!({ "path": "no/such/file" })),
        ("Read", json!({ "path": "nothing-like-it" })),
        ("Read", json!({ "path": "a.pdf" })),
        ("List", json!({ "limit": 1 })),
        ("Job", json!({ "action": "write", "id": 1, "input": "x" })),
        ("Job", json!({ "action": "wait", "id": 1, "wait_ms": 1 })),
        ("Job", json!({ "action": "wait", "id": 999 })),
        (
            "Code",
            json!({ "language": "bash", "source": format!("#{}", "x".repeat(200_000)) }),
        ),
        (
            "Code",
            json!({ "language": "bash", "source": "seq 100000" }),
        ),
        (
            "Code",
            json!({ "language": "bash", "source": "seq 100000", "session": "s" }),
        ),
        ("NoSuchTool", json!({})),
    ]
}

/// What is said of each call that this toolset has, and of one that nobody has.
fn said(tools: &ToolSession, set: &[&str]) -> Vec<String> {
    let is_made = |tool: &str| set.contains(&tool) || tool == "NoSuchTool";
    let calls = provocations().into_iter().filter(|(tool, _)| is_made(tool));
    calls
        .map(|(tool, arguments)| match call(tools, tool, arguments) {
            Ok(outcome) => outcome.text,
            Err(fault) => format!("{}: {:?}", fault.message, fault.remedy),
        })
        .collect()
}

pub(crate) fn only_tools_that_are_there_are_advised(fixture: &Fixture) {
    let all = tools(fixture);
    let make = "printf '%%PDF-1.4\\n\\0\\0' > a.pdf; touch b c; sleep 300 >/dev/null 2>&1 &";
    let _ = text(&all, "Bash", json!({ "command": make }));
    for set in SETS {
        let toolset = Toolset::parse("subset", set, "the test").unwrap();
        let gate = PolicyGate::new(Policy::new(toolset, Vec::new()));
        let tools = all.new_conversation().with_permit(Arc::new(gate));
        let said = said(&tools, set);
        for tool in CATALOG.iter().filter(|tool| !set.contains(&tool.name)) {
            let is_named = |text: &&String| {
                let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
                words.any(|word| word == tool.name)
            };
            let named = said.iter().find(is_named);
            assert_eq!(named, None, "{set:?}: {} is not there", tool.name);
        }
        // What is there is advised.
        let has = |tools: &[&str]| tools.iter().all(|tool| set.contains(tool));
        let advises = |words: &str| said.iter().any(|text| text.contains(words));
        assert_eq!(
            advises("waits for it"),
            has(&["Bash", "Job"]),
            "{set:?}: {said:?}"
        );
        assert_eq!(
            advises("find it with"),
            has(&["Read", "Glob"]) || has(&["Read", "List"]),
            "{set:?}: {said:?}"
        );
        assert_eq!(
            advises("pdftotext"),
            has(&["Read", "Bash"]),
            "{set:?}: {said:?}"
        );
    }
}
