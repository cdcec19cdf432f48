//! Moves a job's bytes: from pipes and terminals to log and followers, and from feeders to standard
//! input. Every function moves as much as credit, the link and the kernel allow now, and is called
//! again when one of them allows more.

use super::Jobs;
use super::job::{Job, STDERR, STDOUT};
use crate::requests::Requests;
use crate::spill::Spill;
use crate::terminal;
use glovebox_proto::{Channel, EVENT_BYTES, Event, JobId, RequestId, WireError};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Directory of the files that logs spill to when they outgrow memory.
const SPILL_DIR: &[u8] = b"/tmp";
/// Maximum number of bytes moved at once; also the default capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;
/// Reads from one stream before other streams get their turn.
const READS_PER_TURN: usize = 4;

/// Time for which the loop polls for the end of a command that has closed its outputs. Such a
/// command is usually exiting, which takes less time than putting the processor to sleep and waking
/// it.
const END_FOLLOWS: Duration = Duration::from_micros(200);

const CHANNELS: [Channel; 2] = [Channel::Stdout, Channel::Stderr];

impl Jobs {
    /// Reads from a stream that epoll reported as readable.
    pub(crate) fn output_ready(&mut self, requests: &mut Requests, id: JobId, stream: usize) {
        if let Some(job) = self.table.get_mut(&id)
            && let Some(output) = job.outputs.get_mut(stream).and_then(Option::as_mut)
        {
            output.is_readable = true;
            self.pump(requests, id, stream);
            self.after_output(requests, id);
        }
    }

    /// Resumes everything about a job that may have waited for credit or room.
    pub(super) fn poll_job(&mut self, requests: &mut Requests, id: JobId) {
        self.catch_up(requests, id);
        if let Some(job) = self.table.get_mut(&id) {
            for stream in &mut job.extras {
                stream.advance(requests);
            }
        }
        self.pump(requests, id, STDOUT);
        self.pump(requests, id, STDERR);
        self.after_output(requests, id);
    }

    fn after_output(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get(&id) else {
            return;
        };
        if !job.waiters.is_empty() {
            self.answer_readers(requests, id);
        }
        self.advance(requests, id);
    }

    /// Reads from a stream as much as followers and link have room for, and passes it to the log
    /// and the link.
    pub(super) fn pump(&mut self, requests: &mut Requests, id: JobId, stream: usize) {
        let Self {
            table,
            scratch,
            ready_streams,
            spin_until,
            ..
        } = self;
        let Some(job) = table.get_mut(&id) else {
            return;
        };
        for _ in 0..READS_PER_TURN {
            let has_followers = !job.followers.is_empty();
            let room = job.room(stream).min(CHUNK_BYTES);
            let is_draining = job.is_draining;
            let Some(output) = &mut job.outputs[stream] else {
                return;
            };
            let room = if is_draining {
                room.min(output.drain)
            } else {
                room
            };
            // Credit, or room in the link, calls this again.
            if !output.is_readable || room == 0 || (has_followers && requests.link.is_congested()) {
                return;
            }
            scratch.resize(CHUNK_BYTES, 0);
            let count = match rustix::io::read(&output.fd, &mut scratch[..room]) {
                Ok(count) => count,
                Err(Errno::AGAIN) => {
                    output.is_readable = false;
                    return;
                }
                Err(Errno::INTR) => continue,
                // A terminal returns EIO after the last process has closed it.
                Err(_) => 0,
            };
            if count == 0 {
                job.outputs[stream] = None;
                if !is_draining && job.outputs.iter().all(Option::is_none) {
                    *spin_until = Some(Instant::now() + END_FOLLOWS);
                }
                return;
            }
            if is_draining {
                output.drain -= count;
            }
            let bytes = &scratch[..count];
            job.output_bytes[stream] += count as u64;
            let before = job.log.total();
            job.log
                .append(stream == STDERR, bytes, || Spill::create(SPILL_DIR));
            for follower in &mut job.followers {
                let room = follower.windows[stream].room() as usize;
                if follower.cursor != before || room < count {
                    // The follower fell behind at the end of the job; it gets these bytes from the
                    // log.
                    continue;
                }
                requests
                    .link
                    .data(follower.request, CHANNELS[stream], bytes);
                follower.windows[stream].spend(count as u32);
                follower.cursor += count as u64;
            }
        }
        ready_streams.push((id, stream));
    }

