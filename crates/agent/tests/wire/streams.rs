//! Recorded answers of each format, split into packets in every way, with each line end.
//!
//! The streams follow the published descriptions of the providers. `GLOVEBOX_TEST_BLESS=1` writes
//! the decoded answers beside them anew; review the difference then.

use glovebox_agent::{ModelAnswer, StopReason, WireFormat, decode_stream};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(super) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/streams")
}

/// Returns the name, format and text of each stream.
pub(super) fn recorded() -> Vec<(String, WireFormat, String)> {
    let files = std::fs::read_dir(directory()).unwrap();
    let mut streams: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "sse"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let (word, _) = name.split_once('-').unwrap();
            let format = serde_json::from_value(json!(word)).unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            (name, format, text)
        })
        .collect();
    streams.sort_by(|a, b| a.0.cmp(&b.0));
    streams
}

/// Returns an answer as JSON, for comparison and display.
pub(super) fn described(answer: &ModelAnswer) -> Value {
    json!({ "parts": answer.parts, "stop": answer.stop, "usage": answer.usage })
}

fn with_line_end(text: &str, end: &str) -> Vec<u8> {
    text.replace('\n', end).into_bytes()
}

pub(super) fn decode(
    format: WireFormat,
    packets: &[&[u8]],
) -> Result<ModelAnswer, glovebox_agent::ModelError> {
    decode_stream(format, packets.iter().map(|packet| packet.to_vec()))
}

#[test]
fn recorded_streams_give_the_recorded_answers() {
    let streams = recorded();
    assert_eq!(streams.len(), 31);
    for (name, format, text) in streams {
        let answer =
            decode(format, &[text.as_bytes()]).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let now = format!("{:#}\n", described(&answer));
        let file = directory().join(format!("{name}.json"));
        if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
            std::fs::write(&file, now).unwrap();
            continue;
        }
        let then = std::fs::read_to_string(&file).unwrap();
        assert_eq!(now, then, "{name}");
    }
}

#[test]
fn packets_cut_anywhere_give_the_same_answer_with_every_line_end() {
    for (name, format, text) in recorded() {
        let whole = decode(format, &[text.as_bytes()]).unwrap();
        for end in ["\n", "\r\n", "\r"] {
            let bytes = with_line_end(&text, end);
            for at in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(at);
                let answer = decode(format, &[head, tail]);
                assert_eq!(answer.as_ref(), Ok(&whole), "{name} {end:?} cut at {at}");
            }
            let singles: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(
                decode(format, &singles).as_ref(),
                Ok(&whole),
                "{name} {end:?}"
            );
            // A byte order mark at the beginning is not part of the text.
            let marked = [b"\xEF\xBB\xBF", bytes.as_slice()].concat();
            assert_eq!(
                decode(format, &[&marked]).as_ref(),
                Ok(&whole),
                "{name} {end:?}"
            );
        }
    }
}

#[test]
fn a_stream_that_breaks_off_fails_or_is_whole() {
    for (name, format, text) in recorded() {
        let whole = decode(format, &[text.as_bytes()]).unwrap();
        let mut failures = 0;
        for at in 0..text.len() {
            match decode(format, &[&text.as_bytes()[..at]]) {
                Err(error) => {
                    assert!(error.is_passing, "{name} at {at}: {error:?}");
                    failures += 1;
                }
                // Only token counts may follow the end.
                Ok(answer) => {
                    assert_eq!(answer.parts, whole.parts, "{name} at {at}");
                    assert_eq!(answer.stop, whole.stop, "{name} at {at}");
                }
            }
        }
        assert!(
            failures > text.len() / 4,
            "{name}: {failures} of {}",
            text.len()
        );
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 4 });
    for (format, body) in [
        (
            WireFormat::Chat,
            json!({ "object": "chat.completion", "usage": usage, "choices": [{ "index": 0,
                "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }] }),
        ),
        (
            WireFormat::Anthropic,
            json!({ "type": "message", "content": [{ "type": "text", "text": "ok" }],
                "stop_reason": "end_turn", "usage": { "input_tokens": 9, "output_tokens": 4 } }),
        ),
        (
            WireFormat::Responses,
            json!({ "object": "response", "status": "completed", "output": [{ "type": "message",
                "content": [{ "type": "output_text", "text": "ok" }] }],
                "usage": { "input_tokens": 9, "output_tokens": 4 } }),
        ),
        (
            WireFormat::Gemini,
            json!([{ "candidates": [{ "content": { "parts": [{ "text": "ok" }] },
                "finishReason": "STOP" }],
                "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 4 } }]),
        ),
    ] {
        let body = format!(" {body:#}\n");
        let answer = decode(format, &[body.as_bytes()]).unwrap();
        assert_eq!(answer.text(), "ok", "{format:?}");
        assert_eq!(answer.stop, StopReason::Done);
        assert_eq!(
            answer.usage.map(|usage| (usage.input, usage.output)),
            Some((9, 4)),
            "{format:?}"
        );
        // Half a document is no answer.
        let half = &body.as_bytes()[..body.len() / 2];
        assert!(
            decode(format, &[half]).unwrap_err().is_passing,
            "{format:?}"
        );
    }
}

#[test]
fn what_is_no_stream_is_quoted() {
    let page = "<html><body>Bad gateway</body></html>\n";
    let error = decode(WireFormat::Chat, &[page.as_bytes()]).unwrap_err();
    assert!(
        error.message.contains("Bad gateway") && error.is_passing,
        "{error}"
    );
    let error = decode(WireFormat::Chat, &[]).unwrap_err();
    assert!(error.is_passing, "{error}");
    let error = decode(WireFormat::Chat, &[b"data: {\"choices\": \xFF}\n\n"]).unwrap_err();
    assert!(error.message.contains("cannot be read"), "{error}");
}
