//! Helper processes that hold namespaces of their own, which are set up and opened through `/proc`,
//! or that create a namespace while this process does other work.
#![expect(
    unsafe_code,
    reason = "a process on our own address space needs clone(2) with a stack"
)]

use super::once;
use super::warden::raw;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::futex;
use rustix::time::Timespec;

/// Size of a stack in bytes. The process makes a few system calls and calls no other code.
const STACK_BYTES: usize = 4096;

/// Stack with the alignment that both architectures require.
#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// A running holder process. It shares the address space, because copying it would take longer than
/// the holder's work. Dropping the value kills the process and waits for it. The process also dies
/// with the thread that started it: it shares the descriptor table, and a peer that waits for the
/// end of a socket must not wait for the holder.
#[derive(Debug)]
pub(crate) struct Holder {
    pid: Pid,
    pidfd: OwnedFd,
    /// Stack of the process, in use while it lives.
    _stack: Box<std::mem::MaybeUninit<Stack>>,
}

impl Holder {
    /// Starts a process in the new namespaces that `namespaces` names (`CLONE_NEW*`).
    pub(crate) fn start(namespaces: i32) -> Result<Self, Errno> {
        const NAMESPACES: i32 = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        let owner = std::ptr::without_provenance::<()>(std::process::id() as usize);
        // SAFETY: `sleep` follows the rules of `raw`: it makes system calls and nothing else. Its
        // argument is a number.
        unsafe { Self::run(namespaces & NAMESPACES, sleep, owner) }
    }

    /// Starts a process that runs `entry(argument)` in the new namespaces.
    ///
    /// # Safety
    /// `entry` must follow the rules of [`raw`] and not return; `argument` must outlive the result.
    pub(super) unsafe fn run<S>(
        namespaces: i32,
        entry: unsafe extern "C" fn(*const S) -> !,
        argument: *const S,
    ) -> Result<Self, Errno> {
        let mut stack = Box::<Stack>::new_uninit();
        let top = stack.as_mut_ptr().wrapping_add(1).cast::<u8>();
        let flags =
            namespaces | libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        // The kernel writes the pidfd where clone(2) has parent_tid.
        let pidfd = AtomicU32::new(0);
        // SAFETY: the stack is aligned, is this process's alone, and stays allocated until it has
        // been waited for (in `drop`). The rest is promised by the caller.
        let result = unsafe { raw::clone_onto(flags, top, [&pidfd; 2], entry, argument) };
        let pid = i32::try_from(result)
            .ok()
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw)
            .ok_or_else(|| Errno::from_raw_os_error(-result as i32))?;
        // SAFETY: the kernel has just created this descriptor for us, so nothing else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd.load(Ordering::Relaxed) as i32) };
        Ok(Self {
            pid,
            pidfd,
            _stack: stack,
        })
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let found = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        !matches!(found, Ok(None) | Err(Errno::INTR))
    }

    /// Blocks until the process has ended by itself. It is still to be reaped then.
    pub(super) fn wait(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let wait = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        while wait().err() == Some(Errno::INTR) {}
    }

    /// Returns the descriptor that becomes readable when the process ends.
    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Returns its pid, which cannot be reused while this value lives.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process has not been reaped, so the pidfd still refers to it: no other code waits for
        // it.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let wait =
            || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while wait().err() == Some(Errno::INTR) {}
    }
}

/// Makes this process die with `owner`, the process that started it. Returns false if `owner` has
/// already ended.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "as the system calls it consists of; there is little stack"
)]
pub(super) fn follow(owner: usize) -> bool {
    let kill = libc::SIGKILL as usize;
    // SAFETY: prctl(2) with PR_SET_PDEATHSIG, and getppid(2), take no pointers.
    let parent = unsafe {
        raw::syscall(
            libc::SYS_prctl,
            [libc::PR_SET_PDEATHSIG as usize, kill, 0, 0, 0],
        );
        raw::syscall(libc::SYS_getppid, [0; 5])
    };
    // The parent may have ended before the call above took effect.
    parent as usize == owner
}

pub(super) fn exit() -> ! {
    loop {
        // SAFETY: exit(2) takes no pointers.
        unsafe { raw::syscall(libc::SYS_exit, [0; 5]) };
    }
}

/// Sleeps until it is killed. `owner` is the id of the process that started this one.
unsafe extern "C" fn sleep(owner: *const ()) -> ! {
    if follow(owner.addr()) {
        loop {
            // SAFETY: ppoll(2) of nothing, without end and without a signal mask, takes no
            // pointers.
            unsafe { raw::syscall(libc::SYS_ppoll, [0; 5]) };
        }
    }
    exit()
}

