//! `glovebox attach`: a terminal in a named sandbox, or the output of one of its jobs.

use super::Cx;
use super::exec::tell_left;
use crate::args::AttachArgs;
use crate::exit::{CommandError, CommandResult};
use crate::streams::{
    self, CallerDescriptors, InputFrom, OnSignal, OutputSink, Passthrough, RawMode, Screen,
    Signals, StreamsEnd, carry,
};
use glovebox_proto::{Code, Exec, Fault, JobId, JobInfo, JobState, Request, Stdin};
use glovebox_sandbox::Sandbox;
use std::sync::Arc;

/// Shells to try, in order.
const SHELLS: [&str; 2] = ["bash", "sh"];

/// Attaches until the job ends or the user detaches.
pub(crate) fn run(cx: &Cx, args: &AttachArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    if args.job.is_none() {
        // Check this before the shell starts: without a terminal it could not be used.
        need_terminal()?;
    }
    let sandbox = Arc::new(cx.user_registry()?.connect(&name)?);
    let (job, has_pty, offset) = match args.job {
        None => match find_left(&sandbox)? {
            Some(job) => (job, true, None),
            None => (start_shell(&sandbox)?, true, Some(0)),
        },
        Some(number) => {
            let found = sandbox
                .jobs()?
                .into_iter()
                .find(|info| info.job == JobId(number))
                .ok_or_else(|| {
                    Fault::failed(
                        Code::JobNotFound,
                        format!("there is no job {number} in `{name}`"),
                    )
                    .remedy(format!("`glovebox logs {name}` lists its jobs"))
                })?;
            (
                found.job,
                found.has_pty,
                if found.has_pty { None } else { Some(0) },
            )
        }
    };
    let signals = Signals::take_over_with_stop()?;
    let raw = if has_pty {
        Some(RawMode::enter()?)
    } else {
        None
    };
    if has_pty {
        cx.talk.detail("Ctrl-\\ leaves and lets it run\r");
        // A program that was drawn for another terminal redraws when the size changes.
        let _ = sandbox.call(Request::JobResize {
            job,
            size: streams::terminal_size(),
        });
    }
    let (input, on_signal) = if has_pty {
        (InputFrom::KeysWithDetach, OnSignal::PassOn)
    } else {
        (InputFrom::Nothing, OnSignal::Leave)
    };
    let request = Request::JobAttach {
        job,
        offset,
        sends_events: has_pty,
    };
    let follow = |sink: &mut dyn OutputSink| {
        let descriptors = CallerDescriptors::default();
        carry(
            &sandbox,
            request,
            input,
            descriptors,
            on_signal,
            &signals,
            sink,
        )
    };
    let ended = if has_pty {
        follow(&mut Passthrough::on_terminal(Some(false)))
    } else {
        // Output of a job without a terminal is escaped, as by `logs --follow`.
        let mut sink = Screen::new(false, cx.talk.has_screen_color());
        let ended = follow(&mut sink);
        sink.finish()
            .map_err(|error| CommandError::io("write the job's output", &error))?;
        ended
    };
    drop(raw);
    match ended? {
        StreamsEnd::Exited(_) => {}
        StreamsEnd::Detached(job) => tell_left(cx, &sandbox, job),
    }
    Ok(0)
}

/// Finds the newest running job with a terminal that no client follows, as a detached one. None if
/// there is none.
fn find_left(sandbox: &Sandbox) -> Result<Option<JobId>, CommandError> {
    let left = |info: &JobInfo| {
        info.has_pty && !info.is_followed && matches!(info.state, JobState::Running)
    };
    let jobs = sandbox.jobs()?.into_iter().filter(left);
    Ok(jobs.map(|info| info.job).max())
}

fn need_terminal() -> Result<(), CommandError> {
    if rustix::termios::isatty(rustix::stdio::stdin()) {
        return Ok(());
    }
    Err(CommandError::usage(
        "a shell needs a terminal, and standard input is none",
        "run single commands with `glovebox exec NAME -- COMMAND`",
    ))
}

fn start_shell(sandbox: &Sandbox) -> Result<JobId, CommandError> {
    let mut missing = None;
    for shell in SHELLS {
        let exec = Exec {
            stdin: Stdin::Stream,
            pty: Some(streams::terminal_size()),
            detach: true,
            ..Exec::new([shell])
        };
        match sandbox.start_job(exec) {
            Ok(job) => return Ok(job),
            Err(fault) if fault.code == Code::CommandNotFound => missing = Some(fault),
            Err(fault) => return Err(fault.into()),
        }
    }
    Err(missing
        .unwrap_or_else(|| Fault::failed(Code::CommandNotFound, "there is no shell inside"))
        .into())
}
