//! System calls that change mode, owner, times or attributes of a file, made by the monitor for a
//! caller in the sandbox's own trees.
//!
//! The numbers of a waiting call and the memory its pointers refer to are read once. This process
//! then makes the call on the very file that was examined, or returns an error. A caller that
//! changes its memory, its descriptors or a link meanwhile has no effect: the file is opened first,
//! and its path is queried after that. No file from outside can move into a tree of the sandbox,
//! because Landlock refuses links and renames into it.

use super::memory::Memory;
use crate::sys::notify::{self, Notification};
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum length of a path, and of the name and value of an attribute, in bytes (limits of the
/// kernel).
const PATH_BYTES: usize = 4096;
const NAME_BYTES: usize = 256;
const VALUE_BYTES: usize = 64 << 10;

/// `AT_FDCWD` as a 32-bit argument.
const WORKING_DIR: i32 = libc::AT_FDCWD;

/// Paths that name a descriptor of the caller.
const DESCRIPTOR_DIRS: [&str; 3] = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"];
const STANDARD_STREAMS: [&str; 3] = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// Trees in which files may be changed.
#[derive(Debug)]
pub(super) struct Metadata {
    trees: Vec<PathBuf>,
}

/// A file as a call names it.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Descriptor(i32),
    Path {
        dir: i32,
        path: Vec<u8>,
        follows_link: bool,
    },
}

/// Change that a call makes to its file.
#[derive(Debug)]
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
    SetAttribute {
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    },
    RemoveAttribute(Vec<u8>),
}

/// Unit of a call's times.
#[derive(Clone, Copy)]
enum TimeUnit {
    Seconds,
    Microseconds,
    Nanoseconds,
}

impl Metadata {
    /// Creates the handler for a sandbox that may write to these trees, given by their real paths.
    pub(super) const fn new(trees: Vec<PathBuf>) -> Self {
        Self { trees }
    }

    /// Makes the call `name` for its caller.
    ///
    /// # Errors
    /// The error that the caller gets.
    pub(super) fn make(
        &self,
        name: &str,
        listener: BorrowedFd<'_>,
        call: &Notification,
    ) -> Result<(), Errno> {
        let memory = Memory::open(call.thread)?;
        let (target, change) = parse(name, call.args, &memory)?;
        let file = open(call.thread, &target)?;
        // While the thread waits, its id cannot be reused. So everything that was read and opened
        // belonged to the caller.
        if !notify::is_waiting(listener, call.id) {
            return Err(Errno::SRCH);
        }
        self.check_place(&file)?;
        apply(&file, &change)
    }

    /// Refuses a file outside the sandbox's trees.
    fn check_place(&self, file: &OwnedFd) -> Result<(), Errno> {
        let place = rustix::fs::readlink(own_path(file), Vec::new())?;
        let place = Path::new(OsStr::from_bytes(place.as_bytes()));
        if self.trees.iter().any(|tree| place.starts_with(tree)) {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }
}

/// Arguments of these calls.
impl Memory {
    fn path(&self, at: u64) -> Result<Vec<u8>, Errno> {
        self.string(at, PATH_BYTES, Errno::NAMETOOLONG)
    }

    fn attribute_name(&self, at: u64) -> Result<Vec<u8>, Errno> {
        self.string(at, NAME_BYTES, Errno::RANGE)
    }

    fn times(&self, at: u64, unit: TimeUnit) -> Result<Timestamps, Errno> {
        let time = |seconds: i64, nanoseconds: i64| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds as _,
        };
        if at == 0 {
            let now = time(0, UTIME_NOW);
            return Ok(Timestamps {
                last_access: now,
                last_modification: now,
            });
        }
        let words = match unit {
            TimeUnit::Seconds => {
                let words = self.words(at, 2)?;
                [words[0], 0, words[1], 0]
            }
            TimeUnit::Microseconds => {
                let words = self.words(at, 4)?;
                let nanoseconds = |micros: i64| match micros {
                    0..1_000_000 => Ok(micros * 1000),
                    _ => Err(Errno::INVAL),
                };
                [
                    words[0],
                    nanoseconds(words[1])?,
                    words[2],
                    nanoseconds(words[3])?,
                ]
            }
            TimeUnit::Nanoseconds => {
                let words = self.words(at, 4)?;
                [words[0], words[1], words[2], words[3]]
            }
        };
        Ok(Timestamps {
            last_access: time(words[0], words[1]),
            last_modification: time(words[2], words[3]),
        })
    }
}

