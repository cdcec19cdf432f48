//! Result of a call to a server, reduced to what a model sees.
//!
//! The result is read field by field. A block that violates the protocol does not affect the
//! others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_agent::{Image, ToolOutput};
use glovebox_proto::visible;
use glovebox_tools::cut::{CutBias, CutSource, cut};
use glovebox_tools::picture;
use serde_json::Value;
use std::fmt::Write as _;

/// Maximum number of images in one result.
const MAX_PICTURES: usize = 4;
/// Maximum number of blocks in one result.
const MAX_BLOCKS: usize = 10_000;

/// Converts the result to at most `room` bytes of text, with the number of omitted bytes in the
/// facts.
///
/// # Errors
/// The field because of which the result cannot be understood.
pub(super) fn output(answer: &Value, room: usize) -> Result<ToolOutput, &'static str> {
    let mut images = Vec::new();
    let mut is_error = matches!(&answer["isError"], Value::Bool(true))
        || answer["isError"].as_str() == Some("true");
    let text = if answer["resultType"] == "input_required" {
        is_error = true;
        "[the server wants something that it is not given here, such as an answer of the user]"
            .to_owned()
    } else {
        read_content(answer, &mut images)?
    };
    // TRUST: the text comes from the server. It is truncated once and escaped here.
    let source = CutSource {
        head: text.as_bytes(),
        gap: 0,
        tail: &[],
    };
    let lean = if is_error {
        CutBias::End
    } else {
        CutBias::Even
    };
    let told = cut(source, room, lean);
    let mut output = ToolOutput {
        text: told.text,
        is_error,
        images,
        ..ToolOutput::default()
    };
    output.facts.insert("bytes".to_owned(), text.len().into());
    if told.left_out > 0 {
        let left_out = told.left_out.into();
        output.facts.insert("left_out_bytes".to_owned(), left_out);
    }
    Ok(output)
}

fn read_content(answer: &Value, images: &mut Vec<Image>) -> Result<String, &'static str> {
    let structured = &answer["structuredContent"];
    let mut text = String::new();
    match &answer["content"] {
        Value::Array(blocks) if blocks.is_empty() && !structured.is_null() => {
            text = structured.to_string();
        }
        Value::Array(blocks) => {
            for block in blocks.iter().take(MAX_BLOCKS) {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                add(&mut text, images, block);
            }
        }
        block @ (Value::Object(_) | Value::String(_)) => add(&mut text, images, block),
        Value::Null if !structured.is_null() => text = structured.to_string(),
        // An error without content is valid.
        Value::Null if answer.get("isError").is_some() => {}
        _ if answer.is_object() => return Err("content"),
        _ => return Err("result"),
    }
    Ok(text)
}

fn add(text: &mut String, images: &mut Vec<Image>, block: &Value) {
    let field = |name: &str| visible::line_of_text(block[name].as_str().unwrap_or_default());
    let kind = block["type"].as_str().unwrap_or_default();
    // Writing to a `String` cannot fail.
    let _ = match (kind, block) {
        (_, Value::String(said)) => {
            text.push_str(said);
            Ok(())
        }
        ("image", _) => match block["data"].as_str().and_then(shown) {
            Some(image) if images.len() < MAX_PICTURES => {
                images.push(image);
                write!(text, "[picture {}]", images.len())
            }
            _ => write!(text, "[a picture that cannot be shown]"),
        },
        ("audio", _) => write!(text, "[a recording, left out]"),
        ("resource", _) => add_resource(text, &block["resource"]),
        ("resource_link", _) => match field("name") {
            name if name.is_empty() => write!(text, "[{}]", field("uri")),
            name => write!(text, "[{name}: {}]", field("uri")),
        },
        // Also for unknown types of blocks.
        _ if block["text"].is_string() => {
            text.push_str(block["text"].as_str().unwrap_or_default());
            Ok(())
        }
        ("text", _) if !block["text"].is_null() => write!(text, "{}", block["text"]),
        ("", _) => write!(text, "[something that cannot be shown]"),
        _ => write!(text, "[a `{}` that cannot be shown]", field("type")),
    };
}

fn add_resource(text: &mut String, resource: &Value) -> std::fmt::Result {
    let uri = visible::line_of_text(resource["uri"].as_str().unwrap_or("a resource"));
    match (&resource["text"], &resource["blob"]) {
        (Value::String(said), _) => write!(text, "[{uri}]\n{said}"),
        (_, Value::String(blob)) => {
            write!(text, "[{uri}: {} bytes in base64, left out]", blob.len())
        }
        _ => write!(text, "[{uri}, which cannot be shown]"),
    }
}

