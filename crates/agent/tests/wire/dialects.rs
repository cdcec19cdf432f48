//! Dialects of servers: differences in calls, ends and failures. Each row has a counterpart that
//! fails or differs.

use glovebox_agent::{MessagePart, ModelAnswer, ModelError, StopReason, WireFormat, decode_stream};
use serde_json::{Value, json};

fn decode(format: WireFormat, body: String) -> Result<ModelAnswer, ModelError> {
    decode_stream(format, [body.into_bytes()])
}

fn events(values: &[Value]) -> String {
    let lines: Vec<String> = values
        .iter()
        .map(|value| format!("data: {value}\n\n"))
        .collect();
    lines.concat()
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(word: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": word }] })
}

/// Decodes a chat answer with these fragments of calls.
fn chat_calls(pieces: &[Value]) -> Result<ModelAnswer, ModelError> {
    let mut values: Vec<Value> = pieces
        .iter()
        .map(|piece| delta(json!({ "tool_calls": [piece] })))
        .collect();
    values.push(finish("tool_calls"));
    decode(WireFormat::Chat, events(&values) + "data: [DONE]\n\n")
}

/// Returns the id, name and arguments of each call.
fn shown(answer: &ModelAnswer) -> Vec<(String, String, Value)> {
    let calls = answer.calls().into_iter();
    calls
        .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()))
        .collect()
}

fn call(id: &str, name: &str, path: &str) -> (String, String, Value) {
    (id.to_owned(), name.to_owned(), json!({ "path": path }))
}

#[test]
fn pieces_of_calls_find_their_call_in_every_dialect() {
    let piece = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
        let mut piece = json!({ "function": { "arguments": arguments } });
        if let Some(index) = index {
            piece["index"] = index.into();
        }
        if !id.is_empty() {
            piece["id"] = id.into();
        }
        if !name.is_empty() {
            piece["function"]["name"] = name.into();
        }
        piece
    };
    let (a, b) = (r#"{"path":"a"}"#, r#"{"path":"b"}"#);
    for (row, pieces, calls) in [
        (
            "no index, ids, in pieces",
            vec![
                piece(None, "x", "Read", ""),
                piece(None, "", "", &a[..5]),
                piece(None, "", "", &a[5..]),
                piece(None, "y", "Read", b),
            ],
            vec![call("x", "Read", "a"), call("y", "Read", "b")],
        ),
        (
            "no index, the id in each piece",
            vec![
                piece(None, "x", "Read", &a[..5]),
                piece(None, "x", "Read", &a[5..]),
                piece(None, "y", "Read", b),
            ],
            vec![call("x", "Read", "a"), call("y", "Read", "b")],
        ),
        (
            "no index, no ids",
            vec![piece(None, "", "Read", a), piece(None, "", "Read", b)],
            vec![call("", "Read", "a"), call("", "Read", "b")],
        ),
        (
            "no index, no ids, in pieces",
            vec![
                piece(None, "", "Read", ""),
                piece(None, "", "", a),
                piece(None, "", "Write", b),
            ],
            vec![call("", "Read", "a"), call("", "Write", "b")],
        ),
        (
            "index always 0, other ids",
            vec![
                piece(Some(0), "x", "Read", a),
                piece(Some(0), "y", "Read", b),
            ],
            vec![call("x", "Read", "a"), call("y", "Read", "b")],
        ),
        (
            "index always 0, no ids",
            vec![
                piece(Some(0), "", "Read", a),
                piece(Some(0), "", "Write", b),
            ],
            vec![call("", "Read", "a"), call("", "Write", "b")],
        ),
        (
            "another id without a name is the same call",
            vec![
                piece(Some(0), "x", "Read", &a[..5]),
                piece(Some(0), "y", "", &a[5..]),
            ],
            vec![call("x", "Read", "a")],
        ),
        (
            "out of order, from 1",
            vec![
                piece(Some(2), "y", "Read", &b[..5]),
                piece(Some(1), "x", "Read", &a[..5]),
                piece(Some(2), "", "", &b[5..]),
                piece(Some(1), "", "", &a[5..]),
            ],
            vec![call("y", "Read", "b"), call("x", "Read", "a")],
        ),
        (
            "equal ids",
            vec![
                piece(Some(0), "x", "Read", a),
                piece(Some(1), "x", "Read", b),
            ],
            vec![call("x", "Read", "a"), call("x", "Read", "b")],
        ),
        (
            "equal ids, no index",
            vec![piece(None, "x", "Read", a), piece(None, "x", "Read", b)],
            vec![call("x", "Read", "a"), call("x", "Read", "b")],
        ),
        (
            "the name in each piece",
            vec![
                piece(Some(0), "x", "Read", &a[..5]),
                piece(Some(0), "x", "Read", &a[5..]),
            ],
            vec![call("x", "Read", "a")],
        ),
    ] {
        let answer = chat_calls(&pieces).unwrap_or_else(|error| panic!("{row}: {error}"));
        assert_eq!(shown(&answer), calls, "{row}");
    }
    // A call with two names is refused.
    let error = chat_calls(&[
        piece(Some(0), "x", "Read", &a[..5]),
        piece(Some(0), "x", "Write", &a[5..]),
    ]);
    assert!(error.unwrap_err().is_passing);
}

