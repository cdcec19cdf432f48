//! Resources that processes of a sandbox hold through descriptors and mappings and that no
//! directory lists: unlinked and unnamed files, memory files, pipes, sockets.
//!
//! Not visible from here: a descriptor in transit through a socket, and the part of a file beyond
//! its mapping, if no process has the file open and the caller is not root. For a program file that
//! is executable but not readable, nothing is visible unless the caller is root.

use super::census::Process;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{HashMap, HashSet};
use std::fs;

/// Magic number of overlayfs (statfs(2)), whose files use disk.
const OVERLAY: i64 = 0x794c_7630;
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// Flag in `/proc/PID/stat` of a process that was forked and has not executed a program
/// (`PF_FORKNOEXEC`).
const HAS_NOT_EXECUTED: u64 = 0x40;
/// Flag of pidfd_open(2) for a thread other than the first; Linux 6.9.
const PIDFD_THREAD: u32 = 0o200;

/// Resources that the processes hold.
#[derive(Debug, Default)]
pub(super) struct KernelHeldBytes {
    /// Bytes in unlinked files of the layers on disk.
    pub(super) disk_bytes: u64,
    /// Bytes in memory files.
    pub(super) memory_bytes: u64,
    /// Inode numbers of the memory files.
    pub(super) memory_files: HashSet<u64>,
    /// Number of distinct pipes.
    pub(super) pipes: u64,
    /// Number of distinct sockets.
    pub(super) sockets: u64,
    /// Number of entries in descriptor tables.
    pub(super) descriptors: u64,
    /// A process whose descriptors cannot be examined. `None` if all could be.
    pub(super) unseen: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Layer,
    Memory,
    Other,
}

/// State of a scan in progress.
#[derive(Debug, Default)]
struct DescriptorScan {
    held: KernelHeldBytes,
    /// Device and inode of the files seen so far.
    seen: HashSet<(u64, u64)>,
    /// Inode numbers of the counted files of layers.
    disk_files: HashSet<u64>,
    media: HashMap<u64, Medium>,
}

/// Scans `processes`, the first of which is the guest. Files on the devices `counted` are skipped,
/// because they are counted elsewhere.
pub(super) fn held_by(processes: &[Process], counted: &[u64]) -> KernelHeldBytes {
    let mut look = DescriptorScan::default();
    look.media
        .extend(counted.iter().map(|device| (*device, Medium::Other)));
    let Some((guest, others)) = processes.split_first() else {
        return look.held;
    };
    let guest = Program::of(guest.pid);
    let commands: Vec<&Process> = others
        .iter()
        .filter(|process| !guest.is_copied_by(process.pid))
        .collect();
    for process in &commands {
        look.descriptors(process);
    }
    // Open files have their exact size by now. Only files that are merely mapped are estimated by
    // their mappings.
    for process in &commands {
        look.mappings(process);
    }
    look.held
}

impl DescriptorScan {
    fn descriptors(&mut self, process: &Process) {
        for thread in &process.threads {
            let listed = list(&format!("/proc/{}/task/{thread}/fd", process.pid));
            let looked = match listed {
                Ok((entries, dir)) => self.table(entries, &dir),
                // A process can make this directory accessible to root only (PR_SET_DUMPABLE).
                Err(Errno::ACCESS | Errno::PERM) => self.closed_table(process.pid, *thread),
                Err(errno) => Err(errno),
            };
            // With any other error the process or thread has ended.
            if let Err(Errno::ACCESS | Errno::PERM) = looked {
                self.held.unseen = Some(process.pid);
            }
        }
    }