/// Parses the arguments of a call into its file and its change.
fn parse(name: &str, args: [u64; 6], memory: &Memory) -> Result<(Target, Change), Errno> {
    let number = |index: usize| args[index] as u32;
    let descriptor = |index: usize| Target::Descriptor(args[index] as i32);
    let path = |dir: i32, index: usize, flags: u32| -> Result<Target, Errno> {
        let known = (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) as u32;
        if flags & !known != 0 {
            return Err(Errno::INVAL);
        }
        let path = memory.path(args[index])?;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH as u32 != 0 && dir != WORKING_DIR {
            return Ok(Target::Descriptor(dir));
        }
        Ok(Target::Path {
            dir,
            path,
            follows_link: flags & libc::AT_SYMLINK_NOFOLLOW as u32 == 0,
        })
    };
    let no_follow = libc::AT_SYMLINK_NOFOLLOW as u32;
    let mode = |index: usize| Change::Mode(number(index) & 0o7777);
    let owner = |index: usize| Change::Owner(number(index), number(index + 1));
    let times = |index: usize, unit: TimeUnit| memory.times(args[index], unit).map(Change::Times);
    let attribute = || -> Result<Change, Errno> {
        let len = usize::try_from(args[3])
            .ok()
            .filter(|len| *len <= VALUE_BYTES);
        Ok(Change::SetAttribute {
            name: memory.attribute_name(args[1])?,
            value: memory.bytes(args[2], len.ok_or(Errno::TOOBIG)?)?,
            flags: number(4),
        })
    };
    let removal = || memory.attribute_name(args[1]).map(Change::RemoveAttribute);
    let dir = args[0] as i32;
    Ok(match name {
        "chmod" => (path(WORKING_DIR, 0, 0)?, mode(1)),
        "fchmod" => (descriptor(0), mode(1)),
        "fchmodat" => (path(dir, 1, 0)?, mode(2)),
        "fchmodat2" => (path(dir, 1, number(3))?, mode(2)),
        "chown" => (path(WORKING_DIR, 0, 0)?, owner(1)),
        "lchown" => (path(WORKING_DIR, 0, no_follow)?, owner(1)),
        "fchown" => (descriptor(0), owner(1)),
        "fchownat" => (path(dir, 1, number(4))?, owner(2)),
        "utime" => (path(WORKING_DIR, 0, 0)?, times(1, TimeUnit::Seconds)?),
        "utimes" => (path(WORKING_DIR, 0, 0)?, times(1, TimeUnit::Microseconds)?),
        "futimesat" if args[1] == 0 => (descriptor(0), times(2, TimeUnit::Microseconds)?),
        "futimesat" => (path(dir, 1, 0)?, times(2, TimeUnit::Microseconds)?),
        "utimensat" if args[1] == 0 => (descriptor(0), times(2, TimeUnit::Nanoseconds)?),
        "utimensat" => (path(dir, 1, number(3))?, times(2, TimeUnit::Nanoseconds)?),
        "setxattr" => (path(WORKING_DIR, 0, 0)?, attribute()?),
        "lsetxattr" => (path(WORKING_DIR, 0, no_follow)?, attribute()?),
        "fsetxattr" => (descriptor(0), attribute()?),
        "removexattr" => (path(WORKING_DIR, 0, 0)?, removal()?),
        "lremovexattr" => (path(WORKING_DIR, 0, no_follow)?, removal()?),
        "fremovexattr" => (descriptor(0), removal()?),
        _ => return Err(Errno::NOSYS),
    })
}

/// Opens the file that a call names, as the calling thread would, with `O_PATH`: without access to
/// its content.
fn open(thread: i32, target: &Target) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let descriptor = |number: i32| match number {
        0.. => rustix::fs::open(format!("/proc/{thread}/fd/{number}"), flags, Mode::empty())
            .map_err(|errno| {
                if errno == Errno::NOENT {
                    Errno::BADF
                } else {
                    errno
                }
            }),
        _ => Err(Errno::BADF),
    };
    let (dir, path, follows_link) = match target {
        Target::Descriptor(number) => return descriptor(*number),
        Target::Path {
            dir,
            path,
            follows_link,
        } => (*dir, path, *follows_link),
    };
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if follows_link && let Some(number) = named_descriptor(path) {
        return descriptor(number);
    }
    let from = match (path.starts_with(b"/"), dir) {
        // The caller has the same root as this process: chroot(2) and pivot_root(2) are refused.
        (true, _) => None,
        (false, WORKING_DIR) => Some(rustix::fs::open(
            format!("/proc/{thread}/cwd"),
            flags,
            Mode::empty(),
        )?),
        (false, dir) => Some(descriptor(dir)?),
    };
    let from = from.as_ref().map_or(CWD, |from| from.as_fd());
    let last = if follows_link {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    };
    // Magic links such as /proc/PID/cwd would resolve for this process, not for the caller.
    rustix::fs::openat2(
        from,
        path.as_slice(),
        flags | last,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
}

