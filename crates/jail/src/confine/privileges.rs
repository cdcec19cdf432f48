//! Dropping of the privileges that a process has beyond its user id.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Drops all capabilities, the bounding set and, where that is allowed, the supplementary groups.
/// None of them can be regained.
pub(super) fn drop_all() -> Result<(), Errno> {
    // Only a privileged process may drop groups and the bounding set; for others the refusal is no
    // error.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The first number that the kernel does not know ends the list.
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
    // Without this, a set-user-id program would regain privileges on exec.
    rustix::thread::set_no_new_privs(true)
}
