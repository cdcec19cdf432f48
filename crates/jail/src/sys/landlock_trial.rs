//! Trial of a Landlock ruleset: a process confines itself by it, as commands do, and makes calls
//! that must fail then.
//!
//! The process shares our memory and descriptors, as pre-exec commands do, so starting it copies
//! nothing. It makes a few system calls, stores their results and exits.
#![expect(
    unsafe_code,
    reason = "a process on our own address space makes its system calls as bare instructions"
)]

use super::holder::{self, Holder};
use super::warden::raw::{self, Word};
use core::sync::atomic::{AtomicI32, Ordering};
use rustix::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Value of a result before the call was made. No call returns it.
const UNANSWERED: i32 = i32::MIN;

/// Results of the calls: 0, or a positive errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Opening a directory that no rule covers, before the ruleset is applied.
    pub(crate) free_open: i32,
    /// Applying the ruleset.
    pub(crate) restrict: i32,
    /// Opening the same directory afterwards.
    pub(crate) denied_open: i32,
    /// Opening a directory that a rule covers.
    pub(crate) granted_open: i32,
    /// Connecting to an abstract Unix socket that was made outside the Landlock domain.
    pub(crate) abstract_socket: i32,
    /// Unsharing the descriptor table, as every command does. An error means that the table is
    /// still shared.
    pub(crate) own_descriptors: i32,
}

/// A running trial.
#[derive(Debug)]
pub(crate) struct Trial {
    process: Holder,
    /// Shared with the process. Must be dropped after it.
    shared: Box<TrialMemory>,
    sockets: [OwnedFd; 2],
    /// A socket. The process replaces the descriptor of this number in its own table. If the table
    /// were still shared, this process would see the replacement.
    witness: OwnedFd,
}

/// Input of the trial process, and the place of its results.
#[derive(Debug)]
struct TrialMemory {
    /// Pid of the process that started the trial.
    owner: usize,
    ruleset: i32,
    uncovered: i32,
    /// Socket, and the address that it connects to.
    socket: i32,
    address: Vec<u8>,
    /// Number of [`Trial::witness`].
    witness: i32,
    answers: [AtomicI32; 6],
}

impl Trial {
    /// Starts a process that confines itself by `ruleset` and makes the calls. `uncovered` is a
    /// directory that everybody may list and that no rule covers. Both descriptors must stay open
    /// until [`Trial::finish`].
    ///
    /// # Errors
    /// The process could not be started, or the sockets could not be made.
    pub(crate) fn begin(ruleset: BorrowedFd<'_>, uncovered: BorrowedFd<'_>) -> Result<Self, Errno> {
        let datagram = || {
            let (unix, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
            rustix::net::socket_with(unix, kind, SocketFlags::CLOEXEC, None)
        };
        // Binding to an address without a name makes the kernel choose one in the abstract name
        // space (unix(7)).
        let listener = datagram()?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_unnamed())?;
        let name = SocketAddrUnix::try_from(rustix::net::getsockname(&listener)?)?;
        let name = name.abstract_name().ok_or(Errno::ADDRNOTAVAIL)?;
        // struct sockaddr_un: the family, and a name that begins with a NUL.
        let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        address.push(0);
        address.extend_from_slice(name);
        let (socket, witness) = (datagram()?, datagram()?);
        let shared = Box::new(TrialMemory {
            owner: std::process::id() as usize,
            ruleset: ruleset.as_raw_fd(),
            uncovered: uncovered.as_raw_fd(),
            socket: socket.as_raw_fd(),
            address,
            witness: witness.as_raw_fd(),
            answers: [const { AtomicI32::new(UNANSWERED) }; 6],
        });
        // SAFETY: `attempt` follows the rules of `raw`; `shared` is dropped after the holder, whose
        // end is waited for when it is dropped.
        let process = unsafe { Holder::run(0, attempt, &raw const *shared) }?;
        Ok(Self {
            process,
            shared,
            sockets: [listener, socket],
            witness,
        })
    }

    /// Returns the descriptors that the trial uses in this process.
    pub(crate) fn descriptors(&self) -> [i32; 4] {
        let [listener, socket] = &self.sockets;
        [
            self.process.pidfd().as_raw_fd(),
            listener.as_raw_fd(),
            socket.as_raw_fd(),
            self.witness.as_raw_fd(),
        ]
    }

    /// Blocks until the trial has ended. Returns its results.
    ///
    /// # Errors
    /// `ESRCH`: the process ended before its last call.
    pub(crate) fn finish(self) -> Result<Answers, Errno> {
        self.process.wait();
        let answer = |index: usize| {
            let slot = self.shared.answers.get(index);
            slot.map_or(UNANSWERED, |slot| slot.load(Ordering::Acquire))
        };
        let own = answer(5);
        if own == UNANSWERED {
            return Err(Errno::SRCH);
        }
        Ok(Answers {
            free_open: answer(0),
            restrict: answer(1),
            denied_open: answer(2),
            granted_open: answer(3),
            abstract_socket: answer(4),
            own_descriptors: match (own, is_socket(&self.witness)) {
                (0, false) => Errno::BADF.raw_os_error(),
                (answer, _) => answer,
            },
        })
    }
}

