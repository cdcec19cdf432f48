//! Bounded unnamed file for the part of a log that does not fit into memory.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Unlinked file; closing its last descriptor removes it.
#[derive(Debug)]
pub(crate) struct Spill {
    file: OwnedFd,
    len: u64,
}

impl Spill {
    /// Creates a file in `dir`. `None` if that fails: the log then keeps only head and tail.
    pub(crate) fn create(dir: &[u8]) -> Option<Self> {
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed = rustix::fs::open(dir, flags | OFlags::TMPFILE, mode);
        let file = match unnamed {
            Ok(file) => file,
            // Some file systems (overlayfs before Linux 6.3) do not support O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                let mut path = dir.to_vec();
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let (pid, at) = (rustix::process::getpid().as_raw_pid(), now.tv_nsec);
                path.extend_from_slice(format!("/.glovebox-log.{pid}.{at}").as_bytes());
                let file =
                    rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode).ok()?;
                rustix::fs::unlink(&path).ok()?;
                file
            }
            Err(_) => return None,
        };
        Some(Self { file, len: 0 })
    }

    /// Returns the number of bytes written.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes and returns how many the file system accepted.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(&self.file, rest, self.len) {
                Ok(0) => break,
                Ok(count) => {
                    done += count;
                    self.len += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        done
    }

    /// Returns a second reader of the present bytes; later ones are not included. `None` if no
    /// descriptor is available.
    pub(crate) fn share(&self) -> Option<Self> {
        let file = rustix::io::fcntl_dupfd_cloexec(&self.file, 0).ok()?;
        Some(Self {
            file,
            len: self.len,
        })
    }

    /// Reads up to `wanted` bytes from `at` on; fewer after an error.
    pub(crate) fn read(&self, at: u64, wanted: usize) -> Vec<u8> {
        let mut bytes = vec![0; wanted];
        let mut done = 0;
        while done < wanted {
            match rustix::io::pread(&self.file, &mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        bytes.truncate(done);
        bytes
    }
}
