//! Signals to us become requests about the command.
//!
//! Every signal that can be caught is passed on to the command. Of SIGINT, SIGTERM, SIGHUP and SIGQUIT the first is
//! the command's, which may end as it likes; the second ends it for good; the third ends us, and with our connection
//! everything that hangs on it. Before a command runs one signal of each kind is kept for it. While its sandbox is
//! being made, the first that asks for the end is remembered and ends us as soon as what is being made can be taken
//! down again, the second at once.
//!
//! SIGTSTP is the command's too: this process stops when the command has been stopped by it, and continues it when it
//! goes on itself. While no command runs it stops this process.
//!
//! A signal that was ignored when we started stays ignored, as `nohup` and a shell's background jobs
//! expect.

use super::terminal;
use crate::exit::{CommandError, INTERRUPTED};
use glovebox_proto::{JobId, Request};
use glovebox_sandbox::stop_caller;
use glovebox_sandbox::{Input, Sandbox};
use rustix::process::Signal;
use signal_hook::consts::{
    SIGABRT, SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT,
    SIGSEGV, SIGSTOP, SIGSYS, SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// Signals that ask for the end.
const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Signals that are not passed on: those that cannot be caught, that tell of our own children, pipes and terminal, or
/// of a fault of our own, and the two that C libraries keep for themselves.
const OWN: [i32; 15] = [
    SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP,
    SIGSYS, SIGABRT, 32, 33,
];

/// How often, and how many times, it is looked whether SIGCONT was heard of.
const CONT_CHECK: Duration = Duration::from_millis(5);
const CONT_CHECKS: u32 = 10;

/// Highest signal number.
const MAX_SIGNAL: i32 = 64;

/// A set of signals, one bit each from signal 1 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SignalSet(u64);

impl SignalSet {
    const fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }

    const fn insert(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    fn iter(self) -> impl Iterator<Item = i32> {
        (1..=MAX_SIGNAL).filter(move |signal| self.has(*signal))
    }
}

/// A command that signals are passed on to.
#[derive(Debug)]
pub(super) struct RunningCommand {
    sandbox: Arc<Sandbox>,
    /// `None` until the guest has told it.
    job: Option<JobId>,
    has_terminal: bool,
    input: Input,
    /// Signals that came before the job was known.
    kept: SignalSet,
}

impl RunningCommand {
    /// A command whose request has just been sent.
    pub(super) const fn new(
        sandbox: Arc<Sandbox>,
        job: Option<JobId>,
        has_terminal: bool,
        input: Input,
    ) -> Self {
        Self {
            sandbox,
            job,
            has_terminal,
            input,
            kept: SignalSet(0),
        }
    }

    /// Passes a signal on to the process group, as a terminal does, or keeps it until that is known.
    fn pass_on(&mut self, signal: i32) {
        let Some(job) = self.job else {
            self.kept.insert(signal);
            return;
        };
        if signal == SIGWINCH && self.has_terminal {
            self.resize(job);
            return;
        }
        let request = Request::JobSignal {
            job,
            signal,
            whole_tree: false,
        };
        // Where there is no such group any more, all that is left is asked to end.
        if self.sandbox.call(request).is_err() && ENDS.contains(&signal) {
            let _ = self.input.cancel();
        }
    }

    fn resize(&self, job: JobId) {
        let size = terminal::size();
        let _ = self.sandbox.call(Request::JobResize { job, size });
    }

    /// Asks the command to stop. Returns true if it was told.
    fn stop(&self) -> bool {
        let stop = |job| Request::JobSignal {
            job,
            signal: SIGTSTP,
            whole_tree: false,
        };
        self.job
            .is_some_and(|job| self.sandbox.call(stop(job)).is_ok())
    }

    /// Ends the command for good.
    fn kill(&self) {
        match self.job {
            Some(job) => drop(self.sandbox.call(Request::JobKill { job, grace_ms: 0 })),
            // Ending the request ends it in any case.
            None => drop(self.input.cancel()),
        }
    }
}

/// What the signal thread acts upon.
#[derive(Debug)]
enum Phase {
    /// Nothing runs yet (or any more).
    Idle {
        /// A signal that asked for the end meanwhile.
        pending: Option<i32>,
        /// Other signals that came meanwhile.
        kept: SignalSet,
    },
    /// An agent works, and somebody else decides what its end is.
    Working {
        /// Told how many signals there were.
        on_signal: StopWatch,
        asked: u32,
    },
    /// A command runs.
    Running {
        command: RunningCommand,
        on_signal: OnSignal,
        /// Signals that asked for the end so far.
        asked: u32,
    },
}

impl Phase {
    const IDLE: Self = Self::Idle {
        pending: None,
        kept: SignalSet(0),
    };
}

/// Signal handling, from its creation to the end of the process.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    phase: Arc<Mutex<Phase>>,
    /// This process is about to stop with its command, and [`Signals::suspend`] continues that: not SIGCONT's handler.
    is_suspending: Arc<AtomicBool>,
}