    fn table(&mut self, entries: Dir, dir: &OwnedFd) -> Result<(), Errno> {
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.held.descriptors += 1;
            // Without a request to the server of a network or FUSE file system, which may not
            // answer.
            let flags = AtFlags::STATX_DONT_SYNC;
            let stat = match rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS) {
                Ok(stat) => stat,
                Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Err(errno),
                Err(_) => continue,
            };
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            self.file(&stat, || {
                rustix::fs::openat(dir, name, flags, Mode::empty())
            });
        }
        Ok(())
    }

    /// As [`Self::table`], but by copies of the descriptors, which the owner of the sandbox's user
    /// namespace may make. Skips files on other file systems than the sandbox's own, because
    /// closing the copy may send a request to a server.
    fn closed_table(&mut self, pid: i32, thread: i32) -> Result<(), Errno> {
        let foreign = foreign_mounts(pid)?;
        let (entries, dir) = list(&format!("/proc/{pid}/task/{thread}/fdinfo"))?;
        let flags = if thread == pid {
            PidfdFlags::empty()
        } else {
            PidfdFlags::from_bits_retain(PIDFD_THREAD)
        };
        let pidfd = pidfd_open(Pid::from_raw(thread).ok_or(Errno::SRCH)?, flags)?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(number) = name.to_str().ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            self.held.descriptors += 1;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let info = rustix::fs::openat(&dir, name, flags, Mode::empty())
                .map_err(std::io::Error::from)
                .and_then(|file| std::io::read_to_string(fs::File::from(file)));
            let Ok(info) = info else {
                continue;
            };
            let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
            if mount.is_some_and(|mount| foreign.contains(mount.trim())) {
                continue;
            }
            let copy = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
                Ok(copy) => copy,
                Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Err(errno),
                Err(_) => continue,
            };
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            if let Ok(stat) = rustix::fs::statx(&copy, c"", flags, StatxFlags::BASIC_STATS) {
                self.file(&stat, || Ok(copy));
            }
        }
        Ok(())
    }

    fn file(&mut self, stat: &Statx, open: impl FnOnce() -> Result<OwnedFd, Errno>) {
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        if !self.seen.insert((device, stat.stx_ino)) {
            return;
        }
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::Fifo => self.held.pipes += 1,
            FileType::Socket => self.held.sockets += 1,
            FileType::RegularFile if stat.stx_nlink == 0 => {
                let medium = self.medium(device, open);
                self.count(medium, stat.stx_ino, stat.stx_blocks.saturating_mul(512));
            }
            _ => {}
        }
    }

    fn medium(&mut self, device: u64, open: impl FnOnce() -> Result<OwnedFd, Errno>) -> Medium {
        *self.media.entry(device).or_insert_with(|| {
            let found = open().and_then(rustix::fs::fstatfs);
            match found.map(|found| found.f_type) {
                Ok(OVERLAY) => Medium::Layer,
                Ok(kind) if IN_MEMORY.contains(&kind) => Medium::Memory,
                Ok(_) | Err(_) => Medium::Other,
            }
        })
    }

    fn count(&mut self, medium: Medium, inode: u64, bytes: u64) {
        match medium {
            Medium::Layer => {
                self.disk_files.insert(inode);
                self.held.disk_bytes = self.held.disk_bytes.saturating_add(bytes);
            }
            Medium::Memory => {
                self.held.memory_files.insert(inode);
                self.held.memory_bytes = self.held.memory_bytes.saturating_add(bytes);
            }
            Medium::Other => {}
        }
    }

    fn mappings(&mut self, process: &Process) {
        // The first thread may have ended before the others; then it has no memory map.
        let text = process.threads.iter().find_map(|thread| {
            let text = fs::read(format!("/proc/{}/task/{thread}/maps", process.pid)).ok()?;
            (!text.is_empty()).then_some(text)
        });
        // Largest extent of each file that is mapped and not open.
        let mut extents: HashMap<u64, (Medium, u64)> = HashMap::new();
        for line in text
            .as_deref()
            .unwrap_or_default()
            .split(|byte| *byte == b'\n')
        {
            let Some(mapping) = Mapping::parse(line) else {
                continue;
            };
            if self.disk_files.contains(&mapping.inode)
                || self.held.memory_files.contains(&mapping.inode)
            {
                continue;
            }
            let bytes = mapping.measure(process.pid).unwrap_or(mapping.extent);
            let entry = extents.entry(mapping.inode).or_insert((mapping.medium, 0));
            entry.1 = entry.1.max(bytes);
        }
        for (inode, (medium, bytes)) in extents {
            self.count(medium, inode, bytes);
        }
    }
}

/// Mapping of an unlinked file.
struct Mapping<'a> {
    range: &'a str,
    inode: u64,
    /// Offset in the file at which the mapping ends.
    extent: u64,
    medium: Medium,
}

impl<'a> Mapping<'a> {
    /// Parses a line of `maps` (proc(5)). Returns `None` for a mapping without an unlinked file,
    /// and for memory of System V segments and shared mappings, which are counted elsewhere.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b" (deleted)")?;
        let text =
            std::str::from_utf8(line.get(..line.iter().position(|byte| *byte == b'/')?)?).ok()?;
        let name = &line[text.len()..];
        let mut fields = text.split_ascii_whitespace();
        let range = fields.next()?;
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        let (start, end) = range.split_once('-')?;
        let length = u64::from_str_radix(end, 16)
            .ok()?
            .checked_sub(u64::from_str_radix(start, 16).ok()?)?;
        let medium = if name.starts_with(b"/memfd:") || name.starts_with(b"/anon_hugepage") {
            Medium::Memory
        } else if name.starts_with(b"/SYSV")
            || name == b"/dev/zero"
            || name.starts_with(b"/dev/shm/")
        {
            return None;
        } else {
            Medium::Layer
        };
        Some(Self {
            range,
            inode,
            extent: offset.saturating_add(length),
            medium,
        })
    }

    /// Returns the disk usage of the file. `None` unless the caller is root.
    fn measure(&self, pid: i32) -> Option<u64> {
        let path = format!("/proc/{pid}/map_files/{}", self.range);
        let flags = AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(CWD, path.as_str(), flags, StatxFlags::BASIC_STATS).ok()?;
        Some(match stat.stx_nlink {
            0 => stat.stx_blocks.saturating_mul(512),
            // A file of the host that was replaced.
            _ => 0,
        })
    }
}

