//! Frames and then arbitrary bytes, cut in arbitrary places, through the frame decoder. What it gives must be what
//! was encoded: every frame of ours, whole and in order, and of the bytes only frames that encode to them again.
#![no_main]

use glovebox_proto::{Channel, Decoder, FrameKind, HEADER_BYTES, Header, RequestId, encode_header};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Frame {
    kind: u8,
    channel: u8,
    is_last: bool,
    id: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn encode(&self) -> Vec<u8> {
        let id = RequestId(self.id.max(1));
        // No longer than any kind allows.
        let payload = &self.payload[..self.payload.len().min(4096)];
        let len = payload.len() as u32;
        let channels = [Channel::Input, Channel::Stdout, Channel::Stderr, Channel::Content];
        let channel = channels[usize::from(self.channel) % channels.len()];
        let header = match self.kind % 6 {
            0 => Header::control(FrameKind::Hello, RequestId(0), len),
            1 => Header::control(FrameKind::Request, id, len),
            2 => Header::control(FrameKind::Reply, id, len),
            3 => Header::data(id, channel, len, self.is_last),
            4 => {
                let amount = self.id.to_le_bytes();
                return [&encode_header(Header::credit(id, channel))[..], &amount].concat();
            }
            _ => return encode_header(Header::control(FrameKind::Cancel, id, 0)).to_vec(),
        };
        [&encode_header(header)[..], payload].concat()
    }
}

fuzz_target!(|input: (u16, Vec<Frame>, &[u8])| {
    let (step, frames, garbage) = input;
    let step = usize::from(step).max(1);
    let mut stream: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
    let ours = stream.len();
    stream.extend_from_slice(garbage);

    let mut decoder = Decoder::new();
    let (mut filled, mut decoded) = (0, 0);
    'stream: while filled < stream.len() {
        let space = decoder.space();
        let count = space.len().min(step).min(stream.len() - filled);
        space[..count].copy_from_slice(&stream[filled..filled + count]);
        decoder.filled(count);
        filled += count;
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let (header, payload) = stream[decoded..].split_at(HEADER_BYTES);
                    assert_eq!(encode_header(frame.header), header);
                    assert_eq!(frame.payload, &payload[..frame.payload.len()]);
                    assert_eq!(frame.payload.len(), frame.header.len as usize);
                    decoded += HEADER_BYTES + frame.payload.len();
                }
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    assert!(decoded >= ours, "{decoded} of {ours} bytes of frames were given");
});
