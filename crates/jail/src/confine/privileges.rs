//! Giving up what a process of the caller's user has beyond its user id.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Gives up all capabilities, the bounding set and, where that is allowed, the supplementary groups, and the way back
/// to any of them.
pub(super) fn drop_all() -> Result<(), Errno> {
    // Root alone may do these two; without a capability there is nothing that they could take away.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The first number the kernel does not know ends the list.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    // With it no program that is executed gets one, whoever owns it.
    rustix::thread::set_no_new_privs(true)
}
