//! Starts jobs, and forgets the oldest when many have finished.

use super::Jobs;
use super::extra_streams::JobStream;
use super::job::{
    Feeder, Follower, Input, Job, JobStart, LentInput, Listener, Output, STDERR, STDOUT,
};
use crate::command;
use crate::fault;
use crate::files;
use crate::log::Log;
use crate::network_use::NetworkUse;
use crate::poll::{Poll, Token};
use crate::requests::{PendingRequest, Requests};
use crate::terminal::{self, Terminal};
use crate::timers::Timer;
use glovebox_jail::confine::MonitorClient;
use glovebox_jail::process::{self, ControllingTerminal, Launch, SpawnError};
use glovebox_proto::{
    Channel, Code, DescriptorDirection, EVENT_BYTES, Event, Exec, Exit, ExitReport, ExtraStream,
    Fault, JobId, RecvWindow, Reply, RequestId, SendWindow, Stdin, TerminalUse, limits,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::collections::VecDeque;
use std::time::Instant;

/// Number of finished jobs that are remembered with their logs.
pub(crate) const FINISHED_JOBS: usize = 256;
/// Maximum memory for the logs of all finished jobs, in bytes.
const FINISHED_MEMORY_BYTES: usize = 8 << 20;
const FINISHED_SPILL_BYTES: u64 = 256 << 20;
/// OOM score adjustment of commands: if the guest is init, the kernel must kill a command first.
const COMMAND_OOM_SCORE: i16 = 500;
/// Delay in milliseconds after which a failed OOM score adjustment is tried again.
const OOM_SCORE_AGAIN_MS: u64 = 1;
/// Number of the first command for whose successor supervisor and child are prepared in advance. A
/// caller that runs two commands usually runs more. The first command is prepared for while the
/// host still finishes the start.
const PREPARED_FROM_JOB: u32 = 2;
/// Maximum delay of that preparation after a command's start, in milliseconds.
const PAIR_AFTER_MS: u64 = 2;

/// Descriptors of a job's streams.
struct Streams {
    /// Standard input, output and error of the command; `None` is /dev/null.
    given: [Option<OwnedFd>; 3],
    /// End of standard input that the guest writes to.
    input: Option<OwnedFd>,
    /// Second reading end of lent input, to count the unread bytes.
    unread: Option<OwnedFd>,
    outputs: [Option<OwnedFd>; 2],
    /// Descriptors of the command from 3 on, with their numbers.
    descriptors: Vec<(OwnedFd, u32)>,
    extras: Vec<JobStream>,
    terminal: Option<Terminal>,
}

/// Creates a pipe whose guest end does not block: the reading end if `we_read`, otherwise the
/// writing end.
fn pipe(we_read: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(if we_read { &read } else { &write }, OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// Creates the pipe of lent input. Returns its reading end, its writing end and a second reading
/// end for counting.
fn lent_pipe(is_followed: bool) -> Result<(OwnedFd, OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe(false)?;
    let unread = rustix::io::fcntl_dupfd_cloexec(&read, 3)?;
    if is_followed {
        // With a single buffer, the pipe becomes writable only when everything was read.
        rustix::pipe::fcntl_setpipe_size(&read, rustix::param::page_size())?;
    }
    Ok((read, write, unread))
}

/// Opens the job's terminal. `None` if the command wants none, or wants one only for prompts and
/// none can be opened.
fn open_terminal(exec: &Exec, monitor: Option<&MonitorClient>) -> Result<Option<Terminal>, Errno> {
    let Some(size) = exec.pty else {
        return Ok(None);
    };
    match terminal::open(size, monitor) {
        Err(_) if !exec.terminal_use.is_foreground => Ok(None),
        opened => opened.map(Some),
    }
}

fn open_streams(exec: &Exec, monitor: Option<&MonitorClient>) -> Result<Streams, Errno> {
    let dup = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
    let terminal = open_terminal(exec, monitor)?;
    let mut streams = Streams {
        given: [None, None, None],
        input: None,
        unread: None,
        outputs: [None, None],
        descriptors: Vec::new(),
        extras: Vec::new(),
        terminal: None,
    };
    let mut is_terminal = [false; 3];
    if let Some(terminal) = &terminal {
        is_terminal = exec.terminal_use.streams;
        for (given, is_terminal) in streams.given.iter_mut().zip(is_terminal) {
            if is_terminal {
                *given = Some(dup(&terminal.slave)?);
            }
        }
    }
    if let (Some(terminal), true) = (&terminal, is_terminal[0]) {
        // A separate descriptor, because epoll watches each for one direction.
        streams.input = Some(dup(&terminal.master)?);
    } else {
        match exec.stdin {
            Stdin::Null => {}
            Stdin::Stream => {
                let (read, write) = pipe(false)?;
                streams.given[0] = Some(read);
                streams.input = Some(write);
            }
            Stdin::Lent { is_followed } => {
                let (read, write, unread) = lent_pipe(is_followed)?;
                streams.given[0] = Some(read);
                streams.input = Some(write);
                streams.unread = Some(unread);
            }
        }
    }
    for stream in [STDOUT, STDERR] {
        if is_terminal[stream + 1] {
            continue;
        }
        if let (STDERR, true, Some(stdout), false) =
            (stream, exec.merge, &streams.given[1], is_terminal[1])
        {
            streams.given[2] = Some(dup(stdout)?);
            continue;
        }
        let (read, write) = pipe(true)?;
        streams.given[stream + 1] = Some(write);
        streams.outputs[stream] = Some(read);
    }
    if let Some(terminal) = terminal {
        let mut screen = Some(dup(&terminal.master)?);
        // Terminal output goes to the log, in order, if a standard stream is the terminal.
        if let Some(stream) = [STDOUT, STDERR]
            .into_iter()
            .find(|stream| is_terminal[stream + 1])
        {
            streams.outputs[stream] = screen.take();
        }
        if exec.terminal_use != TerminalUse::WHOLE {
            let keys = Some(dup(&terminal.master)?);
            let stream = JobStream::new(ExtraStream::Terminal, keys, None, screen);
            streams.extras.push(stream);
        }
        streams.terminal = Some(terminal);
    }
    open_descriptors(exec, &mut streams)?;
    Ok(streams)
}

/// Creates a pipe for each descriptor from 3 on.
fn open_descriptors(exec: &Exec, streams: &mut Streams) -> Result<(), Errno> {
    for descriptor in &exec.descriptors {
        let name = ExtraStream::Descriptor(descriptor.number);
        let (given, stream) = match descriptor.direction {
            DescriptorDirection::Lent { is_followed } => {
                let (read, write, unread) = lent_pipe(is_followed)?;
                let lent = LentInput::new(unread, is_followed);
                (read, JobStream::new(name, Some(write), Some(lent), None))
            }
            DescriptorDirection::Output => {
                let (read, write) = pipe(true)?;
                (write, JobStream::new(name, None, None, Some(read)))
            }
        };
        streams.descriptors.push((given, descriptor.number));
        streams.extras.push(stream);
    }
    Ok(())
}

impl Jobs {
    /// Starts a job. A request that is not detached stays open until the job has settled.
    ///
    /// # Errors
    /// `Busy` if too many jobs run; the faults of `command::prepare` and of the start.
    pub(crate) fn exec(
        &mut self,
        requests: &mut Requests,
        poll: &Poll,
        request: RequestId,
        exec: &Exec,
    ) -> Result<(), Fault> {
        let running = self.table.len() - self.finished.ids.len();
        if running >= limits::MAX_JOBS - FINISHED_JOBS {
            return Err(
                Fault::failed(Code::Busy, format!("{running} jobs are running already"))
                    .remedy("wait for some of them to end")
                    .retryable(),
            );
        }
        let command = command::prepare(exec, &self.defaults.env, &self.defaults.cwd)?;
        let program = match &exec.program {
            Some(name) => Some(
                self.defaults
                    .programs
                    .find(&files::absolute(&self.defaults.cwd, name))?,
            ),
            None => None,
        };
        let streams = open_streams(exec, self.defaults.monitor.as_ref())
            .map_err(|errno| fault::system(errno, "cannot open the job's streams"))?;
        let began = Instant::now();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let began_ns = (now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64;
        // Taken before the command starts, so that none of its attempts is missed.
        let network = self.network.as_mut().map(NetworkUse::mark);
        let has_company = !self.by_warden.is_empty();
        let dev_null = self.defaults.dev_null.as_fd();
        let [stdin, stdout, stderr] = &streams.given;
        let stdio = [stdin, stdout, stderr].map(|fd| fd.as_ref().map_or(dev_null, AsFd::as_fd));
        let descriptors: Vec<_> = streams
            .descriptors
            .iter()
            .map(|(fd, number)| (fd.as_fd(), *number))
            .collect();
        let started = self.wardens.spawn(&Launch {
            argv: &command.argv,
            env: &command.env,
            candidates: &command.candidates,
            program: program.as_ref().map(|file| file.as_fd()),
            cwd: Some(&command.cwd),
            stdio,
            descriptors: &descriptors,
            terminal: streams
                .terminal
                .as_ref()
                .map(|terminal| ControllingTerminal {
                    fd: terminal.slave.as_fd(),
                    is_foreground: exec.terminal_use.is_foreground,
                }),
            limits: &self.defaults.limits,
            umask: exec.umask.map(Mode::from_raw_mode),
        });
        let started = match started {
            Err(SpawnError::Interrupted) if !exec.detach => {
                self.answer_killed(requests, request, began);
                return Ok(());
            }
            started => started.map_err(|error| command::spawn_fault(error, exec, &command.cwd))?,
        };
        let Streams {
            input,
            unread,
            outputs,
            extras,
            terminal,
            ..
        } = streams;
        let has_terminal = terminal.is_some();
        let terminal_streams = exec.terminal_use.streams;

        let id = JobId(self.next_job);
        self.next_job += 1;
        let mut job = Job::new(JobStart {
            id,
            argv: super::job::shorten(&exec.argv),
            began,
            began_ns,
            cwd: command.cwd,
            network,
            has_company,
            has_pty: has_terminal && terminal_streams == [true; 3],
            is_input_terminal: has_terminal && terminal_streams[0],
            background: exec.background,
            grace_ms: exec.grace_ms,
            warden: started.warden,
            command: started.command,
            log: Log::new(exec.log),
        });
        for (stream, fd) in outputs.into_iter().enumerate() {
            // If epoll cannot watch the stream, it is read only at the end: late, but complete.
            job.outputs[stream] = fd.map(|fd| {
                let is_unwatched = poll.watch_stream(&fd, Token::Output(id, stream)).is_err();
                Output {
                    fd,
                    is_readable: is_unwatched,
                    drain: usize::MAX,
                }
            });
        }
        job.input = input.map(|fd| {
            let _ = poll.watch_stream(&fd, Token::Input(id));
            Input {
                fd,
                queue: VecDeque::new(),
                owed: VecDeque::new(),
                is_closing: false,
            }
        });
        let is_followed = exec.stdin == Stdin::Lent { is_followed: true };
        job.lent = unread.map(|unread| LentInput::new(unread, is_followed));
        job.terminal = terminal;
        for (index, stream) in extras.iter().enumerate() {
            stream.watch(poll, id, index);
        }
        job.extras = extras;
        job.deadline = exec
            .timeout_ms
            .map(|ms| requests.timers.after_ms(ms, Timer::Deadline(id)));
        if exec.detach {
            requests.link.reply(request, &Ok(Reply::Started(id)));
        } else {
            job.owner = Some(request);
            if exec.sends_events {
                let mut window = SendWindow::new();
                window.spend(EVENT_BYTES as u32);
                job.listeners.push(Listener { request, window });
                let began = Event::Began(id).encode();
                requests.link.data(request, Channel::Content, &began);
            }
            let is_wanted = exec.stdin.is_open();
            job.feeders.push(Feeder {
                request,
                window: RecvWindow::new(),
                is_wanted,
            });
            if exec.stream_output {
                let windows = [SendWindow::new(); 2];
                job.followers.push(Follower {
                    request,
                    cursor: 0,
                    windows,
                    until_over: false,
                });
            }
            requests.open.insert(request, PendingRequest::Job(id));
        }
        for beside in self.by_warden.values() {
            if let Some(beside) = self.table.get_mut(beside) {
                beside.has_company = true;
            }
        }
        self.by_warden.insert(started.warden, id);
        self.table.insert(id, job);
        if id.0 >= PREPARED_FROM_JOB {
            // Not at once: the command may be about to run on this processor.
            self.is_pair_due = true;
            requests.timers.after_ms(PAIR_AFTER_MS, Timer::Pair);
        }
        if self.defaults.is_init && !process::set_oom_score(started.command, COMMAND_OOM_SCORE) {
            requests
                .timers
                .after_ms(OOM_SCORE_AGAIN_MS, Timer::OomScore(id));
        }
        Ok(())
    }

    /// Creates supervisor and child for the next command if that is due.
    pub(crate) fn prepare_pair(&mut self) {
        if std::mem::take(&mut self.is_pair_due) {
            self.wardens.make_ready();
        }
    }

    /// Tries a second time to set a job's OOM score adjustment.
    pub(crate) fn set_oom_score(&self, id: JobId) {
        if let Some(job) = self.table.get(&id).filter(|job| job.end.is_none()) {
            process::set_oom_score(job.command, COMMAND_OOM_SCORE);
        }
    }

    /// Answers for a command whose supervisor was killed before it reported the start, most likely
    /// by the command itself. The command died with it.
    fn answer_killed(&mut self, requests: &mut Requests, request: RequestId, began: Instant) {
        let job = JobId(self.next_job);
        self.next_job += 1;
        let report = ExitReport {
            wall_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
            ..ExitReport::new(job, Exit::Signal(9))
        };
        requests.answer(request, &Ok(Reply::Exited(report)));
    }

    /// Records a job as finished and forgets the oldest ones.
    pub(super) fn finish(&mut self, requests: &mut Requests, id: JobId) {
        self.finished.ids.push_back(id);
        if let Some(job) = self.table.get(&id) {
            self.finished.memory_bytes += job.log.memory_bytes();
            self.finished.spill_bytes += job.log.spill_bytes();
        }
        self.discard_logs();
        while self.finished.ids.len() > FINISHED_JOBS {
            let Some(oldest) = self.finished.ids.pop_front() else {
                return;
            };
            let Some(job) = self.table.remove(&oldest) else {
                continue;
            };
            self.finished.memory_bytes = self
                .finished
                .memory_bytes
                .saturating_sub(job.log.memory_bytes());
            self.finished.spill_bytes = self
                .finished
                .spill_bytes
                .saturating_sub(job.log.spill_bytes());
            let followers = job.followers.iter().map(|follower| follower.request);
            for request in followers.chain(job.waiters.iter().map(|waiter| waiter.request())) {
                let message = format!("job {oldest} has ended and was forgotten");
                requests.answer(request, &Err(Fault::failed(Code::JobNotFound, message)));
            }
        }
    }

    /// Discards the oldest logs of finished jobs while all together exceed the limits.
    fn discard_logs(&mut self) {
        for id in &self.finished.ids {
            if self.finished.memory_bytes <= FINISHED_MEMORY_BYTES
                && self.finished.spill_bytes <= FINISHED_SPILL_BYTES
            {
                break;
            }
            if let Some(job) = self.table.get_mut(id)
                && job.followers.is_empty()
            {
                self.finished.memory_bytes = self
                    .finished
                    .memory_bytes
                    .saturating_sub(job.log.memory_bytes());
                self.finished.spill_bytes = self
                    .finished
                    .spill_bytes
                    .saturating_sub(job.log.spill_bytes());
                job.log.discard();
                self.finished.memory_bytes += job.log.memory_bytes();
                self.finished.spill_bytes += job.log.spill_bytes();
            }
        }
    }
}
