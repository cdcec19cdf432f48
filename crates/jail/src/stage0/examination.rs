//! Self-test, the last step of a start: the child reads back its state and tries what must fail.

use super::SelfTest;
use crate::sys::{ids, once};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketType};

/// Tries what must fail, and reads back what must hold. [`super::observation`] reads what comes
/// from `/proc`. With `is_nested` user namespaces are allowed; a trial would create one, so it is
/// skipped.
pub(super) fn examine(landlock_abi: u32, is_nested: bool) -> SelfTest {
    let caps = rustix::thread::capabilities(None).ok();
    let mut bounding = 0_u64;
    for bit in 0..u64::BITS {
        let cap = rustix::thread::CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::capability_is_in_bounding_set(cap) {
            Ok(true) => bounding |= 1 << bit,
            Ok(false) => {}
            // The first number that the kernel does not know ends the list.
            Err(Errno::INVAL) if bit > 0 => break,
            Err(_) => {
                bounding = u64::MAX;
                break;
            }
        }
    }
    let user_ids = ids::user_ids();
    let vsock = AddressFamily::from_raw(libc::AF_VSOCK as _);
    SelfTest {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid: user_ids[3],
        user_ids,
        gid: rustix::process::getegid().as_raw(),
        cap_effective: caps.map_or(u64::MAX, |sets| sets.effective.bits()),
        cap_permitted: caps.map_or(u64::MAX, |sets| sets.permitted.bits()),
        cap_bounding: bounding,
        no_new_privs: rustix::thread::no_new_privs().unwrap_or(false),
        seccomp_mode: seccomp_mode(),
        landlock_abi,
        mount_denied: rustix::mount::mount("none", "/tmp", "tmpfs", MountFlags::empty(), None)
            .is_err(),
        vsock_denied: rustix::net::socket(vsock, SocketType::STREAM, None).is_err(),
        userns_denied: !is_nested && once::try_user_namespace().is_err(),
        cwd: std::env::current_dir()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        ..SelfTest::default()
    }
}

/// Returns the seccomp mode. The filter itself answers `prctl(PR_GET_SECCOMP)`, but not a read of
/// `/proc`.
fn seccomp_mode() -> u32 {
    use rustix::thread::SecureComputingMode as Mode;
    match rustix::thread::secure_computing_mode() {
        Ok(Mode::Filter) => 2,
        Ok(Mode::Strict) => 1,
        _ => 0,
    }
}