// TRUST: the bytes are checked to be an image. Providers refuse the whole conversation otherwise.
fn shown(base64: &str) -> Option<Image> {
    let bytes = STANDARD.decode(base64).ok()?;
    let mime = picture(&bytes)?;
    Some(Image {
        mime: mime.to_owned(),
        base64: STANDARD.encode(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_cut_once_and_shown_safely() {
        let long = format!("first\n{}last", "line \u{1b}[2J\n".repeat(100_000));
        let answer = json!({ "content": [{ "type": "text", "text": long }] });
        let told = output(&answer, 1000).unwrap();
        assert!(told.text.len() < 1200, "{}", told.text.len());
        assert!(told.text.starts_with("first\n") && told.text.ends_with("last"));
        assert!(!told.text.contains('\u{1b}'));
        assert!(told.facts["left_out_bytes"].as_u64().unwrap() > 900_000);
    }

    #[test]
    fn pictures_are_handed_on_only_if_they_are_some() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\0\x80");
        let huge = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff\x01\0\0\0\0\x80");
        let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "text/html" });
        let mut blocks = vec![
            image(&png),
            image(&huge),
            image("no base64"),
            image(&STANDARD.encode("<svg/>")),
        ];
        blocks.extend((0..9).map(|_| image(&png)));
        let told = output(&json!({ "content": blocks }), 10_000).unwrap();
        assert_eq!(told.images.len(), MAX_PICTURES);
        assert!(told.images.iter().all(|image| image.mime == "image/png"));
        assert!(
            told.text
                .starts_with("[picture 1]\n[a picture that cannot be shown]\n")
        );
    }

    #[test]
    fn answer_that_is_not_to_the_letter_is_read_block_by_block() {
        let text = json!({ "type": "text", "text": "row 7", "annotations": { "audience": ["system"], "priority": "high" } });
        for (answer, told) in [
            (json!({ "content": [text] }), "row 7"),
            (json!({ "content": text }), "row 7"),
            (json!({ "content": "row 7" }), "row 7"),
            (
                json!({ "content": ["row 7", 5, null] }),
                "row 7\n[something that cannot be shown]\n[something that cannot be shown]",
            ),
            (
                json!({ "content": [text], "tools": [], "messages": 5, "_meta": 1 }),
                "row 7",
            ),
            (
                json!({ "content": [text, { "type": "video", "data": "AAAA" }] }),
                "row 7\n[a `video` that cannot be shown]",
            ),
            (
                json!({ "content": [{ "type": "note", "text": "row 8" }] }),
                "row 8",
            ),
            (json!({ "content": [{ "text": "row 9" }] }), "row 9"),
            (
                json!({ "content": [{ "type": "text", "text": { "n": 1 } }] }),
                r#"{"n":1}"#,
            ),
            (
                json!({ "content": [{ "type": "text" }] }),
                "[a `text` that cannot be shown]",
            ),
            (
                json!({ "content": [text, { "type": "resource_link", "uri": "ui://1" }] }),
                "row 7\n[ui://1]",
            ),
            (
                json!({ "content": [{ "type": "resource_link", "uri": "ui://1", "name": "v", "icons": [{ "sizes": 5 }] }] }),
                "[v: ui://1]",
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": { "uri": "a://b", "text": "c" } }] }),
                "[a://b]\nc",
            ),
            (
                json!({ "content": [{ "type": "resource", "resource": 5 }] }),
                "[a resource, which cannot be shown]",
            ),
            (
                json!({ "content": [{ "type": "image", "data": 5 }] }),
                "[a picture that cannot be shown]",
            ),
            (json!({ "structuredContent": { "n": 1 } }), r#"{"n":1}"#),
            (
                json!({ "content": [], "structuredContent": { "n": 1 } }),
                r#"{"n":1}"#,
            ),
            (json!({ "content": [] }), ""),
        ] {
            assert_eq!(output(&answer, 1000).unwrap().text, told, "{answer}");
        }
        for (answer, field) in [
            (json!({ "content": 5 }), "content"),
            (json!({ "tools": [] }), "content"),
            (json!({}), "content"),
            (json!([text]), "result"),
            (json!(null), "result"),
        ] {
            assert_eq!(output(&answer, 1000).unwrap_err(), field, "{answer}");
        }
        for answer in [
            json!({ "isError": "true" }),
            json!({ "content": [], "isError": true }),
        ] {
            assert!(output(&answer, 100).unwrap().is_error, "{answer}");
        }
        let waits = output(&json!({ "resultType": "input_required" }), 1000).unwrap();
        assert!(waits.is_error && waits.text.contains("wants something"));
    }
}
