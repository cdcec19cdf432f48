//! Turns signals to this process into requests about the command.
//!
//! Every signal that can be caught is passed on to the command. Of SIGINT, SIGTERM, SIGHUP and
//! SIGQUIT the first is passed on, and the command may end as it likes; the second kills the
//! command; the third ends this process, and with its connection everything that depends on it.
//! Before a command runs, one signal of each kind is kept for it. While its sandbox is being
//! created, the first terminating signal is remembered and ends this process as soon as the sandbox
//! can be removed again; the second ends it at once.
//!
//! SIGTSTP is passed on too: this process stops after the command has been stopped by it, and
//! continues the command when it is continued itself. While no command runs it stops this process.
//!
//! A signal that was ignored when this process started stays ignored, as `nohup` and background
//! jobs of a shell expect.

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

/// Meaning of a signal to this process while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// The signal is for the command.
    PassOn,
    /// The signal is for this process: stop following, leave the command alone.
    Leave,
}

/// Callback for each terminating signal, with the number of signals so far. After the third the
/// process exits, so the callback must not block then.
pub(crate) struct StopWatch(pub Box<dyn Fn(u32) + Send + Sync>);

impl std::fmt::Debug for StopWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnWish(..)")
    }
}

/// Number of terminating signals after which this process exits unconditionally.
const LAST_WISH: u32 = 3;

/// Terminating signals.
const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Signals that are not passed on: those that cannot be caught; those that report our own children,
/// pipes, terminal or faults; and the two that the C library reserves (nptl(7)).
const OWN: [i32; 15] = [
    SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP,
    SIGSYS, SIGABRT, 32, 33,
];

/// Interval and number of the checks for a delivered SIGCONT.
const CONT_CHECK: Duration = Duration::from_millis(5);
const CONT_CHECKS: u32 = 10;

/// Highest signal number.
const MAX_SIGNAL: i32 = 64;

/// Set of signals, one bit each from signal 1 on.
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

/// Command that signals are passed on to.
#[derive(Debug)]
pub(super) struct RunningCommand {
    sandbox: Arc<Sandbox>,
    /// Job of the command. None until the guest has reported it.
    job: Option<JobId>,
    has_terminal: bool,
    input: Input,
    /// Signals that came before the job was known.
    kept: SignalSet,
}

impl RunningCommand {
    /// Creates the receiver for a command whose request has just been sent.
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

    /// Passes a signal on to the process group, as a terminal does, or keeps it until the job is
    /// known.
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
        // The process group no longer exists: cancel the request, which ends the remaining
        // processes.
        if self.sandbox.call(request).is_err() && ENDS.contains(&signal) {
            let _ = self.input.cancel();
        }
    }

    fn resize(&self, job: JobId) {
        let size = terminal::size();
        let _ = self.sandbox.call(Request::JobResize { job, size });
    }

    /// Sends SIGTSTP to the command. Returns true if the guest delivered it.
    fn stop(&self) -> bool {
        let stop = |job| Request::JobSignal {
            job,
            signal: SIGTSTP,
            whole_tree: false,
        };
        self.job
            .is_some_and(|job| self.sandbox.call(stop(job)).is_ok())
    }

    /// Kills the command.
    fn kill(&self) {
        match self.job {
            Some(job) => drop(self.sandbox.call(Request::JobKill { job, grace_ms: 0 })),
            // Without a job, cancelling the request kills the command.
            None => drop(self.input.cancel()),
        }
    }
}

/// Target of the signal thread.
#[derive(Debug)]
enum Phase {
    /// No command runs.
    Idle {
        /// Terminating signal that came meanwhile.
        pending: Option<i32>,
        /// Other signals that came meanwhile.
        kept: SignalSet,
    },
    /// An agent works; a callback handles terminating signals.
    Working {
        /// Receives the number of signals so far.
        on_signal: StopWatch,
        asked: u32,
    },
    /// A command runs.
    Running {
        command: RunningCommand,
        on_signal: OnSignal,
        /// Number of terminating signals so far.
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
    /// True while this process is about to stop with its command. Then [`Signals::suspend`], and
    /// not the handler of SIGCONT, continues the command.
    is_suspending: Arc<AtomicBool>,
}

impl Signals {
    /// Handles the signals that terminate or resize.
    ///
    /// # Errors
    /// The handlers or the thread cannot be set up.
    pub(crate) fn take_over() -> Result<Self, CommandError> {
        Self::take_over_those(|signal| ENDS.contains(&signal))
    }

