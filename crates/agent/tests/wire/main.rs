//! Wire formats of the providers, and faults on the wire, against a scripted server.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "rows of tables are written where they are used"
)]

mod dialects;
mod official;
mod requests;
mod runs;
mod streams;

use glovebox_agent::{
    CallResult, Delta, Message, MessagePart, Model, ModelAnswer, ModelError, ModelName, Prompt,
    Provider, ProviderAccess, RemoteModel, RetryPolicy, Secret, Secrets, StopReason, ToolCall,
    ToolDefinition,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::{ModelServer, Step, Wanted};

const KEY: &str = "sk-planted-0123456789";
const FORMATS: [Provider; 4] = [
    Provider::OpenAi,
    Provider::OpenAiResponses,
    Provider::Anthropic,
    Provider::Gemini,
];

fn remote(server: &ModelServer, provider: Provider) -> RemoteModel {
    let url = server.url();
    let access = ProviderAccess::find(provider, |name| {
        if name == provider.base_variable() {
            Some(url.clone())
        } else if name == provider.key_variables()[0] {
            Some(KEY.to_owned())
        } else {
            None
        }
    })
    .unwrap();
    let name = ModelName::parse(&format!("{}/scripted", provider.as_str())).unwrap();
    let retry = RetryPolicy {
        max_attempts: 3,
        base: Duration::from_millis(20),
        cap: Duration::from_millis(50),
        max_retry_after: Duration::from_secs(2),
    };
    RemoteModel::new(name, &access, Secrets::new([Secret::new(KEY)]), retry).unwrap()
}

fn tools() -> Vec<ToolDefinition> {
    vec![ToolDefinition {
        name: "Read".to_owned(),
        description: "Reads a file.".to_owned(),
        schema: json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
        is_read_only: true,
        server: None,
    }]
}

fn ask(model: &RemoteModel, messages: &[Message]) -> (Result<ModelAnswer, ModelError>, Vec<Delta>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut deltas = Vec::new();
    let tools = tools();
    let prompt = Prompt {
        system: "You are tested.",
        messages,
        tools: &tools,
    };
    let mut on_delta = |delta| deltas.push(delta);
    let answer = runtime.block_on(model.answer(prompt, &mut on_delta));
    (answer, deltas)
}

fn task() -> Vec<Message> {
    vec![Message::User {
        text: "do it".to_owned(),
    }]
}

fn said(deltas: &[Delta]) -> String {
    deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn every_format_carries_text_calls_and_usage() {
    for provider in FORMATS {
        let server = ModelServer::start([
            Step::Calls(
                "Looking.".to_owned(),
                vec![
                    Wanted::new("Read", r#"{"path":"a"}"#),
                    Wanted::new("Read", r#"{"path":"b"}"#),
                ],
            ),
            Step::text("All done, für immer."),
        ]);
        let model = remote(&server, provider);
        let mut messages = task();
        let (answer, deltas) = ask(&model, &messages);
        let answer = answer.unwrap_or_else(|error| panic!("{provider:?}: {error:?}"));
        assert_eq!(said(&deltas), "Looking.", "{provider:?}");
        assert_eq!(answer.text(), "Looking.", "{provider:?}");
        let calls: Vec<ToolCall> = answer.calls().into_iter().cloned().collect();
        let arguments: Vec<&Value> = calls.iter().map(|call| &call.arguments).collect();
        assert_eq!(
            arguments,
            [&json!({"path": "a"}), &json!({"path": "b"})],
            "{provider:?}"
        );
        assert_eq!(
            answer.usage.map(|usage| (usage.input, usage.output)),
            Some((100, 10)),
            "{provider:?}"
        );

        messages.push(Message::Assistant {
            parts: answer.parts,
        });
        messages.push(Message::Results {
            results: calls
                .iter()
                .map(|call| CallResult {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    text: format!("content of {}", call.arguments["path"]),
                    is_error: false,
                    images: Vec::new(),
                })
                .collect(),
        });
        let (answer, _) = ask(&model, &messages);
        let answer = answer.unwrap();
        assert_eq!(answer.text(), "All done, für immer.", "{provider:?}");
        assert_eq!(answer.stop, StopReason::Done);
        let asked = server.asked();
        for part in ["You are tested.", "do it", "Reads a file.", "content of "] {
            assert!(
                asked[1].body.contains(part),
                "{provider:?}: {}",
                asked[1].body
            );
        }
        assert!(
            asked.iter().all(|asked| !asked.body.contains(KEY)),
            "{provider:?}"
        );
        assert!(
            asked[0].headers.iter().any(|line| line.contains(KEY)),
            "{provider:?}"
        );
    }
}

#[test]
fn anthropic_is_told_how_far_its_cache_is_to_reach() {
    let marks = |value: &Value| value.to_string().matches("cache_control").count();
    for provider in FORMATS {
        let server = ModelServer::start([Step::text("one"), Step::text("two")]);
        let model = remote(&server, provider);
        let mut messages = task();
        ask(&model, &messages).0.unwrap();
        let call = ToolCall {
            id: "call_1".to_owned(),
            name: "Read".to_owned(),
            arguments: json!({ "path": "a" }),
            signatures: Vec::new(),
            extra: serde_json::Map::new(),
        };
        let result = CallResult {
            id: call.id.clone(),
            name: call.name.clone(),
            text: "content".to_owned(),
            is_error: false,
            images: Vec::new(),
        };
        for _ in 0..3 {
            messages.push(Message::Assistant {
                parts: vec![MessagePart::Call(call.clone())],
            });
            messages.push(Message::Results {
                results: vec![result.clone(), result.clone()],
            });
        }
        ask(&model, &messages).0.unwrap();
        let asked: Vec<Value> = server
            .asked()
            .iter()
            .map(|asked| serde_json::from_str(&asked.body).unwrap())
            .collect();
        if provider != Provider::Anthropic {
            assert_eq!(asked.iter().map(marks).sum::<usize>(), 0, "{provider:?}");
            continue;
        }
        assert_eq!(marks(&asked[0]), 1, "{}", asked[0]);
        let told = asked[1]["messages"].as_array().unwrap();
        let counts: Vec<usize> = told.iter().map(marks).collect();
        assert_eq!(counts, [0, 0, 0, 0, 1, 0, 1], "{}", asked[1]);
        let newest = told[6]["content"].as_array().unwrap();
        assert_eq!(
            newest[1]["cache_control"]["type"], "ephemeral",
            "{newest:?}"
        );
        assert_eq!(marks(&asked[1]), 2);
    }
}

#[test]
fn an_answer_without_its_end_is_asked_for_again_and_never_taken() {
    for provider in FORMATS {
        let server = ModelServer::start([
            Step::Cut("Half a th".to_owned()),
            Step::CutCall(Wanted::new("Read", r#"{"path":"a long enough path"}"#)),
            Step::text("Whole."),
        ]);
        let (answer, deltas) = ask(&remote(&server, provider), &task());
        assert_eq!(
            answer
                .unwrap_or_else(|error| panic!("{provider:?}: {error:?}"))
                .text(),
            "Whole.",
            "{provider:?}"
        );
        let retries = deltas
            .iter()
            .filter(|delta| matches!(delta, Delta::Retry { .. }))
            .count();
        assert_eq!(retries, 2, "{provider:?}: {deltas:?}");

        let server = ModelServer::start((0..3).map(|_| Step::Cut("Half".to_owned())));
        let (answer, _) = ask(&remote(&server, provider), &task());
        assert!(answer.unwrap_err().is_passing, "{provider:?}");
        assert_eq!(server.steps_left(), 0);
    }
}

#[test]
fn servers_are_waited_for_as_they_ask_and_no_longer_than_sensible() {
    for provider in FORMATS {
        let server = ModelServer::start([
            Step::Status(429, Some(1)),
            Step::Status(500, None),
            Step::text("At last."),
        ]);
        let begin = Instant::now();
        let (answer, _) = ask(&remote(&server, provider), &task());
        assert_eq!(answer.unwrap().text(), "At last.", "{provider:?}");
        assert!(begin.elapsed() >= Duration::from_secs(1), "{provider:?}");

        let server = ModelServer::start([Step::Status(429, Some(3600))]);
        let (answer, _) = ask(&remote(&server, provider), &task());
        let error = answer.unwrap_err();
        assert_eq!(error.status, Some(429), "{provider:?}: {error:?}");
        assert!(error.message.contains("3600 s"), "{error}");
    }
}

#[test]
fn refusals_are_final_and_quote_no_key() {
    let server = ModelServer::start([Step::Refuse(
        401,
        format!("Incorrect API key provided: {KEY}\u{1b}[2J"),
    )]);
    let (answer, _) = ask(&remote(&server, Provider::OpenAi), &task());
    let error = answer.unwrap_err();
    assert_eq!((error.status, error.is_passing), (Some(401), false));
    assert!(error.message.contains("[secret]"), "{error}");
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    assert!(!error.message.contains('\u{1b}'));

    let gone = {
        let server = ModelServer::start([]);
        remote(&server, Provider::OpenAi)
    };
    let (answer, _) = ask(&gone, &task());
    assert!(answer.unwrap_err().message.contains("connection"));
}

#[test]
fn arguments_that_are_no_json_arrive_as_text() {
    let server = ModelServer::start([Step::call("Read", "{\"path\": oops"), Step::text("ok")]);
    let model = remote(&server, Provider::OpenAi);
    let (answer, _) = ask(&model, &task());
    let answer = answer.unwrap();
    assert_eq!(answer.calls()[0].arguments, json!("{\"path\": oops"));
    // The arguments are sent back as an object; otherwise the server would refuse the conversation.
    let mut messages = task();
    messages.push(Message::Assistant {
        parts: answer.parts,
    });
    let (answer, _) = ask(&model, &messages);
    assert!(answer.is_ok());
    let body: Value = serde_json::from_str(&server.asked()[1].body).unwrap();
    let sent = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|message| message["tool_calls"][0]["function"]["arguments"].as_str())
        .unwrap();
    assert!(
        serde_json::from_str::<Value>(sent).unwrap().is_object(),
        "{sent}"
    );
}

#[test]
fn long_and_slow_answers_come_whole() {
    let long = "x".repeat(1 << 20);
    let server = ModelServer::start([
        Step::Text(long.clone()),
        Step::Drip(
            vec!["a".into(), "b".into(), "c".into()],
            Duration::from_millis(30),
        ),
    ]);
    let model = remote(&server, Provider::OpenAi);
    assert_eq!(ask(&model, &task()).0.unwrap().text(), long);
    let (answer, deltas) = ask(&model, &task());
    assert_eq!(answer.unwrap().text(), "abc");
    assert_eq!(deltas.len(), 3);
}

#[test]
fn whoever_gives_up_closes_the_connection() {
    let server = ModelServer::start([Step::Silence]);
    let model = remote(&server, Provider::OpenAi);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let messages = task();
    let mut on_delta = |_| {};
    runtime.block_on(async {
        let prompt = Prompt {
            system: "",
            messages: &messages,
            tools: &[],
        };
        let answering = model.answer(prompt, &mut on_delta);
        assert!(
            tokio::time::timeout(Duration::from_millis(200), answering)
                .await
                .is_err()
        );
        // The task of the connection notices that the answer was dropped.
        tokio::time::sleep(Duration::from_millis(50)).await;
    });
    drop(runtime);
    let until = Instant::now() + Duration::from_secs(5);
    while !server.was_left() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(server.was_left());
}

#[test]
fn thoughts_are_kept_apart_from_words() {
    let part = MessagePart::Reasoning {
        text: "hm".to_owned(),
    };
    let answer = ModelAnswer {
        parts: vec![
            part,
            MessagePart::Text {
                text: "yes".to_owned(),
            },
        ],
        ..ModelAnswer::default()
    };
    assert_eq!(answer.text(), "yes");
}

#[test]
fn what_a_server_does_not_count_is_unknown_in_every_format() {
    for provider in FORMATS {
        let server = ModelServer::start([Step::Uncounted(Box::new(Step::text("Done.")))]);
        let (answer, _) = ask(&remote(&server, provider), &task());
        let answer = answer.unwrap_or_else(|error| panic!("{provider:?}: {error:?}"));
        assert_eq!(answer.text(), "Done.", "{provider:?}");
        assert_eq!(answer.usage, None, "{provider:?}");
    }
}

#[test]
fn a_quota_that_is_used_up_is_not_asked_for_again() {
    let body = json!({ "error": { "message": "You exceeded your current quota",
        "type": "insufficient_quota", "code": "insufficient_quota" } });
    for (status, body) in [
        (429, body.to_string()),
        (402, "Payment Required".to_owned()),
    ] {
        for provider in FORMATS {
            let server = ModelServer::start([
                Step::RefuseBody(status, body.clone()),
                Step::text("never said"),
            ]);
            let (answer, _) = ask(&remote(&server, provider), &task());
            let error = answer.unwrap_err();
            assert!(
                error.is_exhausted && !error.is_passing,
                "{provider:?}: {error:?}"
            );
            assert_eq!(server.steps_left(), 1, "{provider:?}");
        }
    }
    // Too many requests pass, so the request is retried.
    let busy =
        json!({ "error": { "message": "Rate limit reached", "code": "rate_limit_exceeded" } });
    let server = ModelServer::start([Step::RefuseBody(429, busy.to_string()), Step::text("Done.")]);
    let (answer, _) = ask(&remote(&server, Provider::OpenAi), &task());
    assert_eq!(answer.unwrap().text(), "Done.");
}
