//! Holding everything that commands started still, while somebody looks at their files.
//!
//! A request of its own, for as long as it is open: so whoever asked for it cannot leave anything held
//! by dying, losing the connection or forgetting. Processes are stopped by signal, parents first, and
//! looked at until all of them are; they are let go children first, so that no shell sees a stopped
//! child. One that had been stopped before stays so. The guest itself answers on: what would change
//! files or start commands waits in the order it came, everything else is done.
//!
//! A job whose deadline passes or that is asked to end is told so, and notices when it is let go; who
//! has had its grace by then is killed, held or not.

use crate::fault;
use crate::job::Ending;
use crate::requests::PendingRequest;
use crate::serve::Server;
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

/// What is held, and who wants it to be.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    holders: Vec<RequestId>,
    stage: Stage,
    /// Those that were stopped, by when they started: an id alone may come to mean another.
    stopped: HashMap<Pid, u64>,
    /// How often each had been on a processor when all of them stood still, by id and start.
    switches: HashMap<(Pid, u64), u64>,
    waiting: Waiting,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Free,
    Stopping {
        until: Instant,
        timer: Set,
    },
    Still,
}

/// Frames of requests that may not begin yet.
#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<(Header, Vec<u8>)>,
    ids: HashSet<RequestId>,
    bytes: usize,
}

impl Hold {
    /// Whether nothing may change now.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.stage, Stage::Free)
    }
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

impl Server {
    /// Whether a frame has to wait until everything is let go; then it has been kept.
    pub(crate) fn defers(&mut self, frame: &FrameRef<'_>) -> Result<bool, WireError> {
        let Header { id, kind, .. } = frame.header;
        if !self.hold.is_on() && self.hold.waiting.ids.is_empty() {
            return Ok(false);
        }
        let waiting = &mut self.hold.waiting;
        if kind == FrameKind::Cancel && waiting.ids.remove(&id) {
            waiting.frames.retain(|(header, _)| header.id != id);
            waiting.bytes = waiting.frames.iter().map(|(_, bytes)| bytes.len()).sum();
            self.answer(id, &Err(fault::cancelled()));
            return Ok(true);
        }
        let is_first = kind == FrameKind::Request && self.hold.is_on();
        let waiting = &mut self.hold.waiting;
        if !waiting.ids.contains(&id) {
            if !is_first || !changes(&glovebox_proto::decode(frame.payload, "request")?) {
                return Ok(false);
            }
            waiting.ids.insert(id);
        }
        // TRUST: the host keeps to the windows of its streams; this bounds it if it does not.
        waiting.bytes += frame.payload.len();
        if waiting.bytes > MAX_WAITING_BYTES {
            return Err(WireError::BadHeader("too much is sent to what has to wait"));
        }
        let kept = (frame.header, frame.payload.to_vec());
        waiting.frames.push_back(kept);
        Ok(true)
    }