/// A network namespace under construction, with its loopback interface up. Creating it takes the
/// kernel longer than all other namespaces together, so a helper process waits for it.
#[derive(Debug)]
pub(crate) struct Network {
    maker: Holder,
    /// Shared with the maker, which writes to it. Must be dropped after the maker.
    made: Box<MakerState>,
}

/// Input and result of the maker process.
#[derive(Debug)]
struct MakerState {
    /// Id of the process that started it.
    owner: usize,
    /// Result. [`UNMADE`], or twice the number of the descriptor plus two, or twice the errno plus
    /// one.
    word: AtomicU32,
}

const UNMADE: u32 = 0;
/// Interval in nanoseconds at which the waiting side checks that the maker still lives.
const LOOK_EVERY_NS: i64 = 20_000_000;

impl Network {
    /// Starts to create a network namespace that belongs to the caller's user namespace.
    pub(crate) fn begin() -> Result<Self, Errno> {
        let made = Box::new(MakerState {
            owner: std::process::id() as usize,
            word: AtomicU32::new(UNMADE),
        });
        // SAFETY: `make_network` follows the rules of `raw`; `made` is dropped after the holder.
        let maker = unsafe { Holder::run(0, make_network, &raw const *made) }?;
        Ok(Self { maker, made })
    }

    /// Blocks until the namespace has been created. Returns its descriptor.
    pub(crate) fn finish(self) -> Result<OwnedFd, Errno> {
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY_NS,
        };
        let word = loop {
            let word = self.made.word.load(Ordering::Acquire);
            if word != UNMADE {
                break word;
            }
            let waited = futex::wait(&self.made.word, futex::Flags::empty(), UNMADE, Some(&pause));
            if waited == Err(Errno::TIMEDOUT)
                && self.maker.has_ended()
                && self.made.word.load(Ordering::Acquire) == UNMADE
            {
                return Err(Errno::SRCH);
            }
        };
        let number = (word >> 1) as i32;
        if word & 1 == 1 {
            return Err(Errno::from_raw_os_error(number));
        }
        // SAFETY: the maker opened it in the table it shares with us, for us, and left it.
        Ok(unsafe { OwnedFd::from_raw_fd(number - 1) })
    }
}

/// Brings up the loopback interface of the caller's namespace (netdevice(7)). Returns 0 or a
/// negative errno.
fn loopback_up() -> isize {
    let [family, kind] = [libc::AF_INET as usize, libc::SOCK_DGRAM as usize];
    let request = once::LOOPBACK_UP;
    let order = libc::SIOCSIFFLAGS as usize;
    let at = (&raw const request).addr();
    // SAFETY: socket(2) and close(2) take no pointers; SIOCSIFFLAGS reads one `ifreq`, which lives.
    unsafe {
        let socket = raw::syscall(libc::SYS_socket, [family, kind, 0, 0, 0]);
        if socket < 0 {
            return socket;
        }
        let result = raw::syscall(libc::SYS_ioctl, [socket as usize, order, at, 0, 0]);
        raw::syscall(libc::SYS_close, [socket as usize, 0, 0, 0, 0]);
        result
    }
}

/// Length of a [`loopback_route`] message in bytes.
const ROUTE_BYTES: usize = 52;

/// Returns the message that adds a route to the loopback interface (rtnetlink(7)): header, `rtmsg`,
/// and the attributes destination, source and interface. With scope "host" the source address is
/// 127.0.0.1.
const fn loopback_route(destination: [u8; 4], prefix_bits: u8) -> [u8; ROUTE_BYTES] {
    const LOOPBACK_INDEX: u8 = 1;
    let mut message = [0; ROUTE_BYTES];
    let mut put = Writer { at: 0 };
    put.u32(&mut message, ROUTE_BYTES as u32);
    put.u16(&mut message, libc::RTM_NEWROUTE);
    put.u16(
        &mut message,
        (libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_ACK) as u16,
    );
    // Sequence number and port stay 0.
    put.at = 16;
    put.bytes(
        &mut message,
        [
            libc::AF_INET as u8,
            prefix_bits,
            0,
            0,
            libc::RT_TABLE_MAIN,
            libc::RTPROT_BOOT,
            libc::RT_SCOPE_HOST,
            libc::RTN_UNICAST,
        ],
    );
    put.at = 28;
    let attributes = [
        (libc::RTA_DST, destination),
        (libc::RTA_PREFSRC, [127, 0, 0, 1]),
        (libc::RTA_OIF, (LOOPBACK_INDEX as u32).to_ne_bytes()),
    ];
    let mut index = 0;
    while index < attributes.len() {
        let (kind, value) = attributes[index];
        put.u16(&mut message, 8);
        put.u16(&mut message, kind);
        put.bytes(&mut message, value);
        index += 1;
    }
    message
}

