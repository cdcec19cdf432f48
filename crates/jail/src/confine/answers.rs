//! The thread of the monitor that answers the calls which the kernel does not decide.
//!
//! It may have to wait for a file system or a socket, so it is not the thread that ends the sandbox
//! with its owner.

use super::metadata::Metadata;
use super::sockets::{Outcome, Sockets};
use crate::seccomp;
use crate::sys::notify;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval at which sockets that no process holds any more are dropped.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Calls about sockets. All others are about metadata of files.
const SOCKET_CALLS: [&str; 4] = ["socket", "bind", "listen", "connect"];

/// State of the thread.
#[derive(Debug)]
pub(super) struct Answers {
    listener: OwnedFd,
    /// Known system calls, by number.
    names: HashMap<i64, &'static str>,
    metadata: Metadata,
    sockets: Sockets,
}

impl Answers {
    /// Starts the thread. It ends when no process is left under the filter. `trees` are those in
    /// which files may be changed, by their real paths. `egress` leads to the owner's proxy.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn start(
        listener: OwnedFd,
        trees: Vec<PathBuf>,
        egress: Option<OwnedFd>,
    ) -> Result<(), String> {
        let sockets = Sockets::new(egress)
            .map_err(|errno| format!("cannot lease a loopback for the sandbox: {errno}"))?;
        let table = seccomp::table().iter();
        let answers = Self {
            listener,
            names: table.map(|entry| (entry.number, entry.name)).collect(),
            metadata: Metadata::new(trees),
            sockets,
        };
        let thread = std::thread::Builder::new().name("answers".to_owned());
        let started = thread.spawn(|| answers.work());
        started
            .map(drop)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    fn work(mut self) {
        let mut swept = Instant::now();
        loop {
            match self.wait() {
                Ok(events) if events.contains(PollFlags::IN) => self.answer_next(),
                Ok(events) if events.is_empty() => {}
                Err(Errno::INTR) => {}
                // No process is left under the filter.
                Ok(_) | Err(_) => return,
            }
            self.sockets.settle_all(self.listener.as_fd());
            if swept.elapsed() >= SWEEP_INTERVAL {
                self.sockets.sweep(self.listener.as_fd());
                swept = Instant::now();
            }
        }
    }

    /// Waits for a call, for the end of an attempt to connect, or for the time to sweep.
    fn wait(&self) -> Result<PollFlags, Errno> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        let connecting = self.sockets.connecting();
        fds.extend(connecting.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let interval = Timespec {
            tv_sec: SWEEP_INTERVAL.as_secs() as i64,
            tv_nsec: 0,
        };
        poll(&mut fds, self.sockets.has_any().then_some(&interval))?;
        Ok(fds[0].revents())
    }

    fn answer_next(&mut self) {
        let listener = self.listener.as_fd();
        // The caller may have been killed before or during the answer. Then there is no process to
        // answer.
        let Ok(call) = notify::receive(listener) else {
            return;
        };
        let outcome = match self.names.get(&call.number) {
            None => Outcome::Done(Err(Errno::NOSYS)),
            Some(name) if SOCKET_CALLS.contains(name) => self.sockets.make(name, listener, &call),
            Some(name) => Outcome::Done(self.metadata.make(name, listener, &call)),
        };
        if let Outcome::Done(result) = outcome {
            let _ = notify::answer(listener, call.id, result);
        }
    }
}
