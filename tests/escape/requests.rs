//! File requests of the host against files that the sandbox prepared for it.

use crate::arena::Arena;
use crate::script::sh_ok;
use glovebox_proto::{Code, WriteMode};
use std::time::{Duration, Instant};

/// What an answer that waits for nobody may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Read FIFOs, endless devices, kernel logs, sockets, huge sparse files -> a typed error or a bounded
/// answer at once, and the guest answers meanwhile. Twin: a regular file.
#[test]
fn probe_45_fifo_and_device_read() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        sh_ok(sandbox, "cd /workspace && echo regular > regular && mkdir dir");
        let made = crate::script::perl(
            sandbox,
            r#"chdir '/workspace'; try('fifo', 'mknodat', -100, 'fifo', 0010666, 0);
               my $s = sys('socket', 1, 1, 0); my $a = pack('S', 1) . "sock\0"; try('sock', 'bind', $s, $a, length $a);
               open(my $h, '>', 'sparse'); truncate($h, 10 * 2 ** 40) or truncate($h, 2 ** 40);
               symlink('/dev/zero', 'zero'); symlink('fifo', 'to-fifo'); symlink('loop', 'loop');"#,
        );
        made.worked("fifo");
        made.worked("sock");
        for path in ["/workspace/fifo", "/workspace/to-fifo", "/dev/zero", "/workspace/zero", "/dev/random", "/workspace/sock", "/dev/tty"] {
            let begun = Instant::now();
            let answer = sandbox.read_file(path.as_bytes(), 1 << 20);
            assert!(begun.elapsed() < PATIENCE, "{shape:?}: {path} took {:?}", begun.elapsed());
            let fault = answer.expect_err(path);
            assert_eq!(fault.code, Code::SpecialFile, "{shape:?}: {path}: {fault:?}");
        }
        for path in ["/proc/kmsg", "/proc/1/mem", "/workspace/loop", "/workspace/dir", "/workspace/sparse", "/workspace/nothing"] {
            let begun = Instant::now();
            let answer = sandbox.read_file(path.as_bytes(), 1 << 20);
            assert!(begun.elapsed() < PATIENCE, "{shape:?}: {path} took {:?}", begun.elapsed());
            assert!(answer.is_err() || answer.as_ref().is_ok_and(Vec::is_empty), "{shape:?}: {path}: {answer:?}");
        }
        for path in ["/workspace/fifo", "/dev/null", "/workspace/zero"] {
            let begun = Instant::now();
            let answer = sandbox.write_file(path.as_bytes(), WriteMode::Append, b"x");
            assert!(begun.elapsed() < PATIENCE, "{shape:?}: {path} took {:?}", begun.elapsed());
            assert!(answer.is_err(), "{shape:?}: appended to {path}");
        }
        assert_eq!(sandbox.read_file(b"/workspace/regular", 100).expect("a file"), b"regular\n");
        assert_eq!(sandbox.read_file(b"regular", 100).expect("a file"), b"regular\n");
        assert!(sandbox.ping().is_ok());
    });
}

/// File requests have no more reach than commands: what Landlock and modes close is closed.
#[test]
fn attack_requests_beyond_the_walls() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        for path in [
            "/proc/1/mem",
            "/proc/1/environ",
            "/proc/self/mem",
            "/proc/self/fd/0",
            "/proc/thread-self/fd/3",
            "/proc/self/exe",
        ] {
            let answer = sandbox.write_file(path.as_bytes(), WriteMode::Append, b"x");
            assert!(answer.is_err(), "{shape:?}: wrote to {path}");
        }
        for path in [
            "/etc/passwd",
            "/usr/bin/env",
            "/bin/sh",
            "/proc/sys/kernel/core_pattern",
            "/dev/new",
            "/new",
        ] {
            if shape == crate::arena::Shape::Dir
                && !path.starts_with("/proc")
                && !path.starts_with("/dev")
            {
                continue;
            }
            let answer = sandbox.write_file(path.as_bytes(), WriteMode::Append, b"");
            assert!(answer.is_err(), "{shape:?}: opened {path} for writing");
        }
        // The guest's own descriptors and memory are not to be had through it.
        for path in [
            "/proc/1/environ",
            "/proc/self/environ",
            "/proc/self/mem",
            "/proc/self/auxv",
        ] {
            let answer = sandbox.read_file(path.as_bytes(), 1 << 16);
            assert!(
                answer.is_err() || answer.as_ref().is_ok_and(Vec::is_empty),
                "{shape:?}: {path} was read"
            );
        }
        assert!(
            sandbox
                .write_file(b"/workspace/own", WriteMode::Replace, b"own")
                .is_ok()
        );
        assert_eq!(sh_ok(sandbox, "cat /workspace/own"), "own");
    });
}