impl Signals {
    /// Takes over the signals that end or resize.
    ///
    /// # Errors
    /// When handlers or the thread cannot be set up.
    pub(crate) fn take_over() -> Result<Self, CommandError> {
        Self::take_over_those(|signal| ENDS.contains(&signal))
    }

    /// Takes over the signals that end, stop or resize: those of a command that has the terminal.
    ///
    /// # Errors
    /// As [`Self::take_over`].
    pub(crate) fn take_over_with_stop() -> Result<Self, CommandError> {
        Self::take_over_those(|signal| ENDS.contains(&signal) || signal == SIGTSTP)
    }

    /// Takes over all signals that can be passed on to a command.
    ///
    /// # Errors
    /// As [`Self::take_over`].
    pub(crate) fn take_over_all() -> Result<Self, CommandError> {
        Self::take_over_those(|signal| !OWN.contains(&signal))
    }

    fn take_over_those(is_wanted: impl Fn(i32) -> bool) -> Result<Self, CommandError> {
        let fail = |error: std::io::Error| CommandError::io("handle signals", &error);
        let ignored = ignored();
        let heeded = (1..=MAX_SIGNAL).filter(|signal| match *signal {
            SIGWINCH | SIGCONT => true,
            signal => is_wanted(signal) && !ignored.has(signal),
        });
        let mut incoming = signal_hook::iterator::Signals::new(heeded).map_err(fail)?;
        let signals = Self {
            phase: Arc::new(Mutex::new(Phase::IDLE)),
            is_suspending: Arc::default(),
        };
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
    pub(super) fn begin(&self, command: RunningCommand, on_signal: OnSignal) {
        let running = Phase::Running {
            command,
            on_signal,
            asked: 0,
        };
        let before = std::mem::replace(&mut *self.lock(), running);
        if let Phase::Idle { pending, kept } = before {
            for signal in kept.iter().chain(pending) {
                self.on_signal(signal);
            }
        }
    }

    /// The command runs as this job: gives it the signals that have come for it.
    pub(super) fn note_job(&self, job: JobId) {
        if let Phase::Running { command, .. } = &mut *self.lock() {
            command.job = Some(job);
            for signal in std::mem::take(&mut command.kept).iter() {
                command.pass_on(signal);
            }
        }
    }

    /// Stops this process by the signal that has stopped the command, and continues the command when this process goes
    /// on. Called by the first thread.
    pub(super) fn suspend(&self, signal: i32) {
        terminal::suspend();
        self.is_suspending.store(true, Ordering::Release);
        // A key stops all that runs in the foreground; a command that stops itself stops nobody else.
        let is_key = signal == SIGTSTP && terminal::is_foreground();
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = stop_caller(signal, is_key);
        }
        // The thread of signals has heard of SIGCONT by now, or hears of it in a moment. There is none where nothing
        // was stopped, as in an orphaned process group.
        for _ in 0..CONT_CHECKS {
            if !self.is_suspending.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(CONT_CHECK);
        }
        self.is_suspending.store(false, Ordering::Release);
        self.continue_command();
    }

