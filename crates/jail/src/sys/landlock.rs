//! The two Landlock calls that no crate offers in the form needed here: querying the ABI version,
//! and restricting the calling thread by a ruleset descriptor without allocating, panicking or
//! touching thread-local storage, so that a child sharing our address space may do it.
#![expect(
    unsafe_code,
    reason = "raw landlock(7) system calls; rustix does not wrap them and libc::syscall writes errno"
)]

use std::arch::asm;
use std::os::fd::RawFd;

/// `LANDLOCK_CREATE_RULESET_VERSION` of landlock_create_ruleset(2).
const CREATE_RULESET_VERSION: usize = 1;

/// Makes a system call with up to three arguments. Returns the result in the kernel's own form
/// (negative errno).
#[inline]
fn call3(number: usize, first: usize, second: usize, third: usize) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only the two calls below use this, and neither writes to memory of this process:
    // one is given a null attribute pointer, the other has no pointers at all. The clobbers are
    // those of the x86_64 system call convention.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; `svc 0` preserves everything but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first as isize => result,
            in("x1") second,
            in("x2") third,
            options(nostack),
        );
    }
    result
}

/// Returns the ABI version of the running kernel; 0 if Landlock is not built in or not enabled.
pub(crate) fn abi_version() -> u32 {
    let version = call3(
        libc::SYS_landlock_create_ruleset as usize,
        0,
        0,
        CREATE_RULESET_VERSION,
    );
    // Errors are ENOSYS (not built in, or filtered) and EOPNOTSUPP (built in, not enabled at boot).
    u32::try_from(version).unwrap_or(0)
}

/// Restricts the calling thread by `ruleset`. Returns 0 or a negative errno
/// (landlock_restrict_self(2)).
///
/// Requires `no_new_privs`. Safe to call in a vfork child: no allocation, no errno, no panic.
#[inline]
pub(crate) fn restrict_self_raw(ruleset: RawFd) -> i32 {
    call3(
        libc::SYS_landlock_restrict_self as usize,
        ruleset as usize,
        0,
        0,
    ) as i32
}