/// Returns the number of the caller's own descriptor that a path names.
fn named_descriptor(path: &[u8]) -> Option<i32> {
    let path = std::str::from_utf8(path).ok()?;
    if let Some(number) = STANDARD_STREAMS.iter().position(|name| *name == path) {
        return i32::try_from(number).ok();
    }
    let digits = DESCRIPTOR_DIRS
        .iter()
        .find_map(|dir| path.strip_prefix(dir))?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

fn own_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn apply(file: &OwnedFd, change: &Change) -> Result<(), Errno> {
    match change {
        Change::Mode(mode) => rustix::fs::chmod(own_path(file), Mode::from_raw_mode(*mode)),
        Change::Owner(user, group) => {
            let id = |id: u32| (id != u32::MAX).then_some(id);
            let (user, group) = (id(*user).map(Uid::from_raw), id(*group).map(Gid::from_raw));
            rustix::fs::chownat(file, "", user, group, AtFlags::EMPTY_PATH)
        }
        Change::Times(times) => rustix::fs::utimensat(file, "", times, AtFlags::EMPTY_PATH),
        Change::SetAttribute { name, value, flags } => rustix::fs::setxattr(
            own_path(file),
            name.as_slice(),
            value,
            XattrFlags::from_bits_retain(*flags),
        ),
        Change::RemoveAttribute(name) => rustix::fs::removexattr(own_path(file), name.as_slice()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn own_memory() -> Memory {
        Memory::open(rustix::thread::gettid().as_raw_pid()).unwrap()
    }

    #[test]
    fn calls_are_read_as_the_kernel_reads_them() {
        let path = c"a/b";
        let at = path.as_ptr().addr() as u64;
        let memory = own_memory();
        let dir = libc::AT_FDCWD as u32 as u64;
        let (target, change) = parse("fchmodat", [dir, at, 0o104_755, 0, 0, 0], &memory).unwrap();
        let expected = Target::Path {
            dir: WORKING_DIR,
            path: b"a/b".to_vec(),
            follows_link: true,
        };
        assert_eq!(target, expected);
        assert!(matches!(change, Change::Mode(0o4755)));
        let (target, _) = parse("utimensat", [7, 0, 0, 0, 0, 0], &memory).unwrap();
        assert_eq!(target, Target::Descriptor(7));
        let flags = parse("fchownat", [dir, at, 0, 0, 0x800, 0], &memory).unwrap_err();
        assert_eq!(flags, Errno::INVAL);
        let nowhere = parse("chmod", [8, 0, 0, 0, 0, 0], &memory).unwrap_err();
        assert_eq!(nowhere, Errno::FAULT);
        let unknown = parse("read", [0; 6], &memory).unwrap_err();
        assert_eq!(unknown, Errno::NOSYS);
    }

    #[test]
    fn only_files_of_the_trees_are_changed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (own, outside) = (root.join("own"), root.join("own-but-not"));
        for dir in [&own, &outside] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(dir.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(outside.join("file"), own.join("link")).unwrap();
        let metadata = Metadata::new(vec![own.clone()]);
        let thread = rustix::thread::gettid().as_raw_pid();
        let place = |path: &Path, follows_link: bool| {
            let path = path.as_os_str().as_bytes().to_vec();
            let target = Target::Path {
                dir: WORKING_DIR,
                path,
                follows_link,
            };
            metadata.check_place(&open(thread, &target)?)
        };
        assert_eq!(place(&own.join("file"), true), Ok(()));
        assert_eq!(place(&own.join("link"), false), Ok(()));
        assert_eq!(place(&own.join("link"), true), Err(Errno::ACCESS));
        assert_eq!(place(&outside.join("file"), true), Err(Errno::ACCESS));
        assert_eq!(
            place(&own.join("../own-but-not/file"), true),
            Err(Errno::ACCESS)
        );
        assert_eq!(place(Path::new("/proc/self/cwd"), true), Err(Errno::LOOP));
        let open_file = File::open(own.join("file")).unwrap();
        let by_number = format!("/proc/self/fd/{}", open_file.as_raw_fd());
        assert_eq!(place(Path::new(&by_number), true), Ok(()));
        std::fs::remove_file(own.join("file")).unwrap();
        assert_eq!(
            place(Path::new(&by_number), true),
            Ok(()),
            "it has no name any more"
        );
    }
}
