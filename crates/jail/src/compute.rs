//! Confinement of a process that only computes: it reads a task from its standard input and writes
//! the answer to its standard output. It gives up all other rights irrevocably before it reads the
//! first byte.

use crate::seccomp::{self, Profile};
use crate::sys::once::close_from;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};

/// Resource limits of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeLimits {
    /// Address space in bytes. Existing mappings count.
    pub memory_bytes: u64,
    /// Processor time in seconds. SIGXCPU then ends the process.
    pub cpu_s: u64,
}

/// Error of a restriction that the kernel refused. The caller must not touch the input then.
#[derive(Debug, thiserror::Error)]
#[error("{wall} cannot be had on this machine: {reason}")]
pub struct ConfineError {
    /// Name of the restriction.
    pub wall: &'static str,
    /// Error of the kernel.
    pub reason: String,
}

impl ConfineError {
    fn new(wall: &'static str, reason: &dyn std::fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { wall, reason }
    }
}

/// Confines every thread of the calling process: limits, no new privileges, and the system calls of
/// [`Profile::Compute`]. Closes every descriptor except the standard three. The process dies with
/// its parent.
///
/// # Errors
/// For the first restriction that the kernel refuses.
pub fn confine(limits: ComputeLimits) -> Result<(), ConfineError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| ConfineError::new("an end with the parent (PR_SET_PDEATHSIG)", &error))?;
    close_from(3).map_err(|error| ConfineError::new("closing descriptors", &error))?;
    let memory = limits.memory_bytes;
    for (wall, resource, soft, hard) in [
        (
            "the limit on processor time (RLIMIT_CPU)",
            Resource::Cpu,
            limits.cpu_s,
            // SIGXCPU tells the parent which limit was reached. SIGKILL follows a second later, in
            // case the process ignores it.
            limits.cpu_s + 1,
        ),
        (
            "the limit on memory (RLIMIT_AS)",
            Resource::As,
            memory,
            memory,
        ),
        (
            "the limit on file sizes (RLIMIT_FSIZE)",
            Resource::Fsize,
            0,
            0,
        ),
        (
            "the limit on descriptors (RLIMIT_NOFILE)",
            Resource::Nofile,
            3,
            3,
        ),
        (
            "the limit on processes (RLIMIT_NPROC)",
            Resource::Nproc,
            0,
            0,
        ),
        (
            "the limit on core files (RLIMIT_CORE)",
            Resource::Core,
            0,
            0,
        ),
    ] {
        let limit = Rlimit {
            current: Some(soft),
            maximum: Some(hard),
        };
        setrlimit(resource, limit).map_err(|error| ConfineError::new(wall, &error))?;
    }
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| ConfineError::new("no_new_privs", &error))?;
    seccomp::install(Profile::Compute)
        .map_err(|error| ConfineError::new("the system call filter", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    const LIMITS: ComputeLimits = ComputeLimits {
        memory_bytes: 1 << 30,
        cpu_s: 1,
    };

    /// Runs one of the ignored tests below in a process of its own.
    fn run_child(name: &str) -> std::process::Output {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("compute::tests::{name}"), "--ignored"])
            .args(["--nocapture", "--test-threads", "1"])
            .output()
            .unwrap()
    }

    #[test]
    fn whatever_reaches_out_ends_the_process() {
        for name in [
            "open_file",
            "make_socket",
            "run_program",
            "make_thread",
            "signal_parent",
        ] {
            let out = run_child(name);
            let text = String::from_utf8_lossy(&out.stdout);
            // `CONFINED` shows that the process was confined and was not ended before.
            assert!(text.contains("CONFINED"), "{name}: {text}");
            assert!(!text.contains("REACHED"), "{name}: {text}");
            assert_eq!(out.status.signal(), Some(libc::SIGSYS), "{name}: {text}");
        }
    }

    #[test]
    fn endless_work_and_endless_memory_end() {
        let out = run_child("work_without_end");
        assert_eq!(out.status.signal(), Some(libc::SIGXCPU), "{out:?}");
        let out = run_child("allocate_without_end");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains("memory allocation of"), "{text}");
        assert!(!out.status.success());
    }

    fn confined() {
        confine(LIMITS).unwrap();
        println!("CONFINED");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn open_file() {
        confined();
        let file = std::fs::File::open("/etc/passwd");
        println!("REACHED {file:?}");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn make_socket() {
        confined();
        let socket = std::net::TcpStream::connect("127.0.0.1:1");
        println!("REACHED {socket:?}");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn run_program() {
        confined();
        let ran = std::process::Command::new("/bin/true").status();
        println!("REACHED {ran:?}");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn make_thread() {
        confined();
        let thread = std::thread::Builder::new().spawn(|| ());
        println!("REACHED {thread:?}");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn signal_parent() {
        let parent = rustix::process::getppid().unwrap();
        confined();
        let sent = rustix::process::test_kill_process(parent);
        println!("REACHED {sent:?}");
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn work_without_end() {
        confined();
        let mut number = 1_u64;
        loop {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }

    #[test]
    #[ignore = "run in a process of its own by a test above"]
    fn allocate_without_end() {
        confined();
        let mut kept = Vec::new();
        loop {
            // The memory is not written to: touching a gibibyte takes much of the second of
            // processor time.
            kept.push(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
        }
    }
}
