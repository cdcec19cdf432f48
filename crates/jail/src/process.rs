//! Commands as processes: starts them under wardens, reports how they ended, and finds all their
//! descendants.
//!
//! A [`Launch`] has everything decided beforehand (environment merged, `PATH` candidates listed,
//! descriptors opened). Starting it yields a pair of pids, later a [`CommandEnd`], and at last the
//! news that no process of the command is left. Invariants:
//! - The only children that a guest starts are wardens. Any other child is a stray: a process whose
//!   warden was killed by a hostile command. The guest kills strays ([`Census::children_of`]).
//! - All descendants of a command stay descendants of its warden while the warden lives.
//!
//! A running command costs two pids, its own and its warden's. The pair for the next command can be
//! made ready beforehand ([`Wardens::make_ready`]) and costs two pids as well.

mod census;
mod launch;
mod member;
mod strings;

pub use crate::identity::Separation;
pub use crate::sys::warden::ControllingTerminal;
pub use census::{Census, TreeKill};
pub use launch::{Launch, SpawnError};
pub use member::{GuestMark, Member};
pub use strings::{NulError, Strings};

use crate::processors::{Mask, Processors};
use crate::sys::{ids, landlock, schedule, warden};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{DumpableBehavior, Pid, Signal};
use std::collections::HashMap;

/// Number of stacks kept for reuse. More commands than that seldom run at once.
const SPARE_STACKS: usize = 4;

/// Result of a command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit code or signal.
    pub status: EndStatus,
    /// CPU time in user mode in microseconds, of the command and all children it waited for.
    pub user_us: u64,
    /// CPU time in the kernel in microseconds, of the same processes.
    pub system_us: u64,
    /// Largest resident set of one process in KiB.
    pub max_rss_kib: u64,
    /// Time of the end in nanoseconds of the monotonic clock.
    pub ended_ns: u64,
    /// True if no process that the command started was left at that moment.
    pub is_empty: bool,
}

/// Exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndStatus {
    /// The command exited with this code.
    Code(i32),
    /// This signal killed the command.
    Signal(i32),
}

impl From<warden::Outcome> for CommandEnd {
    fn from(outcome: warden::Outcome) -> Self {
        // Encoding of wait(2): the low seven bits are the signal, the next byte is the code.
        let status = match outcome.status & 0x7f {
            0 => EndStatus::Code((outcome.status >> 8) & 0xff),
            signal => EndStatus::Signal(signal),
        };
        Self {
            status,
            user_us: outcome.user_us,
            system_us: outcome.system_us,
            max_rss_kib: outcome.max_rss_kib,
            ended_ns: outcome.ended_ns,
            is_empty: outcome.is_empty,
        }
    }
}

/// A started command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedCommand {
    /// Pid of its warden, which is the ancestor of all its processes. Further calls name the
    /// command by it.
    pub warden: Pid,
    /// Pid of the command, which is the leader of its own process group in the warden's session.
    pub command: Pid,
}

/// News of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandNews {
    /// The command has ended.
    Ended(CommandEnd),
    /// This signal stopped the command. It may have been continued since.
    Stopped(i32),
}

/// A child that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapedChild {
    /// A warden. Unless it was killed, all processes of its command are gone.
    Warden {
        /// Pid of the warden.
        warden: Pid,
        /// Result of its command. `None` if the warden was killed before it could report one.
        end: Option<CommandEnd>,
        /// True if the warden did not exit by itself. The processes of its command are then strays.
        was_killed: bool,
    },
    /// A child that is no warden.
    Stray(Pid),
}

/// All wardens of this process.
#[derive(Debug)]
pub struct Wardens {
    live: HashMap<Pid, warden::Warden>,
    /// Dead wardens whose command may still run on the memory of this process.
    limbo: Vec<warden::Warden>,
    spare: Vec<warden::Stack>,
    /// Warden of `live` that waits for its command.
    ready: Option<Pid>,
    ruleset: Option<OwnedFd>,
    separation: Separation,
    is_nested: bool,
    processors: Option<Mask>,
    ring: OwnedFd,
    bell: Option<OwnedFd>,
}

