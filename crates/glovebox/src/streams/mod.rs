//! Carrying one command's streams between this process and a sandbox.
//!
//! In: an open sandbox, a request, and what to do with input and output. Out: how it ended. Three
//! threads: this one receives and writes, one reads standard input, one turns signals into requests.
//! Each blocks on its own side only, and the credit of the wire bounds what is in flight, so neither
//! a flood nor a slow reader grows memory.

mod input;
mod job;
mod output;
mod screen;
mod signals;
mod terminal;
mod terminal_modes;

pub(crate) use input::is_null_device;
pub(crate) use output::{Capture, JsonLines, OutputSink, Passthrough};
pub(crate) use screen::Screen;
pub(crate) use signals::{OnSignal, Signals, StopWatch};
pub(crate) use terminal::{
    RawMode, is_interactive, restore as restore_terminal, size as terminal_size,
};

use crate::exit::{CommandError, Kind};
use glovebox_proto::{Channel, Code, ExitReport, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox};
use job::Job;
use std::sync::Arc;

/// Where a command's input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputFrom {
    /// Nowhere.
    Nothing,
    /// Our own standard input.
    Stdin,
    /// Our own standard input, where Ctrl-\ means to leave.
    StdinWithDetach,
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum StreamsEnd {
    /// The command ended.
    Exited(ExitReport),
    /// The user left; the job goes on.
    Detached,
}

/// Carries `request`, an `Exec` or a `JobAttach`, to its end.
///
/// # Errors
/// The fault the request ended with; [`Kind::BrokenPipe`] when nobody reads our output, after the
/// request was cancelled.
pub(crate) fn carry(
    sandbox: &Arc<Sandbox>,
    request: Request,
    input_from: InputFrom,
    on_signal: OnSignal,
    signals: &Signals,
    sink: &mut dyn OutputSink,
) -> Result<StreamsEnd, CommandError> {
    let job = Job::of(&request);
    let mut stream = sandbox.open(request)?;
    let input = stream.input();
    signals.begin(Arc::clone(sandbox), job, input.clone(), on_signal);
    let pump = match input_from {
        InputFrom::Nothing => None,
        InputFrom::Stdin => Some(input::pass(input, false)?),
        InputFrom::StdinWithDetach => Some(input::pass(input, true)?),
    };
    let ended = loop {
        match stream.recv() {
            Incoming::Data { channel, bytes, .. } => {
                let is_stderr = channel == Channel::Stderr;
                if !bytes.is_empty()
                    && let Err(error) = sink.data(is_stderr, &bytes)
                {
                    // Whoever read our output is gone. So is the reason to go on.
                    let _ = stream.cancel();
                    break Err(CommandError::io("write the command's output", &error));
                }
            }
            Incoming::Reply(Ok(Reply::Exited(report))) => break Ok(StreamsEnd::Exited(report)),
            Incoming::Reply(Ok(_)) => {
                break Err(Fault::lost(
                    Code::Protocol,
                    "the guest answered something else than was asked",
                )
                .into());
            }
            Incoming::Reply(Err(fault))
                if fault.code == Code::Cancelled
                    && (on_signal == OnSignal::Leave
                        || pump.as_ref().is_some_and(input::Pump::was_asked)) =>
            {
                break Ok(StreamsEnd::Detached);
            }
            Incoming::Reply(Err(fault)) if fault.code == Code::TimedOut => {
                break Err(CommandError {
                    kind: Kind::TimedOut,
                    ..fault.into()
                });
            }
            Incoming::Reply(Err(fault)) => break Err(fault.into()),
        }
    };
    drop(pump);
    signals.end();
    match ended {
        Err(error) if error.kind == Kind::Interrupted => Err(CommandError::interrupted()),
        other => other,
    }
}
