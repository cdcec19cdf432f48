//! Arbitrary bytes, cut in arbitrary places, through the frame decoder.
#![no_main]

use glovebox_proto::{Decoder, encode_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (step, mut bytes) = input;
    let step = usize::from(step).max(1);
    let mut decoder = Decoder::new();
    let mut decoded = 0_usize;
    while !bytes.is_empty() {
        let space = decoder.space();
        let count = space.len().min(step).min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        decoder.filled(count);
        bytes = &bytes[count..];
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    assert_eq!(frame.payload.len(), frame.header.len as usize);
                    // A header that decodes must encode to something that decodes to the same.
                    let _ = encode_header(frame.header);
                    decoded += frame.payload.len();
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = decoded;
});
