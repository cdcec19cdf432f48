//! Process as proc_pid(5) shows it: its ids and its state.
//!
//! Only this module reads `/proc/PID/stat`, for the guest and for the host. TRUST: of the data read
//! here, a process chooses its own name only. A file that does not parse is treated as absent.

use crate::identity::GUEST_CAPABILITY;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::Pid;
use std::mem::MaybeUninit;

/// State of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub pid: Pid,
    /// Pid of its parent. `None` if the parent is outside the pid namespace.
    pub parent: Option<Pid>,
    /// Start time in clock ticks since boot. Together with the pid it identifies a process, even if
    /// the pid is reused.
    pub start_ticks: u64,
    /// True if any of its threads still runs.
    pub is_alive: bool,
    /// True if each of its threads is stopped, by a signal or by its tracer.
    pub is_stopped: bool,
    /// True if one of its threads is stopped by its tracer, which may continue it at any time.
    pub is_held_by_tracer: bool,
    /// True if it sleeps uninterruptibly in the kernel, where no signal reaches it yet.
    pub is_uninterruptible: bool,
    threads: u32,
}

impl Member {
    /// Returns the process that has this id now, dead ones included. `None` if there is none.
    pub fn read(pid: Pid) -> Option<Self> {
        Self::read_at(CWD, format!("/proc/{}", pid.as_raw_pid()).as_bytes())
    }

    /// Returns the process whose directory in `/proc` is `dir`, relative to `at`.
    pub(super) fn read_at(at: BorrowedFd<'_>, dir: &[u8]) -> Option<Self> {
        let mut text = [0_u8; 1024];
        let count = read_into(at, &[dir, b"/stat"].concat(), &mut text)?;
        let text = text.get(..count)?;
        let mut member = Self::parse(text)?;
        let first = state(text)?.0;
        if member.threads > 1 && (is_stopped(first) || is_dead(first)) {
            // The state read so far is that of the first thread, which may have ended before the
            // others.
            let states = threads(at, dir, "stat", |text| state(text).map(|(state, _)| state));
            if let Ok(states) = states {
                member.is_held_by_tracer = states.contains(&HELD_BY_TRACER);
                let mut living = states.iter().filter(|state| !is_dead(**state)).peekable();
                member.is_stopped =
                    living.peek().is_some() && living.all(|state| is_stopped(*state));
            }
        }
        Some(member)
    }

    /// Parses the content of `/proc/PID/stat`.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&byte| byte == b'(')?;
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<i32>().ok();
        let pid = Pid::from_raw(number(text.get(..open)?)?)?;
        let (state, mut fields) = state(text)?;
        let parent = Pid::from_raw(number(fields.next()?)?);
        // num_threads is field 20; state was field 3, ppid field 4.
        let threads = u32::try_from(number(fields.nth(15)?)?).ok()?;
        // starttime is field 22.
        let start = std::str::from_utf8(fields.nth(1)?).ok()?;
        let start_ticks = start.trim().parse().ok()?;
        Some(Self {
            pid,
            parent,
            start_ticks,
            is_alive: !(is_dead(state) && threads <= 1),
            is_stopped: is_stopped(state),
            is_held_by_tracer: state == HELD_BY_TRACER,
            is_uninterruptible: state == b'D',
            threads,
        })
    }

    /// Returns true if the process is the guest that `mark` was read from, one of its wardens, or a
    /// pre-exec child of a warden. They hold a capability that no command can have in the sandbox's
    /// own user namespace, and they have fewer system-call filters than a command that may make
    /// another namespace.
    pub fn is_of_guest(&self, mark: GuestMark) -> bool {
        read_status(self.pid, |text| {
            let has_capability = number_of(text, "CapPrm", 16)? == GUEST_CAPABILITY.bits();
            let filters = number_of(text, "Seccomp_filters", 10)?;
            Some(has_capability && filters <= mark.max_filters?)
        })
        .unwrap_or(false)
    }

    /// Returns the number of context switches of all its threads. If the number is the same twice,
    /// a stopped process has not run in between. `None` if the process is gone.
    pub fn switches(&self) -> Option<u64> {
        let dir = format!("/proc/{}", self.pid.as_raw_pid());
        let counts = threads(CWD, dir.as_bytes(), "status", |text| {
            let own = number_of(text, "voluntary_ctxt_switches", 10)?;
            Some(own + number_of(text, "nonvoluntary_ctxt_switches", 10)?)
        });
        Some(counts.ok()?.iter().sum())
    }
}

/// State "tracing stop" of proc_pid_stat(5).
const HELD_BY_TRACER: u8 = b't';

/// Properties that distinguish a guest and its helper processes from its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestMark {
    /// Maximum number of system-call filters of a process that belongs to the guest. `None` if the
    /// guest is gone.
    max_filters: Option<u64>,
}

