//! One mounted hierarchy: the directory in which we may make groups, the files of either version,
//! and all differences between the two versions.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Controller, Limits, PARENT};

/// Period of the processor quota, in microseconds (the kernel's default).
const CPU_PERIOD_US: f64 = 100_000.0;
/// The smallest quota the kernel accepts, in microseconds.
const CPU_QUOTA_MIN_US: f64 = 1_000.0;
/// Maximum size of a file that is read, in bytes: `cgroup.procs` of a group at its pids limit.
const FILE_MAX_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

impl Version {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// Directory of a hierarchy in which `glovebox` and, below that, the groups are made.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    /// The directory, held open.
    pub(super) base: OwnedFd,
    /// The same directory, for messages.
    pub(super) path: PathBuf,
    /// Controllers that groups here are used for; never empty.
    pub(super) serves: Vec<Controller>,
}

impl Hierarchy {
    /// Creates the group's directory, and its parent if another process has removed that meanwhile.
    pub(super) fn create_child(&self, name: &str) -> Result<OwnedFd, Errno> {
        const ATTEMPTS: u32 = 8;
        let path = child_path(name);
        let mut result = make_dir(self.base.as_fd(), &path);
        for _ in 0..ATTEMPTS {
            if result != Err(Errno::NOENT) {
                break;
            }
            self.ensure_parent()?;
            result = make_dir(self.base.as_fd(), &path);
        }
        result?;
        let child = self.open_child(name)?;
        if self.serves.contains(&Controller::CpuSet) {
            let filled = open_dir(self.base.as_fd(), PARENT)
                .and_then(|parent| copy_processors(parent.as_fd(), child.as_fd()));
            if let Err(errno) = filled {
                // No process could join the group.
                let _ = self.remove_child(name);
                return Err(errno);
            }
        }
        Ok(child)
    }

    /// Creates `glovebox` and, in version 2, enables the controllers for its children.
    pub(super) fn ensure_parent(&self) -> Result<(), Errno> {
        match make_dir(self.base.as_fd(), PARENT) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if self.serves.contains(&Controller::CpuSet) {
            let parent = open_dir(self.base.as_fd(), PARENT)?;
            copy_processors(self.base.as_fd(), parent.as_fd())?;
        }
        if self.version == Version::V2 {
            let parent = open_dir(self.base.as_fd(), PARENT)?;
            for controller in self.serves.iter().filter(|c| **c != Controller::Freezer) {
                // One at a time: a missing controller would make a joint write fail for all.
                write_file(
                    parent.as_fd(),
                    "cgroup.subtree_control",
                    &format!("+{}", controller.name()),
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn open_child(&self, name: &str) -> Result<OwnedFd, Errno> {
        open_dir(self.base.as_fd(), &child_path(name))
    }

    pub(super) fn remove_child(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.base, child_path(name), AtFlags::REMOVEDIR)
    }

    /// Removes `glovebox` if it is empty. It stays while it holds other groups.
    pub(super) fn tidy(&self) {
        let _ = rustix::fs::unlinkat(&self.base, PARENT, AtFlags::REMOVEDIR);
    }

    /// Returns the names of all groups that exist, including those of other processes.
    pub(super) fn children(&self) -> Vec<String> {
        let Ok(parent) = open_dir(self.base.as_fd(), PARENT) else {
            return Vec::new();
        };
        let Ok(dir) = Dir::read_from(parent) else {
            return Vec::new();
        };
        dir.filter_map(Result::ok)
            .filter(|entry| entry.file_type() == FileType::Directory)
            .filter_map(|entry| plain_name(entry.file_name()))
            .collect()
    }

    /// Writes the limit of `controller`. On failure returns the name of the file and the errno.
    pub(super) fn set_limit(
        &self,
        dir: BorrowedFd<'_>,
        controller: Controller,
        limits: &Limits,
    ) -> Result<(), (&'static str, Errno)> {
        let write = |file: &'static str, value: &str| {
            write_file(dir, file, value).map_err(|errno| (file, errno))
        };
        // The file does not exist if the kernel does not account swap or has none.
        let write_if_there = |file: &'static str, value: &str| match write(file, value) {
            Err((_, Errno::NOENT)) => Ok(()),
            other => other,
        };
        match (controller, self.version) {
            (Controller::Memory, version) => {
                let Some(bytes) = limits.memory_bytes else {
                    return Ok(());
                };
                let bytes = bytes.to_string();
                match version {
                    Version::V1 => {
                        write("memory.limit_in_bytes", &bytes)?;
                        write_if_there("memory.memsw.limit_in_bytes", &bytes)
                    }
                    Version::V2 => {
                        write("memory.max", &bytes)?;
                        write_if_there("memory.swap.max", "0")
                    }
                }
            }
            (Controller::Pids, _) => match limits.pids {
                Some(count) => write("pids.max", &count.to_string()),
                None => Ok(()),
            },
            (Controller::Cpu, version) => {
                let Some(cpus) = limits.cpus else {
                    return Ok(());
                };
                let quota_us = (cpus * CPU_PERIOD_US).max(CPU_QUOTA_MIN_US) as u64;
                match version {
                    Version::V1 => write("cpu.cfs_quota_us", &quota_us.to_string()),
                    Version::V2 => write("cpu.max", &format!("{quota_us} {CPU_PERIOD_US}")),
                }
            }
            (Controller::Freezer | Controller::CpuAccount | Controller::CpuSet, _) => Ok(()),
        }
    }

    /// Returns the name of the file whose key `oom_kill` counts the processes killed at the memory
    /// limit.
    pub(super) const fn memory_events(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        }
    }

