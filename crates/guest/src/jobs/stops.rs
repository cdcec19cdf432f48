//! Reports commands that a signal has stopped to the clients that carry their streams, which
//! continue them.

use super::Jobs;
use super::job::JobEnding;
use crate::requests::Requests;
use glovebox_jail::process::Member;
use glovebox_proto::{Channel, EVENT_BYTES, Event, JobId};
use rustix::process::Signal;

impl Jobs {
    /// Handles the stop of a command by a signal.
    pub(super) fn command_stopped(&mut self, requests: &mut Requests, id: JobId, signal: i32) {
        if let Some(job) = self.table.get_mut(&id) {
            job.stop = Some(signal);
            self.tell_stop(requests, id);
        }
    }

    /// Reports a stop that was not reported yet.
    pub(super) fn tell_stop(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        let Some(signal) = job.stop else { return };
        // A freeze stops every process. Its end calls this again for commands stopped before.
        if self.is_frozen {
            return;
        }
        // A process inside, or the end of a freeze, may have continued it since.
        if job.end.is_some() || !Member::read(job.command).is_some_and(|found| found.is_stopped) {
            job.stop = None;
            return;
        }
        let is_ending = !matches!(job.ending, JobEnding::No);
        if is_ending || job.listeners.is_empty() {
            job.stop = None;
            // No client would continue it. It behaves as in an orphaned process group, in which the
            // kernel ignores terminal stops.
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
            // Credit for events calls this again.
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