impl GuestMark {
    /// Reads the mark of the guest with this id.
    #[must_use]
    pub fn of(guest: Pid) -> Self {
        let filters = read_status(guest, |text| number_of(text, "Seccomp_filters", 10));
        Self {
            // A pre-exec child may have one filter more than the guest.
            max_filters: filters.map(|count| count + 1),
        }
    }
}

/// Applies `read` to the status of a process (proc_pid_status(5)). `None` if the process is gone or
/// `read` finds nothing.
fn read_status<T>(pid: Pid, read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let path = format!("/proc/{}/status", pid.as_raw_pid());
    let mut text = [0_u8; 4096];
    let count = read_into(CWD, path.as_bytes(), &mut text)?;
    read(text.get(..count)?)
}

fn is_dead(state: u8) -> bool {
    matches!(state, b'Z' | b'X')
}

fn is_stopped(state: u8) -> bool {
    matches!(state, b'T' | HELD_BY_TRACER)
}

/// Returns the state in a stat file, and the fields after it. The command name before the state may
/// contain any byte, so the fields are counted from its last closing parenthesis
/// (proc_pid_stat(5)).
fn state(text: &[u8]) -> Option<(u8, impl Iterator<Item = &[u8]>)> {
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text
        .get(close + 1..)?
        .split(|&byte| byte == b' ')
        .filter(|part| !part.is_empty());
    Some((*fields.next()?.first()?, fields))
}

/// Returns the number after `name:` in a status file.
fn number_of(text: &[u8], name: &str, radix: u32) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    u64::from_str_radix(value.trim(), radix).ok()
}

/// Applies `read` to the file `name` of each thread. Threads that end meanwhile are left out.
fn threads<T>(
    at: BorrowedFd<'_>,
    dir: &[u8],
    name: &str,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Errno> {
    let tasks = open_dir(at, &[dir, b"/task"].concat())?;
    let mut found = Vec::new();
    let mut room = [MaybeUninit::uninit(); 2 << 10];
    let mut entries = RawDir::new(&tasks, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let thread = entry.file_name().to_bytes();
        if !thread.first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let mut text = [0_u8; 4096];
        let path = [thread, b"/", name.as_bytes()].concat();
        if let Some(count) = read_into(tasks.as_fd(), &path, &mut text) {
            found.extend(read(text.get(..count).unwrap_or_default()));
        }
    }
    Ok(found)
}

pub(super) fn open_dir(at: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

fn read_into(at: BorrowedFd<'_>, path: &[u8], text: &mut [u8]) -> Option<usize> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, path, flags, Mode::empty()).ok()?;
    rustix::io::read(&file, text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn hostile_names_do_not_shift_fields() {
        let tail = "S 7 5 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 100";
        let text = format!("12 (a) R 99 (b\n) 1) {tail}");
        let member = Member::parse(text.as_bytes()).unwrap();
        assert_eq!(member.pid.as_raw_pid(), 12);
        assert_eq!(member.parent, Pid::from_raw(7));
        assert!(member.is_alive && !member.is_stopped);
        assert_eq!(member.start_ticks, 100);
        let zombie = Member::parse(b"12 (x) Z 7 5 5 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 100").unwrap();
        assert!(!zombie.is_alive);
        let leader_gone =
            Member::parse(b"12 (x) Z 7 5 5 0 -1 4 1 0 0 0 0 0 0 0 20 0 4 0 100").unwrap();
        assert!(leader_gone.is_alive, "other threads still run");
        assert_eq!(Member::parse(b"12 (x"), None);
        assert_eq!(Member::parse(b""), None);
    }

    /// A program whose first thread ends while a second one runs on.
    const LEADER_ENDS: &str = "import ctypes, threading, time\n\
         threading.Thread(target=lambda: time.sleep(60)).start()\n\
         ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)";

    #[test]
    fn a_process_lives_and_stands_still_as_all_of_its_threads_do() {
        let python = std::process::Command::new("python3")
            .args(["-c", LEADER_ENDS])
            .spawn();
        let Ok(mut child) = python else {
            testkit::skip!("needs python3");
        };
        let pid = Pid::from_child(&child);
        let until = Instant::now() + Duration::from_secs(20);
        let state = || std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        while super::state(&state()).unwrap().0 != b'Z' && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(
            super::state(&state()).unwrap().0,
            b'Z',
            "its first thread has ended"
        );
        let member = Member::read(pid).unwrap();
        assert!(member.is_alive && !member.is_stopped);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !Member::read(pid).unwrap().is_stopped && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let member = Member::read(pid).unwrap();
        assert!(member.is_alive && member.is_stopped);
        let switches = member.switches();
        assert!(switches.is_some());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(member.switches(), switches, "stopped, and yet it ran");
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        while member.switches() == switches && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(
            member.switches(),
            switches,
            "it ran, and that does not show"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Member::read(pid).is_none_or(|member| !member.is_alive));
    }
}
