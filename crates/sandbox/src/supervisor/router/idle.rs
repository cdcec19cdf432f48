//! End of a sandbox that nobody uses: no client is connected, and no job runs.
//!
//! Whether a job runs only the guest knows, so the supervisor asks it once the sandbox has had no
//! client for long enough. Without an answer the sandbox keeps running.

use super::route::Route;
use super::{EndReason, Router};
use crate::link::StreamSet;
use glovebox_proto::{Fault, FrameKind, Header, JobState, Reply, Request, decode, encode};
use std::time::{Duration, Instant};

/// Progress of finding out whether the sandbox is used.
#[derive(Debug, Default)]
pub(super) struct IdleWatch {
    /// Time of the last answer that named a running job.
    busy_at: Option<Instant>,
    /// Id of the open request for the list of jobs.
    request: Option<u32>,
}

impl Router {
    /// Returns the time at which the guest is to be asked for its jobs. `None` while a client is
    /// connected or an answer is awaited.
    pub(super) fn idle_check_at(&self, idle: Duration) -> Option<Instant> {
        if !self.clients.is_empty() || self.idle.request.is_some() {
            return None;
        }
        let since = self
            .idle
            .busy_at
            .map_or(self.idle_since, |busy_at| busy_at.max(self.idle_since));
        since.checked_add(idle)
    }

    /// Asks the guest for its jobs if the sandbox has had no client for `idle`.
    pub(super) fn check_idle(&mut self, idle: Duration) -> Result<(), EndReason> {
        if self
            .idle_check_at(idle)
            .is_none_or(|at| at > Instant::now())
        {
            return Ok(());
        }
        let Ok(payload) = encode(&Request::JobList) else {
            return Ok(());
        };
        let id = self.next_id();
        self.routes
            .insert(id.0, Route::own(StreamSet::of(&Request::JobList)));
        self.idle.request = Some(id.0);
        let header = Header::control(FrameKind::Request, id, payload.len() as u32);
        self.tell_guest(header, &payload)
    }

    /// Forgets the request of a guest that was replaced.
    pub(super) fn forget_idle_check(&mut self) {
        self.idle = IdleWatch::default();
    }

    /// Takes the reply to a request of [`Self::check_idle`]. Does nothing for other requests.
    pub(super) fn take_idle_reply(
        &mut self,
        id: u32,
        payload: &[u8],
        idle: Option<Duration>,
    ) -> Result<(), EndReason> {
        if self.idle.request != Some(id) {
            return Ok(());
        }
        self.idle.request = None;
        let is_over = |job: &glovebox_proto::JobInfo| matches!(job.state, JobState::Ended(_));
        // TRUST: a guest that lies about its jobs only keeps its own sandbox running.
        let is_unused = match decode::<Result<Reply, Fault>>(payload, "reply") {
            Ok(Ok(Reply::Jobs(jobs))) => jobs.iter().all(is_over),
            _ => false,
        };
        match idle {
            // A client may have come since the question.
            Some(idle) if is_unused && self.clients.is_empty() => Err(EndReason::Idle(idle)),
            _ => {
                self.idle.busy_at = Some(Instant::now());
                Ok(())
            }
        }
    }
}
