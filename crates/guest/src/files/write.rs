//! Writes a file in steps to a new file beside the target, which takes the target's place at the
//! end. Readers see either the old content or the new.

use super::{make_all, own, read_whole, require_regular, shown, split, write_sparse};
use crate::fault;
use crate::programs::Programs;
use crate::workers::DeferredCloses;
use glovebox_proto::limits::{MAX_EDIT_BYTES, MAX_OLD_BYTES, MAX_PROGRAM_BYTES};
use glovebox_proto::{Code, Fault, OldContent, Reply, WriteMode, WritePrecondition};
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, FileType, FsWord, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::time::ClockId;
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Maximum number of symbolic links to the target, as in the kernel.
const MAX_LINKS: usize = 40;
/// statfs(2): `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY_MAGIC: FsWord = 0x794c_7630;

/// Upper layer of the sandbox's overlay: the files changed in it, by the time at which it began.
///
/// A file system may flush a new file to the disk before a rename replaces another file with it, so
/// that one of both survives a crash of the machine (ext4(5), `auto_da_alloc`). That costs more
/// than everything else in a small write. Nothing is promised about a running sandbox after a
/// crash, so in this layer the two files are exchanged instead, which is as atomic for readers and
/// costs nothing more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopLayer {
    since: Timespec,
}

impl TopLayer {
    /// Returns a layer to which nothing has been written yet.
    pub(crate) fn begins() -> Self {
        let since = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        Self { since }
    }

    /// Returns true if a file is certainly in this layer: exchanging a file of a lower layer would
    /// copy it up first. If the clock was set, a file may be missed, which costs only time.
    fn has(self, stat: &Stat) -> bool {
        (stat.st_ctime, stat.st_ctime_nsec as i64) > (self.since.tv_sec, self.since.tv_nsec)
    }
}

/// Target and options of a write.
#[derive(Debug)]
pub(crate) struct WriteSpec {
    /// Absolute path.
    pub(crate) path: Vec<u8>,
    /// Handling of an existing file.
    pub(crate) mode: WriteMode,
    /// Permission bits of a new file.
    pub(crate) permissions: u32,
    /// True if missing parent directories are created.
    pub(crate) make_parents: bool,
    /// Upper layer of the directory; `None` if it is not an overlay.
    pub(crate) top: Option<TopLayer>,
    /// Store of opened programs, for `WriteMode::Program`.
    pub(crate) programs: Arc<Programs>,
}

/// File being written. Dropping it before [`FileSink::commit`] removes the temporary file; bytes
/// that were already appended remain.
#[derive(Debug)]
pub(crate) struct FileSink {
    file: OwnedFd,
    place: Option<PendingRename>,
    spec: WriteSpec,
    is_new: bool,
    /// True if the old file is in the upper layer.
    can_exchange: bool,
    bytes: u64,
    /// End of the last written run: a hole follows if it is less than `bytes`. Unused for an
    /// append.
    data_end: u64,
}

/// Directory, temporary name and final name of a replacement.
#[derive(Debug)]
struct PendingRename {
    dir: OwnedFd,
    temporary: Vec<u8>,
    target: Vec<u8>,
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let _ = rustix::fs::unlinkat(&place.dir, place.temporary.as_slice(), AtFlags::empty());
        }
    }
}

fn failed(path: &[u8], errno: Errno) -> Fault {
    fault::file(errno, &format!("cannot write {}", shown(path)))
}

impl FileSink {
    /// Opens the file to write to: the target for an append, otherwise a new file.
    pub(crate) fn open(spec: WriteSpec) -> Result<Self, Fault> {
        match spec.mode {
            WriteMode::Append => Self::append(spec),
            WriteMode::Program => Ok(Self {
                file: Programs::create()?,
                place: None,
                spec,
                is_new: true,
                can_exchange: false,
                bytes: 0,
                data_end: 0,
            }),
            WriteMode::Replace | WriteMode::CreateNew | WriteMode::ReplaceKnown(_) => {
                Self::replace(spec)
            }
        }
    }

