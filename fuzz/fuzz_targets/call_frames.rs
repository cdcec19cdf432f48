//! Frames of a process that runs a tool: whatever arrives, in whatever pieces, is messages or an error, and never more than
//! was allowed is held.
#![no_main]

use glovebox_js::tool_call::{CallMessage, FrameDecoder};
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 4096;

fuzz_target!(|pieces: Vec<Vec<u8>>| {
    let mut decoder = FrameDecoder::new(MAX_BYTES);
    for piece in &pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    assert!(frame.len() <= MAX_BYTES);
                    let _ = serde_json::from_slice::<CallMessage>(&frame);
                }
                Err(_) => return,
            }
        }
    }
});
