//! Becoming nobody in particular: ids, capabilities, and no way back to either.

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

/// Gives up every capability for good and becomes the sandbox user.
///
/// Afterwards: all five capability sets are empty, no exec can gain any (`no_new_privs`,
/// `SECBIT_NOROOT`), and the process's memory and `/proc` entries are closed to its equals.
pub(crate) fn drop_everything(uid: u32, gid: u32, has_ids: bool) -> Result<(), Errno> {
    use CapabilitiesSecureBits as Bits;
    rustix::thread::set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::KEEP_CAPS_LOCKED
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
    if has_ids {
        become_user(uid, gid)?;
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
