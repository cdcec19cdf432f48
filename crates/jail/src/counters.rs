//! Counters of a sandbox's memory that belongs to no process: files in its `/dev/shm`, and the
//! segments, semaphores and messages of its System V IPC namespace.
//!
//! The child of stage 0 opens the descriptors and sends them, because no process outside can:
//! `/dev/shm` has no path there, and `/proc/sysvipc` shows the namespace of the process that opened
//! it. The descriptors keep both alive, so they must be closed when the sandbox ends.

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Tables of `/proc/sysvipc`, in the order in which they are sent.
const TABLES: [&str; 3] = ["shm", "sem", "msg"];
/// Maximum size of one table in bytes: 32,000 queues, the maximum of the kernel, take 4 MiB.
const MAX_TABLE_BYTES: usize = 8 << 20;
/// Size of a semaphore, which has a cache line of its own, and of the head of a set or a queue.
const SEMAPHORE_BYTES: u64 = 64;
const HEAD_BYTES: u64 = 256;
/// Size of the kernel's bookkeeping beside the text of a message.
const MESSAGE_BYTES: u64 = 64;

/// Opens the tables of this process's namespace. Empty on a kernel without them.
pub(crate) fn open_tables() -> Result<Vec<OwnedFd>, Errno> {
    let open = |name: &str| {
        let path = format!("/proc/sysvipc/{name}");
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    match TABLES.into_iter().map(open).collect() {
        Err(Errno::NOENT) => Ok(Vec::new()),
        tables => tables,
    }
}

/// Descriptors of one sandbox's counters.
#[derive(Debug)]
pub struct Counters {
    shm: OwnedFd,
    tables: Vec<OwnedFd>,
}

impl Counters {
    pub(crate) fn new(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let shm = fds.next()?;
        let tables: Vec<OwnedFd> = fds.collect();
        (tables.is_empty() || tables.len() == TABLES.len()).then_some(Self { shm, tables })
    }

    /// Returns the device number of `/dev/shm`. [`Self::held_bytes`] includes its files.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn device(&self) -> Result<u64, Errno> {
        Ok(rustix::fs::fstat(&self.shm)?.st_dev)
    }

    /// Returns the size of all counted memory in bytes.
    ///
    /// # Errors
    /// A counter cannot be read or parsed.
    pub fn held_bytes(&self) -> Result<u64, Errno> {
        let shm = used_bytes(self.shm.as_fd())?;
        let tables = self.tables.iter().zip([segments, semaphores, messages]);
        tables
            .map(|(fd, count)| {
                let text = read_table(fd)?;
                count(&text).ok_or(Errno::INVAL)
            })
            .try_fold(shm, |sum, bytes| Ok(sum.saturating_add(bytes?)))
    }
}

/// Returns the bytes in use on the file system of `fd`.
///
/// # Errors
/// Those of fstatfs(2).
pub fn used_bytes(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let found = rustix::fs::fstatfs(fd)?;
    let blocks = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(blocks.saturating_mul(found.f_bsize as u64))
}

fn read_table(fd: &OwnedFd) -> Result<String, Errno> {
    let mut bytes = Vec::new();
    let mut block = [0_u8; 16 << 10];
    loop {
        let count = rustix::io::pread(fd, &mut block, bytes.len() as u64)?;
        if count == 0 {
            return String::from_utf8(bytes).map_err(|_| Errno::INVAL);
        }
        bytes.extend_from_slice(&block[..count]);
        if bytes.len() > MAX_TABLE_BYTES {
            return Err(Errno::FBIG);
        }
    }
}

/// Returns the sum of `cost` over all lines, applied to the named columns.
fn sum<const N: usize>(
    table: &str,
    columns: [&str; N],
    cost: impl Fn([u64; N]) -> u64,
) -> Option<u64> {
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = head.iter().position(|name| *name == column)?;
    }
    lines.try_fold(0_u64, |total, line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let mut values = [0; N];
        for (value, place) in values.iter_mut().zip(places) {
            *value = fields.get(place)?.parse().ok()?;
        }
        Some(total.saturating_add(cost(values)))
    })
}

fn segments(table: &str) -> Option<u64> {
    sum(table, ["rss", "swap"], |[rss, swap]| {
        rss.saturating_add(swap)
    })
}

fn semaphores(table: &str) -> Option<u64> {
    sum(table, ["nsems"], |[count]| {
        HEAD_BYTES + count.saturating_mul(SEMAPHORE_BYTES)
    })
}

fn messages(table: &str) -> Option<u64> {
    sum(table, ["cbytes", "qnum"], |[bytes, count]| {
        HEAD_BYTES + bytes.saturating_add(count.saturating_mul(MESSAGE_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_added_up_by_the_names_of_their_columns() {
        let shm = "key shmid perms size rss swap\n0 0 600 1048576 4096 0\n7 1 600 99 8192 4096\n";
        assert_eq!(segments(shm), Some(16_384));
        assert_eq!(segments("key shmid\n0 0\n"), None);
        assert_eq!(segments("key rss swap\n0 x 1\n"), None);
        let sem = "key semid perms nsems uid\n0 0 600 250 1\n";
        assert_eq!(semaphores(sem), Some(256 + 250 * 64));
        let msg = "key msqid perms cbytes qnum lspid\n0 0 600 1000 10 1\n0 1 600 0 0 1\n";
        assert_eq!(messages(msg), Some(256 + 1000 + 640 + 256));
    }

    #[test]
    fn the_tables_of_this_kernel_are_understood() {
        let Ok(tables) = open_tables() else {
            panic!("no tables")
        };
        for (fd, count) in tables.iter().zip([segments, semaphores, messages]) {
            let text = read_table(fd).unwrap();
            assert!(count(&text).is_some(), "{text}");
        }
    }
}
