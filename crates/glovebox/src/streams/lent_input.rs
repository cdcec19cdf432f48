//! Standard input, or another descriptor, that is lent to a command: bytes that the command has not
//! read remain for the next reader.
//!
//! Bytes are copied from the caller's file, pipe or socket without being consumed, and consumed
//! once the guest reports that the command has read them: a file is read with pread(2), a pipe with
//! tee(2), a socket with MSG_PEEK. A pipe or socket yields only its first bytes that way, so the
//! next piece is copied after the previous one is consumed.

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

/// Largest piece that is copied at once, in bytes: the default capacity of a pipe (pipe(7)).
const PIECE_BYTES: usize = 64 << 10;

/// Input of a kind that can be read without being consumed.
#[derive(Debug)]
pub(super) struct LentSource {
    fd: OwnedFd,
    kind: SourceKind,
}

#[derive(Debug)]
enum SourceKind {
    /// Regular file, from this position on.
    File { start: u64 },
    /// Pipe, with a pipe of our own that receives the copies.
    Pipe { copies: [OwnedFd; 2] },
    /// Stream socket.
    Socket,
}

impl LentSource {
    /// Returns standard input, or None if it is of no such kind.
    pub(super) fn of_stdin() -> Option<Self> {
        Self::new(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?)
    }

    /// Returns an open file, or None if it is of no such kind.
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

    /// Returns true for a pipe or socket, whose bytes must be consumed while the command runs. A
    /// file's position is set at the end.
    pub(super) const fn is_followed(&self) -> bool {
        !matches!(self.kind, SourceKind::File { .. })
    }

    /// Copies the next bytes without consuming them; 0 means the end. Must be called when the
    /// source is readable: tee and recv do not block here.
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

    /// Consumes bytes from the caller's pipe or socket, up to `total` counted from the beginning.
    fn remove(&self, state: &mut LoanState, total: u64) {
        let mut buffer = vec![0; PIECE_BYTES];
        while state.removed < total {
            let left = usize::try_from(total - state.removed).unwrap_or(PIECE_BYTES);
            let left = left.min(PIECE_BYTES);
            // Another reader of the same pipe may have consumed them first. Poll with a timeout of
            // zero, or the read below would block for bytes that are gone.
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

/// Progress of an input, in bytes from its beginning.
#[derive(Debug, Default)]
struct LoanState {
    /// Bytes sent to the guest.
    sent: u64,
    /// Bytes read by the command, as far as the guest has reported.
    taken: u64,
    /// Bytes consumed from the caller's pipe or socket.
    removed: u64,
    /// True after the command has ended.
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

/// Input that is being lent to a command.
#[derive(Debug)]
pub(super) struct LentInput {
    loan: Arc<Loan>,
    thread: JoinHandle<()>,
}

impl LentInput {
    /// Starts a thread that relays the input.
    ///
    /// # Errors
    /// No thread can be started, or no event descriptor can be opened.
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
                // An error means that the command or its sandbox has ended, which its reply
                // reports.
                let _ = shared.pass(&input);
            })
            .map_err(|error| CommandError::io("start a thread", &error))?;
        Ok(Self { loan, thread })
    }

    /// Records that the command has read `total` bytes.
    pub(super) fn note_taken(&self, total: u64) {
        let mut state = self.loan.lock();
        // TRUST: the guest reports this number; it is bounded by the number of bytes sent.
        state.taken = state.taken.max(total.min(state.sent));
        self.loan.changed.notify_all();
    }

    /// Consumes from the caller's input exactly the bytes that the command has read. The request
    /// must have ended.
    pub(super) fn settle(self, total: u64) {
        self.note_taken(total);
        self.loan.lock().is_over = true;
        self.loan.changed.notify_all();
        // Fails only if the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.loan.over, &1_u64.to_ne_bytes());
        let _ = self.thread.join();
        let mut state = self.loan.lock();
        let source = &self.loan.source;
        match source.kind {
            SourceKind::File { start } => {
                // A file that cannot be positioned keeps its position.
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
                // A descriptor that cannot be read: the command sees the end of its input.
                Err(_) => return input.finish(),
            };
            {
                let mut state = self.lock();
                if state.is_over {
                    return Ok(());
                }
                // Count the bytes before `send`: the guest may report them as read before it
                // returns, and the report is bounded by this number.
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

    /// Waits for input, or its end. Returns false if the command has ended first.
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
