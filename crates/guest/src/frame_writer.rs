//! The way out to the host, shared between the loop and the workers.
//!
//! The loop queues frames and sends them. A worker that has all of a small answer sends it by itself,
//! which saves waking the loop for it, but only while nothing is queued before it: so frames leave in
//! the order in which they came, and an answer never waits here because of a host that does not read.
//! The loop hears afterwards which requests are over.

use glovebox_proto::{RequestId, WireError};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Outgoing bytes from which on no stream data is produced until the host has read some.
pub(crate) const CONGESTED_BYTES: usize = 256 << 10;
/// Buffer kept when everything has been sent.
const KEPT_BYTES: usize = 64 << 10;
/// Answers up to this size are sent by workers.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 10;

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

/// The outgoing side of the connection.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    fd: OwnedFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    sent: usize,
    /// Requests whose answers workers have sent since the loop last looked.
    answered: Vec<RequestId>,
    is_closed_to_workers: bool,
}

/// How far an answer got that a worker sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// All of it is out.
    All,
    /// The rest of it is queued; the loop has to see to that.
    Part,
    /// Nothing happened: it goes by way of the loop.
    Nothing,
}

impl Queue {
    fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

impl FrameWriter {
    /// Takes over a non-blocking descriptor.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            queue: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A panic ends the process, so a poisoned lock is never seen.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes waiting to be sent.
    pub(crate) fn pending(&self) -> usize {
        self.queue().pending()
    }

    /// Queues what leaves together.
    pub(crate) fn push(&self, parts: &[&[u8]]) {
        let mut queue = self.queue();
        queue
            .bytes
            .reserve(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            queue.bytes.extend_from_slice(part);
        }
    }

    /// Sends as far as the descriptor takes it at once, without copying, and queues the rest; for much.
    /// An error shows again when the rest is flushed.
    pub(crate) fn push_now(&self, parts: [&[u8]; 2]) {
        let mut queue = self.queue();
        let mut written = 0;
        if queue.pending() == 0 {
            written = rustix::io::writev(&self.fd, &parts.map(IoSlice::new)).unwrap_or(0);
        }
        for part in parts {
            let gone = written.min(part.len());
            queue.bytes.extend_from_slice(&part[gone..]);
            written -= gone;
        }
    }

    /// Sends as much as the descriptor takes. Returns whether everything is out.
    pub(crate) fn flush(&self) -> Result<bool, LinkEnd> {
        let mut queue = self.queue();
        let queue = &mut *queue;
        while let Some(rest) = queue
            .bytes
            .get(queue.sent..)
            .filter(|rest| !rest.is_empty())
        {
            match rustix::io::write(&self.fd, rest) {
                Ok(count) => queue.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Keep the unsent part at the front, so that the buffer does not creep.
                    if queue.sent >= CONGESTED_BYTES {
                        queue.bytes.drain(..queue.sent);
                        queue.sent = 0;
                    }
                    return Ok(false);
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(LinkEnd::Closed),
                Err(errno) => return Err(LinkEnd::Failed(errno)),
            }
        }
        queue.bytes.clear();
        queue.sent = 0;
        if queue.bytes.capacity() > 2 * CONGESTED_BYTES {
            queue.bytes.shrink_to(KEPT_BYTES);
        }
        Ok(true)
    }

    /// Sends the frames that answer a request and end it, from any thread, if nothing is before them.
    ///
    /// The request counts as over from the moment in which the host can know the answer: sending and
    /// noting that are one step for whoever asks with [`Self::answered`].
    pub(crate) fn answer(&self, id: RequestId, frames: &[u8]) -> SendOutcome {
        if frames.len() > MAX_ANSWER_BYTES {
            return SendOutcome::Nothing;
        }
        let mut queue = self.queue();
        if queue.is_closed_to_workers || queue.pending() > 0 {
            return SendOutcome::Nothing;
        }
        // What is wrong with the descriptor the loop finds out for itself.
        let Ok(written) = rustix::io::write(&self.fd, frames) else {
            return SendOutcome::Nothing;
        };
        queue.answered.push(id);
        let rest = &frames[written..];
        queue.bytes.extend_from_slice(rest);
        if rest.is_empty() {
            SendOutcome::All
        } else {
            SendOutcome::Part
        }
    }

