//! From frames to actions: every request the host can make, and where its answer comes from.

use crate::fault;
use crate::files::{self, TopLayer};
use crate::hold;
use crate::job::{Feeder, Follower, STDERR, STDOUT, Waiter};
use crate::ports;
use crate::serve::Server;
use crate::terminal;
use crate::timers::{Set, Timer};
use crate::transfers::{self, Reading, Writing};
use crate::tree::{Get, Put, Scan, Tree, Work};
use crate::tunnels::Tunnel;
use crate::workers::Later;
use glovebox_jail::process;
use glovebox_proto::{
    Channel, Code, Fault, FrameKind, FrameRef, GrepTarget, JobId, LogChunk, RecvWindow, Reply,
    Request, RequestId, SendWindow, WireError, limits,
};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most runs of one stream in one log answer.
const MAX_CHUNKS: usize = 1024;

/// An unanswered request.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// `Exec` and `JobAttach`: they receive output and may send input.
    Job(JobId),
    /// Waits for a job, at most until the timer.
    Waiting(JobId, Option<Set>),
    /// A file operation in one step.
    Task {
        cancel: Arc<AtomicBool>,
        /// It may change files.
        changes: bool,
    },
    /// `FileRead`.
    Read(Box<Reading>),
    /// `FileWrite`.
    Write(Box<Writing>),
    /// `TreeScan`, `TreePut` and `TreeGet`.
    Tree(Box<Tree>),
    /// Everything is to be still as long as this is open.
    Hold,
    /// `Connect`.
    Tunnel(Box<Tunnel>),
}

impl PendingRequest {
    /// Whether it writes files, as far as it is let.
    pub(crate) fn changes_files(&self) -> bool {
        match self {
            Self::Write(_) => true,
            Self::Tree(tree) => tree.changes_files(),
            _ => false,
        }
    }

    /// Whether a step of it that changes files is being done.
    pub(crate) fn is_changing_now(&self) -> bool {
        match self {
            Self::Task { changes, .. } => *changes,
            Self::Write(writing) => writing.is_busy(),
            Self::Tree(tree) => tree.changes_files() && tree.is_busy(),
            _ => false,
        }
    }
}

fn no_such_job(job: JobId) -> Fault {
    Fault::failed(Code::JobNotFound, format!("there is no job {job}"))
        .remedy("finished jobs are forgotten after a while; list the jobs to see which are known")
}

impl Server {
    /// Answers a request and closes it.
    pub(crate) fn answer(&mut self, request: RequestId, answer: &Result<Reply, Fault>) {
        if let Some(PendingRequest::Waiting(_, Some(timer))) = self.requests.remove(&request) {
            self.timers.unset(timer);
        }
        self.link.reply(request, answer);
    }

    /// Handles one frame after the handshake.
    ///
    /// # Errors
    /// The host broke the protocol.
    pub(crate) fn handle(&mut self, frame: FrameRef<'_>) -> Result<(), WireError> {
        if self.defers(&frame)? {
            return Ok(());
        }
        let header = frame.header;
        let id = header.id;
        match header.kind {
            FrameKind::Request => {
                if self.requests.contains_key(&id) {
                    return Err(WireError::BadHeader("request id is in use"));
                }
                let request = glovebox_proto::decode::<Request>(frame.payload, "request")?;
                let result = if self.requests.len() >= limits::MAX_OPEN_REQUESTS {
                    Err(Fault::failed(Code::Busy, "too many requests are open").retryable())
                } else {
                    request.validate().and_then(|()| self.start(id, request))
                };
                if let Err(fault) = result {
                    self.answer(id, &Err(fault));
                }
                Ok(())
            }
            FrameKind::Data if header.channel == Channel::Input => {
                self.input(id, frame.payload, header.is_last)
            }
            FrameKind::Data => Err(WireError::BadHeader("the host sends on an output channel")),
            FrameKind::Credit => self.credit(id, header.channel, frame.credit()?),
            FrameKind::Cancel => {
                self.cancel(id);
                Ok(())
            }
            FrameKind::Hello => Err(WireError::BadHeader("a second hello")),
            FrameKind::Reply => Err(WireError::BadHeader("the host sends a reply")),
        }
    }

