//! Conversion of a session's events to chunks of the AI SDK's UI message stream.
//!
//! Pieces of text are sent as they arrive, and some may be missing for a slow reader. The kept
//! event of the whole response supplies the missing text, so the browser shows exactly what the
//! model said.

use serde_json::{Value, json};

/// Converter of events to chunks. It closes every block and step that it has opened.
#[derive(Debug)]
pub(super) struct ChatChunks {
    session: String,
    /// Open block of text or reasoning, with its id.
    open: Option<(Block, String)>,
    blocks: u32,
    /// Text and reasoning of the current response that were already sent.
    sent: [String; 2],
    is_in_step: bool,
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Text,
    Reasoning,
}

impl Block {
    const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
}

impl ChatChunks {
    pub(super) fn new(session: &str) -> Self {
        Self {
            session: session.to_owned(),
            open: None,
            blocks: 0,
            sent: [String::new(), String::new()],
            is_in_step: false,
            is_over: false,
        }
    }

    /// Returns true if the agent has ended.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the chunks at the beginning of the stream.
    pub(super) fn begin(&self) -> Vec<Value> {
        vec![json!({ "type": "start", "messageMetadata": { "sessionId": self.session } })]
    }

    /// Returns the chunks of one event.
    pub(super) fn take(&mut self, kind: &str, json: &str) -> Vec<Value> {
        // This server wrote the event, so the JSON is valid.
        let event: Value = serde_json::from_str(json).unwrap_or_default();
        let mut chunks = Vec::new();
        match kind {
            "turn_started" => self.begin_step(&mut chunks),
            "text" => self.piece(Block::Text, text(&event), &mut chunks),
            "reasoning" => self.piece(Block::Reasoning, text(&event), &mut chunks),
            "retrying" => {
                // Pieces of the failed attempt are void. They cannot be recalled, but the next
                // attempt starts a new block.
                self.close_block(&mut chunks);
                self.sent = [String::new(), String::new()];
            }
            "answered" => self.answered(&event, &mut chunks),
            "call_started" => {
                self.close_block(&mut chunks);
                chunks.push(json!({
                    "type": "tool-input-available",
                    "toolCallId": event["id"],
                    "toolName": event["tool"],
                    "input": event["arguments"],
                    "dynamic": true,
                }));
            }
            "call_finished" => chunks.push(call_finished(&event)),
            "dropped" => {
                self.close(&mut chunks);
                chunks.push(json!({ "type": "error", "errorText": "the reader was too slow" }));
                self.finish(&mut chunks);
            }
            "ended" => self.ended(&event, &mut chunks),
            _ => {}
        }
        chunks
    }

    /// Returns the chunks of a stream that ends before the agent does.
    pub(super) fn end(&mut self) -> Vec<Value> {
        let mut chunks = Vec::new();
        if !self.is_over {
            self.close(&mut chunks);
            chunks.push(json!({ "type": "error", "errorText": "the server is ending" }));
            self.finish(&mut chunks);
        }
        chunks
    }

    fn begin_step(&mut self, chunks: &mut Vec<Value>) {
        self.close(chunks);
        self.sent = [String::new(), String::new()];
        self.is_in_step = true;
        chunks.push(json!({ "type": "start-step" }));
    }

    fn piece(&mut self, block: Block, piece: &str, chunks: &mut Vec<Value>) {
        if piece.is_empty() {
            return;
        }
        let id = match &self.open {
            Some((open, id)) if *open == block => id.clone(),
            _ => {
                self.close_block(chunks);
                self.blocks += 1;
                let id = format!("{}-{}", block.word(), self.blocks);
                chunks.push(json!({ "type": format!("{}-start", block.word()), "id": id }));
                self.open = Some((block, id.clone()));
                id
            }
        };
        chunks.push(json!({ "type": format!("{}-delta", block.word()), "id": id, "delta": piece }));
        self.sent[block as usize].push_str(piece);
    }

    /// Adds the parts of the whole response that were not sent as pieces.
    fn answered(&mut self, event: &Value, chunks: &mut Vec<Value>) {
        for block in [Block::Reasoning, Block::Text] {
            let parts = event["parts"].as_array().into_iter().flatten();
            let whole: String = parts
                .filter(|part| part["kind"] == block.word())
                .map(text)
                .collect();
            let sent = std::mem::take(&mut self.sent[block as usize]);
            if let Some(rest) = whole.strip_prefix(sent.as_str()) {
                self.piece(block, rest, chunks);
            } else {
                // Pieces are missing in the middle: send the whole text as a new block.
                self.close_block(chunks);
                self.piece(block, &whole, chunks);
            }
        }
        self.close_block(chunks);
    }

    fn ended(&mut self, event: &Value, chunks: &mut Vec<Value>) {
        self.close(chunks);
        let message = event["message"].as_str().unwrap_or_default();
        match event["ending"].as_str().unwrap_or_default() {
            "completed" => {}
            "aborted" => chunks.push(json!({ "type": "abort" })),
            _ => chunks.push(json!({ "type": "error", "errorText": message })),
        }
        self.finish(chunks);
    }