    /// Sends followers the part of the log that they lack, as far as their credit allows.
    fn catch_up(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        for follower in &mut job.followers {
            while follower.cursor < job.log.total() && !requests.link.is_congested() {
                let (start, chunks) = job.log.read(follower.cursor, CHUNK_BYTES, 1);
                let Some((is_stderr, bytes)) = chunks.first() else {
                    // The log has dropped these bytes.
                    follower.cursor = job.log.total();
                    break;
                };
                follower.cursor = start;
                let stream = if *is_stderr { STDERR } else { STDOUT };
                let count = bytes.len().min(follower.windows[stream].room() as usize);
                if count == 0 {
                    break;
                }
                requests
                    .link
                    .data(follower.request, CHANNELS[stream], &bytes[..count]);
                follower.windows[stream].spend(count as u32);
                follower.cursor += count as u64;
            }
        }
    }

    /// Takes input from a request for a job.
    ///
    /// # Errors
    /// The host sent more than it had room for.
    pub(crate) fn feed(
        &mut self,
        requests: &mut Requests,
        id: JobId,
        request: RequestId,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<(), WireError> {
        let Some(job) = self.table.get_mut(&id) else {
            return Ok(());
        };
        if Self::feed_extra(job, requests, request, bytes, is_last)? {
            return Ok(());
        }
        let Some(feeder) = job.feeders.iter_mut().find(|one| one.request == request) else {
            return Ok(());
        };
        feeder.window.arrived(bytes.len() as u32)?;
        match &mut job.input {
            Some(input) if feeder.is_wanted && !input.is_closing => {
                input.queue.extend(bytes);
                input.owed.push_back((request, bytes.len()));
                if is_last && job.is_input_terminal {
                    // A terminal has no end of file. Its end-of-input character (termios(3), VEOF)
                    // ends the input at the start of a line; elsewhere it must be sent twice.
                    let mark = terminal::end_of_input(&input.fd);
                    let is_at_line = input.queue.back().is_none_or(|&byte| byte == b'\n');
                    let marks = if is_at_line { 1 } else { 2 };
                    input.queue.extend(std::iter::repeat_n(mark, marks));
                } else if is_last {
                    input.is_closing = true;
                }
                self.write_input(requests, id);
            }
            _ => {
                // Nothing will read this input. Returning its credit keeps the host from waiting.
                if let Some(credit) = feeder.window.consumed(bytes.len() as u32) {
                    requests.link.credit(request, Channel::Input, credit);
                }
            }
        }
        Ok(())
    }

    /// Writes queued input as far as the job accepts it.
    pub(crate) fn write_input(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        let Some(input) = &mut job.input else { return };
        let mut is_broken = false;
        while !input.queue.is_empty() {
            let count = match rustix::io::write(&input.fd, input.queue.as_slices().0) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    // Nothing will read the queue any more; all of it counts as consumed.
                    is_broken = true;
                    input.queue.len()
                }
            };
            input.queue.drain(..count);
            if let Some(lent) = job.lent.as_mut().filter(|_| !is_broken) {
                lent.written += count as u64;
            }
            let mut left = count;
            while let Some((request, bytes)) = input.owed.front_mut() {
                let paid = left.min(*bytes);
                left -= paid;
                *bytes -= paid;
                let feeder = job.feeders.iter_mut().find(|one| one.request == *request);
                if let Some(credit) = feeder.and_then(|one| one.window.consumed(paid as u32)) {
                    requests.link.credit(*request, Channel::Input, credit);
                }
                if *bytes > 0 {
                    break;
                }
                input.owed.pop_front();
            }
        }
        if input.queue.is_empty() {
            Self::tell_taken(job, requests);
        }
        if let Some(input) = &mut job.input
            && input.queue.is_empty()
        {
            input.queue.shrink_to(CHUNK_BYTES);
            if is_broken || input.is_closing {
                job.input = None;
            }
        }
    }

    /// Sends the owner an event if the command has read all lent input.
    pub(super) fn tell_taken(job: &mut Job, requests: &mut Requests) {
        let Some(owner) = job.owner else { return };
        let mut listeners = job.listeners.iter_mut();
        if let (Some(lent), Some(listener)) =
            (&mut job.lent, listeners.find(|one| one.request == owner))
            && let Some(taken) = lent.news()
            && listener.window.room() >= EVENT_BYTES as u32
        {
            lent.told = taken;
            listener.window.spend(EVENT_BYTES as u32);
            let event = Event::InputTaken(taken).encode();
            requests.link.data(owner, Channel::Content, &event);
        }
    }
}
