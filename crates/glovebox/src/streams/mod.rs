//! Relays one command's streams between this process and a sandbox.
//!
//! In: an open sandbox, a request, and the destinations of input and output. Out: the result of the
//! request. Three threads: this one receives and writes, one reads standard input or keys, one
//! turns signals into requests; a fourth displays a terminal that is no standard stream; each
//! descriptor from 3 on has one or two. Each blocks on its own side only, and the credit of the
//! wire bounds the bytes in flight, so neither a flood nor a slow reader grows memory.

mod descriptors;
mod input;
mod lent_input;
mod output;
mod screen;
mod shared_terminal;
mod signals;
mod terminal;
mod terminal_modes;

pub(crate) use descriptors::{CallerDescriptors, inherited, note_inherited};
pub(crate) use input::is_null_device;
pub(crate) use output::{Capture, JsonLines, OutputSink, Passthrough};
pub(crate) use screen::Screen;
use signals::RunningCommand;
pub(crate) use signals::{OnSignal, Signals, StopWatch};
pub(crate) use terminal::{
    RawMode, TerminalPlan, restore as restore_terminal, size as terminal_size,
};

use crate::exit::{CommandError, Kind};
use descriptors::CarriedDescriptors;
use glovebox_proto::{
    Channel, Code, Event, EventDecoder, ExitReport, Fault, JobId, Reply, Request, Stdin,
    TerminalUse,
};
use glovebox_sandbox::{Incoming, Sandbox};
use lent_input::{LentInput, LentSource};
use shared_terminal::SharedTerminal;
use signal_hook::consts::{SIGTTIN, SIGTTOU};
use std::sync::{Arc, OnceLock};

/// Source of a command's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputFrom {
    /// No input.
    Nothing,
    /// Standard input of this process.
    Stdin,
    /// Keys of the terminal.
    Keys,
    /// Keys of the terminal, with Ctrl-\ to detach.
    KeysWithDetach,
}

/// Result of relaying a command.
#[derive(Debug)]
pub(crate) enum StreamsEnd {
    /// The command has exited.
    Exited(ExitReport),
    /// The user detached; this job continues.
    Detached(JobId),
}