    /// Continues a stopped command, on a terminal of the size that it has now.
    pub(super) fn continue_command(&self) {
        terminal::renew();
        if let Phase::Running { command, .. } = &mut *self.lock() {
            if let (true, Some(job)) = (command.has_terminal, command.job) {
                command.resize(job);
            }
            command.pass_on(SIGCONT);
        }
    }

    /// SIGTSTP has come: it is the command's, or stops this process where there is none that takes it.
    fn stop(&self) {
        let is_passed_on = match &*self.lock() {
            Phase::Running {
                command,
                on_signal: OnSignal::PassOn,
                ..
            } => command.stop(),
            _ => false,
        };
        if !is_passed_on {
            terminal::suspend();
            let _ = stop_caller(Signal::TSTP, false);
        }
    }

    /// From now on `on_signal` is told of each signal; the third ends us in any case.
    pub(crate) fn work(&self, on_signal: StopWatch) {
        let pending = {
            let mut phase = self.lock();
            let pending = matches!(
                &*phase,
                Phase::Idle {
                    pending: Some(_),
                    ..
                }
            );
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
        let before = std::mem::replace(&mut *self.lock(), Phase::IDLE);
        match before {
            Phase::Working { asked, .. } => asked,
            Phase::Idle { .. } | Phase::Running { .. } => 0,
        }
    }

    /// The command has ended.
    pub(super) fn end(&self) {
        *self.lock() = Phase::IDLE;
    }

    /// Fails when the user has asked for the end before a command began.
    ///
    /// # Errors
    /// [`crate::exit::Kind::Interrupted`].
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        match &*self.lock() {
            Phase::Idle {
                pending: Some(_), ..
            }
            | Phase::Working { asked: 1.., .. } => Err(CommandError::interrupted()),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_signal(&self, signal: i32) {
        match signal {
            SIGTSTP => return self.stop(),
            SIGCONT if self.is_suspending.swap(false, Ordering::AcqRel) => return,
            _ => {}
        }
        let mut phase = self.lock();
        match &mut *phase {
            Phase::Running {
                command, on_signal, ..
            } if !ENDS.contains(&signal) => {
                if signal == SIGCONT {
                    terminal::renew();
                }
                if *on_signal == OnSignal::PassOn || signal == SIGWINCH {
                    command.pass_on(signal);
                }
            }
            // It tells of this process alone.
            Phase::Idle { .. } if signal == SIGCONT => terminal::renew(),
            Phase::Idle { kept, .. } if !ENDS.contains(&signal) => kept.insert(signal),
            Phase::Working { .. } if !ENDS.contains(&signal) => {}
            Phase::Working { on_signal, asked } => {
                *asked += 1;
                (on_signal.0)(*asked);
                if *asked >= LAST_WISH {
                    terminal::restore();
                    std::process::exit(128 + signal);
                }
            }
            Phase::Idle { pending, .. } => {
                if pending.replace(signal).is_some() {
                    terminal::restore();
                    std::process::exit(i32::from(INTERRUPTED));
                }
            }
            Phase::Running {
                command,
                on_signal,
                asked,
            } => {
                *asked += 1;
                match *asked {
                    1 if *on_signal == OnSignal::Leave => drop(command.input.cancel()),
                    1 => command.pass_on(signal),
                    2 => command.kill(),
                    _ => {
                        terminal::restore();
                        std::process::exit(128 + signal);
                    }
                }
            }
        }
    }
}

/// Signals this process ignores (proc_pid_status(5), `SigIgn`).
fn ignored() -> SignalSet {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .as_deref()
        .and_then(ignored_in)
        .unwrap_or_default()
}

fn ignored_in(status: &str) -> Option<SignalSet> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok().map(SignalSet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_own_words() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        let ignored_signals = ignored_in(status).unwrap();
        assert_eq!(ignored_signals.iter().collect::<Vec<_>>(), [1, 13]);
        assert_eq!(ignored_in("Name:\tx\n"), None);
        // The Rust runtime ignores SIGPIPE, so the real thing has at least one bit.
        assert!(ignored().has(SIGPIPE));
    }
}
