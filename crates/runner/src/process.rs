//! Process of one call: its input, its output, and its termination.

use crate::answer::Answer;
use crate::call::{CallFailure, FailureKind};
use crate::fetch::{self, CallFetcher, CallFetches};
use crate::grant::RefusedHost;
use glovebox_js::tool_call::CallLimits;
use glovebox_proto::{Channel, Class, Code, Exec, ExitReport, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that the program has to end with a reason after its time limit, before it is killed.
const GRACE: Duration = Duration::from_millis(60);
/// Time that the guest has to report the end of a process after it is due.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a process has to exit after its result. Then it is terminated, and the result counts.
const LINGER: Duration = Duration::from_millis(500);
/// Interval between two checks whether a call is cancelled.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Result of a process that has ended.
pub(crate) struct EndedCall {
    pub(crate) answer: Answer,
    /// Report about the process. `None` if it was terminated after its result.
    pub(crate) end: Option<ExitReport>,
    pub(crate) taken: Duration,
    pub(crate) refused_hosts: Vec<RefusedHost>,
}

/// Process of one call, to be started.
pub(crate) struct Process<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) exec: Exec,
    /// Makes the requests of the process. `None` if it may make none.
    pub(crate) fetcher: Option<CallFetcher<'a>>,
}

/// Returns the time after which the process of a call is killed.
pub(crate) fn deadline(limits: CallLimits) -> Duration {
    Duration::from_millis(limits.wall_ms) + GRACE
}

/// Call whose result cannot be known.
pub(crate) struct LostCall {
    pub(crate) failure: Box<CallFailure>,
    /// True if the sandbox must not be used again.
    pub(crate) is_sandbox_lost: bool,
}

/// Runs the process of one call until it ends. Setting `cancel` terminates it.
pub(crate) fn run(
    process: Process<'_>,
    call: &[u8],
    limits: CallLimits,
    cancel: &AtomicBool,
) -> Result<EndedCall, LostCall> {
    let started = Instant::now();
    let mut due = started + deadline(limits);
    let mut answer = Answer::new(limits, process.fetcher.as_ref().map(|_| fetch::grant()));
    let mut stream = process
        .sandbox
        .open(Request::Exec(process.exec))
        .map_err(|fault| lost(&fault))?;
    // Sending does not block: the frame fits into the guest's buffer, or the program reads it,
    // since it reads before it writes.
    let sent = stream.send(call).and_then(|()| match &process.fetcher {
        // The input stays open for responses to requests.
        Some(_) => Ok(()),
        None => stream.finish_input(),
    });
    if let Err(fault) = sent
        && fault.class == Class::Lost
    {
        return Err(lost(&fault));
    }
    let mut fetches: Option<CallFetches> = None;
    let mut refused_hosts = Vec::new();
    let mut is_cancelled = false;
    // Time at which the process is terminated because its further output does not count.
    let mut enough: Option<Instant> = None;
    let mut is_ended = false;
    loop {
        let now = Instant::now();
        is_cancelled |= cancel.load(Ordering::Relaxed);
        if !is_ended && (is_cancelled || enough.is_some_and(|at| now >= at)) {
            is_ended = true;
            due = due.min(now);
            // The requests are aborted too, since their responses are not needed.
            refused_hosts = fetches
                .take()
                .map_or_else(Vec::new, |fetches| fetches.refused());
            let _ = stream.cancel();
        }
        if now > due + PATIENCE {
            return Err(silent(&stream));
        }
        let end = match stream.recv_for(LOOK) {
            Some(Incoming::Data {
                channel: Channel::Stdout,
                bytes,
                ..
            }) => {
                if !answer.take(&bytes) && enough.is_none() {
                    let wait = if answer.is_broken() {
                        Duration::ZERO
                    } else {
                        LINGER
                    };
                    enough = Some(Instant::now() + wait);
                }
                for asked in answer.take_asked() {
                    let Some(fetcher) = process.fetcher.as_ref().filter(|_| !is_ended) else {
                        break;
                    };
                    let open = match &mut fetches {
                        Some(open) => open,
                        none => {
                            let opened = CallFetches::open(fetcher, stream.input(), due);
                            none.insert(opened.map_err(|error| no_thread(&error))?)
                        }
                    };
                    open.take(asked);
                }
                continue;
            }
            Some(Incoming::Data {
                channel: Channel::Stderr,
                bytes,
                ..
            }) => {
                answer.complain(&bytes);
                continue;
            }
            Some(Incoming::Data { .. }) | None => continue,
            Some(Incoming::Reply(Err(fault))) if fault.class == Class::Lost => {
                return Err(lost(&fault));
            }
            // A cancelled call has no result, even if its process ended by itself.
            Some(Incoming::Reply(_)) if is_cancelled => return Err(given_up()),
            Some(Incoming::Reply(Ok(Reply::Exited(end)))) => Some(end),
            // The guest sends no exit report for a process that was terminated on request.
            Some(Incoming::Reply(Err(_))) if is_ended => None,
            Some(Incoming::Reply(Ok(_))) => {
                return Err(lost(&Fault::lost(
                    Code::Protocol,
                    "the guest answered something else than the end of a call",
                )));
            }
            Some(Incoming::Reply(Err(fault))) => return Err(lost(&fault)),
        };
        if let Some(fetches) = fetches {
            refused_hosts = fetches.refused();
        }
        return Ok(EndedCall {
            answer,
            end,
            taken: started.elapsed(),
            refused_hosts,
        });
    }
}

fn no_thread(error: &std::io::Error) -> LostCall {
    LostCall {
        failure: Box::new(CallFailure::new(
            FailureKind::Unavailable,
            format!("no thread for the requests of the tool: {error}"),
        )),
        is_sandbox_lost: false,
    }
}

fn lost(fault: &Fault) -> LostCall {
    LostCall {
        is_sandbox_lost: fault.class == Class::Lost,
        failure: Box::new(unavailable(fault)),
    }
}

pub(crate) fn unavailable(fault: &Fault) -> CallFailure {
    CallFailure::new(
        FailureKind::Unavailable,
        format!("no sandbox for the tool: {}", fault.message),
    )
}

fn given_up() -> LostCall {
    LostCall {
        failure: Box::new(CallFailure::given_up()),
        is_sandbox_lost: false,
    }
}

fn silent(stream: &Stream) -> LostCall {
    let _ = stream.cancel();
    let message = "the time of the call is over and its sandbox does not answer; it is replaced";
    LostCall {
        failure: Box::new(CallFailure::new(FailureKind::Timeout, message)),
        is_sandbox_lost: true,
    }
}
