//! How runs end: each ending has its own exit code, and none loses what was done.

use super::{agent, complaint, last_message, until, with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use testkit::{Glovebox, ModelServer, Person, Step};

/// Starts it without waiting for its end.
pub(super) fn spawn(mut call: Glovebox) -> Child {
    call.command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(super) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The one sandbox there is.
fn sandbox(person: &Person) -> String {
    let all = person.sandboxes();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_limit_is_not_success_and_names_what_to_raise() {
    let person = Person::myself();
    let steps = (0..5).map(|n| Step::call("Bash", &format!("{{\"command\":\"echo {n} > f{n}\"}}")));
    let server = ModelServer::start(steps);
    let ran = agent(&person, &server, ["--sandbox", "--max-turns", "2"], "go on")
        .run()
        .expect_code(5);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: the model was asked 2 times
    hint: raise the limit with `--max-turns`, or in glovebox.toml with agent.max_turns
    ");
    assert_eq!(server.asked().len(), 2);
    // What was done is kept, and can be taken over.
    let name = sandbox(&person);
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert_eq!(
        fs::read_to_string(person.project().join("f1")).unwrap(),
        "1\n"
    );
    let _ = person.line("kill --all").run().expect_code(0);
}

#[test]
fn time_ends_a_command_as_well() {
    let person = Person::myself();
    let server = ModelServer::start([Step::call("Bash", r#"{"command":"sleep 60"}"#)]);
    let begin = Instant::now();
    let ran = agent(
        &person,
        &server,
        ["--sandbox", "--apply", "never", "--max-time", "2s"],
        "wait",
    )
    .run()
    .expect_code(5);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: 2 s have passed
    hint: raise the limit with `--max-time`, or in glovebox.toml with agent.max_time
    ");
    assert!(begin.elapsed() < Duration::from_secs(30));
    person.assert_nothing_lives();
}

#[test]
fn a_sandbox_that_passes_its_timeout_is_lost_and_keeps_its_changes() {
    Person::each(|person| {
        let server = ModelServer::start([
            Step::call("Bash", r#"{"command":"echo kept > kept.txt; sleep 60"}"#),
            Step::text("never said"),
        ]);
        let begin = Instant::now();
        let ran = agent(person, &server, ["--sandbox", "--timeout", "4s"], "wait")
            .run()
            .expect_code(4);
        assert!(begin.elapsed() < Duration::from_secs(40), "{ran}");
        let name = sandbox(person);
        let _ = person.line(&format!("pull {name}")).run().expect_code(0);
        assert_eq!(
            fs::read_to_string(person.project().join("kept.txt")).unwrap(),
            "kept\n"
        );
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn a_sandbox_whose_files_go_with_it_does_not_stop_by_itself() {
    if !testkit::has_layers_in_memory() {
        return;
    }
    let person = Person::myself();
    let write = r#"{"path":"kept.txt","content":"kept\n"}"#;
    for (layers, has_lease) in [("memory", false), ("disk", true)] {
        let server = ModelServer::start([Step::call("Write", write), Step::text("done")]);
        let _ = agent(&person, &server, ["--sandbox", "--layers", layers], "x")
            .run()
            .expect_code(0);
        let name = sandbox(&person);
        let spec = person
            .place()
            .state()
            .join("sandboxes")
            .join(&name)
            .join("spec.json");
        let spec: Value = serde_json::from_slice(&fs::read(spec).unwrap()).unwrap();
        assert_eq!(spec["lease_ms"].is_u64(), has_lease, "{layers}: {spec}");
        let _ = person.line("kill --all").run().expect_code(0);
    }
    person.assert_nothing_lives();
}

#[test]
fn a_model_that_goes_in_circles_is_told_and_then_ended() {
    let person = Person::myself();
    let steps = (0..10).map(|_| Step::call("Bash", r#"{"command":"false"}"#));
    let server = ModelServer::start(steps);
    let ran = agent(&person, &server, ["--sandbox", "--apply", "never"], "go on")
        .run()
        .expect_code(1);
    insta::assert_snapshot!(complaint(&ran.err()), @"error: the model goes in circles: the same calls with the same outcome, again and again");
    assert_eq!(server.asked().len(), 6);
    insta::assert_snapshot!(last_message(&server.asked()[3].body), @"You have made the same call with the same outcome several times. It will not come to anything else: try another way, or say what keeps you from going on.");
    person.assert_nothing_lives();
}

#[test]
fn a_model_that_cannot_be_asked_is_a_failure_with_a_hint() {
    let person = Person::myself();
    let server = ModelServer::start([Step::Refuse(404, "no such model".to_owned())]);
    let ran = agent(&person, &server, ["--sandbox"], "x")
        .run()
        .expect_code(1);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: the model server does not know this model or address (HTTP 404): no such model
    hint: name another with `--model PROVIDER/NAME`, or correct the base URL
    ");
    person.assert_nothing_lives();
    let ran = person.line("agent --sandbox x").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no model: none is named, and there is no key in the environment
    hint: set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your own; or name a model with `--model PROVIDER/NAME`
    ");
}

#[test]
fn a_lost_sandbox_ends_the_run_as_lost_and_keeps_its_changes() {
    let person = Person::myself();
    let server = ModelServer::start([
        Step::call("Bash", r#"{"command":"echo kept > kept.txt"}"#),
        Step::call("Bash", r#"{"command":"sleep 60"}"#),
        Step::text("never said"),
    ]);
    let child = spawn(agent(&person, &server, ["--sandbox"], "work"));
    until("the second call", || {
        server.asked().len() == 2 && !person.sandboxes().is_empty()
    });
    std::thread::sleep(Duration::from_millis(500));
    let name = sandbox(&person);
    let told: Value = {
        let ran = person.line("list --json").run().expect_code(0);
        serde_json::from_str(&ran.out()).unwrap()
    };
    let pid = told["data"]["sandboxes"][0]["pid"].as_i64().unwrap();
    kill_process(
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{err}");
    assert!(err.contains("the sandbox is gone"), "{err}");
    assert_eq!(server.steps_left(), 1);
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert_eq!(
        fs::read_to_string(person.project().join("kept.txt")).unwrap(),
        "kept\n"
    );
    let _ = person.line("kill --all").run().expect_code(0);
}

#[test]
fn an_interrupt_ends_the_command_inside_and_keeps_the_work() {
    Person::each(|person| {
        let server = ModelServer::start([
            Step::call("Bash", r#"{"command":"echo kept > kept.txt"}"#),
            Step::call("Bash", r#"{"command":"sleep 60"}"#),
            Step::text("Went on."),
        ]);
        let child = spawn(agent(person, &server, ["--sandbox"], "work"));
        until("the second call", || server.asked().len() == 2);
        std::thread::sleep(Duration::from_millis(500));
        let begin = Instant::now();
        signal(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{err}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{err}");
        assert!(
            err.contains("kept.txt") && err.contains("sessions resume"),
            "{err}"
        );
        let ran = with(
            person,
            &server,
            ["sessions", "resume", "last", "go on", "--apply", "auto"],
        )
        .run()
        .expect_code(0);
        assert!(ran.out().contains("Went on."), "{ran}");
        assert!(person.project().join("kept.txt").exists());
        person.assert_nothing_lives();
    });
}

#[test]
fn an_interrupt_while_the_model_is_silent_closes_the_connection() {
    let person = Person::myself();
    let server = ModelServer::start([Step::Silence]);
    let child = spawn(agent(&person, &server, ["--sandbox"], "work"));
    until("the request", || server.asked().len() == 1);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    until("the connection to close", || server.was_left());
    person.assert_nothing_lives();
}
