//! Commands as processes: starting them under wardens, hearing how they ended, and finding
//! everything they started.
//!
//! In: a [`Launch`] with everything decided beforehand (environment merged, `PATH` candidates
//! listed, descriptors opened). Out: a pair of pids, later an [`CommandEnd`], later the news that nothing
//! of the command is left. Invariants:
//! - The only children a guest has on purpose are wardens. Any other child is a stray: something
//!   whose warden was killed by a hostile command. Strays are to be killed ([`Census::children_of`]).
//! - Everything a command starts stays a descendant of its warden for as long as the warden lives.
//!
//! A command costs two pids while it runs: its own and its warden's. The pair for the next command
//! can be made ready beforehand ([`Wardens::make_ready`]) and costs them as well.

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

/// Stacks kept for reuse; more than that many commands at once is rare.
const SPARE_STACKS: usize = 4;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit code, unless a signal ended it.
    pub status: EndStatus,
    /// Microseconds of CPU time in user mode, of the command and all it waited for.
    pub user_us: u64,
    /// Microseconds of CPU time in the kernel.
    pub system_us: u64,
    /// Largest resident set of one process, in KiB.
    pub max_rss_kib: u64,
    /// When it ended, in nanoseconds of the monotonic clock.
    pub ended_ns: u64,
    /// Whether nothing the command started was left at that moment.
    pub is_empty: bool,
}

/// Exit code or signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndStatus {
    /// It ended by itself with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl From<warden::Outcome> for CommandEnd {
    fn from(outcome: warden::Outcome) -> Self {
        // The encoding of wait(2): low seven bits the signal, next byte the code.
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
    /// Names the command in all further calls; ancestor of everything the command starts.
    pub warden: Pid,
    /// The command itself, leader of its own process group in the warden's session.
    pub command: Pid,
}

/// News of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandNews {
    /// It has ended.
    Ended(CommandEnd),
    /// This signal has stopped it. It may have been continued since.
    Stopped(i32),
}

/// A child that has been waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapedChild {
    /// A warden, and so, unless it was killed, everything its command started.
    Warden {
        /// Which.
        warden: Pid,
        /// How its command ended; `None` when the warden was killed before it could tell.
        end: Option<CommandEnd>,
        /// The warden did not end by itself, so what it watched is now stray.
        was_killed: bool,
    },
    /// Something that should not have been a child of ours.
    Stray(Pid),
}

/// All wardens of this process.
#[derive(Debug)]
pub struct Wardens {
    live: HashMap<Pid, warden::Warden>,
    /// Dead wardens whose command may still be on our memory.
    limbo: Vec<warden::Warden>,
    spare: Vec<warden::Stack>,
    /// One of `live` that waits for its command.
    ready: Option<Pid>,
    ruleset: Option<OwnedFd>,
    separation: Separation,
    is_nested: bool,
    processors: Option<Mask>,
    ring: OwnedFd,
    bell: Option<OwnedFd>,
}

