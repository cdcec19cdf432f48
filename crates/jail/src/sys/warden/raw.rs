//! System calls and clone(2) as bare instructions.
//!
//! Code that runs in another process on our address space shares our thread-local storage without
//! owning it. It must not use `errno`, the allocator or any other part of the C library. These
//! functions touch registers only and report errors the way the kernel does (`-errno`).

use core::arch::asm;
use core::sync::atomic::AtomicU32;

/// A system call number or argument as the kernel takes it.
pub(in crate::sys) type Word = usize;

/// Makes one system call. Returns the kernel's result (negative errno).
///
/// # Safety
/// The arguments must be valid for `number`: pointers among them live, of the right type, and
/// writable where the kernel writes.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "one instruction; a call in between would only cost stack"
)]
pub(in crate::sys) unsafe fn syscall(number: i64, args: [Word; 5]) -> isize {
    let [first, second, third, fourth, fifth] = args;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for the arguments; the kernel clobbers rcx and r11 and nothing
    // else, and does not use this stack.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first, in("rsi") second, in("rdx") third,
            in("r10") fourth, in("r8") fifth, in("r9") 0_usize,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; on this architecture only x0 changes.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") first as isize => result,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") 0_usize,
            options(nostack),
        );
    }
    result
}

/// Starts a process that shares this address space at `entry(slot)` on the stack that ends at
/// `stack_top`. Returns its pid, or `-errno`. `tids` are passed as parent_tid and child_tid.
///
/// # Safety
/// `stack_top` must be 16-byte aligned and the end of memory that nothing else uses until the
/// process has left the address space. `entry` must follow the rules of this module and must not
/// return. `slot` and `tids` must outlive the process's stay in the address space. `flags` must
/// contain `CLONE_VM` and neither `CLONE_SETTLS` nor `CLONE_THREAD`.
pub(in crate::sys) unsafe fn clone_onto<S>(
    flags: i32,
    stack_top: *mut u8,
    tids: [&AtomicU32; 2],
    entry: unsafe extern "C" fn(*const S) -> !,
    slot: *const S,
) -> isize {
    let [parent_tid, child_tid] = tids.map(AtomicU32::as_ptr);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: in the parent this is an ordinary system call. In the child rsp is the fresh stack
    // and every other register is a copy; it goes straight to `entry`, which never returns, so it
    // never reaches the code after the block. No stack of the parent is touched.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags as usize, in("rsi") stack_top, in("rdx") parent_tid,
            in("r10") child_tid,
            in("r8") 0_usize, in("r12") entry, in("r13") slot,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above, with sp in place of rsp. The last two arguments are swapped on this
    // architecture: x3 is the unused tls, x4 is child_tid.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x21",
            "blr x20",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone as usize,
            inlateout("x0") flags as isize => result,
            in("x1") stack_top, in("x2") parent_tid, in("x3") 0_usize, in("x4") child_tid,
            in("x20") entry, in("x21") slot,
            lateout("x30") _,
        );
    }
    result
}

/// Continues a child that this process traces because the child asked its parent to
/// (`PTRACE_TRACEME`), and delivers the signal that stopped it. Returns false if this process does
/// not trace the child.
pub(super) fn release_tracee(pid: i32, signal: i32) -> bool {
    // The kernel reports an exec to a debugger by SIGTRAP, which would kill a program that has none
    // (ptrace(2)).
    let signal = if signal == libc::SIGTRAP { 0 } else { signal };
    let args = [
        libc::PTRACE_DETACH as Word,
        pid as Word,
        0,
        signal as Word,
        0,
    ];
    // SAFETY: all arguments are integers.
    unsafe { syscall(libc::SYS_ptrace, args) == 0 }
}

/// Ends the calling process with all its threads (here it has one).
pub(super) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: exit_group(2) takes no pointers and does not return; the loop is for the type.
        unsafe { syscall(libc::SYS_exit_group, [code as Word, 0, 0, 0, 0]) };
    }
}

/// Wakes all processes that wait on `word`, as the kernel does when it clears a tid word.
pub(in crate::sys) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE only uses the address as a key.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as Word,
                libc::FUTEX_WAKE as Word,
                i32::MAX as Word,
                0,
                0,
            ],
        );
    }
}

/// Blocks, within this address space, while `word` is `value`. May return early.
pub(super) fn wait(word: &AtomicU32, value: u32) {
    const PRIVATE_WAIT: Word = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as Word;
    // SAFETY: the kernel reads the word, which lives as long as the reference; no timeout is given.
    unsafe {
        syscall(
            libc::SYS_futex,
            [word.as_ptr() as Word, PRIVATE_WAIT, value as Word, 0, 0],
        );
    }
}
