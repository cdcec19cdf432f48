//! Recorded requests: bodies and headers of each format for the same conversations.
//!
//! `GLOVEBOX_TEST_BLESS=1` writes the files anew; review the difference then.

use super::{KEY, Provider, remote};
use glovebox_agent::{
    CallResult, Image, Message, MessagePart, Model as _, Prompt, ToolCall, ToolDefinition,
};
use serde_json::{Value, json};
use std::path::Path;
use testkit::{ModelServer, Step};

fn user(text: &str) -> Message {
    Message::User {
        text: text.to_owned(),
    }
}

fn text(text: &str) -> MessagePart {
    MessagePart::Text {
        text: text.to_owned(),
    }
}

fn thought(text: &str) -> MessagePart {
    MessagePart::Reasoning {
        text: text.to_owned(),
    }
}

fn signature(value: &str) -> MessagePart {
    MessagePart::Signature {
        value: value.to_owned(),
    }
}

/// Parses a call in the form of a session log.
fn call(value: Value) -> MessagePart {
    MessagePart::Call(serde_json::from_value::<ToolCall>(value).unwrap())
}

fn read(id: &str, path: &str) -> MessagePart {
    call(json!({ "id": id, "name": "Read", "arguments": { "path": path } }))
}

fn result(id: &str, text: &str, images: Vec<Image>) -> CallResult {
    CallResult {
        id: id.to_owned(),
        name: "Read".to_owned(),
        text: text.to_owned(),
        is_error: false,
        images,
    }
}

/// Returns parts that only the original format understands, as its decoder stores them.
fn thoughts_of(provider: Provider) -> Vec<MessagePart> {
    match provider {
        Provider::Anthropic => vec![
            MessagePart::Opaque {
                data: json!({ "type": "redacted_thinking", "data": "c2VjcmV0" }),
                format: None,
            },
            thought("I look at a."),
            signature("proof"),
        ],
        Provider::OpenAi | Provider::Ollama => vec![
            thought("I look at a."),
            MessagePart::Opaque {
                data: json!({ "type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0 }),
                format: None,
            },
        ],
        Provider::OpenAiResponses => vec![
            MessagePart::Opaque {
                data: json!({ "type": "reasoning", "id": "rs_1", "summary": [],
                    "encrypted_content": "c2VjcmV0" }),
                format: None,
            },
            thought("I look at a."),
        ],
        Provider::Gemini => vec![thought("I look at a."), signature("proof")],
    }
}

/// Returns the conversations, by the name of their file.
fn conversations(provider: Provider) -> Vec<(&'static str, Vec<Message>, bool)> {
    let picture = Image {
        mime: "image/png".to_owned(),
        base64: "iVBORw0KGgo=".to_owned(),
    };
    let answered = |parts| Message::Assistant { parts };
    let results = |results| Message::Results { results };
    let signed = call(
        json!({ "id": "call_1", "name": "Read", "arguments": { "path": "a" },
        "signatures": ["proof"] }),
    );
    let mut with_thoughts = thoughts_of(provider);
    with_thoughts.push(text("Looking."));
    with_thoughts.push(if provider == Provider::Gemini {
        signed
    } else {
        read("call_1", "a")
    });
    vec![
        ("text", vec![user("do it")], true),
        (
            "talk",
            vec![
                user("do it"),
                answered(vec![text("one")]),
                user("two"),
                user("three"),
            ],
            true,
        ),
        (
            "calls",
            vec![
                user("do it"),
                answered(vec![
                    text("Looking."),
                    read("call_1", "a"),
                    read("call_2", "b"),
                ]),
                results(vec![
                    result("call_1", "content of a", Vec::new()),
                    result("call_2", "content of b", Vec::new()),
                ]),
                answered(vec![read("call_3", "c")]),
                results(vec![result("call_3", "content of c", Vec::new())]),
            ],
            true,
        ),
        (
            "picture",
            vec![
                user("look"),
                answered(vec![read("call_1", "a.png")]),
                results(vec![result("call_1", "a picture", vec![picture])]),
            ],
            true,
        ),
        (
            "thoughts",
            vec![
                user("do it"),
                answered(with_thoughts),
                results(vec![result("call_1", "content of a", Vec::new())]),
            ],
            true,
        ),
        ("no-tools", vec![user("sum it up")], false),
        // As in an earlier log: arguments that are no object, and reasoning of another provider.
        (
            "old-log",
            vec![
                user("do it"),
                answered(vec![
                    thought("unsigned"),
                    text("a"),
                    text("b"),
                    call(json!({ "id": "call_1", "name": "Read", "arguments": null })),
                    call(json!({ "id": "call_2", "name": "Read", "arguments": "{\"path\": oops" })),
                ]),
                results(vec![
                    result("call_1", "", Vec::new()),
                    result("call_2", "not JSON", Vec::new()),
                ]),
                user("go on"),
            ],
            true,
        ),
    ]
}

fn definitions() -> Vec<ToolDefinition> {
    let definition = |name: &str, description: &str, schema| ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        schema,
        is_read_only: true,
        server: None,
    };
    vec![
        definition(
            "Read",
            "Reads a file.",
            json!({ "type": "object", "properties": { "path": { "type": "string" } },
                "required": ["path"], "additionalProperties": false }),
        ),
        definition(
            "Jobs",
            "Lists jobs.",
            json!({ "type": "object", "properties": {} }),
        ),
        definition(
            "hub__find",
            "Of an MCP server, with words of JSON Schema that not every provider knows.",
            json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {
                    "kind": { "anyOf": [{ "const": "a" }, { "type": "null" }] },
                    "many": { "type": ["array", "null"], "items": { "$ref": "#/$defs/one" } },
                    "size": { "type": "integer", "exclusiveMinimum": 0, "default": 3 },
                },
                "$defs": { "one": { "type": "string", "format": "uri", "pattern": "^h" } } }),
        ),
    ]
}

/// Returns a recorded request: its line, its headers without those of every connection, and its
/// body.
fn recorded(provider: Provider, messages: &[Message], has_tools: bool) -> Value {
    let server = ModelServer::start([Step::text("ok")]);
    let model = remote(&server, provider);
    let tools = if has_tools { definitions() } else { Vec::new() };
    let prompt = Prompt {
        system: "You are tested.",
        messages,
        tools: &tools,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(model.answer(prompt, &mut |_| {})).unwrap();
    let asked = server.asked().remove(0);
    let mut headers: Vec<String> = asked
        .headers
        .iter()
        .map(|line| line.replace(KEY, "KEY"))
        .filter(|line| {
            let name = line
                .split(':')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            !["host", "content-length"].contains(&name.as_str())
        })
        .collect();
    headers.sort();
    json!({
        "line": asked.line,
        "headers": headers,
        "body": serde_json::from_str::<Value>(&asked.body).unwrap(),
    })
}

#[test]
fn requests_equal_the_recorded_ones() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/requests");
    for provider in super::FORMATS {
        for (name, messages, has_tools) in conversations(provider) {
            let file = directory.join(format!("{}-{name}.json", provider.as_str()));
            let now = recorded(provider, &messages, has_tools);
            if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(&file, format!("{now:#}\n")).unwrap();
                continue;
            }
            let then: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            assert_eq!(
                format!("{now:#}"),
                format!("{then:#}"),
                "{}",
                file.display()
            );
        }
    }
}
