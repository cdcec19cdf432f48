//! Connection to the host: incoming and outgoing frames, both bounded.

use crate::frame_writer::{CONGESTED_BYTES, FrameWriter, LinkEnd};
use glovebox_proto::{
    Channel, Decoder, Fault, FrameKind, HEADER_BYTES, Header, Hello, Reply, RequestId, encode,
    encode_header, limits,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Outgoing bytes at which the guest stops reading from the host. Much larger than the bound for
/// stream data: while the host is busy writing (input, credit, a batch of requests), both sides
/// must not wait for each other to read.
const FULL_BYTES: usize = 4 << 20;

/// Both directions of the connection.
#[derive(Debug)]
pub(crate) struct Link {
    input: OwnedFd,
    frame_writer: Arc<FrameWriter>,
    /// Decoder of incoming frames. Taken out while frames are handled, because they borrow from it.
    pub(crate) decoder: Decoder,
}

impl Link {
    /// Takes ownership of two non-blocking descriptors.
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

    /// Returns the outgoing side.
    pub(crate) const fn frame_writer(&self) -> &Arc<FrameWriter> {
        &self.frame_writer
    }

    /// Returns true if no stream data may be produced for now.
    pub(crate) fn is_congested(&self) -> bool {
        self.frame_writer.pending() >= CONGESTED_BYTES
    }

    /// Returns true if no requests may be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.frame_writer.pending() >= FULL_BYTES
    }

    /// Reads once into the decoder. `Ok` also if there was nothing to read.
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

    /// Queues stream bytes, at most `limits::MAX_DATA_BYTES`.
    pub(crate) fn data(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        self.frame(Header::data(id, channel, bytes.len() as u32, false), bytes);
    }

    /// Sends as many stream bytes as the descriptor accepts, without copying, and queues the rest.
    /// For large amounts.
    pub(crate) fn data_now(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        for bytes in bytes.chunks(limits::MAX_DATA_BYTES as usize) {
            let header = Header::data(id, channel, bytes.len() as u32, false);
            self.frame_writer.push_now([&encode_header(header), bytes]);
        }
    }

    /// Queues credit for the host.
    pub(crate) fn credit(&mut self, id: RequestId, channel: Channel, bytes: u32) {
        self.frame(Header::credit(id, channel), &bytes.to_le_bytes());
    }
}

/// Encodes the frames that end a request: the last of its content, at most
/// `limits::MAX_DATA_BYTES`, and its answer.
pub(crate) fn answer_frames(
    id: RequestId,
    content: &[u8],
    answer: &Result<Reply, Fault>,
) -> Vec<u8> {
    // An answer that is too large to encode is replaced by the fault that says so. That one is
    // small, so the last alternative cannot happen.
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
