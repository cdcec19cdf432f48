//! Sending half of a link. Frames are sent in order and whole, and no lock is held while waiting
//! for the peer to take bytes.

use glovebox_proto::{Header, encode_header};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;

/// Number of queued bytes above which further frames wait, except credit and cancellation.
pub(crate) const HIGH_WATER_BYTES: usize = 256 << 10;
/// Capacity above which an empty buffer is shrunk, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes that could not be written at once.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
}

impl Outgoing {
    /// Returns the number of queued bytes.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Returns true if no bytes are queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes as much of a frame as the peer takes, and queues the rest. Does not block.
    pub(crate) fn send(
        &mut self,
        fd: impl AsFd,
        header: Header,
        payload: &[u8],
    ) -> Result<(), Errno> {
        self.write_or_keep(fd, [&encode_header(header), payload])
    }

    /// As [`Self::send`] for two frames, so that a sleeping peer is woken only once.
    pub(crate) fn send_both(
        &mut self,
        fd: impl AsFd,
        (first, payload): (Header, &[u8]),
        (second, rest): (Header, &[u8]),
    ) -> Result<(), Errno> {
        let heads = [first, second].map(encode_header);
        self.write_or_keep(fd, [&heads[0], payload, &heads[1], rest])
    }

    fn write_or_keep<const N: usize>(
        &mut self,
        fd: impl AsFd,
        parts: [&[u8]; N],
    ) -> Result<(), Errno> {
        let mut written = if self.is_empty() {
            match rustix::io::writev(&fd, &parts.map(IoSlice::new)) {
                Ok(written) => written,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(errno),
            }
        } else {
            0
        };
        if self.start > 0 && self.start * 2 >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        for part in parts {
            let gone = written.min(part.len());
            self.buffer.extend_from_slice(&part[gone..]);
            written -= gone;
        }
        Ok(())
    }

    /// Writes queued bytes, as far as the peer takes them. Does not block.
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