#[test]
fn arguments_become_an_object_where_one_was_meant() {
    let with = |arguments: Value| {
        let mut piece = json!({ "index": 0, "id": "x", "function": { "name": "Jobs" } });
        if arguments != json!("missing") {
            piece["function"]["arguments"] = arguments;
        }
        chat_calls(&[piece])
    };
    for empty in [
        json!(""),
        json!(" \n"),
        Value::Null,
        json!("missing"),
        json!("null"),
        json!({}),
    ] {
        let answer = with(empty.clone()).unwrap();
        assert_eq!(answer.calls()[0].arguments, json!({}), "{empty}");
    }
    for object in [
        json!({ "a": 1 }),
        json!(r#"{"a":1}"#),
        json!(r#""{\"a\":1}""#),
    ] {
        let answer = with(object.clone()).unwrap();
        assert_eq!(answer.calls()[0].arguments, json!({ "a": 1 }), "{object}");
    }
    assert_eq!(
        with(json!("{\"a\":")).unwrap().calls()[0].arguments,
        json!("{\"a\":")
    );
    assert!(with(json!(7)).is_err());
    // Two surrogates of a pair in two events, and an unpaired one.
    let half = |text: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"name":"W","arguments":"{text}"}}}}]}}}}]}}"#
        )
    };
    let body = format!(
        "data: {}\n\ndata: {}\n\n{}",
        half(r#"{\"a\":\"\ud83d"#),
        half(r#"\ude00\ud83d\"}"#),
        events(&[finish("tool_calls")])
    );
    let answer = decode(WireFormat::Chat, body).unwrap();
    assert_eq!(
        answer.calls()[0].arguments,
        json!({ "a": "\u{1F600}\u{FFFD}" })
    );
}

#[test]
fn content_and_thoughts_come_in_many_forms() {
    let answer = |deltas: &[Value]| {
        let mut values: Vec<Value> = deltas.iter().cloned().map(delta).collect();
        values.push(finish("stop"));
        decode(WireFormat::Chat, events(&values))
    };
    let text = |text: &str| MessagePart::Text {
        text: text.to_owned(),
    };
    let thought = |text: &str| MessagePart::Reasoning {
        text: text.to_owned(),
    };
    for (delta, parts) in [
        (
            json!({ "content": [{ "type": "text", "text": "a" }, { "type": "thinking",
            "thinking": [{ "type": "text", "text": "hm" }] }, { "type": "text", "text": "b" }] }),
            vec![text("a"), thought("hm"), text("b")],
        ),
        (
            json!({ "reasoning": "hm", "reasoning_content": "hm", "content": "a" }),
            vec![thought("hm"), text("a")],
        ),
        (
            json!({ "reasoning": "hm", "content": "a" }),
            vec![thought("hm"), text("a")],
        ),
        (
            json!({ "content": [{ "type": "image_url", "image_url": {} }] }),
            vec![text("\n[a `image_url` that cannot be shown]\n")],
        ),
    ] {
        assert_eq!(
            answer(std::slice::from_ref(&delta)).unwrap().parts,
            parts,
            "{delta}"
        );
    }
    let refused = answer(&[json!({ "refusal": "No." })]).unwrap();
    assert_eq!(
        (refused.text().as_str(), refused.stop),
        ("No.", StopReason::Filtered)
    );
    assert!(answer(&[json!({ "content": 7 })]).unwrap_err().is_passing);
}

#[test]
fn fields_of_a_call_that_only_its_server_knows_are_kept() {
    let extra = json!({ "google": { "thought_signature": "s" } });
    let answer = chat_calls(&[json!({ "index": 0, "id": "x", "extra_content": extra,
        "function": { "name": "Jobs", "arguments": "{}" } })])
    .unwrap();
    assert_eq!(answer.calls()[0].extra["extra_content"], extra);
    let plain =
        chat_calls(&[json!({ "index": 0, "id": "x", "function": { "name": "Jobs" } })]).unwrap();
    assert!(plain.calls()[0].extra.is_empty());
}

#[test]
fn usage_is_found_wherever_it_stands() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 4 });
    let zero = json!({ "prompt_tokens": 0, "completion_tokens": 0 });
    let end = |mut end: Value, field: &str, value: &Value| {
        end[field] = value.clone();
        end
    };
    let in_choice = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop", "usage": usage }] });
    for values in [
        vec![end(finish("stop"), "usage", &usage)],
        vec![finish("stop"), json!({ "choices": [], "usage": usage })],
        vec![end(finish("stop"), "x_groq", &json!({ "usage": usage }))],
        vec![
            end(delta(json!({ "content": "a" })), "usage", &usage),
            end(finish("stop"), "usage", &zero),
        ],
        vec![in_choice],
    ] {
        let answer = decode(WireFormat::Chat, events(&values)).unwrap();
        let counted = answer.usage.map(|usage| (usage.input, usage.output));
        assert_eq!(counted, Some((9, 4)), "{values:?}");
    }
    let answer = decode(
        WireFormat::Chat,
        events(&[end(finish("stop"), "usage", &zero)]),
    )
    .unwrap();
    assert_eq!(answer.usage, None);
}

