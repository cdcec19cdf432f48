//! Commands that a signal has stopped: whoever carries their streams is told, and continues them.

use super::Jobs;
use super::job::JobEnding;
use crate::requests::Requests;
use glovebox_jail::process::Member;
use glovebox_proto::{Channel, EVENT_BYTES, Event, JobId};
use rustix::process::Signal;

impl Jobs {
    /// A signal has stopped a command.
    pub(super) fn command_stopped(&mut self, requests: &mut Requests, id: JobId, signal: i32) {
        if let Some(job) = self.table.get_mut(&id) {
            job.stop = Some(signal);
            self.tell_stop(requests, id);
        }
    }

    /// Tells of a stop that was not told yet, if there is one.
    pub(super) fn tell_stop(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        let Some(signal) = job.stop else { return };
        // A freeze stops everything; the end of it looks again at what had been stopped before.
        if self.is_frozen {
            return;
        }
        // It may have been continued since: by a process inside, or at the end of a freeze that had stopped it.
        if job.end.is_some() || !Member::read(job.command).is_some_and(|found| found.is_stopped) {
            job.stop = None;
            return;
        }
        let is_ending = !matches!(job.ending, JobEnding::No);
        if is_ending || job.listeners.is_empty() {
            job.stop = None;
            // Nothing would continue it: it behaves as in an orphaned process group, which the kernel does not stop.
            if is_ending || signal != Signal::STOP.as_raw() {
                let _ = rustix::process::kill_process_group(job.command, Signal::CONT);
            }
            return;
        }
        let has_room = |room: u32| room >= EVENT_BYTES as u32;
        if !job
            .listeners
            .iter()
            .all(|listener| has_room(listener.window.room()))
        {
            // Credit brings us back here.
            return;
        }
        job.stop = None;
        for listener in &mut job.listeners {
            listener.window.spend(EVENT_BYTES as u32);
            let event = Event::Stopped(signal).encode();
            requests
                .link
                .data(listener.request, Channel::Content, &event);
        }
    }
}
