//! Slots: one lock file for each live sandbox. They bound the number of sandboxes over all
//! processes, and backends derive ids from them that no two live sandboxes may share.

use crate::fault;
use crate::state::layout::Layout;
use glovebox_proto::{Code, Fault};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Leased slot. Free again when it is released or the last copy of its descriptor is closed.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) lock: OwnedFd,
}

impl Slot {
    /// Leases the lowest free slot below `max`. Slots in `avoided` belong to sandboxes that may be
    /// resumed, so they are taken only if no other is free.
    ///
    /// # Errors
    /// `too-many-sandboxes` if none is free.
    pub(crate) fn lease(layout: &Layout, max: u32, avoided: &[u32]) -> Result<Self, Fault> {
        let others = (0..max).filter(|number| !avoided.contains(number));
        for number in others.chain(avoided.iter().copied().filter(|number| *number < max)) {
            if let Some(lock) = take(layout, number)? {
                return Ok(Self { number, lock });
            }
        }
        Err(Fault::refused(
            Code::TooManySandboxes,
            format!("{max} sandboxes are live, as many as `max_sandboxes` allows"),
        )
        .remedy("kill one (`glovebox list`, `glovebox kill NAME`), or raise `max_sandboxes` in glovebox.toml")
        .retryable())
    }

    /// Frees the slot, even if other processes have copies of the descriptor.
    pub(crate) fn release(self) {
        crate::state::sandbox_dir::unlock(&self.lock);
    }

    /// Leases exactly this slot: the layers of a resumed sandbox belong to ids derived from it.
    ///
    /// # Errors
    /// `busy` if another sandbox has it.
    pub(crate) fn lease_again(layout: &Layout, number: u32) -> Result<Self, Fault> {
        match take(layout, number)? {
            Some(lock) => Ok(Self { number, lock }),
            None => Err(Fault::failed(
                Code::Busy,
                "another sandbox uses the ids that the kept layers belong to",
            )
            .remedy("try again when that sandbox has ended (`glovebox list`)")
            .retryable()),
        }
    }
}

fn take(layout: &Layout, number: u32) -> Result<Option<OwnedFd>, Fault> {
    let path = layout.slots().join(number.to_string());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| fault::io("open the slot", &path, errno))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(fault::io("lock the slot", &path, errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_leased_once_and_come_back() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let a = Slot::lease(&layout, 2, &[]).unwrap();
        let b = Slot::lease(&layout, 2, &[]).unwrap();
        assert_eq!((a.number, b.number), (0, 1));
        let fault = Slot::lease(&layout, 2, &[]).unwrap_err();
        assert_eq!(fault.code, Code::TooManySandboxes);
        assert!(fault.remedy.unwrap().to_string().contains("max_sandboxes"));
        a.release();
        assert_eq!(Slot::lease_again(&layout, 1).unwrap_err().code, Code::Busy);
        b.release();
        let again = Slot::lease_again(&layout, 1).unwrap();
        assert_eq!(again.number, 1);
        again.release();
        let other = Slot::lease(&layout, 2, &[0, 7]).unwrap();
        assert_eq!(other.number, 1);
        assert_eq!(Slot::lease(&layout, 2, &[0, 7]).unwrap().number, 0);
    }
}
