//! Becoming nobody in particular: ids, capabilities, and no way back to either.

use crate::sys::ids;
use glovebox_spec::GUEST_UID;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// Takes on id 0 of the new user namespace for the time of the set-up, keeping its capabilities.
///
/// Files made during set-up must belong to an id that exists inside; the caller's own does not.
pub(crate) fn become_setup_root() -> Result<(), Errno> {
    become_user(0, 0)
}

/// Leaves the supplementary groups of the caller.
pub(crate) fn leave_groups() -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])
}

fn become_user(uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// What keeps commands from steering the guest and its wardens: changing when and where they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Separation {
    /// Nothing: the guest is an ordinary process of its user, outside of any sandbox.
    #[default]
    None,
    /// Commands run under this user id. The guest and its wardens have another one, [`GUEST_UID`].
    UserId(u32),
    /// There is one user id for all, so commands run under [`crate::seccomp::Profile::SameUser`].
    Filter,
}

/// The one capability the guest and its wardens keep: signals to commands of another user id. It does not
/// outlive an exec, so whoever has it is ours (`CapPrm` of proc_pid_status(5)).
pub(crate) const GUEST_CAPABILITY: CapabilitySet = CapabilitySet::KILL;

/// Gives up every capability but [`GUEST_CAPABILITY`] for good and becomes the user of the guest.
///
/// Afterwards: the bounding, inheritable and ambient sets are empty, no exec can gain any capability
/// (`no_new_privs`, `SECBIT_NOROOT`), and the process's memory and `/proc` entries are closed to its equals.
/// With `has_ids` the real and effective user ids are [`GUEST_UID`], which no command can have: the kernel
/// compares them when somebody changes the scheduling of this process. The saved id is `uid`, so that the
/// child that becomes a command can take it on, and so is that of file operations.
pub(crate) fn drop_privileges(uid: u32, gid: u32, has_ids: bool) -> Result<Separation, Errno> {
    use CapabilitiesSecureBits as Bits;
    rustix::thread::set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::NO_CAP_AMBIENT_RAISE
            | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    for bit in 0..u64::BITS {
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(
            1 << bit,
        )) {
            Ok(()) => {}
            // The first number the kernel does not know ends the list.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let is_apart = has_ids && become_guest(uid, gid)?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: GUEST_CAPABILITY,
            permitted: GUEST_CAPABILITY,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(if is_apart {
        Separation::UserId(uid)
    } else {
        Separation::Filter
    })
}

/// Takes on the ids of the guest; `false` when there is to be one id for all after all.
fn become_guest(uid: u32, gid: u32) -> Result<bool, Errno> {
    let (own, gid) = (Uid::from_raw(GUEST_UID), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(own, own, Uid::from_raw(uid))?;
    // The kernel has just set this anew, as it does whenever an effective id changes: to the machine's
    // `fs.suid_dumpable`. Where that is 1 every change of ids opens the memory of a process to its equals,
    // and the child that becomes a command changes its own while it is on our memory.
    if rustix::process::dumpable_behavior()? == DumpableBehavior::Dumpable {
        become_user(uid, gid.as_raw())?;
        return Ok(false);
    }
    if ids::set_file_user_id(uid) {
        Ok(true)
    } else {
        Err(Errno::PERM)
    }
}
