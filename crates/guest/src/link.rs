//! The connection to the host: frames in, frames out, both bounded.

use crate::frame_writer::{CONGESTED_BYTES, FrameWriter, LinkEnd};
use glovebox_proto::{
    Channel, Decoder, Fault, FrameKind, HEADER_BYTES, Header, Hello, Reply, RequestId, encode,
    encode_header, limits,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Outgoing bytes from which on nothing is read from the host either. Much larger than what stops
/// stream data, for a host that is busy writing (input, credit, a batch of requests) must not find
/// both sides waiting for the other to read.
const FULL_BYTES: usize = 4 << 20;

/// Both directions of the connection.
#[derive(Debug)]
pub(crate) struct Link {
    input: OwnedFd,
    frame_writer: Arc<FrameWriter>,
    /// Taken out while frames are handled, for they borrow from it.
    pub(crate) decoder: Decoder,
}

impl Link {
    /// Takes over two non-blocking descriptors.
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self {
            input,
            frame_writer: Arc::new(FrameWriter::new(output)),
            decoder: Decoder::new(),
        }
    }

    pub(crate) const fn input(&self) -> &OwnedFd {
        &self.input
    }

    /// The outgoing side.
    pub(crate) const fn frame_writer(&self) -> &Arc<FrameWriter> {
        &self.frame_writer
    }

    /// Whether to stop producing.
    pub(crate) fn is_congested(&self) -> bool {
        self.frame_writer.pending() >= CONGESTED_BYTES
    }

    /// Whether to stop listening.
    pub(crate) fn is_full(&self) -> bool {
        self.frame_writer.pending() >= FULL_BYTES
    }

    /// Reads once. `Ok` also when there was nothing.
    pub(crate) fn fill(&mut self) -> Result<(), LinkEnd> {
        match rustix::io::read(&self.input, self.decoder.space()) {
            Ok(0) | Err(Errno::CONNRESET) => Err(LinkEnd::Closed),
            Ok(count) => {
                self.decoder.filled(count);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(LinkEnd::Failed(errno)),
        }
    }

    fn frame(&self, header: Header, payload: &[u8]) {
        self.frame_writer.push(&[&encode_header(header), payload]);
    }

    /// Queues the handshake.
    pub(crate) fn hello(&mut self, hello: &Hello) -> Result<(), Fault> {
        let payload = encode(hello)?;
        let header = Header::control(FrameKind::Hello, RequestId(0), payload.len() as u32);
        self.frame(header, &payload);
        Ok(())
    }

    /// Queues the answer to a request.
    pub(crate) fn reply(&mut self, id: RequestId, answer: &Result<Reply, Fault>) {
        self.frame_writer.push(&[&answer_frames(id, &[], answer)]);
    }

    /// Queues stream bytes; at most `limits::MAX_DATA_BYTES` of them.
    pub(crate) fn data(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        self.frame(Header::data(id, channel, bytes.len() as u32, false), bytes);
    }

    /// Sends stream bytes as far as the descriptor takes them at once, without copying, and queues
    /// the rest; for many of them.
    pub(crate) fn data_now(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        for bytes in bytes.chunks(limits::MAX_DATA_BYTES as usize) {
            let header = Header::data(id, channel, bytes.len() as u32, false);
            self.frame_writer.push_now([&encode_header(header), bytes]);
        }
    }

    /// Queues room for the host to send more.
    pub(crate) fn credit(&mut self, id: RequestId, channel: Channel, bytes: u32) {
        self.frame(Header::credit(id, channel), &bytes.to_le_bytes());
    }
}

/// The frames that end a request: the last of its content, at most `limits::MAX_DATA_BYTES`, and its
/// answer.
pub(crate) fn answer_frames(
    id: RequestId,
    content: &[u8],
    answer: &Result<Reply, Fault>,
) -> Vec<u8> {
    // An answer that is too large to encode is answered by the fault that says so, and that one
    // is small; the last resort cannot be reached.
    let payload = encode(answer)
        .or_else(|fault| encode(&Err::<Reply, _>(fault)))
        .unwrap_or_default();
    let mut frames = Vec::with_capacity(2 * HEADER_BYTES + content.len() + payload.len());
    let mut frame = |header, payload: &[u8]| {
        frames.extend_from_slice(&encode_header(header));
        frames.extend_from_slice(payload);
    };
    if !content.is_empty() {
        let header = Header::data(id, Channel::Content, content.len() as u32, false);
        frame(header, content);
    }
    let header = Header::control(FrameKind::Reply, id, payload.len() as u32);
    frame(header, &payload);
    frames
}
