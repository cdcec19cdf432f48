//! Freezes every process of the commands while the host reads their files.
//!
//! A freeze is a request, and lasts as long as that is open: a caller that dies, loses the
//! connection or forgets it cannot leave anything frozen. Processes are stopped with SIGSTOP,
//! parents first, and checked until all are stopped. They are continued children first, so that no
//! shell sees a stopped child. A process that was stopped before stays stopped. The guest keeps
//! answering: requests that would change files or start commands wait in order, all others are
//! handled.
//!
//! A job whose deadline passes, or that is asked to end, gets its signal and notices it when the
//! freeze ends. A job whose grace has ended is killed even while frozen.
//!
//! In: requests, timers, frames that may have to wait. Out: answers, and a [`FreezeEffect`] for the
//! event loop.

use crate::fault;
use crate::jobs::Jobs;
use crate::requests::{PendingRequest, Requests};
use crate::timers::{Set, Timer};
use glovebox_jail::process::{Census, Member};
use glovebox_proto::{
    Channel, Code, Fault, FrameKind, FrameRef, Header, Request, RequestId, WireError,
};
use rustix::process::{Pid, Signal};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Maximum time to stop all processes.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// Interval between checks, in milliseconds. A stopped process halts only when it next enters the
/// kernel.
const LOOK_AGAIN_MS: u64 = 1;
/// Maximum number of bytes of deferred frames.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// State of the freeze, and the requests that hold it.
#[derive(Debug, Default)]
pub(crate) struct Freeze {
    /// Open freeze requests.
    holders: Vec<RequestId>,
    stage: Stage,
    /// Processes stopped by the freeze, with their start times: a process id alone may be reused.
    stopped: HashMap<Pid, u64>,
    /// Context switches of each process when all were stopped, by id and start time.
    switches: HashMap<(Pid, u64), u64>,
    /// True if the last check found all processes stopped and one of them held by a tracer.
    is_confirming: bool,
    deferred: DeferredFrames,
}

/// Action for the event loop after the freeze has advanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "everything that waited stays so otherwise"]
pub(crate) enum FreezeEffect {
    /// Nothing.
    Nothing,
    /// The freeze has ended: resume deferred frames and requests.
    Resume,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Off,
    Stopping {
        until: Instant,
        timer: Set,
    },
    Still,
}

/// Frames of requests that may not begin yet.
#[derive(Debug, Default)]
struct DeferredFrames {
    frames: VecDeque<(Header, Vec<u8>)>,
    ids: HashSet<RequestId>,
    bytes: usize,
}

/// Returns true if a request may change files or let a process run.
pub(crate) fn changes(request: &Request) -> bool {
    matches!(
        request,
        Request::Exec(_)
            | Request::FileWrite { .. }
            | Request::Mkdir { .. }
            | Request::Remove { .. }
            | Request::Rename { .. }
            | Request::Edit { .. }
            | Request::TreePut { .. }
    ) || matches!(request, Request::JobSignal { signal, .. } if *signal == Signal::CONT.as_raw())
}