/// Writer of a [`loopback_route`], in the machine's byte order.
struct Writer {
    at: usize,
}

impl Writer {
    const fn bytes<const N: usize>(&mut self, message: &mut [u8; ROUTE_BYTES], bytes: [u8; N]) {
        let mut index = 0;
        while index < N {
            message[self.at] = bytes[index];
            self.at += 1;
            index += 1;
        }
    }

    const fn u16(&mut self, message: &mut [u8; ROUTE_BYTES], value: u16) {
        self.bytes(message, value.to_ne_bytes());
    }

    const fn u32(&mut self, message: &mut [u8; ROUTE_BYTES], value: u32) {
        self.bytes(message, value.to_ne_bytes());
    }
}

/// Routes for multicast and broadcast, whose packets stay inside.
static LOCAL_ROUTES: [[u8; ROUTE_BYTES]; 2] = [
    loopback_route([224, 0, 0, 0], 4),
    loopback_route([255, 255, 255, 255], 32),
];

/// Adds [`LOCAL_ROUTES`] in the caller's namespace. Returns 0 or a negative errno. The kernel
/// replies before write(2) returns.
fn add_local_routes() -> isize {
    let [family, kind] = [libc::AF_NETLINK as usize, libc::SOCK_RAW as usize];
    let protocol = libc::NETLINK_ROUTE as usize;
    // SAFETY: socket(2) and close(2) take no pointers; write(2) reads a message that lives for
    // good; read(2) writes at most the length given to a live local.
    unsafe {
        let socket = raw::syscall(libc::SYS_socket, [family, kind, protocol, 0, 0]);
        if socket < 0 {
            return socket;
        }
        let mut result = 0;
        for route in &LOCAL_ROUTES {
            // Header and errno, which is negative or 0. The rest of the reply is cut off.
            let mut answer = [0_u8; 20];
            let sent = [socket as usize, route.as_ptr().addr(), ROUTE_BYTES, 0, 0];
            let received = [
                socket as usize,
                answer.as_mut_ptr().addr(),
                answer.len(),
                0,
                0,
            ];
            result = raw::syscall(libc::SYS_write, sent);
            if result >= 0 {
                result = raw::syscall(libc::SYS_read, received);
            }
            if result >= 0 {
                let [.., a, b, c, d] = answer;
                result = i32::from_ne_bytes([a, b, c, d]) as isize;
            }
            if result < 0 {
                break;
            }
        }
        raw::syscall(libc::SYS_close, [socket as usize, 0, 0, 0, 0]);
        result
    }
}

unsafe extern "C" fn make_network(made: *const MakerState) -> ! {
    // SAFETY: it outlives this process.
    let made = unsafe { &*made };
    if follow(made.owner) {
        let here = libc::AT_FDCWD as isize as usize;
        let path = c"/proc/self/ns/net".as_ptr() as usize;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: unshare(2) takes no pointers; the path is a string that lives.
        let result = unsafe {
            match raw::syscall(libc::SYS_unshare, [libc::CLONE_NEWNET as usize, 0, 0, 0, 0]) {
                0 => match loopback_up() {
                    0 => match add_local_routes() {
                        0 => raw::syscall(libc::SYS_openat, [here, path, flags, 0, 0]),
                        error => error,
                    },
                    error => error,
                },
                error => error,
            }
        };
        let word = if result < 0 {
            (-result as u32) << 1 | 1
        } else {
            (result as u32 + 1) << 1
        };
        made.word.store(word, Ordering::Release);
        raw::wake(&made.word);
    }
    exit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_holder_has_a_namespace_of_its_own_and_leaves_nothing() {
        let Ok(holder) = Holder::start(libc::CLONE_NEWUSER) else {
            // This machine allows no user namespaces.
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
    fn a_network_namespace_is_made_beside_other_work() {
        let before = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        match Network::begin().unwrap().finish() {
            Ok(made) => assert_ne!(rustix::fs::fstat(&made).unwrap().st_ino, before),
            // Making one needs a privilege.
            Err(errno) => assert_eq!(errno, Errno::PERM),
        }
        assert_eq!(
            std::fs::metadata("/proc/self/ns/net").unwrap().ino(),
            before
        );
    }

    #[test]
    fn a_holder_does_not_outlive_whoever_started_it() {
        let Ok(pid) = std::thread::spawn(|| {
            Holder::start(libc::CLONE_NEWUSER).map(|holder| {
                let pid = holder.pid();
                // The holder dies with this thread only after its request for the death signal, so
                // wait until it sleeps.
                let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
                while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
                    std::thread::yield_now();
                }
                // A process that is killed does not drop it either.
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