    /// Starts on a request. `Ok` means it is answered already or open.
    fn start(&mut self, id: RequestId, request: Request) -> Result<(), Fault> {
        let cwd = self.cx.default_cwd.as_slice();
        let at = |path: &ByteBuf| files::absolute(cwd, path);
        let changes = hold::changes(&request);
        match request {
            Request::Ping(bytes) => self.answer(id, &Ok(Reply::Pong(bytes))),
            Request::Facts => {
                let facts = crate::facts::read(&self.cx.facts, cwd);
                self.answer(id, &Ok(Reply::Facts(facts)));
            }
            Request::Exec(exec) => self.exec(id, &exec)?,
            Request::JobList => {
                let jobs = self.jobs.values().map(crate::job::Job::info).collect();
                self.answer(id, &Ok(Reply::Jobs(jobs)));
            }
            Request::JobRead {
                job,
                offset,
                max_bytes,
                wait_ms,
            } => {
                let waiter = Waiter::Log {
                    request: id,
                    offset,
                    max_bytes,
                };
                self.wait_for(job, waiter, Some(wait_ms))?;
                self.answer_readers(job);
            }
            Request::JobWait { job, wait_ms } => {
                self.wait_for(job, Waiter::Settled(id), wait_ms)?;
                self.answer_waiters(job);
            }
            Request::JobKill { job, grace_ms } => {
                self.wait_for(job, Waiter::Over(id), None)?;
                self.begin_end(job, grace_ms);
                self.answer_waiters(job);
            }
            Request::JobSignal {
                job,
                signal,
                whole_tree,
            } => {
                self.signal(job, signal, whole_tree)?;
                self.answer(id, &Ok(Reply::Done));
            }
            Request::JobAttach { job, offset } => self.attach(id, job, offset)?,
            Request::JobResize { job, size } => {
                let known = self.jobs.get(&job).ok_or_else(|| no_such_job(job))?;
                if !known.has_pty {
                    let message = format!("job {job} has no terminal");
                    return Err(Fault::failed(Code::InvalidArgument, message));
                }
                let Some(master) = &known.outputs[STDOUT] else {
                    return Err(ended(job));
                };
                terminal::resize(&master.fd, size)
                    .map_err(|errno| fault::system(errno, "cannot resize the terminal"))?;
                self.answer(id, &Ok(Reply::Done));
            }
            Request::FileRead {
                path,
                offset,
                max_bytes,
            } => {
                let reading = Reading::new(at(&path), offset, max_bytes);
                self.requests
                    .insert(id, PendingRequest::Read(Box::new(reading)));
                self.ready_transfers.push(id);
            }
            Request::FileWrite {
                path,
                mode,
                permissions,
                make_parents,
            } => {
                let path = at(&path);
                let spec = files::WriteSpec {
                    path,
                    mode,
                    permissions,
                    make_parents,
                    top: self.top_layer,
                    programs: Arc::clone(&self.programs),
                };
                self.requests
                    .insert(id, PendingRequest::Write(Box::new(Writing::new(spec))));
                self.ready_transfers.push(id);
            }
            Request::Stat { path, follow } => {
                let path = at(&path);
                self.task(id, changes, move |_| files::stat(&path, follow))?;
            }
            Request::List { path, max_entries } => {
                let path = at(&path);
                self.task(id, changes, move |_| files::list(&path, max_entries))?;
            }
            Request::Mkdir {
                path,
                permissions,
                make_parents,
            } => {
                let path = at(&path);
                self.task(id, changes, move |_| {
                    files::mkdir(&path, permissions, make_parents)
                })?;
            }
            Request::Remove { path, recursive } => {
                let path = at(&path);
                self.task(id, changes, move |cancel| {
                    files::remove(&path, recursive, cancel)
                })?;
            }
            Request::Rename { from, to, replace } => {
                let (from, to) = (at(&from), at(&to));
                self.task(id, changes, move |_| files::rename(&from, &to, replace))?;
            }
            Request::ReadLink { path } => {
                let path = at(&path);
                self.task(id, changes, move |_| files::read_link(&path))?;
            }
            Request::TreeScan {
                path,
                max_entries,
                max_depth,
                packing,
            } => {
                let scan = Scan::new(at(&path), max_entries, max_depth, packing)?;
                self.open_tree(id, Work::Scan(scan));
            }
            Request::TreePut { path } => {
                let put = Put::new(at(&path))?;
                self.open_tree(id, Work::Put(put));
            }
            Request::TreeGet { path, packing } => {
                let get = Get::new(at(&path), packing)?;
                self.open_tree(id, Work::Get(get));
            }
            Request::Edit { path, replacements } => {
                let path = at(&path);
                let top = self.top_layer;
                self.task_with_rest(id, changes, move |_, later| {
                    files::edit(&path, &replacements, top, later)
                })?;
            }
            Request::Glob(glob) => {
                let path = at(&glob.path);
                self.task(id, changes, move |cancel| files::glob(&path, &glob, cancel))?;
            }
            Request::Grep(grep) => match &grep.target {
                GrepTarget::Path(path) => {
                    let path = at(path);
                    self.task(id, changes, move |cancel| files::grep(&path, &grep, cancel))?;
                }
                GrepTarget::Log(job) => {
                    let log = self
                        .jobs
                        .get(job)
                        .ok_or_else(|| no_such_job(*job))?
                        .log
                        .text();
                    self.task(id, changes, move |cancel| {
                        files::grep_log(log, &grep, cancel)
                    })?;
                }
            },
            Request::Renew => {
                self.renew()?;
                self.answer(id, &Ok(Reply::Done));
            }
            Request::Hold => self.begin_hold(id),
            Request::Connect { port } => self.connect(id, port)?,
            Request::Ports => self.task(id, changes, |_| ports::listening())?,
            Request::Shutdown => {
                self.answer(id, &Ok(Reply::Done));
                self.is_shutting_down = true;
            }
        }
        Ok(())
    }

