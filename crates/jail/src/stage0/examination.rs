//! The last step of a start: the child looks at itself, and tries what must fail.

use super::SelfTest;
use crate::sys::once;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SocketType};

/// Tries what must fail, and reads back what must hold.
pub(super) fn examine(landlock_abi: u32) -> SelfTest {
    let caps = rustix::thread::capabilities(None).ok();
    let bounding = (0..u64::BITS).fold(0_u64, |set, bit| {
        let cap = rustix::thread::CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::capability_is_in_bounding_set(cap) {
            Ok(true) => set | (1 << bit),
            _ => set,
        }
    });
    let vsock = AddressFamily::from_raw(libc::AF_VSOCK as _);
    SelfTest {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        uid: rustix::process::geteuid().as_raw(),
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
        userns_denied: once::try_user_namespace().is_err(),
        max_user_namespaces: std::fs::read_to_string("/proc/sys/user/max_user_namespaces")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        open_fds: open_fds(),
        cwd: std::env::current_dir()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
        unset_bounds: Vec::new(),
        timings_us: Vec::new(),
    }
}

/// `prctl(PR_GET_SECCOMP)` would be answered by the filter itself; `/proc` is not.
fn seccomp_mode() -> u32 {
    use rustix::thread::SecureComputingMode as Mode;
    match rustix::thread::secure_computing_mode() {
        Ok(Mode::Filter) => 2,
        Ok(Mode::Strict) => 1,
        _ => 0,
    }
}

fn open_fds() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut fds: Vec<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    // The last one is the directory being read.
    fds.pop();
    fds
}
