//! Signals to us become requests about the command.
//!
//! The first SIGINT, SIGTERM, SIGHUP or SIGQUIT is passed on to the command, which may end as it
//! likes; the second ends it for good; the third ends us, and with our connection everything that
//! hangs on it. Before a command runs there is nothing to pass a signal on to: the first one is
//! remembered and ends us as soon as what is being made can be taken down again, the second at once.
//!
//! A signal that was ignored when we started stays ignored, as `nohup` and a shell's background jobs
//! expect.

use super::job::Job;
use super::terminal;
use crate::exit::{CommandError, INTERRUPTED};
use glovebox_proto::{JobId, Request};
use glovebox_sandbox::{Input, Sandbox};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use std::sync::{Arc, Mutex, PoisonError};

/// What a signal to us means while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// It is meant for the command.
    PassOn,
    /// It is meant for us: stop following, leave the command alone.
    Leave,
}

/// Told of the wish to stop: how often it was uttered. After the third we end, so nothing may wait then.
pub(crate) struct StopWatch(pub Box<dyn Fn(u32) + Send + Sync>);

impl std::fmt::Debug for StopWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnWish(..)")
    }
}

/// Signals after which we end whatever goes on.
const LAST_WISH: u32 = 3;

/// What the signal thread acts upon.
#[derive(Debug)]
enum Phase {
    /// Nothing runs yet (or any more).
    Idle {
        /// A signal that came meanwhile.
        pending: Option<i32>,
    },
    /// An agent works, and somebody else decides what its end is.
    Working {
        /// Told how many signals there were.
        on_signal: StopWatch,
        asked: u32,
    },
    /// A command runs.
    Running {
        sandbox: Arc<Sandbox>,
        job: Job,
        input: Input,
        on_signal: OnSignal,
        /// Signals that asked for the end so far.
        asked: u32,
    },
}

/// Signal handling, from its creation to the end of the process.
#[derive(Debug, Clone)]
pub(crate) struct Signals(Arc<Mutex<Phase>>);

impl Signals {
    /// Takes over the signals that end or resize.
    ///
    /// # Errors
    /// When handlers or the thread cannot be set up.
    pub(crate) fn take_over() -> Result<Self, CommandError> {
        let fail = |error: std::io::Error| CommandError::io("handle signals", &error);
        let ignored = ignored();
        let ends = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
        let heeded = ends
            .into_iter()
            .filter(|signal| ignored >> (signal - 1) & 1 == 0)
            .chain([SIGWINCH, SIGCONT]);
        let mut incoming = signal_hook::iterator::Signals::new(heeded).map_err(fail)?;
        let signals = Self(Arc::new(Mutex::new(Phase::Idle { pending: None })));
        let thread = signals.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                for signal in incoming.forever() {
                    thread.on_signal(signal);
                }
            })
            .map_err(fail)?;
        Ok(signals)
    }

    /// From now on signals go to this command.
    pub(super) fn begin(&self, sandbox: Arc<Sandbox>, job: Job, input: Input, on_signal: OnSignal) {
        let running = Phase::Running {
            sandbox,
            job,
            input,
            on_signal,
            asked: 0,
        };
        let before = std::mem::replace(&mut *self.lock(), running);
        if let Phase::Idle {
            pending: Some(signal),
        } = before
        {
            self.on_signal(signal);
        }
    }

    /// From now on `on_signal` is told of each signal; the third ends us in any case.
    pub(crate) fn work(&self, on_signal: StopWatch) {
        let pending = {
            let mut phase = self.lock();
            let pending = matches!(&*phase, Phase::Idle { pending: Some(_) });
            *phase = Phase::Working {
                on_signal,
                asked: 0,
            };
            pending
        };
        if pending {
            self.on_signal(SIGINT);
        }
    }

    /// The work is over; gives how many signals there were.
    pub(crate) fn rest(&self) -> u32 {
        let before = std::mem::replace(&mut *self.lock(), Phase::Idle { pending: None });
        match before {
            Phase::Working { asked, .. } => asked,
            Phase::Idle { .. } | Phase::Running { .. } => 0,
        }
    }

    /// The command has ended.
    pub(super) fn end(&self) {
        *self.lock() = Phase::Idle { pending: None };
    }

    /// Fails when the user has asked for the end before a command began.
    ///
    /// # Errors
    /// [`crate::exit::Kind::Interrupted`].
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        match &*self.lock() {
            Phase::Idle { pending: Some(_) } | Phase::Working { asked: 1.., .. } => {
                Err(CommandError::interrupted())
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Phase> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_signal(&self, signal: i32) {
        let mut phase = self.lock();
        match (&mut *phase, signal) {
            (Phase::Running { .. }, SIGCONT) => terminal::renew(),
            (Phase::Running { sandbox, job, .. }, SIGWINCH) => {
                if let Some(job) = job.id(sandbox) {
                    let _ = sandbox.call(Request::JobResize {
                        job,
                        size: terminal::size(),
                    });
                }
            }
            (Phase::Idle { .. } | Phase::Working { .. }, SIGCONT | SIGWINCH) => {}
            (Phase::Working { on_signal, asked }, signal) => {
                *asked += 1;
                (on_signal.0)(*asked);
                if *asked >= LAST_WISH {
                    terminal::restore();
                    std::process::exit(128 + signal);
                }
            }
            (Phase::Idle { pending }, signal) => {
                if pending.replace(signal).is_some() {
                    terminal::restore();
                    std::process::exit(i32::from(INTERRUPTED));
                }
            }
            (
                Phase::Running {
                    input,
                    on_signal: OnSignal::Leave,
                    asked,
                    ..
                },
                _,
            ) if *asked == 0 => {
                *asked += 1;
                let _ = input.cancel();
            }
            (
                Phase::Running {
                    sandbox,
                    job,
                    input,
                    asked,
                    ..
                },
                signal,
            ) => {
                *asked += 1;
                match (*asked, job.id(sandbox)) {
                    (1, Some(job)) => pass_on(sandbox, job, signal, input),
                    (2, Some(job)) => drop(sandbox.call(Request::JobKill { job, grace_ms: 0 })),
                    // Which job it is cannot be told; ending the request ends it in any case.
                    (1 | 2, None) => drop(input.cancel()),
                    _ => {
                        terminal::restore();
                        std::process::exit(128 + signal);
                    }
                }
            }
        }
    }
}

/// Signals this process ignores, one bit each from signal 1 on (proc_pid_status(5), `SigIgn`).
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(ignored_in)
        .unwrap_or(0)
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// To the process group, as a terminal does; to everything when there is no such group any more.
fn pass_on(sandbox: &Sandbox, job: JobId, signal: i32, input: &Input) {
    if sandbox
        .call(Request::JobSignal {
            job,
            signal,
            whole_tree: false,
        })
        .is_err()
    {
        let _ = input.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_own_words() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!(ignored_in(status), Some(1 << 12 | 1));
        assert_eq!(ignored_in("Name:\tx\n"), None);
        // The Rust runtime ignores SIGPIPE, so the real thing has at least one bit.
        assert_eq!(ignored() >> 12 & 1, 1);
    }
}
