//! Memory of a sandbox that no control group holds: what is in its processes, and what the kernel keeps
//! for it beside them.
//!
//! Two steps. A quick sum errs upwards: pages that processes share count once for each. Only when that
//! is too much are the mappings of each process read, where the kernel has divided shared pages.

use super::census::Process;
use super::held::KernelHeldBytes;
use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

/// Pipes and sockets that are free: what is in the first ones is not counted.
const FREE_PIPES: u64 = 64;
const FREE_SOCKETS: u64 = 256;
/// What one may hold: a pipe by default and after its user has many (pipe(7)), and a socket
/// (`net.core.wmem_default`). How full it is cannot be asked from outside.
const PIPE_BYTES: u64 = 64 << 10;
const CROWDED_PIPE_BYTES: u64 = 8 << 10;
const ALL_PIPES_BYTES: u64 = 64 << 20;
const SOCKET_BYTES: u64 = 208 << 10;
/// Entries of descriptor tables, all processes together; each costs up to 256 bytes.
pub(super) const MAX_DESCRIPTORS: u64 = 1 << 18;
/// How long all mappings may take to be read, after which the quick sum counts.
const PATIENCE: Duration = Duration::from_secs(3);

/// Memory outside of processes.
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

/// Resident bytes of all processes. Shared pages count once per process.
pub(super) fn resident_bytes(processes: &[Process]) -> u64 {
    processes
        .iter()
        .map(resident_of)
        .fold(0, u64::saturating_add)
}

fn resident_of(process: &Process) -> u64 {
    let page = rustix::param::page_size() as u64;
    // The first thread may have ended before others, and tells of no memory then.
    let pages = process.threads.iter().filter_map(|thread| {
        let path = format!("/proc/{}/task/{thread}/statm", process.pid);
        let statm = fs::read_to_string(path).ok()?;
        statm.split(' ').nth(1)?.parse::<u64>().ok()
    });
    pages.max().unwrap_or(0).saturating_mul(page)
}

/// Bytes of all processes with shared pages divided, and without what `counted` has: memory files by
/// inode, System V segments and `/dev/shm`. Nor do pages of programs count, which the kernel can drop.
/// `None` when that takes too long.
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
            // Closed to other programs of its user, as the guest is.
            None => resident_of(process),
        };
        total = total.saturating_add(bytes);
        if begun.elapsed() > PATIENCE {
            return None;
        }
    }
    Some(total)
}

/// How the pages of a mapping count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// Its share of all of them.
    Share,
    /// Only those that were copied for this process.
    Copies,
}

/// Adds up proc(5) `smaps`.
fn mappings_bytes(text: &[u8], counted: &HashSet<u64>) -> u64 {
    let mut pages = Pages::Share;
    let mut total_kib = 0_u64;
    for line in text.split(|byte| *byte == b'\n') {
        // A key and a number, or the head of a mapping, which begins with its range.
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
        // Memory of its own, or of the kernel.
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