impl Wardens {
    /// Prepares to start commands, all of which are confined by the Landlock `ruleset`; that implies
    /// `no_new_privs`, and kept from steering this process by `separation`.
    ///
    /// Preconditions: [`reset_and_block_signals`] was called before any thread was started, and
    /// this process waits for no children elsewhere.
    ///
    /// # Errors
    /// No descriptors or memory.
    pub fn new(ruleset: Option<OwnedFd>, separation: Separation) -> Result<Self, Errno> {
        let (ring, bell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Only our end: a warden that finds the pipe full may wait, its message may not be lost.
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

    /// Commands may make namespaces of their own, in which they can have the guest's capability: each gets a
    /// system-call filter more than the guest has, by which they are told apart ([`GuestMark`]).
    #[must_use]
    pub fn nested(mut self, is_nested: bool) -> Self {
        self.is_nested = is_nested;
        self
    }

    /// Readable when a command has ended or was stopped; then [`Wardens::next_news`] tells which.
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Number of wardens that have not been waited for.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Makes warden and child for the next command now, confined and waiting, if there are none.
    /// Without them that command merely takes longer to start, so a failure is none.
    pub fn make_ready(&mut self) {
        if self.ready.is_none()
            && let Ok(warden) = self.fresh(None)
        {
            self.ready = Some(warden.pid());
            self.live.insert(warden.pid(), warden);
        }
    }

    /// Starts every command from now on on these processors, or on all.
    pub fn set_processors(&mut self, processors: Option<&Processors>) {
        self.processors = processors.map(Processors::mask);
        self.end_ready();
    }

    /// Confines every command that starts from now on by another ruleset.
    pub fn renew(&mut self, ruleset: Option<OwnedFd>) {
        self.ruleset = ruleset;
        self.end_ready();
    }

    fn end_ready(&mut self) {
        if let Some(warden) = self.ready.take() {
            // It was made by the old terms. Its child goes with it, and both are waited for as ever.
            let _ = rustix::process::kill_process(warden, Signal::KILL);
        }
    }

    /// Whether a warden waits for the next command.
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

    /// Starts a command and returns when it has been executed.
    ///
    /// # Errors
    /// [`SpawnError`], by the step that failed. No process is left behind, except possibly a dead
    /// one that a later [`Wardens::reap`] picks up.
    pub fn spawn(&mut self, launch: &Launch<'_>) -> Result<StartedCommand, SpawnError> {
        let (argv, env) = (launch.argv.pointers(), launch.env.pointers());
        let candidates = launch.candidates.pointers();
        let limits = launch.limit_entries();
        // The child rearranges 0, 1 and 2, so no source may be among them.
        let mut moved = [const { None }; 3];
        let mut stdio = launch.stdio;
        for (fd, home) in stdio.iter_mut().zip(&mut moved) {
            if fd.as_raw_fd() < 3 {
                let copy = rustix::io::fcntl_dupfd_cloexec(*fd, 3).map_err(SpawnError::Other)?;
                *fd = OwnedFd::as_fd(home.insert(copy));
            }
        }
        // Above every number, so that no step overwrites a later source.
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
        // What waits has no terminal, and cannot get one any more.
        let ready = match launch.terminal {
            None => self.ready.take(),
            Some(_) => None,
        };
        let waiting = ready.and_then(|pid| self.live.remove(&pid));
        if let Some(warden) = waiting {
            match warden::give(warden, &order) {
                // A command before it may have killed whatever it found; this one has not begun.
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

    /// Keeps a warden whose command did not begin until it has been waited for.
    fn keep(&mut self, remains: Option<warden::Warden>) {
        if let Some(warden) = remains {
            self.live.insert(warden.pid(), warden);
        }
    }

    /// The next command that has ended or was stopped, by its warden.
    pub fn next_news(&mut self) -> Option<(Pid, CommandNews)> {
        loop {
            let mut message = [0_u8; 4];
            // Messages are written whole and are shorter than PIPE_BUF (pipe(7)).
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

    /// How the command of `warden` ended, if it has and its warden has not been waited for.
    pub fn end_of(&self, warden: Pid) -> Option<CommandEnd> {
        self.live.get(&warden)?.outcome().map(CommandEnd::from)
    }

    /// Waits for one dead child, without blocking. Children found stopped are told to go on.
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

    /// Whether `pid` is one of our wardens.
    pub fn is_warden(&self, pid: Pid) -> bool {
        self.live.contains_key(&pid)
    }

    /// Wardens that have not been waited for.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.live.keys().copied()
    }

    /// Kills every child of this process that is not a warden. Returns how many there were.
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
        // Wardens that still live share our descriptor table and would write to whatever is opened
        // under this number next; their stacks are kept by `Warden` itself.
        if !self.live.is_empty() {
            std::mem::forget(self.bell.take());
        }
    }
}

/// Schedules a process that is to be ended as any other: somebody may have lowered it, bound it to one
/// processor, or given it no time beside others. What the kernel refuses stays as it is.
pub fn restore_scheduling(pid: Pid) {
    schedule::make_normal(pid);
}

/// Makes the kernel prefer `command` over others when memory runs out (`proc_pid_oom_score_adj(5)`);
/// only raising it is allowed. `false` when that did not work.
///
/// Done from outside and after exec, for until then the process shares our memory, which is not
/// dumpable, and the file belongs to root. It does for a moment longer after [`Wardens::spawn`] has
/// returned, so a caller tries again. Without /proc there is nothing to do.
pub fn set_oom_score(command: Pid, score: i16) -> bool {
    let path = format!("/proc/{}/oom_score_adj", command.as_raw_pid());
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .is_ok_and(|file| rustix::io::write(&file, score.to_string().as_bytes()).is_ok())
}

/// The user id this process does its file operations with, which in a sandbox is that of commands.
pub fn file_user_id() -> u32 {
    ids::user_ids()[3]
}

/// Makes this process the parent of whatever its descendants leave behind (prctl(2)).
///
/// # Errors
/// The kernel refuses.
pub fn become_subreaper() -> Result<(), Errno> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
}

/// Closes this process to ptrace(2) and `/proc/PID/mem` of others with its user id.
///
/// # Errors
/// The kernel refuses.
pub fn set_non_dumpable() -> Result<(), Errno> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Sends a signal by its number, real-time signals included.
///
/// # Errors
/// No such process, not allowed to, or no such signal.
pub fn send_signal(pid: Pid, number: i32) -> Result<(), Errno> {
    warden::send(pid, false, number)
}

/// Sends a signal by its number to every process of a group.
///
/// # Errors
/// No such group, not allowed to, or no such signal.
pub fn send_group_signal(group: Pid, number: i32) -> Result<(), Errno> {
    warden::send(group, true, number)
}

/// Stops this process by the default action of `signal`, although it may handle that, and returns when it goes on; at
/// once where the kernel stops nothing, as in an orphaned process group. With `is_group` the whole process group is
/// stopped, and the first thread must call.
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

/// Sets all signal dispositions to default and blocks all signals in the calling thread and those
/// it starts from now on. Commands start with nothing blocked.
///
/// # Errors
/// The kernel refuses.
pub fn reset_and_block_signals() -> Result<(), Errno> {
    warden::reset_and_block()
}

/// A descriptor that becomes readable when children have ended or were stopped; read and discard its content, then
/// call [`Wardens::reap`] until there is nothing left.
///
/// # Errors
/// No descriptors.
pub fn child_signal_fd() -> Result<OwnedFd, Errno> {
    warden::child_signal_fd()
}

/// Tells the C library's allocator to give memory back early and to keep one arena.
pub fn keep_heap_small() {
    warden::keep_heap_small();
}

/// Applies a Landlock ruleset to the calling thread, which also gives up new privileges.
///
/// # Errors
/// The kernel refuses; the thread must not go on as if it were restricted.
pub fn restrict_this_thread(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)?;
    match landlock::restrict_self_raw(ruleset.as_raw_fd()) {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(-error)),
    }
}
