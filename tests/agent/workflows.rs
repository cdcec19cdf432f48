//! Phases one after the other, on the same files.

use super::{agent, complaint, last_results, with};
use serde_json::Value;
use std::fs;
use testkit::{ModelServer, Person, Step};

const CONFIG: &str = r#"
memory = "512MiB"

[[workflow]]
name = "change"

[[workflow.phase]]
name = "research"

[[workflow.phase]]
name = "think"
toolset = "plan"
prompt = "Keep the plan to one line."
leaves = ["/tmp/plan.md"]

[[workflow.phase]]
name = "implement"
memory = "300MiB"

[[workflow]]
name = "checked"

[[workflow.phase]]
name = "implement"

[[workflow.phase]]
name = "review"
"#;

fn person() -> Person {
    let person = Person::myself();
    person.write("project/glovebox.toml", CONFIG);
    person.write("project/notes.txt", "here\n");
    person
}

fn bash(command: &str) -> Step {
    Step::call(
        "Bash",
        &serde_json::json!({ "command": command }).to_string(),
    )
}

/// System prompt, task and names of tools of a request.
fn told(server: &ModelServer, request: usize) -> (String, String, Vec<String>) {
    let body: Value = serde_json::from_str(&server.asked()[request].body).unwrap();
    let text = |at: usize| body["messages"][at]["content"].as_str().unwrap().to_owned();
    let tools = body["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    (text(0), text(1), names.collect())
}

#[test]
fn research_then_plan_then_implement() {
    let person = person();
    let server = ModelServer::start([
        Step::call("Read", r#"{"path":"notes.txt"}"#),
        Step::text("FOUND IT"),
        bash("echo no >> notes.txt; echo 'append there' > /tmp/plan.md"),
        Step::text("PLANNED IT"),
        bash("cat /tmp/artefacts/think/plan.md; echo there >> notes.txt"),
        Step::text("DID IT"),
    ]);
    let args = ["--sandbox", "--apply", "auto", "--workflow", "change"];
    let ran = agent(&person, &server, args, "the task itself")
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "FOUND IT\nPLANNED IT\nDID IT\n", "{ran}");
    let notes = fs::read_to_string(person.project().join("notes.txt")).unwrap();
    assert_eq!(notes, "here\nthere\n");

    // Each phase has its tools, its words, its sandbox, and what was left by those before.
    let (system, task, tools) = told(&server, 0);
    assert!(system.contains("# Phase: research"), "{system}");
    assert_eq!(task, "the task itself");
    assert!(!tools.contains(&"Bash".to_owned()), "{tools:?}");
    let (system, task, tools) = told(&server, 2);
    assert!(system.contains("/tmp/plan.md"), "{system}");
    assert!(
        system.contains("# Phase: plan") && system.contains("to one line"),
        "{system}"
    );
    assert!(system.contains("memory 512MiB"), "{system}");
    insta::assert_snapshot!(task, @"
    the task itself

    [The phase `research` came before this one. It ended with:]
    FOUND IT
    ");
    assert!(!tools.contains(&"Write".to_owned()), "{tools:?}");
    let (system, task, tools) = told(&server, 4);
    assert!(system.contains("memory 300MiB"), "{system}");
    insta::assert_snapshot!(task, @"
    the task itself

    [The phase `research` came before this one. It ended with:]
    FOUND IT

    [The phase `think` came before this one. It ended with:]
    PLANNED IT
    [It left the file /tmp/artefacts/think/plan.md (13 bytes).]
    ");
    assert!(tools.contains(&"Write".to_owned()), "{tools:?}");
    assert!(last_results(&server)[0].starts_with("append there\n"));
    // A phase that may write nothing has a wall that sees to it.
    let refused = &server.asked()[3].body;
    assert!(refused.contains("Read-only file system"), "{refused}");

    let list = person.line("sessions list --json").run().expect_code(0);
    let list: Value = serde_json::from_str(&list.out()).unwrap();
    let sessions = list["data"]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 3, "{list}");
    assert!(
        sessions.iter().all(|one| one["state"] == "completed"),
        "{list}"
    );
    person.assert_nothing_lives();
}

#[test]
fn a_phase_that_does_not_end_well_ends_the_workflow() {
    let person = person();
    // It does not leave what it should.
    let server = ModelServer::start([
        Step::text("FOUND IT"),
        Step::text("NO PLAN"),
        Step::text("never said"),
    ]);
    let args = ["--sandbox", "--workflow", "change", "--json"];
    let ran = agent(&person, &server, args, "x").run().expect_code(1);
    insta::assert_snapshot!(complaint(&ran.err()), @"error: the phase `think` did not leave /tmp/plan.md");
    let told: Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    assert_eq!(told["data"]["ending"], "failed", "{ran}");
    assert_eq!(server.steps_left(), 1);
    person.assert_nothing_lives();

    // It reaches a limit, which is that of all phases together; what was done before is kept.
    let server = ModelServer::start([
        bash("echo done > done.txt"),
        Step::text("DID IT"),
        bash("cat done.txt"),
        Step::text("never said"),
    ]);
    let args = ["--sandbox", "--workflow", "checked", "--max-turns", "3"];
    let ran = agent(&person, &server, args, "x").run().expect_code(5);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: the model was asked 3 times
    hint: raise the limit with `--max-turns`, or in glovebox.toml with agent.max_turns
    ");
    assert!(!person.project().join("done.txt").exists());
    // The session of the phase goes on, and what the phase before it changed is not lost.
    let args = ["sessions", "resume", "last", "go on", "--apply", "auto"];
    let resumed = with(&person, &server, args).run().expect_code(0);
    assert_eq!(resumed.out(), "never said\n", "{resumed}");
    assert!(person.project().join("done.txt").exists(), "{resumed}");
    person.assert_nothing_lives();
}

#[test]
fn a_review_sees_what_it_reviews_and_the_change_comes_back() {
    let person = person();
    let server = ModelServer::start([
        bash("echo done > done.txt"),
        Step::text("DID IT"),
        bash("cat done.txt; rm done.txt"),
        Step::text("IT IS GOOD"),
    ]);
    let args = ["--sandbox", "--apply", "auto", "--workflow", "checked"];
    let _ = agent(&person, &server, args, "x").run().expect_code(0);
    let seen = &last_results(&server)[0];
    assert!(
        seen.starts_with("done\n") && seen.contains("Read-only"),
        "{seen}"
    );
    let done = fs::read_to_string(person.project().join("done.txt")).unwrap();
    assert_eq!(done, "done\n");
    person.assert_nothing_lives();
}

#[test]
fn a_dry_run_tells_every_phase_and_a_wrong_name_is_told() {
    let person = person();
    let server = ModelServer::start([]);
    let args = ["--sandbox", "--dry-run", "--json", "--workflow", "change"];
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let told: Value = serde_json::from_str(&ran.out()).unwrap();
    let phases = told["data"]["phases"].as_array().unwrap();
    let facts = |at: usize| {
        let phase = &phases[at];
        ["phase", "toolset", "workspace", "memory"].map(|name| phase[name].as_str().unwrap())
    };
    assert_eq!(facts(0), ["research", "research", "read-only", "512MiB"]);
    assert_eq!(facts(1), ["think", "plan", "read-only", "512MiB"]);
    assert_eq!(facts(2), ["implement", "implement", "overlay", "300MiB"]);
    let args = ["--sandbox", "--dry-run", "--workflow", "change"];
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    assert!(ran.out().contains("phase 3 of 3"), "{ran}");

    let args = ["--sandbox", "--workflow", "chagne"];
    let ran = agent(&person, &server, args, "x").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no workflow `chagne`
    hint: did you mean `change`?
    ");
    // What came with the project has no more than the user gives.
    let wide = CONFIG.replace("memory = \"300MiB\"", "net = \"host\"");
    person.write("project/glovebox.toml", &wide);
    let args = ["--sandbox", "--workflow", "change"];
    let ran = agent(&person, &server, args, "x").run().expect_code(3);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: [ROOT]/project/glovebox.toml: the phase `implement`: `net = host` opens your network, and a project may not do that by itself
    hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
    ");
    assert!(server.asked().is_empty() && person.sandboxes().is_empty());
}
