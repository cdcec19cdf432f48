//! The connection to the host: frames in, frames out, both bounded.

use glovebox_proto::{
    Channel, Decoder, Fault, FrameKind, HEADER_BYTES, Header, Hello, Reply, RequestId, WireError,
    encode, encode_header, limits,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSlice;

/// Outgoing bytes from which on no stream data is produced until the host has read some.
const CONGESTED_BYTES: usize = 256 << 10;
/// Outgoing bytes from which on nothing is read from the host either. Much larger, for a host that
/// is busy writing (input, credit, a batch of requests) must not find both sides waiting for the
/// other to read.
const FULL_BYTES: usize = 4 << 20;
/// Buffer kept when everything has been sent.
const KEPT_BYTES: usize = 64 << 10;

/// Why the connection cannot go on.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// The host closed it.
    Closed,
    /// The system reports an error on it.
    Failed(Errno),
    /// The host broke the protocol.
    Violation(WireError),
}

/// Both directions of the connection.
#[derive(Debug)]
pub(crate) struct Link {
    input: OwnedFd,
    output: OwnedFd,
    out: Vec<u8>,
    sent: usize,
    /// Taken out while frames are handled, for they borrow from it.
    pub(crate) decoder: Decoder,
}

impl Link {
    /// Takes over two non-blocking descriptors.
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self {
            input,
            output,
            out: Vec::new(),
            sent: 0,
            decoder: Decoder::new(),
        }
    }

    pub(crate) const fn input(&self) -> &OwnedFd {
        &self.input
    }

    pub(crate) const fn output(&self) -> &OwnedFd {
        &self.output
    }

    /// Bytes waiting to be sent.
    pub(crate) fn pending(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether to stop producing.
    pub(crate) fn is_congested(&self) -> bool {
        self.pending() >= CONGESTED_BYTES
    }

    /// Whether to stop listening.
    pub(crate) fn is_full(&self) -> bool {
        self.pending() >= FULL_BYTES
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

    /// Sends as much as the descriptor takes. Returns whether everything is out.
    pub(crate) fn flush(&mut self) -> Result<bool, LinkEnd> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.output, rest) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Keep the unsent part at the front, so that the buffer does not creep.
                    if self.sent >= CONGESTED_BYTES {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(false);
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(LinkEnd::Closed),
                Err(errno) => return Err(LinkEnd::Failed(errno)),
            }
        }
        self.out.clear();
        self.sent = 0;
        if self.out.capacity() > 2 * CONGESTED_BYTES {
            self.out.shrink_to(KEPT_BYTES);
        }
        Ok(true)
    }

    fn frame(&mut self, header: Header, payload: &[u8]) {
        self.out.reserve(HEADER_BYTES + payload.len());
        self.out.extend_from_slice(&encode_header(header));
        self.out.extend_from_slice(payload);
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
        // An answer that is too large to encode is answered by the fault that says so, and that one
        // is small; the last resort cannot be reached.
        let payload = encode(answer)
            .or_else(|fault| encode(&Err::<Reply, _>(fault)))
            .unwrap_or_default();
        let header = Header::control(FrameKind::Reply, id, payload.len() as u32);
        self.frame(header, &payload);
    }

    /// Queues stream bytes; at most `limits::MAX_DATA_BYTES` of them.
    pub(crate) fn data(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        self.frame(Header::data(id, channel, bytes.len() as u32, false), bytes);
    }

    /// Sends stream bytes as far as the descriptor takes them at once, without copying, and queues
    /// the rest; for many of them. An error shows again when the rest is flushed.
    pub(crate) fn data_now(&mut self, id: RequestId, channel: Channel, bytes: &[u8]) {
        for bytes in bytes.chunks(limits::MAX_DATA_BYTES as usize) {
            let header = Header::data(id, channel, bytes.len() as u32, false);
            let head = encode_header(header);
            let mut written = 0;
            if self.pending() == 0 {
                let parts = [IoSlice::new(&head), IoSlice::new(bytes)];
                written = rustix::io::writev(&self.output, &parts).unwrap_or(0);
            }
            let head = head.get(written..).unwrap_or_default();
            let rest = bytes.get(written.saturating_sub(HEADER_BYTES)..);
            self.out.extend_from_slice(head);
            self.out.extend_from_slice(rest.unwrap_or_default());
        }
    }

    /// Queues room for the host to send more.
    pub(crate) fn credit(&mut self, id: RequestId, channel: Channel, bytes: u32) {
        self.frame(Header::credit(id, channel), &bytes.to_le_bytes());
    }
}
