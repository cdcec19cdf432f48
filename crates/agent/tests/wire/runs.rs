//! Runs of the loop against servers with handwritten responses: calls that are made, requests that
//! are repeated, and their cost.

use super::{KEY, Provider, remote};
use glovebox_agent::{
    AgentLoop, ContextBudget, Conversation, Ending, Event, NoApproval, Observe, Price, RunLimits,
    RunOutcome, Secret, Secrets, StopSignal, ToolDefinition, ToolOutput, Tools,
};
use glovebox_proto::Fault;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use testkit::{ModelServer, Step, Wanted};

/// Tool that stores its arguments.
#[derive(Default)]
struct NoteTool(Mutex<Vec<Value>>);

impl Tools for NoteTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![ToolDefinition {
            name: "Note".to_owned(),
            description: String::new(),
            schema: json!({ "type": "object" }),
            is_read_only: false,
            server: None,
        }]
    }

    fn call(&self, _: &str, arguments: Value, _: &AtomicBool) -> Result<ToolOutput, Fault> {
        self.0.lock().unwrap().push(arguments);
        Ok(ToolOutput::default())
    }
}

#[derive(Default)]
struct Noted(Vec<Event>);

impl Observe for Noted {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.0.push(event.clone());
        Ok(())
    }
}

/// Result of a run.
struct Finished {
    outcome: RunOutcome,
    conversation: Conversation,
    made: Vec<Value>,
    events: Vec<Event>,
    asked: usize,
}

fn run_with(
    provider: Provider,
    silence: Duration,
    steps: impl IntoIterator<Item = Step>,
) -> Finished {
    let server = ModelServer::start(steps);
    let model = remote(&server, provider).silence_after_stop(silence);
    let secrets = Secrets::new([Secret::new(KEY)]);
    let tools = NoteTool::default();
    let head = AgentLoop {
        model: &model,
        tools: &tools,
        approve: &NoApproval,
        system: "You are tested.",
        limits: RunLimits::default(),
        price: Some(Price::parse("1000/1000").unwrap().into()),
        budget: ContextBudget::default(),
        secrets: &secrets,
        stop: StopSignal::default(),
    };
    let (mut conversation, mut noted) = (Conversation::new("do it"), Noted::default());
    let outcome = head.run(&mut conversation, &mut noted);
    assert_eq!(server.steps_left(), 0, "{outcome:?}");
    Finished {
        outcome,
        conversation,
        made: tools.0.into_inner().unwrap(),
        events: noted.0,
        asked: server.asked_count(),
    }
}

fn run(provider: Provider, steps: impl IntoIterator<Item = Step>) -> Finished {
    run_with(provider, Duration::from_secs(10), steps)
}

fn chat(delta: Value, finish: Option<&str>) -> String {
    let value = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    format!("data: {value}\n\n")
}

fn counted(value: u64) -> String {
    let usage =
        json!({ "prompt_tokens": value, "completion_tokens": 1, "total_tokens": value + 1 });
    format!("data: {}\n\n", json!({ "choices": [], "usage": usage }))
}

fn calls(pieces: Value, finish: &str) -> Step {
    let body = chat(json!({ "tool_calls": pieces }), None) + &chat(json!({}), Some(finish));
    Step::Raw(body + "data: [DONE]\n\n")
}

fn piece(index: u64, arguments: &str) -> Value {
    json!({ "index": index, "id": format!("c{index}"), "type": "function",
        "function": { "name": "Note", "arguments": arguments } })
}

fn told(finished: &Finished) -> String {
    format!("{:?}", finished.conversation.messages)
}

#[test]
fn every_dialect_makes_the_same_calls() {
    let arguments = r#"{"a":1}"#;
    let function = json!({ "name": "Note", "arguments": arguments });
    let as_object = json!({ "name": "Note", "arguments": { "a": 1 } });
    let in_text = json!({ "name": "Note", "arguments": format!("{:?}", arguments) });
    for (dialect, pieces) in [
        ("to the letter", json!([piece(0, arguments)])),
        ("no index", json!([{ "id": "x", "function": function }])),
        ("no id", json!([{ "index": 0, "function": function }])),
        ("neither", json!([{ "function": function }])),
        ("from 1", json!([piece(1, arguments)])),
        (
            "an object",
            json!([{ "index": 0, "id": "x", "function": as_object }]),
        ),
        (
            "text of text",
            json!([{ "index": 0, "id": "x", "function": in_text }]),
        ),
        (
            "in pieces",
            json!([{ "id": "x", "function": { "name": "Note", "arguments": "" } },
            { "function": { "arguments": "{\"a\"" } }, { "function": { "arguments": ":1}" } }]),
        ),
    ] {
        for finish in ["tool_calls", "stop"] {
            let done = run(
                Provider::OpenAi,
                [calls(pieces.clone(), finish), Step::text("done")],
            );
            assert_eq!(
                done.outcome.ending,
                Ending::Completed,
                "{dialect}: {:?}",
                done.outcome
            );
            assert_eq!(done.made, [json!({ "a": 1 })], "{dialect} {finish}");
        }
    }
}