    /// Does what had to wait, if nothing is held any more.
    pub(crate) fn do_deferred(&mut self) -> Result<(), WireError> {
        if self.hold.is_on() || self.hold.waiting.ids.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.hold.waiting);
        for (header, payload) in waiting.frames {
            self.handle(FrameRef {
                header,
                payload: &payload,
            })?;
        }
        Ok(())
    }

    /// Somebody wants everything to be held.
    pub(crate) fn begin_hold(&mut self, id: RequestId) {
        self.requests.insert(id, PendingRequest::Hold);
        self.hold.holders.push(id);
        match self.hold.stage {
            Stage::Free => {
                let timer = self.timers.after_ms(LOOK_AGAIN_MS, Timer::Hold);
                let until = Instant::now() + STOP_WAIT;
                self.hold.stage = Stage::Stopping { until, timer };
                self.look_at_held();
            }
            Stage::Stopping { .. } => {}
            Stage::Still => self.say_still(id),
        }
    }

    /// Whoever held everything does not any more; the last one lets it go.
    pub(crate) fn end_hold(&mut self, id: RequestId) {
        self.hold.holders.retain(|holder| *holder != id);
        let answer = match self.hold.stage {
            Stage::Still if self.has_moved() => not_still(),
            _ => fault::cancelled(),
        };
        if self.hold.holders.is_empty() {
            self.let_go();
        }
        self.answer(id, &Err(answer));
    }

    /// Whether something has run since everything stood still: a process can have itself continued, by a timer
    /// for one, and be stopped again before anybody looks.
    fn has_moved(&self) -> bool {
        let Ok(members) = self.members() else {
            return true;
        };
        members.iter().any(|member| {
            let before = self.hold.switches.get(&(member.pid, member.start_ticks));
            let now = member.switches();
            // What has ended since has not moved.
            now.is_some() && before != now.as_ref()
        })
    }

    /// Stops what has not been, and says when there is nothing left that runs.
    pub(crate) fn look_at_held(&mut self) {
        let Stage::Stopping { until, timer } = self.hold.stage else {
            return;
        };
        self.timers.unset(timer);
        let is_still = match self.stop_everything() {
            Ok(is_still) => is_still && !self.has_changes_at_work(),
            Err(errno) => {
                let message =
                    format!("the processes of commands cannot be found in /proc: {errno}");
                return self.give_hold_up(&Fault::failed(Code::Unsupported, message));
            }
        };
        if is_still {
            self.hold.stage = Stage::Still;
            self.note_switches();
            for id in self.hold.holders.clone() {
                self.say_still(id);
            }
        } else if Instant::now() >= until {
            self.give_hold_up(&not_still());
        } else {
            let timer = self.timers.after_ms(LOOK_AGAIN_MS, Timer::Hold);
            self.hold.stage = Stage::Stopping { until, timer };
        }
    }

    fn note_switches(&mut self) {
        let members = self.members().unwrap_or_default();
        let note = |member: &Member| {
            let switches = member.switches()?;
            Some(((member.pid, member.start_ticks), switches))
        };
        self.hold.switches = members.iter().filter_map(note).collect();
    }

    fn say_still(&mut self, id: RequestId) {
        self.link.data(id, Channel::Content, &[1]);
    }

    fn give_hold_up(&mut self, fault: &Fault) {
        for id in std::mem::take(&mut self.hold.holders) {
            self.answer(id, &Err(fault.clone()));
        }
        self.let_go();
    }

    /// Everything below the jobs' wardens, parents before their children. Wardens are ours and do
    /// nothing but wait.
    fn members(&self) -> Result<Vec<Member>, rustix::io::Errno> {
        let census = Census::take()?;
        let mut members = Vec::new();
        for warden in self.by_warden.keys() {
            members.extend(census.descendants_of(*warden));
        }
        members.retain(|member| member.is_alive);
        Ok(members)
    }

    /// Whether everything is stopped by now.
    fn stop_everything(&mut self) -> Result<bool, rustix::io::Errno> {
        let members = self.members()?;
        let mut is_still = true;
        for member in &members {
            let start = member.start_ticks;
            if member.is_stopped {
                continue;
            }
            if self.hold.stopped.get(&member.pid) == Some(&start) {
                // After vfork(2) a parent waits in the kernel until its child runs a program of its
                // own. With its child held it makes no step, and it has its signal already.
                let has_held_child = members
                    .iter()
                    .any(|child| child.parent == Some(member.pid) && child.is_stopped);
                is_still &= member.is_deaf && has_held_child;
                continue;
            }
            is_still = false;
            if rustix::process::kill_process(member.pid, Signal::STOP).is_ok() {
                self.hold.stopped.insert(member.pid, start);
            }
        }
        Ok(is_still)
    }

    /// Whether a step is being done that changes files.
    fn has_changes_at_work(&self) -> bool {
        self.requests.values().any(PendingRequest::is_changing_now)
    }

    fn let_go(&mut self) {
        if let Stage::Stopping { timer, .. } = self.hold.stage {
            self.timers.unset(timer);
        }
        self.hold.stage = Stage::Free;
        let stopped = std::mem::take(&mut self.hold.stopped);
        // Who was asked to end meanwhile is to notice, stopped by us or by others.
        let asked = self
            .jobs
            .values()
            .filter(|job| matches!(job.ending, Ending::Asked(_)));
        let asked: Vec<Pid> = asked.map(|job| job.warden).collect();
        match self.members() {
            Ok(members) => {
                for member in members.iter().rev() {
                    if stopped.get(&member.pid) == Some(&member.start_ticks) {
                        let _ = rustix::process::kill_process(member.pid, Signal::CONT);
                    }
                }
            }
            // Held for ever would be worse than a signal to one that has none to fear.
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
        self.resume();
    }
}

fn not_still() -> Fault {
    let message =
        "the processes of commands could not be held still: one goes on although it was stopped";
    Fault::failed(Code::Busy, message).retryable()
}
