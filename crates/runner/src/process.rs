//! The process of one call: what it is told, what it says, and how it is ended.

use crate::answer::Answer;
use crate::call::{CallFailure, FailureKind};
use crate::fetch::{self, CallFetcher, CallFetches};
use crate::grant::RefusedHost;
use glovebox_js::tool_call::CallLimits;
use glovebox_proto::{Channel, Class, Code, Exec, ExitReport, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the program has to end by itself, with a reason, before it is killed.
const GRACE: Duration = Duration::from_millis(60);
/// What the guest may take to tell of an end that is due.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a process has to end by itself once it has answered. Then it is ended, and its answer counts.
const LINGER: Duration = Duration::from_millis(500);
/// How often it is looked whether a call is given up.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// What a process said, how it ended, and how long it took.
pub(crate) struct EndedCall {
    pub(crate) answer: Answer,
    /// None where it was ended after its answer.
    pub(crate) end: Option<ExitReport>,
    pub(crate) taken: Duration,
    pub(crate) refused_hosts: Vec<RefusedHost>,
}

/// The process of one call.
pub(crate) struct Process<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) exec: Exec,
    /// Makes its requests, where it may ask for any.
    pub(crate) fetcher: Option<CallFetcher<'a>>,
}

/// When the process of a call is killed.
pub(crate) fn deadline(limits: CallLimits) -> Duration {
    Duration::from_millis(limits.wall_ms) + GRACE
}

/// A call of which nothing more is known.
pub(crate) struct LostCall {
    pub(crate) failure: Box<CallFailure>,
    /// Whether its sandbox should not be used again.
    pub(crate) is_sandbox_lost: bool,
}

/// Runs the process of one call to its end.
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
    // One frame fits into what the guest takes without anybody reading, or the program reads it: it reads first.
    let sent = stream.send(call).and_then(|()| match &process.fetcher {
        // Answers to its requests follow.
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
    // When the process is ended because it can say nothing more that counts.
    let mut enough: Option<Instant> = None;
    let mut is_ended = false;
    loop {
        let now = Instant::now();
        is_cancelled |= cancel.load(Ordering::Relaxed);
        if !is_ended && (is_cancelled || enough.is_some_and(|at| now >= at)) {
            is_ended = true;
            due = due.min(now);
            // Nobody waits for what it has asked for either.
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
            Some(Incoming::Reply(_)) if is_cancelled => return Err(given_up()),
            Some(Incoming::Reply(Ok(Reply::Exited(end)))) => Some(end),
            // The guest does not tell how a process ended that it was asked to end.
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
