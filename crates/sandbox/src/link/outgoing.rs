//! The sending half of a link: frames leave in order and whole, and no lock is ever held while
//! waiting for the peer to make room.

use glovebox_proto::{HEADER_BYTES, Header, encode_header};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;

/// Bytes waiting to leave above which further frames wait, credit and cancellation excepted.
pub(crate) const HIGH_WATER_BYTES: usize = 256 << 10;
/// Buffers larger than this are given back once they are empty.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes that could not be written at once.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
}

impl Outgoing {
    /// Bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a frame now as far as the peer takes it, and keeps the rest. Nothing blocks.
    pub(crate) fn send(
        &mut self,
        fd: impl AsFd,
        header: Header,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let head = encode_header(header);
        let written = if self.is_empty() {
            match rustix::io::writev(&fd, &[IoSlice::new(&head), IoSlice::new(payload)]) {
                Ok(written) => written,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(errno),
            }
        } else {
            0
        };
        if written < HEADER_BYTES + payload.len() {
            self.queue_from(&head, payload, written);
        }
        Ok(())
    }

    fn queue_from(&mut self, head: &[u8], payload: &[u8], written: usize) {
        if self.start > 0 && self.start * 2 >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer
            .extend_from_slice(&head[written.min(HEADER_BYTES)..]);
        self.buffer
            .extend_from_slice(&payload[written.saturating_sub(HEADER_BYTES)..]);
    }

    /// Writes what waits, as far as the peer takes it. Nothing blocks.
    pub(crate) fn flush(&mut self, fd: impl AsFd) -> Result<(), Errno> {
        while !self.is_empty() {
            match rustix::io::write(&fd, &self.buffer[self.start..]) {
                Ok(written) => self.start += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => {
                    self.clear();
                    return Err(errno);
                }
            }
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.start = 0;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
    }
}