/// Relays the streams of `request`, an `Exec` or a `JobAttach`, until it ends.
///
/// # Errors
/// The fault that the request ended with. [`Kind::BrokenPipe`] if the reader of our output has
/// closed it, after the request was cancelled.
pub(crate) fn carry(
    sandbox: &Arc<Sandbox>,
    mut request: Request,
    input_from: InputFrom,
    descriptors: CallerDescriptors,
    on_signal: OnSignal,
    signals: &Signals,
    sink: &mut dyn OutputSink,
) -> Result<StreamsEnd, CommandError> {
    let (job, has_terminal) = about_job(&request);
    let has_shared_terminal = matches!(&request, Request::Exec(exec) if exec.pty.is_some() && exec.terminal_use != TerminalUse::WHOLE);
    let mut source = None;
    if let Request::Exec(exec) = &mut request {
        exec.sends_events = true;
        exec.descriptors = descriptors.requested();
        if input_from == InputFrom::Stdin {
            source = LentSource::of_stdin();
        }
        if let Some(source) = &source {
            exec.stdin = Stdin::Lent {
                is_followed: source.is_followed(),
            };
        }
    }
    let mut stream = sandbox.open(request)?;
    let input = stream.input();
    signals.begin(
        RunningCommand::new(Arc::clone(sandbox), job, has_terminal, input.clone()),
        on_signal,
    );
    let begun = Arc::new(OnceLock::new());
    let mut lent = None;
    let pump = match (source, input_from) {
        (_, InputFrom::Nothing) => None,
        (Some(source), _) => {
            lent = Some(LentInput::lend(source, input)?);
            None
        }
        (None, InputFrom::Stdin) => Some(input::pass(input, rustix::stdio::stdin(), None)?),
        (None, InputFrom::Keys) => Some(input::pass(input, terminal::device(), None)?),
        (None, InputFrom::KeysWithDetach) => {
            let leave: input::Leave = if job.is_some() {
                let request = input.clone();
                Box::new(move || request.cancel())
            } else {
                // Cancelling the `Exec` itself would kill the job.
                let (sandbox, begun) = (Arc::clone(sandbox), Arc::clone(&begun));
                Box::new(move || match begun.get() {
                    Some(job) => sandbox.call(Request::JobRelease { job: *job }).map(drop),
                    None => Ok(()),
                })
            };
            Some(input::pass(input, terminal::device(), Some(leave))?)
        }
    };
    let mut running = CarriedCommand {
        sandbox,
        signals,
        lent,
        has_shared_terminal,
        terminal: None,
        descriptors,
        carried: CarriedDescriptors::default(),
        begun,
    };
    let mut events = EventDecoder::default();
    let ended = loop {
        match stream.recv() {
            Incoming::Data {
                channel: Channel::Content,
                bytes,
                ..
            } => {
                let news = events
                    .decode(&bytes)
                    .map_err(|error| Fault::lost(Code::Protocol, error.to_string()));
                match news {
                    Ok(news) => {
                        if let Err(error) = running.take_events(&news) {
                            break Err(error);
                        }
                    }
                    Err(fault) => break Err(fault.into()),
                }
            }
            Incoming::Data { channel, bytes, .. } => {
                let is_stderr = channel == Channel::Stderr;
                if !bytes.is_empty()
                    && let Err(error) = sink.data(is_stderr, &bytes)
                {
                    // The reader of our output has closed it, so the command has no purpose any
                    // longer.
                    let _ = stream.cancel();
                    break Err(CommandError::io("write the command's output", &error));
                }
            }
            Incoming::Reply(Ok(Reply::Exited(report))) => break Ok(StreamsEnd::Exited(report)),
            Incoming::Reply(Ok(Reply::Started(job)))
                if pump.as_ref().is_some_and(input::Pump::was_asked) =>
            {
                break Ok(StreamsEnd::Detached(job));
            }
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
                break Ok(StreamsEnd::Detached(job.unwrap_or(JobId(0))));
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
    // Stop reading keys first: keys typed from now on are for the next reader, such as a question.
    drop(pump);
    signals.end();
    if let Ok(StreamsEnd::Exited(report)) = &ended {
        running.end(report);
    }
    match ended {
        Err(error) if error.kind == Kind::Interrupted => Err(CommandError::interrupted()),
        other => other,
    }
}

/// Returns the job that a request names, and true if it has a terminal. An `Exec` has no job yet.
fn about_job(request: &Request) -> (Option<JobId>, bool) {
    match request {
        Request::Exec(exec) => (None, exec.pty.is_some()),
        Request::JobAttach { job, .. } => (Some(*job), true),
        _ => (None, false),
    }
}

/// Command whose streams are relayed, and the receivers of its events.
struct CarriedCommand<'a> {
    sandbox: &'a Arc<Sandbox>,
    signals: &'a Signals,
    lent: Option<LentInput>,
    has_shared_terminal: bool,
    terminal: Option<SharedTerminal>,
    /// Descriptors that are not relayed yet.
    descriptors: CallerDescriptors,
    carried: CarriedDescriptors,
    /// Job of the command; empty until the guest has started it.
    begun: Arc<OnceLock<JobId>>,
}

impl CarriedCommand<'_> {
    /// Passes the events of a command to their receivers.
    fn take_events(&mut self, events: &[Event]) -> Result<(), CommandError> {
        for event in events {
            match *event {
                Event::Began(job) => {
                    let _ = self.begun.set(job);
                    if self.has_shared_terminal && self.terminal.is_none() {
                        self.terminal = Some(SharedTerminal::begin(self.sandbox, job)?);
                    }
                    let descriptors = std::mem::take(&mut self.descriptors);
                    if !descriptors.is_empty() {
                        self.carried = descriptors.carry(self.sandbox, job)?;
                    }
                    self.signals.note_job(job);
                }
                Event::InputTaken(total) => {
                    if let Some(lent) = &self.lent {
                        lent.note_taken(total);
                    }
                }
                Event::Stopped(SIGTTIN | SIGTTOU) => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.hand_over()?;
                    }
                    self.signals.continue_command();
                }
                Event::Stopped(signal) => self.signals.suspend(signal),
            }
        }
        Ok(())
    }

    /// Ends the relays of a command that has exited: restores the terminal and settles lent input.
    fn end(self, report: &ExitReport) {
        if let Some(terminal) = self.terminal {
            terminal.end();
        }
        if let Some(lent) = self.lent {
            lent.settle(report.input_taken);
        }
        self.carried.end();
    }
}

/// Returns true if standard output and standard error are the same file, so that a reader sees the
/// order of both.
pub(crate) fn is_output_one_place() -> bool {
    let out = rustix::fs::fstat(rustix::stdio::stdout());
    let err = rustix::fs::fstat(rustix::stdio::stderr());
    matches!((out, err), (Ok(out), Ok(err)) if (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino))
}
