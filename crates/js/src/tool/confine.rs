//! Confinement of the process before it runs a tool's code. It cannot be undone.

use glovebox_jail::compute::{self, ComputeLimits, ConfineError};
use glovebox_js::tool_call::CallLimits;

/// Address space besides the memory of JavaScript, in bytes: program, stack, buffers of the call
/// and its result.
const OWN_BYTES: u64 = 192 << 20;

/// Sets the kernel limits of the call and installs the system call filter.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses one of them. The tool must not run then.
pub(super) fn confine(limits: &CallLimits) -> Result<(), ConfineError> {
    compute::confine(ComputeLimits {
        memory_bytes: OWN_BYTES.saturating_add(limits.memory_bytes),
        cpu_s: limits.cpu_ms.div_ceil(1000).max(1),
    })
}
