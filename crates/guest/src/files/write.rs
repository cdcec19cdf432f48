//! Writing a file in steps: into a new file beside the target that takes its place at the end, so
//! that readers see the old content or the new and never half of either.

use super::{make_all, require_regular, shown, split};
use crate::fault;
use glovebox_proto::{Code, Fault, Reply, WriteMode};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many symbolic links may lead to the target, as in the kernel.
const MAX_LINKS: usize = 40;

/// What to write where.
#[derive(Debug)]
pub(crate) struct WriteSpec {
    /// Absolute.
    pub(crate) path: Vec<u8>,
    /// What to do about what is there.
    pub(crate) mode: WriteMode,
    /// Permission bits of a new file.
    pub(crate) permissions: u32,
    /// Make missing parents.
    pub(crate) make_parents: bool,
}

/// A file being written. Dropping it before [`Sink::commit`] leaves no trace (of an append: what
/// was appended so far).
#[derive(Debug)]
pub(crate) struct Sink {
    file: OwnedFd,
    place: Option<Place>,
    spec: WriteSpec,
    is_new: bool,
    bytes: u64,
}

/// Where a replacement is and where it will go.
#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    temporary: Vec<u8>,
    target: Vec<u8>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let _ = rustix::fs::unlinkat(&place.dir, place.temporary.as_slice(), AtFlags::empty());
        }
    }
}

fn failed(path: &[u8], errno: Errno) -> Fault {
    fault::file(errno, &format!("cannot write {}", shown(path)))
}

impl Sink {
    /// Opens what is written to.
    pub(crate) fn open(spec: WriteSpec) -> Result<Self, Fault> {
        let fail = |errno| failed(&spec.path, errno);
        if spec.make_parents
            && let Some((parent, _)) = split(&spec.path)
        {
            make_all(parent).map_err(fail)?;
        }
        match spec.mode {
            WriteMode::Append => Self::append(spec),
            WriteMode::Replace | WriteMode::CreateNew => Self::replace(spec),
        }
    }

    fn append(spec: WriteSpec) -> Result<Self, Fault> {
        let fail = |errno| failed(&spec.path, errno);
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(spec.permissions & 0o7777);
        let (file, is_new) = match rustix::fs::stat(spec.path.as_slice()) {
            Ok(stat) => {
                require_regular(&stat, &spec.path)?;
                (
                    rustix::fs::open(spec.path.as_slice(), flags, Mode::empty()).map_err(fail)?,
                    false,
                )
            }
            Err(Errno::NOENT) => {
                let flags = flags | OFlags::CREATE;
                let file = rustix::fs::open(spec.path.as_slice(), flags, mode).map_err(fail)?;
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
            bytes: 0,
        })
    }

    fn replace(spec: WriteSpec) -> Result<Self, Fault> {
        let fail = |errno| failed(&spec.path, errno);
        let is_exclusive = spec.mode == WriteMode::CreateNew;
        // A link is written through, as an editor would, and not replaced by a file.
        let path = if is_exclusive {
            spec.path.clone()
        } else {
            resolve(&spec.path)?
        };
        let Some((parent, target)) = split(&path) else {
            let message = format!("{} names a directory", shown(&spec.path));
            return Err(Fault::failed(Code::IsDirectory, message));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent, flags, Mode::empty()).map_err(fail)?;
        let old = match rustix::fs::statat(&dir, target, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if is_exclusive => return Err(fail(Errno::EXIST)),
            Ok(stat) => {
                require_regular(&stat, &spec.path)?;
                Some(stat)
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(fail(errno)),
        };
        let permissions = old.as_ref().map_or(spec.permissions, |stat| stat.st_mode) & 0o7777;
        let private = Mode::RUSR | Mode::WUSR;
        let (file, temporary) = temporary_in(&dir, private).map_err(fail)?;
        let sink = Self {
            file,
            place: Some(Place {
                dir,
                temporary,
                target: target.to_vec(),
            }),
            is_new: old.is_none(),
            spec,
            bytes: 0,
        };
        // From here on an error removes the temporary file.
        rustix::fs::fchmod(&sink.file, Mode::from_raw_mode(permissions))
            .map_err(|errno| failed(&sink.spec.path, errno))?;
        Ok(sink)
    }

    /// Adds bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
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

    /// Puts the file in its place.
    pub(crate) fn commit(mut self) -> Result<Reply, Fault> {
        let done = Reply::Written {
            bytes: self.bytes,
            is_new: self.is_new,
        };
        let Some(place) = &self.place else {
            return Ok(done);
        };
        let (from, to) = (place.temporary.as_slice(), place.target.as_slice());
        let result = if self.spec.mode == WriteMode::CreateNew {
            match rustix::fs::renameat_with(
                &place.dir,
                from,
                &place.dir,
                to,
                RenameFlags::NOREPLACE,
            ) {
                // Not every file system can; a hard link refuses an existing name as well. The
                // temporary name is then removed by `drop`.
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
            rustix::fs::renameat(&place.dir, from, &place.dir, to)
        };
        result.map_err(|errno| failed(&self.spec.path, errno))?;
        self.place = None;
        Ok(done)
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
            // Missing is fine: it will be made. Anything else shows up again at the next step.
            _ => return Ok(path),
        }
    }
    Err(failed(&path, Errno::LOOP))
}

/// A name in some directory that hardly anybody uses.
pub(crate) fn temporary_name() -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = rustix::process::getpid().as_raw_pid();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_nsec;
    format!(".glovebox.{pid}.{next}.{now}").into_bytes()
}

/// A new file with a name nobody uses.
pub(crate) fn temporary_in(dir: &OwnedFd, mode: Mode) -> Result<(OwnedFd, Vec<u8>), Errno> {
    for _ in 0..1000 {
        let name = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, name.as_slice(), flags, mode) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}