impl Wardens {
    /// Prepares to start commands. Each is confined by the Landlock `ruleset` (which implies
    /// `no_new_privs`), and `separation` keeps it from signalling or tracing this process.
    ///
    /// Preconditions: [`reset_and_block_signals`] was called before any thread was started, and no
    /// other code of this process waits for children.
    ///
    /// # Errors
    /// No descriptors or memory.
    pub fn new(ruleset: Option<OwnedFd>, separation: Separation) -> Result<Self, Errno> {
        let (ring, bell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Only the reading end is non-blocking. A warden that finds the pipe full must wait: its
        // message may not be lost.
        rustix::fs::fcntl_setfl(&ring, rustix::fs::OFlags::NONBLOCK)?;
        let spare = vec![warden::Stack::new()?];
        Ok(Self {
            live: HashMap::new(),
            limbo: Vec::new(),
            spare,
            ready: None,
            ruleset,
            separation,
            is_nested: false,
            processors: None,
            ring,
            bell: Some(bell),
        })
    }

    /// Sets whether commands may make namespaces. A process in such a namespace can hold the
    /// guest's capability, so each command gets one system-call filter more than the guest, which
    /// tells the two apart ([`GuestMark`]).
    #[must_use]
    pub fn nested(mut self, is_nested: bool) -> Self {
        self.is_nested = is_nested;
        self
    }

    /// Returns a descriptor that is readable when a command has ended or was stopped.
    /// [`Wardens::next_news`] then tells which one.
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Returns the number of wardens that have not been waited for.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns true if every warden has been waited for.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Makes the warden and the child for the next command now, confined and waiting, unless there
    /// is a pair already. Failures are ignored: the next command then merely takes longer to start.
    pub fn make_ready(&mut self) {
        if self.ready.is_none()
            && let Ok(warden) = self.fresh(None)
        {
            self.ready = Some(warden.pid());
            self.live.insert(warden.pid(), warden);
        }
    }

    /// Sets the processors that later commands start on; `None` for all.
    pub fn set_processors(&mut self, processors: Option<&Processors>) {
        self.processors = processors.map(Processors::mask);
        self.end_ready();
    }

    /// Sets the Landlock ruleset of later commands.
    pub fn renew(&mut self, ruleset: Option<OwnedFd>) {
        self.ruleset = ruleset;
        self.end_ready();
    }

    fn end_ready(&mut self) {
        if let Some(warden) = self.ready.take() {
            // It was made with the old settings. Its child dies with it, and both are waited for as
            // usual.
            let _ = rustix::process::kill_process(warden, Signal::KILL);
        }
    }

    /// Returns true if a warden waits for the next command.
    pub fn has_ready(&self) -> bool {
        self.ready.is_some()
    }

    fn fresh(
        &mut self,
        terminal: Option<ControllingTerminal<'_>>,
    ) -> Result<warden::Warden, SpawnError> {
        let Some(bell) = &self.bell else {
            return Err(SpawnError::Other(Errno::BADF));
        };
        let stack = match self.spare.pop() {
            Some(stack) => stack,
            None => warden::Stack::new().map_err(|_| SpawnError::NoProcesses)?,
        };
        let terms = warden::Confinement {
            landlock: self.ruleset.as_ref().map(AsFd::as_fd),
            terminal,
            separation: self.separation,
            is_nested: self.is_nested,
            processors: self.processors,
        };
        warden::ready(stack, bell.as_fd(), terms)
            .map_err(|errno| SpawnError::new(warden::Stage::Fork, errno))
    }

    /// Starts a command. Blocks until it has been executed.
    ///
    /// # Errors
    /// [`SpawnError`], by the step that failed. No process is left behind, except possibly a dead
    /// one that a later [`Wardens::reap`] collects.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<StartedCommand, SpawnError> {
        let (argv, env) = (launch.argv.pointers(), launch.env.pointers());
        let candidates = launch.candidates.pointers();
        let limits = launch.limit_entries();
        // The child replaces 0, 1 and 2, so no source may have one of these numbers.
        let mut moved = [const { None }; 3];
        let mut stdio = launch.stdio;
        for (fd, home) in stdio.iter_mut().zip(&mut moved) {
            if fd.as_raw_fd() < 3 {
                let copy = rustix::io::fcntl_dupfd_cloexec(*fd, 3).map_err(SpawnError::Other)?;
                *fd = OwnedFd::as_fd(home.insert(copy));
            }
        }
        // Copies lie above every target number, so that no step overwrites a later source.
        let above = launch.descriptors.iter().map(|(_, number)| number + 1);
        let above = above.max().unwrap_or_default().cast_signed();
        let mut copies = Vec::with_capacity(launch.descriptors.len());
        let mut descriptors = Vec::with_capacity(launch.descriptors.len());
        for (fd, number) in launch.descriptors {
            let copy = rustix::io::fcntl_dupfd_cloexec(fd, above).map_err(SpawnError::Other)?;
            descriptors.push([copy.as_raw_fd(), number.cast_signed()]);
            copies.push(copy);
        }
        descriptors.sort_unstable_by_key(|[_, number]| *number);
        let order = warden::Order {
            argv: &argv,
            env: &env,
            candidates: &candidates,
            program: launch.program,
            cwd: launch.cwd,
            stdio,
            descriptors: &descriptors,

            limits: &limits,
            umask: launch.umask,
        };
        // A waiting warden has no terminal and can no longer get one.
        let ready = match launch.terminal {
            None => self.ready.take(),
            Some(_) => None,
        };
        let waiting = ready.and_then(|pid| self.live.remove(&pid));
        if let Some(warden) = waiting {
            match warden::give(warden, &order) {
                // A hostile earlier command may have killed the waiting pair. This command has not
                // begun, so it can start under a new warden.
                Err(refusal) if refusal.is_untouched => self.keep(refusal.remains),
                result => return self.book(result),
            }
        }
        let warden = self.fresh(launch.terminal)?;
        self.book(warden::give(warden, &order))
    }