    /// Handles the signals that terminate, stop or resize: those of a command that has the
    /// terminal.
    ///
    /// # Errors
    /// As [`Self::take_over`].
    pub(crate) fn take_over_with_stop() -> Result<Self, CommandError> {
        Self::take_over_those(|signal| ENDS.contains(&signal) || signal == SIGTSTP)
    }

    /// Handles all signals that can be passed on to a command.
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

    /// Directs signals to this command from now on, beginning with those that were kept.
    pub(super) fn begin(&self, command: RunningCommand, on_signal: OnSignal) {
        let running = Phase::Running {
            command,
            on_signal,
            asked: 0,
        };
        let before = std::mem::replace(&mut *self.lock(), running);
        // The lock is released by now: `on_signal` takes it again.
        if let Phase::Idle { pending, kept } = before {
            for signal in kept.iter().chain(pending) {
                self.on_signal(signal);
            }
        }
    }

    /// Records the job of the command, and passes on the signals that came before it was known.
    pub(super) fn note_job(&self, job: JobId) {
        if let Phase::Running { command, .. } = &mut *self.lock() {
            command.job = Some(job);
            for signal in std::mem::take(&mut command.kept).iter() {
                command.pass_on(signal);
            }
        }
    }

    /// Stops this process by the signal that has stopped the command, and continues the command
    /// when this process is continued. Called by the main thread.
    pub(super) fn suspend(&self, signal: i32) {
        terminal::suspend();
        self.is_suspending.store(true, Ordering::Release);
        // A key stops every process in the foreground; a command that stops itself stops no other
        // process.
        let is_key = signal == SIGTSTP && terminal::is_foreground();
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = stop_caller(signal, is_key);
        }
        // The signal thread has received SIGCONT by now, or receives it shortly. There is none if
        // nothing was stopped, as in an orphaned process group; hence the bounded wait.
        for _ in 0..CONT_CHECKS {
            if !self.is_suspending.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(CONT_CHECK);
        }
        self.is_suspending.store(false, Ordering::Release);
        self.continue_command();
    }

    /// Continues a stopped command, on a terminal of the current size.
    pub(super) fn continue_command(&self) {
        terminal::renew();
        if let Phase::Running { command, .. } = &mut *self.lock() {
            if let (true, Some(job)) = (command.has_terminal, command.job) {
                command.resize(job);
            }
            command.pass_on(SIGCONT);
        }
    }

    /// Handles SIGTSTP: passes it on to the command, or stops this process if no command takes it.
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

    /// Calls `on_signal` for each terminating signal from now on; the third ends this process in
    /// any case.
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
        // The lock is released by now: `on_signal` takes it again.
        if pending {
            self.on_signal(SIGINT);
        }
    }

    /// Ends the phase that [`Self::work`] began. Returns the number of terminating signals in it.
    pub(crate) fn rest(&self) -> u32 {
        let before = std::mem::replace(&mut *self.lock(), Phase::IDLE);
        match before {
            Phase::Working { asked, .. } => asked,
            Phase::Idle { .. } | Phase::Running { .. } => 0,
        }
    }

    /// Ends the phase of a running command.
    pub(super) fn end(&self) {
        *self.lock() = Phase::IDLE;
    }

    /// Fails if the user has asked to stop before a command began.
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
            // Without a command, SIGCONT concerns this process alone.
            Phase::Idle { .. } if signal == SIGCONT => terminal::renew(),
            Phase::Idle { kept, .. } if !ENDS.contains(&signal) => kept.insert(signal),
            Phase::Working { .. } if !ENDS.contains(&signal) => {}
            Phase::Working { on_signal, asked } => {
                *asked += 1;
                (on_signal.0)(*asked);
                if *asked >= LAST_WISH {
                    // `exit` runs no destructors, so the guard would not restore the terminal.
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

/// Returns the signals that this process ignores (proc_pid_status(5), `SigIgn`).
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
