//! One call of a bundle's tool: a call in, its log and its value or error out, and the end of the program.
//!
//! ```text
//! confine        limits of the kernel and a filter under which the process can only compute
//! output         frames out: log records up to a bound, and one answer
//! fetches        requests that the host makes, and their answers in
//! machine        the runtime: modules, the loop of jobs, timers and answers, what an exception is called
//!   host         the program's own functions, which `surroundings.js` and `modules` are built on
//! ```
//!
//! The runtime is made for this call and never used for another. What the tool has around it is loaded before the
//! process is confined, and the tool's code comes after. Whatever that code does, what reaches the host is bytes.

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

/// Answers the call that comes on standard input.
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
    if let Err(error) = confine::confine(&call.limits) {
        output.fail(internal(&format!("the tool cannot be confined: {error}")));
        return ExitCode::FAILURE;
    }
    machine.run(&call);
    // Taking the runtime apart is work that nobody waits for: its memory goes with the process.
    std::mem::forget(machine);
    ExitCode::SUCCESS
}

/// The frame with the call, and nothing that comes after it.
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
