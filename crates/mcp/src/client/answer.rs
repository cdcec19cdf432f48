//! What a server answers to a call, as far as a model is told of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_agent::{Image, ToolOutput};
use glovebox_proto::visible;
use glovebox_tools::cut::{CutBias, CutSource, cut};
use glovebox_tools::picture;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ResourceContents};
use std::fmt::Write as _;

pub(super) type Answer = CallToolResponse;

/// Pictures of one answer.
const MAX_PICTURES: usize = 4;

/// The answer in at most `room` bytes of text, and what was left out of it.
pub(super) fn output(answer: Answer, room: usize) -> ToolOutput {
    let result = match answer {
        CallToolResponse::Complete(result) => result,
        _ => CallToolResult::error(vec![ContentBlock::text(
            "[the server wants something that it is not given here, such as an answer of the user]",
        )]),
    };
    let is_error = result.is_error == Some(true);
    let mut text = String::new();
    let mut images = Vec::new();
    if result.content.is_empty()
        && let Some(data) = &result.structured_content
    {
        text = data.to_string();
    }
    for block in result.content {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        add(&mut text, &mut images, block);
    }
    // TRUST: whatever the server says is cut once and made safe to show.
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
    output
}

fn add(text: &mut String, images: &mut Vec<Image>, block: ContentBlock) {
    // Writing into a string cannot fail.
    let _ = match block {
        ContentBlock::Text(said) => {
            text.push_str(&said.text);
            Ok(())
        }
        ContentBlock::Image(image) => match shown(&image.data) {
            Some(image) if images.len() < MAX_PICTURES => {
                images.push(image);
                write!(text, "[picture {}]", images.len())
            }
            _ => write!(text, "[a picture that cannot be shown]"),
        },
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents {
                uri, text: said, ..
            } => {
                write!(text, "[{}]\n{said}", visible::line_of_text(&uri))
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => write!(
                text,
                "[{}: {} bytes in base64, left out]",
                visible::line_of_text(&uri),
                blob.len()
            ),
            _ => Ok(()),
        },
        ContentBlock::ResourceLink(link) => write!(
            text,
            "[{}: {}]",
            visible::line_of_text(&link.name),
            visible::line_of_text(&link.uri)
        ),
        ContentBlock::Audio(_) => write!(text, "[a recording, left out]"),
        _ => write!(text, "[something that cannot be shown]"),
    };
}

// TRUST: a picture that is none makes providers refuse the whole conversation.
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

    fn told(result: CallToolResult, room: usize) -> ToolOutput {
        output(CallToolResponse::Complete(result), room)
    }

    #[test]
    fn texts_are_cut_once_and_shown_safely() {
        let long = format!("first\n{}last", "line \u{1b}[2J\n".repeat(100_000));
        let told = told(
            CallToolResult::success(vec![ContentBlock::text(long)]),
            1000,
        );
        assert!(told.text.len() < 1200, "{}", told.text.len());
        assert!(told.text.starts_with("first\n") && told.text.ends_with("last"));
        assert!(!told.text.contains('\u{1b}'));
        assert!(told.facts["left_out_bytes"].as_u64().unwrap() > 900_000);
    }

    #[test]
    fn pictures_are_handed_on_only_if_they_are_some() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\0\x80");
        let huge = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff\x01\0\0\0\0\x80");
        let mut blocks = vec![
            ContentBlock::image(png.clone(), "text/html"),
            ContentBlock::image(huge, "image/png"),
            ContentBlock::image("no base64", "image/png"),
            ContentBlock::image(STANDARD.encode("<svg/>"), "image/svg+xml"),
        ];
        blocks.extend((0..9).map(|_| ContentBlock::image(png.clone(), "image/png")));
        let told = told(CallToolResult::success(blocks), 10_000);
        assert_eq!(told.images.len(), MAX_PICTURES);
        assert!(told.images.iter().all(|image| image.mime == "image/png"));
        assert!(
            told.text
                .starts_with("[picture 1]\n[a picture that cannot be shown]\n")
        );
    }

    #[test]
    fn structured_answers_without_text_are_told_as_json() {
        let mut result = CallToolResult::success(Vec::new());
        result.structured_content = Some(json!({ "n": 1 }));
        assert_eq!(told(result, 100).text, r#"{"n":1}"#);
        assert!(told(CallToolResult::error(Vec::new()), 100).is_error);
    }
}