    fn append(spec: WriteSpec) -> Result<Self, Fault> {
        let fail = |errno| failed(&spec.path, errno);
        if spec.make_parents
            && let Some((parent, _)) = split(&spec.path)
            // EACCESS checks with the ids of file operations, as the real user id may differ.
            && rustix::fs::accessat(CWD, parent, Access::EXISTS, AtFlags::EACCESS).is_err()
        {
            make_all(parent).map_err(fail)?;
        }
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(spec.permissions & 0o7777);
        let (file, is_new) = match rustix::fs::stat(spec.path.as_slice()) {
            Ok(stat) => {
                require_regular(&stat, &spec.path)?;
                (
                    own::open(&spec.path, flags, Mode::empty()).map_err(fail)?,
                    false,
                )
            }
            Err(Errno::NOENT) => {
                let flags = flags | OFlags::CREATE;
                let file = own::open(&spec.path, flags, mode).map_err(fail)?;
                rustix::fs::fchmod(&file, mode).map_err(fail)?;
                (file, true)
            }
            Err(errno) => return Err(fail(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(fail)?;
        require_regular(&stat, &spec.path)?;
        Ok(Self {
            file,
            place: None,
            spec,
            is_new,
            can_exchange: false,
            bytes: 0,
            data_end: 0,
        })
    }

    fn replace(spec: WriteSpec) -> Result<Self, Fault> {
        let fail = |errno| failed(&spec.path, errno);
        let is_exclusive = spec.mode == WriteMode::CreateNew;
        let is_link =
            |old: &Stat| FileType::from_raw_mode(old.st_mode) == FileType::Symlink && !is_exclusive;
        let (dir, target, old) = match look(&spec.path, &spec, spec.make_parents)? {
            // A link is written through, as an editor does, and not replaced by a file.
            (_, _, Some(old)) if is_link(&old) => look(&resolve(&spec.path)?, &spec, false)?,
            found => found,
        };
        match &old {
            Some(_) if is_exclusive => return Err(fail(Errno::EXIST)),
            Some(old) => require_regular(old, &spec.path)?,
            None => {}
        }
        let permissions = old.as_ref().map_or(spec.permissions, |stat| stat.st_mode) & 0o7777;
        let private = Mode::RUSR | Mode::WUSR;
        let can_exchange = spec
            .top
            .zip(old.as_ref())
            .is_some_and(|(top, old)| top.has(old))
            && rustix::fs::fstatfs(&dir).is_ok_and(|facts| facts.f_type == OVERLAY_MAGIC);
        // Created private; the permissions are set below, because open(2) would apply the umask to
        // them.
        let (file, temporary) = temporary_in(&dir, private).map_err(fail)?;
        let sink = Self {
            file,
            place: Some(PendingRename {
                dir,
                temporary,
                target,
            }),
            is_new: old.is_none(),
            can_exchange,
            spec,
            bytes: 0,
            data_end: 0,
        };
        // From here on an error drops `sink`, which removes the temporary file.
        rustix::fs::fchmod(&sink.file, Mode::from_raw_mode(permissions))
            .map_err(|errno| failed(&sink.spec.path, errno))?;
        Ok(sink)
    }

    /// Appends bytes to the content.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.spec.mode == WriteMode::Program
            && self.bytes + bytes.len() as u64 > MAX_PROGRAM_BYTES
        {
            let message = format!("the program has more than {MAX_PROGRAM_BYTES} bytes");
            return Err(Fault::failed(Code::TooLarge, message));
        }
        if self.place.is_some() {
            // A new file has holes where the content is zeros; `commit` sets its length.
            let written = write_sparse(&self.file, self.bytes, bytes)
                .map_err(|errno| failed(&self.spec.path, errno))?;
            self.data_end = written.unwrap_or(self.data_end);
            self.bytes += bytes.len() as u64;
            return Ok(());
        }
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.file, rest) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(&self.spec.path, errno)),
            }
        }
        self.bytes += done as u64;
        Ok(())
    }

    /// Puts the file in its place and returns the answer. Checks the precondition of `ReplaceKnown`
    /// directly before.
    pub(crate) fn commit(mut self, later: &mut DeferredCloses) -> Result<Reply, Fault> {
        // Before the rename, or readers would see a file without its last hole.
        if self.place.is_some() && self.data_end < self.bytes {
            rustix::fs::ftruncate(&self.file, self.bytes)
                .map_err(|errno| failed(&self.spec.path, errno))?;
        }
        let mut is_exclusive = self.spec.mode == WriteMode::CreateNew;
        let done = match self.spec.mode {
            WriteMode::ReplaceKnown(known) => {
                let old = self.known(known, later)?;
                // A file that appears before the rename is unknown too, so the rename must not
                // replace it.
                is_exclusive = old == OldContent::Nothing && known != WritePrecondition::Anything;
                Reply::WrittenOver {
                    bytes: self.bytes,
                    old,
                }
            }
            _ => Reply::Written {
                bytes: self.bytes,
                is_new: self.is_new,
            },
        };
        if self.spec.mode == WriteMode::Program {
            let name = std::mem::take(&mut self.spec.path);
            let file = rustix::io::fcntl_dupfd_cloexec(&self.file, 3)
                .map_err(|errno| failed(&name, errno))?;
            self.spec.programs.keep(name, file)?;
            return Ok(done);
        }
        let Some(place) = &self.place else {
            return Ok(done);
        };
        let (from, to) = (place.temporary.as_slice(), place.target.as_slice());
        let failed = |path: &[u8], errno| match self.spec.mode {
            WriteMode::ReplaceKnown(_) if is_exclusive && errno == Errno::EXIST => unseen(path),
            _ => failed(path, errno),
        };
        let result = if is_exclusive {
            match rustix::fs::renameat_with(
                &place.dir,
                from,
                &place.dir,
                to,
                RenameFlags::NOREPLACE,
            ) {
                // Some file systems do not support NOREPLACE. A hard link fails for an existing
                // name too; `drop` then removes the temporary name.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    let linked =
                        rustix::fs::linkat(&place.dir, from, &place.dir, to, AtFlags::empty());
                    return linked
                        .map(|()| done)
                        .map_err(|errno| failed(&self.spec.path, errno));
                }
                other => other,
            }
        } else {
            let exchange = RenameFlags::EXCHANGE;
            let dir = &place.dir;
            if self.can_exchange && rustix::fs::renameat_with(dir, from, dir, to, exchange).is_ok()
            {
                // The temporary name is the old file now; `drop` removes it.
                return Ok(done);
            }
            rustix::fs::renameat(dir, from, dir, to)
        };
        result.map_err(|errno| failed(&self.spec.path, errno))?;
        self.place = None;
        Ok(done)
    }

    /// Reads the content that will be replaced and checks that the caller knows it.
    ///
    /// # Errors
    /// `unseen-content` if it differs from what the caller knows.
    fn known(
        &self,
        known: WritePrecondition,
        later: &mut DeferredCloses,
    ) -> Result<OldContent, Fault> {
        let Some(place) = &self.place else {
            return Ok(OldContent::Nothing);
        };
        let is_free = known == WritePrecondition::Anything;
        let fail = |errno| failed(&self.spec.path, errno);
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&place.dir, &*place.target, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(OldContent::Nothing),
            Err(_) if is_free => return Ok(OldContent::Unshown),
            Err(errno) => return Err(fail(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(fail)?;
        require_regular(&stat, &self.spec.path)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let most = if is_free {
            MAX_OLD_BYTES
        } else {
            MAX_EDIT_BYTES
        };
        let old = if size > most {
            None
        } else {
            read_whole(&file, size, most).map_err(fail)?
        };
        later.close(file);
        let is_known = match (known, &old) {
            (WritePrecondition::Anything, _) => true,
            (_, None) => false,
            (WritePrecondition::Nothing, Some(old)) => {
                old.is_empty() || self.is_written(old).map_err(fail)?
            }
            (WritePrecondition::Digest(digest), Some(old)) => {
                old.is_empty()
                    || *blake3::hash(old).as_bytes() == digest
                    || self.is_written(old).map_err(fail)?
            }
        };
        if !is_known {
            return Err(unseen(&self.spec.path));
        }
        Ok(match old {
            Some(old) if old.len() as u64 <= MAX_OLD_BYTES => {
                OldContent::Content(ByteBuf::from(old))
            }
            _ => OldContent::Unshown,
        })
    }

    /// Returns true if `content` equals what was written.
    fn is_written(&self, content: &[u8]) -> Result<bool, Errno> {
        if content.len() as u64 != self.bytes {
            return Ok(false);
        }
        let mut buffer = vec![0; content.len().min(64 << 10)];
        let mut rest = content;
        while !rest.is_empty() {
            let at = (content.len() - rest.len()) as u64;
            let count = rustix::io::pread(&self.file, &mut buffer, at)?;
            let Some(after) = rest.strip_prefix(&buffer[..count]).filter(|_| count > 0) else {
                return Ok(false);
            };
            rest = after;
        }
        Ok(true)
    }
}

fn unseen(path: &[u8]) -> Fault {
    Fault::refused(
        Code::UnseenContent,
        format!(
            "{} exists with content that was not read in full since it last changed",
            shown(path)
        ),
    )
}

/// Opens the directory of a path and returns it with the last name and the metadata of the present
/// file. `None` if there is no file.
fn look(
    path: &[u8],
    spec: &WriteSpec,
    make_parents: bool,
) -> Result<(OwnedFd, Vec<u8>, Option<Stat>), Fault> {
    let fail = |errno| failed(&spec.path, errno);
    let Some((parent, target)) = split(path) else {
        let message = format!("{} names a directory", shown(&spec.path));
        return Err(Fault::failed(Code::IsDirectory, message));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || rustix::fs::open(parent, flags, Mode::empty());
    let dir = match open() {
        Err(Errno::NOENT) if make_parents => make_all(parent).and_then(|()| open()),
        other => other,
    };
    let dir = dir.map_err(fail)?;
    match rustix::fs::statat(&dir, target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok((dir, target.to_vec(), Some(stat))),
        Err(Errno::NOENT) => Ok((dir, target.to_vec(), None)),
        Err(errno) => Err(fail(errno)),
    }
}

/// Follows symbolic links at the end of an absolute path.
fn resolve(path: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut path = path.to_vec();
    for _ in 0..MAX_LINKS {
        match rustix::fs::lstat(path.as_slice()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                let target = rustix::fs::readlinkat(CWD, path.as_slice(), Vec::new())
                    .map_err(|errno| failed(&path, errno))?
                    .into_bytes();
                let parent = split(&path).map_or(&b"/"[..], |(parent, _)| parent);
                path = super::absolute(parent, &target);
            }
            // A missing target will be created. Any other error appears again at the next step.
            _ => return Ok(path),
        }
    }
    Err(failed(&path, Errno::LOOP))
}

/// Returns a name for a temporary file that is unlikely to exist.
pub(crate) fn temporary_name() -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_nsec;
    format!("{}{next}.{now}", temporary_prefix()).into_bytes()
}

/// Returns the prefix of all temporary names of this process.
pub(crate) fn temporary_prefix() -> String {
    let pid = rustix::process::getpid().as_raw_pid();
    format!(".glovebox.{pid}.")
}

/// Creates a temporary file in `dir` and returns it with its name.
pub(crate) fn temporary_in(dir: &OwnedFd, mode: Mode) -> Result<(OwnedFd, Vec<u8>), Errno> {
    // The first name tried is always the same: the kernel has cached that it does not exist, while
    // for a new name every layer is searched.
    let usual = format!("{}new", temporary_prefix()).into_bytes();
    let names = std::iter::once(usual).chain(std::iter::repeat_with(temporary_name));
    for name in names.take(1000) {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name.as_slice(), flags, mode) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}
