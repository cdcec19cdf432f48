//! `~` in the arguments of tools: the home of commands, for rules as for files.

use crate::Fixture;
use crate::fixture::marker;
use crate::tools::{call, text, tools};
use glovebox_proto::Code;
use glovebox_tools::policy::{Effect, Policy, PolicyGate, Rule, Toolset};
use serde_json::json;
use std::sync::Arc;

pub(crate) fn a_tilde_is_the_home_of_commands(fixture: &Fixture) {
    let all = tools(fixture);
    let dir = format!("~/.glovebox-test-{}", marker());
    let file = format!("{dir}/file");
    let _ = text(&all, "Write", json!({ "path": file, "content": "kept\n" }));
    let shown = text(
        &all,
        "Bash",
        json!({ "command": format!("cat {file}; echo at:$HOME") }),
    );
    let home = shown.split("at:").nth(1).unwrap().lines().next().unwrap();
    assert!(shown.starts_with("kept\n"), "{shown}");
    assert!(text(&all, "Read", json!({ "path": file })).contains("kept"));
    let edit = json!({ "path": file, "old": "kept", "new": "edited" });
    let _ = text(&all, "Edit", edit);
    let found = text(&all, "Glob", json!({ "pattern": format!("{dir}/*") }));
    assert_eq!(found, format!("{}\n", file.replacen('~', home, 1)));
    assert!(text(&all, "Grep", json!({ "pattern": "edited", "path": dir })).contains("edited"));

    // A rule on the home holds, however a path is written.
    let rule = Rule::parse(Effect::Deny, &format!("Read({home}/**)"), "the test").unwrap();
    let toolset = Toolset::parse("reads", &["Read"], "the test").unwrap();
    let gate = PolicyGate::new(Policy::new(toolset, vec![rule]));
    let ruled = all.new_conversation().with_permit(Arc::new(gate));
    let fault = call(&ruled, "Read", json!({ "path": file })).unwrap_err();
    assert_eq!(fault.code, Code::PolicyRefused, "{fault}");

    // A file of that name is reached as a shell reaches it.
    let _ = text(
        &all,
        "Write",
        json!({ "path": "./~", "content": "plain\n" }),
    );
    assert!(text(&all, "Bash", json!({ "command": "cat ./~" })).contains("plain"));
    let _ = text(&all, "Bash", json!({ "command": format!("rm -r {dir}") }));
}
