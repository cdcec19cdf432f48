//! What each user may have at the same time, and how much of it is used.

use super::App;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, SandboxState};
use glovebox_session::Error;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;

/// Sandboxes that are on their way, by user: nothing else knows of them yet.
#[derive(Debug, Default)]
pub(super) struct SandboxStarts {
    starting: Mutex<HashMap<String, usize>>,
}

/// A place for a sandbox that starts, until it is dropped.
#[derive(Debug)]
pub(super) struct StartPlace<'a> {
    starts: &'a SandboxStarts,
    user: String,
}

impl SandboxStarts {
    fn starting(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StartPlace<'_> {
    fn drop(&mut self) {
        let mut starting = self.starts.starting();
        if let Some(count) = starting.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                starting.remove(&self.user);
            }
        }
    }
}

/// How much of something is used, and how much may be.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuotaUse {
    /// Now.
    used: usize,
    /// At most.
    limit: usize,
}

/// What each sandbox may use; null where nothing limits it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxLimits {
    memory_bytes: Option<u64>,
    /// Thousandths of one processor.
    cpu_millis: Option<u32>,
    disk_bytes: Option<u64>,
    processes: Option<u32>,
}

/// What the user that asks may have at the same time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Quotas {
    /// The user.
    user: String,
    /// Sessions that work.
    running_sessions: QuotaUse,
    /// Sessions that wait for their turn.
    queued_sessions: QuotaUse,
    /// Sandboxes that run, those of sessions among them.
    sandboxes: QuotaUse,
    /// Bytes of uploaded workspaces, with 4 KiB more for each entry.
    upload_bytes: QuotaUse,
    /// Requests in a second; null for no limit.
    requests_per_second: Option<u32>,
    /// Of each sandbox.
    each_sandbox: SandboxLimits,
}

impl App {
    /// A place for one more sandbox of `user`. When there is none, the one that the user has used least lately stops,
    /// if nobody works in it.
    pub(super) fn take_start_place(&self, user: &str) -> Result<StartPlace<'_>, Error> {
        let limit = self.config.max_sandboxes_per_user;
        loop {
            // Not held while one stops: that takes a while, and others start as well.
            let mut starting = self.starts.starting();
            let running = self.running_sandboxes(user)?;
            let coming = starting.get(user).copied().unwrap_or(0);
            if running.len() + coming < limit {
                *starting.entry(user.to_owned()).or_default() += 1;
                return Ok(StartPlace {
                    starts: &self.starts,
                    user: user.to_owned(),
                });
            }
            drop(starting);
            if !self.stop_one_idle(|name| running.contains(name)) {
                let message = format!("{limit} sandboxes of this user run, and that is the most");
                let fault = Fault::failed(Code::TooManySandboxes, message);
                let remedy = "end one, or wait until a command in one has ended; /api/quotas says what is used";
                return Err(fault.remedy(remedy).retryable().into());
            }
        }
    }

    /// The sandboxes of `user` that run.
    fn running_sandboxes(&self, user: &str) -> Result<Vec<Name>, Fault> {
        let mut running = Vec::new();
        for (name, owned) in self.owners.sandboxes()? {
            let Ok(name) = Name::parse(&name) else {
                continue;
            };
            if owned.user != user {
                continue;
            }
            let entry = self.config.registry.entry(&name)?;
            let runs = |state| matches!(state, SandboxState::Starting | SandboxState::Ready);
            if entry.is_some_and(|entry| runs(entry.state)) {
                running.push(name);
            }
        }
        Ok(running)
    }

    /// What `user` may have and has.
    pub(crate) fn quotas(&self, user: &str) -> Result<Quotas, Fault> {
        let (running, queued) = self.queue.counts_of(user);
        let settings = &self.config.settings;
        let used = |used, limit| QuotaUse { used, limit };
        Ok(Quotas {
            user: user.to_owned(),
            running_sessions: used(running, self.config.max_running_per_user),
            queued_sessions: used(queued, self.config.max_queued_per_user),
            sandboxes: used(
                self.running_sandboxes(user)?.len(),
                self.config.max_sandboxes_per_user,
            ),
            upload_bytes: used(
                usize::try_from(self.upload_bytes(user)?).unwrap_or(usize::MAX),
                usize::try_from(self.config.uploads.max_bytes_per_user).unwrap_or(usize::MAX),
            ),
            requests_per_second: self.config.max_requests_per_second,
            each_sandbox: SandboxLimits {
                memory_bytes: settings.memory.value.0,
                cpu_millis: settings.cpus.value.0,
                disk_bytes: settings.disk.value.0,
                processes: settings.pids.value.0,
            },
        })
    }
}
