//! Change of ids and dropping of capabilities, neither of which can be undone.

use crate::sys::ids;
use glovebox_spec::GUEST_UID;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// Takes on id 0 of the new user namespace during set-up, keeping its capabilities.
///
/// Files made during set-up must belong to an id that exists inside; the caller's own id does not.
pub(crate) fn become_setup_root() -> Result<(), Errno> {
    become_user(0, 0)
}

/// Gives up the supplementary groups of the caller.
pub(crate) fn leave_groups() -> Result<(), Errno> {
    rustix::thread::set_thread_groups(&[])
}

fn become_user(uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Mechanism that keeps commands from controlling when and where the guest and its wardens run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Separation {
    /// None: the guest is an ordinary process of its user, outside of any sandbox.
    #[default]
    None,
    /// Commands run under this user id. The guest and its wardens have another one, [`GUEST_UID`].
    UserId(u32),
    /// All processes have one user id, so commands run under [`crate::seccomp::Profile::SameUser`].
    Filter,
}

/// The only capability that the guest and its wardens keep. It permits signals to commands of
/// another user id. It does not survive exec, so a process that has it belongs to the guest
/// (`CapPrm` of proc_pid_status(5)).
pub(crate) const GUEST_CAPABILITY: CapabilitySet = CapabilitySet::KILL;

/// Gives up every capability except [`GUEST_CAPABILITY`] for good and becomes the user of the
/// guest.
///
/// Afterwards the bounding, inheritable and ambient sets are empty, no exec can gain a capability
/// (`no_new_privs`, `SECBIT_NOROOT`), and other processes of the same user cannot reach the
/// process's memory and `/proc` entries. With `has_ids` the real and effective user ids are
/// [`GUEST_UID`], which no command can have: the kernel compares them when a process changes the
/// scheduling of this one. The saved id and that of file operations are `uid`, so that a pre-exec
/// child can take it on.
pub(crate) fn drop_privileges(uid: u32, gid: u32, has_ids: bool) -> Result<Separation, Errno> {
    use CapabilitiesSecureBits as Bits;
    // This comes before any change of ids: without NO_SETUID_FIXUP the change from user id 0 would
    // clear the capabilities (capabilities(7)). The secure bits and the bounding set need
    // CAP_SETPCAP, so the capabilities are given up later.
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
            // The first number that the kernel does not know ends the list.
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
    // This comes after the changes of ids, each of which resets the attribute.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(if is_apart {
        Separation::UserId(uid)
    } else {
        Separation::Filter
    })
}

/// Takes on the ids of the guest. Returns false if all processes have to share one id after all.
fn become_guest(uid: u32, gid: u32) -> Result<bool, Errno> {
    let (own, gid) = (Uid::from_raw(GUEST_UID), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(own, own, Uid::from_raw(uid))?;
    // The kernel resets the dumpable attribute to the machine's `fs.suid_dumpable` whenever an
    // effective id changes. If that is 1, every change of ids opens the memory of a process to
    // others of its user, and the pre-exec child changes its ids while it runs on our memory. So
    // the ids are given up again.
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
