//! Start of a program without waiting until it is loaded.
//!
//! posix_spawn(3) lends its address space to the new process as well, but blocks the caller until
//! the program is loaded. Here the caller continues meanwhile, which saves a good part of a
//! sandbox's start time. In return, the memory that the new process reads stays allocated until
//! that process has ended.
#![expect(
    unsafe_code,
    reason = "a process on our own address space needs clone(2) with a stack"
)]

use super::warden::raw;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Size of the stack in bytes. The process makes a few system calls and calls no other code.
const STACK_BYTES: usize = 8 << 10;

/// Number of times that loading is retried, a millisecond apart, while the program is open for
/// writing (`ETXTBSY`). It may have been written a moment ago, and another process that is just
/// starting may have inherited the descriptor.
const BUSY_TURNS: u32 = 1000;

/// Stack with the alignment that both architectures require.
#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// Memory that the new process reads until it has loaded its program.
#[derive(Debug)]
struct Order {
    program: CString,
    /// Strings that `argv` points to.
    _args: Vec<CString>,
    /// Addresses of NUL-terminated strings, and 0.
    argv: Vec<usize>,
    /// Descriptors of the new process's standard input and of `/dev/null`, in its copy of the
    /// table. The caller's are closed by then, so that the socket ends when the process ends.
    stdin: RawFd,
    null: RawFd,
    /// Errno of loading the program, or 0.
    failed: AtomicU32,
}

/// A process that was started. Dropping it kills the process and waits for it.
#[derive(Debug)]
pub(crate) struct StartedProgram {
    pidfd: OwnedFd,
    order: Box<Order>,
    /// Stack of the process, in use until the program is loaded.
    _stack: Box<core::mem::MaybeUninit<Stack>>,
}

impl StartedProgram {
    /// Starts `program` with these arguments after its own path, an empty environment and `stdin`
    /// as its standard input. Its output is discarded. Every signal has its default action.
    ///
    /// # Errors
    /// The process cannot be made. Whether the program can be loaded is not known yet: see
    /// [`Self::failure`].
    pub(crate) fn new(program: &Path, args: &[&str], stdin: OwnedFd) -> io::Result<Self> {
        let program = CString::new(program.as_os_str().as_bytes())?;
        let args: Vec<CString> = args
            .iter()
            .map(|arg| CString::new(*arg))
            .collect::<Result<_, _>>()?;
        let addresses = args.iter().map(|arg| arg.as_ptr().expose_provenance());
        let argv = [program.as_ptr().expose_provenance()]
            .into_iter()
            .chain(addresses)
            .chain([0])
            .collect();
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let [stdin, null] = [above_stdio(stdin)?, above_stdio(null)?];
        let order = Box::new(Order {
            program,
            _args: args,
            argv,
            stdin: stdin.as_raw_fd(),
            null: null.as_raw_fd(),
            failed: AtomicU32::new(0),
        });
        let mut stack = Box::<Stack>::new_uninit();
        let top = stack.as_mut_ptr().wrapping_add(1).cast::<u8>();
        // The kernel writes the pidfd to clone(2)'s parent_tid.
        let pidfd = AtomicU32::new(0);
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
        // A signal handler of this process must not run on the new stack. Signals stay blocked
        // until the new process has reset its handlers.
        let mask = exchange_mask(u64::MAX);
        // SAFETY: the stack is aligned and used by nothing else; it and the order stay where they
        // are until the process has been waited for (in `drop`). `load` follows the rules of `raw`.
        let result = unsafe { raw::clone_onto(flags, top, [&pidfd; 2], load, &raw const *order) };
        exchange_mask(mask);
        // The new process has copies of them.
        drop((stdin, null));
        if result <= 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
        // SAFETY: the kernel has just created this descriptor for us, so nothing else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd.load(Ordering::Relaxed) as i32) };
        Ok(Self {
            pidfd,
            order,
            _stack: stack,
        })
    }

    /// Returns the error of loading the program, if it failed. It is known at the latest when the
    /// process's end of a socket is closed.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        match self.order.failed.load(Ordering::Acquire) {
            0 => None,
            errno => Some(io::Error::from_raw_os_error(errno as i32)),
        }
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        // The process may have ended by itself. No other code waits for it, so the pidfd still
        // refers to it.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let wait =
            || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while wait().err() == Some(Errno::INTR) {}
    }
}

/// Returns the same descriptor under a number above 2.
fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

/// Blocks exactly these signals in the calling thread. Returns the mask that was in force before.
/// It bypasses the C library, which leaves out two signals that it reserves for itself.
fn exchange_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let [new, old] = [
        (&raw const mask).addr(),
        (&raw mut before).expose_provenance(),
    ];
    // SAFETY: rt_sigprocmask(2) reads one mask of eight bytes and writes one, and both live.
    unsafe {
        let how = libc::SIG_SETMASK as usize;
        raw::syscall(libc::SYS_rt_sigprocmask, [how, new, old, 8, 0]);
    }
    before
}

