//! Quotas of a user, and how much of each is used.

use super::App;
use super::resources::{Resources, StartPlace, StartWish, TakeError};
use crate::config::ResourceLimits;
use glovebox_proto::Fault;
use glovebox_session::Error;
use glovebox_settings::Settings;
use serde::Serialize;
use utoipa::ToSchema;

/// How much of something is used, and how much may be.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QuotaUse {
    /// Now.
    used: usize,
    /// At most.
    limit: usize,
}

/// How much of a resource sandboxes may use, and how much of that is used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AmountUse {
    /// By the limits of sandboxes that run; null when one of them has no limit.
    used: Option<u64>,
    /// At most; null for no quota.
    limit: Option<u64>,
}

impl AmountUse {
    fn new(used: u64, limit: Option<u64>) -> Self {
        Self {
            used: Some(used).filter(|used| *used != u64::MAX),
            limit,
        }
    }
}

/// Memory, processors and disk of several sandboxes together.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResourceQuotaUse {
    memory_bytes: AmountUse,
    /// Thousandths of one processor.
    cpu_millis: AmountUse,
    /// With what the files of stopped sandboxes take, where there is a quota.
    disk_bytes: AmountUse,
}

impl ResourceQuotaUse {
    fn new(used: Resources, limits: &ResourceLimits) -> Self {
        Self {
            memory_bytes: AmountUse::new(used.memory_bytes, limits.memory_bytes),
            cpu_millis: AmountUse::new(used.cpu_millis, limits.cpu_millis),
            disk_bytes: AmountUse::new(used.disk_bytes, limits.disk_bytes),
        }
    }
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
    /// What sandboxes may use together, by their limits while they run.
    resources: ResourceQuotaUse,
    /// The same of all users, for administrators of a server that has such quotas.
    all_users: Option<ResourceQuotaUse>,
    /// Requests in a second; null for no limit.
    requests_per_second: Option<u32>,
    /// Of each sandbox.
    each_sandbox: SandboxLimits,
}

impl App {
    /// Reserves a place for one more sandbox of `user` that belongs to no session. If there is
    /// none, the user's least recently used idle sandbox is stopped.
    pub(super) fn take_start_place(
        &self,
        user: &str,
        settings: &Settings,
    ) -> Result<StartPlace, Error> {
        let need = Resources::of_settings(settings);
        self.config.quotas.check(need)?;
        let wish = StartWish {
            user,
            need,
            name: None,
            max_running: self.config.max_sandboxes_per_user,
        };
        Ok(self.take_place(&wish).map_err(TakeError::into_fault)?)
    }

    /// Returns the quotas of `user` and their use, for administrators also those of all users.
    pub(crate) fn quotas(&self, user: &str, is_admin: bool) -> Result<Quotas, Fault> {
        let (running, queued) = self.queue.counts_of(user);
        let settings = &self.config.settings;
        let resources = self.resources_used(user, None)?;
        let quotas = &self.config.quotas;
        let limits = settings.limits.to_limits(None);
        let used = |used, limit| QuotaUse { used, limit };
        Ok(Quotas {
            user: user.to_owned(),
            running_sessions: used(running, self.config.max_running_per_user),
            queued_sessions: used(queued, self.config.max_queued_per_user),
            sandboxes: used(resources.running.len(), self.config.max_sandboxes_per_user),
            upload_bytes: used(
                usize::try_from(self.upload_bytes(user)?).unwrap_or(usize::MAX),
                usize::try_from(self.config.uploads.max_bytes_per_user).unwrap_or(usize::MAX),
            ),
            resources: ResourceQuotaUse::new(resources.of_user, &quotas.per_user),
            all_users: (is_admin && quotas.is_limited())
                .then(|| ResourceQuotaUse::new(resources.of_all, &quotas.in_all)),
            requests_per_second: self.config.max_requests_per_second,
            each_sandbox: SandboxLimits {
                memory_bytes: limits.memory_bytes,
                cpu_millis: limits.cpu_millis,
                disk_bytes: limits.disk_bytes,
                processes: limits.pids,
            },
        })
    }
}
