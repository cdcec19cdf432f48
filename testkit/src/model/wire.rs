//! Encodes a response as server-sent events, in the format of each provider.

use super::{Format, Wanted};
use serde_json::{Value, json};

/// Returns the events of a complete response: pieces of text, then calls, then the end.
pub(super) fn answer(
    format: Format,
    turn: usize,
    pieces: &[String],
    calls: &[Wanted],
) -> Vec<String> {
    let pieces: Vec<&String> = pieces.iter().filter(|piece| !piece.is_empty()).collect();
    match format {
        Format::Chat => chat(turn, &pieces, calls),
        Format::Messages => messages(turn, &pieces, calls),
        Format::Gemini => gemini(&pieces, calls),
        Format::Responses => responses(turn, &pieces, calls),
    }
}

/// Returns the number of events before the end of a response with one piece of text.
pub(super) const fn words_end(format: Format) -> usize {
    match format {
        Format::Chat | Format::Gemini => 1,
        Format::Messages | Format::Responses => 3,
    }
}

/// Returns the events of a response without the token counts.
pub(super) fn without_usage(events: &[String]) -> String {
    let strip = |event: &String| {
        let (head, json) = event.split_once("data: ")?;
        let mut value: Value = serde_json::from_str(json.trim()).ok()?;
        take_usage(&mut value);
        Some(format!("{head}{}", data(&value)))
    };
    let events = events.iter();
    events
        .map(|event| strip(event).unwrap_or_else(|| event.clone()))
        .collect()
}

fn take_usage(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("usage");
        fields.remove("usageMetadata");
        fields.values_mut().for_each(take_usage);
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(value: &Value) -> String {
    let name = value["type"].as_str().unwrap_or("message");
    format!("event: {name}\ndata: {value}\n\n")
}

fn id(turn: usize, index: usize) -> String {
    format!("call_t{turn}_{index}")
}

fn chat(turn: usize, pieces: &[&String], calls: &[Wanted]) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        data(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        }))
    };
    let mut events: Vec<String> = pieces
        .iter()
        .map(|piece| {
            chunk(
                json!({ "role": "assistant", "content": piece }),
                Value::Null,
            )
        })
        .collect();
    for (index, call) in calls.iter().enumerate() {
        let half = (0..=call.arguments.len() / 2)
            .rev()
            .find(|&at| call.arguments.is_char_boundary(at))
            .unwrap_or(0);
        let (first, second) = call.arguments.split_at(half);
        events.push(chunk(
            json!({ "tool_calls": [{ "index": index, "id": id(turn, index), "type": "function",
                "function": { "name": call.tool, "arguments": first } }] }),
            Value::Null,
        ));
        events.push(chunk(
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": second } }] }),
            Value::Null,
        ));
    }
    let finish = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    events.push(chunk(json!({}), finish.into()));
    events.push(data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
        "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 },
    })));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn messages(turn: usize, pieces: &[&String], calls: &[Wanted]) -> Vec<String> {
    let mut events = vec![named(&json!({
        "type": "message_start",
        "message": { "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": 100, "output_tokens": 1 } },
    }))];
    let mut index = 0;
    if !pieces.is_empty() {
        events.push(named(
            &json!({ "type": "content_block_start", "index": index,
            "content_block": { "type": "text", "text": "" } }),
        ));
        for piece in pieces {
            events.push(named(
                &json!({ "type": "content_block_delta", "index": index,
                "delta": { "type": "text_delta", "text": piece } }),
            ));
        }
        events.push(named(
            &json!({ "type": "content_block_stop", "index": index }),
        ));
        index += 1;
    }
    for (number, call) in calls.iter().enumerate() {
        events.push(named(&json!({ "type": "content_block_start", "index": index,
            "content_block": { "type": "tool_use", "id": id(turn, number), "name": call.tool, "input": {} } })));
        events.push(named(
            &json!({ "type": "content_block_delta", "index": index,
            "delta": { "type": "input_json_delta", "partial_json": call.arguments } }),
        ));
        events.push(named(
            &json!({ "type": "content_block_stop", "index": index }),
        ));
        index += 1;
    }
    let stop = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    events.push(named(&json!({ "type": "message_delta",
        "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": { "output_tokens": 10 } })));
    events.push(named(&json!({ "type": "message_stop" })));
    events
}

fn gemini(pieces: &[&String], calls: &[Wanted]) -> Vec<String> {
    let part = |part: Value, finish: Option<&str>| {
        let mut candidate = json!({ "content": { "role": "model", "parts": [part] }, "index": 0 });
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        data(&json!({
            "candidates": [candidate], "modelVersion": "scripted",
            "usageMetadata": { "promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110 },
        }))
    };
    let mut events: Vec<String> = pieces
        .iter()
        .map(|piece| part(json!({ "text": piece }), None))
        .collect();
    for call in calls {
        let args: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        events.push(part(
            json!({ "functionCall": { "name": call.tool, "args": args } }),
            None,
        ));
    }
    events.push(part(json!({ "text": "" }), Some("STOP")));
    events
}

fn responses(turn: usize, pieces: &[&String], calls: &[Wanted]) -> Vec<String> {
    let mut events = vec![named(&json!({ "type": "response.created",
        "response": { "id": "resp_1", "model": "scripted", "status": "in_progress" } }))];
    let mut output = Vec::new();
    if !pieces.is_empty() {
        let text: String = pieces.iter().map(|piece| piece.as_str()).collect();
        events.push(named(
            &json!({ "type": "response.output_item.added", "output_index": 0,
            "item": { "type": "message", "id": "msg_1", "role": "assistant", "content": [] } }),
        ));
        for piece in pieces {
            events.push(named(
                &json!({ "type": "response.output_text.delta", "output_index": 0,
                "content_index": 0, "item_id": "msg_1", "delta": piece }),
            ));
        }
        let item = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
        events.push(named(
            &json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        ));
        output.push(item);
    }
    for (number, call) in calls.iter().enumerate() {
        let index = output.len();
        let item_id = format!("fc_{turn}_{number}");
        let (namespace, name) = match call.tool.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, call.tool.as_str()),
        };
        let mut item = json!({ "type": "function_call", "id": item_id, "call_id": id(turn, number),
            "name": name, "arguments": "" });
        if let Some(namespace) = namespace {
            item["namespace"] = namespace.into();
        }
        events.push(named(
            &json!({ "type": "response.output_item.added", "output_index": index, "item": item }),
        ));
        events.push(named(
            &json!({ "type": "response.function_call_arguments.delta", "output_index": index,
            "item_id": item_id, "delta": call.arguments }),
        ));
        events.push(named(
            &json!({ "type": "response.function_call_arguments.done", "output_index": index,
            "item_id": item_id, "arguments": call.arguments }),
        ));
        item["arguments"] = call.arguments.as_str().into();
        events.push(named(
            &json!({ "type": "response.output_item.done", "output_index": index, "item": item }),
        ));
        output.push(item);
    }
    events.push(named(&json!({ "type": "response.completed",
        "response": { "id": "resp_1", "model": "scripted", "status": "completed", "output": output,
            "usage": { "input_tokens": 100, "output_tokens": 10, "total_tokens": 110 } } })));
    events
}