    fn book(
        &mut self,
        result: Result<warden::Warden, warden::Refusal>,
    ) -> Result<StartedCommand, SpawnError> {
        match result {
            Ok(warden) => {
                let (pid, command) = (warden.pid(), warden.command());
                self.live.insert(pid, warden);
                Ok(StartedCommand {
                    warden: pid,
                    command: command.ok_or(SpawnError::Interrupted)?,
                })
            }
            Err(refusal) => {
                self.keep(refusal.remains);
                Err(SpawnError::new(refusal.stage, refusal.errno))
            }
        }
    }

    /// Keeps a warden whose command did not begin, until it has been waited for.
    fn keep(&mut self, remains: Option<warden::Warden>) {
        if let Some(warden) = remains {
            self.live.insert(warden.pid(), warden);
        }
    }

    /// Returns the next command that has ended or was stopped, named by its warden. `None` if there
    /// is no further news.
    pub fn next_news(&mut self) -> Option<(Pid, CommandNews)> {
        loop {
            let mut message = [0_u8; 4];
            // A message is written in one piece, because it is shorter than PIPE_BUF (pipe(7)).
            if !matches!(rustix::io::read(&self.ring, &mut message), Ok(4)) {
                return None;
            }
            // TRUST: any process with our user id could not write here (the pipe has no name and
            // is not inherited); the pid is still only a hint, and the slot decides.
            let pid = Pid::from_raw(i32::from_ne_bytes(message));
            let Some(pid) = pid else { continue };
            if let Some(end) = self.end_of(pid) {
                return Some((pid, CommandNews::Ended(end)));
            }
            if let Some(signal) = self.live.get(&pid).and_then(warden::Warden::take_stop) {
                return Some((pid, CommandNews::Stopped(signal)));
            }
        }
    }

    /// Returns the result of `warden`'s command. `None` while the command runs, or if the warden
    /// has been waited for.
    pub fn end_of(&self, warden: Pid) -> Option<CommandEnd> {
        self.live.get(&warden)?.outcome().map(CommandEnd::from)
    }

    /// Waits for one dead child, without blocking. Children found stopped are continued.
    pub fn reap(&mut self) -> Option<ReapedChild> {
        let proof = warden::reap_any()?;
        self.ready = self.ready.filter(|pid| *pid != proof.pid());
        let gone = match self.live.remove(&proof.pid()) {
            Some(mut warden) => {
                warden.reaped(&proof);
                let end = warden.outcome().map(CommandEnd::from);
                let was_killed = proof.status().exit_status() != Some(0);
                self.limbo.push(warden);
                ReapedChild::Warden {
                    warden: proof.pid(),
                    end,
                    was_killed,
                }
            }
            None => ReapedChild::Stray(proof.pid()),
        };
        for warden in std::mem::take(&mut self.limbo) {
            match warden.retire() {
                Ok(stack) if self.spare.len() < SPARE_STACKS => self.spare.push(stack),
                Ok(stack) => drop(stack),
                Err(warden) => self.limbo.push(warden),
            }
        }
        Some(gone)
    }

    /// Returns true if `pid` is a warden that has not been waited for.
    pub fn is_warden(&self, pid: Pid) -> bool {
        self.live.contains_key(&pid)
    }

