//! What a run says about itself is true: calls that were only written, tokens that nobody counted, quotas
//! that are used up.

use super::{agent, complaint, last_message, with};
use serde_json::Value;
use testkit::{ModelServer, Person, Ran, Step};

const NEVER: [&str; 3] = ["--sandbox", "--apply", "never"];

fn last_line(ran: &Ran) -> Value {
    serde_json::from_str(ran.out().lines().last().unwrap()).unwrap()
}

#[test]
fn a_call_written_as_text_is_corrected_and_never_executed() {
    Person::each(|person| {
        let written =
            r#"<tool_call>{"name":"Bash","arguments":{"command":"touch written"}}</tool_call>"#;
        let server = ModelServer::start([
            Step::text(written),
            Step::call("Bash", r#"{"command":"ls; touch made"}"#),
            Step::text("Done."),
        ]);
        let args = ["--sandbox", "--apply", "auto"];
        let _ = agent(person, &server, args, "x").run().expect_code(0);
        let asked = server.asked();
        assert_eq!(asked.len(), 3);
        insta::assert_snapshot!(last_message(&asked[1].body), @"[Your answer is a call of Bash written as text. It was not made: nothing is executed from text. Make the call through the tool interface. If you meant to show it to the user, say in words what you want to say.]");
        assert!(person.project().join("made").exists());
        assert!(!person.project().join("written").exists());
        person.assert_nothing_lives();
    });
}

#[test]
fn a_model_that_only_writes_calls_fails_by_name() {
    let person = Person::myself();
    let fenced =
        "```json\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"touch written\"}}\n```";
    let server = ModelServer::start((0..5).map(|_| Step::text(fenced)));
    let args = ["--sandbox", "--apply", "auto"];
    let ran = agent(&person, &server, args, "x").run().expect_code(1);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: the model writes its tool calls as text instead of making them (the last is one of Bash); nothing was executed from them
    hint: use a model that can call tools, or let its server read them: vLLM with --enable-auto-tool-choice and --tool-call-parser, llama.cpp with --jinja
    ");
    assert_eq!(server.asked().len(), 3);
    assert!(!person.project().join("written").exists());
    let shown = person.line("sessions list --json").run().expect_code(0);
    assert!(shown.out().contains("\"failed\""), "{shown}");
    let _ = person.line("kill --all --quiet").run();
}

#[test]
fn an_answer_that_quotes_a_call_is_done() {
    let person = Person::myself();
    let quoted =
        "The server logs this:\n```\n<tool_call>{\"name\":\"Bash\"}</tool_call>\n```\nIt is wrong.";
    let server = ModelServer::start([Step::text(quoted)]);
    let ran = agent(&person, &server, NEVER, "x").run().expect_code(0);
    assert!(ran.out().contains("It is wrong."), "{ran}");
    assert_eq!(server.asked().len(), 1);
    person.assert_nothing_lives();
}

#[test]
fn tokens_that_nobody_counts_are_unknown_and_not_zero() {
    let person = Person::myself();
    let uncounted = |step| Step::Uncounted(Box::new(step));
    let call = || Step::call("Bash", r#"{"command":"date +%N"}"#);
    let server = ModelServer::start([uncounted(call()), uncounted(Step::text("Done."))]);
    let ran = agent(&person, &server, NEVER, "x").run().expect_code(0);
    let spent = ran.said("tokens", person.place().root());
    insta::assert_snapshot!(spent, @"glovebox: done after 2 turns, tokens unknown, cost unknown");
    assert!(!ran.err().contains(" 0 tokens") && !ran.err().contains('$'));

    // Some are counted: it is at least those.
    let server = ModelServer::start([call(), uncounted(Step::text("Done."))]);
    let args = NEVER.into_iter().chain(["--price", "1/2"]);
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let spent = ran.said("tokens", person.place().root());
    insta::assert_snapshot!(spent, @"glovebox: done after 2 turns, at least 110 tokens, cost unknown");

    let server = ModelServer::start([uncounted(Step::text("Done."))]);
    let args = NEVER.into_iter().chain(["--json"]);
    let ran = agent(&person, &server, args, "x").run().expect_code(0);
    let data = last_line(&ran)["data"].clone();
    assert_eq!(data["usage"], Value::Null, "{data}");
    assert_eq!(data["cost_usd"], Value::Null, "{data}");
    assert_eq!(data["uncounted_answers"], 1, "{data}");
    let answered = ran.out();
    let answered = answered.lines().find(|line| line.contains("\"answered\""));
    let answered: Value = serde_json::from_str(answered.unwrap()).unwrap();
    assert_eq!(answered["usage"], Value::Null, "{answered}");
    person.assert_nothing_lives();
}

#[test]
fn a_limit_of_what_nobody_counts_ends_the_run_by_name() {
    let person = Person::myself();
    let said = [
        &["--max-cost", "1", "--price", "1/2"][..],
        &["--max-tokens", "100000"],
    ]
    .map(|limit| {
        let call = Step::call("Bash", r#"{"command":"true"}"#);
        let server =
            ModelServer::start([Step::Uncounted(Box::new(call)), Step::text("never said")]);
        let args = NEVER.into_iter().chain(limit.iter().copied());
        let ran = agent(&person, &server, args, "x").run().expect_code(1);
        assert_eq!(server.steps_left(), 1, "{limit:?}");
        complaint(&ran.err())
    });
    insta::assert_snapshot!(said.join("\n"), @"
    error: what was spent so far is not known, so that `max-cost` cannot limit it
    hint: go on without `--max-cost`: the model's server does not say how many tokens an answer had, or an earlier part of the session had no price
    error: what was spent so far is not known, so that `max-tokens` cannot limit it
    hint: go on without `--max-tokens`, and limit the run with `--max-turns` or `--max-time`: the model's server does not say how many tokens an answer had
    ");
    let _ = person.line("kill --all --quiet").run();
}

#[test]
fn a_quota_that_is_used_up_ends_the_run_at_once_with_a_remedy() {
    let person = Person::myself();
    let body =
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}"#;
    let server = ModelServer::start([
        Step::RefuseBody(429, body.to_owned()),
        Step::text("Went on."),
    ]);
    let args = NEVER.into_iter().chain(["--json"]);
    let ran = agent(&person, &server, args, "x").run().expect_code(1);
    assert_eq!(server.asked().len(), 1);
    insta::assert_snapshot!(complaint(&ran.err()), @"
    error: the quota or credit at the model's provider is used up (HTTP 429): You exceeded your current quota
    hint: add credit or raise the quota with the provider, or name another model with `--model`; `glovebox sessions resume` goes on from here
    ");
    assert_eq!(last_line(&ran)["data"]["fault"], "quota-exhausted", "{ran}");
    // With more credit it goes on.
    let ran = with(&person, &server, ["sessions", "resume", "last"])
        .run()
        .expect_code(0);
    assert!(ran.out().contains("Went on."), "{ran}");
    let _ = person.line("kill --all --quiet").run();
}
