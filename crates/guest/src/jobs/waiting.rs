//! Requests that wait for a job, follow it or act on it.

use super::job::{Feeder, Follower, Listener, STDERR, STDOUT, Waiter};
use super::{Jobs, ended};
use crate::fault;
use crate::requests::{PendingRequest, Requests};
use crate::terminal;
use crate::timers::Timer;
use glovebox_jail::process;
use glovebox_proto::{
    Channel, Code, Fault, JobId, LogChunk, RecvWindow, Reply, RequestId, SendWindow, WindowSize,
    WireError, limits,
};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

/// Maximum number of chunks in one log answer.
const MAX_CHUNKS: usize = 1024;

impl Jobs {
    /// Answers a request with a job's log from an offset on, as soon as there is any, at the end of
    /// the job or after `wait_ms`.
    pub(crate) fn read_when_there(
        &mut self,
        requests: &mut Requests,
        job: JobId,
        waiter: Waiter,
        wait_ms: u64,
    ) -> Result<(), Fault> {
        self.wait_for(requests, job, waiter, Some(wait_ms))?;
        self.answer_readers(requests, job);
        Ok(())
    }

    /// Answers a request when a job has settled, or with `TimedOut` after `wait_ms`.
    pub(crate) fn wait_until_settled(
        &mut self,
        requests: &mut Requests,
        job: JobId,
        request: RequestId,
        wait_ms: Option<u64>,
    ) -> Result<(), Fault> {
        self.wait_for(requests, job, Waiter::Settled(request), wait_ms)?;
        self.answer_waiters(requests, job);
        Ok(())
    }

    /// Ends a job, and answers a request when the job is over.
    pub(crate) fn kill(
        &mut self,
        requests: &mut Requests,
        job: JobId,
        request: RequestId,
        grace_ms: u64,
    ) -> Result<(), Fault> {
        self.wait_for(requests, job, Waiter::Over(request), None)?;
        self.begin_end(requests, job, grace_ms);
        self.answer_waiters(requests, job);
        Ok(())
    }

    /// Resizes a job's terminal.
    ///
    /// # Errors
    /// `JobEnded`; `InvalidArgument` if the job has no terminal.
    pub(crate) fn resize(&self, job: JobId, size: WindowSize) -> Result<(), Fault> {
        let known = self.get(job)?;
        let Some(terminal) = &known.terminal else {
            if known.is_over {
                return Err(ended(job));
            }
            let message = format!("job {job} has no terminal");
            return Err(Fault::failed(Code::InvalidArgument, message));
        };
        terminal::resize(&terminal.master, size)
            .map_err(|errno| fault::system(errno, "cannot resize the terminal"))
    }

    /// Takes credit from a request for output or events of a job.
    pub(crate) fn credit(
        &mut self,
        requests: &mut Requests,
        job: JobId,
        request: RequestId,
        channel: Channel,
        bytes: u32,
    ) -> Result<(), WireError> {
        if let Some(known) = self.table.get_mut(&job)
            && Self::credit_extra(known, requests, request, channel, bytes)?
        {
            return Ok(());
        }
        if channel == Channel::Content
            && let Some(known) = self.table.get_mut(&job)
            && let Some(listener) = known
                .listeners
                .iter_mut()
                .find(|one| one.request == request)
        {
            listener.window.credit(bytes)?;
            Self::tell_taken(known, requests);
            self.tell_stop(requests, job);
            return Ok(());
        }
        let stream = match channel {
            Channel::Stdout => STDOUT,
            Channel::Stderr => STDERR,
            // Credit for events of a request that was cancelled meanwhile: the host could not know.
            Channel::Content => return Ok(()),
            Channel::Input => {
                return Err(WireError::BadHeader(
                    "credit for a channel a job does not have",
                ));
            }
        };
        if let Some(known) = self.table.get_mut(&job)
            && let Some(follower) = known
                .followers
                .iter_mut()
                .find(|one| one.request == request)
        {
            follower.windows[stream].credit(bytes)?;
            self.poll_job(requests, job);
        }
        Ok(())
    }

    /// Handles the cancellation of a request that started or follows a job. The owner's
    /// cancellation also ends the job.
    pub(crate) fn cancel(&mut self, requests: &mut Requests, job: JobId, request: RequestId) {
        let Some(known) = self.table.get_mut(&job) else {
            return;
        };
        known
            .followers
            .retain(|follower| follower.request != request);
        known.feeders.retain(|feeder| feeder.request != request);
        known
            .listeners
            .retain(|listener| listener.request != request);
        Self::drop_carrier(known, request);
        if known.owner == Some(request) {
            known.is_cancelled = true;
            let grace_ms = known.grace_ms;
            self.begin_end(requests, job, grace_ms);
        } else {
            requests.answer(request, &Err(fault::cancelled()));
        }
        // Other followers may no longer be held up by this one.
        self.poll_job(requests, job);
    }

    /// Answers the request that started a job with `Started` and lets the job continue without it.
    pub(crate) fn release(&mut self, requests: &mut Requests, job: JobId) -> Result<(), Fault> {
        let known = self.get_mut(job)?;
        let Some(owner) = known.owner.take() else {
            let message = format!("no request waits for the end of job {job}");
            return Err(Fault::failed(Code::InvalidArgument, message));
        };
        known.followers.retain(|one| one.request != owner);
        known.feeders.retain(|one| one.request != owner);
        known.listeners.retain(|one| one.request != owner);
        requests.answer(owner, &Ok(Reply::Started(job)));
        self.poll_job(requests, job);
        Ok(())
    }