fn list(path: &str) -> Result<(Dir, OwnedFd), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    Ok((Dir::read_from(&dir)?, dir))
}

/// Returns the ids of the mounts of a process that are neither overlays nor in memory.
fn foreign_mounts(pid: i32) -> Result<HashSet<String>, Errno> {
    let text = fs::read(format!("/proc/{pid}/mountinfo"))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let text = String::from_utf8_lossy(&text);
    let foreign = text.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let kind = right.split(' ').next()?;
        (kind != "overlay" && kind != "tmpfs").then(|| left.split(' ').next().map(str::to_owned))?
    });
    Ok(foreign.collect())
}

/// Program that a process runs.
#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// Device and inode of the program.
    File(u64, u64),
    /// The process does not allow its user to read this.
    Closed,
    /// The process has ended.
    Gone,
}

impl Program {
    fn of(pid: i32) -> Self {
        match rustix::fs::stat(format!("/proc/{pid}/exe")) {
            Ok(stat) => Self::File(stat.st_dev, stat.st_ino),
            Err(Errno::ACCESS | Errno::PERM) => Self::Closed,
            Err(_) => Self::Gone,
        }
    }

    /// Returns true if a process is a copy of this one, the guest, and has not executed a program
    /// since. Its descriptors are then the guest's and not a command's. Also true for a process
    /// that has ended.
    fn is_copied_by(&self, pid: i32) -> bool {
        match Self::of(pid) {
            Self::Gone => true,
            other => *self == other && has_not_executed(pid),
        }
    }
}

fn has_not_executed(pid: i32) -> bool {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // The name in parentheses may contain any character, so the fields are counted from the last
    // parenthesis.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else {
        return false;
    };
    let fields = String::from_utf8_lossy(&stat[end + 1..]);
    let flags = fields.split_ascii_whitespace().nth(6);
    flags
        .and_then(|flags| flags.parse::<u64>().ok())
        .is_some_and(|flags| flags & HAS_NOT_EXECUTED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::census::processes_of;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn memory_files_and_pipes_are_counted_once() {
        let memory = rustix::fs::memfd_create("counted", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = fs::File::from(memory);
        file.write_all(&vec![1_u8; 5 << 20]).unwrap();
        let mut child = Command::new("sleep")
            .arg("20")
            .stdin(file.try_clone().unwrap())
            .stdout(file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let guest = Process {
            pid: 1,
            threads: Vec::new(),
        };
        let found = processes_of(child.id() as i32).unwrap();
        let held = held_by(&[guest, found.into_iter().next().unwrap()], &[]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((5 << 20..9 << 20).contains(&held.memory_bytes), "{held:?}");
        // A test that runs at the same time may lend the child a descriptor for a moment.
        assert!(held.pipes >= 1 && held.descriptors >= 3, "{held:?}");
        assert_eq!(
            (held.memory_files.len(), held.unseen),
            (1, None),
            "{held:?}"
        );
    }

    #[test]
    fn lines_of_maps_are_read() {
        let parse = |line: &'static str| {
            let mapping = Mapping::parse(line.as_bytes())?;
            Some((mapping.inode, mapping.extent, mapping.medium))
        };
        let range = "7f0000000000-7f0000002000 r--s 00001000 00:2d 77";
        for (name, medium) in [
            ("/workspace/a file (deleted)", Some(Medium::Layer)),
            ("/memfd:x (deleted)", Some(Medium::Memory)),
            ("/dev/zero (deleted)", None),
            ("/SYSV00000000 (deleted)", None),
            ("/usr/lib/libc.so.6", None),
        ] {
            let line: &'static str =
                Box::leak(format!("{range}                 {name}").into_boxed_str());
            assert_eq!(
                parse(line),
                medium.map(|medium| (77, 0x3000, medium)),
                "{name}"
            );
        }
    }
}
