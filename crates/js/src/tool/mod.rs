//! Call of a bundle's tool: reads the call, writes its log and its value or error, and ends the
//! program.
//!
//! ```text
//! confine        kernel limits and a filter under which the process can only compute
//! output         frames out: log records up to a limit, and one result
//! fetches        requests that the host makes, and their responses
//! machine        runtime: modules, the loop of jobs, timers and responses, errors
//!   host         native functions, which `surroundings.js` and `modules` are built on
//! ```
//!
//! The runtime is made for this call and never used for another. The code around the tool is loaded
//! before the process is confined, and the tool's code runs afterwards. The host does not trust the
//! messages that it receives from then on.

mod confine;
mod fetches;
mod host;
mod machine;
mod output;

use glovebox_js::tool_call::{CallError, CallErrorKind, MAX_CALL_BYTES, ToolCall};
use machine::Machine;
use output::Output;
use std::io::Read as _;
use std::process::ExitCode;

/// Answers the call that arrives on standard input.
pub(crate) fn answer() -> ExitCode {
    let Some(call) = read_call() else {
        return ExitCode::FAILURE;
    };
    let output = Output::new(&call.limits);
    let machine = match Machine::new(&call, &output) {
        Ok(machine) => machine,
        Err(error) => {
            output.fail(internal(&format!("no runtime: {error}")));
            return ExitCode::FAILURE;
        }
    };
    // Confinement comes after the runtime, which reads files, and before the tool's code, which is
    // untrusted.
    if let Err(error) = confine::confine(&call.limits) {
        output.fail(internal(&format!("the tool cannot be confined: {error}")));
        return ExitCode::FAILURE;
    }
    machine.run(&call);
    // Dropping the runtime would take time and free memory that the kernel frees anyway.
    std::mem::forget(machine);
    ExitCode::SUCCESS
}

/// Reads the frame with the call. Bytes behind it stay unread. `None` if the frame is invalid or
/// too large.
fn read_call() -> Option<ToolCall> {
    let mut input = std::io::stdin().lock();
    let mut length = [0; 4];
    input.read_exact(&mut length).ok()?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_CALL_BYTES {
        return None;
    }
    let mut frame = vec![0; length];
    input.read_exact(&mut frame).ok()?;
    serde_json::from_slice(&frame).ok()
}

fn internal(message: &str) -> CallError {
    CallError {
        kind: CallErrorKind::Memory,
        name: String::new(),
        message: message.to_owned(),
        stack: String::new(),
    }
}