    /// Requests that workers have answered since this was last asked.
    pub(crate) fn answered(&self) -> Vec<RequestId> {
        std::mem::take(&mut self.queue().answered)
    }

    /// From now on only the loop sends.
    pub(crate) fn close_to_workers(&self) {
        self.queue().is_closed_to_workers = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    fn frame_writer() -> (FrameWriter, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (FrameWriter::new(OwnedFd::from(ours)), theirs)
    }

    fn received(peer: &mut UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = peer.read_to_end(&mut bytes);
        bytes
    }

    #[test]
    fn an_answer_leaves_at_once_and_is_told_once() {
        let (frame_writer, mut peer) = frame_writer();
        assert_eq!(
            frame_writer.answer(RequestId(7), b"answer"),
            SendOutcome::All
        );
        assert_eq!(received(&mut peer), b"answer");
        assert_eq!(frame_writer.answered(), [RequestId(7)]);
        assert_eq!(frame_writer.answered(), []);
        assert!(frame_writer.flush().unwrap());
        assert_eq!(received(&mut peer), b"");
    }

    #[test]
    fn nothing_overtakes_what_is_queued() {
        let (frame_writer, mut peer) = frame_writer();
        frame_writer.push(&[b"first", b", second"]);
        assert_eq!(
            frame_writer.answer(RequestId(7), b"answer"),
            SendOutcome::Nothing
        );
        assert_eq!(frame_writer.answered(), []);
        assert_eq!(frame_writer.pending(), 13);
        assert!(frame_writer.flush().unwrap());
        assert_eq!(received(&mut peer), b"first, second");
        assert_eq!(
            frame_writer.answer(RequestId(7), b"answer"),
            SendOutcome::All
        );
    }

    #[test]
    fn the_rest_of_an_answer_stays_in_its_place() {
        let (frame_writer, mut peer) = frame_writer();
        // Whatever the socket takes of this, it soon takes no more, or a part only.
        let answer = vec![b'a'; MAX_ANSWER_BYTES];
        let mut count = 0;
        let last = loop {
            match frame_writer.answer(RequestId(count), &answer) {
                SendOutcome::All => count += 1,
                other => break other,
            }
            assert!(count < 10_000, "the socket takes everything");
        };
        if last == SendOutcome::Part {
            count += 1;
            assert!(frame_writer.pending() > 0);
        } else {
            assert_eq!(
                frame_writer.pending(),
                0,
                "nothing is kept of what was not sent"
            );
        }
        assert_eq!(
            frame_writer.answer(RequestId(count), b"late"),
            SendOutcome::Nothing
        );
        frame_writer.push(&[b"end"]);
        let mut bytes = Vec::new();
        loop {
            let is_out = frame_writer.flush().unwrap();
            bytes.extend(received(&mut peer));
            if is_out {
                break;
            }
        }
        bytes.extend(received(&mut peer));
        assert_eq!(bytes.len(), count as usize * answer.len() + 3);
        assert!(bytes.ends_with(b"aend"));
        let told: Vec<_> = (0..count).map(RequestId).collect();
        assert_eq!(frame_writer.answered(), told);
    }

    #[test]
    fn what_is_large_or_late_goes_by_way_of_the_loop() {
        let (frame_writer, mut peer) = frame_writer();
        let large = vec![0; MAX_ANSWER_BYTES + 1];
        assert_eq!(
            frame_writer.answer(RequestId(1), &large),
            SendOutcome::Nothing
        );
        frame_writer.close_to_workers();
        assert_eq!(
            frame_writer.answer(RequestId(2), b"answer"),
            SendOutcome::Nothing
        );
        assert_eq!(received(&mut peer), b"");
        assert_eq!(frame_writer.answered(), []);
    }
}
