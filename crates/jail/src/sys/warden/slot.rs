//! Memory that guest, warden and pre-exec command share: one [`Slot`], and two stacks.

use super::LimitEntry;
use crate::identity::Separation;
use crate::processors::Mask;
use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicU32};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Stack size for the code between clone and exec; a few KiB are used, more in debug builds.
const COMMAND_STACK_BYTES: usize = 32 << 10;
/// Size of the warden's stack and the slot.
const WARDEN_STACK_BYTES: usize = 32 << 10;

/// `phase`: there is no order yet.
pub(super) const WAITING: u32 = 0;
/// `phase`: the order is written.
pub(super) const ORDERED: u32 = 1;
/// `phase`: the pre-exec command has read the order.
pub(super) const TAKEN: u32 = 2;

/// `inside`: the command is in our memory, or has yet to be made.
const INSIDE: u32 = 1;
/// `inside`: the command has left our memory, or could not be made.
pub(super) const LEFT: u32 = 0;

/// `ended`: the command has not ended.
pub(super) const NOT_ENDED: u32 = 0;
/// `ended`: the command has ended, and other processes of it are left.
pub(super) const ENDED_OTHERS_LEFT: u32 = 1;
/// `ended`: the command has ended, and none of its processes is left.
pub(super) const ENDED_EMPTY: u32 = 2;

/// Settings that warden and pre-exec command receive when they are started.
#[derive(Debug, Clone, Copy)]
pub(super) struct WardenSetup {
    /// Pid of the guest.
    pub(super) guest: i32,
    /// Descriptor to which the warden writes its own pid, four bytes, when the command has ended or
    /// was stopped.
    pub(super) bell: i32,
    /// Landlock ruleset, or -1.
    pub(super) landlock: i32,
    /// The controlling terminal of warden and command, or -1. It stays open while the command
    /// exists.
    pub(super) terminal: i32,
    /// True if the command is in the terminal's foreground from the start.
    pub(super) is_foreground: bool,
    pub(super) separation: Separation,
    /// True if the command gets two filters more than the guest has.
    pub(super) is_nested: bool,
    /// Processors that the command starts on. `None` for all.
    pub(super) processors: Option<Mask>,
}

/// An [`super::Order`] without lifetimes, which the other processes can read.
pub(super) struct RawOrder {
    pub(super) argv: *const *const c_char,
    pub(super) env: *const *const c_char,
    pub(super) candidates: *const *const c_char,
    /// A descriptor, or -1.
    pub(super) program: i32,
    pub(super) shell_argv: *mut *const c_char,
    pub(super) cwd: *const c_char,
    pub(super) stdio: [i32; 3],
    /// Sources and target numbers of further descriptors, sorted by number. No source has one of
    /// the numbers.
    pub(super) descriptors: *const [i32; 2],
    pub(super) descriptor_count: usize,
    pub(super) limits: *const LimitEntry,
    pub(super) limit_count: usize,
    /// File mode creation mask; negative for that of the guest.
    pub(super) umask: i32,
}

impl RawOrder {
    /// Returns the placeholder before an order is written. No process reads it.
    const fn none() -> Self {
        Self {
            argv: core::ptr::null(),
            env: core::ptr::null(),
            candidates: core::ptr::null(),
            program: -1,
            shell_argv: core::ptr::null_mut(),
            cwd: core::ptr::null(),
            stdio: [-1; 3],
            descriptors: core::ptr::null(),
            descriptor_count: 0,
            limits: core::ptr::null(),
            limit_count: 0,
            umask: -1,
        }
    }
}

/// Memory shared with one warden and with its command until the command has left the address space.
pub(super) struct Slot {
    pub(super) terms: WardenSetup,
    pub(super) command_stack_top: *mut u8,
    /// [`WAITING`], [`ORDERED`] or [`TAKEN`]. The pre-exec command waits on it.
    pub(super) phase: AtomicU32,
    /// Written by the guest before [`ORDERED`], read by the command afterwards.
    pub(super) order: UnsafeCell<RawOrder>,
    /// Pid of the warden. Set before the warden makes its child.
    pub(super) warden: AtomicI32,
    /// Pid of the command. The kernel writes it before the command runs.
    pub(super) command: AtomicU32,
    /// [`INSIDE`], then [`LEFT`], which the kernel writes. The guest waits on it.
    pub(super) inside: AtomicU32,
    pub(super) failed_stage: AtomicU32,
    pub(super) failed_errno: AtomicI32,
    /// Signal that stopped the command and that the guest has not read yet; 0 for none.
    pub(super) stop: AtomicI32,
    /// [`NOT_ENDED`], [`ENDED_OTHERS_LEFT`] or [`ENDED_EMPTY`]; `outcome` is readable after the
    /// latter two.
    pub(super) ended: AtomicU32,
    pub(super) outcome: UnsafeCell<RawOutcome>,
}

impl Slot {
    pub(super) const fn new(terms: WardenSetup, command_stack_top: *mut u8) -> Self {
        Self {
            terms,
            command_stack_top,
            phase: AtomicU32::new(WAITING),
            order: UnsafeCell::new(RawOrder::none()),
            warden: AtomicI32::new(0),
            command: AtomicU32::new(0),
            inside: AtomicU32::new(INSIDE),
            failed_stage: AtomicU32::new(0),
            failed_errno: AtomicI32::new(0),
            stop: AtomicI32::new(0),
            ended: AtomicU32::new(NOT_ENDED),
            outcome: UnsafeCell::new(RawOutcome {
                status: 0,
                // SAFETY: a C struct of integers, for which all zeroes is a value.
                usage: unsafe { core::mem::zeroed() },
                ended: libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
            }),
        }
    }
}

/// Result of a command as the warden received it from the kernel.
#[derive(Clone, Copy)]
pub(super) struct RawOutcome {
    pub(super) status: i32,
    pub(super) usage: libc::rusage,
    pub(super) ended: libc::timespec,
}

/// Memory for one warden at a time: a guard page, the command's stack, the warden's stack, the
/// slot.
#[derive(Debug)]
pub(crate) struct Stack {
    base: NonNull<u8>,
    bytes: usize,
}

impl Stack {
    pub(crate) fn new() -> Result<Self, Errno> {
        let guard = rustix::param::page_size();
        let bytes = guard + COMMAND_STACK_BYTES + WARDEN_STACK_BYTES;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing,
        // and the guard page is its own first page.
        let base = unsafe {
            let base = rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
            )?;
            rustix::mm::mprotect(base, guard, MprotectFlags::empty())?;
            base
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// The slot at the upper end; the warden's stack grows down from it.
    pub(super) fn slot(&self) -> *mut Slot {
        let end = self.bytes - size_of::<Slot>();
        let offset = end & !(align_of::<Slot>().max(16) - 1);
        // SAFETY: the offset is inside the mapping, and aligned as the base is page-aligned.
        unsafe { self.base.as_ptr().add(offset).cast() }
    }

    pub(super) fn command_stack_top(&self) -> *mut u8 {
        // SAFETY: inside the mapping: the warden's part lies above.
        unsafe { self.base.as_ptr().add(self.bytes - WARDEN_STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: a `Stack` that is dropped is not in use (`Warden` never drops its own), and
        // nothing else refers to the mapping. An error would leave it mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