/// Entry of the new process: resets signals, places the descriptors and loads the program. Its
/// signals are blocked.
unsafe extern "C" fn load(order: *const Order) -> ! {
    // SAFETY: it outlives this process's stay in the address space.
    let order = unsafe { &*order };
    let default = [0_usize; 4];
    let mut signal = 1_usize;
    while signal <= 64 {
        // SAFETY: the kernel reads one `struct kernel_sigaction` of at most four words, all zero
        // meaning SIG_DFL. The dispositions are this process's own.
        unsafe {
            let action = default.as_ptr().addr();
            raw::syscall(libc::SYS_rt_sigaction, [signal, action, 0, 8, 0]);
        }
        signal += 1;
    }
    let [stdin, null] = [order.stdin as usize, order.null as usize];
    // SAFETY: dup3(2) takes numbers. The descriptor table is this process's own.
    let placed = unsafe {
        raw::syscall(libc::SYS_dup3, [stdin, 0, 0, 0, 0])
            .min(raw::syscall(libc::SYS_dup3, [null, 1, 0, 0, 0]))
            .min(raw::syscall(libc::SYS_dup3, [null, 2, 0, 0, 0]))
    };
    if placed < 0 {
        fail(order, placed);
    }
    exchange_mask(0);
    let path: &CStr = &order.program;
    let environment = [0_usize; 1];
    let [argv, environment] = [order.argv.as_ptr().addr(), environment.as_ptr().addr()];
    let millisecond = [0_i64, 1_000_000];
    let mut turns = 0;
    loop {
        // SAFETY: the strings and both lists live, and the lists end with a null.
        let error = unsafe {
            raw::syscall(
                libc::SYS_execve,
                [path.as_ptr().addr(), argv, environment, 0, 0],
            )
        };
        if error != -(libc::ETXTBSY as isize) || turns == BUSY_TURNS {
            fail(order, error);
        }
        turns += 1;
        // SAFETY: nanosleep(2) reads one `timespec`, two words of 64 bits.
        unsafe {
            let pause = millisecond.as_ptr().addr();
            raw::syscall(libc::SYS_nanosleep, [pause, 0, 0, 0, 0]);
        }
    }
}

fn fail(order: &Order, error: isize) -> ! {
    order.failed.store(-error as u32, Ordering::Release);
    loop {
        // SAFETY: exit_group(2) takes no pointers and ends this process only.
        unsafe { raw::syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::socket_pair;
    use std::fs::{self, File};
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    /// Returns the output of a shell that writes to its standard input, a socket.
    fn said(script: &str) -> String {
        let (ours, theirs) = socket_pair().unwrap();
        let started = StartedProgram::new(Path::new("/bin/sh"), &["-c", script], theirs).unwrap();
        let mut text = String::new();
        File::from(ours).read_to_string(&mut text).unwrap();
        assert!(started.failure().is_none(), "{:?}", started.failure());
        text
    }

    #[test]
    fn a_program_starts_with_nothing_of_its_starters() {
        let status = "while read line; do case $line in Sig*) echo $line ;; esac; done";
        let text = said(&format!(
            "exec 3<&0; {status} < /proc/self/status >&3; env >&3"
        ));
        let sets: Vec<_> = text
            .lines()
            .filter(|line| ["SigBlk", "SigIgn"].iter().any(|set| line.starts_with(set)))
            .collect();
        assert_eq!(sets.len(), 2, "{text}");
        for set in sets {
            let value = set.split_once(':').unwrap().1.trim();
            assert_eq!(u64::from_str_radix(value, 16), Ok(0), "{text}");
        }
        assert!(!text.contains("CARGO"), "{text}");
    }

    #[test]
    fn the_mask_of_the_caller_is_as_it_was() {
        let before = exchange_mask(1 << 9);
        let _ = said("true");
        let during = exchange_mask(before);
        assert_eq!(during, 1 << 9);
    }

    #[test]
    fn why_a_program_cannot_be_loaded_is_known_when_its_socket_closes() {
        let (ours, theirs) = socket_pair().unwrap();
        let started = StartedProgram::new(Path::new("/no/such/program"), &[], theirs).unwrap();
        assert_eq!(File::from(ours).read(&mut [0]).unwrap(), 0);
        let failure = started.failure().unwrap();
        assert_eq!(failure.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_that_is_still_open_for_writing_is_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("program");
        fs::copy("/bin/sh", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        // The file is opened in another process, because the started one would inherit this
        // process's descriptors.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "exec 9>>\"$0\"; echo open; read line"])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0; 5])
            .unwrap();
        let busy = Command::new(&program).spawn().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        let (ours, theirs) = socket_pair().unwrap();
        let started = StartedProgram::new(&program, &["-c", "echo here >&0"], theirs).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(started.failure().is_none());
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut text = String::new();
        File::from(ours).read_to_string(&mut text).unwrap();
        assert_eq!(text, "here\n", "{:?}", started.failure());
    }

    #[test]
    fn many_threads_start_at_once_and_leave_nothing() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for turn in 0..50 {
                        let script = format!("echo {turn} >&0");
                        // Another thread's child may hold a copy of the socket for a moment.
                        assert_eq!(said(&script), format!("{turn}\n"));
                    }
                });
            }
        });
    }
}
