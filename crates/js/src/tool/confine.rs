//! What the process gives up before it runs a tool's code. All of it is for good.

use glovebox_jail::seccomp::{self, Profile};
use glovebox_js::tool_call::CallLimits;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space besides the memory of JavaScript: the program, its stack, buffers of a call and its answer.
const OWN_BYTES: u64 = 192 << 20;

/// Sets the limits and puts the filter on this process.
///
/// # Errors
/// When the kernel refuses one of them: the tool must not run then.
pub(super) fn confine(limits: &CallLimits) -> Result<(), String> {
    let cpu_s = limits.cpu_ms.div_ceil(1000).max(1);
    let memory = OWN_BYTES.saturating_add(limits.memory_bytes);
    let bounds = [
        // SIGXCPU tells the host which limit it was; one second later SIGKILL does not ask.
        (Resource::Cpu, cpu_s, cpu_s + 1),
        (Resource::As, memory, memory),
        (Resource::Fsize, 0, 0),
        // Standard input, output and error are open; nothing else can be.
        (Resource::Nofile, 3, 3),
        (Resource::Nproc, 0, 0),
        (Resource::Core, 0, 0),
    ];
    for (resource, soft, hard) in bounds {
        let wanted = Rlimit {
            current: Some(soft),
            maximum: Some(hard),
        };
        setrlimit(resource, wanted).map_err(|error| format!("{resource:?}: {error}"))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
    seccomp::install(Profile::Compute).map_err(|error| error.to_string())
}