    fn open_tree(&mut self, id: RequestId, work: Work) {
        self.requests
            .insert(id, PendingRequest::Tree(Box::new(Tree::new(work))));
        self.ready_transfers.push(id);
    }

    /// A file operation in one step, on a worker.
    fn task(
        &mut self,
        id: RequestId,
        changes: bool,
        work: impl FnOnce(&AtomicBool) -> Result<Reply, Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        self.task_with_rest(id, changes, move |cancel, _| work(cancel))
    }

    /// [`Self::task`] that leaves something to be done after the answer.
    fn task_with_rest(
        &mut self,
        id: RequestId,
        changes: bool,
        work: impl FnOnce(&AtomicBool, &mut Later) -> Result<Reply, Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let cancel = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&cancel);
        let frame_writer = Arc::clone(self.link.frame_writer());
        let step = move |later: &mut Later| {
            let answer = work(&seen, later);
            transfers::answer(&frame_writer, id, &[], &answer)
        };
        self.workers.submit(id, Box::new(step))?;
        self.requests
            .insert(id, PendingRequest::Task { cancel, changes });
        Ok(())
    }

    /// After an exchange of the mounts: the top layer is new, and rules, which mean directories and not
    /// paths, are built again.
    fn renew(&mut self) -> Result<(), Fault> {
        self.top_layer = self.top_layer.map(|_| TopLayer::begins());
        let Some(walls) = &self.cx.walls else {
            return Ok(());
        };
        let built = walls.build().map_err(|error| {
            Fault::failed(
                Code::Unavailable,
                format!("cannot build the rules: {error}"),
            )
        })?;
        let for_commands = walls.for_commands(built.fd.as_ref()).map_err(|error| {
            Fault::failed(
                Code::Unavailable,
                format!("cannot build the rules for commands: {error}"),
            )
        })?;
        self.workers.renew(built.fd);
        self.wardens.renew(for_commands);
        Ok(())
    }

    fn wait_for(&mut self, job: JobId, waiter: Waiter, wait_ms: Option<u64>) -> Result<(), Fault> {
        let known = self.jobs.get_mut(&job).ok_or_else(|| no_such_job(job))?;
        let request = waiter.request();
        known.waiters.push(waiter);
        let timer = wait_ms.map(|ms| self.timers.after_ms(ms, Timer::Request(request)));
        self.requests
            .insert(request, PendingRequest::Waiting(job, timer));
        Ok(())
    }

    /// Removes a request from the job it waits for.
    fn forget_waiter(&mut self, job: JobId, request: RequestId) -> Option<Waiter> {
        let waiters = &mut self.jobs.get_mut(&job)?.waiters;
        let index = waiters
            .iter()
            .position(|waiter| waiter.request() == request)?;
        Some(waiters.remove(index))
    }

    /// The time of a waiting request is up.
    pub(crate) fn wait_is_over(&mut self, request: RequestId) {
        let Some(PendingRequest::Waiting(job, _)) = self.requests.get(&request) else {
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
        self.answer(request, &answer);
    }

    /// Answers those who read the job's log and have something to read, while the link takes it.
    pub(crate) fn answer_readers(&mut self, job: JobId) {
        while !self.link.is_congested() {
            let Some(known) = self.jobs.get_mut(&job) else {
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
                self.answer(request, &answer);
            }
        }
    }

    fn read_log(&self, job: JobId, offset: u64, max_bytes: u32) -> Result<Reply, Fault> {
        let known = self.jobs.get(&job).ok_or_else(|| no_such_job(job))?;
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

    fn attach(&mut self, id: RequestId, job: JobId, offset: Option<u64>) -> Result<(), Fault> {
        let known = self.jobs.get_mut(&job).ok_or_else(|| no_such_job(job))?;
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
        self.requests.insert(id, PendingRequest::Job(job));
        self.poll_job(job);
        Ok(())
    }

    fn signal(&self, job: JobId, signal: i32, whole_tree: bool) -> Result<(), Fault> {
        let known = self.jobs.get(&job).ok_or_else(|| no_such_job(job))?;
        if known.is_gone || (known.end.is_some() && !whole_tree) {
            return Err(ended(job));
        }
        if whole_tree {
            let census = process::Census::take().map_err(|errno| {
                fault::system(errno, "cannot find the job's processes in /proc")
            })?;
            for member in census.descendants_of(known.warden) {
                // Some may have ended since; that is no failure of this request.
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

    /// Bytes for a job's standard input or a file.
    fn input(&mut self, id: RequestId, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        match self.requests.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                self.feed(job, id, bytes, is_last)
            }
            Some(PendingRequest::Write(writing)) => {
                writing.arrived(bytes, is_last)?;
                self.ready_transfers.push(id);
                Ok(())
            }
            Some(PendingRequest::Tree(tree)) => {
                tree.arrived(bytes, is_last)?;
                self.ready_transfers.push(id);
                Ok(())
            }
            Some(PendingRequest::Tunnel(tunnel)) => {
                tunnel.arrived(bytes, is_last)?;
                self.ready_transfers.push(id);
                Ok(())
            }
            // Answered a moment ago, or takes no input: the host could not know or does not care.
            _ => Ok(()),
        }
    }

    /// The host has room again.
    fn credit(&mut self, id: RequestId, channel: Channel, bytes: u32) -> Result<(), WireError> {
        match self.requests.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                let stream = match channel {
                    Channel::Stdout => STDOUT,
                    Channel::Stderr => STDERR,
                    _ => {
                        return Err(WireError::BadHeader(
                            "credit for a channel a job does not have",
                        ));
                    }
                };
                if let Some(known) = self.jobs.get_mut(&job)
                    && let Some(follower) = known.followers.iter_mut().find(|one| one.request == id)
                {
                    follower.windows[stream].credit(bytes)?;
                    self.poll_job(job);
                }
                Ok(())
            }
            Some(PendingRequest::Read(reading)) => {
                reading.credit(bytes)?;
                self.ready_transfers.push(id);
                Ok(())
            }
            Some(PendingRequest::Tree(tree)) => {
                if channel == Channel::Content {
                    tree.credit(bytes)?;
                    self.ready_transfers.push(id);
                }
                Ok(())
            }
            Some(PendingRequest::Tunnel(tunnel)) => {
                if channel == Channel::Content {
                    tunnel.credit(bytes)?;
                    self.ready_transfers.push(id);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A transfer without a step in progress is answered now; else the end of the step does that.
    fn give_up_transfer(&mut self, id: RequestId, is_idle: bool) {
        if is_idle {
            self.answer(id, &Err(fault::cancelled()));
        }
    }

    /// The host gives a request up.
    fn cancel(&mut self, id: RequestId) {
        match self.requests.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                let Some(known) = self.jobs.get_mut(&job) else {
                    return;
                };
                known.followers.retain(|follower| follower.request != id);
                known.feeders.retain(|feeder| feeder.request != id);
                if known.owner == Some(id) {
                    known.is_cancelled = true;
                    let grace_ms = known.grace_ms;
                    self.begin_end(job, grace_ms);
                } else {
                    self.answer(id, &Err(fault::cancelled()));
                }
                // Whoever else follows may go on now.
                self.poll_job(job);
            }
            Some(PendingRequest::Waiting(job, _)) => {
                let job = *job;
                self.forget_waiter(job, id);
                self.answer(id, &Err(fault::cancelled()));
            }
            Some(PendingRequest::Task { cancel, .. }) => cancel.store(true, Ordering::Relaxed),
            Some(PendingRequest::Hold) => self.end_hold(id),
            Some(PendingRequest::Tunnel(_)) => self.answer(id, &Err(fault::cancelled())),
            Some(PendingRequest::Read(reading)) => {
                let is_idle = reading.cancel();
                self.give_up_transfer(id, is_idle);
            }
            Some(PendingRequest::Write(writing)) => {
                let is_idle = writing.cancel();
                self.give_up_transfer(id, is_idle);
            }
            Some(PendingRequest::Tree(tree)) => {
                let is_idle = tree.cancel();
                self.give_up_transfer(id, is_idle);
            }
            None => {}
        }
    }
}

fn ended(job: JobId) -> Fault {
    Fault::failed(Code::JobEnded, format!("job {job} has ended"))
}
