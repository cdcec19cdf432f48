//! Standard input, or another descriptor, that is lent to a command: what the command has not read is there for the next reader.
//!
//! Bytes are copied from the caller's file, pipe or socket without being taken, and taken once the guest says that
//! the command has read them: a file is read at a position of our own, a pipe by tee(2), a socket by MSG_PEEK. A pipe
//! or socket shows its first bytes only, so the next piece is copied when the last one was taken.

use crate::exit::CommandError;
use glovebox_proto::Fault;
use glovebox_sandbox::Input;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Largest piece that is copied at once; also what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

/// An input of a kind that can be read without being taken.
#[derive(Debug)]
pub(super) struct LentSource {
    fd: OwnedFd,
    kind: SourceKind,
}

#[derive(Debug)]
enum SourceKind {
    /// A regular file, from this position on.
    File { start: u64 },
    /// A pipe, and one of our own that takes the copies.
    Pipe { copies: [OwnedFd; 2] },
    /// A stream socket.
    Socket,
}

impl LentSource {
    /// Standard input, if it is of such a kind.
    pub(super) fn of_stdin() -> Option<Self> {
        Self::new(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?)
    }

    /// An open file, if it is of such a kind.
    pub(super) fn new(fd: OwnedFd) -> Option<Self> {
        let stat = rustix::fs::fstat(&fd).ok()?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let start = rustix::fs::seek(&fd, SeekFrom::Current(0)).ok()?;
                SourceKind::File { start }
            }
            FileType::Fifo => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
                let copies = [read, write];
                SourceKind::Pipe { copies }
            }
            FileType::Socket => {
                let kind = rustix::net::sockopt::socket_type(&fd).ok()?;
                if kind != rustix::net::SocketType::STREAM {
                    return None;
                }
                SourceKind::Socket
            }
            _ => return None,
        };
        Some(Self { fd, kind })
    }

    /// What the command gets.
    pub(super) const fn is_followed(&self) -> bool {
        !matches!(self.kind, SourceKind::File { .. })
    }

    /// Copies what comes next without taking it; 0 at the end. Follows a wait for something to read.
    fn copy(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        match &self.kind {
            SourceKind::File { start } => rustix::io::pread(&self.fd, buffer, start + offset),
            SourceKind::Pipe {
                copies: [read, write],
            } => {
                let flags = SpliceFlags::NONBLOCK;
                let count = rustix::pipe::tee(&self.fd, write, buffer.len(), flags)?;
                let mut copied = 0;
                while copied < count {
                    copied += rustix::io::read(read, &mut buffer[copied..count])?;
                }
                Ok(count)
            }
            SourceKind::Socket => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                rustix::net::recv(&self.fd, buffer, flags).map(|(count, _)| count)
            }
        }
    }

    /// Takes bytes from the caller's pipe or socket, up to `total` from its beginning.
    fn remove(&self, state: &mut LoanState, total: u64) {
        let mut buffer = vec![0; PIECE_BYTES];
        while state.removed < total {
            let left = usize::try_from(total - state.removed).unwrap_or(PIECE_BYTES);
            let left = left.min(PIECE_BYTES);
            // Another reader of the same pipe may have been faster; nothing is waited for.
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            let now = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if poll(&mut fds, Some(&now)) != Ok(1) {
                break;
            }
            match rustix::io::read(&self.fd, &mut buffer[..left]) {
                Ok(0) => break,
                Ok(count) => state.removed += count as u64,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        state.removed = total.max(state.removed);
    }
}

/// How far input has come, in bytes from its beginning.
#[derive(Debug, Default)]
struct LoanState {
    /// Sent to the guest.
    sent: u64,
    /// Read by the command, as far as is known.
    taken: u64,
    /// Taken from the caller's pipe or socket.
    removed: u64,
    /// The command has ended.
    is_over: bool,
}

#[derive(Debug)]
struct Loan {
    source: LentSource,
    state: Mutex<LoanState>,
    changed: Condvar,
    /// Becomes readable when the command has ended.
    over: OwnedFd,
}

/// Input on its way to a command.
#[derive(Debug)]
pub(super) struct LentInput {
    loan: Arc<Loan>,
    thread: JoinHandle<()>,
}

impl LentInput {
    /// Starts to pass an input on.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn lend(source: LentSource, input: Input) -> Result<Self, CommandError> {
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| CommandError::io("watch an input", &errno.into()))?;
        let loan = Arc::new(Loan {
            source,
            state: Mutex::default(),
            changed: Condvar::new(),
            over,
        });
        let shared = Arc::clone(&loan);
        let thread = std::thread::Builder::new()
            .name("stdin".to_owned())
            .stack_size(64 << 10)
            .spawn(move || {
                // An error means that the command or its sandbox has ended, which its reply tells.
                let _ = shared.pass(&input);
            })
            .map_err(|error| CommandError::io("start a thread", &error))?;
        Ok(Self { loan, thread })
    }

    /// The command has read this much.
    pub(super) fn note_taken(&self, total: u64) {
        let mut state = self.loan.lock();
        // TRUST: the guest's word, bounded by what it was sent.
        state.taken = state.taken.max(total.min(state.sent));
        self.loan.changed.notify_all();
    }

    /// Takes exactly what the command has read from the caller's input. The request must have been answered.
    pub(super) fn settle(self, total: u64) {
        self.note_taken(total);
        self.loan.lock().is_over = true;
        self.loan.changed.notify_all();
        // Fails only when it has been written very often already.
        let _ = rustix::io::write(&self.loan.over, &1_u64.to_ne_bytes());
        let _ = self.thread.join();
        let mut state = self.loan.lock();
        let source = &self.loan.source;
        match source.kind {
            SourceKind::File { start } => {
                // A file that cannot be positioned any more is left where it is.
                let end = SeekFrom::Start(start.saturating_add(state.taken));
                let _ = rustix::fs::seek(&source.fd, end);
            }
            SourceKind::Pipe { .. } | SourceKind::Socket => {
                let taken = state.taken;
                source.remove(&mut state, taken);
            }
        }
    }
}

impl Loan {
    fn lock(&self) -> std::sync::MutexGuard<'_, LoanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, input: &Input) -> Result<(), Fault> {
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            if self.source.is_followed() && !self.wait_for_input() {
                return Ok(());
            }
            let offset = self.lock().sent;
            let count = match self.source.copy(offset, &mut buffer) {
                Ok(0) => return input.finish(),
                Ok(count) => count,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                // A descriptor that cannot be read: the command sees the end.
                Err(_) => return input.finish(),
            };
            {
                let mut state = self.lock();
                if state.is_over {
                    return Ok(());
                }
                // Booked first: the guest may tell of it before `send` returns.
                state.sent += count as u64;
            }
            input.send(&buffer[..count])?;
            if self.source.is_followed() {
                let state = self.lock();
                let mut state = self
                    .changed
                    .wait_while(state, |state| !state.is_over && state.taken < state.sent)
                    .unwrap_or_else(PoisonError::into_inner);
                if state.is_over {
                    return Ok(());
                }
                let taken = state.taken;
                self.source.remove(&mut state, taken);
            }
        }
    }

    /// Waits for something to read, or the end of the input; false when the command has ended first.
    fn wait_for_input(&self) -> bool {
        let mut fds = [
            PollFd::new(&self.over, PollFlags::IN),
            PollFd::new(&self.source.fd, PollFlags::IN),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                Err(_) => return true,
                Ok(_) => return fds[0].revents().is_empty(),
            }
        }
    }
}