impl Freeze {
    /// Returns true if a freeze is in progress or complete.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.stage, Stage::Off)
    }

    /// Returns true if a frame has to wait until the freeze ends; it is then stored. A cancellation
    /// of a deferred request is answered at once.
    ///
    /// # Errors
    /// The frame cannot be decoded, or the host sent too much for deferred requests.
    pub(crate) fn defers(
        &mut self,
        requests: &mut Requests,
        frame: &FrameRef<'_>,
    ) -> Result<bool, WireError> {
        let Header { id, kind, .. } = frame.header;
        if !self.is_on() && self.deferred.ids.is_empty() {
            return Ok(false);
        }
        let deferred = &mut self.deferred;
        if kind == FrameKind::Cancel && deferred.ids.remove(&id) {
            deferred.frames.retain(|(header, _)| header.id != id);
            deferred.bytes = deferred.frames.iter().map(|(_, bytes)| bytes.len()).sum();
            requests.answer(id, &Err(fault::cancelled()));
            return Ok(true);
        }
        let is_first = kind == FrameKind::Request && self.is_on();
        let deferred = &mut self.deferred;
        if !deferred.ids.contains(&id) {
            if !is_first || !changes(&glovebox_proto::decode(frame.payload, "request")?) {
                return Ok(false);
            }
            deferred.ids.insert(id);
        }
        // TRUST: the host is expected to respect the windows of its streams; this bounds a host
        // that does not.
        deferred.bytes += frame.payload.len();
        if deferred.bytes > MAX_WAITING_BYTES {
            return Err(WireError::BadHeader("too much is sent to what has to wait"));
        }
        let kept = (frame.header, frame.payload.to_vec());
        deferred.frames.push_back(kept);
        Ok(true)
    }

    /// Takes the deferred frames in order of arrival; none while the freeze lasts.
    pub(crate) fn take_deferred(&mut self) -> VecDeque<(Header, Vec<u8>)> {
        if self.is_on() {
            return VecDeque::new();
        }
        std::mem::take(&mut self.deferred).frames
    }

    /// Adds a freeze request. The first one begins to stop processes.
    pub(crate) fn begin(
        &mut self,
        jobs: &mut Jobs,
        requests: &mut Requests,
        id: RequestId,
    ) -> FreezeEffect {
        requests.open.insert(id, PendingRequest::Freeze);
        self.holders.push(id);
        match self.stage {
            Stage::Off => {
                let timer = requests.timers.after_ms(LOOK_AGAIN_MS, Timer::Freeze);
                let until = Instant::now() + STOP_WAIT;
                self.stage = Stage::Stopping { until, timer };
                jobs.set_frozen(true);
                return self.look_again(jobs, requests);
            }
            Stage::Stopping { .. } => {}
            Stage::Still => Self::say_still(requests, id),
        }
        FreezeEffect::Nothing
    }

    /// Removes a freeze request and answers it; the last one ends the freeze.
    pub(crate) fn end(
        &mut self,
        jobs: &mut Jobs,
        requests: &mut Requests,
        id: RequestId,
    ) -> FreezeEffect {
        self.holders.retain(|holder| *holder != id);
        // Compared before the processes are continued, which would count as movement.
        let answer = match self.stage {
            Stage::Still if self.has_moved(jobs) => not_still(),
            _ => fault::cancelled(),
        };
        let effect = if self.holders.is_empty() {
            self.let_go(jobs, requests)
        } else {
            FreezeEffect::Nothing
        };
        requests.answer(id, &Err(answer));
        effect
    }

    /// Returns true if a process has run since all were stopped: a timer, for one, can continue a
    /// process, which may stop again before the next check.
    fn has_moved(&self, jobs: &Jobs) -> bool {
        let Ok(members) = Self::members(jobs) else {
            return true;
        };
        members.iter().any(|member| {
            let before = self.switches.get(&(member.pid, member.start_ticks));
            let now = member.switches();
            // A process that has ended since has not run.
            now.is_some() && before != now.as_ref()
        })
    }

    /// Stops processes that still run. Tells the holders when none is left, or fails them after
    /// `STOP_WAIT`.
    pub(crate) fn look_again(&mut self, jobs: &mut Jobs, requests: &mut Requests) -> FreezeEffect {
        let Stage::Stopping { until, timer } = self.stage else {
            return FreezeEffect::Nothing;
        };
        requests.timers.unset(timer);
        let is_still = match self.stop_everything(jobs) {
            // A worker may still be writing a file, which no SIGSTOP to the commands prevents.
            Ok(is_still) => is_still && !requests.has_changes_at_work(),
            Err(errno) => {
                let message =
                    format!("the processes of commands cannot be found in /proc: {errno}");
                return self.give_up(jobs, requests, &Fault::failed(Code::Unsupported, message));
            }
        };
        if is_still {
            self.stage = Stage::Still;
            self.note_switches(jobs);
            for id in self.holders.clone() {
                Self::say_still(requests, id);
            }
        } else if Instant::now() >= until {
            return self.give_up(jobs, requests, &not_still());
        } else {
            let timer = requests.timers.after_ms(LOOK_AGAIN_MS, Timer::Freeze);
            self.stage = Stage::Stopping { until, timer };
        }
        FreezeEffect::Nothing
    }

    fn note_switches(&mut self, jobs: &Jobs) {
        let members = Self::members(jobs).unwrap_or_default();
        let note = |member: &Member| {
            let switches = member.switches()?;
            Some(((member.pid, member.start_ticks), switches))
        };
        self.switches = members.iter().filter_map(note).collect();
    }

    fn say_still(requests: &mut Requests, id: RequestId) {
        requests.link.data(id, Channel::Content, &[1]);
    }

    fn give_up(&mut self, jobs: &mut Jobs, requests: &mut Requests, fault: &Fault) -> FreezeEffect {
        for id in std::mem::take(&mut self.holders) {
            requests.answer(id, &Err(fault.clone()));
        }
        self.let_go(jobs, requests)
    }

    /// Returns all live processes below the command supervisors, parents before their children. The
    /// supervisors belong to the guest and only wait.
    fn members(jobs: &Jobs) -> Result<Vec<Member>, rustix::io::Errno> {
        let census = Census::take()?;
        let mut members = Vec::new();
        for warden in jobs.wardens() {
            members.extend(census.descendants_of(warden));
        }
        members.retain(|member| member.is_alive);
        Ok(members)
    }

    /// Sends SIGSTOP to every process that is not stopped. Returns true if all were stopped
    /// already.
    fn stop_everything(&mut self, jobs: &Jobs) -> Result<bool, rustix::io::Errno> {
        let members = Self::members(jobs)?;
        let mut is_still = true;
        // Parents first: a parent that still ran could start children that this list lacks.
        for member in &members {
            let start = member.start_ticks;
            if member.is_stopped {
                continue;
            }
            if self.stopped.get(&member.pid) == Some(&start) {
                // After vfork(2) a parent waits uninterruptibly until its child executes a program.
                // While the child is stopped the parent cannot run, and its signal is pending.
                let has_held_child = members
                    .iter()
                    .any(|child| child.parent == Some(member.pid) && child.is_stopped);
                let is_held = member.is_uninterruptible && has_held_child;
                if !is_held {
                    // Repeated, because a tracer may have suppressed the signal.
                    let _ = rustix::process::kill_process(member.pid, Signal::STOP);
                }
                is_still &= is_held;
                continue;
            }
            is_still = false;
            if rustix::process::kill_process(member.pid, Signal::STOP).is_ok() {
                self.stopped.insert(member.pid, start);
            }
        }
        let is_confirmed = std::mem::replace(&mut self.is_confirming, false);
        if is_still && members.iter().any(|member| member.is_held_by_tracer) {
            // A tracer that ran until this check may have continued a process after the check saw
            // it stopped. Two successive checks that find all processes stopped, with no context
            // switch between them, exclude that.
            if !is_confirmed || self.has_moved(jobs) {
                self.note_switches(jobs);
                self.is_confirming = true;
                return Ok(false);
            }
        }
        Ok(is_still)
    }

    fn let_go(&mut self, jobs: &mut Jobs, requests: &mut Requests) -> FreezeEffect {
        if let Stage::Stopping { timer, .. } = self.stage {
            requests.timers.unset(timer);
        }
        self.stage = Stage::Off;
        self.is_confirming = false;
        jobs.set_frozen(false);
        let stopped = std::mem::take(&mut self.stopped);
        // Jobs that were asked to end meanwhile must run to handle their signal, no matter what
        // stopped them.
        let asked = jobs.wardens_asked_to_end();
        match Self::members(jobs) {
            Ok(members) => {
                // Children first, so that no shell sees a stopped child.
                for member in members.iter().rev() {
                    if stopped.get(&member.pid) == Some(&member.start_ticks) {
                        let _ = rustix::process::kill_process(member.pid, Signal::CONT);
                    }
                }
            }
            // Without /proc a reused process id cannot be excluded. A stray SIGCONT is harmless, a
            // process that stays frozen is not.
            Err(_) => {
                for pid in stopped.keys() {
                    let _ = rustix::process::kill_process(*pid, Signal::CONT);
                }
            }
        }
        if !asked.is_empty()
            && let Ok(census) = Census::take()
        {
            for warden in asked {
                census.signal_tree(warden, Signal::CONT);
            }
        }
        FreezeEffect::Resume
    }
}

fn not_still() -> Fault {
    let message =
        "the processes of commands could not be held still: one goes on although it was stopped";
    Fault::failed(Code::Busy, message).retryable()
}