    /// Handles the cancellation of a request that waits for a job.
    pub(crate) fn cancel_wait(&mut self, requests: &mut Requests, job: JobId, request: RequestId) {
        self.forget_waiter(job, request);
        requests.answer(request, &Err(fault::cancelled()));
    }

    /// Registers a request as waiting for a job, for at most `wait_ms`.
    fn wait_for(
        &mut self,
        requests: &mut Requests,
        job: JobId,
        waiter: Waiter,
        wait_ms: Option<u64>,
    ) -> Result<(), Fault> {
        let known = self.get_mut(job)?;
        let request = waiter.request();
        known.waiters.push(waiter);
        let timer = wait_ms.map(|ms| requests.timers.after_ms(ms, Timer::Request(request)));
        requests
            .open
            .insert(request, PendingRequest::Waiting(job, timer));
        Ok(())
    }

    /// Removes a request from the job it waits for.
    fn forget_waiter(&mut self, job: JobId, request: RequestId) -> Option<Waiter> {
        let waiters = &mut self.table.get_mut(&job)?.waiters;
        let index = waiters
            .iter()
            .position(|waiter| waiter.request() == request)?;
        Some(waiters.remove(index))
    }

    /// Handles the timeout of a waiting request.
    pub(crate) fn wait_is_over(&mut self, requests: &mut Requests, request: RequestId) {
        let Some(PendingRequest::Waiting(job, _)) = requests.open.get(&request) else {
            return;
        };
        let job = *job;
        let waiter = self.forget_waiter(job, request);
        let answer = if let Some(Waiter::Log {
            offset, max_bytes, ..
        }) = waiter
        {
            self.read_log(job, offset, max_bytes)
        } else {
            let message = format!("job {job} has not ended yet");
            Err(Fault::failed(Code::TimedOut, message).retryable())
        };
        requests.answer(request, &answer);
    }

    /// Answers requests that read the job's log and have something to read, while the link has
    /// room.
    pub(super) fn answer_readers(&mut self, requests: &mut Requests, job: JobId) {
        while !requests.link.is_congested() {
            let Some(known) = self.table.get_mut(&job) else {
                return;
            };
            let (total, is_over) = (known.log.total(), known.is_over);
            let is_ready = |waiter: &Waiter| match waiter {
                Waiter::Log { offset, .. } => *offset < total || is_over,
                _ => false,
            };
            let Some(index) = known.waiters.iter().position(is_ready) else {
                return;
            };
            if let Waiter::Log {
                request,
                offset,
                max_bytes,
            } = known.waiters.remove(index)
            {
                let answer = self.read_log(job, offset, max_bytes);
                requests.answer(request, &answer);
            }
        }
    }

    fn read_log(&self, job: JobId, offset: u64, max_bytes: u32) -> Result<Reply, Fault> {
        let known = self.get(job)?;
        let max_bytes = max_bytes.min(limits::MAX_LOG_READ_BYTES) as usize;
        let (start, chunks) = known.log.read(offset, max_bytes, MAX_CHUNKS);
        let next = start
            + chunks
                .iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>();
        let total = known.log.total();
        let chunks = chunks
            .into_iter()
            .map(|(is_stderr, bytes)| LogChunk {
                is_stderr,
                bytes: ByteBuf::from(bytes),
            })
            .collect();
        Ok(Reply::Log {
            start,
            chunks,
            next,
            total,
            is_end: known.is_over && next == total,
        })
    }

    /// Lets a request follow a job's output from `offset` on (from its present end if `None`) and
    /// send input.
    pub(crate) fn attach(
        &mut self,
        requests: &mut Requests,
        id: RequestId,
        job: JobId,
        offset: Option<u64>,
        sends_events: bool,
    ) -> Result<(), Fault> {
        let known = self.get_mut(job)?;
        if sends_events {
            known.listeners.push(Listener {
                request: id,
                window: SendWindow::new(),
            });
        }
        let total = known.log.total();
        let cursor = offset.map_or(total, |offset| offset.min(total));
        known.followers.push(Follower {
            request: id,
            cursor,
            windows: [SendWindow::new(); 2],
            until_over: known.report.is_some(),
        });
        known.feeders.push(Feeder {
            request: id,
            window: RecvWindow::new(),
            is_wanted: true,
        });
        requests.open.insert(id, PendingRequest::Job(job));
        self.poll_job(requests, job);
        Ok(())
    }

    /// Sends a signal to a job's process group, or to all its processes.
    pub(crate) fn signal(&self, job: JobId, signal: i32, whole_tree: bool) -> Result<(), Fault> {
        let known = self.get(job)?;
        if known.is_gone || (known.end.is_some() && !whole_tree) {
            return Err(ended(job));
        }
        if whole_tree {
            let census = process::Census::take().map_err(|errno| {
                fault::system(errno, "cannot find the job's processes in /proc")
            })?;
            for member in census.descendants_of(known.warden) {
                // A process may have ended since; that is not an error.
                let _ = process::send_signal(member.pid, signal);
            }
            return Ok(());
        }
        process::send_group_signal(known.command, signal).map_err(|errno| match errno {
            Errno::SRCH => ended(job),
            Errno::INVAL => Fault::failed(
                Code::InvalidArgument,
                format!("signal {signal} does not exist"),
            ),
            errno => fault::system(errno, "cannot send the signal"),
        })
    }
}