#[test]
fn ends_are_told_apart_from_breaks() {
    let said = || delta(json!({ "content": "ok" }));
    let chat = |values: &[Value], tail: &str| decode(WireFormat::Chat, events(values) + tail);
    let done = "data: [DONE]\n\n";
    assert!(chat(&[said(), finish("stop")], "").is_ok());
    assert!(chat(&[said(), finish("stop")], done).is_ok());
    assert!(chat(&[said()], "").unwrap_err().is_passing);
    // `[DONE]` alone may follow half an answer, so it is accepted only after complete calls.
    assert!(chat(&[said()], done).unwrap_err().is_passing);
    let calls = |arguments: &str| {
        delta(json!({ "tool_calls": [{ "index": 0, "id": "x",
            "function": { "name": "Jobs", "arguments": arguments } }] }))
    };
    assert_eq!(chat(&[calls("{\"a\":1}")], done).unwrap().calls().len(), 1);
    assert!(chat(&[calls("{\"a\":")], done).unwrap_err().is_passing);
    assert!(
        chat(&[said(), finish("error")], done)
            .unwrap_err()
            .is_passing
    );

    let anthropic = |stop: bool, reason: bool| {
        let mut values = vec![
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "ok" } }),
        ];
        if reason {
            values.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
        }
        if stop {
            values.push(json!({ "type": "message_stop" }));
        }
        decode(WireFormat::Anthropic, events(&values))
    };
    assert!(
        anthropic(true, true).is_ok()
            && anthropic(false, true).is_ok()
            && anthropic(true, false).is_ok()
    );
    assert!(anthropic(false, false).unwrap_err().is_passing);

    let incomplete = |reason: &str| {
        let response = json!({ "status": "incomplete", "incomplete_details": { "reason": reason },
            "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "half" }] }] });
        let value = json!({ "type": "response.incomplete", "response": response });
        decode(WireFormat::Responses, events(&[value]))
            .unwrap()
            .stop
    };
    assert_eq!(incomplete("max_output_tokens"), StopReason::Length);
    assert_eq!(incomplete("content_filter"), StopReason::Filtered);

    let gemini = |reason: &str| {
        let value = json!({ "candidates": [{ "content": { "parts": [{ "text": "ok" }] }, "finishReason": reason }] });
        decode(WireFormat::Gemini, events(&[value]))
    };
    assert!(gemini("STOP").is_ok());
    assert!(gemini("MALFORMED_FUNCTION_CALL").unwrap_err().is_passing);
}

#[test]
fn failures_inside_an_answer_go_the_way_of_statuses() {
    let failed = |value: Value| {
        decode(
            WireFormat::Chat,
            events(&[delta(json!({ "content": "half" })), value]),
        )
        .unwrap_err()
    };
    for (value, is_passing) in [
        (
            json!({ "error": { "message": "busy", "type": "overloaded_error" } }),
            true,
        ),
        (json!({ "error": { "message": "busy", "code": 529 } }), true),
        (json!({ "error": { "message": "who knows" } }), true),
        (json!({ "error": "who knows" }), true),
        (
            json!([{ "error": { "message": "busy", "code": 503 } }]),
            true,
        ),
        (
            json!({ "error": { "message": "slow", "code": "429" } }),
            true,
        ),
        (
            json!({ "error": { "message": "no", "type": "authentication_error" } }),
            false,
        ),
        (json!({ "error": { "message": "no", "code": 403 } }), false),
        (
            json!({ "error": { "message": "no", "code": "model_not_found" } }),
            false,
        ),
        (
            json!({ "error": { "message": "no", "type": "invalid_request_error" } }),
            false,
        ),
    ] {
        let error = failed(value.clone());
        assert_eq!(error.is_passing, is_passing, "{value}: {error:?}");
    }
    let long = failed(json!({ "error": { "message": "no", "code": "context_length_exceeded" } }));
    assert!(long.is_too_long && !long.is_passing);
    let asked =
        failed(json!({ "error": { "message": "Please try again in 1m2.5s.", "code": 429 } }));
    assert_eq!(asked.retry_after.map(|wait| wait.as_millis()), Some(62_500));
    for (format, value) in [
        (
            WireFormat::Anthropic,
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "x" } }),
        ),
        (
            WireFormat::Responses,
            json!({ "type": "response.failed", "response": { "status": "failed",
            "error": { "code": "server_error", "message": "x" } } }),
        ),
        (
            WireFormat::Responses,
            json!({ "type": "error", "code": "server_error", "message": "x" }),
        ),
        (
            WireFormat::Gemini,
            json!({ "error": { "code": 503, "message": "x", "status": "UNAVAILABLE" } }),
        ),
        (
            WireFormat::Gemini,
            json!([{ "error": { "code": 503, "message": "x" } }]),
        ),
    ] {
        let error = decode(format, events(&[value])).unwrap_err();
        assert!(
            error.is_passing && error.message.ends_with(": x"),
            "{format:?}: {error:?}"
        );
    }
    // An `error` field of null is no failure.
    let mut end = finish("stop");
    end["error"] = Value::Null;
    assert!(
        decode(
            WireFormat::Chat,
            events(&[delta(json!({ "content": "a" })), end])
        )
        .is_ok()
    );
}

#[test]
fn new_kinds_of_events_are_passed_over_and_broken_pieces_are_not() {
    let said = events(&[delta(json!({ "content": "ok" })), finish("stop")]);
    for odd in [
        "event: ping\ndata: pong\n\n",
        ": sign of life\n\n",
        "event: ping\n\n",
        "id: 7\nretry: 5\n\n",
        "data: {\"object\":\"of.tomorrow\"}\n\n",
        "colourless\n\n",
    ] {
        let answer = decode(WireFormat::Chat, format!("{odd}{said}"));
        assert_eq!(
            answer.map(|answer| answer.text()),
            Ok("ok".to_owned()),
            "{odd}"
        );
    }
    for broken in [
        "data: {\"choices\":\n\n",
        "data: oops\n\n",
        "event: message\ndata: {\n\n",
    ] {
        let error = decode(WireFormat::Chat, format!("{broken}{said}")).unwrap_err();
        assert!(error.is_passing, "{broken}: {error}");
    }
}
