//! Maps frames to actions: handles every request that the host can make.

use super::EventLoop;
use crate::fault;
use crate::files::{self, TopLayer};
use crate::freeze;
use crate::jobs::Waiter;
use crate::requests::PendingRequest;
use crate::transfers::{self, Reading, Writing};
use crate::tree::{Get, Put, Scan, Tree, Work};
use crate::workers::DeferredCloses;
use glovebox_proto::{
    Channel, Code, Fault, FrameKind, FrameRef, GrepTarget, Reply, Request, RequestId, WireError,
    limits,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl EventLoop {
    /// Handles one frame after the handshake.
    ///
    /// # Errors
    /// The host violated the protocol.
    pub(super) fn handle(&mut self, frame: FrameRef<'_>) -> Result<(), WireError> {
        if self.freeze.defers(&mut self.requests, &frame)? {
            return Ok(());
        }
        let header = frame.header;
        let id = header.id;
        match header.kind {
            FrameKind::Request => {
                if self.requests.open.contains_key(&id) {
                    return Err(WireError::BadHeader("request id is in use"));
                }
                let request = glovebox_proto::decode::<Request>(frame.payload, "request")?;
                let result = if self.requests.open.len() >= limits::MAX_OPEN_REQUESTS {
                    Err(Fault::failed(Code::Busy, "too many requests are open").retryable())
                } else {
                    request.validate().and_then(|()| self.start(id, request))
                };
                if let Err(fault) = result {
                    self.requests.answer(id, &Err(fault));
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

    /// Begins a request. On `Ok` it is either answered already or open.
    fn start(&mut self, id: RequestId, request: Request) -> Result<(), Fault> {
        let cwd = Arc::clone(&self.default_cwd);
        let at = |path: &ByteBuf| files::absolute(&cwd, path);
        let changes = freeze::changes(&request);
        let requests = &mut self.requests;
        match request {
            Request::Ping(bytes) => requests.answer(id, &Ok(Reply::Pong(bytes))),
            Request::Facts => {
                let facts = crate::facts::read(&self.facts, &cwd, self.jobs.home());
                requests.answer(id, &Ok(Reply::Facts(facts)));
            }
            Request::Exec(exec) => self.jobs.exec(requests, &self.poll, id, &exec)?,
            Request::JobList => {
                requests.answer(id, &Ok(Reply::Jobs(self.jobs.list())));
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
                self.jobs.read_when_there(requests, job, waiter, wait_ms)?;
            }
            Request::JobWait { job, wait_ms } => {
                self.jobs.wait_until_settled(requests, job, id, wait_ms)?;
            }
            Request::JobKill { job, grace_ms } => {
                self.jobs.kill(requests, job, id, grace_ms)?;
            }
            Request::JobSignal {
                job,
                signal,
                whole_tree,
            } => {
                self.jobs.signal(job, signal, whole_tree)?;
                requests.answer(id, &Ok(Reply::Done));
            }
            Request::JobAttach {
                job,
                offset,
                sends_events,
            } => self.jobs.attach(requests, id, job, offset, sends_events)?,
            Request::JobStream { job, stream } => {
                self.jobs.carry_stream(requests, id, job, stream)?;
            }
            Request::JobRelease { job } => {
                self.jobs.release(&mut self.requests, job)?;
                self.requests.answer(id, &Ok(Reply::Done));
            }
            Request::JobResize { job, size } => {
                self.jobs.resize(job, size)?;
                requests.answer(id, &Ok(Reply::Done));
            }
            Request::FileRead {
                path,
                offset,
                max_bytes,
            } => {
                let reading = Reading::new(at(&path), offset, max_bytes);
                requests.open_transfer(id, PendingRequest::Read(Box::new(reading)));
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
                let writing = Box::new(Writing::new(spec));
                requests.open_transfer(id, PendingRequest::Write(writing));
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
                    let log = self.jobs.log_text(*job)?;
                    self.task(id, changes, move |cancel| {
                        files::grep_log(log, &grep, cancel)
                    })?;
                }
            },
            Request::Renew => {
                self.renew()?;
                self.requests.answer(id, &Ok(Reply::Done));
            }
            Request::Hold => self.begin_freeze(id),
            Request::Connect { port } => self.connect(id, port)?,
            Request::Ports => {
                let ports = self.jobs.list_ports();
                self.requests.answer(id, &ports);
            }
            Request::Shutdown => {
                self.requests.answer(id, &Ok(Reply::Done));
                self.is_shutting_down = true;
            }
        }
        Ok(())
    }

    fn open_tree(&mut self, id: RequestId, work: Work) {
        let tree = Box::new(Tree::new(work));
        self.requests.open_transfer(id, PendingRequest::Tree(tree));
    }

    /// Runs a file operation of one step on a worker.
    fn task(
        &mut self,
        id: RequestId,
        changes: bool,
        work: impl FnOnce(&AtomicBool) -> Result<Reply, Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        self.task_with_rest(id, changes, move |cancel, _| work(cancel))
    }

    /// As [`Self::task`], for work that leaves descriptors to close after the answer.
    fn task_with_rest(
        &mut self,
        id: RequestId,
        changes: bool,
        work: impl FnOnce(&AtomicBool, &mut DeferredCloses) -> Result<Reply, Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        let cancel = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&cancel);
        let frame_writer = Arc::clone(self.requests.link.frame_writer());
        let step = move |later: &mut DeferredCloses| {
            let answer = work(&seen, later);
            transfers::answer(&frame_writer, id, &[], &answer)
        };
        self.workers.submit(id, Box::new(step))?;
        self.requests
            .open
            .insert(id, PendingRequest::Task { cancel, changes });
        Ok(())
    }

    /// Adapts to an exchange of the mounts: the upper layer is new, and the Landlock rulesets,
    /// which refer to directories and not to paths, are built again.
    fn renew(&mut self) -> Result<(), Fault> {
        self.top_layer = self.top_layer.map(|_| TopLayer::begins());
        let Some(walls) = &self.walls else {
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
        self.jobs.renew(for_commands);
        Ok(())
    }

    /// Passes input of the host to the job, file, tree or tunnel of a request.
    fn input(&mut self, id: RequestId, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        match self.requests.open.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                self.jobs.feed(&mut self.requests, job, id, bytes, is_last)
            }
            Some(PendingRequest::Write(writing)) => {
                writing.arrived(bytes, is_last)?;
                self.requests.set_ready(id);
                Ok(())
            }
            Some(PendingRequest::Tree(tree)) => {
                tree.arrived(bytes, is_last)?;
                self.requests.set_ready(id);
                Ok(())
            }
            Some(PendingRequest::Tunnel(tunnel)) => {
                tunnel.arrived(bytes, is_last)?;
                self.requests.set_ready(id);
                Ok(())
            }
            // Answered a moment ago, which the host could not know, or takes no input.
            _ => Ok(()),
        }
    }

    /// Passes credit of the host to the job or transfer of a request.
    fn credit(&mut self, id: RequestId, channel: Channel, bytes: u32) -> Result<(), WireError> {
        match self.requests.open.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                self.jobs
                    .credit(&mut self.requests, job, id, channel, bytes)
            }
            Some(PendingRequest::Read(reading)) => {
                reading.credit(bytes)?;
                self.requests.set_ready(id);
                Ok(())
            }
            Some(PendingRequest::Tree(tree)) => {
                if channel == Channel::Content {
                    tree.credit(bytes)?;
                    self.requests.set_ready(id);
                }
                Ok(())
            }
            Some(PendingRequest::Tunnel(tunnel)) => {
                if channel == Channel::Content {
                    tunnel.credit(bytes)?;
                    self.requests.set_ready(id);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Answers a cancelled transfer that has no step in progress. Otherwise the end of the step
    /// answers it.
    fn give_up_transfer(&mut self, id: RequestId, is_idle: bool) {
        if is_idle {
            self.requests.answer(id, &Err(fault::cancelled()));
        }
    }

    /// Cancels a request.
    fn cancel(&mut self, id: RequestId) {
        match self.requests.open.get_mut(&id) {
            Some(PendingRequest::Job(job)) => {
                let job = *job;
                self.jobs.cancel(&mut self.requests, job, id);
            }
            Some(PendingRequest::Waiting(job, _)) => {
                let job = *job;
                self.jobs.cancel_wait(&mut self.requests, job, id);
            }
            Some(PendingRequest::Task { cancel, .. }) => cancel.store(true, Ordering::Relaxed),
            Some(PendingRequest::Freeze) => self.end_freeze(id),
            Some(PendingRequest::Tunnel(_)) => self.requests.answer(id, &Err(fault::cancelled())),
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
