//! A process that does nothing but be in namespaces of its own, so that they can be set up and
//! opened through `/proc`.
#![expect(
    unsafe_code,
    reason = "a process on our own address space needs clone(2) with a stack"
)]

use super::warden::raw;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// The process sleeps in one system call and calls nothing.
const STACK_BYTES: usize = 1024;

/// A stack with the alignment that both architectures want.
#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// A living holder. It shares the address space instead of copying it, which would take longer than
/// all it is there for. Dropping it ends it, and so does the end of the thread that started it: what
/// holds the same descriptors must not outlive whoever is waited for at their other ends.
#[derive(Debug)]
pub(crate) struct Holder {
    pid: Pid,
    pidfd: OwnedFd,
    /// In use for as long as the process lives.
    _stack: Box<std::mem::MaybeUninit<Stack>>,
}

impl Holder {
    /// Starts one in the new namespaces that `namespaces` names (`CLONE_NEW*`).
    pub(crate) fn start(namespaces: i32) -> Result<Self, Errno> {
        const NAMESPACES: i32 = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        let mut stack = Box::<Stack>::new_uninit();
        let top = stack.as_mut_ptr().wrapping_add(1).cast::<u8>();
        let flags = (namespaces & NAMESPACES)
            | libc::CLONE_VM
            | libc::CLONE_FILES
            | libc::CLONE_PIDFD
            | libc::SIGCHLD;
        let owner = std::process::id() as usize;
        let owner = std::ptr::without_provenance::<()>(owner);
        // The kernel writes the pidfd where clone(2) has parent_tid.
        let pidfd = AtomicU32::new(0);
        // SAFETY: the stack is aligned, is this process's alone, and stays allocated until it has
        // been waited for (in `drop`). `sleep` follows the rules of `raw`: it makes system calls and
        // nothing else. Its argument is a number.
        let result = unsafe { raw::clone_onto(flags, top, [&pidfd; 2], sleep, owner) };
        let pid = i32::try_from(result)
            .ok()
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw)
            .ok_or_else(|| Errno::from_raw_os_error(-result as i32))?;
        // SAFETY: the kernel has just created this descriptor for us and nobody else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd.load(Ordering::Relaxed) as i32) };
        Ok(Self {
            pid,
            pidfd,
            _stack: stack,
        })
    }

    /// Its id, its own for as long as this lives.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It cannot have ended before, and nobody else waits for it.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let wait =
            || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while wait().err() == Some(Errno::INTR) {}
    }
}

/// `owner` is the id of the process that started this one.
unsafe extern "C" fn sleep(owner: *const ()) -> ! {
    let kill = libc::SIGKILL as usize;
    // SAFETY: prctl(2) with PR_SET_PDEATHSIG, and getppid(2), take no pointers.
    let parent = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [libc::PR_SET_PDEATHSIG as usize, kill, 0, 0, 0],
        );
        raw::syscall(libc::SYS_getppid, [0; 5])
    };
    // It may have ended before it could be asked to tell.
    while parent as usize == owner.addr() {
        // SAFETY: ppoll(2) of nothing, without end and without a signal mask, takes no pointers.
        unsafe { raw::syscall(libc::SYS_ppoll, [0; 5]) };
    }
    loop {
        // SAFETY: exit(2) takes no pointers.
        unsafe { raw::syscall(libc::SYS_exit, [0; 5]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_holder_has_a_namespace_of_its_own_and_leaves_nothing() {
        let Ok(holder) = Holder::start(libc::CLONE_NEWUSER) else {
            // No user namespaces for us on this machine.
            return;
        };
        let of = |who: &str| {
            std::fs::metadata(format!("/proc/{who}/ns/user"))
                .unwrap()
                .ino()
        };
        let pid = holder.pid().as_raw_nonzero().to_string();
        assert_ne!(of(&pid), of("self"));
        drop(holder);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_holder_does_not_outlive_whoever_started_it() {
        let Ok(pid) = std::thread::spawn(|| {
            Holder::start(libc::CLONE_NEWUSER).map(|holder| {
                let pid = holder.pid();
                // A thread may end without its process: not before it is asked to tell.
                let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
                while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
                    std::thread::yield_now();
                }
                // As when the process is killed: nobody drops it.
                std::mem::forget(holder);
                pid
            })
        })
        .join()
        .unwrap() else {
            return;
        };
        let wait = || rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        while wait().err() == Some(Errno::INTR) {}
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
    }
}