    /// Returns the pids of the wardens that have not been waited for.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.live.keys().copied()
    }

    /// Kills every child of this process that is not a warden. Returns their number.
    pub fn kill_strays(&self, census: &Census) -> usize {
        let mut count = 0;
        for child in census.children_of(rustix::process::getpid()) {
            if child.is_alive && !self.is_warden(child.pid) {
                count += 1;
                let _ = rustix::process::kill_process(child.pid, Signal::KILL);
            }
        }
        count
    }
}

impl Drop for Wardens {
    fn drop(&mut self) {
        // Living wardens share our descriptor table. If this number were closed, they would write
        // to the file that is opened under it next. `Warden` itself keeps their stacks.
        if !self.live.is_empty() {
            std::mem::forget(self.bell.take());
        }
    }
}

/// Restores ordinary scheduling of a process that is about to be killed: another process may have
/// lowered its priority, bound it to one processor, or given it an idle policy. Failures are
/// ignored.
pub fn restore_scheduling(pid: Pid) {
    schedule::make_normal(pid);
}

/// Makes the kernel prefer `command` over others when memory runs out
/// (`proc_pid_oom_score_adj(5)`). The score can only be raised. Returns false on failure.
///
/// It is set from outside and after exec. Until then the process shares our memory, which is not
/// dumpable, so the file belongs to root. That lasts a moment beyond the return of
/// [`Wardens::spawn`], so the caller must retry. Without /proc it always fails.
pub fn set_oom_score(command: Pid, score: i16) -> bool {
    let path = format!("/proc/{}/oom_score_adj", command.as_raw_pid());
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .is_ok_and(|file| rustix::io::write(&file, score.to_string().as_bytes()).is_ok())
}

/// Returns the user id that this process does its file operations with. In a sandbox it is that of
/// commands.
pub fn file_user_id() -> u32 {
    ids::user_ids()[3]
}

/// Makes this process the subreaper of its descendants, which are reparented to it when their
/// parents exit (prctl(2)).
///
/// # Errors
/// The kernel refuses.
pub fn become_subreaper() -> Result<(), Errno> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// Denies ptrace(2) and `/proc/PID/mem` of this process to other processes of its user id.
///
/// # Errors
/// The kernel refuses.
pub fn set_non_dumpable() -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Sends a signal by its number, real-time signals included.
///
/// # Errors
/// No such process, no permission, or no such signal.
pub fn send_signal(pid: Pid, number: i32) -> Result<(), Errno> {
    warden::send(pid, false, number)
}

/// Sends a signal by its number to every process of a group.
///
/// # Errors
/// No such group, no permission, or no such signal.
pub fn send_group_signal(group: Pid, number: i32) -> Result<(), Errno> {
    warden::send(group, true, number)
}

/// Stops this process by the default action of `signal`, even if a handler is installed, and
/// returns when it is continued. Returns at once if the kernel stops nothing, as in an orphaned
/// process group. With `is_group` the whole process group is stopped, and the first thread must
/// call.
///
/// # Errors
/// No such signal.
pub fn stop_caller(signal: Signal, is_group: bool) -> Result<(), Errno> {
    if is_group {
        warden::stop_group_of_caller(signal.as_raw())
    } else {
        warden::stop_caller(signal.as_raw())
    }
}

/// Sets all signal dispositions to default, and blocks all signals in the calling thread and in
/// threads that it starts later. Commands start with no signal blocked.
///
/// # Errors
/// The kernel refuses.
pub fn reset_and_block_signals() -> Result<(), Errno> {
    warden::reset_and_block()
}

/// Returns a descriptor that becomes readable when children have ended or were stopped. The caller
/// reads and discards its content, then calls [`Wardens::reap`] until that returns `None`.
///
/// # Errors
/// No descriptors.
pub fn child_signal_fd() -> Result<OwnedFd, Errno> {
    warden::child_signal_fd()
}

/// Makes the C library's allocator return memory early and keep one arena.
pub fn keep_heap_small() {
    warden::keep_heap_small();
}

/// Applies a Landlock ruleset to the calling thread and sets `no_new_privs`, which the kernel
/// requires.
///
/// # Errors
/// The kernel refuses. The thread must not go on as if it were restricted.
pub fn restrict_this_thread(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    match landlock::restrict_self_raw(ruleset.as_raw_fd()) {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(-error)),
    }
}