    fn finish(&mut self, chunks: &mut Vec<Value>) {
        self.is_over = true;
        chunks.push(json!({ "type": "finish" }));
    }

    fn close(&mut self, chunks: &mut Vec<Value>) {
        self.close_block(chunks);
        if std::mem::take(&mut self.is_in_step) {
            chunks.push(json!({ "type": "finish-step" }));
        }
    }

    fn close_block(&mut self, chunks: &mut Vec<Value>) {
        if let Some((block, id)) = self.open.take() {
            chunks.push(json!({ "type": format!("{}-end", block.word()), "id": id }));
        }
    }
}

fn text(value: &Value) -> &str {
    value["text"].as_str().unwrap_or_default()
}

fn call_finished(event: &Value) -> Value {
    let text = text(event);
    if event["is_error"] == true {
        return json!({
            "type": "tool-output-error", "toolCallId": event["id"], "errorText": text, "dynamic": true,
        });
    }
    let is_json = event["facts"]["is_json"] == true;
    let value = is_json.then(|| serde_json::from_str(text).ok()).flatten();
    let output: Value = value.unwrap_or_else(|| text.into());
    json!({ "type": "tool-output-available", "toolCallId": event["id"], "output": output, "dynamic": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(chunks: &[Value]) -> Vec<&str> {
        chunks
            .iter()
            .map(|chunk| chunk["type"].as_str().unwrap())
            .collect()
    }

    fn play(chunks: &mut ChatChunks, events: &[(&str, Value)]) -> Vec<Value> {
        events
            .iter()
            .flat_map(|(kind, event)| chunks.take(kind, &event.to_string()))
            .collect()
    }

    fn said(chunks: &[Value]) -> String {
        let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
        deltas
            .map(|chunk| chunk["delta"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn steps_blocks_and_calls_are_opened_and_closed_in_order() {
        let mut chunks = ChatChunks::new("s");
        let made = play(
            &mut chunks,
            &[
                ("started", json!({})),
                ("turn_started", json!({})),
                ("reasoning", json!({ "text": "hm" })),
                ("text", json!({ "text": "I " })),
                ("text", json!({ "text": "look" })),
                (
                    "answered",
                    json!({ "parts": [
                { "kind": "reasoning", "text": "hm" }, { "kind": "text", "text": "I look" }, { "kind": "call" },
            ] }),
                ),
                (
                    "call_started",
                    json!({ "id": "c", "tool": "t", "arguments": { "a": 1 } }),
                ),
                (
                    "call_finished",
                    json!({ "id": "c", "text": "{\"b\":2}", "is_error": false, "facts": { "is_json": true } }),
                ),
                ("turn_started", json!({})),
                ("text", json!({ "text": "done" })),
                (
                    "answered",
                    json!({ "parts": [{ "kind": "text", "text": "done" }] }),
                ),
                ("ended", json!({ "ending": "completed" })),
            ],
        );
        assert_eq!(
            types(&made),
            [
                "start-step",
                "reasoning-start",
                "reasoning-delta",
                "reasoning-end",
                "text-start",
                "text-delta",
                "text-delta",
                "text-end",
                "tool-input-available",
                "tool-output-available",
                "finish-step",
                "start-step",
                "text-start",
                "text-delta",
                "text-end",
                "finish-step",
                "finish",
            ]
        );
        assert_eq!(made[9]["output"], json!({ "b": 2 }));
        assert!(chunks.is_over() && chunks.end().is_empty());
    }

    #[test]
    fn what_a_slow_reader_missed_is_in_the_whole_answer() {
        let mut chunks = ChatChunks::new("s");
        let made = play(
            &mut chunks,
            &[
                ("turn_started", json!({})),
                ("text", json!({ "text": "one " })),
                (
                    "answered",
                    json!({ "parts": [{ "kind": "text", "text": "one two" }] }),
                ),
            ],
        );
        assert_eq!(said(&made), "one two");
        // The block of the failed attempt is closed, and the response gets a block of its own.
        let made = play(
            &mut chunks,
            &[
                ("turn_started", json!({})),
                ("text", json!({ "text": "broken" })),
                ("retrying", json!({})),
                ("text", json!({ "text": "whole" })),
                (
                    "answered",
                    json!({ "parts": [{ "kind": "text", "text": "whole" }] }),
                ),
            ],
        );
        let starts = made
            .iter()
            .filter(|chunk| chunk["type"] == "text-start")
            .count();
        assert!(starts >= 2 && said(&made).ends_with("whole"), "{made:?}");
    }

    #[test]
    fn an_end_says_how_it_ended() {
        for (ending, expected) in [
            ("failed", vec!["error", "finish"]),
            ("aborted", vec!["abort", "finish"]),
            ("stopped_by_limit", vec!["error", "finish"]),
        ] {
            let made = ChatChunks::new("s").take(
                "ended",
                &json!({ "ending": ending, "message": "m" }).to_string(),
            );
            assert_eq!(types(&made), expected, "{ending}");
        }
        let mut chunks = ChatChunks::new("s");
        chunks.take("turn_started", "{}");
        assert_eq!(types(&chunks.end()), ["finish-step", "error", "finish"]);
    }
}
