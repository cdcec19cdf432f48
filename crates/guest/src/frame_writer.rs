//! Outgoing side of the connection to the host, shared by the event loop and the workers.
//!
//! The loop queues frames and sends them. A worker with a complete small answer sends it directly,
//! which saves waking the loop, but only while nothing is queued. So frames leave in order, and no
//! answer is held up behind a host that does not read. The loop learns afterwards which requests
//! were answered.

use glovebox_proto::{RequestId, WireError};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Outgoing bytes at which the guest stops producing stream data until the host has read some.
pub(crate) const CONGESTED_BYTES: usize = 256 << 10;
/// Bytes of buffer kept when everything has been sent.
const KEPT_BYTES: usize = 64 << 10;
/// Maximum size of an answer that a worker sends, in bytes.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Reason why the connection ended.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// The host closed the connection.
    Closed,
    /// The kernel reported an error.
    Failed(Errno),
    /// The host violated the protocol.
    Violation(WireError),
}

/// Outgoing side of the connection.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    fd: OwnedFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    sent: usize,
    /// Requests answered by workers since the last [`FrameWriter::answered`].
    answered: Vec<RequestId>,
    is_closed_to_workers: bool,
}

/// Result of a worker's attempt to send an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// Everything was sent.
    All,
    /// Part was sent and the rest queued; the loop must flush it.
    Part,
    /// Nothing was sent; the loop must send the answer.
    Nothing,
}

impl Queue {
    fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

impl FrameWriter {
    /// Takes ownership of a non-blocking descriptor.
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

    /// Returns the number of bytes that wait to be sent.
    pub(crate) fn pending(&self) -> usize {
        self.queue().pending()
    }

    /// Queues `parts` as one piece.
    pub(crate) fn push(&self, parts: &[&[u8]]) {
        let mut queue = self.queue();
        queue
            .bytes
            .reserve(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            queue.bytes.extend_from_slice(part);
        }
    }

    /// Sends as much as the descriptor accepts, without copying, and queues the rest. For large
    /// parts. The next flush reports an error.
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

    /// Sends as much as the descriptor accepts. Returns true if nothing is left.
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

    /// Sends the frames that answer a request and close it, from any thread, if nothing is queued.
    ///
    /// The lock is held while the frames are sent and the request is recorded, so that
    /// [`Self::answered`] includes the request as soon as the host can know the answer.
    pub(crate) fn answer(&self, id: RequestId, frames: &[u8]) -> SendOutcome {
        if frames.len() > MAX_ANSWER_BYTES {
            return SendOutcome::Nothing;
        }
        let mut queue = self.queue();
        if queue.is_closed_to_workers || queue.pending() > 0 {
            return SendOutcome::Nothing;
        }
        // The loop will see an error of the descriptor itself.
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

    /// Takes the requests that workers have answered since the last call.
    pub(crate) fn answered(&self) -> Vec<RequestId> {
        std::mem::take(&mut self.queue().answered)
    }

    /// Stops workers from sending; from now on only the loop sends.
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
