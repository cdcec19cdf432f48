//! Freezing everything that commands started, while somebody looks at their files.
//!
//! A freeze is a request of its own, and lasts for as long as that is open: so its caller cannot leave anything frozen
//! by dying, losing the connection or forgetting. Processes are stopped by signal, parents first, and
//! looked at until all of them are; they are continued children first, so that no shell sees a stopped
//! child. One that had been stopped before stays so. The guest itself answers on: requests that would change
//! files or start commands wait in the order they came, everything else is done.
//!
//! A job whose deadline passes or that is asked to end gets its signal, and notices it when the freeze ends; one that
//! has had its grace by then is killed, frozen or not.
//!
//! In: requests, timers, frames that may have to wait. Out: answers, and an [`FreezeEffect`] for the event loop.

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

/// How long stopping everything may take.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// A process stops when the kernel next looks at it; this is how often that is looked at.
const LOOK_AGAIN_MS: u64 = 1;
/// Frames that wait at most, in bytes.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// What is frozen, and for which requests.
#[derive(Debug, Default)]
pub(crate) struct Freeze {
    /// The requests that keep it up.
    holders: Vec<RequestId>,
    stage: Stage,
    /// Those that were stopped, by when they started: an id alone may come to mean another.
    stopped: HashMap<Pid, u64>,
    /// How often each had been on a processor when all of them stood still, by id and start.
    switches: HashMap<(Pid, u64), u64>,
    /// The last look found everything stopped, and something among it held by a tracer.
    is_confirming: bool,
    deferred: DeferredFrames,
}

/// What the event loop has to do after the freeze has moved on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "everything that waited stays so otherwise"]
pub(crate) enum FreezeEffect {
    /// Nothing.
    Nothing,
    /// Nothing is frozen any more: what waited goes on.
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

/// Whether a request may change files or make something run.
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
    /// Whether nothing may change now.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.stage, Stage::Off)
    }

    /// Whether a frame has to wait until the freeze ends; then it has been kept.
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
        // TRUST: the host keeps to the windows of its streams; this bounds it if it does not.
        deferred.bytes += frame.payload.len();
        if deferred.bytes > MAX_WAITING_BYTES {
            return Err(WireError::BadHeader("too much is sent to what has to wait"));
        }
        let kept = (frame.header, frame.payload.to_vec());
        deferred.frames.push_back(kept);
        Ok(true)
    }

    /// The frames that had to wait and need not any more, in the order they came.
    pub(crate) fn take_deferred(&mut self) -> VecDeque<(Header, Vec<u8>)> {
        if self.is_on() {
            return VecDeque::new();
        }
        std::mem::take(&mut self.deferred).frames
    }

    /// A request wants everything to be frozen.
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

    /// A request does not want it any more; the last one ends the freeze.
    pub(crate) fn end(
        &mut self,
        jobs: &mut Jobs,
        requests: &mut Requests,
        id: RequestId,
    ) -> FreezeEffect {
        self.holders.retain(|holder| *holder != id);
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

    /// Whether something has run since everything stood still: a process can have itself continued, by a timer
    /// for one, and be stopped again before anybody looks.
    fn has_moved(&self, jobs: &Jobs) -> bool {
        let Ok(members) = Self::members(jobs) else {
            return true;
        };
        members.iter().any(|member| {
            let before = self.switches.get(&(member.pid, member.start_ticks));
            let now = member.switches();
            // What has ended since has not moved.
            now.is_some() && before != now.as_ref()
        })
    }

    /// Stops what has not been, and says when there is nothing left that runs.
    pub(crate) fn look_again(&mut self, jobs: &mut Jobs, requests: &mut Requests) -> FreezeEffect {
        let Stage::Stopping { until, timer } = self.stage else {
            return FreezeEffect::Nothing;
        };
        requests.timers.unset(timer);
        let is_still = match self.stop_everything(jobs) {
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

    /// Everything below the jobs' wardens, parents before their children. Wardens are ours and do
    /// nothing but wait.
    fn members(jobs: &Jobs) -> Result<Vec<Member>, rustix::io::Errno> {
        let census = Census::take()?;
        let mut members = Vec::new();
        for warden in jobs.wardens() {
            members.extend(census.descendants_of(warden));
        }
        members.retain(|member| member.is_alive);
        Ok(members)
    }

    /// Whether everything is stopped by now.
    fn stop_everything(&mut self, jobs: &Jobs) -> Result<bool, rustix::io::Errno> {
        let members = Self::members(jobs)?;
        let mut is_still = true;
        for member in &members {
            let start = member.start_ticks;
            if member.is_stopped {
                continue;
            }
            if self.stopped.get(&member.pid) == Some(&start) {
                // After vfork(2) a parent waits in the kernel until its child runs a program of its
                // own. With its child held it makes no step, and it has its signal already.
                let has_held_child = members
                    .iter()
                    .any(|child| child.parent == Some(member.pid) && child.is_stopped);
                let is_held = member.is_uninterruptible && has_held_child;
                if !is_held {
                    // Again, because its tracer may have taken the signal for itself.
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
            // A tracer that was stopped while this looked may have let go before what had been seen standing.
            // Two looks in a row that find all of them standing, and that none has run in between, exclude it.
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
        // Who was asked to end meanwhile is to notice, stopped by us or by others.
        let asked = jobs.wardens_asked_to_end();
        match Self::members(jobs) {
            Ok(members) => {
                for member in members.iter().rev() {
                    if stopped.get(&member.pid) == Some(&member.start_ticks) {
                        let _ = rustix::process::kill_process(member.pid, Signal::CONT);
                    }
                }
            }
            // Frozen for ever would be worse than a signal to one that has none to fear.
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
