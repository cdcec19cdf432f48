//! Count of the frames in one direction of a stream, by their headers alone.

use crate::frame::{HEADER_BYTES, Header};

/// Counter of the frames of one direction. It stores no payload.
#[derive(Debug, Default)]
pub struct FrameCounter {
    /// Bytes of a header that has begun.
    header: Vec<u8>,
    /// Number of payload bytes of the present frame that are still to come.
    payload_left: usize,
    /// True after a header that violates the protocol. Nothing that follows is a frame.
    is_broken: bool,
}

impl FrameCounter {
    /// Takes the next bytes of the stream, cut anywhere. Returns the number of frames that begin
    /// with a header that these bytes complete.
    pub fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut frames = 0;
        while !self.is_broken && !bytes.is_empty() {
            let skipped = self.payload_left.min(bytes.len());
            self.payload_left -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            let Some(header) = self.header.first_chunk().copied() else {
                break;
            };
            self.header.clear();
            match Header::decode(header) {
                Ok(header) => {
                    self.payload_left = header.len as usize;
                    frames += 1;
                }
                // The receiver of the stream ends it.
                Err(_) => self.is_broken = true,
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, FrameKind, RequestId, encode_header};

    fn stream() -> Vec<u8> {
        let mut stream = Vec::new();
        for header in [
            Header::control(FrameKind::Request, RequestId(1), 30),
            Header::control(FrameKind::Cancel, RequestId(1), 0),
            Header::data(RequestId(1), Channel::Input, 1000, true),
            Header::credit(RequestId(1), Channel::Stdout),
        ] {
            stream.extend_from_slice(&encode_header(header));
            stream.resize(stream.len() + header.len as usize, 0xff);
        }
        stream
    }

    #[test]
    fn frames_are_counted_wherever_the_stream_is_cut() {
        let stream = stream();
        for cut in [1, 5, 12, 13, 100, stream.len()] {
            let mut counter = FrameCounter::default();
            let frames: u64 = stream.chunks(cut).map(|piece| counter.count(piece)).sum();
            assert_eq!(frames, 4, "pieces of {cut}");
        }
    }

    #[test]
    fn nothing_is_counted_after_a_header_that_is_none() {
        let mut counter = FrameCounter::default();
        assert_eq!(counter.count(&stream()), 4);
        assert_eq!(counter.count(&[0xff; HEADER_BYTES]), 0);
        assert_eq!(counter.count(&stream()), 0);
    }
}
