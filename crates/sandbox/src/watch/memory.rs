//! Memory of a sandbox without a memory control group: the memory of its processes, and the memory
//! that the kernel holds for it.
//!
//! Measured in two steps. A quick sum errs upwards, because it counts shared pages once for each
//! process. Only if that exceeds the limit are the mappings of each process read, in which the
//! kernel divides shared pages.

use super::census::Process;
use super::held::KernelHeldBytes;
use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

/// Number of pipes and sockets whose content is not counted.
const FREE_PIPES: u64 = 64;
const FREE_SOCKETS: u64 = 256;
/// Maximum content of a pipe (by default, and after its user has many; pipe(7)) and of a socket
/// (`net.core.wmem_default`). The actual content cannot be read from outside.
const PIPE_BYTES: u64 = 64 << 10;
const CROWDED_PIPE_BYTES: u64 = 8 << 10;
const ALL_PIPES_BYTES: u64 = 64 << 20;
const SOCKET_BYTES: u64 = 208 << 10;
/// Maximum number of descriptor table entries in all processes; each costs up to 256 bytes.
pub(super) const MAX_DESCRIPTORS: u64 = 1 << 18;
/// Maximum time to read all mappings, after which the quick sum is used.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the bytes that the kernel holds outside of processes.
pub(super) fn kernel_bytes(held: &KernelHeldBytes, counters_bytes: u64) -> u64 {
    let pipes = held.pipes.saturating_sub(FREE_PIPES);
    let pipe_bytes =
        (pipes * PIPE_BYTES).min(ALL_PIPES_BYTES) + pipes.saturating_sub(1024) * CROWDED_PIPE_BYTES;
    let socket_bytes = held.sockets.saturating_sub(FREE_SOCKETS) * SOCKET_BYTES;
    counters_bytes
        .saturating_add(held.memory_bytes)
        .saturating_add(pipe_bytes)
        .saturating_add(socket_bytes)
}

/// Returns the resident bytes of all processes. Shared pages count once for each process.
pub(super) fn resident_bytes(processes: &[Process]) -> u64 {
    processes
        .iter()
        .map(resident_of)
        .fold(0, u64::saturating_add)
}

fn resident_of(process: &Process) -> u64 {
    let page = rustix::param::page_size() as u64;
    // The first thread may have ended before the others; then it reports no memory.
    let pages = process.threads.iter().filter_map(|thread| {
        let path = format!("/proc/{}/task/{thread}/statm", process.pid);
        let statm = fs::read_to_string(path).ok()?;
        statm.split(' ').nth(1)?.parse::<u64>().ok()
    });
    pages.max().unwrap_or(0).saturating_mul(page)
}

/// Returns the bytes of all processes with shared pages divided, without memory that is counted
/// elsewhere: memory files whose inodes are in `counted`, System V segments and `/dev/shm`. Pages
/// of program files do not count, because the kernel can drop them. `None` if reading takes longer
/// than [`PATIENCE`].
pub(super) fn proportional_bytes(processes: &[Process], counted: &HashSet<u64>) -> Option<u64> {
    let begun = Instant::now();
    let mut total = 0_u64;
    for process in processes {
        let text = process.threads.iter().find_map(|thread| {
            let path = format!("/proc/{}/task/{thread}/smaps", process.pid);
            fs::read(path).ok().filter(|text| !text.is_empty())
        });
        let bytes = match text {
            Some(text) => mappings_bytes(&text, counted),
            // Not readable, even by its own user. This is so for the guest.
            None => resident_of(process),
        };
        total = total.saturating_add(bytes);
        if begun.elapsed() > PATIENCE {
            return None;
        }
    }
    Some(total)
}

/// Counting of a mapping's pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// The process's share of all pages.
    Share,
    /// Only the pages that were copied for this process.
    Copies,
}

/// Adds up the mappings in `smaps` (proc(5)).
fn mappings_bytes(text: &[u8], counted: &HashSet<u64>) -> u64 {
    let mut pages = Pages::Share;
    let mut total_kib = 0_u64;
    for line in text.split(|byte| *byte == b'\n') {
        // A line is a key with a number, or the head of a mapping, which begins with its address
        // range.
        let value = |key: &[u8]| {
            let rest = line.strip_prefix(key)?;
            let text = std::str::from_utf8(rest).ok()?;
            text.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        let kib = match pages {
            Pages::Share => value(b"Pss:"),
            Pages::Copies => value(b"Anonymous:"),
        };
        if let Some(kib) = kib.or_else(|| value(b"SwapPss:")) {
            total_kib = total_kib.saturating_add(kib);
        } else if line
            .first()
            .is_some_and(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
        {
            pages = pages_of(line, counted);
        }
    }
    total_kib.saturating_mul(1024)
}

fn pages_of(head: &[u8], counted: &HashSet<u64>) -> Pages {
    let Some(name_at) = head.iter().position(|byte| *byte == b'/') else {
        // Anonymous memory, or memory of the kernel.
        return Pages::Share;
    };
    let name = &head[name_at..];
    let inode = std::str::from_utf8(&head[..name_at])
        .ok()
        .and_then(|fields| fields.split_ascii_whitespace().nth(4)?.parse().ok());
    let is_shared_memory = name.starts_with(b"/dev/zero (deleted)") || name.starts_with(b"/memfd:");
    if is_shared_memory && !inode.is_some_and(|inode| counted.contains(&inode)) {
        Pages::Share
    } else {
        Pages::Copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::census::processes_of;

    #[test]
    fn resident_bytes_include_children() {
        let mut child = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let processes = processes_of(std::process::id() as i32).unwrap();
        let own = resident_bytes(&processes);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own > 1 << 20, "{own}");
    }

    #[test]
    fn mappings_count_by_what_they_are() {
        let smaps = "\
55d0-55d1 r-xp 00000000 fe:00 12 /usr/bin/perl
Pss:                 900 kB
Anonymous:             4 kB
SwapPss:               0 kB
55d2-55d3 rw-p 00000000 00:00 0 [heap]
Pss:                 100 kB
Anonymous:           100 kB
SwapPss:               8 kB
7f00-7f01 rw-s 00000000 00:01 77 /memfd:counted (deleted)
Pss:                1000 kB
Anonymous:             0 kB
7f02-7f03 rw-s 00000000 00:01 78 /memfd:other (deleted)
Pss:                2000 kB
Anonymous:             0 kB
7f04-7f05 rw-s 00000000 00:01 79 /dev/zero (deleted)
Pss:                3000 kB
Anonymous:             0 kB
7f06-7f07 rw-s 00000000 00:01 80 /SYSV00000000 (deleted)
Pss:                4000 kB
Anonymous:             0 kB
";
        let counted = HashSet::from([77]);
        let kib = 4 + 100 + 8 + 2000 + 3000;
        assert_eq!(mappings_bytes(smaps.as_bytes(), &counted), kib * 1024);
    }

    #[test]
    fn a_few_pipes_and_sockets_are_free() {
        let held = |pipes, sockets| KernelHeldBytes {
            pipes,
            sockets,
            ..KernelHeldBytes::default()
        };
        assert_eq!(kernel_bytes(&held(64, 256), 5), 5);
        assert_eq!(kernel_bytes(&held(65, 257), 0), PIPE_BYTES + SOCKET_BYTES);
        let many = kernel_bytes(&held(64 + 4096, 0), 0);
        assert_eq!(many, ALL_PIPES_BYTES + 3072 * CROWDED_PIPE_BYTES);
    }
}
