//! The sending half of a link: frames leave in order and whole, and no lock is ever held while
//! waiting for the peer to make room.

use glovebox_proto::{Header, encode_header};
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
        self.write_or_keep(fd, [&encode_header(header), payload])
    }

    /// Two frames as [`Self::send`] does one: a peer that sleeps is woken once for both.
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
