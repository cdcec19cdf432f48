//! Arbitrary bytes as the answer of a model server, in each format: no panic, and the same answer however
//! the bytes are cut into packets.
#![no_main]

use glovebox_agent::{WireFormat, decode_stream};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, usize, Vec<u8>)| {
    let (format, at, bytes) = input;
    let format = match format % 4 {
        0 => WireFormat::Anthropic,
        1 => WireFormat::Chat,
        2 => WireFormat::Responses,
        _ => WireFormat::Gemini,
    };
    let whole = decode_stream(format, [bytes.clone()]);
    let (head, tail) = bytes.split_at(at % (bytes.len() + 1));
    let cut = decode_stream(format, [head.to_vec(), tail.to_vec()]);
    assert_eq!(whole.is_ok(), cut.is_ok());
    if let (Ok(whole), Ok(cut)) = (whole, cut) {
        assert_eq!(whole, cut);
        let text = String::from_utf8_lossy(&bytes);
        let ends = ["finish_reason", "[DONE]", "message_stop", "stop_reason", "response", "finishReason", "blockReason", "\\u"];
        assert!(ends.iter().any(|end| text.contains(end)), "an answer without an end");
    }
});