#[test]
fn every_format_runs_nothing_of_a_call_that_broke_off() {
    for provider in super::FORMATS {
        let wanted = Wanted::new("Note", r#"{"a":"a long enough text","b":"more of it"}"#);
        let done = run(
            provider,
            [
                Step::CutCall(wanted),
                Step::call("Note", r#"{"a":1}"#),
                Step::text("done"),
            ],
        );
        assert_eq!(
            done.outcome.ending,
            Ending::Completed,
            "{provider:?}: {:?}",
            done.outcome
        );
        assert_eq!(done.made, [json!({ "a": 1 })], "{provider:?}");
        assert_eq!(done.asked, 3, "{provider:?}");
    }
}

#[test]
fn an_answer_that_broke_off_is_counted_once() {
    // The second answer counts. The tokens of the broken-off one are void.
    let half = chat(json!({ "content": "half" }), None) + &counted(1_000_000);
    let whole =
        chat(json!({ "content": "whole" }), Some("stop")) + &counted(100) + "data: [DONE]\n\n";
    let done = run(Provider::OpenAi, [Step::Raw(half), Step::Raw(whole)]);
    assert_eq!(done.outcome.message, "whole");
    assert_eq!(done.conversation.spent.counted_tokens().input, 100);
    assert_eq!(done.conversation.spent.uncounted_answers(), 0);
}

#[test]
fn a_call_that_was_cut_at_the_output_limit_is_never_made() {
    for arguments in [r#"{"a":1"#, r#"{"a":1}"#, ""] {
        let done = run(
            Provider::OpenAi,
            [
                calls(json!([piece(0, arguments)]), "length"),
                Step::text("done"),
            ],
        );
        assert_eq!(done.made, [] as [Value; 0], "{arguments}");
        let told = told(&done);
        assert!(
            told.contains("cut off at the output limit in this call; nothing was done"),
            "{told}"
        );
        assert!(told.contains("Write in smaller pieces."), "{told}");
    }
    // An earlier call is complete, and so is a call that text follows.
    let two = json!([piece(0, r#"{"a":1}"#), piece(1, r#"{"a":2"#)]);
    let done = run(Provider::OpenAi, [calls(two, "length"), Step::text("done")]);
    assert_eq!(done.made, [json!({ "a": 1 })]);
    let body = chat(json!({ "tool_calls": [piece(0, r#"{"a":3}"#)] }), None)
        + &chat(json!({ "content": "and then" }), Some("length"));
    let done = run(Provider::OpenAi, [Step::Raw(body), Step::text("done")]);
    assert_eq!(done.made, [json!({ "a": 3 })]);
    // The run ends if the model repeats the mistake.
    let cut = || calls(json!([piece(0, "{\"a\"")]), "length");
    let done = run(Provider::OpenAi, (0..4).map(|_| cut()));
    assert_eq!(
        done.outcome.ending,
        Ending::StoppedByLimit,
        "{:?}",
        done.outcome
    );
}

#[test]
fn an_empty_answer_is_asked_for_again_once() {
    let empty = || Step::Raw(chat(json!({ "content": "" }), Some("stop")) + "data: [DONE]\n\n");
    let done = run(Provider::OpenAi, [empty(), Step::text("done")]);
    assert_eq!(
        (done.outcome.ending, done.conversation.turns),
        (Ending::Completed, 2)
    );
    assert!(
        told(&done).contains("Your answer was empty"),
        "{}",
        told(&done)
    );
    let done = run(Provider::OpenAi, [empty(), empty()]);
    assert_eq!(done.outcome.ending, Ending::Failed);
    // A call in between resets the counter.
    let steps = [
        empty(),
        Step::call("Note", "{}"),
        empty(),
        Step::text("done"),
    ];
    assert_eq!(
        run(Provider::OpenAi, steps).outcome.ending,
        Ending::Completed
    );
}

#[test]
fn an_end_that_claims_calls_without_one_is_no_end() {
    let claims = |text: &str| {
        Step::Raw(chat(json!({ "content": text }), Some("tool_calls")) + "data: [DONE]\n\n")
    };
    let done = run(
        Provider::OpenAi,
        [
            claims("I write the file."),
            Step::call("Note", "{}"),
            Step::text("done"),
        ],
    );
    assert_eq!((done.made.len(), done.asked), (1, 3));
    let retries = done
        .events
        .iter()
        .filter(|event| event.kind() == "retrying")
        .count();
    assert_eq!(retries, 1);
    // A call that is written as text leads to a message to the model, not to a retry.
    let written = r#"<tool_call>{"name":"Note","arguments":{}}</tool_call>"#;
    let done = run(Provider::OpenAi, [claims(written), Step::text("done")]);
    assert!(told(&done).contains("written as text"), "{}", told(&done));
}

#[test]
fn a_server_that_never_says_why_it_ends_is_believed_at_its_second_answer() {
    let body = |text: &str| Step::Raw(chat(json!({ "content": text }), None) + "data: [DONE]\n\n");
    let done = run(Provider::OpenAi, [body("half"), body("whole")]);
    assert_eq!(done.outcome.message, "whole");
    let reasons: Vec<&Event> = done
        .events
        .iter()
        .filter(|event| event.kind() == "retrying")
        .collect();
    assert_eq!(reasons.len(), 1);
    assert!(
        format!("{reasons:?}").contains("without a finish_reason"),
        "{reasons:?}"
    );
}

#[test]
fn a_connection_that_stays_open_behind_the_end_keeps_nobody_waiting() {
    let begin = Instant::now();
    let stopped = Step::Hold(chat(json!({ "content": "whole" }), Some("stop")));
    let done = run_with(Provider::OpenAi, Duration::from_millis(100), [stopped]);
    assert_eq!(done.outcome.message, "whole");
    assert!(begin.elapsed() < Duration::from_secs(20));
}
