//! What the process gives up before it runs a tool's code. All of it is for good.

use glovebox_jail::compute::{self, ComputeLimits, ConfineError};
use glovebox_js::tool_call::CallLimits;

/// Address space besides the memory of JavaScript: the program, its stack, buffers of a call and its answer.
const OWN_BYTES: u64 = 192 << 20;

/// Sets the limits of the call and puts the filter on this process.
///
/// # Errors
/// When the kernel refuses one of them: the tool must not run then.
pub(super) fn confine(limits: &CallLimits) -> Result<(), ConfineError> {
    compute::confine(ComputeLimits {
        memory_bytes: OWN_BYTES.saturating_add(limits.memory_bytes),
        cpu_s: limits.cpu_ms.div_ceil(1000).max(1),
    })
}
