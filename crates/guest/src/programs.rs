//! Programs sent by the host: sealed files in memory, which have no name that a command could
//! replace, and no content that it could change.
//!
//! They can be executed but not read, so the kernel makes a process that runs one of them
//! inaccessible to other processes of its user id from its first instruction on: none can read its
//! memory, descriptors or environment (`proc_pid_mem(5)`, ptrace access mode checking in
//! `ptrace(2)`).

use crate::fault;
use glovebox_jail::memory_program;
use glovebox_proto::{Code, Fault};
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of programs; beyond, the oldest is dropped.
const MAX_PROGRAMS: usize = 4;
/// Execute permission for all users, and nothing else.
const EXECUTE_ONLY: Mode = Mode::XUSR.union(Mode::XGRP).union(Mode::XOTH);

/// Programs of one guest, by name.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    held: Mutex<VecDeque<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl Programs {
    /// Creates an empty file in memory, to be written and then passed to [`Self::keep`].
    ///
    /// # Errors
    /// [`Code::Unsupported`] if the kernel forbids programs in memory.
    pub(crate) fn create() -> Result<OwnedFd, Fault> {
        let made = memory_program::create(c"glovebox-program");
        made.map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Fault::failed(
                Code::Unsupported,
                "this machine lets no program run from memory",
            )
            .remedy("if `sysctl vm.memfd_noexec` is 2, set it to 1 or 0"),
            errno => fault::system(errno, "cannot make a program in memory"),
        })
    }

    /// Seals a written program and stores it under a name. After that it cannot be changed.
    pub(crate) fn keep(&self, name: Vec<u8>, file: OwnedFd) -> Result<(), Fault> {
        let failed = |errno| fault::system(errno, "cannot seal a program in memory");
        rustix::fs::fchmod(&file, EXECUTE_ONLY).map_err(failed)?;
        memory_program::seal(&file).map_err(failed)?;
        let mut held = self.held();
        held.retain(|(known, _)| *known != name);
        if held.len() >= MAX_PROGRAMS {
            held.pop_front();
        }
        held.push_back((name, Arc::new(file)));
        Ok(())
    }

    /// Returns the program of this name.
    ///
    /// # Errors
    /// [`Code::NotFound`] if the host has not sent it, or has sent too many others since.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Arc<OwnedFd>, Fault> {
        let held = self.held();
        let found = held.iter().find(|(known, _)| *known == name);
        found.map(|(_, file)| Arc::clone(file)).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Fault::failed(Code::NotFound, format!("there is no program `{name}` here"))
        })
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, Arc<OwnedFd>)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_kept_cannot_be_changed_and_the_oldest_goes() {
        let programs = Programs::default();
        for number in 0..=MAX_PROGRAMS as u8 {
            let file = Programs::create().unwrap();
            assert_eq!(rustix::io::write(&file, b"text"), Ok(4));
            programs.keep(vec![number], file).unwrap();
            let kept = programs.find(&[number]).unwrap();
            assert_eq!(rustix::io::write(&kept, b"more"), Err(Errno::PERM));
            assert_eq!(rustix::fs::ftruncate(&kept, 0), Err(Errno::PERM));
            let mode = rustix::fs::fstat(&kept).unwrap().st_mode & 0o777;
            assert_eq!(mode, 0o111);
        }
        assert_eq!(programs.find(&[0]).unwrap_err().code, Code::NotFound);
        assert!(programs.find(&[1]).is_ok());
    }
}