/// # Safety
/// Only as the entry of [`Holder::run`], with a [`TrialMemory`] that outlives it.
unsafe extern "C" fn attempt(shared: *const TrialMemory) -> ! {
    // SAFETY: it outlives this process.
    let shared = unsafe { &*shared };
    let note = |slot: &AtomicI32, answer: i32| slot.store(answer, Ordering::Release);
    if holder::follow(shared.owner) {
        // This comes first. With a shared table, the descriptors opened below would appear in the
        // process that started the trial, which examines its own.
        let own = own_descriptors(shared);
        let uncovered = shared.uncovered as Word;
        note(&shared.answers[0], open(uncovered, c"."));
        note(&shared.answers[1], restrict(shared.ruleset));
        note(&shared.answers[2], open(uncovered, c"."));
        note(
            &shared.answers[3],
            open(libc::AT_FDCWD as isize as Word, c"/"),
        );
        note(&shared.answers[4], connect(shared));
        note(&shared.answers[5], own);
    }
    holder::exit()
}

/// Converts a result of the kernel: 0, or a positive errno.
fn answer(result: isize) -> i32 {
    if result < 0 { -result as i32 } else { 0 }
}

/// Opens a directory for listing, and closes it. Returns 0 or the errno.
fn open(at: Word, path: &core::ffi::CStr) -> i32 {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as Word;
    // SAFETY: the path is a string that lives; the descriptor that is closed is the one just
    // opened.
    unsafe {
        let fd = raw::syscall(libc::SYS_openat, [at, path.as_ptr() as Word, flags, 0, 0]);
        if fd >= 0 {
            raw::syscall(libc::SYS_close, [fd as Word, 0, 0, 0, 0]);
        }
        answer(fd)
    }
}

/// Applies the ruleset in the same way as a pre-exec command. Returns 0 or the errno.
fn restrict(ruleset: i32) -> i32 {
    // SAFETY: both calls take integers only.
    unsafe {
        let no_new_privs = [libc::PR_SET_NO_NEW_PRIVS as Word, 1, 0, 0, 0];
        match raw::syscall(libc::SYS_prctl, no_new_privs) {
            0 => answer(raw::syscall(
                libc::SYS_landlock_restrict_self,
                [ruleset as Word, 0, 0, 0, 0],
            )),
            failed => answer(failed),
        }
    }
}

fn connect(shared: &TrialMemory) -> i32 {
    let arguments = [
        shared.socket as Word,
        shared.address.as_ptr() as Word,
        shared.address.len(),
        0,
        0,
    ];
    // SAFETY: the address has that many bytes and lives.
    answer(unsafe { raw::syscall(libc::SYS_connect, arguments) })
}

/// Unshares the descriptor table, and replaces a descriptor in the copy. Returns 0 or the errno.
fn own_descriptors(shared: &TrialMemory) -> i32 {
    /// `CLOSE_RANGE_UNSHARE` of close_range(2).
    const UNSHARE: Word = 1 << 1;
    let none = u32::MAX as Word;
    let close_on_exec = libc::O_CLOEXEC as Word;
    let (directory, witness) = (shared.uncovered as Word, shared.witness as Word);
    // SAFETY: all arguments are integers. Even in a shared table the number of the witness stays in
    // use.
    unsafe {
        match raw::syscall(libc::SYS_close_range, [none, none, UNSHARE, 0, 0]) {
            0 => answer(raw::syscall(
                libc::SYS_dup3,
                [directory, witness, close_on_exec, 0, 0],
            )),
            failed => answer(failed),
        }
    }
}

fn is_socket(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landlock::{Policy, Ruleset, abi_version};
    use rustix::fd::AsFd as _;
    use rustix::fs::{Mode, OFlags};

    fn attempt_under(policy: &Policy) -> Option<Answers> {
        let ruleset = Ruleset::build(policy).unwrap().fd?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty()).unwrap();
        Some(
            Trial::begin(ruleset.as_fd(), proc.as_fd())
                .unwrap()
                .finish()
                .unwrap(),
        )
    }

    #[test]
    fn what_no_rule_grants_is_refused_to_the_process_and_not_to_us() {
        let policy = Policy {
            read_exec: vec!["/usr".into()],
            scope_abstract_sockets: true,
            ..Policy::default()
        };
        let Some(answers) = attempt_under(&policy) else {
            return;
        };
        let denied = Errno::ACCESS.raw_os_error();
        assert_eq!((answers.free_open, answers.restrict), (0, 0));
        assert_eq!(
            (answers.denied_open, answers.granted_open),
            (denied, denied)
        );
        assert_eq!(answers.own_descriptors, 0);
        if abi_version() >= 6 {
            assert_eq!(answers.abstract_socket, Errno::PERM.raw_os_error());
        }
        assert!(std::fs::read_dir("/proc").is_ok());
    }

    #[test]
    fn what_a_rule_grants_is_not_refused() {
        let policy = Policy {
            read_exec: vec!["/".into()],
            ..Policy::default()
        };
        let Some(answers) = attempt_under(&policy) else {
            return;
        };
        assert_eq!((answers.denied_open, answers.granted_open), (0, 0));
        assert_eq!(answers.abstract_socket, 0);
    }
}