    pub(super) fn memory_current(&self, dir: BorrowedFd<'_>) -> Option<u64> {
        match self.version {
            Version::V1 => read_number(dir, "memory.usage_in_bytes"),
            Version::V2 => read_number(dir, "memory.current"),
        }
    }

    pub(super) fn memory_peak(&self, dir: BorrowedFd<'_>) -> Option<u64> {
        match self.version {
            Version::V1 => read_number(dir, "memory.max_usage_in_bytes"),
            Version::V2 => read_number(dir, "memory.peak"),
        }
    }

    pub(super) fn set_frozen(&self, dir: BorrowedFd<'_>, frozen: bool) -> Result<(), Errno> {
        match (self.version, frozen) {
            (Version::V1, true) => write_file(dir, "freezer.state", "FROZEN"),
            (Version::V1, false) => write_file(dir, "freezer.state", "THAWED"),
            (Version::V2, true) => write_file(dir, "cgroup.freeze", "1"),
            (Version::V2, false) => write_file(dir, "cgroup.freeze", "0"),
        }
    }

    pub(super) fn is_frozen(&self, dir: BorrowedFd<'_>) -> bool {
        match self.version {
            Version::V1 => {
                read_file(dir, "freezer.state").is_ok_and(|state| state.trim() == "FROZEN")
            }
            Version::V2 => read_keyed(dir, "cgroup.events", "frozen") == Some(1),
        }
    }
}

/// Copies the processors and memory nodes of the parent group into a group of `cpuset`. A new group
/// has none and accepts no process (cpuset(7)); an existing one is updated if possible.
fn copy_processors(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (wanted, present) = (read_file(from, file)?, read_file(to, file)?);
        let (wanted, present) = (wanted.trim(), present.trim());
        if wanted == present {
            continue;
        }
        // The kernel refuses to remove processors that groups below use. Those keep them.
        let written = write_file(to, file, wanted);
        if present.is_empty() {
            written?;
        }
    }
    Ok(())
}

fn child_path(name: &str) -> String {
    format!("{PARENT}/{name}")
}

fn plain_name(name: &CStr) -> Option<String> {
    let name = name.to_str().ok()?;
    (name != "." && name != "..").then(|| name.to_owned())
}

pub(super) fn make_dir(at: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(at, path, mode)?;
    // chmod is separate from creation, so that the caller's umask does not apply.
    rustix::fs::chmodat(at, path, mode, AtFlags::empty())
}

pub(super) fn open_dir(at: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Writes `value` with one write(2), as the kernel's files require.
pub(super) fn write_file(dir: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Errno> {
    let fd = open_for_writing(dir, file)?;
    rustix::io::write(&fd, value.as_bytes()).map(|_| ())
}

pub(super) fn open_for_writing(dir: BorrowedFd<'_>, file: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(dir, file, flags, Mode::empty())
}

pub(super) fn read_file(dir: BorrowedFd<'_>, file: &str) -> Result<String, Errno> {
    let fd = open_for_reading(dir, file)?;
    let mut text = Vec::new();
    let mut block = [0u8; 4096];
    loop {
        match rustix::io::read(&fd, &mut block)? {
            0 => break,
            count => text.extend_from_slice(&block[..count]),
        }
        if text.len() > FILE_MAX_BYTES {
            return Err(Errno::FBIG);
        }
    }
    String::from_utf8(text).map_err(|_| Errno::ILSEQ)
}

/// Reads a file that holds one number.
pub(super) fn read_number(dir: BorrowedFd<'_>, file: &str) -> Option<u64> {
    read_file(dir, file).ok()?.trim().parse().ok()
}

/// Opens a file of a group for reading.
pub(super) fn open_for_reading(dir: BorrowedFd<'_>, file: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(dir, file, flags, Mode::empty())
}

/// Returns the number after `key` in a file of `key number` lines.
pub(super) fn read_keyed(dir: BorrowedFd<'_>, file: &str, key: &str) -> Option<u64> {
    value_of(&read_file(dir, file).ok()?, key)
}

/// Returns the number after `key` in `key number` lines.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}
